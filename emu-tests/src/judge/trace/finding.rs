//! Checks: how many were made, and which failed.

use std::collections::BTreeMap;
use std::fmt;

use codegen::words::abi::{Reg, RegSet};
use codegen::words::step::ExitPath;

use crate::report::Clause;
use crate::report::place::Place;

/// Failures that are kept of one run: one that went astray can fail with every instruction.
const FAILURES: usize = 100;

/// What is checked: a clause, of a trampoline, at an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct At {
    pub clause: Clause,
    pub trampoline: usize,
    pub pc: u64,
}

impl At {
    /// Another clause at the same place.
    pub fn of(self, clause: Clause) -> At {
        At { clause, ..self }
    }
}

/// What a register or a word of memory holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Value {
    Word(u64),
    /// A vector register, lowest byte first.
    Vector([u8; 16]),
}

impl From<u64> for Value {
    fn from(word: u64) -> Value {
        Value::Word(word)
    }
}

impl From<bool> for Value {
    fn from(holds: bool) -> Value {
        Value::Word(holds.into())
    }
}

impl From<[u8; 16]> for Value {
    fn from(bytes: [u8; 16]) -> Value {
        Value::Vector(bytes)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Word(word) => write!(f, "{word:#x}"),
            Value::Vector(bytes) => write!(f, "{:#x}", u128::from_le_bytes(*bytes)),
        }
    }
}

/// What tells which instruction made a check fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Culprit {
    /// That where the check was made, or none.
    Unknown,
    /// The last to write this general register.
    Register(Reg),
    /// The last to write this vector register, by its number.
    Vector(usize),
    /// The last to store to this address.
    Memory(u64),
    /// The one that begins here.
    At(u64),
    /// The one that ends here: a branch.
    Before(u64),
}

/// A check that failed, before it is put into words.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub clause: Clause,
    pub trampoline: usize,
    pub place: Place,
    pub by: Culprit,
    pub expected: Value,
    pub found: Value,
    pub pc: u64,
    /// The way out on which the check was made, if it was on one.
    pub way: Option<ExitPath>,
}

impl Finding {
    pub fn new(at: At, place: impl Into<Place>, expected: impl Into<Value>, found: impl Into<Value>) -> Finding {
        let At { clause, trampoline, pc } = at;
        let (place, expected, found) = (place.into(), expected.into(), found.into());
        Finding { clause, trampoline, place, by: Culprit::Unknown, expected, found, pc, way: None }
    }

    /// How much more was found than was expected, of a word.
    pub fn difference(&self) -> Option<i64> {
        match (self.expected, self.found) {
            (Value::Word(expected), Value::Word(found)) => Some(found.wrapping_sub(expected) as i64),
            _ => None,
        }
    }

    /// What was expected and what was found, as a report shows them: of a vector register, the half that differs.
    pub fn values(&self) -> (String, String) {
        let (Value::Vector(want), Value::Vector(have)) = (self.expected, self.found) else {
            return (self.expected.to_string(), self.found.to_string());
        };
        let [want, have] = [want, have].map(u128::from_le_bytes);
        let low = |value: u128| format!("{:#x}", value as u64);
        let high = |value: u128| format!("{:#x} in bits 64 to 127", (value >> 64) as u64);
        match (want as u64 == have as u64, want >> 64 == have >> 64) {
            (true, false) => (high(want), high(have)),
            (false, true) => (low(want), low(have)),
            _ => (format!("{want:#x}"), format!("{have:#x}")),
        }
    }
}

/// Ways out of a trampoline.
pub(crate) const WAYS: usize = ExitPath::ALL.len();

/// How often a register had its value again, and another one; and another one where it is promised.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Fate {
    pub kept: u64,
    pub changed: u64,
    pub lost: u64,
}

impl std::ops::AddAssign for Fate {
    fn add_assign(&mut self, other: Fate) {
        self.kept += other.kept;
        self.changed += other.changed;
        self.lost += other.lost;
    }
}

/// What was checked, by trampoline.
#[derive(Default, Debug)]
pub(crate) struct Checks {
    /// How often, by clause.
    pub made: Vec<[u64; Clause::ALL.len()]>,
    /// What became of each register.
    pub fates: Vec<[Fate; 32]>,
    /// The registers that are promised, on each way out on which they were looked at.
    pub promised: Vec<[RegSet; WAYS]>,
    /// How often vector registers were lost to a handler that may use them.
    pub vectors_lost: Vec<u64>,
    /// On which ways out each clause was decided, as bits.
    pub decided: Vec<[u8; Clause::ALL.len()]>,
    /// The way out on which checks are being made.
    pub way: Option<ExitPath>,
    /// What failed in the last run.
    pub findings: Vec<Finding>,
    /// In a diagnosis: the instruction that stored last to each slot of the stack.
    pub writers: Option<BTreeMap<u64, u64>>,
}

