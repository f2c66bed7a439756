//! What is seen of a run at each instruction: who changed each register, what the unwind table says, what lies below SP, what is saved.

use std::ops::Range;
use std::sync::Arc;

use codegen::words::abi::{Reg, RegSet};
use rustc_hash::{FxHashMap, FxHashSet};

use super::state::is_stack;
use crate::engine::cpu::EXIT;
use crate::engine::interface::Access;
use crate::engine::registers::{CONTROL, GENERAL, Registers, Snapshot, VECTOR, VECTORS};
use crate::engine::unwind::{Row, Rule, Table};

/// The most wrong rows that are kept of a function.
const MOST: usize = 4096;
/// The most places of a run's way that are kept.
const WAY: usize = 32;
/// Bytes that C keeps of a vector register that it keeps (AAPCS64, 6.1.2; RISC-V has as many).
pub(super) const KEPT_VECTOR: usize = 8;
/// So many scratch registers that are saved before the first call are a habit, and no chance.
pub(super) const HABIT: usize = 4;

/// What stands for a value that nobody has any more.
const LOST: u64 = 0x5c5c_5c5c_5c5c_5c5c;

/// What a row of the unwind table says otherwise than it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Place {
    /// The caller's SP.
    Cfa,
    /// The return address.
    Return,
    /// A callee-saved register.
    Register(Reg),
    /// A callee-saved vector register.
    Vector(u8),
}

/// A row that is wrong, or missing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wrong {
    /// The run.
    pub number: u64,
    pub want: u64,
    pub got: u64,
}

/// The instruction that changed each register last.
#[derive(Clone, Copy, Default)]
pub(super) struct Writers {
    pub gpr: [u64; GENERAL],
    pub control: [u64; CONTROL],
    pub vectors: [u64; VECTORS],
    /// The flags that are clear where C begins.
    pub flags: u64,
}

/// What became of the registers that C lets a function change.
#[derive(Clone, Default)]
pub(super) struct Scratch {
    /// Those that it saves, changes and restores.
    pub keeps: RegSet,
    /// Those that it changes and never saves, each with the first run that shows it, and the instruction.
    pub changes: FxHashMap<Reg, (u64, Wrong)>,
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
    lines: Lines,
    number: u64,
    entry: Snapshot,
    now: Snapshot,
    last: u64,
    /// The last instruction that is its own: what others change, its call of them changes.
    last_own: u64,
    /// Behind which call it is to go on, and with which SP: until then, rows are of another frame, which may be its own again.
    open: Option<(u64, u64)>,
    pub writers: Writers,
    /// Rows that are wrong, by instruction and place.
    pub wrong: FxHashMap<(u64, Place), Wrong>,
    /// Rows of calls that are right, and wrong for those who unwind from what is called, which has changed registers.
    pub through: FxHashMap<(u64, Place), Wrong>,
    /// Instructions of which the table says nothing, and the run.
    pub without: FxHashMap<u64, u64>,
    /// Reads of words below SP though a signal could have changed them, by instruction.
    pub dead: FxHashMap<u64, Foreign>,
    /// Writes into the caller's frame, by instruction.
    pub above: FxHashMap<u64, Foreign>,
    /// Returns to where no call came from, and the run.
    pub unpaired: FxHashMap<u64, u64>,
    /// Indirect branches with their targets, and the run.
    pub indirect: FxHashMap<(u64, u64), u64>,
    pub scratch: Scratch,
    /// Scratch registers that were saved before the first call, most of which are restored, and that are not: where they were saved.
    pub dropped: FxHashMap<Reg, (u64, Wrong)>,
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
    /// Words that were below SP when they were written, and that SP has not left behind since, with the bytes from there to SP.
    early: FxHashMap<u64, u64>,
    /// Words that the last instruction wrote below SP.
    pending: Vec<u64>,
    /// Words that the last instruction wrote.
    stored: Vec<u64>,
    /// Scratch registers whose value at the entry was stored: where, and was that before the first call?
    saved: FxHashMap<Reg, (u64, bool)>,
    /// Words of this run that hold what a register that C keeps had at the entry.
    slots: FxHashMap<u64, Reg>,
    /// In which run something was written over what a register had been saved in.
    spoiled: FxHashSet<(u64, Reg)>,
    /// Where instructions write the stack, from SP at the entry; nothing of those that write here and there.
    stores: FxHashMap<u64, Option<u64>>,
    /// The instruction that runs has written already: of several words, the first says where.
    has_written: bool,
    /// Functions that it called have returned.
    called: bool,
    /// General registers at the entry, or where the last of them returned.
    since: [u64; GENERAL],
}

