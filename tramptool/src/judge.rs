//! Running trampolines in the emulator, against their contracts.

use codegen::words::error::Result;
use emu_tests::{Filter, Verdict as Found};

use crate::generated::Trampolines;
use crate::internal::suite::suite_of_specs;

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Verdict {
    /// The number of properties that hold.
    pub passed: usize,
    /// The properties that do not hold.
    pub failures: Vec<Failure>,
}

/// A property that does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// The trampoline's symbol.
    pub trampoline: String,
    /// The property: `P1` to `P19`, or `coverage`. `tramptool explain` explains it.
    pub property: String,
    /// What the judge found.
    pub reason: String,
}

impl Trampolines {
    /// Run the trampolines in the emulator, in every scenario: linked with functions that gcc compiled, and patched as the
    /// profile says. Callbacks that clobber everything they may also replace the functions that you name. This takes some
    /// milliseconds for each trampoline.
    ///
    /// # Errors
    /// A trampoline that cannot be linked or run.
    pub fn judge(&self) -> Result<Verdict> {
        let (target, requests) = self.parts();
        let specs: Vec<_> = requests.iter().map(|request| request.spec()).collect();
        let mut suite = suite_of_specs(target.backend(), target.resolved(), &specs)?;
        // The functions that the trampolines call belong to the caller and are not available here.
        suite.stubs = true;
        let report = emu_tests::check(&[suite], &Filter::default(), 1, &|_, _| {})?;
        let mut verdict = Verdict { passed: 0, failures: Vec::new() };
        for row in &report.results {
            match row.verdict {
                Found::Pass => verdict.passed += 1,
                Found::Fail => verdict.failures.push(Failure {
                    trampoline: row.trampoline.clone(),
                    property: row.clause.name().to_owned(),
                    reason: row.reason.clone(),
                }),
                _ => {}
            }
        }
        Ok(verdict)
    }
}
