//! What is compared where control goes from one to another: T0 the patched instruction, T3 the resumption, T4 the traced
//! function's return, T6 the parent.

use std::sync::Arc;

use codegen::abi::{Loc, RegSet};
use codegen::spec::{Attach, Kind};

use super::state::{Exiting, Pending};
use super::world::shown;
use super::{ELSEWHERE, ENTRY, Joined, TRAMPOLINE, Trace};
use crate::cpu::{EXIT, Registers, Uc, word};
use crate::report::Clause;

impl Trace {
    pub(super) fn parent_here(&self, uc: &Uc, registers: Registers, sp: u64) -> u64 {
        match registers.abi.link {
            Some(link) => registers.get(uc, link),
            None => word(uc, sp),
        }
    }

    /// T0.
    pub(super) fn at_site(&mut self, uc: &mut Uc, pc: u64) {
        let (Some(registers), Some(site)) = (self.registers, self.site) else { return };
        let expect = registers.snapshot(uc);
        let sp = registers.sp(uc);
        let parent = self.parent_here(uc, registers, sp);
        let resume = pc.wrapping_add(site.ip_offset as u64);
        self.begin_activation(expect, sp, resume, parent, self.case.attach);
    }

    /// T0 where no site is patched: the trampoline was called.
    pub(super) fn at_sled(&mut self, uc: &Uc, registers: Registers, index: usize) {
        let entry_sp = registers.sp(uc);
        let (sp, resume, parent) = match registers.abi.link {
            Some(link) => (entry_sp, registers.get(uc, link), registers.get(uc, link)),
            None => (entry_sp.wrapping_add(8), word(uc, entry_sp), word(uc, entry_sp.wrapping_add(8))),
        };
        self.begin_activation(registers.snapshot(uc), sp, resume, parent, index);
        self.frame_top = entry_sp;
    }

    /// The first instruction of a trampoline other than the one before.
    pub(super) fn enter(&mut self, uc: &mut Uc, pc: u64, index: usize, mark: u8) {
        let Some(registers) = self.registers else { return };
        self.entered |= 1 << index;
        if self.current.is_none() && self.contracts.get(index).is_some_and(|c| c.sled) {
            self.at_sled(uc, registers, index);
            return;
        }
        if self.current.is_none() && mark & ENTRY == 0 && self.pending.last().is_some_and(|p| p.index == index) {
            self.body_returned(uc, pc, registers);
            return;
        }
        let kind = self.kind(index);
        if kind == Some(Kind::Return) && self.current.is_none() {
            self.current = Some(index);
            let expect = registers.snapshot(uc);
            let sp = registers.sp(uc);
            self.next_epoch();
            self.frame_top = sp;
            // x86: the return slot that RET popped is below SP now, and the trampoline may use it.
            let hooked = self.hooked.pop();
            let (parent, hooked_sp) = hooked.map_or((0, 0), |h| (h.parent, h.sp));
            let popped = if registers.abi.link.is_none() { 8 } else { 0 };
            self.check(Clause::P9, "sp when the hooked return arrived", hooked_sp.wrapping_add(popped), sp, pc);
            self.exiting = Some(Exiting { expect, parent, resume: 0, sp, calls: 0, words: Vec::new() });
            self.returns.begin(None);
            return;
        }
        let situation = self.case.situation;
        let sent = match kind {
            Some(Kind::Stub | Kind::StubGraph) => situation.stub == kind,
            Some(Kind::Direct(_) | Kind::StubDirect) => situation.direct || situation.early,
            _ => false,
        };
        if !sent || mark & ENTRY == 0 || self.activations.is_empty() {
            self.fail(Clause::P9, "a trampoline that nothing sent it to", None, (0, pc), pc);
            return;
        }
        if matches!(kind, Some(Kind::Direct(_) | Kind::StubDirect)) {
            self.direct_entry(uc, pc);
            if let (Some(a), Some(c)) = (self.activations.last_mut(), self.contracts.get(index)) {
                let both = a.kept.minus(a.kept.minus(c.kept));
                (a.kept, a.flags_kept) = (both, false);
            }
            self.current = Some(index);
        }
        // A stub called as the callback stays part of the trampoline that called it.
    }

