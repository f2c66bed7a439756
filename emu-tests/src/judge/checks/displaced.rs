//! P16 of displaced instructions: their copies do what they did. Both run where they are, from the same registers and memory, and all
//! that they leave is compared.

use std::collections::BTreeMap;
use std::sync::Arc;

use codegen::contract::stated::{Displaced, Next};
use codegen::words::abi::Reg;
use codegen::words::error::Result;
use link::PAGE;

use crate::engine::interface::{Cpu, EVERYWHERE, Holds, Saved, Why};
use crate::engine::load::engine;
use crate::engine::registers::{Registers, Snapshot, VECTOR};
use crate::engine::rng::Rng;
use crate::judge::rig::Rig;
use crate::judge::tally::Tally;
use crate::judge::trace::{At, Finding};
use crate::report::Clause;
use crate::report::place::Place;
use crate::run::case::Case;

/// Registers and memory from which both run.
const STATES: u64 = 64;
/// Instructions of one run: what repeats itself by a register may have no end.
const MOST_STEPS: usize = 4096;
/// Pages that one run may need.
const MOST_PAGES: usize = 64;
/// Where the first of both is, but for the lower 32 bits of its address.
const HERE: u64 = 0x80 << 32;

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
        let mut ran = false;
        for number in 0..STATES {
            let state = machine.state(rig.seed, number);
            let before = machine.run(&state, machine.code[1], false);
            // What a CPU refuses where it stood tells nothing of its copy.
            let Some(left) = before.left else { continue };
            ran = true;
            let after = machine.run(&state, machine.code[0], displaced.breakpoint);
            let behind = after.left.map(|left| if displaced.breakpoint { displaced.behind(left) } else { left });
            let findings = machine.compared((&before, left), (&after, behind), at);
            let good = findings.iter().all(|finding| finding.expected == finding.found);
            findings.into_iter().for_each(|finding| tally.judged(case, finding));
            if !good {
                break;
            }
        }
        tally.judged(case, Finding::new(at, Place::CopiesRan, true, ran));
    }
    Ok(())
}

/// The pages that a run has needed, and where it went.
#[derive(Default)]
struct Watch {
    /// What the memory is made of.
    seed: u64,
    /// Instructions that are neither the displaced ones nor their copies end the run.
    inside: std::ops::Range<u64>,
    /// The last instruction.
    last: u64,
    /// Where it went from there.
    left: Option<u64>,
    pages: Vec<u64>,
}

/// What a run has left.
struct Ran {
    /// The address at which it went on; `None` if it did not get there.
    left: Option<u64>,
    registers: Snapshot,
    memory: BTreeMap<u64, Vec<u8>>,
}

