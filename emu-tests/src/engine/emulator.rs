//! Which engines there are, and what each runs.

use std::fmt;
use std::str::FromStr;

use codegen::arch::bare::Bare;
use codegen::backend::Backend;
use codegen::words::error::{Error, Result};

use super::{qemu, unicorn};

/// What runs code.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Emulator {
    /// Unicorn, which is compiled in.
    #[default]
    Unicorn,
    /// `qemu-system-*`, in processes of its own.
    Qemu {
        /// Landing pads, shadow stacks and signed return addresses stop whoever breaks them.
        enforces: bool,
    },
}

impl Emulator {
    /// The names that people give, in order.
    const NAMES: [(&'static str, Emulator); 2] =
        [("unicorn", Emulator::Unicorn), ("qemu", Emulator::Qemu { enforces: false })];

    /// Does it run in processes of its own?
    pub fn is_outside(self) -> bool {
        self != Emulator::Unicorn
    }

    /// The arguments that choose it.
    pub fn words(self) -> &'static [&'static str] {
        match self {
            Emulator::Unicorn => &[],
            Emulator::Qemu { enforces: false } => &["--engine", "qemu"],
            Emulator::Qemu { enforces: true } => &["--enforce"],
        }
    }

    /// Its name and version. A program is asked for it.
    ///
    /// # Errors
    /// It does not run the architecture, or is not there.
    pub fn version(self, backend: &dyn Backend) -> Result<String> {
        match self {
            Emulator::Unicorn => {
                let (major, minor) = unicorn::engine_version();
                Ok(format!("Unicorn {major}.{minor}"))
            }
            Emulator::Qemu { enforces } => {
                let version = qemu::version(bare(backend)?)?;
                let guarded = if enforces { ", which enforces" } else { "" };
                Ok(format!("QEMU {version}{guarded}"))
            }
        }
    }
}

/// How QEMU runs an architecture.
///
/// # Errors
/// It does not.
pub(super) fn bare(backend: &dyn Backend) -> Result<&'static Bare> {
    let arch = backend.facts().name;
    let why = "it has neither shadow stacks nor landing pads of that; valid: --arch arm64, --arch riscv64";
    backend.machine().bare.ok_or_else(|| Error::new(format!("QEMU does not run {arch} here: {why}")))
}

impl fmt::Display for Emulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Emulator::Unicorn => "unicorn",
            Emulator::Qemu { .. } => "qemu",
        })
    }
}

impl FromStr for Emulator {
    type Err = Error;

    fn from_str(name: &str) -> Result<Emulator> {
        let known = Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, emulator)| *emulator);
        let valid = || Self::NAMES.map(|(name, _)| name).join(", ");
        known.ok_or_else(|| Error::new(format!("unknown engine '{name}'; valid: {}", valid())))
    }
}
