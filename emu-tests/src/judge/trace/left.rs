//! What those find to whom a trampoline goes on: for two trampolines between which no clause tells.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use codegen::words::abi::RegSet;

use super::{Here, Trace};
use crate::engine::cpu::STACK_TOP;

/// What a trampoline left, of all times that control went from it to others, as one number.
#[derive(Default)]
pub(crate) struct Left {
    found: DefaultHasher,
    /// Words outside of the stack to which it stored.
    stored: BTreeSet<u64>,
    /// Control went from it to others.
    left: bool,
}

impl Left {
    /// The number. It is another one if anything was other; none if control never went from the trampoline.
    pub(crate) fn number(&self) -> Option<u64> {
        self.left.then(|| self.found.finish())
    }

    /// A trampoline is about to store outside of the stack.
    fn store(&mut self, at: u64, bytes: usize) {
        (at, bytes).hash(&mut self.found);
        self.stored.extend((at & !7..at + bytes as u64).step_by(8));
    }
}

impl Trace {
    /// An instruction stores outside of the stack.
    pub(super) fn stores_elsewhere(&mut self, at: u64, bytes: usize) {
        let inside = self.state.region.trampoline().is_some();
        if let Some(left) = self.left.as_mut().filter(|_| self.enabled && inside) {
            left.store(at, bytes);
        }
    }

    /// Control went from a trampoline to somebody else, who may look at all registers, at the stack from SP on, and at memory.
    pub(super) fn leave(&mut self, here: &Here) {
        if self.left.is_none() {
            return;
        }
        let mut now = here.snapshot();
        if self.state.exiting().is_some_and(|exiting| exiting.parent == here.pc) {
            // To the caller of the function, which has returned: no psABI lets it read what functions need not keep.
            let abi = here.registers.abi;
            abi.caller_saved.minus(RegSet::of(abi.rets)).iter().for_each(|reg| now[reg] = 0);
        }
        let Some(left) = &mut self.left else { return };
        left.left = true;
        (here.pc, here.came_by, now.gpr, now.flags, now.control, now.vectors).hash(&mut left.found);
        let mut stack = vec![0; STACK_TOP.saturating_sub(here.sp()) as usize];
        here.read(here.sp(), &mut stack).hash(&mut left.found);
        stack.hash(&mut left.found);
        for at in &left.stored {
            here.word(*at).hash(&mut left.found);
        }
    }
}
