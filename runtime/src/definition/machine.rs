//! The machine against which definitions are checked, and the words of a line.

/// The addresses of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbol {
    /// No such symbol.
    None,
    /// One address.
    One(u64),
    /// Several addresses.
    Many,
}

/// The symbols, functions and registers against which definitions are checked.
pub trait Machine {
    /// The addresses of a symbol.
    fn symbol(&self, name: &str) -> Symbol;
    /// Does a function begin at `address`?
    fn is_function(&self, address: u64) -> bool;
    /// Does an instruction begin at `address`?
    fn is_instruction(&self, address: u64) -> bool;
    /// Does the function at `address` have a site?
    fn is_traceable(&self, address: u64) -> bool;
    /// Is this the name of a register?
    fn is_register(&self, name: &str) -> bool;
}

/// The words of a line, without its comment.
pub(super) fn words(line: &str) -> impl Iterator<Item = &str> + Clone {
    line.split('#').next().unwrap_or("").split_ascii_whitespace()
}
