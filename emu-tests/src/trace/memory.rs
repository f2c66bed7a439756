//! P7: what a trampoline reads and writes on the stack.

use super::{Joined, TRAMPOLINE, Trace};
use crate::cpu::{STACK_SIZE, STACK_TOP, Uc};
use crate::report::Clause;

impl Trace {
    /// A memory access by an instruction, before it takes effect.
    fn access(&mut self, at: u64, size: usize, is_write: bool) {
        let Some(i) = at.checked_sub(STACK_TOP - STACK_SIZE).map(|d| (d / 8) as usize) else { return };
        let slots = i..i + size.div_ceil(8);
        if is_write {
            for slot in slots {
                if let Some(w) = self.written.get_mut(slot) {
                    *w = self.epoch;
                }
            }
        }
        if self.current_region < TRAMPOLINE || self.frame_top == 0 {
            return;
        }
        let trampoline = self.trampoline();
        if let Some(counts) = self.checks.get_mut(trampoline) {
            counts[Clause::P7 as usize] += 1;
        }
        if is_write {
            if at + size as u64 > self.frame_top {
                self.fail(Clause::P7, "store above sp at the site", None, (self.frame_top, at), 0);
            }
            self.lowest_store = Some(self.lowest_store.map_or(at, |l| l.min(at)));
        } else if at < self.frame_top && self.written.get(i).is_some_and(|w| *w != self.epoch) {
            self.fail(
                Clause::P7,
                format!("load of a slot never written, {} bytes below sp at the site", self.frame_top - at),
                None,
                (0, at),
                0,
            );
        }
    }

    /// A field that a handler may read was written by this activation.
    pub(super) fn check_written(&mut self, place: u64, member: &'static str, pc: u64) {
        let slot = place.wrapping_sub(STACK_TOP - STACK_SIZE) / 8;
        let written = self.written.get(slot as usize).is_some_and(|w| *w == self.epoch);
        self.check(Clause::P10, Joined("fregs->", member, " was written"), 1, u64::from(written), pc);
    }
}

/// The hook on every access to the stack.
pub(crate) fn accessed(uc: &mut Uc, at: u64, size: usize, is_write: bool) -> bool {
    if let Some(trace) = uc.get_data_mut() {
        trace.access(at, size, is_write);
    }
    true
}
