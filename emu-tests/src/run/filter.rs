//! The choice of cases to run.

use codegen::contract::Contract;

use crate::report::{Clause, Of};
use crate::run::case::{Distance, Handler};
use crate::run::situation::Situation;

/// Failures that are kept per row, if not all are.
const KEPT_FAILURES: usize = 3;

/// The cases to run.
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
    /// Stop at the first failing case and skip diagnosis. For mutants: only clauses about the trampoline itself are judged,
    /// not those about sites, size and place: see [`Filter::judges`].
    pub first_failure: bool,
    /// Report all failures of a clause, not only the first few.
    pub all_failures: bool,
    /// Stop at the first fixture with a case, and look from no distance. For the many images of one writer, of which some are judged
    /// wholly.
    pub one_fixture: bool,
    /// Note what trampolines leave to others: for [`left`](crate::left).
    pub left: bool,
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

    /// Did somebody ask for some cases only, so that there may be none for a trampoline?
    pub fn chosen(&self) -> bool {
        self.concerning.is_none() && (self.leaves_out() || self.fixture.is_some())
    }

    /// Are there to be cases with this trampoline at the site? Those to which no site goes are run by entry trampolines, where
    /// there is one among `all`.
    pub(crate) fn attaches(&self, all: &[Contract], contract: &Contract) -> bool {
        let asked = self.trampolines.is_empty() || self.trampolines.contains(&contract.name);
        let wanted = match &self.attached {
            Some(name) => *name == contract.name,
            None => asked || contract.kind.calls_back(),
        };
        wanted
            && (!contract.kind.is_led_to() || contract.kind.is_function() || !all.iter().any(|c| c.kind.calls_back()))
    }

    pub(crate) fn kept_failures(&self) -> usize {
        if self.all_failures { usize::MAX } else { KEPT_FAILURES }
    }

    /// Can the trampoline that is asked for run in this situation, with `attached` at the site?
    pub(crate) fn concerns(&self, contracts: &[Contract], attached: &Contract, situation: Situation) -> bool {
        let Some(name) = &self.concerning else { return true };
        contracts.iter().filter(|c| c.name == *name).any(|c| {
            attached.name == *name
                || [situation.stub(), situation.exit()].contains(&Some(c.kind))
                || (c.kind.direct().is_some_and(|direct| !direct.jumped) && situation.sends())
        })
    }
}

#[cfg(test)]
mod tests {
    use codegen::ask::spec::{Direct, Kind, Regs, Spec};

    use super::*;

    /// Contracts of these kinds that differ in nothing else; those of a second return are of kretprobes.
    fn contracts() -> Vec<Contract> {
        let backend = arch::backend("x86_64").unwrap();
        let facts: Vec<_> = arch::BACKENDS.iter().map(|b| b.facts()).collect();
        let profile = profiles::find(profiles::DEFAULT, &facts).unwrap();
        let convention = profile.convention(backend.facts().name).unwrap();
        let target = backend.target(convention, convention.defaults()).unwrap();
        let direct = Contract::of(&Spec::direct("direct", Direct::default(), "f"), &target).unwrap();
        let of = |name: &str, kind| Contract { name: name.to_owned(), kind, ..direct.clone() };
        vec![
            of("entry", Kind::Entry(Regs::Args)),
            of("regs", Kind::Entry(Regs::All)),
            direct.clone(),
            of("return", Kind::Return),
            of("rethook", Kind::Rethook),
            of("stub", Kind::Stub),
        ]
    }

    /// The trampolines that take part in this situation, with `entry` at the site.
    fn concerned(situation: Situation) -> Vec<String> {
        let contracts = contracts();
        let concerns = |name: &str| {
            let filter = Filter { concerning: Some(name.to_owned()), ..Filter::default() };
            filter.concerns(&contracts, &contracts[0], situation)
        };
        contracts.iter().map(|c| c.name.clone()).filter(|name| concerns(name)).collect()
    }

    #[test]
    fn a_case_concerns_the_trampoline_at_the_site_and_those_that_it_leads_to() {
        let named = |name: &str| concerned(name.parse().unwrap());
        assert_eq!(named("plain"), ["entry"]);
        assert_eq!(named("direct"), ["entry", "direct"]);
        assert_eq!(named("early-direct"), ["entry", "direct"]);
        assert_eq!(named("parent"), ["entry", "return"]);
        assert_eq!(named("args+direct+parent"), ["entry", "direct", "return"]);
        assert_eq!(named("rethook"), ["entry", "rethook"]);
        assert_eq!(named("stub"), ["entry", "stub"]);
        let all = contracts();
        assert!(Filter::default().concerns(&all, &all[0], Situation::PLAIN), "nothing is asked for");
    }

    #[test]
    fn with_the_first_failure_what_is_not_the_trampolines_own_is_not_judged() {
        let first = Filter { first_failure: true, ..Filter::default() };
        for (clause, judged) in [(Clause::P1, true), (Clause::P15, true), (Clause::P16, false), (Clause::P17, false)] {
            assert_eq!(first.judges(clause), judged, "{clause}");
            assert!(Filter::default().judges(clause), "{clause}");
        }
    }

    #[test]
    fn all_failures_are_kept_if_all_are_wanted() {
        assert_eq!(Filter::default().kept_failures(), KEPT_FAILURES);
        assert_eq!(Filter { all_failures: true, ..Filter::default() }.kept_failures(), usize::MAX);
    }
}
