//! How an instruction with a probe runs: a breakpoint stands in its place. When the handlers are through, it is put back, runs
//! alone, and the breakpoint stands there again. Its bytes are where they were compiled for, so nothing in it has to be changed.

use std::collections::BTreeMap;

use codegen::arch::machine::{Goes, Machine};
use codegen::arch::patch::Write;
use codegen::words::error::{Error, Result};

use crate::engine::cpu::EXIT;
use crate::engine::disasm::{Decoded, decode};
use crate::engine::interface::{Cpu, EVERYWHERE, Ended, Why};

/// Instructions of one call at most; and how many of them a stop at a breakpoint counts for, which takes the engine longer than
/// these.
pub(super) const INSTRUCTIONS: usize = 10_000_000;
pub(super) const STOP: usize = 100;

/// What a call has met and has left to spend.
#[derive(Default)]
pub(super) struct Meter {
    /// The address of the breakpoint that was met last.
    met: u64,
    /// Instructions that may still run.
    left: usize,
}

/// The engine.
pub(super) type Uc<'a> = Cpu<'a, Meter>;

/// The breakpoints of all probes, and of where returns are led.
#[derive(Default)]
pub(super) struct Breakpoints(BTreeMap<u64, Breakpoint>);

struct Breakpoint {
    trap: &'static [u8],
    /// What it stands in for.
    original: Vec<u8>,
    /// It goes to the next instruction in the end, and may run many times before, as a string instruction does.
    goes_on: bool,
}

/// An instruction that cannot run behind a breakpoint: what is wrong, and where else a probe works.
type Refusal = (String, &'static str);

/// Does the instruction at `at` do the same behind a breakpoint?
fn alone(machine: &Machine, instructions: &[Decoded], at: &Decoded) -> std::result::Result<(), Refusal> {
    let (begins, ends) = machine.exclusive;
    let is = |insn: &Decoded, of: &[&str]| of.iter().any(|name| insn.text.starts_with(name));
    let mut begun = None;
    for insn in instructions.iter().take_while(|insn| insn.at <= at.at) {
        if is(insn, begins) {
            begun = Some(insn);
        } else if is(insn, ends) && insn.at < at.at {
            begun = None;
        }
    }
    begun.map_or(Ok(()), |begun| {
        let why = format!("'{}' takes a reservation on memory, which a breakpoint loses", words(begun));
        Err((why, "before that instruction, or behind the one that ends it"))
    })
}

/// As people write it.
fn words(insn: &Decoded) -> String {
    insn.text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Breakpoints {
    /// The breakpoint for the instruction at an address of a function, whose code begins at `start`.
    ///
    /// # Errors
    /// An instruction that does not do the same if it runs behind a breakpoint.
    pub(super) fn add(&mut self, machine: &'static Machine, (start, code): (u64, &[u8]), address: u64) -> Result<()> {
        let instructions = decode(machine, code, start)?;
        let refused = |(what, valid): Refusal| Error::new(format!("FAIL_REG_PROBE: {what}; valid: {valid}"));
        let Some(insn) = instructions.iter().find(|insn| insn.at == address) else {
            return Err(refused(("no instruction begins there".to_owned(), "where one does")));
        };
        alone(machine, &instructions, insn).map_err(refused)?;
        let original: Vec<u8> = code.iter().skip((address - start) as usize).take(insn.size.into()).copied().collect();
        let traps = [machine.trap, machine.short_trap];
        if traps.contains(&original.as_slice()) {
            return Err(refused((format!("'{}' is a breakpoint itself", words(insn)), "another instruction")));
        }
        let trap = traps.into_iter().find(|trap| !trap.is_empty() && trap.len() <= original.len());
        let trap = trap.ok_or_else(|| {
            refused((format!("'{}' is shorter than a breakpoint", words(insn)), "another instruction"))
        })?;
        self.0.insert(address, Breakpoint { trap, original, goes_on: insn.goes == Goes::On });
        Ok(())
    }

    /// A breakpoint with nothing under it, where returns are led.
    pub(super) fn stand_alone(&mut self, machine: &'static Machine, address: u64) {
        self.0.insert(address, Breakpoint { trap: machine.trap, original: Vec::new(), goes_on: false });
    }

    /// Put them there. The engine notes which was met: some of its exceptions leave the program counter behind them. And it
    /// counts instructions: one budget is for all runs of a call.
    pub(super) fn set(&self, uc: &mut Uc) -> Result<()> {
        let counts = |uc: &mut Uc, _, _| {
            if !uc.data_mut().spend(1) {
                uc.stop();
            }
        };
        uc.on_instructions(EVERYWHERE, Box::new(counts))?;
        for (&at, breakpoint) in &self.0 {
            uc.write_code(&[Write { at, bytes: breakpoint.trap.to_vec() }])?;
            uc.on_instructions(at..=at, Box::new(|uc, pc, _| uc.data_mut().met = pc))?;
        }
        Ok(())
    }

    /// A call begins.
    pub(super) fn begin(uc: &mut Uc) {
        *uc.data_mut() = Meter { met: 0, left: INSTRUCTIONS };
    }

    /// Run from `pc` to a breakpoint or the end. Returns the breakpoint that was met, and else how the run ended.
    pub(super) fn run(&self, uc: &mut Uc, pc: u64) -> std::result::Result<u64, Ended> {
        uc.data_mut().met = 0;
        // The engine drops all translated code where it is to count and was not, as with one instruction, or no longer.
        let ended = uc.run_at_most(pc, EXIT, INSTRUCTIONS);
        self.met(uc, &ended).ok_or(ended)
    }

    /// Which one was met, if that is how a run ended.
    fn met(&self, uc: &Uc, ended: &Ended) -> Option<u64> {
        let trapped = ended.as_ref().is_err_and(|trap| trap.why == Why::Breakpoint);
        Some(uc.data().met).filter(|at| trapped && self.0.contains_key(at))
    }

    /// Run the instruction whose breakpoint stands at `at`, and say where the CPU is then.
    ///
    /// # Errors
    /// It does not run.
    pub(super) fn step(&self, uc: &mut Uc, at: u64) -> Result<u64> {
        let Some(Breakpoint { trap, original, goes_on }) = self.0.get(&at) else { return Ok(at) };
        uc.write_code(&[Write { at, bytes: original.clone() }])?;
        loop {
            uc.run_at_most(at, EXIT, 1).map_err(|trap| Error::new(format!("emulator: {trap}")))?;
            let pc = uc.pc();
            if pc != at || !goes_on || uc.data().is_spent() {
                uc.write_code(&[Write { at, bytes: trap.to_vec() }])?;
                return Ok(pc);
            }
        }
    }
}

impl Meter {
    /// So many instructions run, or what takes as long; false if that is more than there are.
    fn spend(&mut self, instructions: usize) -> bool {
        self.left = self.left.saturating_sub(instructions);
        self.left > 0
    }

    /// The CPU has stopped at a breakpoint.
    pub(super) fn stopped(&mut self) {
        self.spend(STOP);
    }

    /// Nothing may run any more.
    pub(super) fn is_spent(&self) -> bool {
        self.left == 0
    }
}
