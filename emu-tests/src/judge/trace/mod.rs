//! What happens while a function runs: the site, the callback, the resumption, each checked where it happens.
//!
//! The boundaries are those of `bug-corpus.md`, section 0: T0 the patched instruction, T1 the callback's first
//! instruction, T3 the resumption, T4 the traced function's return, T5 the exit callback, T6 the parent.

mod around;
mod boundaries;
mod boundary;
mod branching;
mod cells;
mod compare;
mod enforced;
mod finding;
mod given;
mod left;
mod memory;
mod records;
mod stack;
mod state;
mod unwinding;
mod world;

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use codegen::arch::bare::Guard;
use codegen::arch::site::Site;
use codegen::ask::spec::Kind;
use codegen::contract::Contract;
use codegen::contract::demand::{Demand, Moment};
use codegen::profile::Convention;
use codegen::words::abi::Reg;
use codegen::words::error::Result;

pub(crate) use cells::{Cell, Cells, Mark, Region};
use finding::Checks;
pub(crate) use finding::{At, Culprit, Fate, Finding, Value, WAYS};
pub(crate) use left::Left;
pub(crate) use memory::{accessed, stored_elsewhere};
pub(crate) use state::Suspended;
use state::{Activation, State};

use crate::engine::cpu::{EXIT, SPARSE_BACK, SPARSE_DIRECT, SPARSE_JUMP, SPARSE_LIVEPATCH, SPARSE_OTHER, words};
use crate::engine::flow::Taken;
use crate::engine::interface::{Cpu, Late};
use crate::engine::memory::Memory;
use crate::engine::registers::{Registers, Snapshot};
use crate::engine::unwind::Table;
use crate::report::Clause;
use crate::report::place::Place;
use crate::run::block::Before;
use crate::run::case::{Case, Handler};

/// Instructions after which a run is called a loop.
const BUDGET: u64 = 40_000;

/// Sites that a run reaches without end: no function of `functions.c` leads to half as many.
const ENDLESS: u32 = 16;

/// Instructions that a diagnosis keeps, and words of the stack for each: the memory of a run that goes astray is bounded.
const STEPS: usize = 8192;
const STORED: usize = 256;

/// Trampolines that can be told apart in one image: one bit each of those that were entered.
pub(crate) const MOST: usize = u64::BITS as usize;

/// The engine with what its hooks work on. It is taken out while a check uses the engine itself.
pub(crate) type Uc<'a> = Cpu<'a, Option<Box<Trace>>>;

/// A place that the trampolines are told to go to.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Goal {
    /// Where it begins.
    pub at: u64,
    /// The address by which they are told.
    pub named: u64,
}

/// Addresses that the checks need.
#[derive(Clone, Default, Debug)]
pub(crate) struct Places {
    pub op: u64,
    /// The trampoline that a hooked return goes to.
    pub exit: u64,
    /// The trampoline that the case is about.
    pub attached: u64,
    /// The direct trampoline that a callback or op may choose.
    pub direct: Goal,
    /// Where a redirected function goes on.
    pub livepatch: Goal,
}

