// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `writers.toml` says.

use serde::Deserialize;

use super::fix::Fix;
use super::machine::{Known, Machine};
use super::native::Native;

/// The file.
#[derive(Deserialize)]
pub struct Manifest {
    pub versions: Vec<String>,
    pub common: Vec<String>,
    pub machine: Vec<Machine>,
    pub known: Vec<Known>,
    pub fix: Vec<Fix>,
    pub native: Vec<Native>,
}

impl Manifest {
    /// What is known of a writer.
    pub fn known_of(&self, machine: &str, version: &str) -> Vec<&Known> {
        let of = |versions: &[String]| versions.is_empty() || versions.iter().any(|v| v == version);
        self.known
            .iter()
            .filter(|known| known.machine.as_ref().is_none_or(|of| of == machine) && of(&known.versions))
            .collect()
    }
}
