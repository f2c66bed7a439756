//! What definitions are checked against, and the words that they consist of.

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbol {
    /// Nothing.
    None,
    /// One address.
    One(u64),
    /// Several.
    Many,
}

/// What definitions are checked against.
pub trait Machine {
    /// What a name stands for.
    fn symbol(&self, name: &str) -> Symbol;
    /// Does a function begin there?
    fn is_function(&self, address: u64) -> bool;
    /// Does an instruction begin there?
    fn is_instruction(&self, address: u64) -> bool;
    /// Has the function there a site?
    fn is_traceable(&self, address: u64) -> bool;
    /// Is this the name of a register?
    fn is_register(&self, name: &str) -> bool;
}

/// The words of a line, without its comment.
pub(super) fn words(line: &str) -> impl Iterator<Item = &str> + Clone {
    line.split('#').next().unwrap_or("").split_ascii_whitespace()
}
