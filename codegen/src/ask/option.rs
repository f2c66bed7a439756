//! The options of an architecture, and the choices under which trampolines are generated.

use crate::ask::spec::Kind;
use crate::words::error::{Error, Result};

/// An option that an architecture offers. Index in the architecture's table = index in [`Choices`].
#[derive(Debug)]
pub struct OptionInfo {
    /// The name on the command line.
    pub name: &'static str,
    /// The values, default first.
    pub values: &'static [&'static str],
    /// A few words on what the option changes.
    pub about: &'static str,
    /// The trampolines whose code it can change: [`Convention::changes`](crate::profile::Convention::changes) asks.
    pub applies: fn(Kind, Pad) -> bool,
    /// Independent of all other options, so `check` does not combine it with them.
    pub apart: bool,
}

/// How a trampoline begins where code has landing pads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pad {
    /// With a landing pad.
    First,
    /// Without a landing pad: no indirect branch reaches the trampoline.
    None,
}

/// An option as a type: an enum of its values, the default first. [`options!`](crate::options) makes one of each row.
pub trait Choice: Copy + 'static {
    /// The option's index in the architecture's table.
    const INDEX: usize;
    /// The first value.
    const DEFAULT: Self;
    /// The values, in the order of [`OptionInfo::values`].
    const VALUES: &'static [Self];
}

/// The options of an architecture, one row each: an enum, its values with their names on the command line, what it changes,
/// the trampolines whose code it can change, and whether it is tried apart from the others. Makes the enums, and the table
/// `OPTIONS`.
#[macro_export]
macro_rules! options {
    ($($option:ident = $name:literal { $($value:ident = $text:literal),+ } $about:literal,
        applies: $applies:expr, apart: $apart:literal;)+) => {
        /// The options.
        pub const OPTIONS: &[$crate::ask::option::OptionInfo] = &[
            $($crate::ask::option::OptionInfo {
                name: $name,
                values: &[$($text),+],
                about: $about,
                applies: $applies,
                apart: $apart,
            }),+
        ];

        const _: () = assert!(OPTIONS.len() <= $crate::ask::option::Choices::MAX, "more options than Choices has room for");

        enum Row { $($option),+ }

        $(
            #[doc = concat!("`", $name, "`: ", $about, ".")]
            #[derive(Clone, Copy, PartialEq, Eq, Debug)]
            pub enum $option {
                $(#[doc = concat!("`", $text, "`.")] $value),+
            }

            impl $crate::ask::option::Choice for $option {
                const INDEX: usize = Row::$option as usize;
                const DEFAULT: $option = [$($option::$value),+][0];
                const VALUES: &'static [$option] = &[$($option::$value),+];
            }
        )+
    };
}

/// One value for each option of an architecture: an index into [`OptionInfo::values`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Choices([u8; Choices::MAX]);

impl Choices {
    /// The most options that an architecture can have: [`options!`](crate::options) with more does not compile.
    pub const MAX: usize = 16;

    /// The value chosen for an option.
    pub fn option<C: Choice>(self) -> C {
        C::VALUES.get(self.get(C::INDEX)).copied().unwrap_or(C::DEFAULT)
    }

    /// The index of the value chosen for option number `option` of the table; 0 is the default.
    pub fn get(self, option: usize) -> usize {
        self.0[option] as usize
    }

    /// Choose value number `value` for option number `option` of the table.
    pub fn with(mut self, option: usize, value: usize) -> Choices {
        self.0[option] = value as u8;
        self
    }

    /// Choose by name; the error lists what would be valid.
    pub fn set(&mut self, arch: &str, options: &[OptionInfo], name: &str, value: &str) -> Result<()> {
        let Some(i) = options.iter().position(|o| o.name == name) else {
            return Err(Error::unknown(&format!("option of {arch}"), name, options.iter().map(|o| o.name)));
        };
        let Some(v) = options[i].values.iter().position(|&v| v == value) else {
            return Err(Error::unknown(
                &format!("value for {name} of {arch}"),
                value,
                options[i].values.iter().copied(),
            ));
        };
        *self = self.with(i, v);
        Ok(())
    }
}
