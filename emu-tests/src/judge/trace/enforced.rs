//! P26: what an engine that enforces P13, P14 and P28 stops, against what they say.

use codegen::arch::bare::Guard;

use super::finding::At;
use super::state::Stop;
use super::{Culprit, Trace};
use crate::report::Clause;
use crate::report::place::Place;

impl Trace {
    fn enforces(&self, guard: Guard) -> bool {
        self.enforced.contains(&guard)
    }

    /// An indirect branch came to this place, where there is a pad that fits, or none.
    pub(super) fn came_to_pad(&mut self, at: At, fits: bool) {
        if !self.enforces(Guard::LandingPad) {
            return;
        }
        match self.state.pad.take() {
            Some(Stop::At(pc)) if pc == at.pc => self.check_stop(at, fits, true),
            _ => self.state.pad = Some(Stop::Due(at, fits)),
        }
    }

    /// The engine stops no branch to a pad that fits; and each other one, which is a fault all the same.
    fn check_stop(&mut self, at: At, fits: bool, stopped: bool) {
        let expected = !fits && !stopped;
        self.checks.check(at.of(Clause::P26), Place::StoppedAtTarget, expected, stopped);
    }

    /// Nothing stopped the CPU where an indirect branch went.
    pub(super) fn went_on(&mut self) {
        if let Some(Stop::Due(at, fits)) = self.state.pad.take_if(|pad| matches!(pad, Stop::Due(..))) {
            self.check_stop(at, fits, false);
        }
    }

    /// An engine that enforces stopped the CPU at this instruction. Does the run go on as if it had not?
    pub(super) fn guarded(&mut self, guard: Guard, pc: u64) -> bool {
        match guard {
            // Some stop before the instruction is looked at, some after that.
            Guard::LandingPad => match self.state.pad.take() {
                Some(Stop::Due(at, fits)) if at.pc == pc => self.check_stop(at, fits, true),
                _ => self.state.pad = Some(Stop::At(pc)),
            },
            // Its own return, or one of a thunk that it jumps to, which is followed as its own.
            Guard::ShadowStack => {
                let follows = self.cells.get(pc).is_some_and(|cell| cell.branch.is_some());
                if follows || self.cells.region(pc).trampoline().is_some() {
                    self.state.returns.stop();
                }
            }
            Guard::Signed | Guard::Checked => {
                if let Some(trampoline) = self.cells.region(pc).trampoline() {
                    let at = At { clause: Clause::P26, trampoline, pc };
                    self.checks.check(at, Place::StoppedAtCheck, false, true);
                }
                return false;
            }
        }
        true
    }

    /// A run has ended, with so many bytes more on the CPU's shadow stack than when it began.
    pub(in crate::judge) fn check_pushed(&mut self, entry: u64, bytes: u64) {
        let at = At { clause: Clause::P26, trampoline: self.case.attach, pc: entry };
        self.checks.check(at, Place::Pushed, 0, bytes);
    }

    /// The engine stopped so many returns: those of which the contract says that they have no call, or lead elsewhere.
    pub(super) fn check_stopped(&mut self, at: At, wrong: Culprit, stated: u64) {
        if !self.enforces(Guard::ShadowStack) {
            return;
        }
        let stopped = self.state.returns.stopped();
        // A return that was stopped leaves the stack with one entry too many, or too few. In a recursion, the next ones may find
        // the address of their own there.
        let recurses = self.state.sites_from.iter().filter(|parent| **parent == at.pc).count() > 1;
        let stated = if recurses { stopped.min(stated) } else { stated };
        self.checks.check_by(at, Place::StoppedReturns, wrong, stated, stopped);
    }
}
