//! What the functions do that a trampoline calls: they look at what they are given, decide, and overwrite what they may.

use std::sync::Arc;

use codegen::abi::RegSet;
use codegen::contract::Contract;
use codegen::frame::{Back, Content};
use codegen::live::Word;
use codegen::spec::{Around, Attach, Direct, Form, Kind, Programs};

use super::state::{Activation, Exiting, Hooked};
use super::{CALLBACK, EXIT_HANDLER, Joined, Trace};
use crate::case::Handler;
use crate::cpu::{Registers, STACK_SIZE, STACK_TOP, Snapshot, Uc, put_word, word, words};
use crate::report::Clause;
use crate::rng::Rng;

/// Bytes below SP that a callback overwrites.
const SCRIBBLE: u64 = 512;

impl Trace {
    /// What handlers must do that alone know the parent, where nothing is checked.
    pub(super) fn keep_parent(&mut self, uc: &mut Uc, registers: Registers, mark: u8) {
        if mark & CALLBACK != 0 {
            self.parents.push(registers.get(uc, registers.abi.args[1]));
        } else if mark & EXIT_HANDLER != 0
            && let Some(parent) = self.parents.pop()
        {
            registers.set(uc, registers.abi.rets[0], parent);
        }
    }

    /// What a function of any body may leave behind: anything where no result is, and results in vector registers, which
    /// those of the fixtures do not touch.
    pub(super) fn finish_body(&mut self, uc: &mut Uc, registers: Registers) {
        let mut rng = Rng::new(self.case.seed, 0x200);
        let abi = registers.abi;
        for reg in abi.caller_saved.minus(RegSet::of(abi.exit_rets)).iter().filter(|&r| Some(r) != abi.link) {
            let value = rng.canary();
            registers.set(uc, reg, value);
        }
        let kind = self.kind(self.trampoline());
        let vectors = if let Some(Kind::Programs(programs)) = kind { programs.result.vectors } else { 0 };
        for &i in registers.abi.vector_rets.iter().take(vectors.into()) {
            let value = rng.vector();
            registers.set_vector(uc, i.into(), &value);
        }
    }

    /// T1.
    pub(super) fn callback(&mut self, uc: &mut Uc, pc: u64) {
        let (Some(registers), Some(site)) = (self.registers, self.site) else { return };
        let sp = registers.sp(uc);
        self.check_call(uc, registers, pc);
        let Some(contract) = self.contracts.get(self.trampoline()).cloned() else { return };
        self.check_records(uc, registers, &contract, pc);
        let Some(a) = self.activations.last_mut() else { return };
        a.calls += 1;
        let (parent, resume, site_sp, at) = (a.parent, a.pc, a.sp, a.expect.clone());
        let arg = |uc: &Uc, i: usize| registers.get(uc, registers.abi.args[i]);
        self.check(Clause::P10, "ip", resume.wrapping_sub(site.ip_offset as u64), arg(uc, 0), pc);
        self.check(Clause::P10, "parent_ip", parent, arg(uc, 1), pc);
        self.check(Clause::P10, "op", self.places.op, arg(uc, 2), pc);
        let fregs = arg(uc, 3);
        if contract.frame.c_size > 0 {
            let inside = fregs >= sp && fregs.wrapping_add(contract.frame.c_size as u64) <= site_sp;
            self.check(Clause::P10, "fregs lies in the frame", 1, u64::from(inside), pc);
        }
        let frame = words(uc, fregs, contract.frame.c_size as usize);
        let held = |offset: i32| frame.get(offset as usize / 8).copied().unwrap_or(0);
        for field in contract.frame.fields.iter().filter(|f| !f.member.is_empty()) {
            let want = match field.content {
                Content::Reg(r) => at.gpr[r.0 as usize],
                Content::Pc => resume,
                Content::ParentIp => parent,
                Content::SiteSp => site_sp,
                Content::Flags => at.flags,
                Content::Const(n) => n as u64,
                Content::Direct => 0,
                Content::Result(_) | Content::ExitSp | Content::Unfilled => continue,
                // Of no struct.
                Content::Vector(_)
                | Content::VectorResult(_)
                | Content::StackWord(_)
                | Content::Cookie
                | Content::Ip => continue,
            };
            let place = fregs.wrapping_add(field.offset as u64);
            self.check(Clause::P10, Joined("fregs->", field.member, ""), want, held(field.offset), pc);
            self.check_written(place, field.member, pc);
        }
        self.callbacks += 1;
        self.moves(uc, registers, &contract, fregs);
        self.poison(uc, registers, 1 + u64::from(self.callbacks));
    }

