//! What the other side of a boundary does: the callee of a closure or a callback, the kernel, another context.

use std::sync::Arc;

use codegen::contract::Contract;
use codegen::contract::stated::{Contexts, Handle};
use codegen::words::abi::Reg;
use codegen::words::term::{EntryState, Root};

use super::cells::Mark;
use super::given::{Entry, Told};
use super::{Here, Trace};
use crate::engine::cpu::{EXIT, SPARSE_OTHER};
use crate::engine::registers::Snapshot;
use crate::engine::rng::Rng;
use crate::report::Clause;
use crate::report::place::Place;
use crate::run::situation::Situation;

/// Bytes of the frame of whoever switches back.
const FRAME: u64 = 0x40;

/// The registers as they were at a call, for the places at which the callee stores.
struct AtCall<'a>(&'a Snapshot);

impl EntryState for AtCall<'_> {
    fn reg(&self, reg: Reg) -> u64 {
        self.0[reg]
    }

    fn word(&self, _: u64) -> Option<u64> {
        None
    }

    fn other(&self, _: &Root) -> Option<u64> {
        None
    }
}

impl Trace {
    /// What the callee of a boundary returns and stores, by the registers that it was given.
    pub(super) fn leave_stated(&mut self, here: &mut Here, contract: &Contract, given: &Snapshot) {
        let Some(result) = self.case.situation.result().and_then(|n| contract.stated.results.get(n)) else { return };
        let mut rng = Rng::new(self.case.seed, 0x700);
        let mut stored = Vec::new();
        for place in &result.stores {
            let value = rng.canary();
            self.state.stored.push(value);
            let Some(at) = place.eval(&AtCall(given)) else { continue };
            // For the trampoline, it was written.
            self.state.stack.write(at, 8);
            stored.push((at, value));
        }
        self.store(here, stored, &Place::StoreContext);
        if let Some(value) = result.returns {
            here.set(here.registers.abi.rets[0], value);
        }
    }

    /// The kernel: it changes what the instruction changes, and the result.
    pub(super) fn system_call(&mut self, here: &mut Here) {
        let Some(contract) = self.contract() else { return };
        if let Some(a) = self.state.activations.last_mut() {
            a.calls += 1;
        }
        self.check_demanded(here);
        let (case, call) = (Arc::clone(&self.case), &here.registers.machine.system_call);
        let mut rng = Rng::new(case.seed, 0x800);
        for reg in call.lost.iter() {
            here.set(reg, case.canary(&mut rng));
        }
        // A signal may come meanwhile.
        self.interrupt(here);
        let returns = case.situation.result().and_then(|n| contract.stated.results.get(n)?.returns).unwrap_or_default();
        here.set(here.registers.abi.rets[0], returns);
        here.uc.go(here.pc.wrapping_add(call.bytes.len() as u64));
    }

    /// A context that was left goes on, and switches back. Returns where that leads.
    pub(super) fn other_goes_on(&mut self, here: &mut Here) -> Option<u64> {
        if !self.left_for_stand_in(here, true) {
            return None;
        }
        let contract = self.contract()?;
        let contexts = contract.stated.contexts.as_ref()?;
        let other = self.state.other.take()?;
        if let Some(left) = &other.left {
            self.check_left(here, &contract, left);
        }
        self.check_passes(here, &contract.stated.passes);
        self.switch_back(here, contexts, &contexts.from, &other.holds)
    }

    /// The other context goes on as it was left.
    fn check_left(&mut self, here: &Here, contract: &Contract, left: &Snapshot) {
        let (abi, now) = (here.registers.abi, here.snapshot());
        let sp = left[abi.sp].wrapping_add(abi.return_bytes());
        self.check(self.at(Clause::P7, here.pc), Place::Sp, sp, here.sp());
        self.compare_general(here, (left, &now), (contract.kept, contract.kept), &[(contract.kept, Clause::P5)]);
        self.compare_named_vectors(here, contract.vectors_kept, left, &now);
        let switched = contract.stated.contexts.as_ref().is_some_and(|contexts| contexts.control);
        let before = self.state.activations.last().map(|a| a.expect.control);
        let words = here.registers.machine.control.iter().enumerate();
        for (i, word) in words.filter(|(i, _)| contract.control_lost >> i & 1 == 0) {
            // Where they are not switched, the context that is left has them.
            let want = if switched { Some(left.control[i]) } else { before.as_ref().map(|control| control[i]) };
            let p6 = self.at(Clause::P6, here.pc);
            self.check(p6, Place::Reg { name: word.reg.name }, want.unwrap_or_default(), now.control[i]);
        }
    }