/// Data of the hooks.
#[derive(Default)]
pub(crate) struct Trace {
    pub registers: Option<Registers>,
    pub convention: Option<&'static Convention>,
    pub contracts: Vec<Rc<Contract>>,
    /// What each contract demands of calls, once it is asked for: most engines run few of their trampolines.
    pub demands: Vec<OnceCell<Rc<[Demand]>>>,
    /// Where the functions begin that each trampoline calls by name; 0 if its contract names none.
    pub callees: Vec<Vec<u64>>,
    /// What each trampoline gives the functions that it calls around programs, where its contract says it.
    pub arguments: Vec<Vec<Option<u64>>>,
    /// What is known of each byte of the image.
    pub cells: Cells,
    /// The engine's memory.
    pub memory: Option<Rc<Memory>>,
    pub places: Places,
    /// The entry trampoline, if a site may go to another one through it.
    pub through: Option<usize>,
    pub case: Arc<Case>,
    /// The flags that the run begins with, if its registers are those of the case.
    pub loaded: Option<u64>,
    /// Where the variable with the time is.
    pub clock: Option<u64>,
    /// Symbols of memory whose words contracts state, with their addresses.
    pub named: Vec<(String, u64)>,
    /// The block as it is when the run begins.
    pub before: Before,
    /// What callbacks overwrite the stack below them with.
    pub garbage: Vec<u8>,
    /// Room for the frame of a callback.
    pub frame: Vec<u8>,
    /// What the unwind table says.
    pub table: Option<Rc<Table>>,
    pub enabled: bool,
    /// What the engine enforces.
    pub enforced: &'static [Guard],
    /// Accesses to the stack are seen.
    pub watched: bool,
    /// What it calls has to do something even where nothing is checked: nothing would go on without.
    pub helped: bool,
    /// A trampoline may lose vector registers or control words.
    pub lets_go: bool,
    pub state: State,
    pub checks: Checks,
    /// Set where two trampolines are compared: what this one leaves to others.
    pub left: Option<Left>,
    /// Set for a diagnosis: instructions in a trampoline, and those that a trampoline goes to; the first [`STEPS`].
    pub recording: Option<Vec<Step>>,
}

/// The CPU before an instruction, for a diagnosis.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub pc: u64,
    /// True if the instruction belongs to a trampoline.
    pub inside: bool,
    pub registers: Snapshot,
    /// What was written above SP.
    pub stack: Vec<Stored>,
}

/// A word of the stack, and the instruction that stored to it last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    pub at: u64,
    pub value: u64,
    pub writer: u64,
}

/// How control came to an instruction.
struct Arrival {
    /// By this branch of a trampoline.
    by: Option<Taken>,
    from: Region,
    to: Region,
    /// What the instruction is, besides.
    marks: Mark,
}

/// The CPU before an instruction.
struct Here<'h, 'u> {
    uc: &'h mut Uc<'u>,
    registers: Registers,
    site: &'static Site,
    pc: u64,
    /// The address by which control came to `pc`.
    came_by: u64,
    memory: Option<Rc<Memory>>,
}

impl Here<'_, '_> {
    fn get(&self, reg: Reg) -> u64 {
        self.registers.get(self.uc, reg)
    }

    fn set(&mut self, reg: Reg, value: u64) {
        self.registers.set(self.uc, reg, value);
    }

    fn sp(&self) -> u64 {
        self.registers.sp(self.uc)
    }

    /// An argument of the function that begins here.
    fn arg(&self, i: usize) -> u64 {
        self.get(self.registers.abi.args[i])
    }

    /// Read memory; false if there is none, or not so much.
    fn read(&self, at: u64, to: &mut [u8]) -> bool {
        self.memory.as_deref().is_some_and(|memory| memory.read(at, to)) || self.uc.load(at, to)
    }

    /// Write memory; false if there is none, or not so much.
    fn write(&mut self, at: u64, bytes: &[u8]) -> bool {
        self.memory.as_deref().is_some_and(|memory| memory.write(at, bytes)) || self.uc.store(at, bytes)
    }

    /// A word of memory; zero where there is none.
    fn word(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        if self.read(at, &mut bytes) { u64::from_le_bytes(bytes) } else { 0 }
    }

    /// Two words that follow each other, in one read where both have memory.
    fn two_words(&self, at: u64) -> [u64; 2] {
        let mut bytes = [[0; 8]; 2];
        match self.read(at, bytes.as_flattened_mut()) {
            true => bytes.map(u64::from_le_bytes),
            false => [self.word(at), self.word(at.wrapping_add(8))],
        }
    }

    fn words(&self, at: u64, bytes: usize) -> Vec<u64> {
        words(self.uc, at, bytes)
    }

    fn put_word(&mut self, at: u64, value: u64) -> bool {
        self.write(at, &value.to_le_bytes())
    }

