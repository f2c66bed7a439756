// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chores, and how they end.

use crate::failure::Failure;

/// How a verb that ran to its end leaves the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everything asked for was done, or is as it should be.
    Good,
    /// Something is not as it should be; the verb has said what.
    Bad,
}

/// One chore.
pub struct Verb {
    /// What to type.
    pub name: &'static str,
    /// The arguments and the purpose, for the usage text.
    pub usage: &'static str,
    /// Does it, with the arguments that follow the name.
    pub run: fn(&[String]) -> Result<Outcome, Failure>,
}
