//! What the functions do that a trampoline calls: they decide what they may, and overwrite the rest.

use std::sync::Arc;

use codegen::ask::frame::{Content, Stores};
use codegen::ask::kind::Calls;
use codegen::ask::live::Word;
use codegen::ask::spec::{Attach, Kind, Programs};
use codegen::contract::Contract;
use codegen::contract::stated::{Next, ProgramResult};
use codegen::words::abi::{Abi, Reg, RegSet};
use codegen::words::step::Value;

use super::given::{Known, ProgramCall, frame, shown};
use super::state::{Activation, Exiting, Hooked, Moment};
use super::{Here, Mark, Trace};
use crate::engine::cpu::{EXIT, SPARSE_JUMP};
use crate::engine::registers::Snapshot;
use crate::engine::rng::Rng;
use crate::report::Clause;
use crate::report::place::Place;
use crate::run::case::Handler;
use crate::run::scs;
use crate::run::situation::Situation;
use crate::run::thread::Words;

/// Bytes below SP that a callback overwrites.
const SCRIBBLE: u64 = 512;

/// Where a store by a callback takes effect, in the frame at `fregs`.
fn cell(contract: &Contract, fregs: u64, content: Content) -> Option<u64> {
    let found = contract.frame.fields.iter().find(|f| f.content == content && f.stores == Stores::TakeEffect);
    found.map(|f| fregs.wrapping_add(f.offset as u64))
}

impl Trace {
    /// What callees must do without which nothing would go on, where nothing is checked.
    pub(super) fn help(&mut self, here: &mut Here, marks: Mark) {
        if let Some(contract) = self.contract().filter(|c| c.kind.recorder().is_some()) {
            if marks.has(Mark::DIRECT_FUNC) {
                self.refill(here, &contract);
            }
        } else if marks.has(Mark::CALLBACK) {
            let parent_ip = self.convention.and_then(|c| c.callback.position(Value::ParentIp));
            self.state.parents.push(parent_ip.map_or(0, |n| here.arg(n)));
        } else if marks.has(Mark::EXIT_HANDLER)
            && let Some(parent) = self.state.parents.pop()
        {
            here.set(here.registers.abi.rets[0], parent);
        }
    }

    /// T1.
    pub(super) fn callback(&mut self, here: &mut Here) {
        self.check_call(here);
        let Some(contract) = self.contract() else { return };
        self.check_records(here, &contract);
        let Some(a) = self.state.activations.last_mut() else { return };
        a.calls += 1;
        // Where several are called, the first decides.
        let first = a.calls == 1;
        self.check_callback(here, &contract);
        self.state.callbacks += 1;
        if first {
            self.decide(here, &contract);
        }
        self.poison(here, 1 + u64::from(self.state.callbacks));
    }

    /// What the callback decides. Rewriting and redirecting are for the outermost function only, so that a plain run
    /// with other arguments, or of the other function, tells what must come out.
    fn decide(&mut self, here: &mut Here, contract: &Contract) {
        let (case, registers) = (Arc::clone(&self.case), here.registers);
        let outermost = self.state.callbacks == 1;
        // Without its address, nothing can be stored to the frame.
        let fregs = contract.position(Value::Fregs).map(|n| here.arg(n));
        let written = |content: Content| cell(contract, fregs?, content);
        let Some(a) = self.state.activations.last_mut() else { return };
        let mut stored = Vec::new();
        if case.situation.args() && outermost {
            for (reg, value) in case.rewritten(contract, registers.abi) {
                if let Some(at) = written(Content::Reg(reg)) {
                    stored.push((at, value));
                    a.expect[reg] = value;
                }
            }
            if let (Some(at), Some((_, mask))) = (written(Content::Flags), registers.machine.flags) {
                a.expect.flags ^= mask;
                stored.push((at, a.expect.flags));
            }
        }
        if let (true, true, Some(at)) = (case.situation.ip(), outermost, written(Content::Pc)) {
            stored.push((at, self.places.livepatch.named));
            // What unwinds the frame finds it there, also where the function does not go on at it.
            a.resume = self.places.livepatch.named;
            a.redirected = case.situation.redirects();
        }
        if let (true, Some(at)) = (case.situation.direct(), written(Content::Direct)) {
            stored.push((at, self.places.direct.named));
            a.direct = self.places.direct.named;
        }
        if let (true, Some(at)) = (case.situation.direct_jump(), written(Content::Direct)) {
            stored.push((at, SPARSE_JUMP | 1));
            a.direct = SPARSE_JUMP | 1;
        }
        if case.situation.parent() {
            let slot = written(Content::ParentIp).or(registers.abi.link.is_none().then_some(a.sp));
            if let Some(at) = slot {
                stored.push((at, self.places.exit));
                a.returns_to = self.places.exit;
                self.state.hooked.push(Hooked { parent: a.parent, sp: a.sp });
            }
        }
        self.store(here, stored, &Place::StoreFregs);
    }

