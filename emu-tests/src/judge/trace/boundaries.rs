//! What is compared where control goes from one to another: T0 the patched instruction, T3 the resumption, T4 the traced
//! function's return, T6 the parent.

use codegen::ask::kind::Calls;
use codegen::ask::spec::Kind;
use codegen::contract::stated::Next;
use codegen::words::abi::{Loc, RegSet};
use codegen::words::recorder::Event;
use codegen::words::step::ExitPath;

use super::cells::{Mark, Region};
use super::compare::Kept;
use super::given::shown;
use super::state::{Activation, Around, Exiting, Hooked, Pending};
use super::{Arrival, BUDGET, ENDLESS, Here, Trace};
use crate::engine::cpu::{EXIT, SPARSE_BACK};
use crate::engine::registers::Snapshot;
use crate::engine::rng::Rng;
use crate::judge::cases::free;
use crate::report::Clause;
use crate::report::place::Place;
use crate::run::situation::Situation;

impl Trace {
    /// T0.
    pub(super) fn at_site(&mut self, here: &mut Here) {
        if self.state.sites_seen == ENDLESS {
            self.stopped(here.pc, Place::Endless);
            here.uc.stop();
            return;
        }
        self.happens(here.uc, Event::Entry);
        let sp = here.sp();
        if self.kind(self.case.attach).is_some_and(Kind::returned_to) {
            self.hook_return(here, sp);
            return;
        }
        let resume = here.pc.wrapping_add(here.site.ip_offset as u64);
        let initial = &self.case.initial.registers;
        let expect = match self.loaded.filter(|_| self.state.budget == BUDGET - 1) {
            // No instruction was executed yet.
            Some(flags) if self.state.untouched => Snapshot { flags, ..*initial },
            // Functions leave vector registers and control words alone.
            _ if self.state.untouched => here.registers.general_beside(here.uc, initial),
            _ => here.snapshot(),
        };
        self.begin_activation(expect, sp, resume, here.parent(sp), self.case.attach);
        self.note_wide(here);
        if self.kind(self.case.attach).is_some_and(Kind::is_function) {
            self.call_function(here);
        }
        if self.calls_stub() {
            self.call_stub(here, sp);
        }
    }

    /// At a site, in place of a callback: the function returns to the trampoline that the case is about.
    fn hook_return(&mut self, here: &mut Here, sp: u64) {
        self.state.sites_seen += 1;
        self.state.hooked.push(Hooked { parent: here.parent(sp), sp });
        self.return_to(here, sp, self.places.attached);
    }

    /// Is the case about what is called in the callback's place, without a trampoline that calls it?
    pub(super) fn calls_stub(&self) -> bool {
        self.kind(self.case.attach).is_some_and(Kind::is_callback)
    }

    /// At a site, in place of a trampoline: what is called in the callback's place.
    fn call_stub(&mut self, here: &mut Here, sp: u64) {
        let abi = here.registers.abi;
        let called = sp.wrapping_sub(abi.return_bytes());
        here.set(abi.sp, called);
        self.state.stack.write(called, abi.return_bytes() as usize);
        self.return_to(here, called, SPARSE_BACK);
        self.state.returns.begin(Some(SPARSE_BACK));
        if let (Some(link), Some(a)) = (abi.link, self.state.activations.last_mut()) {
            a.expect[link] = SPARSE_BACK;
        }
        here.uc.go(self.places.attached);
    }

    /// At a site, in place of the function's caller: what a site leaves in registers for a trampoline, no caller does.
    fn call_function(&mut self, here: &mut Here) {
        let left = [here.site.pc, here.site.parent_ip].into_iter().filter_map(Loc::reg);
        for reg in left.filter(|reg| Some(*reg) != here.registers.abi.link) {
            here.set(reg, self.case.canary(&mut Rng::new(self.case.seed, 0x500)));
        }
        here.uc.go(self.places.attached);
    }

    /// Another handler of the site redirects the function, before the trampoline that calls it begins.
    pub(super) fn redirect_site(&mut self, here: &mut Here) {
        let programs = self.kind(self.trampoline()).and_then(Kind::programs);
        if !programs.is_some_and(|programs| programs.orig_stack)
            || !self.case.situation.ip()
            || self.state.sites_seen != 1
        {
            return;
        }
        let to = self.places.livepatch.named;
        let Some(a) = self.state.activations.last_mut() else { return };
        a.resume = to;
        match here.site.pc {
            Loc::Reg(reg) => here.set(reg, to),
            Loc::Stack(offset) => {
                here.put_word(here.sp().wrapping_add(offset as u64), to);
            }
        }
    }