    /// What the callback decides. Rewriting and redirecting are for the outermost function only, so that a plain run
    /// with other arguments, or of the other function, tells what must come out.
    pub(super) fn moves(&mut self, uc: &mut Uc, registers: Registers, contract: &Contract, fregs: u64) {
        let case = Arc::clone(&self.case);
        let outermost = self.callbacks == 1;
        let written = |content: Content| {
            let found = contract.frame.fields.iter().find(|f| f.content == content && f.back == Back::Written);
            found.map(|f| fregs.wrapping_add(f.offset as u64))
        };
        let places = self.places.clone();
        let site_sp = self.activations.last().map_or(0, |a| a.sp);
        let mut stored = Vec::new();
        let Some(a) = self.activations.last_mut() else { return };
        if case.situation.args && outermost {
            for (reg, value) in case.rewritten(contract, registers.abi) {
                if let Some(at) = written(Content::Reg(reg)) {
                    stored.push((at, value));
                    a.expect.gpr[reg.0 as usize] = value;
                }
            }
            if let (Some(at), Some((_, mask))) = (written(Content::Flags), registers.machine.flags) {
                a.expect.flags ^= mask;
                stored.push((at, a.expect.flags));
            }
        }
        if let (true, true, Some(at)) = (case.situation.ip, outermost, written(Content::Pc)) {
            stored.push((at, places.livepatch));
            a.resume = places.livepatch;
            a.redirected = true;
        }
        if let (true, Some(at)) = (case.situation.direct, written(Content::Direct)) {
            stored.push((at, places.direct));
        }
        if case.situation.parent {
            let cell = written(Content::ParentIp).or(registers.abi.link.is_none().then_some(site_sp));
            if let Some(at) = cell {
                stored.push((at, places.exit));
                a.returns_to = places.exit;
                self.hooked.push(Hooked { parent: a.parent, sp: site_sp });
            }
        }
        for (at, value) in stored {
            if !put_word(uc, at, value) {
                self.fail(Clause::P11, "store through fregs", None, (value, at), 0);
            }
        }
    }

    /// An interrupt handler uses the stack below SP: nothing that is there is there afterwards.
    pub(super) fn interrupt(&mut self, uc: &mut Uc, registers: Registers, pc: u64) {
        let sp = registers.sp(uc);
        // Another part of the garbage at each instruction.
        let from = 8 * (pc / 2 % 64) as usize;
        let below = self.garbage.get(from..from + SCRIBBLE as usize).unwrap_or_default();
        let _ = uc.mem_write(sp.wrapping_sub(SCRIBBLE), below);
        let slot = |at: u64| (at.wrapping_sub(STACK_TOP - STACK_SIZE) / 8) as usize;
        if let Some(gone) = self.written.get_mut(slot(sp.wrapping_sub(SCRIBBLE))..slot(sp)) {
            gone.fill(0);
        }
    }