    /// What a callee decides must be possible.
    pub(super) fn store(&mut self, here: &mut Here, stored: Vec<(u64, u64)>, place: &Place) {
        for (at, value) in stored {
            if !here.put_word(at, value) {
                self.fail(self.at(Clause::P11, 0), place.clone(), value, at);
            }
        }
    }

    /// The routine that may make room for records. It keeps every register: only the flags and the stack below SP change.
    fn refill(&mut self, here: &mut Here, contract: &Contract) {
        self.state.refills += 1;
        if self.enabled {
            self.check_refill(here);
        }
        if let Some(words) = Words::of(contract) {
            words.refill(&self.case, here.uc);
        }
        let flags = here.registers.general(here.uc).flags;
        here.registers.set_flags(here.uc, !flags);
        self.scribble(here, 0, 0);
    }

    /// The function that a direct trampoline calls.
    pub(super) fn direct_func(&mut self, here: &mut Here) {
        if let Some(contract) = self.contract().filter(|c| c.kind.recorder().is_some()) {
            self.refill(here, &contract);
            return;
        }
        self.check_call(here);
        let Some(contract) =
            self.contract().filter(|c| matches!(c.kind.traits().calls, Calls::Named | Calls::Handlers))
        else {
            return;
        };
        self.check_records(here, &contract);
        if let Some(a) = self.state.activations.last_mut() {
            a.calls += 1;
        }
        self.check_direct_func(here, &contract);
        self.check_passes(here, &contract.stated.passes);
        if contract.kind == Kind::Displaced {
            self.state.callbacks += 1;
            self.decide(here, &contract);
        }
        let given = if contract.kind.is_boundary() { here.snapshot() } else { Snapshot::default() };
        self.poison(here, 50 + u64::from(self.state.callbacks));
        if contract.stated.next == Next::Result {
            here.set(here.registers.abi.rets[0], EXIT);
        }
        self.leave_stated(here, &contract, &given);
        self.state.left = contract.kind.is_boundary().then(|| here.snapshot());
        let result = here.get(here.registers.abi.rets[0]);
        if let Some(a) = self.state.activations.last_mut() {
            a.result = result;
        }
    }