    /// What was called so has returned: everything must be as it was at the site. Returns where the function goes on, if that is
    /// known.
    pub(super) fn stub_returned(&mut self, here: &mut Here) -> Option<u64> {
        if !self.left_for_stand_in(here, self.calls_stub()) {
            return None;
        }
        self.check_returns(here.pc, ExitPath::Caller);
        let a = self.state.activations.last()?;
        let (resume, parent, sp) = (a.resume, a.parent, a.sp);
        self.check(self.at(Clause::P7, here.pc), Place::Sp, sp, here.sp());
        self.compare_registers(here);
        here.set(here.registers.abi.sp, sp);
        self.return_to(here, sp, parent);
        self.leave_site();
        Some(resume)
    }

    /// Let the function that is called with this SP return there.
    pub(super) fn return_to(&self, here: &mut Here, sp: u64, to: u64) {
        match here.registers.abi.link {
            Some(link) => here.set(link, to),
            None => {
                here.put_word(sp, to);
            }
        }
    }

    /// A trampoline went to what stands for other code. Returns whether that was to be.
    pub(super) fn left_for_stand_in(&mut self, here: &mut Here, meant: bool) -> bool {
        let (by, from) = (self.state.taken.take(), self.state.region);
        self.state.region = Region::Elsewhere;
        if !self.enabled || !meant || self.state.activations.is_empty() {
            return false;
        }
        self.arrived(here, &Arrival { by, from, to: Region::Elsewhere, marks: Mark::NONE });
        true
    }

    /// The function goes on.
    fn leave_site(&mut self) {
        self.state.activations.pop();
        self.state.go_on();
        self.checks.way = None;
    }

    /// T0 where no site is patched: the trampoline was called.
    pub(super) fn at_sled(&mut self, here: &Here, index: usize) {
        let Some(contract) = self.contracts.get(index).cloned() else { return };
        self.note_wide(here);
        let entry_sp = here.sp();
        match contract.stated.next {
            Next::Behind(bytes) => {
                let (sp, pc, parent) = match here.registers.abi.link {
                    Some(link) => (entry_sp, here.get(link), here.get(link).wrapping_add_signed(bytes)),
                    None => (entry_sp.wrapping_add(8), here.word(entry_sp), here.word(entry_sp.wrapping_add(8))),
                };
                self.begin_activation(here.snapshot(), sp, pc, parent, index);
                if let Some(a) = self.state.activations.last_mut() {
                    a.resume = pc.wrapping_add_signed(bytes);
                }
                self.state.stack.top = entry_sp;
            }
            Next::Result | Next::Copies(_) => {
                let pushed = contract.stated.pushed;
                let sp = entry_sp.wrapping_add(pushed);
                let parent = here.parent(sp);
                self.begin_activation(here.snapshot(), sp, EXIT, parent, index);
                // What the site left there is the trampoline's own.
                self.state.stack.write(entry_sp, pushed as usize);
            }
        }
    }

    /// A trampoline is on its way to the function.
    #[inline]
    fn begin_activation(&mut self, expect: Snapshot, sp: u64, resume: u64, parent: u64, index: usize) {
        let contract = self.contracts.get(index);
        let is_shadow = contract.is_some_and(|c| c.kind.is_shadow());
        let (kept, flags_kept) = contract.map_or((RegSet::EMPTY, true), |c| (c.kept, c.flags_kept));
        let state = &mut self.state;
        state.sites_seen += 1;
        state.sites_from.push(parent);
        state.stack.begin(sp);
        if let (Some(registers), true) = (self.registers, is_shadow) {
            // It has the return address to itself, which a call may have written there.
            state.stack.top = sp.wrapping_add(registers.abi.return_bytes());
            state.stack.write(sp, 8);
        }
        state.activations.push(Activation {
            expect,
            sp,
            pc: resume,
            parent,
            resume,
            returns_to: parent,
            kept,
            flags_kept,
            redirected: false,
            direct: 0,
            result: 0,
            dispatched: false,
            calls: 0,
            sessions: Vec::new(),
            around: Around::default(),
        });
        state.work(index);
        state.entered |= 1 << index;
        // The last call was that at the site, or, if the site jumped, that of the function.
        let first = if self.jumped_to() { parent } else { resume };
        self.state.returns.begin(Some(first));
    }

