//! One run of code of which nothing is known: memory appears where it looks, and what it calls returns at once.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use codegen::arch::machine::Branch;
use codegen::backend::Backend;
use codegen::words::abi::Reg;
use codegen::words::error::Result;
use codegen::words::term::{Root, Term};
use link::{Image, PAGE, STUBS};
use rustc_hash::FxHashMap;

use super::code::{Code, Taken};
use super::tokens::{KERNEL, Names, Tokens};
use crate::engine::cpu::{STACK_SIZE, STACK_TOP, put_word, word, words};
use crate::engine::flow::{self, ReturnStack};
use crate::engine::interface::{Access, Accesses, Cpu, EVERYWHERE, Holds};
use crate::engine::lent::{self, Lends};
use crate::engine::load::load;
use crate::engine::registers::{GENERAL, Registers, Snapshot, VECTOR};

/// Instructions after which it is called a loop.
const BUDGET: usize = 20_000;
/// Calls after which it is called one too.
const CALLS: usize = 64;
/// Where SP is at the entry: in the middle, and at a multiple of 16.
const SP: u64 = STACK_TOP - STACK_SIZE / 2;
/// Bytes above and below SP that have values of their own.
const ABOVE: u64 = 0x200;
const BELOW: u64 = 0x1000;
/// Bytes below SP that a called function overwrites.
const SCRIBBLED: u64 = 0x200;
/// Bytes that C keeps of a vector register that it keeps (AAPCS64, 6.1.2).
const KEPT_VECTOR: usize = 8;
/// Nothing ever runs there.
const NOWHERE: u64 = 0x10;

/// What is different in a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// SP is so many bytes lower at the entry.
    Lower(u64),
    /// A register is 0 at the entry.
    Register(Reg),
    /// The word of memory at this address is 0.
    Word(Term),
    /// The call with this number returns 0.
    Returns(u16),
    /// The call with this number stores so many bytes above SP: a value of its own, plus so much.
    Stores(u16, u64, u64),
    /// The same, and it stores 0.
    Clears(u16, u64),
    /// What is called uses general registers only, as kernels compile their C.
    GeneralOnly,
}

/// The code.
pub(super) struct Subject<'a> {
    pub backend: &'a dyn Backend,
    pub image: &'a Image,
    pub names: Names,
    pub registers: Registers,
    pub code: Arc<Code>,
}

/// A call, as it was seen.
pub(super) struct SeenCall {
    pub to: u64,
    /// The instruction that calls.
    pub at: u64,
    pub by: Taken,
    /// Which instruction changed each register last, and which stored each word of the stack.
    pub writers: [u64; GENERAL],
    pub slots: FxHashMap<u64, u64>,
    /// SP above the return address.
    pub sp: u64,
    pub registers: Snapshot,
    /// Flags that are set though C code begins with them clear.
    pub unclear: u64,
    /// The words from SP up to some above where it was at the entry.
    pub words: Vec<u64>,
}

/// How a run ends.
pub(super) enum End {
    /// It goes there, by this branch.
    At(u64, Taken),
    /// It does not, and why.
    Never(String),
}

/// What an unwinder finds at an instruction.
pub(super) struct SeenUnwind {
    pub at: u64,
    /// `None` without a row of the table.
    pub found: Option<Found>,
}

/// What an unwinder finds.
pub(super) struct Found {
    pub cfa: u64,
    pub returns: Option<u64>,
    pub known_column: bool,
    pub looked_up: bool,
    /// The callee-saved registers that the table describes.
    pub registers: Vec<(Reg, u64)>,
}