    /// A program, before the function or after it.
    pub(super) fn program(&mut self, here: &mut Here, programs: &Programs) {
        self.check_call(here);
        let Some(contract) = self.contract() else { return };
        self.check_records(here, &contract);
        let abi = here.registers.abi;
        let bracketed = !contract.stated.around_programs.is_empty();
        if !bracketed {
            self.count();
        }
        let (calls, words, resume, results, sessions) = match (&self.state.moment, self.state.activations.last()) {
            (Moment::Exit(_, e), _) => {
                let results = abi.rets.iter().map(|reg| (*reg, e.expect[*reg])).collect();
                (e.calls, e.words.clone(), e.pc, results, e.sessions.clone())
            }
            (_, Some(a)) => (a.calls, shown(here, programs, &a.expect, a.sp), a.pc, Vec::new(), a.sessions.clone()),
            (_, None) => return,
        };
        let call =
            ProgramCall { contract: &contract, calls, words: &words, resume, results: &results, sessions: &sessions };
        let Some(Known { n, session }) = self.check_program(here, &call) else { return };
        if bracketed && !self.begins_inside(here, n) {
            return;
        }
        let (context, cookie) = (here.arg(0), here.arg(1));
        let exiting = self.state.exiting().is_some();
        self.poison(here, 20 * u64::from(exiting) + calls);
        // Its own to use while it runs.
        let mut stored = if bracketed { Vec::new() } else { vec![(cookie, u64::MAX)] };
        if let (Some(at), Some(a)) = (session.filter(|_| !exiting), self.state.activations.last_mut()) {
            let word = self.case.canary(&mut Rng::new(self.case.seed, 0x300 + n as u64));
            a.sessions.resize(contract.programs.len(), 0);
            a.sessions[n] = word;
            stored.push((at, word));
        }
        let outermost = match exiting {
            true => self.state.pending.is_empty() && self.state.activations.len() <= 1,
            // Where the trampoline does not call the function, it is through when inner functions are called.
            false => self.state.sites_seen == 1,
        };
        if outermost && calls == 1 {
            stored.extend(self.rewrite(here, programs, &contract, context));
        }
        if contract.kind.is_function() || contract.programs.get(n).is_some_and(|p| p.attach == Attach::FmodRet) {
            self.decide_result(here, &contract, n, outermost, words);
        } else if let (true, true, Some(e)) =
            (self.case.situation.results() && outermost, calls == 1, self.state.exiting_mut())
        {
            for (n, &(reg, value)) in (words.len() as u64..).zip(&self.case.new_results) {
                stored.push((context.wrapping_add(8 * n), value));
                e.expect[reg] = value;
            }
        }
        self.store(here, stored, &Place::StoreContext);
    }

    /// What the first program makes of the function's arguments.
    fn rewrite(&mut self, here: &Here, programs: &Programs, contract: &Contract, context: u64) -> Vec<(u64, u64)> {
        let mut stored = Vec::new();
        let entering = self.state.exiting().is_none();
        if let (true, true, Some(a)) = (self.case.situation.args(), entering, self.state.activations.last_mut()) {
            for (reg, value) in self.case.rewritten(contract, here.registers.abi) {
                let n = programs.words.iter().position(|w| *w == Some(Word::Reg(reg)));
                stored.extend(n.map(|n| (context.wrapping_add(8 * n as u64), value)));
                a.expect[reg] = value;
            }
        }
        stored
    }

    /// What program `n` returns, which may decide the result: if it does, the function is over.
    fn decide_result(&mut self, here: &mut Here, contract: &Contract, n: usize, outermost: bool, words: Vec<u64>) {
        let (case, abi) = (Arc::clone(&self.case), here.registers.abi);
        let last = contract.programs.iter().rposition(|p| p.attach == Attach::FmodRet) == Some(n);
        let chosen = case.situation == Situation::Skip || (case.situation == Situation::SkipLast && last);
        let skips = contract.kind.is_function() || outermost && chosen;
        // A function without a result is skipped as any other.
        let value = case.new_results.first().map_or(1, |(_, value)| *value);
        here.set(abi.rets[0], if skips { value } else { 0 });
        if let Some(result) = contract.stated.program_result {
            self.leave_result(here, &result, value);
        }
        if skips {
            self.end_early(here, words);
            self.state.exiting_mut().into_iter().for_each(|e| e.expect[abi.rets[0]] = value);
        }
    }

    /// The function does not run: what is next is its end.
    pub(super) fn end_early(&mut self, here: &Here, words: Vec<u64>) {
        let Some(a) = self.state.activations.pop() else { return };
        let sp = a.sp.wrapping_add(here.registers.abi.return_bytes());
        let Activation { expect, parent, pc, resume, sessions, around, .. } = a;
        let index = self.trampoline();
        self.state.end(index, Exiting { expect, parent, pc, resume, sp, calls: 0, words, sessions, around });
    }

