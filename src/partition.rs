//! Shares of a run, for several machines.

use std::fmt;
use std::str::FromStr;

use codegen::words::error::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The `number`th of `of` shares of a run, from 1. What is in which share depends on its name alone, so that something
/// new moves nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Partition {
    number: u64,
    of: u64,
}

impl Partition {
    /// Is what has this name in this share?
    pub fn has(self, name: &impl fmt::Display) -> bool {
        Partition::hash(name) % self.of == self.number - 1
    }

    /// A number for a name: FNV-1a. This must never change, or the machines of one run could disagree on who runs what.
    pub fn hash(name: &impl fmt::Display) -> u64 {
        let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        name.to_string().bytes().fold(0xcbf2_9ce4_8422_2325, step)
    }
}

impl FromStr for Partition {
    type Err = Error;

    fn from_str(text: &str) -> Result<Partition> {
        let numbers = text.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
        match numbers {
            Some((number, of)) if (1..=of).contains(&number) => Ok(Partition { number, of }),
            _ => Err(Error::new(format!("partition '{text}'; valid: K/N with K from 1 to N, as in 2/3"))),
        }
    }
}

impl TryFrom<String> for Partition {
    type Error = Error;

    fn try_from(text: String) -> Result<Partition> {
        text.parse()
    }
}

impl From<Partition> for String {
    fn from(partition: Partition) -> String {
        partition.to_string()
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}
