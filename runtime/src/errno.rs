//! Refusals, with the kernel's names and numbers.

use core::fmt;

macro_rules! errnos {
    ($($(#[$doc:meta])* $variant:ident = $number:literal $name:literal,)*) => {
        /// The reason why an operation is refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Errno {
            $($(#[$doc])* $variant = $number,)*
        }

        impl Errno {
            /// The name that Linux prints, `EBUSY` for example.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

errnos! {
    /// No such function, symbol or event.
    Noent = 2 "ENOENT",
    /// A list, too long.
    TooBig = 7 "E2BIG",
    /// A table is full.
    Nomem = 12 "ENOMEM",
    /// Somebody else holds the function, or the user is registered.
    Busy = 16 "EBUSY",
    /// The probe or event is registered.
    Exist = 17 "EEXIST",
    /// An argument makes no sense.
    Inval = 22 "EINVAL",
    /// All users of the function graph are taken.
    Nospc = 28 "ENOSPC",
}

impl Errno {
    /// The number, as Linux returns it: negative.
    #[must_use]
    pub const fn code(self) -> i32 {
        -(self as i32)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "-{}", self.name())
    }
}

/// What an operation returns.
pub type Result<T> = core::result::Result<T, Errno>;