impl Checks {
    /// Of so many trampolines.
    pub fn of(trampolines: usize) -> Checks {
        Checks {
            made: vec![[0; Clause::ALL.len()]; trampolines],
            fates: vec![[Fate::default(); 32]; trampolines],
            promised: vec![[RegSet::EMPTY; WAYS]; trampolines],
            vectors_lost: vec![0; trampolines],
            decided: vec![[0; Clause::ALL.len()]; trampolines],
            way: None,
            findings: Vec::new(),
            writers: None,
        }
    }

    /// Count so many checks.
    #[inline]
    fn count(&mut self, at: At, checks: u64) {
        if let Some(made) = self.made.get_mut(at.trampoline) {
            made[at.clause as usize] += checks;
        }
        if let (Some(way), Some(decided)) = (self.way, self.decided.get_mut(at.trampoline)) {
            decided[at.clause as usize] |= 1 << way as u8;
        }
    }

    /// Count so many checks that hold.
    pub fn hold(&mut self, at: At, checks: u64) {
        if checks > 0 {
            self.count(at, checks);
        }
    }

    /// Count a check, which fails if what was expected was not found.
    #[inline]
    pub fn check(&mut self, at: At, place: impl Into<Place>, expected: impl Into<Value>, found: impl Into<Value>) {
        self.check_by(at, place, Culprit::Unknown, expected, found);
    }

    /// The same, where it is known who can be asked.
    // Inlined, so that a place of which nothing is allocated costs nothing where the check holds, which most do.
    #[inline]
    pub fn check_by(
        &mut self,
        at: At,
        place: impl Into<Place>,
        by: Culprit,
        expected: impl Into<Value>,
        found: impl Into<Value>,
    ) {
        let (expected, found) = (expected.into(), found.into());
        self.count(at, 1);
        if expected != found {
            self.fail(Finding { by, ..Finding::new(at, place, expected, found) });
        }
    }