    /// The first instruction of a trampoline other than the one before.
    pub(super) fn enter(&mut self, here: &mut Here, index: usize, marks: Mark) {
        self.state.entered |= 1 << index;
        let idle = self.state.trampoline().is_none();
        let kind = self.kind(index);
        if idle && kind.is_some_and(Kind::is_called) {
            self.at_sled(here, index);
            return;
        }
        let called = self.state.pending.last().is_some_and(|p| p.index == index);
        if idle && !marks.has(Mark::ENTRY) && called {
            self.body_returned(here);
            return;
        }
        if idle && kind.is_some_and(Kind::returned_to) {
            self.hooked_return(here, index);
            return;
        }
        let situation = self.case.situation;
        let chosen = kind.is_some_and(|kind| kind.traits().chosen);
        let sent = if chosen { situation.sends() } else { situation.stub().is_some() && situation.stub() == kind };
        if !sent || !marks.has(Mark::ENTRY) || self.state.activations.is_empty() {
            self.fail(self.at(Clause::P9, here.pc), Place::Unsent, 0, here.pc);
            return;
        }
        if chosen {
            self.direct_entry(here);
            if let (Some(a), Some(c)) = (self.state.activations.last_mut(), self.contracts.get(index)) {
                let both = a.kept.minus(a.kept.minus(c.kept));
                (a.kept, a.flags_kept) = (both, false);
            }
            self.state.work(index);
            return;
        }
        // A stub called as the callback stays part of the trampoline that called it.
        self.check_unwind_of_stub(here, index);
    }

    /// T4 of a function whose return was hooked.
    fn hooked_return(&mut self, here: &Here, index: usize) {
        let (expect, sp) = (here.snapshot(), here.sp());
        self.note_wide(here);
        self.state.stack.begin(sp);
        // x86: the return slot that RET popped is below SP now, and the trampoline may use it.
        let hooked = self.state.hooked.pop();
        let (parent, hooked_sp) = hooked.map_or((0, 0), |h| (h.parent, h.sp));
        let popped = if here.registers.abi.link.is_none() { 8 } else { 0 };
        let (words, sessions, around) = (Vec::new(), Vec::new(), Around::default());
        let exiting = Exiting { expect, parent, pc: 0, resume: 0, sp, calls: 0, words, sessions, around };
        self.state.end(index, exiting);
        self.check(self.at(Clause::P9, here.pc), Place::SpOfHooked, hooked_sp.wrapping_add(popped), sp);
        self.state.returns.begin(None);
    }

    /// A trampoline handed over to a direct trampoline: the state must be that of the site.
    fn direct_entry(&mut self, here: &Here) {
        let lost = self.contract().map_or(RegSet::EMPTY, |c| c.direct_lost);
        let way = if self.case.situation.early() { ExitPath::EarlyDirect } else { ExitPath::Direct };
        self.checks.way = Some(way);
        self.check_returns(here.pc, way);
        let Some(a) = self.state.activations.last_mut() else { return };
        // It returns as if the site had called it.
        self.state.returns.begin(Some(a.pc));
        a.dispatched = true;
        a.kept = a.kept.minus(lost);
        let (resume, parent, sp) = (a.resume, a.returns_to, a.sp);
        let held = |loc: Loc| match loc {
            Loc::Reg(r) => here.get(r),
            Loc::Stack(offset) => here.word(here.sp().wrapping_add(offset as u64)),
        };
        let (site, p9) = (here.site, self.at(Clause::P9, here.pc));
        self.check(p9, Place::DirectTrampoline, self.places.direct.named, here.came_by);
        self.check(p9, Place::DirectPc, resume, held(site.pc));
        self.check(p9, Place::DirectParentIp, parent, held(site.parent_ip));
        self.check(p9.of(Clause::P7), Place::Sp, sp.wrapping_sub(site.pushed as u64), here.sp());
        self.compare_registers(here);
        // What was lost so far is told; from here on the direct trampoline answers for what it was given.
        let now = here.registers.general(here.uc);
        if let Some(a) = self.state.activations.last_mut() {
            (a.expect.gpr, a.expect.flags) = (now.gpr, now.flags);
        }
        self.checks.way = None;
    }

