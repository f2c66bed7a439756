//! The one error type of the library crates: what, where, and what would be valid.

use std::fmt;

/// An error that names the place and the remedy. It is a value: nothing here panics on input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    message: String,
    mark: Option<String>,
}

/// A result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with this text; it starts with the place and ends with the remedy.
    pub fn new(message: impl Into<String>) -> Error {
        Error { message: message.into(), mark: None }
    }

    /// An error in something that was given as text, at this byte of it.
    pub fn marked(message: &str, text: &str, at: usize) -> Error {
        let clean = |c: char| if c.is_control() { ' ' } else { c };
        let shown: String = text.chars().map(clean).collect();
        let column = text.char_indices().take_while(|(i, _)| *i < at).count();
        Error { message: message.to_owned(), mark: Some(format!("  {shown}\n  {:column$}^", "")) }
    }

    /// The text that was given and, in a line below, its place in it.
    pub fn mark(&self) -> Option<&str> {
        self.mark.as_deref()
    }

    /// The same error, with the place in front.
    pub fn at(self, place: impl fmt::Display) -> Error {
        Error { message: format!("{place}: {}", self.message), ..self }
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
