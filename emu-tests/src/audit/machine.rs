//! A machine that runs a function from one state after another: memory is where it looks, and what it calls returns at once.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use codegen::arch::bare::Guard;
use codegen::backend::Backend;
use codegen::words::abi::{Reg, RegSet};
use codegen::words::error::Result;
use link::{Image, PAGE, Segment};
use rustc_hash::{FxHashMap, FxHashSet};

use super::look::{KEPT_VECTOR, Look, low};
use super::never::Never;
use super::state::{CHUNK, LOWEST, State, is_given, is_stack};
use crate::engine::cpu::{EXIT, STACK_SIZE, STACK_TOP, put_word, word};
use crate::engine::emulator::Emulator;
use crate::engine::interface::{Access, Accesses, Cpu, EVERYWHERE, Holds, Saved, Trap, Why};
use crate::engine::lent::{self, Lends};
use crate::engine::load::{load_on, memory};
use crate::engine::registers::{Registers, Snapshot, VECTOR};

/// Straight pieces of code after which it is called a loop.
const BLOCKS: u32 = 6_000;
/// Calls after which it is called one too.
const CALLS: usize = 64;
/// Instructions in a piece of code, of engines that do not say where one begins.
const LENGTH: u32 = 8;
/// Where a return instruction is, by which stand-ins return where a shadow stack has their calls.
const RETURN: u64 = EXIT + 0x40;
/// Stops that are kept of a run.
const STOPS: usize = 64;
/// How often a function is given memory, and how often some of the image's zeros.
const CHUNKS: usize = 128;
const ZEROED: usize = 2048;
const ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];
/// SP at the entry, before what the psABI of the machine adds to it.
const SP: u64 = STACK_TOP - STACK_SIZE / 2;
/// Bytes around SP that have values of their own.
const ABOVE: i64 = 0x400;
const BELOW: i64 = 0x2000;
/// Bytes below SP that a called function overwrites.
const SCRIBBLED: u64 = 0x200;
/// How far what another caller has in a register is from what this one has.
const OTHER: u64 = 0x50;
/// The first half of a vector register: a floating-point number, as NaN and denormals lead to other code and set flags.
const NUMBER: f64 = 1.5;

/// Functions that do not return; those of libstdc++ that throw are more.
const ENDS: [&str; 13] = [
    "abort",
    "exit",
    "_exit",
    "__stack_chk_fail",
    "__chk_fail",
    "__assert_fail",
    "_Unwind_Resume",
    "longjmp",
    "siglongjmp",
    "__cxa_throw",
    "__cxa_rethrow",
    "__cxa_throw_bad_array_new_length",
    "_ZSt9terminatev",
];

/// What the names of functions begin with that take and return vectors, by the vector function ABI of each architecture.
const VECTOR_FUNCTION: &str = "_ZGV";

/// The function, and what is around it.
pub(super) struct Subject<'a> {
    pub backend: &'static dyn Backend,
    pub image: &'a Image,
    /// Where functions end that no person wrote.
    pub ends: &'a FxHashSet<u64>,
    /// Behind which calls nothing comes back, of compiled code.
    pub never: Option<&'a Never>,
    /// Where memory is zero until it is written.
    pub zeros: &'a [Range<u64>],
    pub registers: Registers,
    pub start: u64,
    /// Bytes of it.
    pub size: u64,
    /// What stands for functions and variables that are defined elsewhere, by address.
    pub elsewhere: Arc<FxHashMap<u64, String>>,
    pub stubs: Range<u64>,
    pub engine: Emulator,
}

/// How those that it calls treat the registers that are theirs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Callee {
    /// They change all of them.
    Hostile,
    /// They change those of results. The stack below their frames is theirs all the same: what C copies of it is no value.
    Gentle,
    /// They change all of them, and return something else.
    Other,
    /// They change those of results and this.
    One(Part),
}

/// What a function may change, and gives nobody as a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Register(Reg),
    Vector(usize),
    Flags,
}

/// A change in the midst of a run: what a call has left in a part, in a run in which it kept it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Poke {
    /// Instructions from the beginning.
    pub step: usize,
    pub part: Part,
    /// Which call has left it.
    pub call: u64,
}

