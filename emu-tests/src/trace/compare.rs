//! The state of the CPU at one moment, against that at another.

use codegen::abi::RegSet;
use codegen::live::Live;

use super::finding::{At, Culprit};
use super::{Here, Trace};
use crate::case::Handler;
use crate::cpu::Snapshot;
use crate::place::Place;
use crate::report::Clause;

/// What must be the same of flags, control words and vector registers.
pub(super) struct Kept<'k> {
    pub flags: bool,
    /// The clause about vector registers.
    pub clause: Clause,
    /// The vector registers that carry arguments, or results.
    pub carriers: &'k [u8],
    /// Those that do here, where the prototype is known.
    pub live: Option<Live>,
}

impl Trace {
    /// Registers now, against those at the site with the callback's changes.
    pub(super) fn compare_registers(&mut self, here: &Here) {
        let now = here.snapshot();
        let Some(a) = self.state.activations.last() else { return };
        let (expect, kept, flags) = (a.expect.clone(), a.kept, a.flags_kept);
        let (abi, t) = (here.registers.abi, self.trampoline());
        let args = RegSet::of(abi.args).union(abi.hidden);
        let c_keeps = abi.callee_saved.union(abi.platform);
        for reg in c_keeps.union(abi.caller_saved).iter() {
            let (want, have) = (expect[reg], now[reg]);
            self.checks.fate(t, reg, kept.contains(reg), want == have);
            if kept.contains(reg) {
                let clause = match (args.contains(reg), c_keeps.contains(reg)) {
                    (true, _) => Clause::P1,
                    (false, true) => Clause::P5,
                    (false, false) => Clause::P4,
                };
                let at = self.at(clause, here.pc);
                self.checks.check_register(at, (reg, abi.name(reg)), want, have);
            }
        }
        let live = self.contracts.get(t).and_then(|c| c.kind.live());
        let carriers = here.registers.abi.vector_args;
        self.compare_state(here, &expect, &now, &Kept { flags, clause: Clause::P2, carriers, live });
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
        let named = self.contract().map_or((0, 0, 0), |c| (c.vectors_kept, c.vectors_lost, c.control_lost));
        let (vectors_kept, vectors_lost, control_lost) = named;
        let words = machine.control.iter().zip(expect.control.into_iter().zip(now.control));
        for (_, (word, (want, have))) in words.enumerate().filter(|(i, _)| control_lost >> i & 1 == 0) {
            self.check(p6, Place::Reg { name: word.reg.name }, want, have);
        }
        // A known prototype tells which vector registers are live. Only those must survive `Handler::Any`.
        let most = kept.carriers.len();
        let (saved, live) = kept.live.map_or((0, most), |l| (l.saved_vectors().into(), l.vectors.into()));
        let (saved, open) = kept.carriers.split_at(most.min(saved));
        let general = self.case.handler == Handler::General;
        let kept_always = |i: u8| vectors_kept >> i & 1 == 1 || (saved.contains(&i) && vectors_lost >> i & 1 == 0);
        let due = |i: &u8| kept_always(*i) || (general && vectors_lost >> i & 1 == 0);
        let all = (0..machine.vectors.len() as u8).filter(due);
        if expect.vectors == now.vectors {
            // Nearly always: one comparison for all of them.
            self.checks.hold(p6.of(kept.clause), all.count() as u64);
            return;
        }
        for i in all {
            self.check_vector(here, p6.of(kept.clause), i.into(), expect, now);
        }
        let mut lost = open.iter().take(live.saturating_sub(saved.len())).map(|&i| usize::from(i));
        if !general && lost.any(|i| (vectors_kept | vectors_lost) >> i & 1 == 0 && expect.vectors[i] != now.vectors[i])
        {
            self.checks.lost_vectors(self.trampoline());
        }
    }

    fn check_vector(&mut self, here: &Here, at: At, i: usize, expect: &Snapshot, now: &Snapshot) {
        let name = here.registers.machine.vectors[i].name;
        self.checks.check_by(at, Place::Reg { name }, Culprit::Vector(i), expect.vectors[i], now.vectors[i]);
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
