//! Trampolines in the emulator, against what they promise.

use codegen::words::error::Result;
use emu_tests::{Filter, Verdict as Found};

use crate::generated::Trampolines;
use crate::internal::suite::suite_of_specs;

/// What a run found.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Verdict {
    /// Properties of trampolines that hold.
    pub passed: usize,
    /// Those that do not.
    pub failures: Vec<Failure>,
}

/// A property that does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// The trampoline.
    pub trampoline: String,
    /// The property: `P1` to `P19`, or `coverage`. `tramptool explain` says what it is.
    pub property: String,
    /// What was found.
    pub reason: String,
}

impl Trampolines {
    /// Run them in the emulator, in every scenario: linked with functions that gcc compiled, patched as the profile says,
    /// with callbacks that overwrite everything they may, also in place of the functions that you name. This takes some
    /// milliseconds for each.
    ///
    /// # Errors
    /// What cannot be linked or run.
    pub fn judge(&self) -> Result<Verdict> {
        let (target, requests) = self.parts();
        let specs: Vec<_> = requests.iter().map(|request| request.spec()).collect();
        let mut suite = suite_of_specs(target.backend(), target.resolved(), &specs)?;
        // What they call is the caller's own and not here.
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
