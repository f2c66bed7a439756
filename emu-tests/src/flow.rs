//! P13, P14, P15: a model of what restricted branches and return-address stacks make of the trampolines' branches. The
//! engine enforces none of it.

use codegen::machine::{Branch, Lands};
use codegen::spec::Kind;

use crate::cpu::Uc;
use crate::report::Clause;
use crate::trace::{ELSEWHERE, TRAMPOLINE, Trace};

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
    /// Returns that found the stack empty.
    unpaired: u64,
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
        (self.mispredicted, self.unpaired) = (0, 0);
    }
}

impl Trace {
    /// Control came to `pc`, by a branch of a trampoline or out of a called function.
    pub(crate) fn arrived(&mut self, uc: &mut Uc, pc: u64, by: Option<Taken>, (came_from, region): (u8, u8)) {
        if self.current.is_none() {
            return;
        }
        let Some(Taken { branch, next }) = by else {
            if came_from == ELSEWHERE && region >= TRAMPOLINE {
                self.predict(uc, pc);
            }
            return;
        };
        if let Some(lands) = branch.lands.filter(|_| region != ELSEWHERE) {
            let restricted = self.contracts.get(self.trampoline()).is_some_and(|c| c.landing_pad);
            if restricted {
                self.check_pad(uc, self.trampoline(), "landing pad where an indirect branch goes", lands, pc);
            }
        }
        // Between C functions calls are not followed, nor are returns.
        let cell = self.cells.get(pc);
        let in_c = came_from == ELSEWHERE && region == ELSEWHERE && cell.is_some_and(|cell| cell.branch.is_none());
        if branch.pops && !in_c {
            self.predict(uc, pc);
        }
        if branch.pushes {
            self.returns.stack.push(next);
        }
    }

    /// A return goes to `pc`. Speculation went to what the stack had.
    pub(crate) fn predict(&mut self, uc: &mut Uc, pc: u64) {
        let Some(predicted) = self.returns.stack.pop() else {
            self.returns.unpaired += 1;
            return;
        };
        if predicted == pc {
            return;
        }
        self.returns.mispredicted += 1;
        let trap = self.registers.map_or(&[][..], |r| r.machine.trap);
        if self.region(predicted) >= TRAMPOLINE && !trap.is_empty() {
            let found = self.begins_with(uc, predicted, trap);
            self.check(
                Clause::P15,
                "trap where a return is predicted to go and never goes",
                1,
                found.into(),
                predicted,
            );
        }
    }

    /// Something may branch indirectly to the entry of trampoline `index`.
    pub(crate) fn check_entry(&mut self, uc: &mut Uc, pc: u64, index: usize) {
        if self.contracts.get(index).is_some_and(|c| c.landing_pad && c.kind != Kind::Return) {
            self.check_pad(uc, index, "landing pad at the entry", Lands::Call, pc);
        }
    }

    fn check_pad(&mut self, uc: &Uc, trampoline: usize, what: &'static str, lands: Lands, pc: u64) {
        let pads = self.registers.map_or(&[][..], |r| r.machine.pads);
        let found = pads.iter().any(|pad| pad.lets.contains(&lands) && self.begins_with(uc, pc, pad.bytes));
        self.check_of(trampoline, Clause::P13, what, 1, found.into(), pc);
    }

    fn begins_with(&self, uc: &Uc, at: u64, bytes: &[u8]) -> bool {
        let mut found = vec![0; bytes.len()];
        uc.mem_read(at, &mut found).is_ok() && found == bytes
    }

    /// The traced function goes on, or its parent does.
    pub(crate) fn check_returns(&mut self, pc: u64) {
        self.check(Clause::P14, "calls without a return", 0, self.returns.stack.len() as u64, pc);
        let unpaired = self.contracts.get(self.trampoline()).map_or(0, |c| c.unpaired);
        self.check(Clause::P14, "returns without a call", unpaired.into(), self.returns.unpaired, pc);
        // A return that was redirected has lost the call that it belongs to, whatever the trampoline does.
        let redirected = self.exiting.is_some() && !self.calls_body();
        if !redirected {
            let expected = self.contracts.get(self.trampoline()).map_or(0, |c| c.mispredicted);
            let found = self.returns.mispredicted;
            self.check(Clause::P14, "returns that do not go behind their call", expected.into(), found, pc);
        }
    }
}
