//! A model of what return-address stacks make of branches. The engine has none.

use codegen::arch::machine::Branch;

/// A branch that was just executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub branch: Branch,
    /// The address behind it.
    pub next: u64,
}

/// The part of a processor's return-address stack that belongs to the trampolines of one traced call.
#[derive(Default, Debug)]
pub(crate) struct ReturnStack {
    stack: Vec<u64>,
    mispredicted: u64,
    unpaired: u64,
    /// Behind the last return that was either.
    wrong: Option<u64>,
    /// Returns that an engine which enforces did not let go on.
    stopped: u64,
}

impl ReturnStack {
    /// The call that the next return belongs to.
    pub fn top(&self) -> Option<u64> {
        self.stack.last().copied()
    }

    /// The call at the site is what a return to `resume` will be paired with.
    pub fn begin(&mut self, resume: Option<u64>) {
        self.stack.clear();
        self.stack.extend(resume);
        (self.mispredicted, self.unpaired, self.wrong, self.stopped) = (0, 0, None, 0);
    }

    /// A branch leads to `pc`. Returns where speculation went instead.
    pub fn step(&mut self, pc: u64, taken: Taken) -> Option<u64> {
        let wrong = self.mispredicted + self.unpaired;
        let instead = if taken.branch.pops { self.returned(pc) } else { None };
        if self.mispredicted + self.unpaired > wrong {
            self.wrong = Some(taken.next);
        }
        if taken.branch.pushes {
            self.stack.push(taken.next);
        }
        instead
    }

    /// A return goes to `pc`. Returns where speculation went instead.
    pub fn returned(&mut self, pc: u64) -> Option<u64> {
        let Some(predicted) = self.stack.pop() else {
            self.unpaired += 1;
            return None;
        };
        self.mispredicted += u64::from(predicted != pc);
        Some(predicted).filter(|predicted| *predicted != pc)
    }

    /// Calls that no return belonged to.
    pub fn unreturned(&self) -> u64 {
        self.stack.len() as u64
    }

    /// Returns that found the stack empty.
    pub fn unpaired(&self) -> u64 {
        self.unpaired
    }

    /// The address behind the last return that had no call, or went elsewhere.
    pub fn wrong(&self) -> Option<u64> {
        self.wrong
    }

    /// An engine that enforces stopped a return.
    pub fn stop(&mut self) {
        self.stopped += 1;
    }

    /// Returns that an engine which enforces stopped.
    pub fn stopped(&self) -> u64 {
        self.stopped
    }

    /// Returns that went elsewhere than behind their call.
    pub fn mispredicted(&self) -> u64 {
        self.mispredicted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESUME: u64 = 0x1005;

    fn call(next: u64) -> Taken {
        Taken { branch: Branch { pushes: true, ..Branch::default() }, next }
    }

    const RET: Taken = Taken { branch: Branch { pushes: false, pops: true, indirect: None }, next: 0 };
    const JUMP: Taken = Taken { branch: Branch { pushes: false, pops: false, indirect: None }, next: 0 };

    fn stack() -> ReturnStack {
        let mut stack = ReturnStack::default();
        stack.begin(Some(RESUME));
        stack
    }

    fn counts(stack: &ReturnStack) -> [u64; 3] {
        [stack.unreturned(), stack.unpaired(), stack.mispredicted()]
    }

    #[test]
    fn calls_and_returns_that_are_paired() {
        let mut stack = stack();
        assert_eq!(stack.step(0x5000, call(0x2010)), None);
        assert_eq!(stack.top(), Some(0x2010));
        assert_eq!(stack.step(0x6000, JUMP), None);
        assert_eq!(stack.step(0x2010, RET), None);
        assert_eq!(stack.step(RESUME, RET), None);
        assert_eq!(counts(&stack), [0, 0, 0]);
    }

    #[test]
    fn a_return_to_elsewhere_was_predicted_to_go_behind_its_call() {
        let mut stack = stack();
        assert_eq!(stack.step(0x3000, RET), Some(RESUME));
        assert_eq!((counts(&stack), stack.wrong()), ([0, 0, 1], Some(0)));
        // The next one has no call left.
        assert_eq!(stack.step(0x4000, RET), None);
        assert_eq!(counts(&stack), [0, 1, 1]);
    }

    #[test]
    fn a_jump_in_place_of_a_return_leaves_a_call_over() {
        let mut stack = stack();
        stack.step(0x5000, call(0x2010));
        stack.step(RESUME, JUMP);
        assert_eq!(counts(&stack), [2, 0, 0]);
    }

    /// RISC-V: JALR that links from one link register to the other pops, then pushes.
    #[test]
    fn a_branch_that_pops_and_pushes_pops_first() {
        let mut stack = stack();
        let both = Taken { branch: Branch { pushes: true, pops: true, indirect: None }, next: 0x2010 };
        assert_eq!(stack.step(0x7000, both), Some(RESUME));
        assert_eq!((stack.top(), stack.unreturned()), (Some(0x2010), 1));
    }

    #[test]
    fn a_new_call_forgets_the_last_one() {
        let mut stack = stack();
        stack.step(0x3000, RET);
        stack.step(0x3000, RET);
        stack.begin(None);
        assert_eq!(counts(&stack), [0, 0, 0]);
        assert_eq!(stack.top(), None);
    }
}
