//! P16 of displaced instructions: their copies do what they did. Both run from the same registers and memory, as far from each other as
//! they are, and what they leave is compared: registers, flags, memory, the pages that they read, and where they go on.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use codegen::contract::stated::{Displaced, Next};
use codegen::words::abi::Reg;
use codegen::words::error::Result;
use link::PAGE;

use crate::engine::interface::{Access, Accesses, Cpu, EVERYWHERE, Holds, Saved, Why};
use crate::engine::lent::{self, Lends};
use crate::engine::load::engine;
use crate::engine::registers::{Registers, Snapshot, VECTOR};
use crate::engine::rng::Rng;
use crate::judge::rig::Rig;
use crate::judge::tally::Tally;
use crate::judge::trace::{At, Finding};
use crate::report::Clause;
use crate::report::place::Place;
use crate::run::case::Case;

/// States of registers from which both run, and of how many the CPU must not refuse what stood there.
const STATES: u64 = 256;
const LEAST: u64 = 4;
/// Instructions of one run: what repeats itself by a register may have no end.
const MOST_STEPS: usize = 4096;
/// Pages that all runs may need.
const MOST_PAGES: usize = 512;
/// Engines without page tables do not run code from here on. There, both are moved down alike.
const HIGH: u64 = 1 << 47;
const HERE: u64 = 0x80 << 32;
/// Data has these addresses: low ones, and sign-extended ones as x86-64's engine cuts them. At others, arm64's wraps around.
const DATA: [Range<u64>; 2] = [0..1 << 42, (1 << 52) - (1 << 32)..1 << 52];

/// Judge the copies of each trampoline that has some.
///
/// # Errors
/// The engine does not take the code.
pub(crate) fn judge_copies(rig: &Rig, case: &Arc<Case>, tally: &mut Tally) -> Result<()> {
    for (trampoline, contract) in rig.suite.contracts.iter().enumerate() {
        let Some(displaced) = &contract.stated.displaced else { continue };
        let Next::Copies(bytes) = contract.stated.next else { continue };
        let at = At { clause: Clause::P16, trampoline, pc: rig.ranges[trampoline].0.wrapping_add(bytes) };
        let mut machine = Machine::new(rig, displaced)?;
        let (mut ran, mut good) = (0, true);
        for number in 0..STATES {
            let state = machine.state(rig.seed, number);
            let before = machine.run(&state, Which::Instructions);
            // If a CPU refuses the instructions themselves, their copies need not run either.
            let Some(left) = before.left else { continue };
            ran += 1;
            let after = machine.run(&state, Which::Copies);
            let findings = machine.compared((&before, left), &after, at);
            good = findings.iter().all(|finding| finding.expected == finding.found);
            findings.into_iter().for_each(|finding| tally.judged(case, finding));
            if !good {
                break;
            }
        }
        if good {
            tally.judged(case, Finding::new(at, Place::CopiesRan, LEAST, LEAST.min(ran)));
        }
    }
    Ok(())
}

/// What runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Copies,
    Instructions,
}

/// What hooks see of a run.
struct Watch {
    registers: Registers,
    /// The run is over where an instruction is not in the first, or is in the second.
    inside: Range<u64>,
    outside: Range<u64>,
    /// The last instruction.
    last: u64,
    /// Where it went from there.
    left: Option<u64>,
    /// All pages that there are, and what is code of them.
    pages: BTreeSet<u64>,
    code: BTreeSet<u64>,
    /// Pages of data that were read, and pages that were written.
    read: BTreeSet<u64>,
    dirty: BTreeSet<u64>,
}

/// What a run has left.
struct Ran {
    /// The address at which it went on; `None` if it did not get there.
    left: Option<u64>,
    registers: Snapshot,
    read: BTreeSet<u64>,
    /// The pages that it wrote.
    memory: BTreeMap<u64, Vec<u8>>,
}

/// An engine with both.
struct Machine<'d> {
    displaced: &'d Displaced,
    registers: Registers,
    uc: Box<Cpu<'static, Watch>>,
    fresh: Saved,
    /// The address here of the copies, and of the instructions.
    places: [u64; 2],
    /// From here to where they are.
    away: u64,
}

