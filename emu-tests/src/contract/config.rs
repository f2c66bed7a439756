//! What a kernel's configuration decides in a contract.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::Deserialize;

/// A kernel's configuration: the options that are set.
#[derive(Clone, Debug)]
pub struct Configuration(HashSet<String>);

impl Configuration {
    /// That of a `.config`.
    pub fn of(text: &str) -> Configuration {
        let set = |line: &str| Some(line.strip_prefix("CONFIG_")?.split_once('=')?.0.to_owned());
        Configuration(text.lines().filter_map(set).collect())
    }

    /// All of them hold.
    pub fn fits(&self, conditions: &[Condition]) -> bool {
        conditions.iter().all(|condition| self.0.contains(&condition.option) == condition.set)
    }
}

/// An option of a kernel's configuration that is set or, with `!` before it, is not set.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct Condition {
    option: String,
    set: bool,
}

impl TryFrom<String> for Condition {
    type Error = String;

    fn try_from(text: String) -> Result<Condition, String> {
        let (option, set) = text.strip_prefix('!').map_or((text.as_str(), true), |option| (option, false));
        let name = option.strip_prefix("CONFIG_").unwrap_or(option);
        if name != option || name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(format!(
                "'{text}'; valid: an option without CONFIG_, as FRAME_POINTER, or !FRAME_POINTER where it is not set"
            ));
        }
        Ok(Condition { option: option.to_owned(), set })
    }
}

/// Yes or no, by the configuration.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected true, or a list of options of the configuration with which it is")]
pub(crate) enum Switch {
    /// Always, or never.
    Always(bool),
    /// With these options. Nothing is demanded where the configuration is not known.
    With(Vec<Condition>),
}

impl Default for Switch {
    fn default() -> Switch {
        Switch::Always(false)
    }
}

impl Switch {
    pub(crate) fn is_on(&self, config: Option<&Configuration>) -> bool {
        match self {
            Switch::Always(on) => *on,
            Switch::With(options) => config.is_some_and(|config| config.fits(options)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_what_is_set() {
        let config = Configuration::of("# CONFIG_A is not set\nCONFIG_B=y\nCONFIG_C=m\nCONFIG_D=0x10\n");
        let fits = |text: &[&str]| {
            let all: Vec<_> = text.iter().map(|c| Condition::try_from((*c).to_owned()).unwrap()).collect();
            config.fits(&all)
        };
        assert!(fits(&[]) && fits(&["B"]) && fits(&["!A", "B", "C", "D"]));
        assert!(!fits(&["A"]) && !fits(&["!B"]) && !fits(&["B", "A"]));
        for wrong in ["", "!", "CONFIG_B", "!CONFIG_B", "B=y", "B C"] {
            assert!(Condition::try_from(wrong.to_owned()).is_err(), "{wrong}");
        }
    }
}
