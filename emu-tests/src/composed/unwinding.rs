//! Who is up the stack when a handler runs: by the unwind tables of trampolines, core and functions, and the core's word for it
//! where a return address is replaced.

use std::collections::HashMap;
use std::rc::Rc;

use codegen::abi::Reg;
use compose::Callers;

use super::places::Places;
use crate::cpu::{EXIT, Registers, Snapshot};
use crate::unwind::{Row, Rule, Table};

/// Nobody has this address.
const NOWHERE: u64 = 0;
/// The most frames of a stack that is not broken: those of functions, and what lies between them.
const DEEPEST: usize = 400;

/// A way up the stack, at a frame.
pub(super) struct Way {
    found: Vec<u64>,
    frames: usize,
    cpu: Snapshot,
    pc: u64,
    /// The address is that of the next instruction to run, and not behind a call.
    exact: bool,
}

impl Way {
    /// It begins here.
    pub fn new(cpu: Snapshot, pc: u64) -> Way {
        Way { found: vec![], frames: 0, cpu, pc, exact: true }
    }

    /// It goes on at this address.
    pub fn answered(self, pc: u64) -> Way {
        Way { pc, ..self }
    }

    /// Whom it came by.
    pub fn callers(&self) -> Callers {
        Callers::of(self.found.iter().copied())
    }
}

/// What the tables say, as far as somebody asked.
#[derive(Default)]
pub(super) struct Unwinder(HashMap<u64, Option<Rc<Row>>>);

impl Unwinder {
    /// Up the stack, until it ends or a return address is replaced: that address, and where it lies.
    pub fn up(
        &mut self,
        way: &mut Way,
        places: &Places,
        registers: Registers,
        memory: &dyn Fn(u64) -> u64,
    ) -> Option<(u64, u64)> {
        loop {
            let (start, size) = places.bottom;
            let ended = way.pc == EXIT || way.pc.wrapping_sub(start) < size || way.found.len() == Callers::MOST;
            if ended || !self.step(way, places, registers, memory) {
                return None;
            }
            if places.returns.iter().any(|(at, _)| *at == way.pc) {
                return Some((way.pc, way.cpu[registers.abi.sp].wrapping_sub(registers.abi.return_bytes())));
            }
        }
    }

    /// To the caller. If nothing leads there, it is nobody that the model knows.
    fn step(&mut self, way: &mut Way, places: &Places, registers: Registers, memory: &dyn Fn(u64) -> u64) -> bool {
        way.frames += 1;
        let at = if way.exact { way.pc } else { way.pc.wrapping_sub(1) };
        let read = || Table::read(&places.image, registers, None, std::iter::once(at)).ok()?.take(at);
        let row = self.0.entry(at).or_insert_with(|| read().map(Rc::new)).clone();
        let Some(row) = row.filter(|_| way.frames < DEEPEST) else {
            way.found.push(NOWHERE);
            return false;
        };
        way.found.extend(places.caller_at(at));
        let abi = registers.abi;
        let from = way.cpu.gpr;
        let cfa = row.cfa(&from);
        let value = |rule: Rule| rule.value(cfa, &from, memory);
        for reg in (0..abi.regs.len() as u8).map(Reg) {
            way.cpu[reg] = value(row.rule(reg));
        }
        way.cpu[abi.sp] = cfa;
        // Of a trampoline that was returned to, only the core knows where it goes on.
        let own = places.returns.iter().find(|(start, size)| at.wrapping_sub(*start) < *size);
        way.pc = match (row.returns, own) {
            (Some(rule), _) => value(rule),
            (None, Some((start, _))) => *start,
            (None, None) => NOWHERE,
        };
        way.exact = row.signal;
        // Calls are redirected to the first byte of a function. gcc describes it from behind its site on.
        if let Some(inside) = places.insides.get(&way.pc) {
            (way.pc, way.exact) = (*inside, true);
        }
        true
    }
}