impl<'d> Machine<'d> {
    fn new(rig: &Rig, displaced: &'d Displaced) -> Result<Machine<'d>> {
        let registers = rig.registers;
        let high = displaced.copied_to.max(displaced.at) >= HIGH;
        let lower = displaced.copied_to.min(displaced.at) & !u64::from(u32::MAX);
        let away = if high { lower.wrapping_sub(HERE) } else { 0 };
        let places = [displaced.copied_to, displaced.at].map(|at| at.wrapping_sub(away));
        let watch = Watch {
            registers,
            inside: 0..0,
            outside: 0..0,
            last: 0,
            left: None,
            pages: BTreeSet::new(),
            code: BTreeSet::new(),
            read: BTreeSet::new(),
            dirty: BTreeSet::new(),
        };
        let uc = engine(rig.suite.backend, watch)?;
        let fresh = uc.save()?;
        let mut machine = Machine { displaced, registers, uc, fresh, places, away };
        machine.put_code()?;
        machine.hook()?;
        registers.set_control(&mut *machine.uc)?;
        machine.fresh = machine.uc.save()?;
        Ok(machine)
    }

    fn code(&self) -> [(u64, &'d [u8]); 2] {
        let [copies, instructions] = self.places;
        [(copies, self.displaced.copies.as_slice()), (instructions, &self.displaced.instructions)]
    }

    /// Have pages for the code, and the next ones: the engine may look further than it runs.
    fn put_code(&mut self) -> Result<()> {
        for page in self.code().into_iter().flat_map(|(at, bytes)| pages(at, bytes.len() + PAGE as usize)) {
            if self.uc.data_mut().pages.insert(page) {
                self.uc.map(page, PAGE, Holds::Code)?;
                self.uc.data_mut().code.insert(page);
                self.uc.store(page, &contents(page));
            }
        }
        for (at, bytes) in self.code() {
            self.uc.store(at, bytes);
        }
        Ok(())
    }

    fn hook(&mut self) -> Result<()> {
        let uc = &mut self.uc;
        uc.on_missing_data(Box::new(appear))?;
        uc.on_missing_code(Box::new(|uc, at| {
            uc.data_mut().left = Some(at);
            false
        }))?;
        uc.on_instructions(EVERYWHERE, Box::new(|uc, pc, _| stepped(uc, pc)))?;
        uc.on_accesses(Accesses::All, EVERYWHERE, Box::new(Watch::accessed))?;
        let lent = self.registers.machine.lent;
        for (at, bytes) in self.code() {
            let part = |from: u64, size: usize| bytes.get(from.wrapping_sub(at) as usize..)?.get(..size);
            lent::attach(&mut *self.uc, lent, part, at..at + bytes.len() as u64)?;
        }
        Ok(())
    }

    /// Registers that lead to memory far from each other, or all to the same; numbers; and some of each.
    fn state(&self, seed: u64, number: u64) -> Snapshot {
        /// The last with which something is different, and those behind them.
        const EDGES: [u64; 12] =
            [0, 1, 2, 7, 8, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1 << 63, !(1 << 63), u64::MAX, 1 << 40];
        let mut rng = Rng::new(seed ^ number, 0x701);
        let (far, near) = (|n: u8, r: u64| (u64::from(n) + 1) << 32 | 0x400 | r & 0x3ff, |r: u64| 1 << 32 | r & 0x3f);
        let value = |r: u64| match r % 5 {
            0 | 1 => r >> 8 & 0xf,
            2 => EDGES[(r >> 8) as usize % EDGES.len()],
            _ => r,
        };
        let mut state = Snapshot { flags: rng.next(), ..Snapshot::default() };
        for n in 0..self.registers.abi.regs.len() as u8 {
            let (r, aligned) = (rng.next(), rng.next() & !7);
            state[Reg(n)] = match number % 8 {
                0 => far(n, aligned),
                1 => near(aligned),
                2 => far(n, r),
                3 => value(r),
                4 if r & 1 == 0 => near(aligned),
                _ if r & 1 == 0 => far(n, aligned),
                _ => value(r >> 1),
            };
        }
        state[self.registers.abi.sp] = far(self.registers.abi.sp.0, rng.next() & !15);
        state.vectors.iter_mut().for_each(|vector| *vector = rng.vector());
        state
    }

    /// Run from the first instruction until it is left, or until the breakpoint that ends it.
    fn run(&mut self, state: &Snapshot, which: Which) -> Ran {
        loop {
            let known = self.uc.data().pages.len();
            let ran = self.run_once(state, which);
            // Where memory appears in the middle of a run, Unicorn may lose flags: its lazy ones are not those of the instruction.
            if self.uc.data().pages.len() == known {
                return ran;
            }
        }
    }

    fn run_once(&mut self, state: &Snapshot, which: Which) -> Ran {
        let [copies, instructions] = self.code().map(|(at, bytes)| at..at + bytes.len() as u64);
        let watch = self.uc.data_mut();
        (watch.inside, watch.outside) = match which {
            Which::Copies => (copies, instructions),
            Which::Instructions => (instructions, 0..0),
        };
        let from = watch.inside.start;
        (watch.left, watch.last) = (None, from);
        watch.read.clear();
        self.clean();
        self.uc.restore(&self.fresh);
        self.registers.load(&mut *self.uc, state);
        let vectors = 0..self.registers.machine.vectors.len();
        vectors.for_each(|i| self.registers.set_vector(&mut *self.uc, i, &state.vectors[i]));
        let trapped = self.uc.run_at_most(from, u64::MAX, MOST_STEPS).is_err_and(|trap| trap.why == Why::Breakpoint);
        let Watch { left, last, .. } = *self.uc.data();
        let left = match which {
            Which::Copies if !self.displaced.breakpoint.is_empty() => {
                self.behind(last).filter(|_| trapped && left.is_none())
            }
            _ => left.map(|left| left.wrapping_add(self.away)),
        };
        let page = |at: &u64| {
            let mut bytes = vec![0; PAGE as usize];
            self.uc.load(*at, &mut bytes);
            (*at, bytes)
        };
        Ran {
            left,
            registers: self.registers.snapshot(&*self.uc),
            read: self.uc.data().read.clone(),
            memory: self.uc.data().dirty.iter().map(page).collect(),
        }
    }

    /// Where a kernel goes on behind the breakpoint at this address, if it is the kernel's.
    fn behind(&self, breakpoint: u64) -> Option<u64> {
        let offset = breakpoint.wrapping_sub(self.places[0]);
        let is_theirs = |rest: &[u8]| rest.starts_with(&self.displaced.breakpoint);
        let found = self.displaced.copies.get(usize::try_from(offset).ok()?..)?;
        Some(self.displaced.at.wrapping_add(offset)).filter(|_| is_theirs(found))
    }

    /// What was written is as it was.
    fn clean(&mut self) {
        for page in std::mem::take(&mut self.uc.data_mut().dirty) {
            self.uc.store(page, &contents(page));
            for (at, bytes) in self.code().into_iter().filter(|(at, bytes)| pages(*at, bytes.len()).any(|p| p == page))
            {
                self.uc.store(at, bytes);
            }
        }
    }

    /// What the copies have left, against what the instructions left.
    fn compared(&self, (before, left): (&Ran, u64), after: &Ran, at: At) -> Vec<Finding> {
        let Some(went) = after.left else { return vec![Finding::new(at, Place::CopiesLeft, true, false)] };
        let end = Finding::new(at, Place::CopiesEnd, left, went);
        if went != left {
            return vec![end];
        }
        let Registers { machine, abi } = self.registers;
        let (ours, theirs) = (&after.registers, &before.registers);
        let one = |name: &'static str, was: u64, is: u64| Finding::new(at, Place::Copies { name }, was, is);
        let general = (0..).zip(abi.regs).map(|(n, reg)| one(reg.name, theirs[Reg(n)], ours[Reg(n)]));
        let flags = machine.flags.map(|(reg, _)| one(reg.name, theirs.flags, ours.flags));
        let control = machine.control.iter().zip(theirs.control.iter().zip(&ours.control));
        let control = control.map(|(word, (was, is))| one(word.reg.name, *was, *is));
        let vectors = machine.vectors.iter().zip(theirs.vectors.iter().zip(&ours.vectors));
        let vectors = vectors.map(|(reg, (was, is))| {
            let [was, is] = halves(was, is);
            one(reg.name, was, is)
        });
        let mut all: Vec<Finding> =
            [end].into_iter().chain(general).chain(flags).chain(control).chain(vectors).collect();
        let (was, is) = differing(before, after).unwrap_or_default();
        all.push(Finding::new(at, Place::CopiesMemory, was, is));
        let pages = before.read.symmetric_difference(&after.read).next().copied();
        let (was, is) = pages.map_or((0, 0), |page| if before.read.contains(&page) { (page, 0) } else { (0, page) });
        all.push(Finding::new(at, Place::CopiesRead, was, is));
        all
    }
}

/// The first byte of memory in which two runs differ.
fn differing(before: &Ran, after: &Ran) -> Option<(u64, u64)> {
    let pages: BTreeSet<&u64> = before.memory.keys().chain(after.memory.keys()).collect();
    pages.into_iter().find_map(|page| {
        let [was, is] = [before, after].map(|ran| ran.memory.get(page).cloned().unwrap_or_else(|| contents(*page)));
        let mut pairs = was.into_iter().zip(is);
        pairs.find(|(was, is)| was != is).map(|(was, is)| (was.into(), is.into()))
    })
}

/// The first halves of two vector registers, or the second ones where the first are the same.
fn halves(was: &[u8; VECTOR], is: &[u8; VECTOR]) -> [u64; 2] {
    let half = |of: &[u8; VECTOR], n: usize| of.as_chunks().0.get(n).map_or(0, |half| u64::from_le_bytes(*half));
    let second = usize::from(half(was, 0) == half(is, 0));
    [half(was, second), half(is, second)]
}

fn page(at: u64) -> u64 {
    at & !(PAGE - 1)
}

/// The pages of so many bytes.
fn pages(at: u64, bytes: usize) -> impl Iterator<Item = u64> {
    (page(at)..at.saturating_add(bytes as u64)).step_by(PAGE as usize)
}

/// What a page holds at first: each word by its address.
fn contents(page: u64) -> Vec<u8> {
    let word = |at: u64| Rng::new(at, 0x702).next().to_le_bytes();
    (page..=page | (PAGE - 1)).step_by(8).flat_map(word).collect()
}

/// The hook on each instruction.
fn stepped(uc: &mut Cpu<'_, Watch>, pc: u64) {
    let watch = uc.data_mut();
    if watch.inside.contains(&pc) && !watch.outside.contains(&pc) {
        watch.last = pc;
    } else {
        watch.left = Some(pc);
        uc.stop();
    }
}

/// Memory is needed where there was none.
fn appear(uc: &mut Cpu<'_, Watch>, at: u64) -> bool {
    let (page, watch) = (page(at), uc.data());
    let can = watch.pages.len() < MOST_PAGES && DATA.iter().any(|range| range.contains(&at));
    if !can || uc.map(page, PAGE, Holds::Data).is_err() {
        return false;
    }
    uc.data_mut().pages.insert(page);
    uc.store(page, &contents(page))
}

impl Lends for Watch {
    fn registers(&self) -> Option<Registers> {
        Some(self.registers)
    }

    fn clock(&self) -> u64 {
        // Both are told the same.
        self.registers.abi.regs.len() as u64
    }

    fn accessed(uc: &mut Cpu<'_, Watch>, access: Access) {
        let watch = uc.data_mut();
        for page in pages(access.at, access.bytes) {
            if access.is_write {
                watch.dirty.insert(page);
            } else if !watch.code.contains(&page) {
                watch.read.insert(page);
            }
        }
    }

    fn faulted(&mut self, _: u64, _: &'static str) {
        self.left = None;
    }
}
