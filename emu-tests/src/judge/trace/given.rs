//! P8, P10: what a function is given that a trampoline calls.

use codegen::ask::frame::{Content, Field, Stores};
use codegen::ask::live::Word;
use codegen::ask::spec::{Kind, Programs};
use codegen::contract::Contract;
use codegen::contract::demand::{Called, Holds, Moment, Spot};
use codegen::contract::stated::{Argument, Given, Gives};
use codegen::words::abi::{Abi, Reg};
use codegen::words::intern::intern;
use codegen::words::program::{Attach, called};
use codegen::words::step::Value;
use codegen::words::term::{EntryState, Root, Term};

use super::state::Activation;
use super::{Culprit, Here, Places, Trace};
use crate::engine::registers::Snapshot;
use crate::report::Clause;
use crate::report::place::{Place, Slot};
use crate::run::block::{BLOCK, Before, OTHER_STACK};
use crate::run::raw::address_of;
use crate::run::situation::Situation;

/// The call of a callback, of a function by its name, of an entry handler or of the handler of a redirected return.
const ENTRY: Moment = Moment::Call(0);
/// That of the exit handler of a paired trampoline, behind those of the entry handler and the function.
const EXIT: Moment = Moment::Call(2);

/// A call of a program, and what its context must hold.
pub(super) struct ProgramCall<'c> {
    pub contract: &'c Contract,
    /// The number of the call, from 1: before the function, or after it.
    pub calls: u64,
    /// The function's arguments.
    pub words: &'c [u64],
    /// Where the function goes on.
    pub resume: u64,
    /// What the function left in each register that it gives back.
    pub results: &'c [(Reg, u64)],
    /// What sessions have stored to their words, by the numbers of the programs.
    pub sessions: &'c [u64],
}

impl ProgramCall<'_> {
    /// A result, as the context demands it: what the function left, or a number before that.
    fn result(&self, term: &Term) -> u64 {
        let left = |reg: Reg| self.results.iter().find(|(result, _)| *result == reg).map(|(_, value)| *value);
        match term.root {
            Root::Body(reg) => left(reg).unwrap_or_default(),
            _ => term.add.cast_unsigned(),
        }
    }

    /// The function's ip. In a dump, it may be the address that the contract has for the function.
    fn ip(&self, here: &Here, at: u64) -> u64 {
        let Some(traced) = self.contract.traced.as_ref().filter(|_| self.contract.stated.ip_is_start) else {
            return here.ip(self.resume);
        };
        let written = address_of(&traced.function).filter(|ip| *ip == here.word(at));
        written.unwrap_or_else(|| self.resume.wrapping_add_signed(-i64::from(traced.resume)))
    }

    /// What is in the word of the session with this number: 0 until it stores something.
    fn session(&self, number: u8) -> u64 {
        let programs = self.contract.programs.iter().zip(0..);
        let mut sessions = programs.filter(|(program, _)| program.attach == Attach::Fsession).map(|(_, n)| n);
        let program: Option<usize> = sessions.nth(number.into());
        program.and_then(|n| self.sessions.get(n)).copied().unwrap_or_default()
    }
}

/// A program that was called, as its contract has it.
pub(super) struct Known {
    /// Its number.
    pub n: usize,
    /// Where its word is, if it is a session.
    pub session: Option<u64>,
}

/// What the site says that no register tells; `None` for what it does not say.
#[derive(Default)]
pub(super) struct Told<'a> {
    pc: u64,
    ip: Option<u64>,
    op: Option<u64>,
    parent: Option<u64>,
    pub result: Option<u64>,
    /// The words that the callee stored.
    pub stored: Vec<u64>,
    /// The registers as the callee left them.
    pub left: Option<Snapshot>,
    /// Memory as it was at the call; empty where it is wanted as it is.
    pub before: Before,
    /// The symbols of memory whose words are stated.
    pub named: &'a [(String, u64)],
}

