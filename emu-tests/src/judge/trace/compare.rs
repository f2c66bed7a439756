//! The state of the CPU at one moment, against that at another.

use codegen::ask::kind::Kind;
use codegen::ask::live::Live;
use codegen::contract::stated::{Given, Gives};
use codegen::words::abi::RegSet;

use super::finding::{At, Culprit};
use super::state::Activation;
use super::{Here, Trace};
use crate::engine::registers::Snapshot;
use crate::report::Clause;
use crate::report::place::Place;
use crate::run::case::Handler;

/// What must be the same of flags, control words and vector registers.
pub(super) struct Kept<'k> {
    pub flags: bool,
    /// The clause about vector registers.
    pub clause: Clause,
    /// The vector registers that carry arguments, or results.
    pub carriers: &'k [u8],
    /// Those that do here, where the prototype is known.
    pub live: Option<Live>,
    /// Those that the contract names, by their numbers as bits.
    pub named: u32,
}

impl Trace {
    /// Registers now, against those at the site with the callback's changes.
    pub(super) fn compare_registers(&mut self, here: &Here) {
        self.beside_site(|t, a| t.compare_site(here, a));
    }

    fn compare_site(&mut self, here: &Here, a: &Activation) {
        let (now, t) = (here.snapshot(), self.trampoline());
        let abi = here.registers.abi;
        let args = RegSet::of(abi.args).union(abi.hidden);
        let c_keeps = abi.callee_saved.union(abi.platform);
        let all = c_keeps.union(abi.caller_saved);
        let clauses = [(args, Clause::P1), (c_keeps, Clause::P5), (all, Clause::P4)];
        let (given, vectors) = self.given_in_this_case(t);
        self.compare_general(here, (&a.expect, &now), (all, a.kept.minus(given)), &clauses);
        let (live, named) = self.contracts.get(t).map_or((None, 0), |c| (c.kind.live(), c.vectors_kept));
        let named = named & !vectors;
        let carriers = here.registers.abi.vector_args;
        // Of a boundary, these are registers that C keeps.
        let clause = if self.kind(t).is_some_and(Kind::is_boundary) { Clause::P5 } else { Clause::P2 };
        let kept = Kept { flags: a.flags_kept, clause, carriers, live, named };
        self.compare_state(here, &a.expect, &now, &kept);
        self.compare_wide(here);
    }

    /// The general registers, and the vector registers as bits, to which a trampoline gives values of their own in this case.
    fn given_in_this_case(&self, trampoline: usize) -> (RegSet, u32) {
        let results = self.contracts.get(trampoline).map_or(&[][..], |contract| &contract.stated.results);
        let gives = self.case.situation.result().and_then(|n| results.get(n)).map_or(&[][..], |result| &result.gives);
        gives.iter().fold((RegSet::EMPTY, 0), |(regs, vectors), Gives { place, .. }| match place {
            Given::Reg(reg) => (regs.union(RegSet::of(&[*reg])), vectors),
            place => (regs, vectors | place.vector()),
        })
    }

    /// The general registers `told`, of which those in `kept` are judged, each by the first of the clauses that has it.
    pub(super) fn compare_general(
        &mut self,
        here: &Here,
        (expect, now): (&Snapshot, &Snapshot),
        (told, kept): (RegSet, RegSet),
        clauses: &[(RegSet, Clause)],
    ) {
        let expect = self.state.since_moved(expect);
        let (same, at) = (expect.same(now), self.at(Clause::P1, here.pc));
        self.checks.fates(at.trampoline, told, kept, same);
        let kept = told.intersection(kept);
        let mut left = kept;
        for &(of, clause) in clauses {
            // Nearly all: those that hold what they must are counted together.
            self.checks.hold(at.of(clause), left.intersection(of).intersection(same).count().into());
            left = left.minus(of);
        }
        for reg in kept.minus(same).iter() {
            if let Some((_, clause)) = clauses.iter().find(|(of, _)| of.contains(reg)) {
                let name = here.registers.abi.name(reg);
                self.checks.check_register(at.of(*clause), (reg, name), expect[reg], now[reg]);
            }
        }
    }

    /// P28 of a run that has ended: this is the first of the callers' entries on the shadow call stack that is not as it was.
    pub(in crate::judge) fn check_scs(&mut self, entry: u64, changed: Option<(u64, u64)>) {
        let at = At { clause: Clause::P28, trampoline: self.case.attach, pc: entry };
        let (before, now) = changed.unwrap_or_default();
        self.checks.check(at, Place::ScsEntry, before, now);
    }

