// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `writers.toml` says: the architectures, how their writers are compiled and run, and what is known of them.

use serde::Deserialize;

/// The file.
#[derive(Deserialize)]
pub struct Manifest {
    pub versions: Vec<String>,
    pub common: Vec<String>,
    pub machine: Vec<Machine>,
    pub known: Vec<Known>,
}

/// An architecture, and how its writer is compiled and run.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Machine {
    /// What the tool calls it.
    pub name: String,
    pub make: String,
    pub cross: String,
    pub options: Vec<String>,
    pub objects: Vec<String>,
    /// What the program is run by.
    pub run: Vec<String>,
    /// A byte of the objects that gets these bits.
    pub flags: Option<[usize; 2]>,
    /// Bytes from the start of a traced function to where it goes on.
    pub resume: i32,
    pub own: Vec<String>,
    pub stack_align: u32,
    pub function_align: Option<u32>,
    #[serde(default)]
    pub function_by_return: bool,
    #[serde(default)]
    pub records: Vec<String>,
    /// Bits from 48 on that addresses have in the code.
    #[serde(default)]
    pub set: u64,
    pub here: Here,
}

/// Addresses.
#[derive(Clone, Copy, Deserialize)]
pub struct Here {
    pub image: u64,
    pub function: u64,
    pub memory: u64,
    pub around: u64,
    pub programs: u64,
}

/// What is known not to hold.
#[derive(Deserialize)]
pub struct Known {
    pub machine: String,
    /// A type of an argument.
    pub argument: String,
    pub reason: String,
}
