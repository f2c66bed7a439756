//! The one error type of the library crates: what, where, and what would be valid.

use std::fmt;

/// An error that names the place and the remedy. It is a value: nothing here panics on input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    message: String,
}

/// A result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with this text; it starts with the place and ends with the remedy.
    pub fn new(message: impl Into<String>) -> Error {
        Error { message: message.into() }
    }

    /// The same error, with the place in front.
    pub fn at(self, place: impl fmt::Display) -> Error {
        Error { message: format!("{place}: {}", self.message) }
    }

    /// `what` is none of `valid`.
    pub fn unknown<'a>(what: &str, given: &str, valid: impl IntoIterator<Item = &'a str>) -> Error {
        let valid: Vec<&str> = valid.into_iter().collect();
        Error::new(format!("unknown {what} '{given}'; valid: {}", valid.join(", ")))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