/// What such a change did: before which instruction, from which value to which.
#[derive(Clone, Copy, Debug)]
pub(super) struct Poked {
    pub at: u64,
    pub was: u64,
    pub is: u64,
    /// Instructions from the beginning to where it holds something else.
    pub until: Option<usize>,
}

/// A call of something that is not in the image, or a jump to it.
#[derive(Clone, Debug)]
pub(super) struct Called {
    /// Its name, or its address.
    pub to: String,
    /// Where it returns to.
    pub back: u64,
    /// Bytes by which SP is off what the psABI wants.
    pub off: u64,
    /// It does not return.
    pub ends: bool,
    /// Registers of arguments that the function itself has written since it last called, where it looks, with the lowest 8 bits.
    pub passes: Vec<(Reg, u8)>,
}

/// How a run ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// At the return address.
    Returned,
    /// In a function that does not return.
    Ended,
    /// SP has left the stack: it switches to another one.
    Switched,
    /// Where the CPU checks a return address, which is not the one that was signed or pushed.
    Guarded,
    /// Elsewhere, for this reason: nothing is known.
    Stopped(String),
}

/// What a run did.
pub(super) struct Ran {
    pub end: End,
    pub before: Snapshot,
    pub after: Snapshot,
    /// Flags that are set though C code begins with them clear.
    pub unclear: u64,
    pub calls: Vec<Called>,
    /// What would have stopped it, and where.
    pub stops: Vec<(Guard, u64)>,
}

/// What the hooks know.
pub(super) struct Watch {
    registers: Registers,
    state: State,
    own: Range<u64>,
    stubs: Range<u64>,
    zeros: Vec<Range<u64>>,
    /// Bytes of the function that some run executed.
    covered: Vec<bool>,
    /// Pieces of it that this run executed, from byte to byte.
    pieces: FxHashSet<(usize, usize)>,
    blocks: u32,
    system_calls: u64,
    chunks: Vec<u64>,
    left: Option<u64>,
    stopped: Option<String>,
    stops: Vec<(Guard, u64)>,
    /// Pieces of code are instructions.
    by_instruction: bool,
    clocks: Cell<u64>,
    look: Option<Box<Look>>,
    /// Instructions so far, and how many there were at the end of each call, where it looks.
    steps: usize,
    returns: Vec<usize>,
    poke: Option<Poke>,
    poked: Option<Poked>,
    /// The caller has something else in these registers.
    other_caller: RegSet,
    /// Behind the straight piece of code that began last.
    last_end: u64,
}

/// The machine.
pub(super) struct Machine<'a> {
    subject: &'a Subject<'a>,
    uc: Box<Cpu<'static, Watch>>,
    /// The CPU as no run has left it.
    fresh: Saved,
    /// What is writable, as the file has it.
    data: Vec<&'a Segment>,
    /// Pieces of the function that runs executed which are known.
    known: FxHashSet<(usize, usize)>,
}

