//! P8, P10: what a function is given that a trampoline calls.

use codegen::ask::frame::Content;
use codegen::ask::live::Word;
use codegen::ask::spec::{Kind, Programs};
use codegen::contract::Contract;
use codegen::words::abi::Reg;
use codegen::words::program::{Attach, called};
use codegen::words::step::Value;
use codegen::words::term::{EntryState, Root};

use super::state::Activation;
use super::{Culprit, Here, Trace};
use crate::engine::cpu::Snapshot;
use crate::report::Clause;
use crate::report::place::{Place, Slot};
use crate::run::situation::Situation;

/// A call of a program, and what its context must hold.
pub(super) struct ProgramCall<'c> {
    pub contract: &'c Contract,
    /// The number of the call, from 1: before the function, or after it.
    pub calls: u64,
    /// The function's arguments.
    pub words: &'c [u64],
    /// Where the function goes on.
    pub resume: u64,
    /// The results so far.
    pub results: &'c [u64],
    /// What sessions stored to their words before the function.
    pub sessions: &'c [u64],
}

/// A program that was called, as its contract has it.
pub(super) struct Known {
    /// Its number.
    pub n: usize,
    /// Where its word is, if it is a session.
    pub session: Option<u64>,
}

/// What the site says that no register tells; `None` for what it does not say.
struct Told {
    pc: u64,
    ip: Option<u64>,
    op: Option<u64>,
    parent: Option<u64>,
    result: Option<u64>,
}

/// The machine as the trampoline found it, for the terms of its contract.
struct Entry<'a, 'h, 'u> {
    here: &'a Here<'h, 'u>,
    expect: &'a Snapshot,
    told: Told,
}

impl EntryState for Entry<'_, '_, '_> {
    fn reg(&self, reg: Reg) -> u64 {
        self.expect[reg]
    }

    fn word(&self, at: u64) -> Option<u64> {
        Some(self.here.word(at))
    }

    fn other(&self, root: &Root) -> Option<u64> {
        match root {
            Root::Pc => Some(self.told.pc),
            Root::Ip => self.told.ip,
            Root::Op => self.told.op,
            Root::ParentIp => self.told.parent,
            Root::Result => self.told.result,
            _ => None,
        }
    }
}

impl Trace {
    /// Flags and SP at the first instruction of a called C function.
    pub(super) fn check_call(&mut self, here: &Here) {
        let registers = here.registers;
        if registers.machine.clear_flags() != 0 {
            let found = registers.unclear_flags(here.uc);
            self.check(self.at(Clause::P6, here.pc), Place::ClearFlags, 0, found);
        }
        let Some(contract) = self.contract() else { return };
        let (sp, align) = (here.sp(), u64::from(contract.stack_align));
        let at_call = if registers.abi.link.is_none() { sp.wrapping_add(8) } else { sp };
        self.check(self.at(Clause::P8, here.pc), Place::SpModulo, 0, at_call % align);
    }

    /// A callback: ip, parent_ip, op, and the frame.
    pub(super) fn check_callback(&mut self, here: &Here, contract: &Contract) {
        let Some(a) = self.state.activations.last() else { return };
        let (parent, resume, first) = (a.parent, a.pc, a.calls == 1);
        let p10 = self.at(Clause::P10, here.pc);
        let op = self.places.op;
        let told = [
            (Value::Ip, Place::Ip, here.ip(resume)),
            (Value::ParentIp, Place::ParentIp, parent),
            (Value::Op, Place::Op, op),
        ];
        for (value, place, want) in told {
            // A callback before this one may have changed that on the stack.
            if let Some(n) = contract.position(value).filter(|_| first || value != Value::ParentIp) {
                self.checks.check_by(p10, place, arg(here, n), want, here.arg(n));
            }
        }
        self.check_arguments(here, contract);
        if let Some(fregs) = contract.position(Value::Fregs).map(|n| here.arg(n)) {
            self.beside_site(|t, a| t.check_frame(here, contract, fregs, a));
        }
    }