    fn snapshot(&self) -> Snapshot {
        self.registers.snapshot(self.uc)
    }

    /// The ip that handlers are told, of a function that goes on at `resume`.
    fn ip(&self, resume: u64) -> u64 {
        resume.wrapping_sub(self.site.ip_offset as u64)
    }

    /// Where the function that begins here, or goes on with this SP, returns to.
    fn parent(&self, sp: u64) -> u64 {
        match self.registers.abi.link {
            Some(link) => self.get(link),
            None => self.word(sp),
        }
    }
}

impl Trace {
    /// For an image with these trampolines.
    pub fn of(contracts: &[Contract]) -> Trace {
        let checks = Checks::of(contracts.len());
        let lets_go = contracts.iter().any(|c| c.vectors_lost != 0 || c.control_lost != 0);
        let demands = vec![OnceCell::new(); contracts.len()];
        let contracts = contracts.iter().cloned().map(Rc::new).collect();
        Trace { contracts, demands, checks, lets_go, ..Trace::default() }
    }

    /// Forget the last run, keep what was counted.
    pub fn begin(&mut self, case: &Arc<Case>, enabled: bool) {
        self.case = Arc::clone(case);
        self.enabled = enabled;
        let helps = |kind: Kind| kind.is_shadow() || kind.recorder().is_some_and(|recorder| recorder.refill);
        self.helped = self.kind(case.attach).is_some_and(helps);
        self.state.begin(BUDGET);
        self.state.untouched = case.handler == Handler::General && !self.lets_go;
        self.checks.way = None;
    }

    /// Set how far the next run may go: one instruction if `one`, else a whole case.
    pub fn step(&mut self, one: bool) {
        (self.state.budget, self.state.one) = (if one { 2 } else { BUDGET }, one);
    }

    /// The last instruction that ran.
    pub fn last(&self) -> u64 {
        self.state.pc
    }

    /// Let so many instructions run.
    pub fn steps(&mut self, count: u64) {
        (self.state.budget, self.state.one) = (count + 1, true);
    }

    /// Look at the innermost site, and at everything else too: it is taken out meanwhile.
    fn beside_site(&mut self, look: impl FnOnce(&mut Trace, &Activation)) {
        let activations = std::mem::take(&mut self.state.activations);
        if let Some(a) = activations.last() {
            look(self, a);
        }
        self.state.activations = activations;
    }

    /// The trampoline at work, or else the one that the case is about.
    fn trampoline(&self) -> usize {
        self.state.trampoline().unwrap_or(self.case.attach)
    }

    /// Its contract.
    fn contract(&self) -> Option<Rc<Contract>> {
        self.contracts.get(self.trampoline()).cloned()
    }

    /// What its contract demands of calls.
    fn demanded(&self) -> Rc<[Demand]> {
        let index = self.trampoline();
        let (Some(known), Some(contract)) = (self.demands.get(index), self.contracts.get(index)) else {
            return Rc::default();
        };
        let at_calls = |demand: &Demand| matches!(demand.moment, Moment::Call(_));
        let all = known.get_or_init(|| contract.demands().into_iter().filter(at_calls).collect());
        Rc::clone(all)
    }

    /// What a trampoline does.
    fn kind(&self, index: usize) -> Option<Kind> {
        self.contracts.get(index).map(|c| c.kind)
    }

    /// Does the trampoline at work call the traced function?
    fn calls_body(&self) -> bool {
        self.kind(self.trampoline()).is_some_and(Kind::calls_body)
    }

    /// The same, in this situation.
    fn runs_body(&self) -> bool {
        self.calls_body() && !self.case.situation.untraced()
    }

    /// Does the site jump to the trampoline at work?
    fn jumped_to(&self) -> bool {
        self.kind(self.trampoline()).is_some_and(Kind::jumped_to)
    }

    /// A clause of the trampoline at work.
    fn at(&self, clause: Clause, pc: u64) -> At {
        At { clause, trampoline: self.trampoline(), pc }
    }

