//! A run in words that are the same for any code that does the same.

use std::collections::BTreeMap;

use codegen::words::abi::{Abi, Reg, RegSet};

use super::code::Taken;
use super::observed::{Call, Leave, Line, Unwound, Way};
use super::run::{End, Seen, SeenCall, SeenUnwind, Subject};
use super::tokens::OLDER;
use crate::engine::cpu::{STACK_SIZE, STACK_TOP, Snapshot};
use crate::engine::disasm::Decoded;

/// Bytes above where SP was that count as a frame's: what a call pushed, and what the caller has there.
const CALLERS: u64 = 0x20;
/// Bytes before what is given that may belong to it.
const BEFORE: u64 = 0x18;
/// Frames that an unwinder follows.
const FRAMES: usize = 4;

/// What names values.
pub(super) struct Sayer<'a> {
    subject: &'a Subject<'a>,
    abi: &'static Abi,
    /// Registers that the code may be free to change, by the psABI, wherever it goes.
    scratch: RegSet,
}

impl Sayer<'_> {
    pub fn new<'a>(subject: &'a Subject<'a>) -> Sayer<'a> {
        let abi = subject.registers.abi;
        Sayer { subject, abi, scratch: scratch(abi) }
    }

    pub fn way(&self, when: String, seen: &Seen, lower: Option<&Seen>) -> Way {
        let other = |i: usize| lower.and_then(|l| l.calls.get(i));
        let call = seen.calls.iter().enumerate().map(|(i, call)| self.call(seen, call, other(i))).collect();
        let offsets = |all: &mut dyn Iterator<Item = u64>| all.map(|at| self.offset(at)).collect();
        Way {
            when,
            by_store: false,
            instructions: seen.steps.len(),
            stack: seen.sp.saturating_sub(seen.lowest),
            mispaired: offsets(&mut seen.mispaired.iter().copied()),
            astray: offsets(&mut seen.predicted.iter().copied().filter(|at| !self.traps(*at))),
            beyond: seen.beyond.iter().map(|to| self.name(seen, *to)).collect(),
            unreturned: seen.unreturned,
            below: offsets(&mut seen.below.iter().copied()),
            crooked: offsets(&mut seen.crooked.iter().copied()),
            leave: self.leave(seen),
            call,
            unwind: self.unwind(seen),
        }
    }

    fn offset(&self, at: u64) -> u64 {
        at.wrapping_sub(self.subject.code.start)
    }

    /// Where the words begin to which a call gives a pointer, and the register that has it.
    fn pointer(&self, seen: &Seen, call: &SeenCall) -> Option<(u64, Reg)> {
        let frame = call.sp..seen.sp;
        let given = self.abi.args.iter().map(|reg| (call.registers[*reg], *reg));
        given.filter(|(value, _)| frame.contains(value) && value.is_multiple_of(8)).min_by_key(|(value, _)| *value)
    }

    /// The words to which a call gives a pointer, as bytes above SP.
    pub fn given(&self, seen: &Seen, call: &SeenCall) -> impl Iterator<Item = u64> + use<> {
        let from = self.pointer(seen, call).map(|(at, _)| at);
        let above = self.abi.args.iter().any(|reg| call.registers[*reg].wrapping_sub(seen.sp) < CALLERS);
        let from = from.or(above.then_some(seen.sp)).map_or(u64::MAX, |at| at.wrapping_sub(call.sp));
        (from..frame_bytes(seen, call).max(from)).step_by(8)
    }

    /// What a word of a frame is called, `at` bytes above SP at a call.
    pub fn place(&self, seen: &Seen, call: usize, at: u64) -> String {
        let Some(call) = call.checked_sub(1).and_then(|n| seen.calls.get(n)) else { return String::new() };
        let place = call.sp.wrapping_add(at);
        match self.pointer(seen, call) {
            Some((from, _)) if place < seen.sp => format!("frame+{:#05x}", place.wrapping_sub(from)),
            _ => format!("[stack+{:#x}]", place.wrapping_sub(seen.sp)),
        }
    }

    fn call(&self, seen: &Seen, call: &SeenCall, lower: Option<&SeenCall>) -> Call {
        let (abi, machine) = (self.abi, self.subject.registers.machine);
        let pointer = self.pointer(seen, call);
        let base = pointer.map_or(call.sp, |(at, _)| at);
        let name = |value: u64| match value.wrapping_sub(base) {
            // A pointer to the frame is more than one to the stack.
            off if value < seen.sp && off < STACK_SIZE => signed("&frame", off),
            _ => self.name(seen, value),
        };
        let callee = self.name(seen, call.to);
        // A function that is entered behind its beginning may have anything live that may be at its entry.
        let live = if callee.contains('+') { abi.hidden.union(abi.callee_saved) } else { RegSet::EMPTY };
        let live = live.minus(RegSet::of(&[abi.fp, abi.sp])).iter();
        let other = |reg: &Reg| call.registers[*reg] != seen.before[*reg];
        let argument = abi.args.iter().copied().chain(live).filter(other);
        let words = call.words.iter().take((frame_bytes(seen, call) / 8) as usize).zip((call.sp..).step_by(8));
        // What lies right before is often a part of what is given: BPF's number of arguments.
        let from = if pointer.is_some() { base.saturating_sub(BEFORE).max(call.sp) } else { base };
        let stack = words.clone().take_while(|(value, _)| self.name(seen, **value).starts_with("[stack+"));
        let stack = stack.map(|(value, at)| (hex(at - call.sp), self.name(seen, *value)));
        let frame = words.filter(|(_, at)| (from..seen.sp).contains(at));
        let offset = |at: u64| if at < base { format!("-{}", hex(base - at)) } else { hex(at - base) };
        let usually = [16, 8].into_iter().find(|by| call.sp.is_multiple_of(*by)).unwrap_or(1);
        let always = [16, 8].into_iter().find(|by| {
            let other = lower.is_none_or(|l| l.sp.is_multiple_of(*by));
            call.sp.is_multiple_of(*by) && other
        });
        let vectors = abi.vector_args.iter().map(|i| usize::from(*i));
        let vectors = vectors.filter(|i| call.registers.vectors[*i] != seen.before.vectors[*i]);
        Call {
            callee,
            by: call.by.name().to_owned(),
            sp: self.name(seen, call.sp),
            aligned: always.unwrap_or(1),
            usually_aligned: usually,
            argument: argument.map(|r| (abi.name(r), name(call.registers[r]))).collect(),
            vectors: vectors.map(|i| machine.vectors[i].name).collect(),
            flags: self.unclear(call.unclear),
            chain: self.chain(seen, call, base),
            pointer: pointer.map(|(_, reg)| abi.name(reg)),
            stack: stack.collect(),
            frame: frame.clone().map(|(value, at)| (offset(at), name(*value))).collect(),
            at: self.offset(call.at),
            writers: self.writers(&call.writers),
            slots: frame.filter_map(|(_, at)| Some((offset(at), self.offset(*call.slots.get(&at)?)))).collect(),
        }
    }

    /// Which instruction changed each register last.
    fn writers(&self, writers: &[u64]) -> BTreeMap<&'static str, u64> {
        let all = self.abi.regs.iter().zip(writers).filter(|(_, at)| **at != 0);
        all.map(|(reg, at)| (reg.name, self.offset(*at))).collect()
    }

    fn unclear(&self, bits: u64) -> Vec<&'static str> {
        let all = self.subject.registers.machine.clear_flags.iter();
        all.filter(|(_, bit)| bits & bit != 0).map(|(name, _)| *name).collect()
    }

    /// What an unwinder finds that follows frame pointers; `base` is where the words begin that the callee is given.
    fn chain(&self, seen: &Seen, call: &SeenCall, base: u64) -> Vec<String> {
        let word = |at: u64| {
            let index = at.wrapping_sub(call.sp) / 8;
            call.words.get(usize::try_from(index).ok()?).copied().filter(|_| at.is_multiple_of(8))
        };
        let (mut fp, mut all) = (call.registers[self.abi.fp], Vec::new());
        while all.len() < FRAMES {
            let record = fp.wrapping_add_signed(self.subject.registers.machine.record);
            let Some((next, returns)) = word(record).zip(word(record.wrapping_add(8))) else { break };
            if self.name(seen, returns).starts_with(OLDER) {
                let place = if fp == seen.sp { "where SP was at the entry" } else { "elsewhere in the stack" };
                all.push(format!("a record that nobody has written, {place}"));
                return all;
            }
            let falls = next.wrapping_sub(STACK_TOP - STACK_SIZE) < STACK_SIZE && next <= fp;
            all.push(self.name(seen, returns) + if falls { " (the next one is below)" } else { "" });
            fp = next;
        }
        let inside = fp.wrapping_sub(STACK_TOP - STACK_SIZE) < STACK_SIZE;
        all.push(match inside {
            // Kernels mark so that there are registers in place of a record.
            true if fp & 1 != 0 && fp > base => format!("{}, which is marked", signed("&frame", (fp - base) & !1)),
            true => "the stack".to_owned(),
            false => self.name(seen, fp),
        });
        all
    }

    fn leave(&self, seen: &Seen) -> Leave {
        let (abi, machine) = (self.abi, self.subject.registers.machine);
        let all = (0..abi.regs.len() as u8).map(Reg).filter(|r| *r != abi.sp && Some(*r) != abi.zero);
        let (kept, changed): (Vec<Reg>, Vec<Reg>) = all.partition(|r| seen.before[*r] == seen.after[*r]);
        let changed = changed.into_iter().map(|r| (abi.name(r), self.name(seen, seen.after[r])));
        let flags = |s: &Snapshot| s.flags & machine.flags.map_or(0, |(_, mask)| mask);
        let vectors = machine.vectors.iter().zip(seen.before.vectors.iter().zip(&seen.after.vectors));
        let control = machine.control.iter().zip(seen.before.control.iter().zip(&seen.after.control));
        let memory = seen.above.0.iter().zip(&seen.above.1).zip((0_u64..).step_by(8));
        let memory = memory.filter(|((before, after), _)| before != after);
        let elsewhere = seen.writes.iter().map(|(at, value)| (at.clone(), self.name(seen, *value)));
        let last = seen.steps.last().copied().unwrap_or(self.subject.code.start);
        let (to, ends, by, next) = match &seen.end {
            End::At(to, by) => (self.name(seen, *to), true, self.by(*by, last), by.next),
            End::Never(why) => (why.clone(), false, String::new(), 0),
        };
        Leave {
            to,
            ends,
            at: self.offset(last),
            by,
            trap: self.traps(next),
            sp: self.name(seen, seen.after[abi.sp]),
            kept: kept.into_iter().map(|r| abi.name(r)).collect(),
            changed: changed.collect(),
            flags: flags(&seen.before) == flags(&seen.after),
            flag_bits: flags(&seen.after),
            flags_follow: false,
            unclear: self.unclear(seen.after.flags),
            vectors: vectors.filter(|(_, (a, b))| a != b).map(|(v, _)| v.name).collect(),
            control: control.filter(|(_, (a, b))| a != b).map(|(c, _)| c.reg.name).collect(),
            memory: memory.map(|((_, after), at)| (hex(at), self.name(seen, *after))).collect(),
            elsewhere: elsewhere.collect(),
            writers: self.writers(&seen.writers),
        }
    }

    /// Is the instruction there one that stops a CPU that is there by mistake?
    fn traps(&self, at: u64) -> bool {
        let machine = self.subject.registers.machine;
        let stands = |trap: &[u8]| !trap.is_empty() && self.subject.image.bytes(at, trap.len()) == Some(trap);
        self.offset(at) < self.subject.code.size && [machine.trap, machine.short_trap].into_iter().any(stands)
    }

    /// The last branch.
    fn by(&self, by: Taken, at: u64) -> String {
        match &self.subject.code.thunk {
            Some(thunk) if thunk.contains(&at) => {
                format!("{} in {}", by.name(), self.subject.registers.machine.return_thunk)
            }
            _ => by.name().to_owned(),
        }
    }

    fn unwind(&self, seen: &Seen) -> Vec<Unwound> {
        let mut all: Vec<Unwound> = Vec::new();
        for SeenUnwind { at, found } in &seen.unwinds {
            let at = self.offset(*at);
            let nothing = || "nothing".to_owned();
            let mut now = Unwound {
                from: at,
                to: at,
                cfa: nothing(),
                returns: nothing(),
                known_column: true,
                looked_up: false,
                lost: Vec::new(),
            };
            if let Some(found) = found {
                let lost = found.registers.iter().filter(|(reg, value)| seen.before[*reg] != *value);
                now.cfa = self.name(seen, found.cfa);
                now.returns = found.returns.map_or_else(|| "undefined".to_owned(), |at| self.name(seen, at));
                now.lost = lost.map(|(reg, _)| self.abi.name(*reg)).collect();
                (now.known_column, now.looked_up) = (found.known_column, found.looked_up);
            }
            match all.last_mut() {
                Some(last) if last.state() == now.state() => last.to = at,
                _ => all.push(now),
            }
        }
        all
    }

    /// Leave out that a store is still where it was made.
    pub fn forget(&self, way: &mut Way, call: usize, at: u64, seen: &Seen) {
        let Some(call) = call.checked_sub(1).and_then(|n| seen.calls.get(n)) else { return };
        let above = call.sp.wrapping_add(at).wrapping_sub(seen.sp);
        way.leave.memory.retain(|place, value| *place != hex(above) || !stored(value));
    }

    /// Where a stored word is found again.
    pub fn shows(&self, way: &Way) -> Vec<String> {
        let mut all = Vec::new();
        if stored(&way.leave.to) {
            all.push("where it goes".to_owned());
        }
        let changed = way.leave.changed.iter().filter(|(reg, v)| stored(v) && !self.is_scratch(reg));
        all.extend(changed.map(|(reg, _)| (*reg).to_owned()));
        all.extend(way.leave.memory.iter().filter(|(_, v)| stored(v)).map(|(at, _)| format!("[stack+{at}]")));
        for (call, n) in way.call.iter().zip(1..) {
            all.extend(call.argument.iter().filter(|(_, v)| stored(v)).map(|(r, _)| format!("{r} at call {n}")));
            if stored(&call.callee) {
                all.push(format!("callee of call {n}"));
            }
        }
        all
    }

    fn is_scratch(&self, name: &str) -> bool {
        self.abi.find(name).is_some_and(|reg| self.scratch.contains(reg))
    }

    /// An instruction, with where it goes as an offset in the code, or by name.
    pub fn line(&self, line: &Decoded) -> Line {
        let there = line.target.and_then(|to| match self.offset(to) {
            offset if offset < self.subject.code.size => Some(format!("+{offset:#x}")),
            _ => self.subject.names.name(to),
        });
        // It is the last operand.
        let text = match there.zip(line.text.rsplit_once([' ', ',', '#'])) {
            Some((there, (before, _))) => format!("{} {there}", before.trim_end_matches([' ', '#'])),
            None => line.text.to_string(),
        };
        // A mnemonic alone is before it: columns as the disassembler has them.
        let text = match text.split_once(' ') {
            Some((mnemonic, operands)) => format!("{mnemonic:<7} {}", operands.trim_start()),
            None => text,
        };
        Line { at: self.offset(line.at), text }
    }

    fn name(&self, seen: &Seen, value: u64) -> String {
        // Where that is depends on how long the code is.
        if let Some(n) = seen.calls.iter().position(|call| call.by.next == value) {
            return format!("behind call {}", n + 1);
        }
        seen.tokens.name(value, &self.subject.names, seen.sp)
    }
}

