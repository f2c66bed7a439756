//! What is seen of a run at each instruction: who changed each register, what the unwind table says, what lies below SP.

use std::ops::Range;
use std::sync::Arc;

use codegen::words::abi::Reg;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::engine::cpu::EXIT;
use crate::engine::interface::Access;
use crate::engine::registers::{GENERAL, Registers, Snapshot};
use crate::engine::unwind::{Rule, Table};

/// The most wrong rows that are kept of a function.
const MOST: usize = 4096;
/// The most places of a run's way that are kept.
const WAY: usize = 32;

/// What a row of the unwind table says otherwise than it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Place {
    /// The caller's SP.
    Cfa,
    /// The return address.
    Return,
    /// A callee-saved register.
    Register(Reg),
}

/// A row that is wrong, or missing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wrong {
    /// The run.
    pub number: u64,
    pub want: u64,
    pub got: u64,
}

/// A word of the stack that is none of the function's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Foreign {
    pub number: u64,
    /// The word.
    pub word: u64,
    /// Bytes between it and SP, or the end of the function's own frame.
    pub off: u64,
}

/// What is looked with, and what was seen.
#[derive(Clone)]
pub(super) struct Look {
    registers: Registers,
    own: Range<u64>,
    table: Arc<Table>,
    /// Behind which address each instruction ends.
    next: FxHashMap<u64, u64>,
    calls: FxHashSet<u64>,
    /// Instructions that return, as a shadow stack has it.
    returns: FxHashSet<u64>,
    number: u64,
    entry: [u64; GENERAL],
    gpr: [u64; GENERAL],
    last: u64,
    /// Behind which call it is to go on, and with which SP: until then, rows are of another frame, which may be its own again.
    open: Option<(u64, u64)>,
    /// The instruction that changed each register last.
    pub writers: [u64; GENERAL],
    /// Rows that are wrong, by instruction and place.
    pub wrong: FxHashMap<(u64, Place), Wrong>,
    /// Instructions of which the table says nothing.
    pub without: FxHashSet<u64>,
    /// Reads of words below SP though a signal could have changed them, by instruction.
    pub dead: FxHashMap<u64, Foreign>,
    /// Writes into the caller's frame, by instruction.
    pub above: FxHashMap<u64, Foreign>,
    /// Returns to where no call came from, and the run.
    pub unpaired: FxHashMap<u64, u64>,
    /// The way of each run: where straight pieces of code begin, in the order in which it came there first.
    pub ways: FxHashMap<u64, Vec<u64>>,
    written: FxHashSet<u64>,
    /// Of this run, before it is known which words are arguments.
    written_above: FxHashMap<u64, Foreign>,
    /// It has jumped to another function for good.
    is_left: bool,
    /// Words above the own frame that were read: arguments.
    arguments: FxHashSet<u64>,
    /// Behind the last of them, in all runs: what lies before that are arguments too, which are the function's to change.
    behind_arguments: u64,
    below: FxHashSet<u64>,
    /// Words that the last instruction wrote below SP.
    pending: Vec<u64>,
}

impl Look {
    /// `next` has each instruction and what is behind it; those that call and those that return.
    pub fn new(
        registers: Registers,
        own: Range<u64>,
        table: Arc<Table>,
        next: FxHashMap<u64, u64>,
        (calls, returns): (FxHashSet<u64>, FxHashSet<u64>),
    ) -> Look {
        Look {
            registers,
            own,
            table,
            next,
            calls,
            returns,
            number: 0,
            entry: [0; GENERAL],
            gpr: [0; GENERAL],
            last: 0,
            open: None,
            writers: [0; GENERAL],
            wrong: FxHashMap::default(),
            without: FxHashSet::default(),
            dead: FxHashMap::default(),
            above: FxHashMap::default(),
            unpaired: FxHashMap::default(),
            written_above: FxHashMap::default(),
            ways: FxHashMap::default(),
            written: FxHashSet::default(),
            is_left: false,
            arguments: FxHashSet::default(),
            behind_arguments: 0,
            below: FxHashSet::default(),
            pending: Vec::new(),
        }
    }

    /// A run begins.
    pub fn begin(&mut self, gpr: [u64; GENERAL], number: u64) {
        (self.entry, self.gpr, self.number) = (gpr, gpr, number);
        (self.last, self.writers, self.is_left) = (0, [0; GENERAL], false);
        self.open = None;
        self.written.clear();
        self.written_above.clear();
        self.arguments.clear();
        self.below.clear();
        self.ways.insert(number, Vec::new());
        self.pending.clear();
    }

    /// The run is over; its last act may have been to go on in a function of others, whose arguments lie where its own did.
    pub fn end(&mut self, is_left: bool) {
        if is_left || self.is_left {
            self.above.retain(|_, word| word.number != self.number);
        }
        self.above.retain(|_, word| word.off >= self.behind_arguments);
    }

    /// `other` has seen this run with callees that return something else. Drop the accesses to which it came on the same way, and
    /// which went elsewhere there: with a length that nobody returns, any pointer leads astray.
    pub fn confirm(&mut self, number: u64, other: &mut Look) {
        let ways = [&self.ways, &other.ways].map(|ways| ways.get(&number).map_or(&[][..], Vec::as_slice));
        let same_way = |at: u64| before(ways[0], at) == before(ways[1], at);
        let stays = |now: &FxHashMap<u64, Foreign>, at: u64, word: &Foreign| {
            word.number != number || !same_way(at) || now.get(&at).is_some_and(|now| now.off == word.off)
        };
        self.dead.retain(|at, word| stays(&other.dead, *at, word));
        self.above.retain(|at, word| stays(&other.written_above, *at, word));
        other.dead.clear();
        other.written_above.clear();
    }