    /// Overwrite all that a C function may, and the stack below it.
    pub(super) fn poison(&mut self, uc: &mut Uc, registers: Registers, purpose: u64) {
        let mut rng = Rng::new(self.case.seed, 0x100 + purpose);
        for reg in registers.abi.caller_saved.iter().filter(|&r| Some(r) != registers.abi.link) {
            let value = rng.canary();
            registers.set(uc, reg, value);
        }
        let flags = if purpose.is_multiple_of(2) { u64::MAX } else { 0 };
        registers.set_flags(uc, flags);
        if self.case.handler == Handler::Any {
            for i in 0..registers.machine.vectors.len() {
                let value = rng.vector();
                if !registers.abi.vector_callee_saved.contains(&(i as u8)) {
                    registers.set_vector(uc, i, &value);
                }
            }
        }
        let sp = registers.sp(uc);
        // Another part of the garbage each time: what was there before is not there again.
        let from = 8 * (purpose as usize % 64 + 1);
        let below = self.garbage.get(from..from + SCRIBBLE as usize).unwrap_or_default();
        let _ = uc.mem_write(sp.wrapping_sub(SCRIBBLE), below);
    }

    /// The function that a direct trampoline calls.
    pub(super) fn direct_func(&mut self, uc: &mut Uc, pc: u64) {
        let (Some(registers), Some(site)) = (self.registers, self.site) else { return };
        self.check_call(uc, registers, pc);
        let t = self.trampoline();
        let Some(contract) = self.contracts.get(t).cloned() else { return };
        let direct = match contract.kind {
            Kind::Direct(direct) => direct,
            Kind::Around(Around { form: Form::Frame, args }) => Direct { args, ..Direct::default() },
            _ => return,
        };
        self.check_records(uc, registers, &contract, pc);
        let callee = self.callees.get(t).and_then(|all| all.first()).copied().unwrap_or(0);
        self.check(Clause::P10, "function that it calls", callee, pc, pc);
        let Some(a) = self.activations.last_mut() else { return };
        a.calls += 1;
        let (expect, resume, site_sp) = (a.expect.clone(), a.resume, a.sp);
        let mut slot = 0;
        if direct.ip {
            let found = registers.get(uc, registers.abi.args[0]);
            self.check(Clause::P10, "ip", resume.wrapping_sub(site.ip_offset as u64), found, pc);
            slot = 1;
        }
        for i in 0..direct.args as usize {
            let want = expect.gpr[registers.abi.args[i].0 as usize];
            let found = registers.get(uc, registers.abi.args[i + slot]);
            self.check(
                Clause::P10,
                Joined("argument in ", registers.abi.name(registers.abi.args[i]), ""),
                want,
                found,
                pc,
            );
        }
        if let Some(live) = direct.live {
            self.check_passed(uc, registers, live, &expect, site_sp, pc);
        }
        self.poison(uc, registers, 50 + self.callbacks as u64);
    }

