//! A trampoline that was found in a kernel's memory, and its code before the judge.

use std::collections::BTreeMap;

use codegen::backend::Backend;
use codegen::profile::Profile;
use codegen::words::error::{Error, Result};
use emu_tests::{Dump, Foreign, Suite, foreign_suites};

use super::kernel::Kernel;
use super::symbols::Symbol;

/// A trampoline that is found.
pub struct Found {
    /// The kernel's name of it, and its address.
    pub name: String,
    /// How it is judged; or why not.
    pub judged: Result<Suite>,
}

/// Code from a kernel's memory, put before the judge.
pub fn suite(
    kernel: &Kernel,
    (backend, profile): (&'static dyn Backend, &'static Profile),
    (symbol, code): (&Symbol, Vec<u8>),
    (text, names): (&str, BTreeMap<u64, String>),
) -> Result<Suite> {
    let name = format!("{}@{:#x}", symbol.name, symbol.address);
    let foreign = Foreign {
        dump: Some(Dump { base: symbol.address, entries: vec![(String::new(), symbol.address)], end: None, names }),
        again: Some(kernel.words.clone()),
        ..Foreign::new(&name, text, vec![(symbol.name.clone(), code)], profile)
    };
    let suites = foreign_suites(&foreign, &[backend])?;
    suites.into_iter().next().ok_or_else(|| Error::new("nothing to judge"))
}