    /// The frame at `fregs`, as a callback is given it.
    fn check_frame(&mut self, here: &Here, contract: &Contract, fregs: u64, site: &Activation) {
        let (at, site_sp, p10) = (&site.expect, site.sp, self.at(Clause::P10, here.pc));
        if contract.frame.c_size > 0 {
            let inside = fregs >= here.sp() && fregs.wrapping_add(contract.frame.c_size as u64) <= site_sp;
            self.check(p10, Place::FregsInFrame, true, inside);
        }
        let mut frame = std::mem::take(&mut self.frame);
        frame.clear();
        frame.resize(contract.frame.c_size as usize, 0);
        here.read(fregs, &mut frame);
        let held =
            |offset: i32| frame.as_chunks().0.get(offset as usize / 8).map_or(0, |word| u64::from_le_bytes(*word));
        let mut as_wanted = 0;
        for field in contract.frame.fields.iter().filter(|f| !f.member.is_empty()) {
            let want = match field.content {
                Content::Reg(r) => at[r],
                Content::Pc => site.resume,
                Content::ParentIp => site.returns_to,
                Content::SiteSp => site_sp,
                Content::Flags => at.flags,
                Content::Const(n) => n as u64,
                Content::Direct => site.direct,
                Content::Result(_) | Content::ExitSp | Content::Unfilled => continue,
                // Of no struct.
                Content::Vector(_)
                | Content::VectorResult(_)
                | Content::StackWord(_)
                | Content::Cookie
                | Content::Session(_)
                | Content::Ip => continue,
            };
            let (slot, held) = (fregs.wrapping_add(field.offset as u64), held(field.offset));
            if want == held {
                as_wanted += 1;
            } else {
                self.checks.check_by(p10, Slot(field.member), Culprit::Memory(slot), want, held);
            }
            self.check_written(slot, field.member, here.pc);
        }
        self.checks.hold(p10, as_wanted);
        self.frame = frame;
    }

    /// A function of a direct trampoline: the arguments, behind ip where it wants that.
    pub(super) fn check_direct_func(&mut self, here: &Here, contract: &Contract) {
        self.check_arguments(here, contract);
        let Some(direct) = contract.kind.passes() else { return };
        let p10 = self.at(Clause::P10, here.pc);
        let t = self.trampoline();
        let which = if t == self.case.attach { self.case.situation.variable() } else { 0 };
        let callee = self.callees.get(t).and_then(|all| all.get(which)).copied().unwrap_or(0);
        self.check(p10, Place::Callee, callee, here.pc);
        let Some(a) = self.state.activations.last() else { return };
        if direct.ip {
            self.checks.check_by(p10, Place::Ip, arg(here, 0), here.ip(a.resume), here.arg(0));
        }
        let abi = here.registers.abi;
        for (i, &reg) in abi.args.iter().take(direct.args.into()).enumerate() {
            let n = i + usize::from(direct.ip);
            let place = Place::Argument { name: abi.name(reg) };
            self.checks.check_by(p10, place, arg(here, n), a.expect[reg], here.arg(n));
        }
        if let Some(live) = direct.live {
            self.beside_site(|t, a| t.check_passed(here, live, &a.expect, a.sp));
        }
    }

    /// What the contract says of each argument.
    fn check_arguments(&mut self, here: &Here, contract: &Contract) {
        if contract.stated.arguments.is_none() {
            return;
        }
        let (expect, pc, parent) = match (self.state.exiting(), self.state.activations.last()) {
            (Some(e), _) => (&e.expect, e.resume, e.parent),
            (None, Some(a)) => (&a.expect, a.pc, a.parent),
            (None, None) => return,
        };
        let p10 = self.at(Clause::P10, here.pc);
        let abi = here.registers.abi;
        let told = Told { pc, ip: Some(here.ip(pc)), op: Some(self.places.op), parent: Some(parent), result: None };
        let entry = Entry { here, expect, told };
        for (n, (argument, &reg)) in contract.stated.arguments.iter().flatten().zip(abi.args).enumerate() {
            // What profiles tell is checked with what they say of it; where the frame lies, by what is in it.
            let told = argument.value.alone().and_then(Root::told);
            let told = told.is_some_and(|value| value == Value::Fregs || contract.kind.calls_back());
            if !told {
                let want = argument.value.eval(&entry).unwrap_or_default();
                let mask = u64::MAX >> 64_u32.saturating_sub(argument.bits).min(63);
                let (want, have) = (want & mask, here.arg(n) & mask);
                self.checks.check_by(p10, Place::Given { name: abi.name(reg) }, arg(here, n), want, have);
            }
        }
    }