/// A run, as it was seen.
pub(super) struct Seen {
    pub tokens: Tokens,
    pub sp: u64,
    pub before: Snapshot,
    pub after: Snapshot,
    pub above: (Vec<u64>, Vec<u64>),
    pub calls: Vec<SeenCall>,
    pub end: End,
    pub steps: Vec<u64>,
    /// Where words are that were read outside of the stack.
    pub reads: Vec<Term>,
    /// What is in the words that were written outside of the stack, by where they are.
    pub writes: BTreeMap<Term, u64>,
    pub lowest: u64,
    /// Returns that do not go behind the call that they pair with: where they are.
    pub mispaired: Vec<u64>,
    /// Where the CPU took them to go.
    pub predicted: Vec<u64>,
    /// Where returns without a call of the code's own go.
    pub beyond: Vec<u64>,
    /// Calls without a return.
    pub unreturned: usize,
    /// Instructions that use memory below SP.
    pub below: BTreeSet<u64>,
    /// Instructions that use memory by an SP that the hardware does not allow.
    pub crooked: BTreeSet<u64>,
    /// Instructions that may change vector state that the engine does not have.
    pub wide: BTreeSet<u64>,
    /// Instructions that move the CPU's shadow stack.
    pub shadow: BTreeSet<u64>,
    pub unwinds: Vec<SeenUnwind>,
    /// Which instruction changed each register last; 0 for none.
    pub writers: [u64; GENERAL],
}

/// Data of the hooks.
struct Watch {
    code: Arc<Code>,
    registers: Registers,
    tokens: Tokens,
    /// Where the words are that have values of their own, outside of the stack.
    places: BTreeMap<u64, Term>,
    zero: Option<Term>,
    steps: Vec<u64>,
    last: Option<Taken>,
    left: Option<u64>,
    read: Vec<u64>,
    written: BTreeSet<u64>,
    lowest: u64,
    sp: u64,
    /// SP at the instruction that runs.
    now: u64,
    /// The lowest word of the stack that it stores to.
    stored: Option<u64>,
    returns: ReturnStack,
    mispaired: Vec<u64>,
    predicted: Vec<u64>,
    beyond: Vec<u64>,
    below: BTreeSet<u64>,
    crooked: BTreeSet<u64>,
    wide: BTreeSet<u64>,
    shadow: BTreeSet<u64>,
    unwinds: Vec<SeenUnwind>,
    /// The general registers before the instruction that runs.
    gpr: [u64; GENERAL],
    writers: [u64; GENERAL],
    slots: FxHashMap<u64, u64>,
    /// What the clock says when it is read first, and how often it was read.
    clock: u64,
    clocks: Cell<u64>,
    /// A fault that an instruction raised.
    fault: Option<&'static str>,
}

type Uc<'a> = Cpu<'a, Watch>;