/// An engine with both.
struct Machine<'d> {
    registers: Registers,
    uc: Box<Cpu<'static, Watch>>,
    fresh: Saved,
    /// The copies, then the instructions, each with its address here.
    code: [(u64, &'d [u8]); 2],
    /// From here to where they are: engines without page tables have no kernel's addresses.
    away: u64,
}

impl<'d> Machine<'d> {
    fn new(rig: &Rig, displaced: &'d Displaced) -> Result<Machine<'d>> {
        let registers = rig.registers;
        let mut uc = engine(rig.suite.backend, Watch::default())?;
        let away = (displaced.copied_to.min(displaced.at) & !u64::from(u32::MAX)).wrapping_sub(HERE);
        let copies = (displaced.copied_to.wrapping_sub(away), displaced.copies.as_slice());
        let code = [copies, (displaced.at.wrapping_sub(away), &displaced.instructions)];
        for page in code.iter().flat_map(|(at, bytes)| pages(*at, bytes.len())) {
            if !uc.data().pages.contains(&page) {
                uc.map(page, PAGE, Holds::Code)?;
                uc.data_mut().pages.push(page);
            }
        }
        uc.on_missing_data(Box::new(appear))?;
        uc.on_missing_code(Box::new(|uc, at| {
            uc.data_mut().left = Some(at);
            false
        }))?;
        uc.on_instructions(
            EVERYWHERE,
            Box::new(|uc, pc, _| {
                let watch = uc.data_mut();
                if watch.inside.contains(&pc) {
                    watch.last = pc;
                } else {
                    watch.left = Some(pc);
                    uc.stop();
                }
            }),
        )?;
        let mut rng = Rng::new(rig.seed, 0x700);
        (0..registers.machine.vectors.len()).for_each(|i| registers.set_vector(&mut *uc, i, &rng.vector()));
        registers.set_control(&mut *uc)?;
        let fresh = uc.save()?;
        Ok(Machine { registers, uc, fresh, code, away })
    }

    /// Registers that lead to memory far from each other; in every fourth state, to the same.
    fn state(&self, seed: u64, number: u64) -> Snapshot {
        let mut rng = Rng::new(seed ^ number, 0x701);
        let mut state = Snapshot { flags: rng.next(), ..Snapshot::default() };
        for n in 0..self.registers.abi.regs.len() {
            let far = if number % 4 == 3 { 0 } else { (n as u64 + 1) << 32 };
            state[Reg(n as u8)] = far | rng.next() & 0xfff0;
        }
        state
    }

    /// Run from there until it is left, or until the breakpoint that ends it.
    fn run(&mut self, state: &Snapshot, code: (u64, &[u8]), breakpoint: bool) -> Ran {
        loop {
            let known = self.uc.data().pages.len();
            let ran = self.run_once(state, code, breakpoint);
            // Where memory appears in the middle of a run, Unicorn may lose flags: its lazy ones are not those of the instruction.
            if self.uc.data().pages.len() == known {
                return ran;
            }
        }
    }

    fn run_once(&mut self, state: &Snapshot, (from, bytes): (u64, &[u8]), breakpoint: bool) -> Ran {
        let inside = from..from.saturating_add(bytes.len() as u64);
        let watch = self.uc.data_mut();
        (watch.seed, watch.left, watch.last, watch.inside) = (state.flags, None, from, inside);
        self.uc.restore(&self.fresh);
        for page in self.uc.data().pages.clone() {
            self.uc.store(page, &contents(state.flags, page));
        }
        for (at, bytes) in self.code {
            self.uc.store(at, bytes);
        }
        self.registers.load(&mut *self.uc, state);
        let ended = self.uc.run_at_most(from, u64::MAX, MOST_STEPS);
        let trapped = ended.is_err_and(|trap| trap.why == Why::Breakpoint);
        let (left, last) = (self.uc.data().left, self.uc.data().last);
        let left = if breakpoint { Some(last).filter(|_| trapped && left.is_none()) } else { left };
        let left = left.map(|left| left.wrapping_add(self.away));
        let page = |at: &u64| {
            let mut bytes = vec![0; PAGE as usize];
            self.uc.load(*at, &mut bytes);
            (*at, bytes)
        };
        Ran {
            left,
            registers: self.registers.snapshot(&*self.uc),
            memory: self.uc.data().pages.iter().map(page).collect(),
        }
    }

    /// What the copies have left, against what the instructions left.
    fn compared(&self, (before, left): (&Ran, u64), (after, behind): (&Ran, Option<u64>), at: At) -> Vec<Finding> {
        let end = Finding::new(at, Place::CopiesEnd, left, behind.unwrap_or_default());
        if behind != Some(left) {
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
        let (was, is) = self.differing(before, after).unwrap_or_default();
        all.push(Finding::new(at, Place::CopiesMemory, was, is));
        all
    }

    /// The first byte of memory in which two runs differ.
    fn differing(&self, before: &Ran, after: &Ran) -> Option<(u64, u64)> {
        let seed = self.uc.data().seed;
        after.memory.iter().find_map(|(page, bytes)| {
            // Only the second may have come there.
            let was = before.memory.get(page).cloned().unwrap_or_else(|| contents(seed, *page));
            let mut pairs = was.into_iter().zip(bytes);
            pairs.find(|(was, is)| was != *is).map(|(was, is)| (was.into(), (*is).into()))
        })
    }
}

/// The first halves of two vector registers, or the second ones where the first are the same.
fn halves(was: &[u8; VECTOR], is: &[u8; VECTOR]) -> [u64; 2] {
    let half = |of: &[u8; VECTOR], n: usize| of.as_chunks().0.get(n).map_or(0, |half| u64::from_le_bytes(*half));
    let second = usize::from(half(was, 0) == half(is, 0));
    [half(was, second), half(is, second)]
}

/// The pages of so many bytes.
fn pages(at: u64, bytes: usize) -> impl Iterator<Item = u64> {
    let first = at & !(PAGE - 1);
    (first..at.saturating_add(bytes as u64)).step_by(PAGE as usize)
}

/// What a page holds at first: each word by its address.
fn contents(seed: u64, page: u64) -> Vec<u8> {
    let word = |at: u64| Rng::new(seed ^ at, 0x702).next().to_le_bytes();
    (page..=page | (PAGE - 1)).step_by(8).flat_map(word).collect()
}

/// Memory is needed where there was none.
fn appear(uc: &mut Cpu<'_, Watch>, at: u64) -> bool {
    let page = at & !(PAGE - 1);
    let watch = uc.data_mut();
    if watch.pages.len() >= MOST_PAGES {
        return false;
    }
    let bytes = contents(watch.seed, page);
    if uc.map(page, PAGE, Holds::Data).is_err() {
        return false;
    }
    uc.data_mut().pages.push(page);
    uc.store(page, &bytes)
}