    /// Fail without a check that is counted.
    fn fail(&mut self, at: At, place: impl Into<Place>, expected: u64, found: u64) {
        self.checks.fail(Finding::new(at, place, expected, found));
    }

    #[inline]
    fn check(&mut self, at: At, place: impl Into<Place>, expected: impl Into<Value>, found: impl Into<Value>) {
        self.checks.check(at, place, expected, found);
    }

    /// The run ended without reaching the exit. The first reason is the cause of what follows.
    pub fn stopped(&mut self, pc: u64, why: Place) {
        if !std::mem::replace(&mut self.state.stopped, true) {
            self.fail(self.at(Clause::P9, pc), why, EXIT, pc);
        }
    }

    /// The run went where no code is.
    pub fn astray(&mut self, to: u64) {
        let behind = self.state.taken.map_or(to, |branch| branch.next);
        let finding = Finding::new(self.at(Clause::P9, behind), Place::UnmappedBranch, EXIT, to);
        self.checks.fail(Finding { by: Culprit::Before(behind), ..finding });
    }

    /// The run reached the exit page.
    pub fn finished(&mut self, uc: &mut Uc) {
        let (Some(registers), Some(site)) = (self.registers, self.convention.map(|c| &c.site)) else { return };
        if !self.enabled {
            return;
        }
        self.went_on();
        if self.state.ended {
            self.state.activations.clear();
            self.state.go_on();
        }
        if self.state.trampoline().is_some() {
            let here = &mut Here { uc, registers, site, pc: EXIT, came_by: EXIT, memory: self.memory.clone() };
            let (by, from) = (self.state.taken.take(), self.state.region);
            self.arrived(here, &Arrival { by, from, to: Region::Elsewhere, marks: Mark::NONE });
            self.resumed(here);
        }
        self.check_recorded(uc);
        let State { activations, hooked, pending, .. } = &self.state;
        let (entered, untold) = (activations.len() as u64, (hooked.len() + pending.len()) as u64);
        self.check(self.at(Clause::P9, EXIT), Place::SitesEntered, 0, entered);
        self.check(self.at(Clause::P9, EXIT), Place::ReturnsUntold, 0, untold);
    }
}

/// Look at what protects branches and returns, where the engine enforces it.
pub(crate) fn guard(uc: &mut Uc) -> Result<()> {
    let enforced = uc.enforces();
    if enforced.is_empty() {
        return Ok(());
    }
    uc.data_mut().get_or_insert_default().enforced = enforced;
    uc.on_guard(Box::new(|uc, guard, pc| uc.data_mut().as_deref_mut().is_none_or(|t| t.guarded(guard, pc))))
}

/// The hook on every instruction.
pub(crate) fn instruction(uc: &mut Uc, pc: u64) {
    let Some(t) = uc.data_mut().as_deref_mut() else { return };
    let state = &mut t.state;
    if state.budget > 1
        && let Some(cell) = t.cells.get_mut(pc)
    {
        // Where nothing can happen: in the middle of code that nothing is asked about.
        if cell.plain() && state.quiet == Some(cell.region) {
            state.budget -= 1;
            state.pc = pc;
            cell.visited = true;
            return;
        }
    }
    noted(uc, pc);
}

/// The same, where something can happen. Not part of the hook: few instructions get here, and all would save its registers.
#[inline(never)]
fn noted(uc: &mut Uc, pc: u64) {
    look(uc, pc);
    let Some(t) = uc.data_mut().as_deref_mut() else { return };
    t.state.rest(t.case.closely || t.recording.is_some());
}

/// The hook on every instruction of an engine to which a call costs much: it is told of what nothing is asked.
pub(crate) fn distant_instruction(uc: &mut Uc, pc: u64) {
    instruction(uc, pc);
    if !uc.can_tell_late() {
        return;
    }
    let Some(t) = uc.data().as_deref() else { return };
    if let Some(region) = t.state.quiet {
        let (at, last) = t.cells.plain_around(pc, region);
        uc.tell_late(Late { at, last, most: t.state.budget.saturating_sub(1) });
    }
}

