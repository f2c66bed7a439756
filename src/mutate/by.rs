//! Who judges mutants: the emulator, the symbolic checker, or the observer.

/// Who judges.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum By {
    /// The emulator, by clauses.
    #[default]
    Emulator,
    /// The symbolic checker, by its properties.
    Verify,
    /// The observer, without a contract: what the mutant does is compared with what the original does.
    Observe,
    /// Both, apart from each other. What became of a mutant is what the emulator says.
    Both,
}

impl By {
    /// All of them, with their names on the command line and what they are.
    pub const ALL: [(&'static str, &'static str, By); 4] = [
        ("emulator", "The emulator, by clauses", By::Emulator),
        ("verify", "The symbolic checker, by its properties", By::Verify),
        ("observe", "`diff` without a contract, by what it observes", By::Observe),
        (
            "both",
            "The emulator and the symbolic checker, apart from each other. What became of a mutant is what the emulator says",
            By::Both,
        ),
    ];

    /// The emulator is not asked: its clauses are nowhere in the report.
    pub fn alone(self) -> bool {
        matches!(self, By::Verify | By::Observe)
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        By::ALL.iter().find(|(_, _, by)| *by == self).map_or("", |(name, ..)| name)
    }
}