    /// What stands for a direct trampoline that sites call does what the smallest one does. Returns where the function goes on, if
    /// that is known.
    pub(super) fn direct_call(&mut self, here: &mut Here) -> Option<u64> {
        if !self.left_for_stand_in(here, self.case.situation.sends()) {
            return None;
        }
        self.direct_entry(here);
        let a = self.state.activations.last()?;
        let (resume, returns_to, sp, calls) = (a.resume, a.returns_to, a.sp, a.calls);
        let p10 = self.at(Clause::P10, here.pc);
        self.check(p10, Place::Calls, self.calls_due(), calls);
        here.set(here.registers.abi.sp, sp);
        self.return_to(here, sp, returns_to);
        self.leave_site();
        Some(resume)
    }

    /// A trampoline handed over to a direct trampoline that the site would jump to: the state must be that of the site, and what
    /// its call pushed is gone. Returns where the function goes on, if that is known.
    pub(super) fn direct_jump(&mut self, here: &mut Here) -> Option<u64> {
        if !self.left_for_stand_in(here, self.case.situation.direct_jump()) {
            return None;
        }
        let lost = self.contract().map_or(RegSet::EMPTY, |c| c.direct_lost);
        self.checks.way = Some(ExitPath::DirectJump);
        self.check_returns(here.pc, ExitPath::DirectJump);
        let a = self.state.activations.last_mut()?;
        a.kept = a.kept.minus(lost);
        let (resume, parent, sp, calls) = (a.pc, a.returns_to, a.sp, a.calls);
        let (sp_now, p9) = (here.sp(), self.at(Clause::P9, here.pc));
        self.check(p9, Place::DirectParentIp, parent, here.parent(sp_now));
        self.check(p9.of(Clause::P7), Place::Sp, sp, sp_now);
        self.check(p9.of(Clause::P10), Place::Calls, self.calls_due(), calls);
        self.compare_registers(here);
        self.leave_site();
        Some(resume)
    }

    /// T3.
    pub(super) fn resumed(&mut self, here: &mut Here) {
        if self.state.exiting().is_some() {
            self.parent_resumed(here);
            return;
        }
        if self.runs_body() {
            self.body_called(here);
            return;
        }
        self.checks.way = Some(ExitPath::Function);
        self.come_back();
        let Some(a) = self.state.activations.last() else { return };
        let (resume, returns_to, sp, redirected) = (a.resume, a.returns_to, a.sp, a.redirected);
        let (calls, dispatched, hooked) = (a.calls, a.dispatched, a.returns_to != a.parent);
        let sp_now = here.sp();
        let p9 = self.at(Clause::P9, here.pc);
        self.check(p9, Place::Pc, resume, here.came_by);
        self.check(p9.of(Clause::P7), Place::Sp, sp, sp_now);
        // A C function that has returned may have left anything in the link register. In the middle of one, it is as any other.
        let own = |kind: Kind| kind.is_boundary() || kind == Kind::Displaced;
        if !self.kind(self.trampoline()).is_some_and(own) {
            self.check(p9, Place::ReturnAddress, returns_to, here.parent(sp_now));
        }
        if redirected || hooked {
            self.check(p9.of(Clause::P11), Place::WayOn, resume, here.came_by);
        }
        self.compare_registers(here);
        self.check_given_back(here);
        self.check(p9.of(Clause::P10), Place::Calls, self.calls_due(), calls);
        self.check(p9.of(Clause::P10), Place::ProgramEnds, false, self.state.begun.is_some());
        self.check_returns(here.pc, ExitPath::Function);
        let situation = self.case.situation;
        if situation.sends() || situation.direct_jump() {
            self.check(p9.of(Clause::P11), Place::DirectEntered, true, dispatched);
        }
        self.leave_free(here);
        self.leave_site();
    }

    /// The function goes on. It reads every argument register up to its last; one that carries none for the function it stands for
    /// gets back what it had.
    fn leave_free(&self, here: &mut Here) {
        let Some(programs) = self.kind(self.trampoline()).and_then(Kind::programs) else { return };
        let Some(a) = self.state.activations.last() else { return };
        for reg in free(&programs, here.registers.abi).iter() {
            here.set(reg, a.expect[reg]);
        }
    }