    /// A function that stands for another begins: that of a context which has not run, or what is called when that has ended.
    pub(super) fn fresh_context(&mut self, here: &mut Here, marks: Mark) {
        let Some(contract) = self.contract() else { return };
        let Some(contexts) = &contract.stated.contexts else { return };
        let Some(fresh) = &contexts.fresh else { return };
        self.check_call(here);
        if marks.has(Mark::EXIT_HANDLER) {
            let returned = self.state.other.is_none() && self.case.situation == Situation::Ended;
            self.check(self.at(Clause::P9, here.pc), Place::ContextEnds, true, returned);
            self.state.ended = true;
            here.uc.go(EXIT);
            return;
        }
        let Some(other) = self.state.other.take() else { return };
        self.check_passes(here, &fresh.passes);
        self.check_outermost(here);
        if self.case.situation == Situation::Ended {
            // Its function returns. It may have changed all that a C function may.
            self.poison(here, 60);
            return;
        }
        let from = fresh.from.map_or_else(|| contexts.from.clone(), Handle::In);
        if let Some(there) = self.switch_back(here, contexts, &from, &other.holds) {
            here.uc.go(there);
        }
    }

    /// P12 of a context that has not run: nothing called its function, and unwinders stop there.
    fn check_outermost(&mut self, here: &Here) {
        let Some(table) = self.table.clone() else { return };
        let back = here.parent(here.sp()).wrapping_sub(1);
        if table.row(back).is_none() && table.row(self.places.attached).is_none() {
            // No table says anything of switches.
            return;
        }
        let goes_on = table.row(back).is_some_and(|row| row.returns.is_some());
        self.check(self.at(Clause::P12, here.pc), Place::Outermost, false, goes_on);
    }

    /// The context that goes on changes all that is its own, and switches to the one that the case is about. Returns where the switch
    /// begins.
    fn switch_back(
        &mut self,
        here: &mut Here,
        contexts: &Contexts,
        from: &Handle,
        holds: &[(Reg, u64)],
    ) -> Option<u64> {
        let (case, registers) = (Arc::clone(&self.case), here.registers);
        let mut a = self.state.activations.pop()?;
        a.calls += 1;
        let handle = match from {
            Handle::In(reg) => here.get(*reg),
            Handle::At(sum) => sum.eval(&Entry { here, expect: &a.expect, told: Told::default() })?,
        };
        self.poison(here, 61);
        let mut rng = Rng::new(case.seed, 0x901);
        let own = registers.abi.callee_saved.iter().map(|reg| (reg, case.canary(&mut rng)));
        let own: Vec<(Reg, u64)> = own.chain(holds.iter().copied()).chain([(contexts.to, handle)]).collect();
        own.into_iter().for_each(|(reg, value)| here.set(reg, value));
        for &vector in registers.abi.vector_callee_saved {
            registers.set_vector(here.uc, vector.into(), &rng.vector());
        }
        if contexts.control {
            for word in registers.machine.control {
                // The engine has the register: its number is compared with the engine's own in a test.
                let _ = here.uc.write(word.reg.id, word.other);
            }
        }
        // Whoever has the context may have called with other bytes on its stack than a word of the switch.
        let at_call = here.sp().wrapping_sub(FRAME) & !(u64::from(registers.abi.sp_align) - 1);
        let sp = at_call.wrapping_sub(registers.abi.return_bytes());
        here.set(registers.abi.sp, sp);
        self.return_to(here, sp, SPARSE_OTHER);
        self.state.switched = Some(a);
        self.state.go_on();
        self.state.untouched = false;
        self.checks.way = None;
        Some(self.places.attached)
    }

    /// The context that the case is about goes on: what it expects is what it had.
    pub(super) fn come_back(&mut self) {
        if let Some(a) = self.state.switched.take() {
            self.state.activations.pop();
            self.state.activations.push(a);
        }
    }
}