    /// What a trampoline leaves in registers, besides what it found there.
    pub(super) fn check_given_back(&mut self, here: &Here) {
        let (Some(contract), Some(a)) = (self.contract(), self.state.activations.last()) else { return };
        let stated = &contract.stated;
        let uncalled = stated.uncalled.as_ref().filter(|_| self.case.situation == Situation::Null);
        let p11 = self.at(Clause::P11, here.pc);
        let told = Told { pc: a.pc, ip: None, op: None, parent: None, result: Some(a.result) };
        let entry = Entry { here, expect: &a.expect, told };
        for (reg, sum) in uncalled.map_or(&stated.gives, |u| &u.gives) {
            let want = sum.eval(&entry).unwrap_or_default();
            let place = Place::Result { name: here.registers.abi.name(*reg) };
            self.checks.check_by(p11, place, Culprit::Register(*reg), want, here.get(*reg));
        }
    }

    /// The programs that are called before the function, or `after` it, but for those that are detached: the number of the call
    /// among these, and that of the program.
    pub(super) fn due<'c>(
        &self,
        contract: &'c Contract,
        after: bool,
    ) -> impl Iterator<Item = (usize, usize)> + use<'c> {
        let (at, situation) = (if after { Attach::AFTER } else { Attach::BEFORE }, self.case.situation);
        let before = if after { called(&contract.programs, Attach::BEFORE).count() } else { 0 };
        let all = called(&contract.programs, at).enumerate();
        all.filter(move |(i, _)| !situation.detached((before + i) as u8))
    }

    /// A program: the cookie, and the words of its context. Nothing, if it is one too many.
    pub(super) fn check_program(&mut self, here: &Here, programs: &Programs, call: &ProgramCall) -> Option<Known> {
        let &ProgramCall { contract, calls, words, .. } = call;
        let p10 = self.at(Clause::P10, here.pc);
        let over = self.state.exiting().is_some();
        let Some((i, n)) = self.due(contract, over).nth(calls as usize - 1) else {
            self.check(p10, Place::Programs, calls - 1, calls);
            return None;
        };
        let program = &contract.programs[n];
        let expected = self.callees.get(self.trampoline()).and_then(|all| all.get(n)).copied().unwrap_or(0);
        self.check(p10, Place::Program, expected, here.pc);
        let (context, cookie) = (here.arg(0), here.arg(1));
        let by = Culprit::Memory;
        self.checks.check_by(p10, Place::Cookie, by(cookie), program.cookie as u64, here.word(cookie));
        self.check_written(cookie, "cookie", here.pc);
        let at = |n: i64| context.wrapping_add_signed(8 * n);
        let word = |n: i64| here.word(at(n));
        let meta = programs.meta_of(&contract.programs, if over { Attach::AFTER } else { Attach::BEFORE }, i);
        self.checks.check_by(p10, Place::ContextCount, by(at(-1)), meta.cast_unsigned(), word(-1));
        if programs.ip_arg {
            self.checks.check_by(p10, Place::ContextIp, by(at(-2)), here.ip(call.resume), word(-2));
        }
        for (n, want) in (0..).zip(words) {
            self.checks.check_by(p10, Place::ContextWord, by(at(n)), *want, word(n));
        }
        // Before the function there is a result only for those who may decide it, and for sessions, which find none.
        if program.attach != Attach::Fentry {
            for (n, want) in (words.len() as i64..).zip(call.results) {
                self.checks.check_by(p10, Place::ContextResult, by(at(n)), *want, word(n));
            }
        }
        let session = (program.attach == Attach::Fsession).then(|| at(-(meta >> 8 & 0xff)));
        if let Some(session) = session {
            let wanted = if over { call.sessions.get(n).copied().unwrap_or(0) } else { 0 };
            self.checks.check_by(p10, Place::ContextSession, by(session), wanted, here.word(session));
        }
        Some(Known { n, session })
    }

    /// An exit handler: the results, and what else its frame says.
    pub(super) fn check_exit_handler(&mut self, here: &Here, contract: &Contract) {
        let Some(e) = self.state.exiting() else { return };
        let (exit_sp, at) = (e.sp, e.expect.clone());
        let (abi, p10) = (here.registers.abi, self.at(Clause::P10, here.pc));
        self.check_arguments(here, contract);
        let fregs = frame(here, contract);
        let around = contract.kind.jumped_to();
        if around && contract.frame.c_struct.is_empty() {
            for (&arg, &ret) in abi.args.iter().zip(abi.rets) {
                let (place, by) = (Place::ResultTold { name: abi.name(ret) }, Culprit::Register(arg));
                self.checks.check_by(p10, place, by, at[ret], here.get(arg));
            }
        }
        // What was there before the function went with the frame.
        let told = |f: &&codegen::ask::frame::Field| {
            !f.member.is_empty() && (!contract.kind.is_shadow() || matches!(f.content, Content::Result(_)))
        };
        for field in contract.frame.fields.iter().filter(told) {
            let place = fregs.wrapping_add(field.offset as u64);
            let want = match field.content {
                // A paired trampoline still has there what it saved before.
                Content::Reg(_) if around => None,
                Content::Reg(r) | Content::Result(r) => Some(at[r]),
                Content::ExitSp => Some(exit_sp),
                Content::Flags => Some(at.flags),
                Content::Const(n) => Some(n as u64),
                Content::Unfilled => continue,
                Content::Vector(_)
                | Content::VectorResult(_)
                | Content::StackWord(_)
                | Content::Cookie
                | Content::Session(_)
                | Content::Ip => continue,
                Content::Pc if contract.kind == Kind::Rethook => Some(self.places.exit),
                // No two kernels agree on what these are after the function's end; that something is there is asked.
                Content::Pc | Content::ParentIp | Content::SiteSp | Content::Direct => None,
            };
            if let Some(want) = want {
                self.checks.check_by(p10, Slot(field.member), Culprit::Memory(place), want, here.word(place));
            }
            self.check_written(place, field.member, here.pc);
        }
        // Where RET took it, unwinders find what they know to stand for another: unwind_recover_rethook (kernel
        // arch/x86/include/asm/unwind.h).
        if contract.kind == Kind::Rethook && abi.link.is_none() {
            let taken = exit_sp.wrapping_sub(abi.return_bytes());
            let by = Culprit::Memory(taken);
            self.checks.check_by(p10.of(Clause::P12), Place::ReturnStandIn, by, self.places.exit, here.word(taken));
        }
    }
}

/// The address of the frame, as an exit handler is given it.
pub(super) fn frame(here: &Here, contract: &Contract) -> u64 {
    let stated = contract.stated.arguments.is_some();
    here.arg(contract.position(Value::Fregs).filter(|_| stated).unwrap_or(0))
}

/// An argument is what the last instruction made it that wrote its register.
fn arg(here: &Here, n: usize) -> Culprit {
    Culprit::Register(here.registers.abi.args[n])
}

/// The arguments of a function, as its programs are shown them.
pub(super) fn shown(here: &Here, programs: &Programs, at: &Snapshot, site_sp: u64) -> Vec<u64> {
    let stack = site_sp.wrapping_add(here.registers.abi.return_bytes());
    let word = |w: &Word| match *w {
        Word::Reg(reg) => at[reg],
        Word::Stack(n) => here.word(stack.wrapping_add(8 * u64::from(n))),
    };
    programs.words.iter().flatten().map(word).collect()
}
