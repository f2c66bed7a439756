// SPDX-License-Identifier: MIT OR Apache-2.0
//! An architecture in `writers.toml`: how its writers are compiled and run, and what is known of them.

use serde::Deserialize;

use super::model::Model;

impl Known {
    /// May images for this model, with this contract, fail so?
    pub fn fits(&self, model: &Model, contract: &str) -> bool {
        let result = model.result.map_or("void", |result| result.text());
        self.argument.as_ref().is_none_or(|argument| model.signature().contains(argument))
            && (self.results.is_empty() || self.results.iter().any(|known| known == result))
            && (!self.struct_ops || model.struct_ops)
            && (!self.on_stack || contract.contains("\"stack+"))
    }

    /// Is this one of the clauses that fail? At the end of one, `*` stands for anything.
    pub fn names(&self, clause: &str) -> bool {
        let like = |known: &String| match known.strip_suffix('*') {
            Some(begin) => clause.starts_with(begin),
            None => known == clause,
        };
        self.fails.is_empty() || self.fails.iter().any(like)
    }
}

/// An architecture, and how its writer is compiled and run.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Machine {
    /// What it is called here.
    pub name: String,
    /// What the tool calls the architecture.
    pub arch: String,
    pub make: String,
    pub cross: String,
    pub options: Vec<String>,
    pub objects: Vec<String>,
    /// Objects of other writers.
    #[serde(default)]
    pub others: Vec<String>,
    /// Folders whose objects are made together, as one of them needs what another rule of make writes.
    #[serde(default)]
    pub folders: Vec<String>,
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
    /// The register in which programs leave 64 bits of a result, if that is not the psABI's.
    pub program_result: Option<String>,
    /// What returns jump to.
    pub thunk: Option<u64>,
    /// Traced functions begin with ENDBR64, and so does what is called through a pointer.
    #[serde(default)]
    pub endbr: bool,
    /// The writer knows functions that are redirected.
    #[serde(default)]
    pub redirects: bool,
    /// How tail calls are counted, if that is the trampoline's business.
    pub counts: Option<Counts>,
    /// Bytes by which an image is farther off that plain calls do not reach from.
    pub far: Option<u64>,
    /// The upper byte of pointers to what the kernel has allocated, as KASAN sets it.
    #[serde(default)]
    pub tag: u64,
    /// Bits from 48 on that addresses have in the code.
    #[serde(default)]
    pub set: u64,
    pub here: Here,
}

/// How tail calls are counted.
#[derive(Deserialize)]
pub struct Counts {
    /// The register of the counter.
    pub register: String,
    /// Versions of Linux whose trampolines keep it.
    pub versions: Vec<String>,
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

/// What is known not to hold: a failure of images for such models, at these places only.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Known {
    /// The architecture; all, if none is named.
    pub machine: Option<String>,
    /// Versions of Linux; all, if none is named.
    #[serde(default)]
    pub versions: Vec<String>,
    /// A type of an argument.
    pub argument: Option<String>,
    /// Types of the result, one of them; any, also none, if none is named.
    #[serde(default)]
    pub results: Vec<String>,
    /// Of struct_ops only.
    #[serde(default)]
    pub struct_ops: bool,
    /// Only if an argument is on the stack.
    #[serde(default)]
    pub on_stack: bool,
    /// Clauses with places; any, if none is named.
    #[serde(default)]
    pub fails: Vec<String>,
    pub reason: String,
}
