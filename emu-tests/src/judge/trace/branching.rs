//! P13, P14, P15: what restricted branches and return-address stacks make of the trampolines' branches.

use codegen::arch::harden::TypeWord;
use codegen::arch::machine::Branch;
use codegen::arch::pads::{IndirectBranch, Pad};
use codegen::contract::stated::Next;
use codegen::words::step::ExitPath;

use super::cells::Region;
use super::finding::At;
use super::{Arrival, Culprit, Here, Trace};
use crate::engine::flow::Taken;
use crate::judge::image::type_of;
use crate::report::Clause;
use crate::report::place::Place;

/// Bytes of the longest pad or trap of any architecture.
const LONGEST: usize = 8;

impl Trace {
    /// Control came here, by a branch of a trampoline or out of a called function.
    pub(super) fn arrived(&mut self, here: &mut Here, arrival: &Arrival) {
        let &Arrival { by, from, to, .. } = arrival;
        self.went_on();
        if self.state.trampoline().is_none() {
            return;
        }
        if from.trampoline().is_some() && to.trampoline().is_none() {
            self.leave(here);
        }
        let instead = match by {
            None if from == Region::Elsewhere && to.trampoline().is_some() => self.state.returns.returned(here.pc),
            None => None,
            Some(taken) => {
                if let Some(kind) = taken.branch.indirect.filter(|_| to != Region::Elsewhere)
                    && self.contract().is_some_and(|c| c.landing_pad)
                {
                    let by = Culprit::Before(taken.next);
                    self.check_pad(here, self.at(Clause::P13, here.pc), (Place::PadAtTarget, by), kind);
                }
                // Between C functions calls are not followed, nor are returns.
                let unknown = self.cells.get(here.pc).is_some_and(|cell| cell.branch.is_none());
                let in_c = from == Region::Elsewhere && to == Region::Elsewhere && unknown;
                let branch = Branch { pops: taken.branch.pops && !in_c, ..taken.branch };
                self.state.returns.step(here.pc, Taken { branch, ..taken })
            }
        };
        self.check_speculation(here, instead);
    }

    /// The traced function returned to the trampoline.
    pub(super) fn predict(&mut self, here: &Here) {
        let instead = self.state.returns.returned(here.pc);
        self.check_speculation(here, instead);
    }

    /// Where speculation goes and nothing else, there is a trap.
    fn check_speculation(&mut self, here: &Here, instead: Option<u64>) {
        let machine = here.registers.machine;
        let traps = [machine.trap, machine.short_trap].into_iter().filter(|trap| !trap.is_empty());
        let inside = instead.filter(|at| self.cells.region(*at).trampoline().is_some());
        if let Some(pc) = inside.filter(|_| !machine.trap.is_empty()) {
            let stops = traps.into_iter().any(|trap| begins_with(here, pc, trap));
            self.check(self.at(Clause::P15, pc), Place::SpeculationTrap, true, stops);
        }
    }

    /// Something may branch indirectly to the entry of trampoline `index`.
    pub(super) fn check_entry(&mut self, here: &Here, index: usize) {
        let Some(contract) = self.contracts.get(index).cloned() else { return };
        let at = At { trampoline: index, ..self.at(Clause::P13, here.pc) };
        if contract.entry_pad {
            self.check_pad(here, at, (Place::PadAtEntry, Culprit::Unknown), IndirectBranch::Call);
        }
        if let Some(before) = contract.type_before {
            let mut found = [0; TypeWord::BYTES];
            // Where nothing can be read, nothing is a type: none is 0.
            here.read(here.pc.wrapping_sub(before.into()), &mut found);
            let (wanted, found) = (type_of(&contract.name), u32::from_le_bytes(found));
            self.checks.check(at, Place::TypeAtEntry, u64::from(wanted), u64::from(found));
        }
    }

    fn check_pad(&mut self, here: &Here, at: At, (place, by): (Place, Culprit), kind: IndirectBranch) {
        let fits = |pad: &Pad| pad.lets.contains(&kind) && begins_with(here, here.pc, pad.bytes);
        let fits = here.registers.machine.pads.iter().any(fits);
        if place == Place::PadAtTarget {
            self.came_to_pad(at, fits);
        }
        self.checks.check_by(at, place, by, true, fits);
    }

    /// A way out is taken. On that to a direct trampoline, the return-address stack is as the site left it.
    pub(super) fn check_returns(&mut self, pc: u64, way: ExitPath) {
        let p14 = self.at(Clause::P14, pc);
        let Some(contract) = self.contract() else { return };
        if contract.stated.contexts.is_some() {
            // Each context's returns are of its own calls.
            return;
        }
        let moved = self.state.activations.last().is_some_and(|a| a.redirected);
        let returns = &self.state.returns;
        let [left, alone, astray] = [returns.unreturned(), returns.unpaired(), returns.mispredicted()];
        let (calls, predicted_wrong) = match way {
            // The call of the site is the direct trampoline's.
            ExitPath::Direct => (1, u64::from(contract.direct_mispredicted)),
            // A return to where the site did not call from, or a jump, which leaves that call over.
            ExitPath::DirectJump => (0, u64::from(contract.facts.abi.link.is_none())),
            ExitPath::EarlyDirect => (1, 0),
            // That of the function is its own return's.
            _ if matches!(contract.stated.next, Next::Result | Next::Copies(_)) => (1, 0),
            _ if contract.kind.is_function() => (0, 0),
            // And so where the site jumped and the function is not called from here.
            _ if self.jumped_to() && !self.runs_body() => (1, 0),
            // The call of the site belongs to a return that goes elsewhere.
            _ => (0, u64::from(contract.mispredicted) + u64::from(moved)),
        };
        let away = self.places.livepatch.at;
        let elsewhere = self.state.exiting().is_some_and(|e| e.resume != e.pc && away != e.pc);
        // Of the function's return and of ours, neither has a call: that of the site is spent.
        let (unpaired, predicted_wrong) = match contract.stated.body_by_return && way == ExitPath::Parent {
            // That of the site foretells where its return leads, if nobody redirects the function.
            true if elsewhere => (contract.unpaired + 2, predicted_wrong),
            true => (contract.unpaired + 2, predicted_wrong.saturating_sub(1)),
            false => (contract.unpaired, predicted_wrong),
        };
        let call = returns.top().map_or(Culprit::Unknown, Culprit::Before);
        let wrong = returns.wrong().map_or(Culprit::Unknown, Culprit::Before);
        self.checks.check_by(p14, Place::CallsWithoutReturn, call, calls, left);
        self.checks.check_by(p14, Place::ReturnsWithoutCall, wrong, u64::from(unpaired), alone);
        // A return that was redirected has lost the call that it belongs to, whatever the trampoline does.
        let redirected = self.state.exiting().is_some() && !self.calls_body();
        if !redirected {
            self.checks.check_by(p14, Place::Mispredicted, wrong, predicted_wrong, astray);
        }
        let stated = u64::from(unpaired) + if redirected { astray } else { predicted_wrong };
        self.check_stopped(p14.of(Clause::P26), wrong, stated);
    }
}

fn begins_with(here: &Here, at: u64, bytes: &[u8]) -> bool {
    let mut found = [0; LONGEST];
    let found = &mut found[..bytes.len().min(LONGEST)];
    here.read(at, found) && found == bytes
}