    /// What a program in place of a function leaves: above the bytes of the result, anything where the trampoline is to widen it.
    fn leave_result(&mut self, here: &mut Here, result: &ProgramResult, value: u64) {
        let abi = here.registers.abi;
        let above = u64::MAX.checked_shl(8 * u32::from(result.bytes)).unwrap_or(0);
        let noise = if abi.widens { self.case.canary(&mut Rng::new(self.case.seed, 0x400)) } else { 0 };
        let whole = value & !above | noise & above;
        let lower = (whole as u32).cast_signed();
        match result.whole {
            Some(reg) => {
                here.set(reg, whole);
                here.set(abi.rets[0], i64::from(lower).cast_unsigned());
            }
            None => here.set(abi.rets[0], whole),
        }
    }

    /// T5.
    pub(super) fn exit_handler(&mut self, here: &mut Here) {
        self.check_call(here);
        let Some(contract) = self.contract() else { return };
        self.check_records(here, &contract);
        let Some(e) = self.state.exiting_mut() else { return };
        e.calls += 1;
        let parent = e.parent;
        self.check_exit_handler(here, &contract);
        let registers = here.registers;
        let fregs = frame(here, &contract);
        let around = contract.kind.jumped_to();
        let stores = |content: Content| cell(&contract, fregs, content);
        let way = stores(Content::ParentIp).filter(|_| !around);
        let mut stored: Vec<(u64, u64)> = way.map(|at| (at, parent)).into_iter().collect();
        let case = Arc::clone(&self.case);
        let outer = self.state.hooked.len() + self.state.pending.len();
        if case.situation.results()
            && outer == 0
            && let Some(e) = self.state.exiting_mut()
        {
            for &(reg, value) in &case.new_results {
                let place = stores(Content::Result(reg)).or_else(|| stores(Content::Reg(reg)));
                stored.extend(place.map(|at| (at, value)));
                e.expect[reg] = value;
            }
            if let (Some(at), Some((_, mask))) = (stores(Content::Flags), registers.machine.flags) {
                e.expect.flags ^= mask;
                stored.push((at, e.expect.flags));
            }
            self.state.moved.retain(|(moved, _)| !case.new_results.iter().any(|(reg, _)| reg == moved));
        }
        self.store(here, stored, &Place::StoreFregs);
        self.poison(here, 90 + outer as u64);
        // Where the way back is not a word of the frame, the handler returns it.
        if contract.kind.is_shadow() || (!around && stores(Content::ParentIp).is_none()) {
            here.set(registers.abi.rets[0], parent);
        }
    }

    /// What a function of any body may leave behind: anything where no result is, and results in vector registers, which
    /// those of the fixtures do not touch.
    pub(super) fn finish_body(&mut self, here: &mut Here) {
        let (case, mut rng) = (Arc::clone(&self.case), Rng::new(self.case.seed, 0x200));
        let registers = here.registers;
        let abi = registers.abi;
        for reg in self.c_loses(abi).minus(RegSet::of(abi.exit_rets)).iter().filter(|&r| Some(r) != abi.link) {
            here.set(reg, case.canary(&mut rng));
        }
        let programs = self.kind(self.trampoline()).and_then(Kind::programs);
        let named = self.contract().is_some_and(|c| c.vectors_kept != 0);
        let every = if named { abi.vector_rets.len() } else { 0 };
        let vectors = programs.map_or(every, |programs| programs.result.vectors.into());
        for &i in abi.vector_rets.iter().take(vectors) {
            self.state.untouched = false;
            registers.set_vector(here.uc, i.into(), &rng.vector());
        }
    }

    /// An interrupt handler uses the stack below SP: nothing that is there is there afterwards.
    pub(super) fn interrupt(&mut self, here: &mut Here) {
        // Another part of the garbage at each instruction.
        let red_zone = self.contract().map_or(0, |c| c.stated.red_zone);
        let from = self.scribble(here, 8 * (here.pc / 2 % 64) as usize, red_zone);
        self.state.stack.forget(from, from.wrapping_add(SCRIBBLE));
    }