/// The machine as the trampoline found it, for the terms of its contract.
pub(super) struct Entry<'a, 'h, 'u> {
    pub here: &'a Here<'h, 'u>,
    pub expect: &'a Snapshot,
    pub told: Told<'a>,
}

impl EntryState for Entry<'_, '_, '_> {
    fn reg(&self, reg: Reg) -> u64 {
        self.expect[reg]
    }

    fn word(&self, at: u64) -> Option<u64> {
        Some(self.told.before.word(at).unwrap_or_else(|| self.here.word(at)))
    }

    fn other(&self, root: &Root) -> Option<u64> {
        match root {
            Root::Pc => Some(self.told.pc),
            Root::Ip => self.told.ip,
            Root::Op => self.told.op,
            Root::ParentIp => self.told.parent,
            Root::Result => self.told.result,
            Root::Left(1, reg) => self.told.left.as_ref().map(|left| left[*reg]),
            Root::Block => Some(BLOCK),
            Root::OtherStack => Some(OTHER_STACK),
            Root::Symbol(symbol) => self.told.named.iter().find(|(name, _)| **name == **symbol).map(|(_, at)| *at),
            Root::StoredWord(n) => self.told.stored.get(usize::from(*n).checked_sub(1)?).copied(),
            _ => None,
        }
    }
}

/// The traced function's state, as handlers left it, for the demands of a contract.
struct Traced<'a> {
    registers: &'a Snapshot,
    sp: u64,
    pc: u64,
    ip: u64,
    op: u64,
    parent: u64,
    own: u64,
}