impl Subject<'_> {
    /// Run it, as it comes or with some things different.
    ///
    /// # Errors
    /// The emulator does not start.
    pub(super) fn run(&self, changes: &[Change]) -> Result<Seen> {
        let lower = changes.iter().find_map(|change| if let Change::Lower(by) = change { Some(*by) } else { None });
        let sp = SP - lower.unwrap_or(0);
        let zero =
            changes.iter().find_map(|change| if let Change::Word(at) = change { Some(at.clone()) } else { None });
        let watch = Watch {
            code: self.code.clone(),
            registers: self.registers,
            tokens: Tokens::none(self.registers.abi),
            places: BTreeMap::new(),
            zero,
            steps: Vec::new(),
            last: None,
            left: None,
            read: Vec::new(),
            written: BTreeSet::new(),
            lowest: sp,
            sp,
            now: sp,
            stored: None,
            returns: ReturnStack::default(),
            mispaired: Vec::new(),
            predicted: Vec::new(),
            beyond: Vec::new(),
            below: BTreeSet::new(),
            crooked: BTreeSet::new(),
            wide: BTreeSet::new(),
            shadow: BTreeSet::new(),
            unwinds: Vec::new(),
            gpr: [0; GENERAL],
            writers: [0; GENERAL],
            slots: FxHashMap::default(),
            clock: 0,
            clocks: Cell::new(0),
            fault: None,
        };
        let mut uc = load(self.backend, std::iter::once(self.image), watch)?;
        hooks(&mut *uc)?;
        let own = self.code.lines.iter().map(|line| line.at);
        lent::attach(&mut *uc, self.registers.machine.lent, |at, size| self.image.bytes(at, size), own)?;
        self.fill(&mut *uc, sp, changes)?;
        let before = self.registers.snapshot(&*uc);
        uc.data_mut().gpr = before.gpr;
        let above = words(&*uc, sp, ABOVE as usize);
        let mut calls = Vec::new();
        let end = self.calls(&mut *uc, &mut calls, changes);
        let after = self.registers.snapshot(&*uc);
        uc.data_mut().wrote(after.gpr);
        let above = (above, words(&*uc, sp, ABOVE as usize));
        let written: Vec<u64> = uc.data().written.iter().copied().collect();
        let place = |at: &u64| uc.data().places.get(at).cloned().unwrap_or_else(|| Term::number(*at as i64));
        let writes = written.iter().map(|at| (place(at), word(&*uc, *at))).collect();
        let mut reads: Vec<Term> = uc.data().read.iter().filter_map(|at| uc.data().places.get(at).cloned()).collect();
        reads.sort_by_cached_key(|place| place.show(self.registers.abi).to_string());
        reads.dedup();
        let watch = uc.data_mut();
        Ok(Seen {
            tokens: std::mem::replace(&mut watch.tokens, Tokens::none(self.registers.abi)),
            sp,
            before,
            after,
            above,
            calls,
            end,
            steps: std::mem::take(&mut watch.steps),
            reads,
            writes,
            lowest: watch.lowest,
            mispaired: std::mem::take(&mut watch.mispaired),
            predicted: std::mem::take(&mut watch.predicted),
            beyond: std::mem::take(&mut watch.beyond),
            unreturned: watch.returns.unreturned() as usize,
            below: std::mem::take(&mut watch.below),
            crooked: std::mem::take(&mut watch.crooked),
            wide: std::mem::take(&mut watch.wide),
            shadow: std::mem::take(&mut watch.shadow),
            unwinds: std::mem::take(&mut watch.unwinds),
            writers: watch.writers,
        })
    }

    /// Run from call to call.
    fn calls(&self, uc: &mut Uc<'_>, calls: &mut Vec<SeenCall>, changes: &[Change]) -> End {
        let mut pc = self.code.start;
        loop {
            let ran = uc.run_at_most(pc, NOWHERE, BUDGET);
            let watch = uc.data_mut();
            let (left, by) = (watch.left.take(), watch.last.take());
            let (Some(to), Some(by)) = (left, by) else {
                let at = watch.steps.last().copied().unwrap_or(pc);
                let place = self.place(at);
                return End::Never(match (ran, watch.fault) {
                    (_, Some(fault)) => format!("a CPU stops at {place}: {fault}"),
                    (Err(e), None) => format!("the emulator stops at {place}: {e}"),
                    (Ok(()), None) => format!("it does not end within {BUDGET} instructions"),
                });
            };
            // A call behind which there is no code is how it goes on.
            if !by.branch.pushes || !watch.code.ranges.iter().any(|range| range.contains(&by.next)) {
                return End::At(to, by);
            }
            if calls.len() == CALLS {
                return End::Never(format!("it does not end within {CALLS} calls"));
            }
            watch.returns.returned(by.next);
            let sp = self.registers.sp(uc);
            if !(STACK_TOP - STACK_SIZE + SCRIBBLED..=STACK_TOP - 8).contains(&sp) {
                let sp = uc.data().tokens.term(sp, &self.names, uc.data().sp);
                let sp = sp.show(self.registers.abi).to_string();
                return End::Never(format!(
                    "at the call in {} SP is not in the stack: it is {sp}",
                    self.place(by.next)
                ));
            }
            let number = calls.len() as u16 + 1;
            calls.push(match to {
                KERNEL => self.system_call(uc, by, number, changes),
                to => self.call(uc, to, by, number, changes),
            });
            pc = by.next;
        }
    }

    /// An address, in words.
    fn place(&self, at: u64) -> String {
        let term = self.names.term(at).unwrap_or_else(|| Term::number(at as i64));
        term.show(self.registers.abi).to_string()
    }

    /// Registers, stack, and what is defined elsewhere.
    fn fill(&self, uc: &mut Uc<'_>, sp: u64, changes: &[Change]) -> Result<()> {
        let (r, abi) = (self.registers, self.registers.abi);
        for reg in (0..abi.regs.len() as u8).map(Reg) {
            let value = uc.data_mut().tokens.of(Root::Reg(reg));
            let zero = changes.contains(&Change::Register(reg));
            r.set(uc, reg, if reg == abi.sp { sp } else { value * u64::from(!zero) });
        }
        for (n, thread) in (1..).zip(r.machine.threads) {
            let value = uc.data_mut().tokens.of(Root::Thread(n));
            uc.write(thread.id, value).map_err(|e| e.at(thread.name))?;
        }
        uc.data_mut().clock = uc.data_mut().tokens.of(Root::Clock);
        // Set wherever code may begin with them set.
        r.set_flags(uc, !r.machine.clear_flags());
        r.set_control(uc)?;
        for i in 0..r.machine.vectors.len() {
            r.set_vector(uc, i, &[0x40 + i as u8; VECTOR]);
        }
        for at in (sp - BELOW..sp + ABOVE).step_by(8) {
            let above = Term::from(Root::Reg(abi.sp)).plus(at.wrapping_sub(sp) as i64);
            let value = uc.data_mut().tokens.of(if at < sp { Root::Older } else { above.content().root });
            put_word(uc, at, value);
        }
        for (start, bytes) in outside(self.image, self.backend.machine().return_thunk) {
            let symbol = self.names.term(start).unwrap_or_else(|| Term::number(start as i64));
            remember(uc, start, bytes, &|off| symbol.clone().plus(off as i64));
        }
        Ok(())
    }

    /// The kernel: what the instruction changes has changed, and it returns.
    fn system_call(&self, uc: &mut Uc<'_>, by: Taken, number: u16, changes: &[Change]) -> SeenCall {
        let (r, abi) = (self.registers, self.registers.abi);
        let (sp, registers) = (r.sp(uc), r.snapshot(uc));
        uc.data_mut().wrote(registers.gpr);
        let (writers, slots) = (uc.data().writers, uc.data().slots.clone());
        let unclear = r.unclear_flags(uc);
        for reg in r.machine.system_call.lost.iter().chain(abi.rets.first().copied()) {
            let value = uc.data_mut().tokens.of(Root::Left(number, reg));
            let zero = abi.rets.contains(&reg) && changes.contains(&Change::Returns(number));
            r.set(uc, reg, value * u64::from(!zero));
        }
        let after = r.general(uc).gpr;
        let watch = uc.data_mut();
        watch.wrote(after);
        let at = watch.steps.last().copied().unwrap_or_default();
        SeenCall { to: KERNEL, at, by, writers, slots, sp, registers, unclear, words: Vec::new() }
    }

    /// A function of C: what may change has changed, and it returns.
    fn call(&self, uc: &mut Uc<'_>, to: u64, by: Taken, number: u16, changes: &[Change]) -> SeenCall {
        let (r, abi) = (self.registers, self.registers.abi);
        let sp = r.sp(uc) + abi.return_bytes();
        let registers = r.snapshot(uc);
        uc.data_mut().wrote(registers.gpr);
        let (writers, slots) = (uc.data().writers, uc.data().slots.clone());
        let unclear = r.unclear_flags(uc);
        let entry = uc.data().sp;
        let seen = words(uc, sp, (entry + ABOVE).saturating_sub(sp) as usize);
        for reg in abi.caller_saved.iter().filter(|reg| *reg != abi.sp) {
            let result = abi.rets.contains(&reg);
            let value = uc.data_mut().tokens.of(Root::Left(number, reg));
            let zero = result && changes.contains(&Change::Returns(number));
            r.set(uc, reg, value * u64::from(!zero));
        }
        r.set_flags(uc, 0);
        let vectors = if changes.contains(&Change::GeneralOnly) { 0 } else { r.machine.vectors.len() };
        for (i, before) in registers.vectors.iter().enumerate().take(vectors) {
            let kept = if abi.vector_callee_saved.contains(&(i as u8)) { KEPT_VECTOR } else { 0 };
            let mut left = [0xc0 + i as u8; VECTOR];
            left.iter_mut().zip(before).take(kept).for_each(|(to, from)| *to = *from);
            r.set_vector(uc, i, &left);
        }
        let below = r.sp(uc);
        for at in (below - SCRIBBLED..below).step_by(8) {
            put_word(uc, at, 0x5c5c_5c5c_5c5c_5c5c);
        }
        for change in changes {
            match change {
                Change::Stores(call, at, more) if *call == number => {
                    let value = uc.data_mut().tokens.of(Root::Stored(number));
                    put_word(uc, sp + at, value + more);
                }
                Change::Clears(call, at) if *call == number => drop(put_word(uc, sp + at, 0)),
                _ => {}
            }
        }
        r.set(uc, abi.sp, sp);
        let after = r.general(uc).gpr;
        let watch = uc.data_mut();
        watch.wrote(after);
        let at = watch.steps.last().copied().unwrap_or_default();
        SeenCall { to, at, by, writers, slots, sp, registers, unclear, words: seen }
    }
}