    /// All but the general registers.
    pub(super) fn compare_state(&mut self, here: &Here, expect: &Snapshot, now: &Snapshot, kept: &Kept) {
        let machine = here.registers.machine;
        let p6 = self.at(Clause::P6, here.pc);
        match machine.flags {
            Some((reg, mask)) if kept.flags => {
                let mask = mask | machine.clear_flags();
                self.check(p6, Place::Reg { name: reg.name }, expect.flags & mask, now.flags & mask);
            }
            // What C never finds set, it never finds set.
            Some(_) if machine.clear_flags() != 0 && expect.flags & machine.clear_flags() == 0 => {
                self.check(p6, Place::ClearFlags, 0, now.flags & machine.clear_flags());
            }
            _ => {}
        }
        let vectors_kept = kept.named;
        let (vectors_lost, control_lost) = self.contract().map_or((0, 0), |c| (c.vectors_lost, c.control_lost));
        self.state.untouched &= expect.control == now.control;
        let words = machine.control.iter().zip(expect.control.into_iter().zip(now.control));
        for (_, (word, (want, have))) in words.enumerate().filter(|(i, _)| control_lost >> i & 1 == 0) {
            self.check(p6, Place::Reg { name: word.reg.name }, want, have);
        }
        // A known prototype tells which vector registers are live. Only those must survive `Handler::Any`.
        let most = kept.carriers.len();
        let (saved, live) = kept.live.map_or((0, most), |l| (l.saved_vectors().into(), l.vectors.into()));
        let (saved, open) = kept.carriers.split_at(most.min(saved));
        let general = self.case.handler == Handler::General;
        let judged = if general { u32::MAX } else { saved.iter().fold(0, |all, i| all | 1 << i) };
        let due = vectors_kept | judged & !vectors_lost;
        let due = u64::from(due) & ((1 << machine.vectors.len()) - 1);
        if expect.vectors == now.vectors {
            // Nearly always: one comparison for all of them.
            self.checks.hold(p6.of(kept.clause), due.count_ones().into());
            return;
        }
        self.state.untouched = false;
        for i in (0..machine.vectors.len()).filter(|i| due >> i & 1 == 1) {
            self.check_named_vector(here, p6.of(kept.clause), i, expect, now);
        }
        let mut lost = open.iter().take(live.saturating_sub(saved.len())).map(|&i| usize::from(i));
        if !general && lost.any(|i| (vectors_kept | vectors_lost) >> i & 1 == 0 && expect.vectors[i] != now.vectors[i])
        {
            self.checks.lost_vectors(self.trampoline());
        }
    }

    /// The vector state that no table has, for the trampoline that begins.
    pub(super) fn note_wide(&mut self, here: &Here) {
        if self.case.wide && self.enabled {
            // Whoever asks next learns that the engine is gone.
            self.state.wide = here.uc.wide().unwrap_or_default();
        }
    }

    /// It is as the trampoline found it, where handlers leave vectors alone.
    pub(super) fn compare_wide(&mut self, here: &Here) {
        if self.state.wide.is_empty() || !self.contract().is_some_and(|contract| contract.leaves_vectors()) {
            return;
        }
        let (found, at) = (here.uc.wide().unwrap_or_default(), self.at(Clause::Wide, here.pc));
        let both = std::mem::take(&mut self.state.wide).into_iter().zip(&found);
        for ((name, want), (_, have)) in both.filter(|((_, want), _)| !want.is_empty()) {
            let words = |bytes: &[u8]| {
                bytes.chunks(8).map(|word| word.iter().rev().fold(0, |w, b| w << 8 | u64::from(*b))).collect()
            };
            let (want, have): (Vec<u64>, Vec<u64>) = (words(&want), words(have));
            let (want, have) = want.into_iter().zip(have).find(|(want, have)| want != have).unwrap_or_default();
            self.check(at, Place::WideRegister { name }, want, have);
        }
        self.state.wide = found;
    }

    fn check_vector(&mut self, here: &Here, at: At, i: usize, expect: &Snapshot, now: &Snapshot) {
        let name = here.registers.machine.vectors[i].name;
        self.checks.check_by(at, Place::Reg { name }, Culprit::Vector(i), expect.vectors[i], now.vectors[i]);
    }

    /// The vector registers that the contract names.
    pub(super) fn compare_named_vectors(&mut self, here: &Here, named: u32, expect: &Snapshot, now: &Snapshot) {
        let p5 = self.at(Clause::P5, here.pc);
        for i in (0..expect.vectors.len()).filter(|i| named >> i & 1 == 1) {
            self.check_named_vector(here, p5, i, expect, now);
        }
    }

    /// A vector register that is kept. Of one that C keeps for its callers, the low 8 bytes count at a boundary.
    fn check_named_vector(&mut self, here: &Here, at: At, i: usize, expect: &Snapshot, now: &Snapshot) {
        let callee_saved = here.registers.abi.vector_callee_saved.iter().any(|&vector| usize::from(vector) == i);
        if callee_saved && self.kind(self.trampoline()).is_some_and(Kind::is_boundary) {
            self.check_low(here, at, i, expect, now);
        } else {
            self.check_vector(here, at, i, expect, now);
        }
    }

    fn check_low(&mut self, here: &Here, at: At, i: usize, expect: &Snapshot, now: &Snapshot) {
        let mut as_kept = now.vectors[i];
        as_kept[8..].copy_from_slice(&expect.vectors[i][8..]);
        let name = here.registers.machine.vectors[i].name;
        self.checks.check_by(at, Place::Reg { name }, Culprit::Vector(i), expect.vectors[i], as_kept);
    }

    /// A callee of the traced function's own prototype finds all that the function finds.
    pub(super) fn check_passed(&mut self, here: &Here, live: Live, expect: &Snapshot, site_sp: u64) {
        let (abi, now) = (here.registers.abi, here.snapshot());
        let p10 = self.at(Clause::P10, here.pc);
        for reg in live.regs.minus(RegSet::of(abi.args)).iter() {
            self.checks.check_register(p10, (reg, abi.name(reg)), expect[reg], now[reg]);
        }
        for &i in here.registers.abi.vector_args.iter().take(live.vectors.into()) {
            self.check_vector(here, p10, i.into(), expect, &now);
        }
        let return_address = if abi.link.is_none() { 8 } else { 0 };
        let stack = |sp: u64| here.words(sp.wrapping_add(return_address), 8 * usize::from(live.stack));
        for (want, have) in stack(site_sp).into_iter().zip(stack(here.sp())) {
            self.check(p10, Place::StackArgument, want, have);
        }
    }
}