    /// The same, of a general register: who wrote it can be asked later.
    #[inline]
    pub fn check_register(&mut self, at: At, (reg, name): (Reg, &'static str), expected: u64, found: u64) {
        self.check_by(at, Place::Reg { name }, Culprit::Register(reg), expected, found);
    }

    /// Count a check that fails in one of several ways, or in none.
    pub fn check_none(&mut self, at: At, wrong: Option<(Place, u64, u64)>) {
        self.count(at, 1);
        if let Some((place, expected, found)) = wrong {
            self.fail(Finding::new(at, place, expected, found));
        }
    }

    /// A failure of what is not counted: it is only looked at when it happens.
    #[cold]
    pub fn fail(&mut self, mut finding: Finding) {
        if let (Culprit::Memory(at), Some(writers)) = (finding.by, &self.writers)
            && let Some(pc) = writers.get(&(at & !7))
        {
            finding.by = Culprit::At(*pc);
        }
        finding.way = finding.way.or(self.way);
        if self.findings.len() < FAILURES {
            self.findings.push(finding);
        }
    }

    /// Of the registers `all`, those of `kept` had their values again; of all of them, some are promised here.
    pub fn fates(&mut self, trampoline: usize, all: RegSet, promised: RegSet, kept: RegSet) {
        if let Some(fates) = self.fates.get_mut(trampoline) {
            let mut each = |set: RegSet, count: fn(&mut Fate)| {
                for reg in set.iter() {
                    fates.get_mut(usize::from(reg.0)).map(count);
                }
            };
            each(all.intersection(kept), |fate| fate.kept += 1);
            each(all.minus(kept), |fate| fate.changed += 1);
            each(all.intersection(promised).minus(kept), |fate| fate.lost += 1);
        }
        if let (Some(way), Some(ways)) = (self.way, self.promised.get_mut(trampoline)) {
            ways[way as usize] = ways[way as usize].union(all.intersection(promised));
        }
    }

    /// Vector registers were lost.
    pub fn lost_vectors(&mut self, trampoline: usize) {
        if let Some(lost) = self.vectors_lost.get_mut(trampoline) {
            *lost += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZERO: RegSet = RegSet::of(&[Reg(0)]);
    const AT: At = At { clause: Clause::P2, trampoline: 1, pc: 0x1000 };

    fn made(checks: &Checks) -> u64 {
        checks.made.iter().flatten().sum()
    }

    #[test]
    fn what_holds_is_counted_and_what_fails_is_kept_too() {
        let mut checks = Checks::of(2);
        checks.check(AT, Place::Pc, 7, 7);
        checks.check(AT.of(Clause::P9), Place::Sp, 7, 8);
        checks.check_register(AT.of(Clause::P1), (Reg(3), "rbx"), 7, 9);
        checks.check_none(AT, None);
        checks.check_none(AT, Some((Place::StoreBelow, 1, 2)));
        checks.hold(AT.of(Clause::P3), 16);
        checks.hold(AT.of(Clause::P4), 0);
        assert_eq!(checks.made[1][Clause::P2 as usize], 3);
        assert_eq!((checks.made[1][Clause::P3 as usize], checks.made[1][Clause::P4 as usize]), (16, 0));
        assert_eq!((checks.made[1][Clause::P9 as usize], checks.made[1][Clause::P1 as usize]), (1, 1));
        assert_eq!(made(&checks), 21);
        let places: Vec<String> = checks.findings.iter().map(|f| format!("{} {}", f.clause, f.place.id())).collect();
        assert_eq!(places, ["P9 sp", "P1 rbx", "P2 store:below-sp"]);
        assert_eq!(checks.findings[1].by, Culprit::Register(Reg(3)));
    }

    #[test]
    fn a_trampoline_that_is_none_is_not_counted_but_its_failure_is_kept() {
        let mut checks = Checks::of(1);
        checks.check(AT, Place::Pc, 7, 8);
        checks.fates(1, ZERO, ZERO, ZERO);
        checks.lost_vectors(1);
        assert_eq!((made(&checks), checks.findings.len()), (0, 1));
    }

    #[test]
    fn a_run_that_fails_everywhere_keeps_some_failures_and_counts_all_checks() {
        let mut checks = Checks::of(2);
        for n in 0..2 * FAILURES as u64 {
            checks.check(AT, Place::Pc, n, n + 1);
        }
        assert_eq!((made(&checks), checks.findings.len()), (2 * FAILURES as u64, FAILURES));
    }

    #[test]
    fn a_clause_is_decided_on_the_way_out_on_which_it_was_checked() {
        let mut checks = Checks::of(2);
        checks.check(AT, Place::Pc, 7, 7);
        assert_eq!(checks.decided[1], [0; Clause::ALL.len()]);
        for way in [ExitPath::Function, ExitPath::Direct] {
            checks.way = Some(way);
            checks.check(AT, Place::Pc, 7, 8);
        }
        let both = 1 << ExitPath::Function as u8 | 1 << ExitPath::Direct as u8;
        assert_eq!((checks.decided[1][Clause::P2 as usize], checks.decided[0][Clause::P2 as usize]), (both, 0));
    }

    #[test]
    fn fates_are_told_register_by_register() {
        let mut checks = Checks::of(1);
        let last = RegSet::of(&[Reg(31), Reg(40)]);
        checks.fates(0, ZERO.union(last), ZERO, ZERO.union(last));
        checks.fates(0, ZERO, ZERO, RegSet::EMPTY);
        let fate = |kept, changed, lost| Fate { kept, changed, lost };
        assert_eq!((checks.fates[0][0], checks.fates[0][31]), (fate(1, 1, 1), fate(1, 0, 0)));
    }

    #[test]
    fn of_a_vector_register_the_half_is_told_that_differs() {
        let value = |low: u64, high: u64| (u128::from(high) << 64 | u128::from(low)).to_le_bytes();
        let told = |found: [u8; 16]| {
            let mut checks = Checks::of(2);
            checks.check(AT, Place::Reg { name: "xmm0" }, value(0x11, 0x22), found);
            checks.findings.first().map(Finding::values)
        };
        let pair = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
        assert_eq!(told(value(0x11, 0x22)), None);
        assert_eq!(told(value(0x33, 0x22)), pair("0x11", "0x33"));
        assert_eq!(told(value(0x11, 0x33)), pair("0x22 in bits 64 to 127", "0x33 in bits 64 to 127"));
        assert_eq!(told(value(0, 0)), pair("0x220000000000000011", "0x0"));
    }
}