/// Give each word of a range a value of its own, and remember where it is.
fn remember(uc: &mut Uc<'_>, start: u64, bytes: u64, place: &dyn Fn(u64) -> Term) {
    for off in (0..bytes).step_by(8) {
        let (at, place) = (start.wrapping_add(off), place(off));
        let watch = uc.data_mut();
        let value = watch.tokens.of(place.clone().content().root);
        let zero = watch.zero.as_ref() == Some(&place);
        watch.places.insert(at, place);
        put_word(uc, at, value * u64::from(!zero));
    }
}

fn hooks(uc: &mut Uc) -> Result<()> {
    uc.on_instructions(EVERYWHERE, Box::new(|uc, pc, _| step(uc, pc)))?;
    uc.on_accesses(Accesses::All, EVERYWHERE, Box::new(|uc, access| uc.data_mut().accessed(access)))?;
    uc.on_missing_data(Box::new(|uc, at| appear(uc, at)))?;
    let left = |uc: &mut Uc, at| {
        uc.data_mut().arrive(at);
        uc.data_mut().left = Some(at);
        false
    };
    uc.on_missing_code(Box::new(left))
}

/// A page where there was none.
fn appear(uc: &mut Uc<'_>, at: u64) -> bool {
    let page = at & !(PAGE - 1);
    if uc.map(page, PAGE, Holds::Code).is_err() {
        return false;
    }
    let none = Names::none();
    let watch = uc.data();
    let place = |i: u64| watch.tokens.term(page.wrapping_add(i * 8), &none, watch.sp);
    let places: Vec<Term> = (0..PAGE / 8).map(place).collect();
    remember(uc, page, PAGE, &|off| places.get((off / 8) as usize).cloned().unwrap_or_else(|| Term::number(0)));
    true
}

