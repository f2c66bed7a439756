// SPDX-License-Identifier: MIT OR Apache-2.0
//! The error of all verbs.

use std::error::Error;
use std::fmt;
use std::path::Path;

/// Why a chore could not be finished: where, what happened, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The file, program or argument concerned.
    pub place: String,
    /// What happened there.
    pub what: String,
    /// What the reader can do about it.
    pub remedy: String,
}

impl Failure {
    /// A failure at a place that has a name of its own.
    pub fn new(place: impl Into<String>, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into(), remedy: remedy.into() }
    }

    /// A failure at a file or directory.
    pub fn at(path: &Path, what: impl fmt::Display, remedy: impl Into<String>) -> Self {
        Self::new(path.display().to_string(), what.to_string(), remedy)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, what, remedy } = self;
        write!(f, "{place}: {what}\n  remedy: {remedy}")
    }
}

impl Error for Failure {}