    /// A trampoline handed over to a direct trampoline: the state must be that of the site.
    pub(super) fn direct_entry(&mut self, uc: &mut Uc, pc: u64) {
        let (Some(registers), Some(site)) = (self.registers, self.site) else { return };
        let lost = self.contracts.get(self.trampoline()).map_or(RegSet::EMPTY, |c| c.direct_lost);
        let Some(a) = self.activations.last_mut() else { return };
        a.dispatched = true;
        a.kept = a.kept.minus(lost);
        let (resume, parent, sp) = (a.resume, a.returns_to, a.sp);
        let at = |uc: &Uc, loc: Loc| match loc {
            Loc::Reg(r) => registers.get(uc, r),
            Loc::Stack(offset) => word(uc, registers.sp(uc).wrapping_add(offset as u64)),
        };
        self.check(Clause::P9, "direct trampoline", self.places.direct, pc, pc);
        self.check(Clause::P9, "pc for the direct trampoline", resume, at(uc, site.pc), pc);
        self.check(Clause::P9, "parent_ip for the direct trampoline", parent, at(uc, site.parent_ip), pc);
        self.check(Clause::P7, "sp", sp.wrapping_sub(site.pushed as u64), registers.sp(uc), pc);
        self.compare_registers(uc, pc, registers);
        // What was lost so far is told; from here on the direct trampoline answers for what it was given.
        let now = registers.general(uc);
        if let Some(a) = self.activations.last_mut() {
            (a.expect.gpr, a.expect.flags) = (now.gpr, now.flags);
        }
    }

    /// T3.
    pub(super) fn resumed(&mut self, uc: &mut Uc, pc: u64) {
        if self.exiting.is_some() {
            self.parent_resumed(uc, pc);
            return;
        }
        let Some(registers) = self.registers else { return };
        if self.calls_body() {
            self.body_called(uc, pc, registers);
            return;
        }
        let Some(a) = self.activations.last() else { return };
        let (resume, returns_to, sp, redirected) = (a.resume, a.returns_to, a.sp, a.redirected);
        let (calls, dispatched) = (a.calls, a.dispatched);
        self.check(Clause::P9, "pc", resume, pc, pc);
        let sp_now = registers.sp(uc);
        self.check(Clause::P7, "sp", sp, sp_now, pc);
        let parent = self.parent_here(uc, registers, sp_now);
        self.check(Clause::P9, "return address", returns_to, parent, pc);
        if redirected || returns_to != self.activations.last().map_or(0, |a| a.parent) {
            self.check(Clause::P11, "way on", resume, pc, pc);
        }
        self.compare_registers(uc, pc, registers);
        let (situation, kind) = (self.case.situation, |i: usize| self.kind(i));
        let called_back =
            matches!(kind(self.case.attach), Some(Kind::Entry(_))) && situation.stub.is_none() && !situation.early;
        let t = self.trampoline();
        // A contract need not say what a direct trampoline calls.
        let named = self.callees.get(t).map_or(&[][..], |all| all).iter().filter(|callee| **callee != 0);
        let named = if matches!(kind(t), Some(Kind::Direct(_) | Kind::Programs(_))) { named.count() as u64 } else { 0 };
        let called = u64::from(called_back) + named;
        self.check(Clause::P10, "calls of the callback", called, calls, pc);
        if !dispatched && !redirected {
            self.check_returns(pc);
        }
        if situation.direct || situation.early {
            self.check(Clause::P11, "direct trampoline entered", 1, u64::from(dispatched), pc);
        }
        self.activations.pop();
        self.current = None;
        self.frame_top = 0;
    }

