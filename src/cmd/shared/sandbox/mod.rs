//! Walls around a process that has read its inputs and now runs code of others: it opens, starts and reaches nothing any more.
//!
//! The emulator keeps such code in. Should it find a way out, it has what this process has left: its memory, stdout, stderr, and
//! a socket to the process that writes the report, to the one file that the user named.

mod filter;
mod receive;

use std::path::Path;

use clap::{Args, ValueEnum};
use codegen::words::error::{Error, Result};
use emu_tests::Emulator;
use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetStatus, Scope};
use rayon::ThreadPool;
use rustix::process::{Resource, Rlimit, setrlimit};

use super::{output, threads, writer};
use filter::Built;
pub use receive::{ReceiveArgs, receive};

/// Whether there are walls.
#[derive(Args)]
pub struct SandboxArg {
    /// Before code runs, give up opening files, starting programs and reaching the network
    #[arg(long, value_name = "auto|on|off", value_enum, default_value = "auto", hide_possible_values = true)]
    sandbox: Sandbox,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sandbox {
    /// By what the system has of seccomp and Landlock.
    Auto,
    /// By both, or the command ends with code 2.
    On,
    /// Not at all.
    Off,
}

impl SandboxArg {
    /// All inputs are read, and from now on code runs. The report goes to `file`, if not to stdout. The threads for the work are
    /// there as long as what is returned.
    ///
    /// # Errors
    /// There is no thread, nobody to write the report, or a wall is missing that has to be there.
    pub fn enter(&self, file: Option<&Path>) -> Result<Option<ThreadPool>> {
        // A container's limits are in files.
        let wanted = threads::wanted();
        if self.sandbox != Sandbox::Off {
            // Who writes it does not know what this process has read.
            file.map_or(Ok(()), output::probe)?;
            let socket = file.map(writer::start).transpose()?;
            // Landlock holds for this thread and those that it makes. A descriptor and calls of its own are no use to it later.
            self.want("Landlock", landlock())?;
            self.want("limits", limit())?;
            self.want("seccomp", filter::apply(socket))?;
        }
        threads::made(wanted)
    }

    /// The same for engines of which one may run code in processes of its own: walls are around those, and this one, which runs none,
    /// starts more of them.
    ///
    /// # Errors
    /// As above.
    pub fn enter_with(&self, engines: &[Emulator], file: Option<&Path>) -> Result<Option<ThreadPool>> {
        if !engines.iter().any(|engine| engine.is_outside()) {
            return self.enter(file);
        }
        threads::made(threads::wanted())
    }

    /// A wall that the system does not have is missing, unless it must be there. One that cannot be built is trouble.
    fn want(&self, wall: &str, built: Built) -> Result<()> {
        match built {
            Ok(true) => Ok(()),
            Ok(false) if self.sandbox == Sandbox::Auto => Ok(()),
            Ok(false) => {
                Err(Error::new(format!("--sandbox on: this system has no {wall}; valid: --sandbox auto or off")))
            }
            Err(why) => Err(Error::new(format!("{wall}: {why}; valid: --sandbox off"))),
        }
    }
}

/// No further file, socket or other descriptor, and no core dump.
fn limit() -> Built {
    for resource in [Resource::Nofile, Resource::Core] {
        setrlimit(resource, Rlimit { current: Some(0), maximum: Some(0) })?;
    }
    Ok(true)
}

/// No file, no network, no signal to and no socket of other processes, as far as the kernel knows of these.
fn landlock() -> Built {
    let all = ABI::V7;
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(all))?
        .handle_access(AccessNet::from_all(all))?
        .scope(Scope::from_all(all))?;
    Ok(rules.create()?.restrict_self()?.ruleset != RulesetStatus::NotEnforced)
}
