//! What trampolines spend while they run, ours and the kernel's own.

use codegen::ask::spec::{Kind, Program, Spec};
use codegen::backend::Backend;
use codegen::profile::Profile;
use codegen::profile::target::Target;
use codegen::words::error::{Error, Result};
use emu_tests::{Foreign, Spent, Suite};
use serde::Serialize;

use crate::contracts::CONTRACTS;
use crate::{BACKENDS, backend, suite};

/// One way through, counted while it ran; without a stack and returns where nothing ever runs it.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Way {
    /// The situation.
    pub way: String,
    /// Instructions.
    pub executed: u32,
    /// Words read from memory.
    pub loads: u32,
    /// Words written to memory.
    pub stores: u32,
    /// Bytes of stack.
    pub stack: Option<u32>,
    /// Returns of the whole traced call that the model of the return-address stack predicts wrongly.
    pub mispredicted_returns: Option<u32>,
    /// Calls less returns of the whole traced call.
    pub return_stack_imbalance: Option<i32>,
    /// It came back to the parent. Otherwise the counts are of what ran until it was stopped.
    pub ended: bool,
}

/// The kernel's own trampolines of this architecture with the names of their contracts, as far as their objects are there.
///
/// # Errors
/// An object that cannot be read, or that does not fit its contract.
pub fn kernels(backend: &'static dyn Backend, profile: &'static Profile) -> Result<Vec<(String, Suite)>> {
    let arch = backend.facts().name;
    let mut suites = Vec::new();
    let own = |name: &str| name.starts_with(profile.name) && name.contains(arch);
    for (name, text) in CONTRACTS.iter().filter(|(name, _)| own(name)) {
        let Some(objects) = kernel_cache::objects(name).map_err(|e| Error::new(format!("cannot read {e}")))? else {
            continue;
        };
        let foreign = Foreign { arch: Some(arch), ..Foreign::new(name, text, objects, profile) };
        let found = emu_tests::foreign_suites(&foreign, BACKENDS)?;
        suites.extend(found.into_iter().map(|suite| ((*name).to_owned(), suite)));
    }
    Ok(suites)
}

/// What a generated trampoline of this kind, with these programs if it calls some, spends in each situation.
///
/// # Errors
/// It cannot be generated, or not be run.
pub fn ours(kind: Kind, programs: &[Program], target: &Target) -> Result<Vec<Way>> {
    let all = suite::trampolines(target)?;
    let known = all.iter().find(|(_, known)| *known == kind).filter(|_| programs.is_empty());
    let name = known.map_or("asked_for", |(name, _)| name.as_str());
    let (programs, brackets) = (suite::stand_ins(programs), suite::stand_in_brackets(kind, programs.len()));
    let mut specs = suite::specs(&all);
    if known.is_none() {
        specs.push(Spec { brackets: &brackets, ..suite::spec(name, kind, &programs) });
    }
    let suite = suite::suite_of_specs(backend(target.facts.name)?, target, &specs)?;
    Ok(ways(emu_tests::spent(&suite, name)?.1))
}

/// The same, as [`Way`]s.
pub fn ways(spent: Vec<Spent>) -> Vec<Way> {
    let way = |s: Spent| Way {
        way: s.situation.to_string(),
        executed: s.executed,
        loads: s.loads,
        stores: s.stores,
        stack: Some(s.stack),
        mispredicted_returns: Some(s.mispredicted),
        return_stack_imbalance: Some(s.imbalance),
        ended: s.ended,
    };
    spent.into_iter().map(way).collect()
}

/// Most situations differ in nothing that is counted.
pub fn distinct(all: Vec<Way>) -> Vec<Way> {
    let mut kept: Vec<Way> = Vec::new();
    for way in all {
        let same = |before: &Way| Way { way: way.way.clone(), ..before.clone() } == way;
        if !kept.iter().any(same) {
            kept.push(way);
        }
    }
    kept
}
