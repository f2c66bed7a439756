//! What was found and counted in the runs of a suite.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use codegen::words::abi::RegSet;

use crate::engine::unwind::Said;
use crate::judge::suite::Suite;
use crate::judge::trace::{Fate, Finding, WAYS};
use crate::report::{Clause, Failure};
use crate::run::case::Case;

/// What was found and counted, per trampoline.
pub(crate) struct Tally {
    /// What failed, in which case, on the image that is at work.
    pub(crate) findings: Vec<(Finding, Arc<Case>)>,
    pub(crate) checks: Vec<[u64; Clause::ALL.len()]>,
    /// On which ways out each clause was decided, as bits.
    pub(crate) decided: Vec<[u8; Clause::ALL.len()]>,
    /// All places at which a clause failed, with the instructions.
    pub(crate) places: Vec<BTreeSet<(Clause, String)>>,
    /// By trampoline at the site: so many runs did not come back that the others were left out.
    pub(crate) cut_off: Vec<bool>,
    pub(crate) fates: Vec<[Fate; 32]>,
    /// The registers that are promised on each way out.
    pub(crate) promised: Vec<[RegSet; WAYS]>,
    pub(crate) vectors_lost: Vec<u64>,
    /// Offsets of instructions never executed, by trampoline; `None` until something ran.
    pub(crate) missed: Vec<Option<Vec<u64>>>,
    pub(crate) instructions: Vec<usize>,
    /// Of these, those outside of the trampoline that it jumps to, by their distance from its start, with their names.
    pub(crate) elsewhere: Vec<BTreeMap<u64, String>>,
    /// An instruction that may change vector state that not every engine has, by trampoline.
    pub(crate) wide: Vec<Option<String>>,
    /// Instructions that are run in the engine's place.
    pub(crate) lent: BTreeSet<String>,
    /// What the unwind table says, by trampoline.
    pub(crate) unwinding: Vec<Said>,
    pub(crate) failed: Vec<[u64; Clause::ALL.len()]>,
    pub(crate) failures: Vec<Vec<Failure>>,
    /// How often each expected deviation was found.
    pub(crate) deviated: Vec<u64>,
    /// The ids by which each should name its places, if it names them by sentences.
    pub(crate) renamed: Vec<BTreeSet<String>>,
    /// Functions that stand in for what the objects leave undefined.
    pub(crate) stubs: Vec<String>,
    pub(crate) scenarios: u64,
    /// What trampolines left to others, where that is asked: a number for each image.
    pub(crate) left: Vec<u64>,
}

impl Tally {
    pub(crate) fn new(suite: &Suite) -> Tally {
        let n = suite.contracts.len();
        Tally {
            deviated: vec![0; suite.deviations.len()],
            renamed: vec![BTreeSet::new(); suite.deviations.len()],
            stubs: Vec::new(),
            findings: Vec::new(),
            checks: vec![[0; Clause::ALL.len()]; n],
            decided: vec![[0; Clause::ALL.len()]; n],
            places: vec![BTreeSet::new(); n],
            cut_off: vec![false; n],
            fates: vec![[Fate::default(); 32]; n],
            promised: vec![[RegSet::EMPTY; WAYS]; n],
            vectors_lost: vec![0; n],
            missed: vec![None; n],
            instructions: vec![0; n],
            elsewhere: vec![BTreeMap::new(); n],
            wide: vec![None; n],
            lent: BTreeSet::new(),
            unwinding: vec![Said::default(); n],
            failed: vec![[0; Clause::ALL.len()]; n],
            failures: vec![Vec::new(); n],
            scenarios: 0,
            left: Vec::new(),
        }
    }

    /// Count a check that was made outside of a run; it failed if what was expected was not found.
    pub(crate) fn judged(&mut self, case: &Arc<Case>, finding: Finding) {
        if let Some(checks) = self.checks.get_mut(finding.trampoline) {
            checks[finding.clause as usize] += 1;
        }
        if finding.expected != finding.found {
            self.findings.push((finding, case.clone()));
        }
    }

    /// What was found far away is one clause here.
    pub(crate) fn absorb_moved(&mut self, there: Tally) {
        const P16: usize = Clause::P16 as usize;
        for i in 0..self.checks.len() {
            self.checks[i][P16] += there.checks[i].iter().sum::<u64>();
            self.failed[i][P16] += there.failed[i][P16];
            self.failures[i].extend_from_slice(&there.failures[i]);
            self.places[i].extend(there.places[i].iter().cloned());
        }
        self.left.extend(there.left);
    }

    /// Does a clause fail?
    pub(crate) fn fails(&self) -> bool {
        self.failed.as_flattened().iter().any(|n| *n > 0)
    }

    pub(crate) fn absorb(&mut self, other: Tally) {
        for i in 0..self.checks.len() {
            for c in 0..Clause::ALL.len() {
                self.checks[i][c] += other.checks[i][c];
                self.failed[i][c] += other.failed[i][c];
                self.decided[i][c] |= other.decided[i][c];
            }
            for r in 0..32 {
                self.fates[i][r] += other.fates[i][r];
            }
            for (all, more) in self.promised[i].iter_mut().zip(other.promised[i]) {
                *all = all.union(more);
            }
            self.places[i].extend(other.places[i].iter().cloned());
            self.vectors_lost[i] += other.vectors_lost[i];
            self.instructions[i] = self.instructions[i].max(other.instructions[i]);
            self.elsewhere[i].extend(other.elsewhere[i].iter().map(|(at, name)| (*at, name.clone())));
            self.unwinding[i] = self.unwinding[i].max(other.unwinding[i]);
            if self.wide[i].is_none() {
                self.wide[i].clone_from(&other.wide[i]);
            }
            for failure in &other.failures[i] {
                let same = |f: &Failure| (f.clause, &f.place, &f.at) == (failure.clause, &failure.place, &failure.at);
                if !self.failures[i].iter().any(same) {
                    self.failures[i].push(failure.clone());
                }
            }
            self.missed[i] = match (self.missed[i].take(), &other.missed[i]) {
                (Some(a), Some(b)) => Some(a.into_iter().filter(|o| b.contains(o)).collect()),
                (a, b) => a.or_else(|| b.clone()),
            };
        }
        self.deviated.iter_mut().zip(&other.deviated).for_each(|(n, m)| *n += m);
        self.renamed.iter_mut().zip(other.renamed).for_each(|(all, ids)| all.extend(ids));
        self.scenarios += other.scenarios;
        self.left.extend(other.left);
        self.cut_off.iter_mut().zip(&other.cut_off).for_each(|(all, more)| *all |= more);
        self.stubs = other.stubs;
        self.lent.extend(other.lent);
    }
}