    /// A function that it called has returned. What lay below SP is that function's, the red zone too.
    pub fn returned(&mut self, gpr: [u64; GENERAL]) {
        self.went_on();
        self.moved(gpr);
        let zone = (self.sp().wrapping_sub(self.registers.machine.red_zone) & !7..self.sp()).step_by(8);
        self.below.extend(zone.filter(|at| self.written.contains(at)));
    }

    /// The run goes on: if the function's own return brought it there, that was none.
    fn went_on(&mut self) {
        if self.open.is_none() && self.returns.contains(&self.last) {
            self.unpaired.entry(self.last).or_insert(self.number);
        }
    }

    fn sp(&self) -> u64 {
        self.gpr[usize::from(self.registers.abi.sp.0)]
    }

    /// Registers are so now: who changed them, and which words does SP leave behind?
    fn moved(&mut self, gpr: [u64; GENERAL]) {
        let zone = self.registers.machine.red_zone;
        let old = self.sp();
        for (writer, (old, new)) in self.writers.iter_mut().zip(self.gpr.iter().zip(gpr)) {
            if *old != new {
                *writer = self.last;
            }
        }
        self.gpr = gpr;
        let now = self.sp();
        let limit = now.wrapping_sub(zone);
        self.below.extend(self.pending.drain(..).filter(|at| *at < limit));
        if old < now && now - old < 0x1_0000 {
            let from = old.wrapping_sub(zone) & !7;
            let left = (from..limit & !7).step_by(8).filter(|at| self.written.contains(at));
            self.below.extend(left);
        }
    }

    /// Before each instruction: what is in the registers, and what reads memory.
    pub fn step(&mut self, pc: u64, now: &Snapshot, word: impl Fn(u64) -> u64) {
        self.moved(now.gpr);
        self.went_on();
        if self.own.contains(&pc) && self.next.get(&self.last) != Some(&pc) {
            let way = self.ways.entry(self.number).or_default();
            if way.len() < WAY && !way.contains(&pc) {
                way.push(pc);
            }
        }
        self.last = pc;
        let sp = self.sp();
        self.open = self.open.filter(|(behind, called)| pc != *behind || sp < *called);
        if self.open.is_some() || !self.own.contains(&pc) {
            self.is_left |= self.open.is_none();
            return;
        }
        self.open = self.next.get(&pc).filter(|_| self.calls.contains(&pc)).map(|behind| (*behind, sp));
        let table = self.table.clone();
        let Some(row) = table.row(pc) else {
            if !table.is_untold(pc) {
                self.without.insert(pc);
            }
            return;
        };
        // Without a rule for the return address, the stack ends here.
        let Some(returns) = row.returns else { return };
        let (abi, cfa) = (self.registers.abi, row.cfa(&now.gpr));
        let value = |rule: Rule| rule.value(cfa, &now.gpr, &word);
        let entry = |reg: Reg| self.entry[usize::from(reg.0)];
        let mut found =
            vec![(Place::Cfa, entry(abi.sp) + abi.return_bytes(), cfa), (Place::Return, EXIT, value(returns))];
        let saved = abi.callee_saved.iter().filter(|reg| *reg != abi.sp && row.tells.contains(*reg));
        found.extend(saved.map(|reg| (Place::Register(reg), entry(reg), value(row.rule(reg)))));
        let number = self.number;
        for (place, want, got) in found.into_iter().filter(|(_, want, got)| want != got) {
            if self.wrong.len() < MOST {
                self.wrong.entry((pc, place)).or_insert(Wrong { number, want, got });
            }
        }
    }

    /// The instruction that runs accesses the stack.
    pub fn accessed(&mut self, Access { at, is_write, bytes }: Access) {
        let limit = self.sp().wrapping_sub(self.registers.machine.red_zone);
        let abi = self.registers.abi;
        let frame = self.entry[usize::from(abi.sp.0)] + abi.return_bytes();
        let is_own = self.own.contains(&self.last);
        for word in (at & !7..at.saturating_add(bytes as u64)).step_by(8) {
            if is_write {
                self.written.insert(word);
                self.below.remove(&word);
                if word < limit {
                    self.pending.push(word);
                }
                if is_own && word >= frame && !self.arguments.contains(&word) {
                    let above = Foreign { number: self.number, word, off: word - frame };
                    self.above.entry(self.last).or_insert(above);
                    self.written_above.entry(self.last).or_insert(above);
                }
            } else if self.below.contains(&word) && word < self.sp() && is_own {
                let dead = Foreign { number: self.number, word, off: self.sp().wrapping_sub(word) };
                self.dead.entry(self.last).or_insert(dead);
            } else if word >= frame {
                self.arguments.insert(word);
                self.behind_arguments = self.behind_arguments.max(word + 8 - frame);
            }
        }
    }
}

/// The way to the piece of code with an instruction.
fn before(way: &[u64], at: u64) -> &[u64] {
    let piece = way.iter().enumerate().filter(|(_, start)| **start <= at).max_by_key(|(_, start)| **start);
    way.get(..=piece.map_or(0, |(n, _)| n)).unwrap_or_default()
}