    /// A program, before the function or after it.
    pub(super) fn program(&mut self, uc: &mut Uc, pc: u64, programs: &Programs) {
        let (Some(registers), Some(site)) = (self.registers, self.site) else { return };
        self.check_call(uc, registers, pc);
        let t = self.trampoline();
        let Some(contract) = self.contracts.get(t).cloned() else { return };
        self.check_records(uc, registers, &contract, pc);
        let outermost = self.pending.is_empty() && self.activations.len() <= 1;
        let (calls, words, resume, results) = match (&mut self.exiting, self.activations.last_mut()) {
            (Some(e), _) => {
                e.calls += 1;
                let results = registers.abi.rets.iter().filter(|r| programs.result.regs.contains(**r));
                (e.calls, e.words.clone(), e.resume, results.map(|r| e.expect.gpr[r.0 as usize]).collect())
            }
            (None, Some(a)) => {
                a.calls += 1;
                (a.calls, shown(uc, registers, programs, &a.expect, a.sp), a.resume, vec![0])
            }
            (None, None) => return,
        };
        // Those before the function in the order of their kinds, then those after it.
        let of = |attach| contract.programs.iter().enumerate().filter(move |(_, p)| p.attach == attach);
        let mut due: Box<dyn Iterator<Item = _>> = match self.exiting {
            Some(_) => Box::new(of(Attach::Fexit)),
            None => Box::new(of(Attach::Fentry).chain(of(Attach::FmodRet))),
        };
        let Some((n, program)) = due.nth(calls as usize - 1) else {
            self.check(Clause::P10, "programs that are called here", calls - 1, calls, pc);
            return;
        };
        let expected = self.callees.get(t).and_then(|all| all.get(n)).copied().unwrap_or(0);
        self.check(Clause::P10, "program that it calls", expected, pc, pc);
        let [context, cookie] = [0, 1].map(|i| registers.get(uc, registers.abi.args[i]));
        self.check(Clause::P10, "cookie", program.cookie as u64, word(uc, cookie), pc);
        self.check_written(cookie, "cookie", pc);
        let above = |n: i64| context.wrapping_add_signed(8 * n);
        self.check(Clause::P10, "context[-1]: number of words", words.len() as u64, word(uc, above(-1)), pc);
        if programs.ip_arg {
            let ip = resume.wrapping_sub(site.ip_offset as u64);
            self.check(Clause::P10, "context[-2]: ip", ip, word(uc, above(-2)), pc);
        }
        for (n, want) in (0..).zip(&words) {
            self.check(Clause::P10, "word of the context", *want, word(uc, above(n)), pc);
        }
        let result = words.len() as i64;
        // Before the function there is a result only for those who may decide it.
        if program.attach != Attach::Fentry {
            for (n, want) in (result..).zip(&results) {
                self.check(Clause::P10, "result in the context", *want, word(uc, above(n)), pc);
            }
        }
        self.poison(uc, registers, 20 * u64::from(self.exiting.is_some()) + calls);
        let case = Arc::clone(&self.case);
        // Its own to use while it runs.
        let mut stored = vec![(cookie, u64::MAX)];
        if case.situation.args
            && outermost
            && calls == 1
            && self.exiting.is_none()
            && let Some(a) = self.activations.last_mut()
        {
            for (reg, value) in case.rewritten(&contract, registers.abi) {
                let n = programs.words.iter().position(|w| *w == Some(Word::Reg(reg)));
                stored.extend(n.map(|n| (above(n as i64), value)));
                a.expect.gpr[reg.0 as usize] = value;
            }
        }
        if program.attach == Attach::FmodRet {
            let last = contract.programs.iter().rposition(|p| p.attach == Attach::FmodRet) == Some(n);
            let skips = outermost && (case.situation.skip || (case.situation.skip_last && last));
            let value = case.new_results.first().map_or(0, |(_, value)| *value);
            registers.set(uc, registers.abi.rets[0], if skips { value } else { 0 });
            if skips && let Some(mut a) = self.activations.pop() {
                a.expect.gpr[registers.abi.rets[0].0 as usize] = value;
                let sp = a.sp.wrapping_add(registers.abi.return_bytes());
                let Activation { expect, parent, resume, .. } = a;
                self.exiting = Some(Exiting { expect, parent, resume, sp, calls: 0, words });
            }
        } else if case.situation.results
            && outermost
            && calls == 1
            && let Some(e) = &mut self.exiting
        {
            for (n, &(reg, value)) in (result..).zip(&case.new_results) {
                stored.push((above(n), value));
                e.expect.gpr[reg.0 as usize] = value;
            }
        }
        for (at, value) in stored {
            if !put_word(uc, at, value) {
                self.fail(Clause::P11, "store to the context", None, (value, at), 0);
            }
        }
    }