    /// Overwrite the stack below SP with the garbage from there on, but for the bytes of a red zone, and the shadow call stack
    /// above its pointer. Returns the lowest address.
    fn scribble(&self, here: &mut Here, from: usize, red_zone: u64) -> u64 {
        let below = self.garbage.get(from..from + SCRIBBLE as usize).unwrap_or_default();
        let at = here.sp().wrapping_sub(red_zone + SCRIBBLE);
        here.write(at, below);
        if let Some(pointer) = self.contract().and_then(|contract| contract.scs()) {
            here.write(here.get(pointer), below.get(..scs::BYTES).unwrap_or_default());
        }
        at
    }

    /// The registers that a C function may overwrite.
    fn c_loses(&self, abi: &Abi) -> RegSet {
        let usual = || self.convention.map_or(abi.caller_saved, |convention| convention.site.c_loses(abi));
        self.contract().map_or_else(usual, |contract| contract.c_loses())
    }

    /// When a C function returns, its thread may run on another CPU: registers of the platform hold what is that one's. One that
    /// carries an argument is overwritten. It stays where the callee says what is in it, or the thread's memory is found by it.
    fn move_thread(&mut self, here: &mut Here, rng: &mut Rng) {
        let abi = here.registers.abi;
        let Some(contract) = self.contract() else { return };
        let told = |reg: Reg| cell(&contract, 0, Content::Reg(reg)).is_some();
        let finds_memory = contract.kind.is_shadow() || contract.kind.recorder().is_some();
        let thread = contract.convention.thread.filter(|_| finds_memory).and_then(|name| abi.find(name));
        let entering = self.state.exiting().is_none();
        let arguments = contract.kind.live().filter(|_| entering).map_or(RegSet::EMPTY, |live| live.regs);
        let platforms = abi.platform.minus(self.c_loses(abi)).minus(contract.stated.carries);
        // A shadow call stack goes with the thread.
        let stays = |reg| Some(reg) == thread || Some(reg) == contract.scs();
        for reg in platforms.iter().filter(|&reg| !told(reg) && !stays(reg)) {
            let known = self.state.moved.iter().find(|(known, _)| *known == reg);
            // What the trampoline has overwritten stays so, and is found in the end.
            if here.get(reg) != known.map_or(self.case.initial.registers[reg], |(_, value)| *value) {
                continue;
            }
            let value = self.case.canary(rng);
            here.set(reg, value);
            self.state.moved.retain(|(known, _)| *known != reg);
            if !arguments.contains(reg) {
                self.state.moved.push((reg, value));
            }
        }
    }

    /// Overwrite all that a C function may, and the stack below it.
    pub(super) fn poison(&mut self, here: &mut Here, purpose: u64) {
        let registers = here.registers;
        let mut rng = Rng::new(self.case.seed, 0x100 + purpose);
        let lost = self.c_loses(registers.abi);
        let lost = lost.iter().filter(|&r| Some(r) != registers.abi.link).map(|reg| {
            let value = self.case.canary(&mut rng);
            let zero = self.case.sparse() && !registers.abi.rets.contains(&reg);
            (reg, if zero { 0 } else { value })
        });
        registers.set_all(here.uc, lost);
        self.move_thread(here, &mut rng);
        // None is what it must be when the trampoline is through.
        let (exiting, entering) = (self.state.exiting(), self.state.activations.last());
        let due = exiting.map(|e| e.expect.flags).or(entering.map(|a| a.expect.flags)).unwrap_or(0);
        registers.set_flags(here.uc, !due);
        let general = self.contract().is_some_and(|c| c.stated.general_handlers);
        if self.case.handler == Handler::Any && !general {
            let now = here.snapshot().vectors;
            let alien = self.contract().is_some_and(|c| c.stated.callee_keeps.is_some());
            for (i, now) in now.iter().enumerate().take(registers.machine.vectors.len()) {
                let mut value = rng.vector();
                if registers.abi.vector_callee_saved.contains(&(i as u8)) && !alien {
                    // C keeps their low halves.
                    value[..8].copy_from_slice(&now[..8]);
                }
                registers.set_vector(here.uc, i, &value);
            }
        }
        // Another part of the garbage each time: what was there before is not there again.
        self.scribble(here, 8 * (purpose as usize % 64 + 1), 0);
    }
}