impl<'a> Traced<'a> {
    /// As it is at its site, with what callbacks made of it.
    fn at(a: &'a Activation, here: &Here, places: &Places) -> Traced<'a> {
        let ip = here.ip(a.pc);
        Traced {
            registers: &a.expect,
            sp: a.sp,
            pc: a.resume,
            ip,
            op: places.op,
            parent: a.returns_to,
            own: places.exit,
        }
    }

    /// The value of a term; `None` for what no frame of a struct holds.
    fn eval(&self, term: &Term, abi: &Abi) -> Option<u64> {
        let root = match &term.root {
            Root::Number => 0,
            Root::Reg(reg) if *reg == abi.sp => self.sp,
            Root::Reg(reg) | Root::Body(reg) => self.registers[*reg],
            Root::Flags => self.registers.flags,
            Root::Pc => self.pc,
            Root::Ip => self.ip,
            Root::ParentIp => self.parent,
            Root::Op => self.op,
            Root::Symbol(_) => self.own,
            Root::Vector(n) => low(self.registers, *n),
            _ => return None,
        };
        Some(root.wrapping_add_signed(term.add))
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
        self.check_arguments(here, contract);
        self.beside_site(|t, a| {
            let state = Traced::at(a, here, &t.places);
            // One before this one may have changed parent_ip on the stack.
            t.check_told(here, ENTRY, &state, a.calls > 1);
            if let Some(fregs) = contract.position(Value::Fregs).map(|n| here.arg(n)) {
                if contract.frame.c_size > 0 {
                    let end = fregs.wrapping_add(contract.frame.c_size as u64);
                    t.check(t.at(Clause::P10, here.pc), Place::FregsInFrame, true, fregs >= here.sp() && end <= a.sp);
                }
                t.check_frame(here, contract, ENTRY, (fregs, a.direct), &state);
            }
        });
    }

    /// What is passed in registers; `again`: a callback of this call of the function came before.
    fn check_told(&mut self, here: &Here, call: Moment, state: &Traced, again: bool) {
        let (abi, p10) = (here.registers.abi, self.at(Clause::P10, here.pc));
        for demand in self.demanded().iter().filter(|demand| demand.moment == call) {
            let (Spot::Reg(reg), Holds::Is(term)) = (demand.spot, &demand.holds) else { continue };
            let place = match term.root {
                Root::Ip => Place::Ip,
                Root::ParentIp if again => continue,
                Root::ParentIp => Place::ParentIp,
                Root::Op => Place::Op,
                // The others are compared with all that the function itself finds.
                Root::Reg(of) if !abi.args.contains(&of) => continue,
                Root::Reg(of) => Place::Argument { name: abi.name(of) },
                Root::Body(of) => Place::ResultTold { name: abi.name(of) },
                _ => continue,
            };
            if let Some(want) = state.eval(term, abi) {
                self.checks.check_by(p10, place, Culprit::Register(reg), want, here.get(reg));
            }
        }
    }

    /// The members of the frame at `fregs`, as a callback finds them. `direct` is what the last one stored there.
    fn check_frame(
        &mut self,
        here: &Here,
        contract: &Contract,
        call: Moment,
        (fregs, direct): (u64, u64),
        state: &Traced,
    ) {
        let (abi, p10) = (here.registers.abi, self.at(Clause::P10, here.pc));
        let mut frame = std::mem::take(&mut self.frame);
        frame.clear();
        frame.resize(contract.frame.c_size as usize, 0);
        here.read(fregs, &mut frame);
        let held =
            |offset: i32| frame.as_chunks().0.get(offset as usize / 8).map_or(0, |word| u64::from_le_bytes(*word));
        let mut as_wanted = 0;
        for demand in self.demanded().iter().filter(|demand| demand.moment == call) {
            let Spot::Slot(n) = demand.spot else { continue };
            let Some(field) = contract.frame.fields.get(n).filter(|field| !field.member.is_empty()) else { continue };
            let (slot, held) = (fregs.wrapping_add(field.offset as u64), held(field.offset));
            let want = match &demand.holds {
                _ if field.content == Content::Direct => Some(direct),
                Holds::Is(term) => state.eval(term, abi),
                Holds::Written | Holds::Multiple(_) => Some(held),
            };
            match want {
                None => continue,
                Some(want) if want == held => as_wanted += u64::from(demand.holds != Holds::Written),
                Some(want) => self.checks.check_by(p10, Slot(field.member), Culprit::Memory(slot), want, held),
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
        self.beside_site(|t, a| {
            // A callback before this function may have moved pc.
            let state = Traced { ip: here.ip(a.resume), ..Traced::at(a, here, &t.places) };
            t.check_told(here, ENTRY, &state, false);
            if let Some(live) = direct.live {
                t.check_passed(here, live, &a.expect, a.sp);
            }
            if let Some(n) =
                contract.position(Value::Fregs).filter(|_| matches!(contract.kind, Kind::Closure | Kind::Displaced))
            {
                t.check_frame(here, contract, ENTRY, (here.arg(n), 0), &state);
            }
        });
    }

    /// What the contract says of each argument.
    fn check_arguments(&mut self, here: &Here, contract: &Contract) {
        let (expect, pc, parent) = match (self.state.exiting(), self.state.activations.last()) {
            (Some(e), _) => (&e.expect, e.resume, e.parent),
            (None, Some(a)) => (&a.expect, a.pc, a.parent),
            (None, None) => return,
        };
        let p10 = self.at(Clause::P10, here.pc);
        let abi = here.registers.abi;
        let (ip, op) = (Some(here.ip(pc)), Some(self.places.op));
        let told = Told { pc, ip, op, parent: Some(parent), named: &self.named, ..Told::default() };
        let entry = Entry { here, expect, told };
        for (n, (argument, &reg)) in contract.stated.arguments.iter().flatten().zip(abi.args).enumerate() {
            // What profiles tell is checked with what they say of it; where the frame lies, by what is in it.
            let told = argument.value.alone().and_then(Root::told);
            let told = told.is_some_and(|value| value == Value::Fregs || contract.kind.calls_back());
            if !told {
                let mask = u64::MAX >> 64_u32.saturating_sub(argument.bits).min(63);
                let have = here.arg(n) & mask;
                let want = wanted(argument, &entry, have);
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
        let (stored, left, before) = (self.state.stored.clone(), self.state.left.clone(), self.before.clone());
        let named = &self.named;
        let told = Told { pc: a.pc, result: Some(a.result), stored, left, before, named, ..Told::default() };
        let entry = Entry { here, expect: &a.expect, told };
        let result = self.case.situation.result().and_then(|n| stated.results.get(n));
        let all = uncalled.map_or(&stated.gives, |u| &u.gives).iter().chain(result.into_iter().flat_map(|r| &r.gives));
        for Gives { place, value } in all {
            let (name, by, found) = found(&entry, place, value.bits);
            let as_before =
                matches!((place, value.value.alone()), (Given::Word(at), Some(Root::Content(was))) if *at == **was);
            let told = if as_before { Place::Unstored { name } } else { Place::Result { name } };
            self.checks.check_by(p11, told, by, wanted(value, &entry, found), found);
        }
    }

    /// The demands of a call that are about registers, as the trampoline found them.
    pub(super) fn check_demanded(&mut self, here: &Here) {
        self.beside_site(|t, a| {
            let state = Traced::at(a, here, &t.places);
            let (abi, p10) = (here.registers.abi, t.at(Clause::P10, here.pc));
            for demand in t.demanded().iter().filter(|demand| demand.moment == ENTRY) {
                let (Spot::Reg(reg), Holds::Is(term)) = (demand.spot, &demand.holds) else { continue };
                if let Some(want) = state.eval(term, abi) {
                    let place = Place::Given { name: abi.name(reg) };
                    t.checks.check_by(p10, place, Culprit::Register(reg), want, here.get(reg));
                }
            }
        });
    }

    /// Places with stated values where the callee begins, or another context goes on.
    pub(super) fn check_passes(&mut self, here: &Here, passes: &[Gives]) {
        self.beside_site(|t, a| {
            let told = Told { pc: a.pc, before: t.before.clone(), named: &t.named, ..Told::default() };
            let entry = Entry { here, expect: &a.expect, told };
            let p10 = t.at(Clause::P10, here.pc);
            for Gives { place, value } in passes {
                let (name, by, found) = found(&entry, place, value.bits);
                t.checks.check_by(p10, Place::Given { name }, by, wanted(value, &entry, found), found);
            }
        });
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

    /// A program: the cookie, and its context as the contract demands it. Nothing, if it is one too many.
    pub(super) fn check_program(&mut self, here: &Here, call: &ProgramCall) -> Option<Known> {
        let &ProgramCall { contract, calls, .. } = call;
        let p10 = self.at(Clause::P10, here.pc);
        let over = self.state.exiting().is_some();
        let due = calls.checked_sub(1).and_then(|before| self.due(contract, over).nth(before as usize));
        let Some((_, n)) = due else {
            self.check(p10, Place::Programs, calls.saturating_sub(1), calls.max(1));
            return None;
        };
        let expected = self.callees.get(self.trampoline()).and_then(|all| all.get(n)).copied().unwrap_or(0);
        self.check(p10, Place::Program, expected, here.pc);
        let moment = contract.moment(Called::Program(n), over);
        let (context, from) = (here.arg(0), contract.context());
        let mut meta = 0;
        for demand in self.demanded().iter().filter(|demand| Some(demand.moment) == moment) {
            let Holds::Is(term) = &demand.holds else { continue };
            let (place, at, want) = match demand.spot {
                Spot::Pointee(cookie) => {
                    self.check_written(here.get(cookie), "cookie", here.pc);
                    (Place::Cookie, here.get(cookie), term.add.cast_unsigned())
                }
                Spot::Slot(slot) => {
                    let visible = |field: &&Field| field.stores != Stores::Hidden;
                    let Some(field) = contract.frame.fields.get(slot).filter(visible) else { continue };
                    let offset = field.offset - from;
                    let (place, want) = match field.content {
                        Content::Const(_) => {
                            meta = term.add;
                            (Place::ContextCount, meta.cast_unsigned())
                        }
                        Content::Ip => (Place::ContextIp, call.ip(here, at_offset(context, offset))),
                        Content::Reg(_) | Content::StackWord(_) => {
                            // What lies beside the context is the trampoline's own.
                            let Some(word) = call.words.get(offset as usize / 8) else { continue };
                            (Place::ContextWord, *word)
                        }
                        Content::Result(_) => (Place::ContextResult, call.result(term)),
                        Content::Session(s) => (Place::ContextSession, call.session(s)),
                        _ => continue,
                    };
                    (place, at_offset(context, offset), want)
                }
                // Where its context lies is what says where all of it is.
                _ => continue,
            };
            self.checks.check_by(p10, place, Culprit::Memory(at), want, here.word(at));
        }
        let own = contract.programs.get(n).is_some_and(|program| program.attach == Attach::Fsession);
        let session = own.then(|| context.wrapping_add_signed(-8 * (meta >> 8 & 0xff)));
        Some(Known { n, session })
    }

    /// An exit handler: the results, and what else its frame says.
    pub(super) fn check_exit_handler(&mut self, here: &Here, contract: &Contract) {
        let Some(e) = self.state.exiting() else { return };
        let (exit_sp, at) = (e.sp, e.expect.clone());
        let (abi, p10) = (here.registers.abi, self.at(Clause::P10, here.pc));
        self.check_arguments(here, contract);
        let call = if contract.kind.calls_body() { EXIT } else { ENTRY };
        let (op, own) = (self.places.op, self.places.exit);
        let state = Traced { registers: &at, sp: exit_sp, pc: own, ip: 0, op, parent: 0, own };
        self.check_told(here, call, &state, false);
        self.check_frame(here, contract, call, (frame(here, contract), 0), &state);
        // Where RET took it, unwinders find what they know to stand for another: unwind_recover_rethook (kernel
        // arch/x86/include/asm/unwind.h).
        if contract.kind == Kind::Rethook && abi.link.is_none() {
            let taken = exit_sp.wrapping_sub(abi.return_bytes());
            let by = Culprit::Memory(taken);
            self.checks.check_by(p10.of(Clause::P12), Place::ReturnStandIn, by, self.places.exit, here.word(taken));
        }
    }
}

/// A place whose value a contract states: its name, who is asked for it, and what is there, of so many bits.
fn found(entry: &Entry, place: &Given, bits: u32) -> (&'static str, Culprit, u64) {
    let (here, abi) = (entry.here, entry.here.registers.abi);
    let (name, by, all) = match place {
        Given::Reg(reg) => (abi.name(*reg), Culprit::Register(*reg), here.get(*reg)),
        Given::Vector(n) => {
            let name = here.registers.machine.vectors.get(usize::from(*n)).map_or("", |vector| vector.name);
            (name, Culprit::Unknown, low(&here.snapshot(), *n))
        }
        Given::Word(place) => {
            let at = place.eval(entry).unwrap_or_default();
            (intern(&format!("[{:#}]", place.show(abi))), Culprit::Memory(at), here.word(at))
        }
    };
    (name, by, all & mask(bits))
}

/// What must be there. A value that the run does not have is not there, whatever is.
fn wanted(Argument { value, bits }: &Argument, entry: &Entry, found: u64) -> u64 {
    value.eval(entry).map_or(!found, |want| want & mask(*bits))
}

fn mask(bits: u32) -> u64 {
    u64::MAX >> 64_u32.saturating_sub(bits).min(63)
}

/// The low 8 bytes of a vector register.
fn low(registers: &Snapshot, n: u8) -> u64 {
    let vector = registers.vectors.get(usize::from(n)).and_then(|vector| vector.first_chunk());
    vector.map_or(0, |low| u64::from_le_bytes(*low))
}

fn at_offset(context: u64, offset: i32) -> u64 {
    context.wrapping_add_signed(offset.into())
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