    /// T5.
    pub(super) fn exit_handler(&mut self, uc: &mut Uc, pc: u64) {
        let Some(registers) = self.registers else { return };
        self.check_call(uc, registers, pc);
        let Some(contract) = self.contracts.get(self.trampoline()).cloned() else { return };
        self.check_records(uc, registers, &contract, pc);
        let Some(e) = &mut self.exiting else { return };
        e.calls += 1;
        let (parent, exit_sp, at) = (e.parent, e.sp, e.expect.clone());
        let fregs = registers.get(uc, registers.abi.args[0]);
        let around = contract.kind.jumped_to();
        if around && contract.frame.c_struct.is_empty() {
            for (&arg, &ret) in registers.abi.args.iter().zip(registers.abi.rets) {
                let place = Joined("result in ", registers.abi.name(ret), ", for the exit handler");
                self.check(Clause::P10, place, at.gpr[ret.0 as usize], registers.get(uc, arg), pc);
            }
        }
        // What was there before the function went with the frame.
        let told = |f: &&codegen::frame::Field| {
            !f.member.is_empty() && (!contract.kind.is_shadow() || matches!(f.content, Content::Result(_)))
        };
        for field in contract.frame.fields.iter().filter(told) {
            let place = fregs.wrapping_add(field.offset as u64);
            let want = match field.content {
                // A paired trampoline still has there what it saved before.
                Content::Reg(_) if around => None,
                Content::Reg(r) | Content::Result(r) => Some(at.gpr[r.0 as usize]),
                Content::ExitSp => Some(exit_sp),
                Content::Flags => Some(at.flags),
                Content::Const(n) => Some(n as u64),
                Content::Unfilled => continue,
                Content::Vector(_)
                | Content::VectorResult(_)
                | Content::StackWord(_)
                | Content::Cookie
                | Content::Ip => continue,
                // No two kernels agree on what these are after the function's end; that something is there is asked.
                Content::Pc | Content::ParentIp | Content::SiteSp | Content::Direct => None,
            };
            if let Some(want) = want {
                self.check(Clause::P10, Joined("fregs->", field.member, ""), want, word(uc, place), pc);
            }
            self.check_written(place, field.member, pc);
        }
        let stores = |content: Content| {
            let found = contract.frame.fields.iter().find(|f| f.content == content && f.back == Back::Written);
            found.map(|f| fregs.wrapping_add(f.offset as u64))
        };
        let way = stores(Content::ParentIp).filter(|_| !around);
        let mut stored: Vec<(u64, u64)> = way.map(|at| (at, parent)).into_iter().collect();
        let case = Arc::clone(&self.case);
        if case.situation.results
            && self.hooked.is_empty()
            && self.pending.is_empty()
            && let Some(e) = &mut self.exiting
        {
            for &(reg, value) in &case.new_results {
                let place = stores(Content::Result(reg)).or_else(|| stores(Content::Reg(reg)));
                stored.extend(place.map(|at| (at, value)));
                e.expect.gpr[reg.0 as usize] = value;
            }
            if let (Some(at), Some((_, mask))) = (stores(Content::Flags), registers.machine.flags) {
                e.expect.flags ^= mask;
                stored.push((at, e.expect.flags));
            }
        }
        for (at, value) in stored {
            if !put_word(uc, at, value) {
                self.fail(Clause::P11, "store through fregs", None, (value, at), 0);
            }
        }
        self.poison(uc, registers, 90 + (self.hooked.len() + self.pending.len()) as u64);
        // Where the way back is not a word of the frame, the handler returns it.
        if contract.kind.is_shadow() || (!around && stores(Content::ParentIp).is_none()) {
            registers.set(uc, registers.abi.rets[0], parent);
        }
    }
}

/// The arguments of a function, as its programs are shown them.
pub(super) fn shown(uc: &Uc, registers: Registers, programs: &Programs, at: &Snapshot, site_sp: u64) -> Vec<u64> {
    let stack = site_sp.wrapping_add(registers.abi.return_bytes());
    let word = |w: &Word| match *w {
        Word::Reg(reg) => at.gpr[reg.0 as usize],
        Word::Stack(n) => word(uc, stack.wrapping_add(8 * u64::from(n))),
    };
    programs.words.iter().flatten().map(word).collect()
}
