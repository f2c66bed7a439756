//! Errors, and their remedies.

use std::fmt;

use crate::function::Class;

/// An error that says what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// No loaded object has a function of this name.
    NotFound {
        /// The name.
        name: String,
        /// Similar names.
        near: Vec<String>,
    },
    /// Several functions have this name.
    Ambiguous {
        /// The name.
        name: String,
        /// The addresses of these functions.
        at: Vec<u64>,
    },
    /// Nothing can be attached to this function.
    Refused {
        /// The function.
        function: String,
        /// The class of its entry.
        class: Class,
        /// The reason.
        reason: String,
        /// The bytes at its entry.
        bytes: Vec<u8>,
    },
    /// The function's code cannot be written.
    Protected {
        /// The attempt, and its result.
        tried: Vec<String>,
    },
    /// The function's entry has neither its own code nor ours: somebody else has patched it.
    Foreign {
        /// The function.
        function: String,
        /// The bytes at the entry.
        found: Vec<u8>,
        /// The bytes that were expected there.
        expected: Vec<u8>,
    },
    /// There is no room for trampolines within the reach of a branch.
    OutOfReach {
        /// The function.
        function: String,
    },
    /// The system lacks something that this library needs.
    Missing {
        /// The operation, and the system's error.
        what: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// [`StaticDetour::initialize`](crate::retour::StaticDetour) was not called.
    NotInitialized,
    /// [`StaticDetour::initialize`](crate::retour::StaticDetour) was called before.
    AlreadyInitialized,
    /// The generator refuses the trampoline.
    Generator(tramptool::Error),
}

/// A result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl From<tramptool::Error> for Error {
    fn from(error: tramptool::Error) -> Error {
        Error::Generator(error)
    }
}

/// Bytes as people read them.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        f.write_str(&all.join(" "))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotFound { name, near } if near.is_empty() => {
                write!(
                    f,
                    "no function {name} in a loaded object; valid: a name in a symbol table (not stripped), or an address"
                )
            }
            Error::NotFound { name, near } => {
                write!(f, "no function {name} in a loaded object; valid: {}", near.join(", "))
            }
            Error::Ambiguous { name, at } => {
                let at: Vec<String> = at.iter().map(|at| format!("{at:#x}")).collect();
                write!(f, "{name} is the name of {} functions; valid: one of the addresses {}", at.len(), at.join(", "))
            }
            Error::Refused { function, class, reason, bytes } => {
                write!(f, "{function}: {reason} ({}: {})", class.name(), Hex(bytes))?;
                match class {
                    Class::TrapOnly => f.write_str("; valid: Policy::traps, by which each call costs a signal"),
                    _ => Ok(()),
                }
            }
            Error::Protected { tried } => write!(
                f,
                "code cannot be written: {}; valid: a process that may change its own code (no PR_SET_MDWE and mseal together \
                 with a /proc/self/mem that is closed)",
                tried.join("; ")
            ),
            Error::Foreign { function, found, expected } => write!(
                f,
                "{function}: {} is at its entry, not {}: somebody else has patched it; valid: detach the other one first",
                Hex(found),
                Hex(expected)
            ),
            Error::OutOfReach { function } => {
                write!(
                    f,
                    "{function}: no free memory for trampolines within the reach of a branch; valid: attach earlier"
                )
            }
            Error::Missing { what, remedy } => write!(f, "{what}; valid: {remedy}"),
            Error::NotInitialized => f.write_str("the detour has no function yet; valid: `initialize` first"),
            Error::AlreadyInitialized => {
                f.write_str("the detour has a function already; valid: `set_detour`, or another static")
            }
            Error::Generator(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}
