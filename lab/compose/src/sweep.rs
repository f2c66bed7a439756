//! Many cases on all processors.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::case::{Case, Seen, mix};
use crate::generate::{SUBSETS, random, subset};
use crate::judge::{Failure, Subject};

/// Which cases.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// A bit for each of the listed users that may be in a case.
    pub users: u64,
    /// All subsets of them, with each shape at each moment.
    pub all: bool,
    /// So many random cases.
    pub random: u64,
    /// The first seed.
    pub seed: u64,
    /// The case with this number alone.
    pub only: Option<u64>,
    /// So many of the cases, which the seed chooses.
    pub sample: Option<u64>,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Cases that were run.
    pub cases: u64,
    /// Those that the core has not what for.
    pub skipped: u64,
    /// Cases that fail.
    pub failed: u64,
    /// One for each pair of what was expected and what was seen, with its number: the one with the lowest.
    pub failures: Vec<(u64, Failure)>,
}

/// How two failures are told apart.
fn sort(failure: &Failure) -> (Option<Seen>, Option<Seen>) {
    (failure.expected.map(|e| e.seen), failure.seen.map(|e| e.seen))
}

impl Plan {
    /// Case number `index`.
    #[must_use]
    pub fn case(&self, index: u64) -> Option<Case> {
        match index.checked_sub(if self.all { SUBSETS } else { 0 }) {
            Some(n) => Some(random(self.seed.wrapping_add(n), self.users)),
            None => subset(index, self.users),
        }
    }

    /// The numbers of a sample, those of other users not among them.
    fn chosen(&self) -> Option<Vec<u64>> {
        let wanted = self.sample.filter(|_| self.only.is_none() && !self.is_empty())?;
        let drawn = (0..wanted.saturating_mul(64)).map(|n| mix(self.seed ^ 0x5a3f, n) % self.len());
        Some(drawn.filter(|index| self.case(*index).is_some()).take(wanted as usize).collect())
    }

    /// How many cases there are, those of others among them.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.random.saturating_add(if self.all { SUBSETS } else { 0 })
    }

    /// There is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Run them.
    #[must_use]
    pub fn run(&self, subject: &Subject) -> Outcome {
        const BATCH: u64 = 64;
        let chosen = self.chosen();
        let all = chosen.as_ref().map_or(self.len(), |list| list.len() as u64);
        let (first, end) = self.only.map_or((0, all), |n| (n, n.saturating_add(1).min(self.len())));
        let (next, all) = (AtomicU64::new(first), Mutex::new(Outcome::default()));
        let work = || {
            loop {
                let start = next.fetch_add(BATCH, Ordering::Relaxed);
                if start >= end {
                    return;
                }
                let mut own = Outcome::default();
                for index in start..start.saturating_add(BATCH).min(end) {
                    let index = chosen.as_ref().and_then(|list| list.get(index as usize).copied()).unwrap_or(index);
                    self.one(index, subject, &mut own);
                }
                let mut all = all.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                all.add(own);
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 1..threads {
                // Where no thread can be made, the others do its work.
                let _ = std::thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        let mut all = all.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        all.failures.sort_by_key(|(index, _)| *index);
        all
    }

    fn one(&self, index: u64, subject: &Subject, outcome: &mut Outcome) {
        let Some(case) = self.case(index) else { return };
        if !subject.supports(&case) {
            outcome.skipped += 1;
            return;
        }
        outcome.cases += 1;
        if let Some(failure) = subject.judge(&case) {
            outcome.failed += 1;
            outcome.keep(index, failure);
        }
    }
}

impl Outcome {
    fn keep(&mut self, index: u64, failure: Failure) {
        match self.failures.iter_mut().find(|(_, f)| sort(f) == sort(&failure)) {
            Some(kept) if kept.0 > index => *kept = (index, failure),
            Some(_) => {}
            None => self.failures.push((index, failure)),
        }
    }

    /// With what came of others.
    pub fn add(&mut self, other: Self) {
        self.cases += other.cases;
        self.skipped += other.skipped;
        self.failed += other.failed;
        for (index, failure) in other.failures {
            self.keep(index, failure);
        }
    }
}