impl<'a> Machine<'a> {
    /// One that looks at each instruction, if there is something to look with.
    ///
    /// # Errors
    /// The engine does not take the image.
    pub fn new(subject: &'a Subject<'a>, look: Option<Look>) -> Result<Machine<'a>> {
        let (image, looks) = (subject.image, look.is_some());
        let watch = Watch {
            registers: subject.registers,
            state: State::new(0),
            own: subject.start..subject.start + subject.size,
            stubs: subject.stubs.clone(),
            zeros: subject.zeros.to_vec(),
            covered: vec![false; subject.size as usize],
            pieces: FxHashSet::default(),
            blocks: 0,
            system_calls: 0,
            chunks: Vec::new(),
            left: None,
            stopped: None,
            stops: Vec::new(),
            by_instruction: false,
            clocks: Cell::new(0),
            look: look.map(Box::new),
            steps: 0,
            returns: Vec::new(),
            poke: None,
            poked: None,
            other_caller: RegSet::EMPTY,
            last_end: 0,
        };
        let memory = memory(subject.backend, std::iter::once(image), subject.engine)?;
        let mut uc = load_on(subject.backend, std::iter::once(image), &memory, watch)?;
        if uc.on_blocks(Box::new(|uc, pc, size| entered(uc, pc, size))).is_err() {
            uc.data_mut().by_instruction = true;
            uc.on_instructions(EVERYWHERE, Box::new(|uc, pc, size| entered(uc, pc, size)))?;
        }
        if !uc.enforces().is_empty() {
            uc.on_guard(Box::new(|uc, guard, pc| guarded(uc, guard, pc)))?;
            uc.store(RETURN, subject.registers.machine.ret);
        }
        uc.on_missing_data(Box::new(|uc, at| appear(uc, at)))?;
        uc.on_missing_code(Box::new(|uc, at| {
            uc.data_mut().left = Some(at);
            false
        }))?;
        if looks {
            uc.on_instructions(EVERYWHERE, Box::new(|uc, pc, _| step(uc, pc)))?;
            let stack = STACK_TOP - STACK_SIZE..=STACK_TOP - 1;
            uc.on_accesses(Accesses::All, stack, Box::new(Watch::accessed))?;
        }
        // What stands for variables of others is among the functions of others.
        let changes =
            |segment: &&Segment| segment.access == link::Access::Write || subject.stubs.contains(&segment.address);
        let data: Vec<&Segment> = image.segments.iter().filter(changes).collect();
        let own = subject.start..subject.start + subject.size;
        lent::attach(&mut *uc, subject.registers.machine.lent, |at, size| image.bytes(at, size), own.clone())?;
        let call = subject.registers.machine.system_call.bytes;
        for at in own.filter(|at| !call.is_empty() && image.bytes(*at, call.len()) == Some(call)) {
            uc.on_instructions(at..=at, Box::new(|uc, pc, _| system_call(uc, pc)))?;
        }
        let fresh = uc.save()?;
        Ok(Machine { subject, uc, fresh, data, known: FxHashSet::default() })
    }

    /// Has the last run come to code where no run had been that is known?
    pub fn is_new(&self) -> bool {
        !self.uc.data().pieces.is_subset(&self.known)
    }

    /// The last run is known from now on.
    pub fn know(&mut self) {
        self.known.extend(&self.uc.data().pieces);
    }

    /// Bytes of the function that some run executed.
    pub fn covered(&self) -> usize {
        self.uc.data().covered.iter().filter(|byte| **byte).count()
    }

    /// What was seen, if it looks.
    pub fn look(&mut self) -> Option<&mut Look> {
        self.uc.data_mut().look.as_deref_mut()
    }

    /// Instructions of the last run, and how many there were at the end of each call.
    pub fn steps(&self) -> (usize, &[usize]) {
        (self.uc.data().steps, &self.uc.data().returns)
    }

    /// Run with callees that keep all that is no result, and one change.
    ///
    /// # Errors
    /// The engine does not take the state.
    pub fn poked(&mut self, number: u64, poke: Poke) -> Result<(Ran, Option<Poked>)> {
        self.uc.data_mut().poke = Some(poke);
        let ran = self.run(number, Callee::Gentle);
        self.uc.data_mut().poke = None;
        Ok((ran?, self.uc.data_mut().poked.take()))
    }

    /// Run for a caller that has something else in registers that carry no argument, but for one.
    ///
    /// # Errors
    /// The engine does not take the state.
    pub fn for_another(&mut self, number: u64, same: Option<Reg>) -> Result<Ran> {
        let same = same.into_iter().collect();
        self.uc.data_mut().other_caller = carries_nothing(self.subject.registers).minus(same);
        let ran = self.run(number, Callee::Hostile);
        self.uc.data_mut().other_caller = RegSet::EMPTY;
        ran
    }

    /// Pieces of the function that the last run executed.
    pub fn pieces(&self) -> &FxHashSet<(usize, usize)> {
        &self.uc.data().pieces
    }

    /// SP at the entry.
    fn entry_sp(&self) -> u64 {
        SP + self.subject.registers.machine.entry_sp.first().copied().unwrap_or(0)
    }

    /// Run from a state.
    ///
    /// # Errors
    /// The engine does not take the state.
    pub fn run(&mut self, number: u64, callee: Callee) -> Result<Ran> {
        self.fill(number)?;
        let registers = self.subject.registers;
        let before = registers.snapshot(&*self.uc);
        if let Some(look) = &mut self.uc.data_mut().look {
            look.begin(&before, number);
        }
        let (mut calls, mut pc) = (Vec::new(), self.subject.start);
        let enforces = !self.uc.enforces().is_empty();
        let end = loop {
            // What is on the shadow stack stays there until the function returns.
            let ran = if calls.is_empty() { self.uc.run(pc, EXIT) } else { self.uc.go_on(pc, EXIT) };
            let left = self.uc.data_mut().left.take();
            let not_code = matches!(&ran, Err(trap) if trap.why == Why::NotCode && is_given(self.uc.pc()));
            let to = left.or(not_code.then(|| self.uc.pc()));
            if let Some(why) = self.uc.data_mut().stopped.take() {
                break End::Stopped(why);
            }
            match (to, ran) {
                (None, Ok(())) if self.uc.pc() == EXIT && self.is_called() => {
                    break End::Stopped("it goes to an address that nobody gave it".to_owned());
                }
                (None, Ok(())) if self.uc.pc() == EXIT => break End::Returned,
                (None, Ok(())) => break End::Stopped("it stops".to_owned()),
                (None, Err(trap)) => break stopped(&trap),
                (Some(EXIT), _) => break End::Returned,
                (Some(to), _) => match self.called(to, calls.len() as u64, callee) {
                    Err(end) => break end,
                    Ok(called) => {
                        (pc, _) = (called.back, calls.push(called));
                        let last = calls.last().is_some_and(|called| called.ends);
                        if pc == EXIT || last {
                            break if last { End::Ended } else { End::Returned };
                        }
                        if enforces {
                            pc = RETURN;
                        }
                        if calls.len() == CALLS {
                            break End::Stopped("it calls without end".to_owned());
                        }
                    }
                },
            }
        };
        let after = registers.snapshot(&*self.uc);
        let end = if end == End::Returned && !is_stack(after[registers.abi.sp].wrapping_sub(1)) {
            End::Switched
        } else {
            end
        };
        let is_left = calls.last().is_some_and(|called| called.back == EXIT);
        let returned = (end == End::Returned).then_some(&after);
        self.look().into_iter().for_each(|look| look.end(is_left, returned));
        let unclear = registers.unclear_flags(&*self.uc);
        let stops = std::mem::take(&mut self.uc.data_mut().stops);
        Ok(Ran { end, before, after, unclear, calls, stops })
    }

    /// Has it called its return address, with its frame on the stack? That lay in the way of an index.
    fn is_called(&self) -> bool {
        let (registers, uc) = (self.subject.registers, &*self.uc);
        let sp = registers.sp(uc);
        let back = registers.abi.link.map_or_else(|| word(uc, sp), |link| registers.get(uc, link));
        back == uc.data().last_end && is_stack(sp) && sp < self.entry_sp()
    }

    /// A function of C: what may change has changed, and it returns.
    fn called(&mut self, to: u64, number: u64, callee: Callee) -> std::result::Result<Called, End> {
        let Subject { backend, registers, elsewhere, image, ends, never, .. } = self.subject;
        let (r, abi, uc) = (*registers, registers.abi, &mut *self.uc);
        let sp = r.sp(uc);
        if !(STACK_TOP - STACK_SIZE + SCRIBBLED..=STACK_TOP - 8).contains(&sp) {
            return Err(End::Switched);
        }
        let back = abi.link.map_or_else(|| word(uc, sp), |link| r.get(uc, link));
        let code = |at: u64| {
            let mut code = image.segments.iter().filter(|s| s.access == link::Access::Execute);
            code.any(|s| at.wrapping_sub(s.address) < s.mem_size)
        };
        let name = elsewhere.get(&to);
        if name.is_none() && !is_given(to) || back != EXIT && !code(back) {
            return Err(End::Stopped("it goes to an address that nobody gave it".to_owned()));
        }
        // With its own frame on the stack, it has not ended.
        if back == EXIT && sp != self.entry_sp() {
            return Err(End::Stopped("it goes on in code that is not here".to_owned()));
        }
        let uc = &mut *self.uc;
        let now = r.general(uc);
        // What functions that it calls give to others is theirs.
        let is_own = back == EXIT || uc.data().own.contains(&back.wrapping_sub(1));
        let look = uc.data().look.as_ref().filter(|_| is_own);
        let written = look.map(|look| look.calls(&now)).unwrap_or_default();
        let passes = abi.args.iter().filter(|reg| written.contains(**reg)).map(|reg| (*reg, now[*reg] as u8)).collect();
        let off = (sp + abi.return_bytes()) % u64::from(abi.sp_align);
        // Compilers put nothing behind a call that does not return.
        let ends = name.is_some_and(|n| is_end(n))
            || ends.contains(&back)
            || never.is_some_and(|never| back != EXIT && !never.comes_back(*backend, image, back));
        let state = uc.data().state.clone();
        let results = [abi.rets, abi.exit_rets].concat();
        for reg in abi.caller_saved.iter().filter(|reg| *reg != abi.sp && Some(*reg) != abi.link) {
            let result = results.iter().position(|known| *known == reg);
            match result {
                Some(0) if callee == Callee::Other => r.set(uc, reg, state.other_result(number)),
                Some(0) => r.set(uc, reg, state.result(number)),
                Some(n) => r.set(uc, reg, state.left(number, n as u64)),
                None => {}
            }
        }
        for i in abi.vector_rets {
            change(uc, Part::Vector(usize::from(*i)), number);
        }
        let is_vector = name.is_some_and(|name| name.starts_with(VECTOR_FUNCTION));
        let keeps = |part: &Part| matches!(part, Part::Vector(i) if is_vector && abi.vector_function_saved.contains(&(*i as u8)));
        for part in parts(r).filter(|part| callee.changes(*part) && !keeps(part)) {
            change(uc, part, number);
        }
        for at in (sp - SCRIBBLED..sp).step_by(8) {
            put_word(uc, at, 0x5c5c_5c5c_5c5c_5c5c);
        }
        if uc.enforces().is_empty() {
            r.set(uc, abi.sp, sp + abi.return_bytes());
        }
        let now = r.snapshot(uc);
        let watch = uc.data_mut();
        if let Some(look) = &mut watch.look {
            look.returned(&now);
        }
        watch.returns.push(watch.steps);
        Ok(Called { to: name.map_or_else(|| format!("{to:#x}"), Clone::clone), back, off, ends, passes })
    }

    /// Registers and memory of a state.
    fn fill(&mut self, number: u64) -> Result<()> {
        let state = State::new(number);
        let (r, sp) = (self.subject.registers, self.entry_sp());
        let changed = self.changed();
        let (abi, uc) = (r.abi, &mut *self.uc);
        uc.restore(&self.fresh);
        for Changed { at, was, .. } in changed {
            uc.store(at, &was);
        }
        for chunk in uc.data().chunks.clone() {
            let bytes = contents(&state, &uc.data().zeros, chunk);
            uc.store(chunk, &bytes);
        }
        for reg in (0..abi.regs.len() as u8).map(Reg).filter(|reg| Some(*reg) != abi.zero || *reg == abi.sp) {
            let argument = abi.args.iter().position(|arg| *arg == reg);
            let value = argument.map_or_else(|| state.register(reg), |n| state.argument(n as u64));
            let other = if uc.data().other_caller.contains(reg) { OTHER } else { 0 };
            r.set(uc, reg, if reg == abi.sp { sp } else { value.wrapping_add(other) });
        }
        abi.link.into_iter().for_each(|link| r.set(uc, link, EXIT));
        for thread in r.machine.threads {
            uc.write(thread.id, state.register(Reg(40))).map_err(|e| e.at(thread.name))?;
        }
        for i in 0..r.machine.vectors.len() {
            r.set_vector(uc, i, &vector(i, 0.0));
        }
        r.set_flags(uc, 0);
        r.set_control(uc)?;
        let above = abi.return_bytes() as i64;
        let stack: Vec<u8> =
            (-BELOW..ABOVE).step_by(8).flat_map(|off| state.stack(off - above).to_le_bytes()).collect();
        uc.store(sp - BELOW as u64, &stack);
        if abi.link.is_none() {
            put_word(uc, sp, EXIT);
        }
        let watch = uc.data_mut();
        (watch.blocks, watch.system_calls, watch.state) = (0, 0, state);
        watch.pieces.clear();
        (watch.left, watch.stopped, watch.poked, watch.steps) = (None, None, None, 0);
        watch.stops.clear();
        watch.returns.clear();
        watch.clocks.set(0);
        Ok(())
    }

    /// The pages of data that are not as the file has them.
    fn changed(&self) -> Vec<Changed> {
        let mut all = Vec::new();
        let mut page = [0; PAGE as usize];
        for segment in &self.data {
            for off in (0..segment.mem_size).step_by(PAGE as usize) {
                let now = &mut page[..(segment.mem_size - off).min(PAGE) as usize];
                let at = segment.address + off;
                self.uc.load(at, now);
                let was = segment.bytes.get(off as usize..).unwrap_or_default();
                let was = &was[..was.len().min(now.len())];
                let (first, rest) = now.split_at(was.len());
                if first != was || rest != &ZEROS[..rest.len()] {
                    let mut was = was.to_vec();
                    was.resize(now.len(), 0);
                    all.push(Changed { at, was, now: now.to_vec() });
                }
            }
        }
        all
    }

    /// A number that all memory outside of the stack goes into, as far as it was changed.
    pub fn memory(&self) -> u64 {
        let Watch { state, chunks, zeros, .. } = self.uc.data();
        let mut chunks = chunks.clone();
        chunks.sort_unstable();
        let given = chunks.into_iter().filter_map(|at| {
            let mut now = vec![0; CHUNK as usize];
            self.uc.load(at, &mut now);
            (now != contents(state, zeros, at)).then_some((at, now))
        });
        let mut all = 0_u64;
        for (at, bytes) in given.chain(self.changed().into_iter().map(|changed| (changed.at, changed.now))) {
            let (words, rest) = bytes.as_chunks();
            let last = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            all = words.iter().map(|word| u64::from_le_bytes(*word)).chain([last]).fold(all ^ at, mixed);
        }
        all
    }
}

