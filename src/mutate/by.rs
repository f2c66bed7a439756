//! Who judges mutants: the emulator, or the symbolic checker.

/// Who judges.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
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
    /// All of them, with their names on the command line and what they are.
    pub const ALL: [(&'static str, &'static str, By); 3] = [
        ("emulator", "The emulator, by clauses", By::Emulator),
        ("verify", "The symbolic checker, by its properties", By::Verify),
        ("both", "Both, apart from each other. What became of a mutant is what the emulator says", By::Both),
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        By::ALL.iter().find(|(_, _, by)| *by == self).map_or("", |(name, ..)| name)
    }
}
