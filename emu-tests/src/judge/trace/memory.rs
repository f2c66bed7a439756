//! P7: what a trampoline reads and writes on the stack.

use super::{Trace, Uc};
use crate::engine::cpu::{STACK_SIZE, STACK_TOP};
use crate::engine::interface::Access;
use crate::engine::lent::Lends;
use crate::engine::registers::Registers;
use crate::report::Clause;
use crate::report::place::{Place, SlotWritten};
use crate::run::block::is_other_stack;

impl Trace {
    /// A memory access by an instruction, before it takes effect.
    fn access(&mut self, Access { at, bytes: size, is_write }: Access) {
        let stack = &mut self.state.stack;
        let was_written = stack.is_written(at);
        if is_write {
            stack.write(at, size);
        }
        if let (true, Some(writers)) = (is_write, &mut self.checks.writers) {
            let first = at & !7;
            writers.extend((first..at + size as u64).step_by(8).map(|slot| (slot, self.state.pc)));
        }
        let stack = &mut self.state.stack;
        // While another context switches, this stack is not the one that it is on.
        if stack.top == 0 || is_other_stack(stack.top) || self.state.region.trampoline().is_none() {
            return;
        }
        let top = stack.top;
        let wrong = if is_write {
            stack.lowest = Some(stack.lowest.map_or(at, |l| l.min(at)));
            self.state.quiet = None;
            (at + size as u64 > top).then_some((Place::StoreAbove, top, at))
        } else {
            let below = top.wrapping_sub(at);
            (at < top && !was_written).then_some((Place::NeverWritten { below }, 0, at))
        };
        self.checks.check_none(self.at(Clause::P7, 0), wrong);
    }

    /// A field that a handler may read was written by this activation.
    pub(super) fn check_written(&mut self, place: u64, member: &str, pc: u64) {
        if !self.watched {
            return;
        }
        let written = self.state.stack.is_written(place);
        self.check(self.at(Clause::P10, pc), SlotWritten(member), true, written);
    }

    /// An instruction is about to access memory by SP. It is asked of runs whose accesses are looked at.
    pub(super) fn check_access_by_sp(&mut self, sp: u64, pc: u64) {
        let Some(align) = self.registers.map(|r| r.machine.sp_access_align) else { return };
        self.check(self.at(Clause::P8, pc), Place::SpOfAccess, 0, sp % align);
    }

    /// A store is judged at the next instruction, when SP is what the storing one made it.
    pub(super) fn check_store(&mut self, lowest: u64, sp: u64, pc: u64) {
        if lowest < sp && lowest < sp.wrapping_sub(self.contract().map_or(0, |c| c.stated.red_zone)) {
            self.fail(self.at(Clause::P7, pc), Place::StoreBelow, sp, lowest);
        }
    }
}

impl Lends for Option<Box<Trace>> {
    fn registers(&self) -> Option<Registers> {
        self.as_ref().and_then(|trace| trace.registers)
    }

    fn clock(&self) -> u64 {
        self.as_ref().map_or(0, |trace| trace.read_clock())
    }

    fn accessed(uc: &mut Uc, access: Access) {
        if access.at.wrapping_sub(STACK_TOP - STACK_SIZE) < STACK_SIZE {
            accessed(uc, access);
        }
    }

    fn faulted(&mut self, pc: u64, fault: &'static str) {
        if let Some(trace) = self {
            trace.stopped(pc, Place::Fault { fault });
        }
    }
}

/// The hook on every store elsewhere, while it is asked what a trampoline leaves to others.
pub(crate) fn stored_elsewhere(uc: &mut Uc, access: Access) {
    if let Some(trace) = uc.data_mut().as_deref_mut() {
        trace.stores_elsewhere(access.at, access.bytes);
    }
}

/// The hook on every access to the stack.
pub(crate) fn accessed(uc: &mut Uc, access: Access) {
    if let Some(trace) = uc.data_mut().as_deref_mut().filter(|trace| trace.watched) {
        trace.access(access);
    }
}
