//! Checks, and those that failed.

use codegen::abi::Reg;

use super::Trace;
use crate::report::Clause;

/// Failures that are kept of one run: one that went astray can fail with every instruction.
const FAILURES: usize = 100;

/// A name in parts, put together only if a check fails.
pub(crate) struct Joined<'n>(pub &'static str, pub &'n str, pub &'static str);

impl From<Joined<'_>> for String {
    fn from(j: Joined) -> String {
        [j.0, j.1, j.2].concat()
    }
}

/// A check that failed, before it is put into words.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub clause: Clause,
    pub trampoline: usize,
    pub place: String,
    pub register: Option<Reg>,
    pub expected: u64,
    pub found: u64,
    pub pc: u64,
}

impl Trace {
    pub(super) fn fail(
        &mut self,
        clause: Clause,
        place: impl Into<String>,
        register: Option<Reg>,
        pair: (u64, u64),
        pc: u64,
    ) {
        self.fail_of(self.trampoline(), clause, place, register, pair, pc);
    }

    pub(super) fn fail_of(
        &mut self,
        trampoline: usize,
        clause: Clause,
        place: impl Into<String>,
        register: Option<Reg>,
        (expected, found): (u64, u64),
        pc: u64,
    ) {
        if self.findings.len() < FAILURES {
            self.findings.push(Finding { clause, trampoline, place: place.into(), register, expected, found, pc });
        }
    }

    pub(crate) fn check(&mut self, clause: Clause, place: impl Into<String>, expected: u64, found: u64, pc: u64) {
        self.check_of(self.trampoline(), clause, place, expected, found, pc);
    }

    /// A check of another trampoline than the one at work.
    pub(crate) fn check_of(
        &mut self,
        trampoline: usize,
        clause: Clause,
        place: impl Into<String>,
        expected: u64,
        found: u64,
        pc: u64,
    ) {
        if let Some(counts) = self.checks.get_mut(trampoline) {
            counts[clause as usize] += 1;
        }
        if expected != found {
            self.fail_of(trampoline, clause, place, None, (expected, found), pc);
        }
    }
}