/// The function's instructions, by what they do.
#[derive(Clone, Default)]
pub(super) struct Lines {
    /// Behind which address each ends.
    pub next: FxHashMap<u64, u64>,
    pub calls: FxHashSet<u64>,
    /// Those that return, as a shadow stack has it.
    pub returns: FxHashSet<u64>,
    /// Those that go where a register says, and need a landing pad there.
    pub indirect: FxHashSet<u64>,
}

impl Look {
    /// What looks at a function with these instructions and this unwind table.
    pub fn new(registers: Registers, own: Range<u64>, table: Arc<Table>, lines: Lines) -> Look {
        Look {
            registers,
            own,
            table,
            lines,
            number: 0,
            entry: Snapshot::default(),
            now: Snapshot::default(),
            last: 0,
            last_own: 0,
            open: None,
            writers: Writers::default(),
            wrong: FxHashMap::default(),
            through: FxHashMap::default(),
            without: FxHashMap::default(),
            dead: FxHashMap::default(),
            above: FxHashMap::default(),
            unpaired: FxHashMap::default(),
            indirect: FxHashMap::default(),
            scratch: Scratch::default(),
            dropped: FxHashMap::default(),
            written_above: FxHashMap::default(),
            ways: FxHashMap::default(),
            written: FxHashSet::default(),
            is_left: false,
            arguments: FxHashSet::default(),
            behind_arguments: 0,
            below: FxHashSet::default(),
            early: FxHashMap::default(),
            pending: Vec::new(),
            stored: Vec::new(),
            saved: FxHashMap::default(),
            slots: FxHashMap::default(),
            spoiled: FxHashSet::default(),
            stores: FxHashMap::default(),
            has_written: false,
            called: false,
            since: [0; GENERAL],
        }
    }

    /// A run begins.
    pub fn begin(&mut self, entry: &Snapshot, number: u64) {
        (self.entry, self.now, self.number) = (entry.clone(), entry.clone(), number);
        (self.last, self.last_own, self.writers) = (0, 0, Writers::default());
        (self.is_left, self.called, self.since) = (false, false, entry.gpr);
        self.open = None;
        self.written.clear();
        self.written_above.clear();
        self.arguments.clear();
        self.below.clear();
        self.early.clear();
        self.ways.insert(number, Vec::new());
        self.pending.clear();
        self.stored.clear();
        self.saved.clear();
        self.slots.clear();
    }

    /// Of compiled code, drop what follows from an index or a length that nobody gives: stores here and there, what was written over a
    /// saved register, and branches to where other rows hold or where none leads. Returns how to know a register that was lost so, by
    /// the run.
    pub fn without_strays(&mut self, is_target: impl Fn(u64) -> bool) -> impl Fn(u64, Reg) -> bool {
        let (stores, table) = (&self.stores, self.table.clone());
        self.above.retain(|at, _| stores.get(at).is_none_or(Option::is_some));
        let leads_astray = |(from, to): &(u64, u64)| !is_target(*to) || table.row(*from) != table.row(*to);
        let own = &self.own;
        let astray = self.indirect.iter().filter(|(branch, _)| own.contains(&branch.1) && leads_astray(branch));
        let astray: FxHashSet<u64> = astray.map(|(_, number)| *number).collect();
        self.indirect.retain(|branch, _| !own.contains(&branch.1) || !leads_astray(branch));
        let spoiled = std::mem::take(&mut self.spoiled);
        let is_lost = move |number: u64, reg: Reg| astray.contains(&number) || spoiled.contains(&(number, reg));
        for rows in [&mut self.wrong, &mut self.through] {
            rows.retain(|(_, place), wrong| match place {
                Place::Register(reg) => !is_lost(wrong.number, *reg),
                _ => true,
            });
        }
        is_lost
    }

