//! Which cases are run.

use codegen::contract::Contract;
use codegen::spec::Kind;

use crate::case::Situation;
use crate::report::{Clause, Of};

/// Failures that are kept per row, if not all are.
const KEPT_FAILURES: usize = 3;

/// Which cases to run.
#[derive(Clone, Default, Debug)]
pub struct Filter {
    /// Only these trampolines; empty means all.
    pub trampolines: Vec<String>,
    /// Only this function.
    pub function: Option<String>,
    /// Only this situation.
    pub situation: Option<String>,
    /// Only this fixture.
    pub fixture: Option<String>,
    /// Only cases in which this trampoline runs.
    pub concerning: Option<String>,
    /// End a suite with its first case that fails, and say no more of it than what failed. The trampolines are in doubt
    /// then, not their sites, size and place: see [`Filter::judges`].
    pub first_failure: bool,
    /// Tell all ways in which a clause fails, not only the first few.
    pub all_failures: bool,
}

impl Filter {
    /// Is this clause judged at all?
    pub fn judges(&self, clause: Clause) -> bool {
        !self.first_failure || clause.of() == Of::Trampoline
    }

    pub(crate) fn kept_failures(&self) -> usize {
        if self.all_failures { usize::MAX } else { KEPT_FAILURES }
    }

    /// Can the trampoline that is asked for run in this situation, with `attached` at the site?
    pub(crate) fn concerns(&self, contracts: &[Contract], attached: &Contract, situation: Situation) -> bool {
        let Some(name) = &self.concerning else { return true };
        contracts.iter().filter(|c| c.name == *name).any(|c| {
            attached.name == *name
                || match c.kind {
                    Kind::Return => situation.parent && situation.rethook == c.rethook,
                    Kind::Direct(_) => situation.direct || situation.early,
                    kind => situation.stub == Some(kind),
                }
        })
    }
}