impl Called {
    /// The same call? Of arguments those are compared that both were given: of others nobody knows whether they are any.
    pub fn is_like(&self, other: &Called) -> bool {
        let given = |reg| other.passes.iter().find(|(of, _)| *of == reg);
        let differs = |(reg, value): &(Reg, u8)| given(*reg).is_some_and(|(_, other)| other != value);
        let same = (&self.to, self.back, self.off, self.ends) == (&other.to, other.back, other.off, other.ends);
        same && !self.passes.iter().any(differs)
    }
}

impl Callee {
    fn changes(self, part: Part) -> bool {
        match self {
            Callee::Hostile | Callee::Other => true,
            Callee::Gentle => false,
            Callee::One(only) => only == part,
        }
    }
}

impl Part {
    pub fn name(self, r: Registers) -> &'static str {
        match self {
            Part::Register(reg) => r.abi.name(reg),
            Part::Vector(i) => r.machine.vectors.get(i).map_or("?", |vector| vector.name),
            Part::Flags => "the flags",
        }
    }

    /// Its value; of a vector register, the first 64 bits.
    fn value(self, now: &Snapshot) -> u64 {
        match self {
            Part::Register(reg) => now[reg],
            Part::Vector(i) => now.vectors.get(i).map_or(0, low),
            Part::Flags => now.flags,
        }
    }
}