/// Before each instruction.
fn step(uc: &mut Uc<'_>, pc: u64) {
    let registers = uc.data().registers;
    let gpr = registers.general(uc).gpr;
    let now = gpr[usize::from(registers.abi.sp.0)];
    let watch = uc.data_mut();
    watch.wrote(gpr);
    if watch.stored.take().is_some_and(|stored| stored < now) {
        watch.below.extend(watch.steps.last());
    }
    watch.now = now;
    watch.arrive(pc);
    let inside = watch.code.ranges.iter().any(|range| range.contains(&pc));
    if !inside || (pc == watch.code.start && !watch.steps.is_empty()) {
        // What falls out of the code took no branch.
        watch.last = watch.last.or(Some(Taken { branch: Default::default(), next: pc, falls: true }));
        watch.left = Some(pc);
        uc.stop();
        return;
    }
    watch.steps.push(pc);
    if watch.code.system_calls.contains(&pc) {
        let next = pc + watch.registers.machine.system_call.bytes.len() as u64;
        watch.last = Some(Taken { branch: Branch { pushes: true, ..Branch::default() }, next, falls: false });
        watch.arrive(KERNEL);
        watch.left = Some(KERNEL);
        uc.stop();
        return;
    }
    watch.last = watch.code.branches.get(&pc).copied();
    if watch.code.by_sp.contains(&pc) && !now.is_multiple_of(watch.registers.machine.sp_access_align) {
        watch.crooked.insert(pc);
    }
    if watch.code.wide.contains(&pc) {
        watch.wide.insert(pc);
    }
    if watch.code.shadow.contains(&pc) {
        watch.shadow.insert(pc);
    }
    let code = watch.code.clone();
    let Some(table) = &code.table else { return };
    let found = table.row(pc).map(|row| {
        let cfa = row.cfa(&gpr);
        let value = |rule: crate::engine::unwind::Rule| rule.value(cfa, &gpr, |at| word(uc, at));
        let saved = registers.abi.callee_saved.iter().chain(registers.abi.link);
        let described = saved.filter(|reg| *reg != registers.abi.sp && (row.tells.contains(*reg) || !row.in_link));
        Found {
            cfa,
            returns: row.returns.map(value),
            known_column: row.known_column != Some(false),
            looked_up: row.signal,
            registers: described.map(|reg| (reg, value(row.rule(reg)))).collect(),
        }
    });
    uc.data_mut().unwinds.push(SeenUnwind { at: pc, found });
}