    /// The run is over; its last act may have been to go on in a function of others, whose arguments lie where its own did. If it
    /// returned, its caller finds `after`.
    pub fn end(&mut self, is_left: bool, after: Option<&Snapshot>) {
        if let Some(after) = after.filter(|_| !is_left && !self.is_left) {
            self.scratched(after);
        }
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

    /// What became of the registers that C lets it change.
    fn scratched(&mut self, after: &Snapshot) {
        let (entry, number) = (self.entry.clone(), self.number);
        let wrong = |reg: Reg| Wrong { number, want: entry[reg], got: after[reg] };
        let restored = |reg: &Reg| entry[*reg] == after[*reg];
        let changed = |reg: &Reg| self.writers.gpr[usize::from(reg.0)] != 0;
        for reg in scratch(self.registers) {
            let writer = self.writers.gpr[usize::from(reg.0)];
            if self.saved.contains_key(&reg) && restored(&reg) && changed(&reg) {
                self.scratch.keeps.insert(reg);
            } else if !self.saved.contains_key(&reg) && !restored(&reg) {
                self.scratch.changes.entry(reg).or_insert((writer, wrong(reg)));
            }
        }
        let early: Vec<(Reg, u64)> =
            self.saved.iter().filter(|(_, (_, early))| *early).map(|(reg, (at, _))| (*reg, *at)).collect();
        let (kept, lost): (Vec<_>, Vec<_>) = early.into_iter().partition(|(reg, _)| restored(reg));
        if self.called && kept.len() + lost.len() >= HABIT && kept.len() > lost.len() {
            for (reg, at) in lost {
                self.dropped.entry(reg).or_insert((at, wrong(reg)));
            }
        }
    }

    /// It calls a function of others, with these registers. Which hold something else than where the last one returned?
    pub fn calls(&self, now: &Snapshot) -> RegSet {
        let written = self.since.iter().zip(now.gpr).enumerate().filter(|(_, (was, is))| *was != is);
        written.map(|(n, _)| Reg(n as u8)).collect()
    }

    /// A function that it called has returned. What lay below SP is that function's, the red zone too.
    pub fn returned(&mut self, now: &Snapshot) {
        self.went_on();
        self.moved(now);
        (self.called, self.since) = (true, self.now.gpr);
        let zone = (self.sp().wrapping_sub(self.registers.machine.red_zone) & !7..self.sp()).step_by(8);
        self.below.extend(zone.filter(|at| self.written.contains(at)));
    }

    /// The run goes on: if the function's own return brought it there, that was none.
    fn went_on(&mut self) {
        if self.open.is_none() && self.lines.returns.contains(&self.last) {
            self.unpaired.entry(self.last).or_insert(self.number);
        }
    }

    fn sp(&self) -> u64 {
        self.now[self.registers.abi.sp]
    }

    /// Registers are so now: who changed them, and which words does SP leave behind?
    fn moved(&mut self, now: &Snapshot) {
        let zone = self.registers.machine.red_zone;
        let (old, last) = (self.sp(), self.last_own);
        let (was, writers) = (&self.now, &mut self.writers);
        changed(&was.gpr, &now.gpr, &mut writers.gpr, last);
        changed(&was.control, &now.control, &mut writers.control, last);
        changed(&was.vectors, &now.vectors, &mut writers.vectors, last);
        if (was.flags ^ now.flags) & self.registers.machine.clear_flags() != 0 {
            writers.flags = last;
        }
        self.now = now.clone();
        let now = self.sp();
        let limit = now.wrapping_sub(zone);
        for word in self.pending.drain(..).filter(|at| *at < limit) {
            self.below.insert(word);
            self.early.insert(word, now.wrapping_sub(word));
        }
        if old < now && now - old < 0x1_0000 {
            let from = old.wrapping_sub(zone) & !7;
            let left = (from..limit & !7).step_by(8).filter(|at| self.written.contains(at));
            self.below.extend(left);
            self.early.retain(|word, _| *word >= limit);
            self.slots.retain(|word, _| *word >= limit);
        }
    }

    /// Before each instruction: what is in the registers, and what reads memory.
    pub fn step(&mut self, pc: u64, now: &Snapshot, word: impl Fn(u64) -> u64) {
        self.saves(&word);
        self.has_written = false;
        self.moved(now);
        self.went_on();
        if self.lines.indirect.contains(&self.last) {
            self.indirect.entry((self.last, pc)).or_insert(self.number);
        }
        if self.own.contains(&pc) && self.lines.next.get(&self.last) != Some(&pc) {
            let way = self.ways.entry(self.number).or_default();
            if way.len() < WAY && !way.contains(&pc) {
                way.push(pc);
            }
        }
        self.last = pc;
        if self.own.contains(&pc) {
            self.last_own = pc;
        }
        let sp = self.sp();
        self.open = self.open.filter(|(behind, called)| pc != *behind || sp < *called);
        if self.open.is_some() || !self.own.contains(&pc) {
            self.is_left |= self.open.is_none();
            return;
        }
        self.open = self.lines.next.get(&pc).filter(|_| self.lines.calls.contains(&pc)).map(|behind| (*behind, sp));
        if self.open.is_some() {
            // A red zone ends here.
            self.slots.retain(|word, _| *word >= sp);
        }
        let table = self.table.clone();
        let Some(row) = table.row(pc) else {
            if !table.is_untold(pc) {
                self.without.entry(pc).or_insert(self.number);
            }
            return;
        };
        // Without a rule for the return address, the stack ends here.
        let Some(returns) = row.returns else { return };
        let number = self.number;
        for (place, want, got) in self.unlike(row, returns, &now.gpr, &word) {
            if self.wrong.len() < MOST {
                self.wrong.entry((pc, place)).or_insert(Wrong { number, want, got });
            }
        }
        if self.lines.calls.contains(&pc) {
            for (place, want, got) in self.unlike(row, returns, &self.while_called(), &word) {
                if self.through.len() < MOST {
                    self.through.entry((pc, place)).or_insert(Wrong { number, want, got });
                }
            }
        }
    }

    /// What a row says otherwise than it is, with these registers: what is right, and what the row has.
    fn unlike(
        &self,
        row: &Row,
        returns: Rule,
        gpr: &[u64; GENERAL],
        word: &impl Fn(u64) -> u64,
    ) -> Vec<(Place, u64, u64)> {
        let (abi, cfa) = (self.registers.abi, row.cfa(gpr));
        let value = |rule: Rule| rule.value(cfa, gpr, word);
        let entry = &self.entry;
        let mut found =
            vec![(Place::Cfa, entry[abi.sp] + abi.return_bytes(), cfa), (Place::Return, EXIT, value(returns))];
        let saved = abi.callee_saved.iter().filter(|reg| *reg != abi.sp && row.tells.contains(*reg));
        found.extend(saved.map(|reg| (Place::Register(reg), entry[reg], value(row.rule(reg)))));
        // Without a rule, a vector register has its value still.
        let vector = |i: &u8| match row.vectors.iter().find(|(n, _)| n == i) {
            Some((_, rule)) => value(*rule),
            None => low(&self.now.vectors[usize::from(*i)]),
        };
        let vectors = abi.vector_callee_saved.iter();
        found.extend(vectors.map(|i| (Place::Vector(*i), low(&entry.vectors[usize::from(*i)]), vector(i))));
        found.retain(|(_, want, got)| want != got);
        found
    }

    /// The registers as an unwinder has them that comes from what is called: those that C lets it change are lost.
    fn while_called(&self) -> [u64; GENERAL] {
        let abi = self.registers.abi;
        let mut gpr = self.now.gpr;
        for reg in abi.caller_saved.iter().chain(abi.link).filter(|reg| *reg != abi.sp) {
            gpr[usize::from(reg.0)] = LOST;
        }
        gpr
    }

    /// Which registers did the last instruction save?
    fn saves(&mut self, word: impl Fn(u64) -> u64) {
        for at in std::mem::take(&mut self.stored) {
            let value = word(at);
            // Code stores 0 and 1 as they are.
            let telling = value > 1 && self.entry.gpr.iter().filter(|other| **other == value).count() == 1;
            let found = scratch(self.registers).find(|reg| self.entry[*reg] == value && self.now[*reg] == value);
            if let Some(reg) = found.filter(|_| telling && self.own.contains(&self.last)) {
                self.saved.entry(reg).or_insert((self.last, !self.called));
            }
            let kept = self.registers.abi.callee_saved;
            let kept = kept.iter().find(|reg| self.entry[*reg] == value && self.now[*reg] == value);
            self.slots.extend(kept.filter(|_| telling).map(|reg| (at, reg)));
        }
    }

    /// How far below SP a word lay or lies whose value a signal may have changed.
    fn was_below(&self, word: u64) -> Option<u64> {
        let lies = self.below.contains(&word) && word < self.sp();
        let off = lies.then(|| self.sp().wrapping_sub(word));
        off.or_else(|| self.early.get(&word).copied())
    }

    /// The instruction that runs accesses the stack.
    pub fn accessed(&mut self, Access { at, is_write, bytes }: Access) {
        let limit = self.sp().wrapping_sub(self.registers.machine.red_zone);
        let abi = self.registers.abi;
        let frame = self.entry[abi.sp] + abi.return_bytes();
        let is_own = self.own.contains(&self.last);
        // One that has lost SP has lost all that lies by it.
        if !is_stack(self.sp()) {
            return;
        }
        if is_write && !std::mem::replace(&mut self.has_written, true) {
            let off = at.wrapping_sub(self.entry[abi.sp]);
            self.stores.entry(self.last).and_modify(|was| *was = was.filter(|was| *was == off)).or_insert(Some(off));
        }
        for word in (at & !7..at.saturating_add(bytes as u64)).step_by(8) {
            if is_write {
                self.stored.push(word);
                self.spoiled.extend(self.slots.remove(&word).map(|reg| (self.number, reg)));
                self.written.insert(word);
                self.below.remove(&word);
                self.early.remove(&word);
                if word < limit {
                    self.pending.push(word);
                }
                if is_own && word >= frame && !self.arguments.contains(&word) {
                    let above = Foreign { number: self.number, word, off: word - frame };
                    self.above.entry(self.last).or_insert(above);
                    self.written_above.entry(self.last).or_insert(above);
                }
            } else if let Some(off) = self.was_below(word).filter(|_| is_own) {
                self.dead.entry(self.last).or_insert(Foreign { number: self.number, word, off });
            } else if word >= frame {
                self.arguments.insert(word);
                self.behind_arguments = self.behind_arguments.max(word + 8 - frame);
            }
        }
    }
}

/// The first 64 bits of a vector register.
pub(super) fn low(vector: &[u8; VECTOR]) -> u64 {
    vector[..KEPT_VECTOR].iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

/// Note who changed values.
fn changed<T: PartialEq>(was: &[T], now: &[T], writers: &mut [u64], last: u64) {
    for (writer, _) in writers.iter_mut().zip(was.iter().zip(now)).filter(|(_, (was, now))| was != now) {
        *writer = last;
    }
}

/// The registers that C lets a function change, and that have no result.
fn scratch(registers: Registers) -> impl Iterator<Item = Reg> {
    let abi = registers.abi;
    let others = RegSet::of(abi.rets).union(RegSet::of(abi.exit_rets)).union(RegSet::of(&[abi.sp]));
    abi.caller_saved.minus(others).iter().filter(move |reg| Some(*reg) != abi.link)
}

/// The way to the piece of code with an instruction.
fn before(way: &[u64], at: u64) -> &[u64] {
    let piece = way.iter().enumerate().filter(|(_, start)| **start <= at).max_by_key(|(_, start)| **start);
    way.get(..=piece.map_or(0, |(n, _)| n)).unwrap_or_default()
}
