//! Which engines there are, and what each runs.

use std::fmt;
use std::str::FromStr;

use codegen::arch::bare::{Bare, Program};
use codegen::backend::Backend;
use codegen::words::error::{Error, Result};

use super::process::Mode;
use super::{process, unicorn};

/// What runs code.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Emulator {
    /// Unicorn, which is compiled in.
    #[default]
    Unicorn,
    /// `qemu-system-*`, in processes of its own.
    Qemu,
    /// Bochs, in processes of its own.
    Bochs,
    /// QEMU as [`Emulator::Qemu`], of which its stub for GDB tells.
    Gdb,
    /// The one of the two that runs the architecture. Landing pads, shadow stacks and signed return addresses stop whoever breaks them.
    Enforced,
}

impl Emulator {
    /// The names that people give, in order.
    const NAMES: [(&'static str, Emulator); 4] =
        [("unicorn", Emulator::Unicorn), ("qemu", Emulator::Qemu), ("bochs", Emulator::Bochs), ("gdb", Emulator::Gdb)];

    /// Does it run in processes of its own?
    pub fn is_outside(self) -> bool {
        self != Emulator::Unicorn
    }

    /// The arguments that choose it.
    pub fn words(self) -> &'static [&'static str] {
        match self {
            Emulator::Unicorn => &[],
            Emulator::Qemu => &["--engine", "qemu"],
            Emulator::Bochs => &["--engine", "bochs"],
            Emulator::Gdb => &["--engine", "gdb"],
            Emulator::Enforced => &["--enforce"],
        }
    }

    /// Its name and version. A program is asked for it.
    ///
    /// # Errors
    /// It does not run the architecture, or is not there.
    pub fn version(self, backend: &dyn Backend) -> Result<String> {
        if self == Emulator::Unicorn {
            let (major, minor) = unicorn::engine_version();
            return Ok(format!("Unicorn {major}.{minor}"));
        }
        let program = &self.bare(backend)?.program;
        let how = match self {
            Emulator::Enforced => ", which enforces",
            Emulator::Gdb => ", by its stub for GDB",
            _ => "",
        };
        Ok(format!("{} {}{how}", program.name(), process::version(program)?))
    }

    /// Does it have vectors at full width?
    pub fn has_wide(self, backend: &dyn Backend) -> bool {
        self.bare(backend).is_ok_and(|bare| !bare.wide.is_empty())
    }

    /// What a process of it is for.
    pub(super) fn mode(self) -> Mode {
        match self {
            Emulator::Unicorn | Emulator::Qemu | Emulator::Bochs => Mode::Free,
            Emulator::Gdb => Mode::Stepped,
            Emulator::Enforced => Mode::Enforced,
        }
    }

    /// How it runs an architecture in a process of its own.
    ///
    /// # Errors
    /// It does not.
    pub(super) fn bare(self, backend: &dyn Backend) -> Result<&'static Bare> {
        let has = |bare: &&Bare| match self {
            Emulator::Unicorn => false,
            Emulator::Qemu | Emulator::Gdb => matches!(bare.program, Program::Qemu(_)),
            Emulator::Bochs => matches!(bare.program, Program::Bochs(_)),
            Emulator::Enforced => true,
        };
        let bare = backend.machine().bare;
        bare.filter(has).ok_or_else(|| {
            let other = match bare.map(|bare| &bare.program) {
                None => "unicorn",
                Some(Program::Qemu(_)) => "unicorn, qemu, gdb",
                Some(Program::Bochs(_)) => "unicorn, bochs",
            };
            Error::new(format!("{self} does not run {} here; valid: {other}", backend.facts().name))
        })
    }
}

impl fmt::Display for Emulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(_, emulator)| emulator == self).map(|(name, _)| *name);
        f.write_str(name.unwrap_or("an engine that enforces"))
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
