//! Which engine runs the code.

use clap::Args;
use emu_tests::{Emulator, Suite};

/// The engine.
#[derive(Args)]
pub struct EngineArgs {
    /// What runs the code: Unicorn, which is built in, or QEMU 11.1 with its plugins (arm64, riscv64; see docs/enforcing.md)
    #[arg(long, value_name = "unicorn|qemu", default_value = "unicorn")]
    engine: Emulator,
    /// Let landing pads and shadow stacks stop whoever breaks them, by QEMU, and check that they do (P26)
    #[arg(long, conflicts_with = "engine")]
    enforce: bool,
}

impl EngineArgs {
    /// The engine that was chosen.
    pub fn chosen(&self) -> Emulator {
        if self.enforce { Emulator::Qemu { enforces: true } } else { self.engine }
    }

    /// Let these be run by it.
    pub fn run(&self, suites: &mut [Suite]) {
        suites.iter_mut().for_each(|suite| suite.engine = self.chosen());
    }
}
