//! Who is up the stack when a handler runs: by the unwind tables of trampolines, core and functions, and the core's word for it
//! where a return address is replaced.

use std::collections::HashMap;
use std::rc::Rc;

use codegen::words::abi::Reg;
use compose::Callers;

use super::places::Places;
use crate::engine::cpu::EXIT;
use crate::engine::registers::{Registers, Snapshot};
use crate::engine::unwind::{Row, Rule, Table};

/// Nobody has this address.
const NOWHERE: u64 = 0;
/// The most frames of a stack that is not broken: those of functions, and what lies between them.
const DEEPEST: usize = 400;

/// The callers that an unwinder found so far, and the frame at which it is.
pub(super) struct Backtrace {
    callers: Vec<u64>,
    frames: usize,
    cpu: Snapshot,
    pc: u64,
    /// The address is that of the next instruction to run, and not behind a call.
    exact: bool,
}

impl Backtrace {
    /// From here on.
    pub fn new(cpu: Snapshot, pc: u64) -> Backtrace {
        Backtrace { callers: vec![], frames: 0, cpu, pc, exact: true }
    }

    /// It goes on at the address that was there before it was replaced.
    pub fn resumed_at(self, pc: u64) -> Backtrace {
        Backtrace { pc, ..self }
    }

    /// As events have them.
    pub fn callers(&self) -> Callers {
        Callers::of(self.callers.iter().copied())
    }
}

/// What the tables say, as far as somebody asked.
#[derive(Default)]
pub(super) struct Unwinder(HashMap<u64, Option<Rc<Row>>>);

impl Unwinder {
    /// Up the stack, until it ends or a return address is replaced: that address, and where it lies. Known are words of memory,
    /// and who else runs that a return address stands for.
    pub fn walk(
        &mut self,
        trace: &mut Backtrace,
        places: &Places,
        registers: Registers,
        memory: &dyn Fn(u64) -> u64,
        entered: &dyn Fn(u64) -> Option<u64>,
    ) -> Option<(u64, u64)> {
        loop {
            let (start, size) = places.bottom;
            let ended = trace.pc == EXIT || trace.pc.wrapping_sub(start) < size || trace.callers.len() == Callers::MOST;
            trace.callers.extend(entered(trace.pc).filter(|_| !ended));
            if ended || !self.step(trace, places, registers, memory) {
                return None;
            }
            if places.returns.iter().any(|(at, _)| *at == trace.pc) {
                return Some((trace.pc, trace.cpu[registers.abi.sp].wrapping_sub(registers.abi.return_bytes())));
            }
        }
    }

    /// To the caller. If nothing leads there, it is nobody that the model knows.
    fn step(
        &mut self,
        trace: &mut Backtrace,
        places: &Places,
        registers: Registers,
        memory: &dyn Fn(u64) -> u64,
    ) -> bool {
        trace.frames += 1;
        let at = if trace.exact { trace.pc } else { trace.pc.wrapping_sub(1) };
        let read = || Table::read(&places.image, registers, None, std::iter::once(at)).ok()?.take(at);
        let row = self.0.entry(at).or_insert_with(|| read().map(Rc::new)).clone();
        let Some(row) = row.filter(|_| trace.frames < DEEPEST) else {
            trace.callers.push(NOWHERE);
            return false;
        };
        trace.callers.extend(places.caller_at(at));
        let abi = registers.abi;
        let from = trace.cpu.gpr;
        let cfa = row.cfa(&from);
        let value = |rule: Rule| rule.value(cfa, &from, memory);
        for reg in (0..abi.regs.len() as u8).map(Reg) {
            trace.cpu[reg] = value(row.rule(reg));
        }
        trace.cpu[abi.sp] = cfa;
        // Of a trampoline that was returned to, only the core knows where it goes on.
        let own = places.returns.iter().find(|(start, size)| at.wrapping_sub(*start) < *size);
        trace.pc = match (row.returns, own) {
            (Some(rule), _) => value(rule),
            (None, Some((start, _))) => *start,
            (None, None) => NOWHERE,
        };
        trace.exact = row.signal;
        // Calls are redirected to the first byte of a function. gcc describes it from behind its site on.
        if let Some(inside) = places.insides.get(&trace.pc) {
            (trace.pc, trace.exact) = (*inside, true);
        }
        true
    }
}