    /// T3 of a paired trampoline: it has called the traced function.
    pub(super) fn body_called(&mut self, uc: &mut Uc, pc: u64, registers: Registers) {
        let Some(contract) = self.contracts.get(self.trampoline()).cloned() else { return };
        self.check_records(uc, registers, &contract, pc);
        let Some(a) = self.activations.last() else { return };
        let (resume, parent, sp, calls) = (a.resume, a.parent, a.sp, a.calls);
        let fp = a.expect.gpr[registers.abi.fp.0 as usize];
        let sp_now = registers.sp(uc);
        let back = self.parent_here(uc, registers, sp_now);
        let index = self.trampoline();
        self.check(Clause::P9, "pc", resume, pc, pc);
        let inside = usize::from(self.region(back)) == usize::from(TRAMPOLINE) + index;
        self.check(Clause::P9, "the function returns to the trampoline", 1, inside.into(), pc);
        self.check(
            Clause::P14,
            "return address of the function, and its call",
            self.returns.top().unwrap_or(0),
            back,
            pc,
        );
        let moved = sp.wrapping_sub(sp_now) % u64::from(registers.abi.sp_align);
        self.check(Clause::P8, "sp of the function against its caller's, modulo the psABI's alignment", 0, moved, pc);
        if contract.kind.is_shadow() {
            self.check(Clause::P7, "sp of the function, where its stack arguments are", sp, sp_now, pc);
        }
        let before = contract.programs.iter().filter(|p| p.attach != Attach::Fexit).count() as u64;
        let wanted = if let Kind::Programs(_) = contract.kind { before } else { 1 };
        self.check(Clause::P10, "calls before the function", wanted, calls, pc);
        self.compare_registers(uc, pc, registers);
        let mut words = Vec::new();
        if let (Kind::Programs(programs), Some(a)) = (contract.kind, self.activations.last()) {
            words = shown(uc, registers, &programs, &a.expect, sp);
            let expect = a.expect.clone();
            self.check_passed(uc, registers, programs.live, &expect, sp, pc);
        }
        let back_sp = sp_now.wrapping_add(registers.abi.return_bytes());
        let returns = std::mem::take(&mut self.returns);
        self.pending.push(Pending { index, parent, resume, sp, fp, back, back_sp, epoch: self.epoch, returns, words });
        self.activations.pop();
        self.current = None;
        self.frame_top = 0;
    }

    /// T4 of a paired trampoline.
    pub(super) fn body_returned(&mut self, uc: &mut Uc, pc: u64, registers: Registers) {
        let Some(pending) = self.pending.pop() else { return };
        self.current = Some(pending.index);
        (self.epoch, self.frame_top, self.returns) = (pending.epoch, pending.sp, pending.returns);
        if self.kind(pending.index).is_some_and(Kind::is_shadow) {
            self.frame_top = pending.sp.wrapping_add(registers.abi.return_bytes());
        }
        self.predict(uc, pc);
        self.check(Clause::P9, "where the function returns to", pending.back, pc, pc);
        self.check(Clause::P7, "sp when the function returns", pending.back_sp, registers.sp(uc), pc);
        self.finish_body(uc, registers);
        let mut expect = registers.snapshot(uc);
        expect.gpr[registers.abi.fp.0 as usize] = pending.fp;
        let sp = pending.sp.wrapping_add(registers.abi.return_bytes());
        let Pending { parent, resume, words, .. } = pending;
        self.exiting = Some(Exiting { expect, parent, resume, sp, calls: 0, words });
    }

    /// Flags and SP at the first instruction of a called C function.
    pub(super) fn check_call(&mut self, uc: &Uc, registers: Registers, pc: u64) {
        if registers.machine.clear_flags != 0 {
            self.check(Clause::P6, "flags that are clear where C code begins", 0, registers.unclear_flags(uc), pc);
        }
        let sp = registers.sp(uc);
        let Some(contract) = self.contracts.get(self.trampoline()) else { return };
        let align = u64::from(contract.stack_align);
        let at_call = if registers.abi.link.is_none() { sp.wrapping_add(8) } else { sp };
        self.check(Clause::P8, "sp modulo the promised alignment, at the call", 0, at_call % align, pc);
    }