/// The general registers in which C gives a function nothing.
fn carries_nothing(r: Registers) -> RegSet {
    let abi = r.abi;
    let others = RegSet::of(abi.args).union(abi.hidden).union(abi.platform).union(RegSet::of(&[abi.sp]));
    abi.callee_saved.union(abi.caller_saved).minus(others.union(abi.link.into_iter().collect()))
}

/// All that a function may change, and that holds no result.
pub(super) fn parts(r: Registers) -> impl Iterator<Item = Part> {
    let abi = r.abi;
    let results = [abi.rets, abi.exit_rets].concat();
    let registers = abi.caller_saved.iter().filter(move |reg| *reg != abi.sp && Some(*reg) != abi.link);
    let registers = registers.filter(move |reg| !results.contains(reg)).map(Part::Register);
    let vectors = (0..r.machine.vectors.len()).filter(|i| !abi.vector_rets.contains(&(*i as u8)));
    registers.chain([Part::Flags]).chain(vectors.map(Part::Vector))
}

/// What a called function leaves there.
fn change(uc: &mut Cpu<'_, Watch>, part: Part, call: u64) {
    let (r, state) = (uc.data().registers, uc.data().state.clone());
    match part {
        Part::Register(reg) => r.set(uc, reg, state.left(call, 16 + u64::from(reg.0))),
        Part::Vector(i) => {
            let mut left = vector(i, 64.0 + call as f64);
            let kept = if r.abi.vector_callee_saved.contains(&(i as u8)) { KEPT_VECTOR } else { 0 };
            let id = r.machine.vectors[i].id;
            let mut old = [0; VECTOR];
            // A register of the table exists: the engine's table is compared with ours in a test.
            let _ = uc.read_bytes(id, &mut old[..r.abi.vector_bytes]);
            left[..kept].copy_from_slice(&old[..kept]);
            r.set_vector(uc, i, &left);
        }
        Part::Flags => r.set_flags(uc, u64::MAX * (call & 1)),
    }
}