fn look(uc: &mut Uc, pc: u64) {
    let Some(t) = uc.data_mut().as_deref_mut() else { return };
    let state = &mut t.state;
    state.budget = state.budget.saturating_sub(1);
    if state.budget == 0 {
        if !state.one {
            t.stopped(pc, Place::Loop);
        }
        uc.stop();
        return;
    }
    let Some(cell) = t.cells.get_mut(pc) else {
        match pc {
            SPARSE_DIRECT | SPARSE_LIVEPATCH => go_through(uc, pc),
            SPARSE_JUMP => stand_in(uc, pc, Trace::direct_jump),
            SPARSE_BACK => stand_in(uc, pc, Trace::stub_returned),
            SPARSE_OTHER => stand_in(uc, pc, Trace::other_goes_on),
            _ => {}
        }
        return;
    };
    state.pc = pc;
    cell.visited = true;
    let came_by = state.came_by.take().unwrap_or(pc);
    let marks = cell.marks;
    let to = match (cell.region, state.trampoline()) {
        (Region::Shared, Some(index)) => Region::Trampoline(index as u8),
        (Region::Shared, None) => Region::Elsewhere,
        (region, _) => region,
    };
    let taken = cell.branch.map(|(branch, size)| Taken { branch, next: pc + u64::from(size) });
    let by_sp = cell.by_sp && t.enabled && t.watched;
    let by = std::mem::replace(&mut state.taken, taken);
    let from = std::mem::replace(&mut state.region, to);
    let inside = to.trampoline().is_some();
    let event = (state.trampoline().is_some() && to == Region::Function)
        || (t.enabled && by.is_some())
        || ((t.enabled || t.helped) && marks != Mark::NONE)
        || (inside && (to != from || t.case.closely || t.recording.is_some()));
    let registers = t.registers;
    if let (Some(lowest), Some(registers)) = (state.stack.lowest.take(), registers) {
        let sp = registers.sp(uc);
        if let Some(t) = uc.data_mut() {
            t.check_store(lowest, sp, pc);
        }
    }
    if by_sp
        && let Some(sp) = registers.map(|r| r.sp(uc))
        && let Some(t) = uc.data_mut()
    {
        t.check_access_by_sp(sp, pc);
    }
    if event && let Some(mut trace) = uc.data_mut().take() {
        if let (Some(registers), Some(site)) = (trace.registers, trace.convention.map(|c| &c.site)) {
            let memory = trace.memory.clone();
            trace.event(&mut Here { uc, registers, site, pc, came_by, memory }, &Arrival { by, from, to, marks });
        }
        *uc.data_mut() = Some(trace);
    }
}

/// At an address that stands for another: the run goes on there.
fn go_through(uc: &mut Uc, pc: u64) {
    let Some(t) = uc.data_mut() else { return };
    let goal = [t.places.direct, t.places.livepatch].into_iter().find(|goal| goal.named == pc && goal.at != 0);
    match goal {
        // Nothing but what stands for a direct trampoline is there.
        Some(goal) if goal.at == pc => stand_in(uc, pc, Trace::direct_call),
        Some(goal) => {
            t.state.came_by = Some(pc);
            uc.go(goal.at);
        }
        None => uc.stop(),
    }
}

/// At what stands for code that nobody gave: `does` is what that would do, and says where the run goes on, if that is known.
fn stand_in(uc: &mut Uc, pc: u64, does: fn(&mut Trace, &mut Here) -> Option<u64>) {
    let Some(mut t) = uc.data_mut().take() else { return };
    let mut goes_on = None;
    if let (Some(registers), Some(site)) = (t.registers, t.convention.map(|c| &c.site)) {
        let memory = t.memory.clone();
        goes_on = does(&mut t, &mut Here { uc, registers, site, pc, came_by: pc, memory });
    }
    *uc.data_mut() = Some(t);
    match goes_on {
        Some(there) => uc.go(there),
        None => uc.stop(),
    }
}

