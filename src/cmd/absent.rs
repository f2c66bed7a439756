//! Commands that need the judge, in a build without it: they take any arguments, and say what to do.

use std::ffi::OsString;

use clap::Args;
use codegen::words::error::Error;

/// Whatever is given.
#[derive(Args)]
#[command(disable_help_flag = true, override_usage = "(not in this build)")]
pub struct Anything {
    /// Not in this build, which has no emulator
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ANYTHING")]
    _words: Vec<OsString>,
}

/// Why `what` does nothing here.
pub fn refusal(what: &str) -> Error {
    Error::new(format!(
        "`tramptool {what}` needs the judge, which this build leaves out; valid: a build with it, by `cargo build` without \
         --no-default-features"
    ))
}

macro_rules! absent {
    ($($command:ident $args:ident),*) => {
        $(
            /// A command of the judge.
            pub mod $command {
                use codegen::words::error::Result;

                pub use crate::cmd::absent::Anything as $args;

                /// Refuse.
                ///
                /// # Errors
                /// Always.
                pub fn run<Ui>(_: &$args, _: &Ui) -> Result<u8> {
                    Err(crate::cmd::absent::refusal(stringify!($command)))
                }
            }
        )*
    };
}

absent!(audit AuditArgs, check CheckArgs, contract ContractCommand, cost CostArgs, explain ExplainArgs, mutate MutateArgs, probe ProbeArgs, report ReportCommand, review ReviewArgs);

/// The part of `compose` that runs code of a machine.
pub mod on {
    use std::path::Path;

    use codegen::words::error::Result;
    use compose::Subject;

    /// Refuse.
    ///
    /// # Errors
    /// Always.
    pub fn machine(
        _: &str,
        _: Option<&Path>,
        _: Option<&str>,
        _: Option<&str>,
        _: &mut dyn FnMut(&Subject, &str) -> Result<()>,
    ) -> Result<()> {
        Err(super::refusal("compose --arch"))
    }
}

/// The part of `diff` that runs code.
pub mod compare {
    use codegen::words::error::Result;

    use crate::cmd::diff::how::How;

    /// Refuse.
    ///
    /// # Errors
    /// Always.
    pub fn run<Ui>(_: [&str; 2], _: &How, _: &Ui) -> Result<u8> {
        Err(super::refusal("diff of files"))
    }

    /// Nobody knows what the two do.
    ///
    /// # Errors
    /// None.
    pub fn behaviour<Ui>(_: [&str; 2], _: &How, _: &Ui, _: &mut String) -> Result<Option<bool>> {
        Ok(None)
    }
}
