//! The stack: what was written to it, and when.

use crate::engine::cpu::{STACK_SIZE, STACK_TOP};

/// The stack: which of its slots were written since the last site, and where the trampoline's part ends.
#[derive(Default, Debug)]
pub(crate) struct Stack {
    /// The end of what the trampoline at work may write; 0 if none is.
    pub top: u64,
    /// In which frame each slot was written.
    written: Vec<u32>,
    /// Which frame it is.
    pub epoch: u32,
    epochs: u32,
    /// The lowest store of the last instruction.
    pub lowest: Option<u64>,
}

impl Stack {
    /// Forget the last run. Its epochs do not come again: what it wrote counts as not written.
    pub fn clear(&mut self) {
        (self.lowest, self.top) = (None, 0);
        self.written.resize((STACK_SIZE / 8) as usize, 0);
    }

    /// A frame begins below `top`: nothing in it is written.
    pub fn begin(&mut self, top: u64) {
        self.epochs += 1;
        self.epoch = self.epochs;
        self.top = top;
    }

    /// An earlier frame goes on.
    pub fn resume(&mut self, epoch: u32, top: u64) {
        (self.epoch, self.top) = (epoch, top);
    }

    /// No trampoline has a frame.
    pub fn leave(&mut self) {
        self.top = 0;
    }

    /// The number of the slot at an address.
    fn slot(at: u64) -> Option<usize> {
        at.checked_sub(STACK_TOP - STACK_SIZE).map(|d| (d / 8) as usize)
    }

    /// So many bytes are stored.
    pub fn write(&mut self, at: u64, size: usize) {
        let Some(slot) = Stack::slot(at) else { return };
        for written in self.written.iter_mut().skip(slot).take(size.div_ceil(8)) {
            *written = self.epoch;
        }
    }

    /// Was the slot written since the frame began?
    pub fn is_written(&self, at: u64) -> bool {
        Stack::slot(at).and_then(|slot| self.written.get(slot)).is_some_and(|written| *written == self.epoch)
    }

    /// Nothing between these addresses is what was written there.
    pub fn forget(&mut self, from: u64, to: u64) {
        if let (Some(from), Some(to)) = (Stack::slot(from), Stack::slot(to))
            && let Some(gone) = self.written.get_mut(from..to)
        {
            gone.fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = STACK_TOP - STACK_SIZE;

    fn stack() -> Stack {
        let mut stack = Stack::default();
        stack.clear();
        stack.begin(STACK_TOP - 64);
        stack
    }

    #[test]
    fn a_slot_is_written_until_the_next_frame() {
        let mut stack = stack();
        assert!(!stack.is_written(BASE + 16));
        stack.write(BASE + 16, 16);
        let written = |stack: &Stack| [8, 16, 24, 32].map(|d| stack.is_written(BASE + d));
        assert_eq!(written(&stack), [false, true, true, false]);
        let outer = stack.epoch;
        stack.begin(STACK_TOP - 128);
        assert_eq!(written(&stack), [false; 4]);
        stack.resume(outer, STACK_TOP - 64);
        assert_eq!(written(&stack), [false, true, true, false], "a frame that goes on has its slots again");
    }

    #[test]
    fn what_an_interrupt_overwrites_is_not_written() {
        let mut stack = stack();
        stack.write(BASE, 64);
        stack.forget(BASE + 8, BASE + 24);
        assert_eq!([0, 8, 16, 24].map(|d| stack.is_written(BASE + d)), [true, false, false, true]);
    }

    #[test]
    fn outside_of_the_stack_nothing_is_written() {
        let mut stack = stack();
        for at in [0, BASE - 8, STACK_TOP, u64::MAX] {
            stack.write(at, 16);
            assert!(!stack.is_written(at), "{at:#x}");
        }
    }
}