    /// How many callbacks and functions must have been called between site and resumption.
    fn calls_due(&self) -> u64 {
        let (situation, t) = (self.case.situation, self.trampoline());
        let stated = |index: usize| self.contracts.get(index).map(|c| &c.stated);
        let null = situation == Situation::Null;
        let entry = self.kind(self.case.attach).is_some_and(Kind::calls_back);
        let called_back = entry && situation.stub().is_none() && !situation.early() && !null;
        let called_back = if called_back { stated(self.case.attach).map_or(0, |s| s.calls) } else { 0 };
        if let Some(contract) = self.contract().filter(|c| c.kind.programs().is_some()) {
            return called_back + self.due(&contract, false).count() as u64;
        }
        if self.contract().is_some_and(|c| matches!(c.kind.traits().calls, Calls::Kernel | Calls::Context)) {
            return 1;
        }
        if self.contract().is_some_and(|contract| contract.kind.recorder().is_some()) {
            // The routine that makes room is called where there is none.
            return 0;
        }
        // A contract need not say what a direct trampoline calls. Of several variables, one counts.
        let one = stated(t).is_some_and(|s| !s.through.is_empty());
        let named = self.callees.get(t).map_or(&[][..], |all| all).iter().filter(|callee| **callee != 0);
        let most = if t == self.case.attach && null { 0 } else { if one { 1 } else { usize::MAX } };
        called_back + named.take(most).count() as u64
    }

    /// T3 of a paired trampoline: it has called the traced function.
    fn body_called(&mut self, here: &mut Here) {
        let Some(contract) = self.contract() else { return };
        self.checks.way = Some(ExitPath::Function);
        self.check_records(here, &contract);
        let Some(a) = self.state.activations.last_mut() else { return };
        a.kept = a.kept.minus(contract.stated.own);
        let scs = contract.scs();
        let own = contract.stated.own.iter().chain(scs).map(|reg| (reg, a.expect[reg])).collect();
        // The function finds the trampoline's own entry on the shadow call stack.
        scs.into_iter().for_each(|reg| a.expect[reg] = a.expect[reg].wrapping_add(8));
        let abi = here.registers.abi;
        let (pc, resume, parent, sp, calls, around) = (a.pc, a.resume, a.parent, a.sp, a.calls, a.around);
        let fp = a.expect[abi.fp];
        let index = self.trampoline();
        let sp_now = here.sp();
        let back = here.parent(sp_now);
        let p9 = self.at(Clause::P9, here.pc);
        self.check(p9, Place::Pc, resume, here.came_by);
        let inside = self.cells.region(back) == Region::Trampoline(index as u8);
        self.check(p9, Place::ReturnsToTrampoline, true, inside);
        let paired = self.state.returns.top().unwrap_or(0);
        if !contract.stated.body_by_return {
            self.check(p9.of(Clause::P14), Place::BodyPaired, paired, back);
        }
        let align = contract.stated.body_align.unwrap_or(abi.sp_align);
        let moved = sp.wrapping_sub(sp_now) % u64::from(align);
        self.check(p9.of(Clause::P8), Place::SpModuloOfBody, 0, moved);
        if contract.kind.is_shadow() {
            self.check(p9.of(Clause::P7), Place::SpOfBody, sp, sp_now);
        }
        let handlers = u64::from(contract.kind.traits().calls != Calls::Nothing);
        let wanted = contract.kind.programs().map_or(handlers, |_| self.due(&contract, false).count() as u64);
        self.check(p9.of(Clause::P10), Place::CallsBefore, wanted, calls);
        self.compare_registers(here);
        self.check_around(here, &contract, around, 0);
        let (mut words, mut sessions) = (Vec::new(), Vec::new());
        if let (Some(programs), Some(a)) = (contract.kind.programs(), self.state.activations.last()) {
            words = shown(here, &programs, &a.expect, sp);
            sessions = a.sessions.clone();
            self.beside_site(|t, a| t.check_passed(here, programs.live, &a.expect, sp));
        }
        self.leave_free(here);
        let back_sp = sp_now.wrapping_add(abi.return_bytes());
        self.check_kept(here, &contract, parent, back_sp);
        self.open_slot(&contract);
        let state = &mut self.state;
        let (epoch, returns) = (state.stack.epoch, std::mem::take(&mut state.returns));
        let pending =
            Pending { index, parent, pc, resume, sp, fp, own, back, back_sp, epoch, returns, words, sessions, around };
        state.pending.push(pending);
        self.leave_site();
    }

