//! The one error type of the library crates: what, where, and what would be valid.

use std::fmt;

/// An error that names the place and the remedy. It is a value: nothing here panics on input.
///
/// Its text is for people. Code that depends on the kind of error matches [`Error::kind`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// A name that does not exist.
    Unknown {
        /// The kind of thing that was to be named.
        what: String,
        /// The name that was given.
        given: String,
        /// The names that exist.
        valid: Vec<String>,
    },
    /// A text breaks the rules of its language.
    Syntax {
        /// The broken rule, and what would be valid.
        message: String,
        /// The text that was given.
        text: String,
        /// The offset of the error in the text, in bytes.
        at: usize,
    },
    /// A file ends too early, or its parts contradict each other.
    Damaged {
        /// The damaged part, and the problem.
        what: String,
    },
    /// A signed field cannot hold the distance to its target.
    OutOfReach {
        /// The name of the relocation or instruction.
        field: String,
        /// Bytes to the target.
        distance: i64,
        /// Bits of the field, counted in bytes of distance.
        bits: u32,
    },
    /// A field cannot hold an absolute address.
    TooLarge {
        /// The name of the relocation.
        field: String,
        /// The address.
        value: u64,
    },
    /// A field cannot hold an address that is no multiple of its unit.
    Misaligned {
        /// The name of the relocation.
        field: String,
        /// The address.
        value: u64,
        /// The unit, in bytes.
        unit: u64,
    },
    /// A relocation of the low part of an address names an instruction that has no high part.
    Unpaired {
        /// The address of the named instruction.
        high: u64,
    },
    /// Objects refer to symbols that none of them defines.
    Undefined {
        /// Each symbol, and the place of its first use.
        symbols: Vec<(String, String)>,
    },
    /// A symbol has more than one definition.
    Duplicate {
        /// The symbol.
        symbol: String,
        /// The places of its definitions, and the remedy.
        places: String,
    },
    /// No encoding of an instruction has these operands.
    Unencodable {
        /// The operand, and what would be valid.
        what: String,
    },
    /// An instruction refers to a label that the architecture's lowering never placed.
    Unbound {
        /// The label, which begins with the trampoline's name.
        label: String,
    },
    /// An architecture has no instructions for what a profile asks for.
    Unsupported {
        /// The architecture.
        arch: &'static str,
        /// The profile.
        profile: String,
        /// The requested feature.
        what: String,
    },
    /// A profile lacks data that a trampoline needs, so the trampoline does not exist under this profile.
    Absent {
        /// The profile.
        profile: String,
        /// The missing data.
        what: String,
        /// Profiles or options that have it.
        valid: String,
    },
    /// A refused request: the text says what is refused, and what would be valid.
    Refused(String),
    /// Another error, and its place.
    At {
        /// The place, the outermost first.
        place: String,
        /// The error at this place; never `At` itself.
        error: Box<Error>,
    },
}

/// A result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with this text; it starts with the place and ends with the remedy.
    pub fn new(message: impl Into<String>) -> Error {
        Error::Refused(message.into())
    }

    /// A [`Error::Syntax`] error at byte `at` of `text`.
    pub fn marked(message: &str, text: &str, at: usize) -> Error {
        Error::Syntax { message: message.to_owned(), text: text.to_owned(), at }
    }

    /// The error for a name `given` that is none of `valid`.
    pub fn unknown<'a>(what: &str, given: &str, valid: impl IntoIterator<Item = &'a str>) -> Error {
        let valid = valid.into_iter().map(str::to_owned).collect();
        Error::Unknown { what: what.to_owned(), given: given.to_owned(), valid }
    }

    /// A damaged file.
    pub fn damaged(what: impl fmt::Display) -> Error {
        Error::Damaged { what: what.to_string() }
    }

    /// An instruction that cannot be encoded.
    pub fn unencodable(what: impl fmt::Display) -> Error {
        Error::Unencodable { what: what.to_string() }
    }

    /// The text that was given, and a line below that marks the place of the error.
    pub fn mark(&self) -> Option<String> {
        let Error::Syntax { text, at, .. } = self.kind() else { return None };
        let clean = |c: char| if c.is_control() { ' ' } else { c };
        let shown: String = text.chars().map(clean).collect();
        let column = text.char_indices().take_while(|(i, _)| i < at).count();
        Some(format!("  {shown}\n  {:column$}^", ""))
    }

    /// The same error, with the place in front.
    pub fn at(self, place: impl fmt::Display) -> Error {
        match self {
            Error::At { place: inner, error } => Error::At { place: format!("{place}: {inner}"), error },
            error => Error::At { place: place.to_string(), error: Box::new(error) },
        }
    }

    /// The error without its place.
    pub fn kind(&self) -> &Error {
        match self {
            Error::At { error, .. } => error,
            error => error,
        }
    }
}

impl From<String> for Error {
    fn from(message: String) -> Error {
        Error::Refused(message)
    }
}

impl From<&str> for Error {
    fn from(message: &str) -> Error {
        Error::new(message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unknown { what, given, valid } => {
                write!(f, "unknown {what} '{given}'; valid: {}", valid.join(", "))
            }
            Error::Syntax { message, .. } | Error::Refused(message) => f.write_str(message),
            Error::Damaged { what } => write!(f, "{what}; the file is damaged or cut off"),
            Error::OutOfReach { field, distance, bits } => {
                let reach = 1_u64 << bits.saturating_sub(1).min(63);
                let unit = (reach.trailing_zeros() / 10).min(3);
                let name = ["bytes", "KiB", "MiB", "GiB"].get(unit as usize).unwrap_or(&"");
                let reach = reach >> (10 * unit);
                write!(f, "{field} reaches {reach} {name} either way; the target is {distance} bytes away")
            }
            Error::TooLarge { field, value } => write!(
                f,
                "{field} cannot hold {value:#x}; link at another base address, or compile for a larger code model"
            ),
            Error::Misaligned { field, value, unit } => {
                write!(f, "{field} reaches multiples of {unit} bytes; the target {value:#x} is not one: align it")
            }
            Error::Unpaired { .. } => f.write_str(
                "there is no high part at the label that this low part names; it must be the label of the instruction \
                 with %pcrel_hi",
            ),
            Error::Undefined { symbols } => {
                let uses: Vec<String> = symbols.iter().map(|(name, at)| format!("{name} (used by {at})")).collect();
                write!(f, "undefined: {}; link the objects that define them", uses.join(", "))
            }
            Error::Duplicate { symbol, places } => write!(f, "symbol {symbol} is defined {places}"),
            Error::Unencodable { what } => f.write_str(what),
            Error::Unbound { label } => write!(f, "an instruction refers to label {label}, which is put nowhere"),
            Error::Unsupported { arch, profile, what } => write!(
                f,
                "{arch} cannot do what profile {profile} asks for here ({what}); valid: a profile or option without it"
            ),
            Error::Absent { profile, what, valid } => write!(f, "profile {profile} has no {what}; valid: {valid}"),
            Error::At { place, error } => write!(f, "{place}: {error}"),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_changes_no_kind() {
        let e = Error::unknown("flavour", "sour", ["sweet", "salt"]).at("pan").at("kitchen");
        assert_eq!(e.to_string(), "kitchen: pan: unknown flavour 'sour'; valid: sweet, salt");
        assert_eq!(*e.kind(), Error::unknown("flavour", "sour", ["sweet", "salt"]));
        let e = Error::marked("not a dish", "a\tb", 2).at("menu");
        assert_eq!((e.to_string().as_str(), e.mark().as_deref()), ("menu: not a dish", Some("  a b\n    ^")));
    }
}
