//! What an audit is asked for.

use std::collections::HashSet;

/// What is asked for.
pub struct Asked {
    /// Compilers' functions too.
    pub all: bool,
    /// The functions that are asked for by name.
    pub only: Option<Box<dyn Fn(&str) -> bool + Send + Sync>>,
    /// The names that headers have.
    pub declared: HashSet<String>,
    /// How many runs a function has at first.
    pub runs: u64,
    /// This run alone.
    pub seed: Option<u64>,
}