    /// T4 of a paired trampoline.
    fn body_returned(&mut self, here: &mut Here) {
        let Some(pending) = self.state.pending.pop() else { return };
        let Pending { index, parent, pc, resume, sp, fp, own, back, back_sp, epoch, returns, words, sessions, around } =
            pending;
        let abi = here.registers.abi;
        let parent_sp = sp.wrapping_add(abi.return_bytes());
        let is_shadow = self.kind(index).is_some_and(Kind::is_shadow);
        self.state.work(index);
        self.state.returns = returns;
        self.state.stack.resume(epoch, if is_shadow { parent_sp } else { sp });
        self.predict(here);
        let p9 = self.at(Clause::P9, here.pc);
        self.check(p9, Place::BodyReturns, back, here.pc);
        self.check(p9.of(Clause::P7), Place::SpReturned, back_sp, here.sp());
        self.finish_body(here);
        self.note_wide(here);
        self.happens(here.uc, Event::Exit);
        let mut expect = here.snapshot();
        expect[abi.fp] = fp;
        own.into_iter().for_each(|(reg, value)| expect[reg] = value);
        let exiting = Exiting { expect, parent, pc, resume, sp: parent_sp, calls: 0, words, sessions, around };
        self.state.end(index, exiting);
    }

    /// T6 after a hooked return, or of a paired trampoline.
    pub(super) fn parent_resumed(&mut self, here: &Here) {
        let Some(contract) = self.contract() else { return };
        let (skips, is_function) = (self.case.situation.skips(), contract.kind.is_function());
        let way = if skips || is_function { ExitPath::Skipped } else { ExitPath::Parent };
        self.checks.way = Some(way);
        self.check_returns(here.pc, way);
        let Some(e) = self.state.take_exiting() else { return };
        let (abi, p9) = (here.registers.abi, self.at(Clause::P9, here.pc));
        self.check(p9, Place::ParentPc, e.parent, here.pc);
        let programs = contract.kind.programs();
        let after = if self.case.situation.retired() { 0 } else { self.due(&contract, true).count() as u64 };
        let handlers = u64::from(contract.kind.traits().calls != Calls::Nothing);
        let calls_programs = programs.is_some();
        let wanted = if calls_programs { after } else { handlers };
        self.check(p9.of(Clause::P10), Place::CallsAfter, wanted, e.calls);
        if calls_programs {
            self.check_around(here, &contract, e.around, 1);
        }
        self.check(p9.of(Clause::P7), Place::Sp, e.sp, here.sp());
        if let Some(link) = abi.link {
            self.check(p9, Place::ParentLink, e.parent, here.get(link));
        }
        let now = here.snapshot();
        let rets = RegSet::of(abi.exit_rets);
        let c_keeps = contract.c_keeps();
        let calls_body = self.calls_body() || is_function;
        // A BPF program gives back how many tail calls were made.
        let counted = programs.and_then(|p| p.tail_call).filter(|counted| counted.returned);
        // Nobody made a result where the program in place of a function was not called.
        let results = if is_function && !skips { RegSet::EMPTY } else { contract.results() };
        let results = results.union(counted.map_or(RegSet::EMPTY, |counted| RegSet::of(&[counted.reg])));
        let kept = contract.kept_on(way).union(if calls_body { results } else { RegSet::EMPTY });
        let all = c_keeps.union(contract.c_loses());
        // What a paired trampoline keeps besides, it keeps until the function begins.
        let told = if calls_body { all.intersection(kept) } else { all };
        self.compare_general(here, (&e.expect, &now), (told, kept), &[(rets, Clause::P3), (all, Clause::P5)]);
        for &(reg, _) in &self.case.new_results {
            let place = Place::Result { name: abi.name(reg) };
            self.checks.check(p9.of(Clause::P11), place, e.expect[reg], now[reg]);
        }
        let (carriers, live) = (here.registers.abi.vector_rets, programs.map(|p| p.result));
        let of_result = carriers.iter().fold(0, |bits, vector| bits | 1 << vector);
        let named = if calls_body { contract.vectors_kept & of_result } else { contract.vectors_kept };
        let kept = Kept { flags: contract.flags_kept, clause: Clause::P3, carriers, live, named };
        self.compare_state(here, &e.expect, &now, &kept);
        self.compare_wide(here);
        self.state.go_on();
        self.checks.way = None;
    }
}
