//! Which cases are run.

use codegen::contract::Contract;
use codegen::spec::Kind;

use crate::case::{Distance, Handler};
use crate::report::{Clause, Of};
use crate::situation::Situation;

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
    pub situation: Option<Situation>,
    /// Only this fixture.
    pub fixture: Option<String>,
    /// Only cases with this trampoline at the site.
    pub attached: Option<String>,
    /// Only this class of handler.
    pub handler: Option<Handler>,
    /// Only this SP at the function's entry, besides a multiple of 16.
    pub entry_sp: Option<u64>,
    /// Only with the trampolines there.
    pub distance: Option<Distance>,
    /// Compare the unwind table with the CPU before every instruction of a trampoline, let an interrupt happen there, and
    /// put a CPU at every instruction of the site while it is patched: in every case or in none. Otherwise, this is
    /// done in those where it tells something new.
    pub closely: Option<bool>,
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

    /// Are some of a fixture's cases left out?
    pub(crate) fn leaves_out(&self) -> bool {
        let named = [&self.function, &self.attached, &self.concerning].iter().any(|name| name.is_some());
        let typed = self.situation.is_some() || self.handler.is_some() || self.entry_sp.is_some();
        named || typed || self.distance.is_some() || self.closely == Some(false)
    }

    /// Are there to be cases with this trampoline at the site? Those that are not attached are run by entry trampolines.
    pub(crate) fn attaches(&self, contract: &Contract) -> bool {
        let asked = self.trampolines.is_empty() || self.trampolines.contains(&contract.name);
        let wanted = match &self.attached {
            Some(name) => *name == contract.name,
            None => asked || matches!(contract.kind, Kind::Entry(_)),
        };
        wanted && contract.kind.attaches()
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
                    Kind::Return => situation.parent() && situation.rethook() == c.rethook,
                    Kind::Direct(_) => situation.direct() || situation.early(),
                    kind => situation.stub() == Some(kind),
                }
        })
    }
}
