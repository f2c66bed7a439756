//! What an audit is asked for.

use std::collections::HashSet;

use crate::engine::emulator::Emulator;

/// Whether a function's name was asked for.
pub type Only = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// What is asked for.
pub struct Asked {
    /// Compilers' functions too.
    pub all: bool,
    /// The functions that are asked for by name.
    pub only: Option<Only>,
    /// The names that headers have.
    pub declared: HashSet<String>,
    /// How many runs a function has at first.
    pub runs: u64,
    /// This run alone.
    pub seed: Option<u64>,
    /// What runs the code.
    pub engine: Emulator,
}