impl Lends for Watch {
    fn registers(&self) -> Option<Registers> {
        Some(self.registers)
    }

    fn clock(&self) -> u64 {
        let reads = self.clocks.get();
        self.clocks.set(reads + 1);
        self.clock.wrapping_add(reads)
    }

    fn accessed(uc: &mut Uc<'_>, access: Access) {
        uc.data_mut().accessed(access);
    }

    fn faulted(&mut self, _: u64, fault: &'static str) {
        self.fault = Some(fault);
    }
}

impl Watch {
    /// The instruction that runs accesses memory.
    fn accessed(&mut self, Access { at, is_write, .. }: Access) {
        if at.wrapping_sub(STACK_TOP - STACK_SIZE) < STACK_SIZE {
            self.lowest = self.lowest.min(at);
            if !is_write && at < self.now {
                self.below.extend(self.steps.last());
            } else if is_write {
                self.slots.insert(at & !7, self.steps.last().copied().unwrap_or_default());
                self.stored = Some(self.stored.map_or(at, |stored| stored.min(at)));
            }
        } else if is_write {
            self.written.insert(at & !7);
        } else {
            self.read.push(at & !7);
        }
    }

    /// The last instruction, or the function that it called, has left the registers so.
    fn wrote(&mut self, gpr: [u64; GENERAL]) {
        let at = self.steps.last().copied().unwrap_or_default();
        for (writer, (old, new)) in self.writers.iter_mut().zip(self.gpr.iter().zip(gpr)) {
            if *old != new {
                *writer = at;
            }
        }
        self.gpr = gpr;
    }

    /// The last instruction led to `pc`: does a return pair with its call?
    fn arrive(&mut self, pc: u64) {
        let Some(Taken { branch, next, .. }) = self.last else { return };
        let alone = self.returns.unpaired();
        if let Some(predicted) = self.returns.step(pc, flow::Taken { branch, next }) {
            self.mispaired.extend(self.steps.last());
            self.predicted.push(predicted);
        } else if self.returns.unpaired() > alone {
            self.beyond.push(pc);
        }
    }
}

/// The bytes of functions and variables that are defined elsewhere, but what stands for a return.
pub(super) fn outside(image: &Image, thunk: &str) -> Vec<(u64, u64)> {
    let Some(section) = image.sections.iter().find(|s| s.name == STUBS) else { return Vec::new() };
    let inside = image.symbols.iter().filter(|s| s.address.wrapping_sub(section.address) < section.size);
    inside.filter(|s| s.name != thunk).map(|s| (s.address, s.size)).collect()
}