/// A page of data that a run has changed.
struct Changed {
    at: u64,
    /// What the file has there.
    was: Vec<u8>,
    now: Vec<u8>,
}

/// Why the CPU went no further.
fn stopped(trap: &Trap) -> End {
    End::Stopped(match trap.why {
        Why::Breakpoint => "it has an instruction that the emulator does not know, or a breakpoint".to_owned(),
        Why::NoMemory => "it uses an address that no memory can have".to_owned(),
        Why::NoCode | Why::NotCode => "it goes to an address that nobody gave it".to_owned(),
        Why::Guard(_) => return End::Guarded,
        Why::Other => format!("the emulator says {trap}"),
    })
}

fn mixed(all: u64, word: u64) -> u64 {
    (all.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A vector register: a floating-point number, and another bit pattern above it.
fn vector(i: usize, more: f64) -> [u8; VECTOR] {
    let mut value = [0x40; VECTOR];
    value[..8].copy_from_slice(&(NUMBER + i as f64 + more).to_le_bytes());
    value[8..].copy_from_slice(&(NUMBER + 128.0 + i as f64 + more).to_le_bytes());
    value
}

fn is_end(name: &str) -> bool {
    ENDS.contains(&name) || name.starts_with("_ZSt") && name.contains("__throw_")
}

/// Bytes after which the contents of memory begin anew.
const PERIOD: u64 = 512;

/// Memory as a state has it, or zeros.
fn contents(state: &State, zeros: &[Range<u64>], at: u64) -> Vec<u8> {
    if zeros.iter().any(|range| range.contains(&at)) {
        return vec![0; CHUNK as usize];
    }
    let words: Vec<u8> = (0..PERIOD).step_by(8).flat_map(|off| state.word(at + off).to_le_bytes()).collect();
    words.repeat((CHUNK / PERIOD) as usize)
}

/// At the beginning of each straight piece of code.
fn entered(uc: &mut Cpu<'_, Watch>, pc: u64, size: usize) {
    let watch = uc.data_mut();
    watch.blocks += 1;
    watch.last_end = pc + size as u64;
    let from = pc.wrapping_sub(watch.own.start) as usize;
    let end = from.saturating_add(size).min(watch.covered.len());
    if let Some(bytes) = watch.covered.get_mut(from..end) {
        bytes.fill(true);
        watch.pieces.insert((from, end));
    }
    if watch.stubs.contains(&pc) {
        watch.left = Some(pc);
        uc.stop();
    } else if watch.blocks > BLOCKS * if watch.by_instruction { LENGTH } else { 1 } {
        watch.stopped = Some(format!("it does not end within {BLOCKS} pieces of code"));
        uc.stop();
    }
}

/// A protection stops the CPU: it is noted, and the run goes on as without. A check of the return address would stop it again.
fn guarded(uc: &mut Cpu<'_, Watch>, guard: Guard, pc: u64) -> bool {
    let checks = matches!(guard, Guard::Checked | Guard::Signed);
    let r = uc.data().registers;
    let checked = r.abi.link.filter(|_| checks).map(|link| (r.machine.stripped)(r.get(uc, link)));
    let watch = uc.data_mut();
    let own = |at| (EXIT..EXIT + PAGE).contains(&at) || watch.own.contains(&at);
    if checked.is_some_and(|at| !own(at)) {
        watch.stopped = Some("it checks a return address out of memory, which nobody had signed or pushed".to_owned());
    } else if watch.stops.len() < STOPS && !watch.stops.contains(&(guard, pc)) {
        watch.stops.push((guard, pc));
    }
    !checks
}

/// The kernel is called, and has a result.
fn system_call(uc: &mut Cpu<'_, Watch>, pc: u64) {
    let watch = uc.data_mut();
    watch.system_calls += 1;
    let (r, state, number) = (watch.registers, watch.state.clone(), watch.system_calls);
    let call = &r.machine.system_call;
    for reg in call.lost.iter() {
        r.set(uc, reg, state.left(number, 32 + u64::from(reg.0)));
    }
    r.set(uc, r.abi.rets[0], state.of_kernel(number));
    uc.go(pc + call.bytes.len() as u64);
}

/// Before each instruction.
fn step(uc: &mut Cpu<'_, Watch>, pc: u64) {
    let r = uc.data().registers;
    let watch = uc.data_mut();
    watch.steps += 1;
    if let Some(poke) = watch.poke.filter(|poke| poke.step + 1 == watch.steps) {
        let was = poke.part.value(&r.snapshot(uc));
        change(uc, poke.part, poke.call);
        let is = poke.part.value(&r.snapshot(uc));
        uc.data_mut().poked = Some(Poked { at: pc, was, is, until: None });
    }
    let now = r.snapshot(uc);
    let watch = uc.data_mut();
    if let (Some(poke), Some(poked)) = (watch.poke, &mut watch.poked)
        && poked.until.is_none()
        && poke.part.value(&now) != poked.is
    {
        poked.until = Some(watch.steps - 1);
    }
    let Some(mut look) = uc.data_mut().look.take() else { return };
    look.step(pc, &now, |at| word(uc, at));
    uc.data_mut().look = Some(look);
}

/// Memory where there was none.
fn appear(uc: &mut Cpu<'_, Watch>, at: u64) -> bool {
    let chunk = at & !(CHUNK - 1);
    let watch = uc.data_mut();
    if at < LOWEST {
        watch.stopped = Some("it uses a number as a pointer".to_owned());
        return false;
    }
    let is_zero = |at: u64| watch.zeros.iter().any(|range| range.contains(&at));
    let most = if is_zero(chunk) { ZEROED } else { CHUNKS };
    if watch.chunks.iter().filter(|other| is_zero(**other) == is_zero(chunk)).count() >= most {
        watch.stopped = Some(format!("it uses more than {} KiB of memory", (CHUNKS as u64 * CHUNK) >> 10));
        return false;
    }
    let bytes = contents(&watch.state, &watch.zeros, chunk);
    if uc.map(chunk, CHUNK, Holds::Data).is_err() {
        uc.data_mut().stopped = Some("it uses an address that no memory can have".to_owned());
        return false;
    }
    uc.data_mut().chunks.push(chunk);
    uc.store(chunk, &bytes)
}

impl Lends for Watch {
    fn registers(&self) -> Option<Registers> {
        Some(self.registers)
    }

    fn clock(&self) -> u64 {
        self.clocks.set(self.clocks.get() + 1);
        self.clocks.get()
    }

    fn accessed(uc: &mut Cpu<'_, Self>, access: Access) {
        if let Some(look) = &mut uc.data_mut().look {
            look.accessed(access);
        }
    }

    fn faulted(&mut self, _: u64, fault: &'static str) {
        self.stopped = Some(fault.to_owned());
    }
}