/// The registers whose values nobody looks at, wherever the code goes: C may overwrite them, and they carry nothing.
pub(super) fn scratch(abi: &Abi) -> RegSet {
    let passed = RegSet::of(abi.args).union(RegSet::of(abi.exit_rets)).union(RegSet::of(abi.rets));
    let link: Vec<Reg> = abi.link.into_iter().collect();
    abi.caller_saved.minus(passed).minus(RegSet::of(&link)).minus(abi.hidden)
}

fn stored(value: &str) -> bool {
    value.contains(" stored")
}

/// Bytes from SP at a call up to a few words above where it was at the entry.
fn frame_bytes(seen: &Seen, call: &SeenCall) -> u64 {
    (seen.sp + CALLERS).saturating_sub(call.sp).min(call.words.len() as u64 * 8)
}

fn signed(name: &str, off: u64) -> String {
    if off == 0 { name.to_owned() } else { format!("{name}+{off:#x}") }
}

/// An offset; numbers of one width, so that they are in order as text too.
pub(super) fn hex(at: u64) -> String {
    format!("{at:#05x}")
}

/// What differs in two tables.
pub(super) fn each<K: Ord + AsRef<str>>(
    left: &BTreeMap<K, String>,
    right: &BTreeMap<K, String>,
    absent: &str,
    mut say: impl FnMut(&str, &str, &str),
) {
    let mut keys: Vec<&K> = left.keys().chain(right.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        let [l, r] = [left, right].map(|side| side.get(key).map_or(absent, String::as_str));
        if l != r {
            say(key.as_ref(), l, r);
        }
    }
}
