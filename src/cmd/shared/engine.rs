//! Which engine runs the code.

use clap::Args;
use codegen::words::error::{Error, Result};
use emu_tests::{Emulator, Suite};

/// The engine.
#[derive(Args)]
pub struct EngineArgs {
    /// What runs the code: Unicorn, which is built in, QEMU 11.1 with its plugins (arm64, riscv64), the same by its stub for
    /// GDB, or Bochs (x86_64; see docs/enforcing.md); with a comma between two of them, `check` takes both, and what they
    /// disagree on fails
    #[arg(long, value_name = "unicorn|qemu|bochs|gdb", value_delimiter = ',', default_value = "unicorn")]
    engine: Vec<Emulator>,
    /// Let landing pads and shadow stacks stop whoever breaks them, by QEMU or Bochs, and judge what they stop (P26
    /// of `check`, C11 of `audit`)
    #[arg(long, conflicts_with = "engine")]
    enforce: bool,
}

impl EngineArgs {
    /// The engines that were chosen, the one that reports first.
    pub fn all(&self) -> Vec<Emulator> {
        if self.enforce { vec![Emulator::Enforced] } else { self.engine.clone() }
    }

    /// The engine that was chosen.
    ///
    /// # Errors
    /// There are several.
    pub fn one(&self) -> Result<Emulator> {
        match self.all()[..] {
            [one] => Ok(one),
            _ => Err(Error::new(
                "several engines are for `check`; valid: --engine unicorn, --engine qemu, --engine bochs, --engine gdb",
            )),
        }
    }
}

/// Let these be run by an engine.
pub fn run_by(engine: Emulator, suites: &mut [Suite]) {
    suites.iter_mut().for_each(|suite| suite.engine = engine);
}