impl Trace {
    fn event(&mut self, here: &mut Here, arrival: &Arrival) {
        let &Arrival { from, to, marks, .. } = arrival;
        let inside = to.trampoline().is_some();
        if let (true, Some(recording)) = (inside || from.trampoline().is_some(), &mut self.recording)
            && recording.len() < STEPS
        {
            let written = self.checks.writers.iter().flat_map(|writers| writers.range(here.sp()..));
            let stored = |(&at, &writer): (&u64, &u64)| Stored { at, value: here.word(at), writer };
            let stack = written.take(STORED).map(stored).collect();
            recording.push(Step { pc: here.pc, inside, registers: here.snapshot(), stack });
        }
        if !self.enabled {
            if self.helped {
                self.help(here, marks);
            }
            return;
        }
        self.arrived(here, arrival);
        if to == Region::Function && from != Region::Function && self.state.trampoline().is_some() {
            self.resumed(here);
        }
        if to == Region::Function && marks.has(Mark::SITE) {
            self.at_site(here);
        }
        if let Some(index) = to.trampoline() {
            self.in_trampoline(here, arrival, index);
        }
        if marks != Mark::NONE && self.state.trampoline().is_some() {
            self.called(here, marks);
        }
        if marks.has(Mark::COPIES) && self.state.trampoline().is_some() {
            // What they do is compared with what the instructions did, in runs of their own.
            here.uc.go(EXIT);
        }
    }

    /// At an instruction of a trampoline.
    fn in_trampoline(&mut self, here: &mut Here, arrival: &Arrival, index: usize) {
        if self.through == Some(index) {
            // On the way to the one that the site is for, with everything as the site left it.
            return;
        }
        let moved = arrival.to != arrival.from;
        let index = if arrival.marks.has(Mark::ENTRY) { index } else { self.shared_with(index) };
        if self.state.exiting().is_some() && here.pc == self.places.exit {
            // A tail call was hooked too: its parent is the exit trampoline once more.
            self.parent_resumed(here);
            self.enter(here, index, arrival.marks);
        } else if moved && self.state.trampoline() != Some(index) {
            self.enter(here, index, arrival.marks);
        }
        if moved && arrival.marks.has(Mark::ENTRY) {
            self.check_entry(here, index);
            self.redirect_site(here);
        }
        if moved && self.calls_stub() {
            self.check_unwind_of_stub(here, index);
        }
        if self.case.closely && self.state.trampoline().is_some() {
            self.interrupt(here);
        }
        if self.case.closely && self.state.trampoline() == Some(index) && !self.calls_stub() {
            self.check_unwind(here);
        }
    }

    /// The trampoline whose code this is: a boundary at work may go on in the middle of another one.
    fn shared_with(&self, index: usize) -> usize {
        let working = self.state.trampoline();
        working.filter(|at_work| self.kind(*at_work).is_some_and(Kind::is_boundary)).unwrap_or(index)
    }

    /// A trampoline called what begins here.
    fn called(&mut self, here: &mut Here, marks: Mark) {
        if marks.has(Mark::PROGRAM)
            && let Some(programs) = self.kind(self.trampoline()).and_then(Kind::programs)
        {
            self.program(here, &programs);
            return;
        }
        if marks.has(Mark::AROUND) {
            self.around(here);
            return;
        }
        if marks.has(Mark::SYSTEM_CALL) {
            self.system_call(here);
            return;
        }
        if marks.has(Mark::CALLED) && self.kind(self.trampoline()) == Some(Kind::Switch) {
            self.fresh_context(here, marks);
            return;
        }
        match marks.only(Mark::CALLED) {
            Mark::CALLBACK => self.callback(here),
            Mark::EXIT_HANDLER => self.exit_handler(here),
            Mark::DIRECT_FUNC => self.direct_func(here),
            _ => {}
        }
    }
}