    /// T6 after a hooked return.
    pub(super) fn parent_resumed(&mut self, uc: &mut Uc, pc: u64) {
        let Some(registers) = self.registers else { return };
        self.check_returns(pc);
        let Some(e) = self.exiting.take() else { return };
        self.check(Clause::P9, "pc in the parent", e.parent, pc, pc);
        let contract = self.contracts.get(self.trampoline());
        let retired = self.case.situation.retired;
        let after = contract
            .filter(|_| !retired)
            .map_or(0, |c| c.programs.iter().filter(|p| p.attach == Attach::Fexit).count() as u64);
        let wanted = if let Some(Kind::Programs(_)) = contract.map(|c| c.kind) { after } else { 1 };
        self.check(Clause::P10, "calls after the function", wanted, e.calls, pc);
        self.check(Clause::P7, "sp", e.sp, registers.sp(uc), pc);
        if let Some(link) = registers.abi.link {
            self.check(Clause::P9, "link register in the parent", e.parent, registers.get(uc, link), pc);
        }
        let now = registers.snapshot(uc);
        let t = self.trampoline();
        let rets = RegSet::of(registers.abi.exit_rets);
        let promised = self.contracts.get(t).map(|c| (c.kept, c.flags_kept));
        let (mut kept, flags_kept) = promised.unwrap_or((RegSet::EMPTY, false));
        let kind = self.kind(t);
        let programs = if let Some(Kind::Programs(programs)) = kind { Some(programs) } else { None };
        if self.calls_body() {
            let results = programs.map_or(RegSet::of(registers.abi.rets), |p| p.result.regs);
            kept = registers.abi.callee_saved.union(registers.abi.platform).union(results);
        }
        let all = registers.abi.callee_saved.union(registers.abi.platform).union(registers.abi.caller_saved);
        for reg in all.iter() {
            let (want, have) = (e.expect.gpr[reg.0 as usize], now.gpr[reg.0 as usize]);
            // What a paired trampoline keeps besides, it keeps until the function begins.
            let told = kept.contains(reg) || !self.calls_body();
            let fates = self.fates.get_mut(t).filter(|_| told);
            if let Some(fates) = fates {
                let fate = &mut fates[reg.0 as usize];
                if want == have { fate.0 += 1 } else { fate.1 += 1 }
            }
            if !kept.contains(reg) {
                continue;
            }
            let clause = if rets.contains(reg) { Clause::P3 } else { Clause::P5 };
            self.checks[t][clause as usize] += 1;
            if want != have {
                self.fail(clause, registers.abi.name(reg), Some(reg), (want, have), pc);
            }
        }
        let case = Arc::clone(&self.case);
        for &(reg, _) in &case.new_results {
            let (want, have) = (e.expect.gpr[reg.0 as usize], now.gpr[reg.0 as usize]);
            self.check(Clause::P11, Joined("result in ", registers.abi.name(reg), ""), want, have, pc);
        }
        let (carriers, results) = (registers.abi.vector_rets, programs.map(|p| p.result));
        self.compare_state(&e.expect, &now, flags_kept, Clause::P3, carriers, results, pc, registers);
        self.current = None;
        self.frame_top = 0;
    }

    /// The run reached the exit page.
    pub fn finished(&mut self, uc: &mut Uc) {
        if self.enabled && self.current.is_some() {
            let by = self.taken.take();
            self.arrived(uc, EXIT, by, (self.current_region, ELSEWHERE));
            self.resumed(uc, EXIT);
        }
        let (activations, hooked) = (self.activations.len() as u64, (self.hooked.len() + self.pending.len()) as u64);
        if self.enabled {
            self.check(Clause::P9, "sites entered and not left", 0, activations, EXIT);
            self.check(Clause::P9, "returns of which no trampoline was told", 0, hooked, EXIT);
        }
    }
}
