//! Who judges mutants: the emulator, or the symbolic checker.

use clap::ValueEnum;

/// Who judges.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
pub enum By {
    /// The emulator, by clauses.
    #[default]
    Emulator,
    /// The symbolic checker, by its properties.
    Verify,
    /// Both, apart from each other. What became of a mutant is what the emulator says.
    Both,
}

impl By {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            By::Emulator => "emulator",
            By::Verify => "verify",
            By::Both => "both",
        }
    }
}
