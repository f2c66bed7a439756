//! The options of an architecture, and the choices under which trampolines are generated.

use crate::error::{Error, Result};
use crate::spec::Kind;

/// An option that an architecture offers. Index in the architecture's table = index in [`Choices`].
#[derive(Debug)]
pub struct OptionInfo {
    /// The name on the command line.
    pub name: &'static str,
    /// The values, default first.
    pub values: &'static [&'static str],
    /// What it changes, in a few words.
    pub about: &'static str,
    /// The trampolines whose code it can change.
    pub applies: fn(Kind) -> bool,
    /// It has nothing to do with any other option, and is not tried together with them.
    pub apart: bool,
}

/// One value for each option of an architecture: an index into [`OptionInfo::values`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Choices([u8; Choices::MAX]);

impl Choices {
    /// The most options that an architecture can have.
    pub const MAX: usize = 8;

    /// The index of the value chosen for option `option`; 0 is the default.
    pub fn get(self, option: usize) -> usize {
        self.0[option] as usize
    }

    /// Choose value number `value` for option number `option`.
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
