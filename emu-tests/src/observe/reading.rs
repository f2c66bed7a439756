//! What a run did, in values that are the same for any code that does the same.

use std::collections::BTreeMap;

use codegen::words::abi::{Abi, Reg, RegSet};
use codegen::words::term::{Root, Term};

use super::case::Case;
use super::code::Taken;
use super::observed::{By, Call, Caller, End, Leave, Line, Link, Shows, Unwound, Vectors, Way};
use super::run::{self, Seen, SeenCall, SeenUnwind, Subject};
use super::tokens::KERNEL;
use super::value::{Offset, Place, Value};
use crate::engine::cpu::{STACK_SIZE, STACK_TOP};
use crate::engine::disasm::Decoded;
use crate::engine::registers::Snapshot;

/// Bytes above where SP was that count as a frame's: what a call pushed, and what the caller has there.
const CALLERS: u64 = 0x20;
/// Bytes before what is given that may belong to it.
const BEFORE: u64 = 0x18;
/// Frames that an unwinder follows.
const FRAMES: usize = 4;

/// Who reads a run: it knows what values are.
pub(super) struct Reader<'a> {
    subject: &'a Subject<'a>,
    abi: &'static Abi,
    /// Registers that the code may be free to change, by the psABI, wherever it goes.
    scratch: RegSet,
}

impl Reader<'_> {
    pub fn new<'a>(subject: &'a Subject<'a>) -> Reader<'a> {
        let abi = subject.registers.abi;
        Reader { subject, abi, scratch: scratch(abi) }
    }

    /// A way; `lower` is the same with another SP, `general` the same with functions that use general registers only.
    pub fn way(&self, when: Case, seen: &Seen, lower: Option<&Seen>, general: Option<&Seen>) -> Way {
        let other = |i: usize| lower.and_then(|l| l.calls.get(i));
        let call = seen.calls.iter().enumerate().map(|(i, call)| self.call(seen, call, other(i))).collect();
        let offsets = |all: &mut dyn Iterator<Item = u64>| all.map(|at| self.offset(at)).collect();
        Way {
            when,
            instructions: seen.steps.len(),
            stack: seen.sp.saturating_sub(seen.lowest),
            mispaired: offsets(&mut seen.mispaired.iter().copied()),
            astray: offsets(&mut seen.predicted.iter().copied().filter(|at| !self.traps(*at))),
            beyond: seen.beyond.iter().map(|to| self.value(seen, *to)).collect(),
            unreturned: seen.unreturned,
            below: offsets(&mut seen.below.iter().copied()),
            crooked: offsets(&mut seen.crooked.iter().copied()),
            wide: offsets(&mut seen.wide.iter().copied()),
            shadow: offsets(&mut seen.shadow.iter().copied()),
            leave: Leave { general_only: general.map(|seen| self.vectors(seen)), ..self.leave(seen) },
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

    /// Where a word of a frame is, `at` bytes above SP at a call.
    pub fn place(&self, seen: &Seen, call: &SeenCall, at: u64) -> Place {
        let place = call.sp.wrapping_add(at);
        match self.pointer(seen, call) {
            Some((from, _)) if place < seen.sp => Place::Frame(Offset::between(from, place)),
            _ => Place::Stack(place.wrapping_sub(seen.sp) as i64),
        }
    }

    fn call(&self, seen: &Seen, call: &SeenCall, lower: Option<&SeenCall>) -> Call {
        let (abi, machine) = (self.abi, self.subject.registers.machine);
        let pointer = self.pointer(seen, call);
        let base = pointer.map_or(call.sp, |(at, _)| at);
        let named = |value: u64| match value.wrapping_sub(base) {
            // A pointer to the frame is more than one to the stack.
            off if value < seen.sp && off < STACK_SIZE => self.of(Term::from(Root::Frame).plus(off as i64)),
            _ => self.value(seen, value),
        };
        let callee = self.value(seen, call.to);
        // A function that is entered behind its beginning may have anything live that may be at its entry.
        let live = if callee.is_behind() { live(abi).union(abi.callee_saved) } else { RegSet::EMPTY };
        let live = live.minus(RegSet::of(&[abi.fp, abi.sp])).iter();
        let other = |reg: &Reg| call.registers[*reg] != seen.before[*reg];
        let of_kernel = std::iter::once(&abi.syscall.number).chain(abi.syscall.args);
        let arguments: Vec<Reg> = match call.to {
            KERNEL => of_kernel.copied().collect(),
            _ => abi.args.iter().copied().chain(live).collect(),
        };
        let argument = arguments.into_iter().filter(other);
        let words = call.words.iter().take((frame_bytes(seen, call) / 8) as usize).zip((call.sp..).step_by(8));
        // What lies right before is often a part of what is given: BPF's number of arguments.
        let from = if pointer.is_some() { base.saturating_sub(BEFORE).max(call.sp) } else { base };
        let stack = words.clone().take_while(|(value, _)| self.value(seen, **value).is_on_stack());
        let stack = stack.map(|(value, at)| (Offset::between(call.sp, at), self.value(seen, *value)));
        let frame = words.filter(|(_, at)| (from..seen.sp).contains(at));
        let offset = |at: u64| Offset::between(base, at);
        let usually = [16, 8].into_iter().find(|by| call.sp.is_multiple_of(*by)).unwrap_or(1);
        let always = [16, 8].into_iter().find(|by| {
            let other = lower.is_none_or(|l| l.sp.is_multiple_of(*by));
            call.sp.is_multiple_of(*by) && other
        });
        let vectors = abi.vector_args.iter().map(|i| usize::from(*i));
        let vectors = vectors.filter(|i| call.registers.vectors[*i] != seen.before.vectors[*i]);
        Call {
            callee,
            by: By { kind: call.by.kind(), inside: None },
            sp: self.value(seen, call.sp),
            aligned: always.unwrap_or(1),
            usually_aligned: usually,
            argument: argument.map(|r| (abi.name(r), named(call.registers[r]))).collect(),
            vectors: vectors.map(|i| machine.vectors[i].name).collect(),
            flags: self.unclear(call.unclear),
            chain: self.chain(seen, call, base),
            pointer: pointer.map(|(_, reg)| abi.name(reg)),
            stack: stack.collect(),
            frame: frame.clone().map(|(value, at)| (offset(at), named(*value))).collect(),
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
    fn chain(&self, seen: &Seen, call: &SeenCall, base: u64) -> Vec<Link> {
        let word = |at: u64| {
            let index = at.wrapping_sub(call.sp) / 8;
            call.words.get(usize::try_from(index).ok()?).copied().filter(|_| at.is_multiple_of(8))
        };
        let (mut fp, mut all) = (call.registers[self.abi.fp], Vec::new());
        while all.len() < FRAMES {
            let record = fp.wrapping_add_signed(self.subject.registers.machine.record);
            let Some((next, returns)) = word(record).zip(word(record.wrapping_add(8))) else { break };
            let returns = self.value(seen, returns);
            if returns.is_older() {
                all.push(Link::Unwritten(fp == seen.sp));
                return all;
            }
            let falls = next.wrapping_sub(STACK_TOP - STACK_SIZE) < STACK_SIZE && next <= fp;
            all.push(if falls { Link::Falls(returns) } else { Link::Returns(returns) });
            fp = next;
        }
        let inside = fp.wrapping_sub(STACK_TOP - STACK_SIZE) < STACK_SIZE;
        all.push(match inside {
            // Kernels mark so that there are registers in place of a record.
            true if fp & 1 != 0 && fp > base => Link::Marked(Offset::between(base, fp & !1)),
            true => Link::Stack,
            false => Link::Other(self.value(seen, fp)),
        });
        all
    }

    fn leave(&self, seen: &Seen) -> Leave {
        let (abi, machine) = (self.abi, self.subject.registers.machine);
        let all = (0..abi.regs.len() as u8).map(Reg).filter(|r| *r != abi.sp && Some(*r) != abi.zero);
        let (kept, changed): (Vec<Reg>, Vec<Reg>) = all.partition(|r| seen.before[*r] == seen.after[*r]);
        let changed = changed.into_iter().map(|r| (abi.name(r), self.value(seen, seen.after[r])));
        let flags = |s: &Snapshot| s.flags & machine.flags.map_or(0, |(_, mask)| mask);
        let control = machine.control.iter().zip(seen.before.control.iter().zip(&seen.after.control));
        let memory = seen.above.0.iter().zip(&seen.above.1).zip((0..).step_by(8));
        let memory = memory.filter(|((before, after), _)| before != after);
        let elsewhere = seen.writes.iter().map(|(at, value)| (self.content(at), self.value(seen, *value)));
        let last = seen.steps.last().copied().unwrap_or(self.subject.code.start);
        let (end, next) = match &seen.end {
            run::End::At(to, by) => (End::Goes { to: self.value(seen, *to), by: self.by(*by, last) }, by.next),
            run::End::Never(why) => (End::Never { never: why.clone() }, 0),
        };
        Leave {
            end,
            at: self.offset(last),
            trap: self.traps(next),
            sp: self.value(seen, seen.after[abi.sp]),
            kept: kept.into_iter().map(|r| abi.name(r)).collect(),
            changed: changed.collect(),
            flags: flags(&seen.before) == flags(&seen.after),
            flag_bits: flags(&seen.after),
            flags_follow: false,
            unclear: self.unclear(seen.after.flags),
            vectors: self.vectors(seen),
            general_only: None,
            control: control.filter(|(_, (a, b))| a != b).map(|(c, _)| c.reg.name).collect(),
            memory: memory.map(|((_, after), at)| (Offset(at), self.value(seen, *after))).collect(),
            elsewhere: elsewhere.collect(),
            writers: self.writers(&seen.writers),
        }
    }

    fn vectors(&self, seen: &Seen) -> Vectors {
        let (machine, half) = (self.subject.registers.machine, self.abi.vector_bytes / 2);
        let mut all = Vectors::default();
        for (reg, (before, after)) in machine.vectors.iter().zip(seen.before.vectors.iter().zip(&seen.after.vectors)) {
            match before.iter().zip(after).position(|(before, after)| before != after) {
                Some(first) if first < half => all.vectors.push(reg.name),
                Some(_) => all.upper_halves.push(reg.name),
                None => {}
            }
        }
        all
    }

    /// Is the instruction there one that stops a CPU that is there by mistake?
    fn traps(&self, at: u64) -> bool {
        let machine = self.subject.registers.machine;
        let stands = |trap: &[u8]| !trap.is_empty() && self.subject.image.bytes(at, trap.len()) == Some(trap);
        self.offset(at) < self.subject.code.size && [machine.trap, machine.short_trap].into_iter().any(stands)
    }

    /// The last branch.
    fn by(&self, by: Taken, at: u64) -> By {
        let thunk = self.subject.code.thunk.as_ref().filter(|thunk| thunk.contains(&at));
        By { kind: by.kind(), inside: thunk.map(|_| self.subject.registers.machine.return_thunk) }
    }

    fn unwind(&self, seen: &Seen) -> Vec<Unwound> {
        let mut all: Vec<Unwound> = Vec::new();
        for SeenUnwind { at, found } in &seen.unwinds {
            let at = self.offset(*at);
            let now = match found {
                None => Unwound {
                    from: at,
                    to: at,
                    caller: Caller::Nothing {},
                    known_column: true,
                    looked_up: false,
                    lost: Vec::new(),
                },
                Some(found) => {
                    let lost = found.registers.iter().filter(|(reg, value)| seen.before[*reg] != *value);
                    let cfa = self.value(seen, found.cfa);
                    Unwound {
                        from: at,
                        to: at,
                        caller: match found.returns {
                            Some(returns) => Caller::Found { cfa, returns: self.value(seen, returns) },
                            None => Caller::Undefined { cfa },
                        },
                        known_column: found.known_column,
                        looked_up: found.looked_up,
                        lost: lost.map(|(reg, _)| self.abi.name(*reg)).collect(),
                    }
                }
            };
            match all.last_mut() {
                Some(last) if last.state() == now.state() => last.to = at,
                _ => all.push(now),
            }
        }
        all
    }

    /// Leave out that a store is still where it was made.
    pub fn forget(&self, way: &mut Way, call: u16, at: u64, seen: &Seen) {
        let Some(call) = usize::from(call).checked_sub(1).and_then(|n| seen.calls.get(n)) else { return };
        let above = Offset::between(seen.sp, call.sp.wrapping_add(at));
        way.leave.memory.retain(|place, value| *place != above || !value.is_stored());
    }

    /// Where a stored word is found again.
    pub fn shows(&self, way: &Way) -> Vec<Shows> {
        let mut all = Vec::new();
        if way.leave.to().is_some_and(Value::is_stored) {
            all.push(Shows::To);
        }
        let changed = way.leave.changed.iter().filter(|(reg, v)| v.is_stored() && !self.is_scratch(reg));
        all.extend(changed.map(|(reg, _)| Shows::Register(reg)));
        all.extend(way.leave.memory.iter().filter(|(_, v)| v.is_stored()).map(|(at, _)| Shows::CallerWord(*at)));
        for (call, n) in way.call.iter().zip(1..) {
            let given = call.argument.iter().filter(|(_, v)| v.is_stored());
            all.extend(given.map(|(reg, _)| Shows::Argument(reg, n)));
            if call.callee.is_stored() {
                all.push(Shows::Callee(n));
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
            _ => Some(self.subject.names.term(to)?.show(self.abi).to_string()),
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

    fn of(&self, term: Term) -> Value {
        Value::new(term, self.abi)
    }

    fn value(&self, seen: &Seen, value: u64) -> Value {
        // Where that is depends on how long the code is.
        self.of(match seen.calls.iter().position(|call| call.by.next == value) {
            Some(n) => Root::Behind(n as u16 + 1).into(),
            None => seen.tokens.term(value, &self.subject.names, seen.sp),
        })
    }

    /// The word of memory at an address.
    pub fn content(&self, at: &Term) -> Value {
        self.of(at.clone().content())
    }

    /// What a register held at the entry.
    pub fn register(&self, reg: Reg) -> Value {
        self.of(Root::Reg(reg).into())
    }
}

/// The registers whose values nobody looks at, wherever the code goes: C may overwrite them, and they carry nothing.
pub(super) fn scratch(abi: &Abi) -> RegSet {
    let passed = RegSet::of(abi.args).union(RegSet::of(abi.exit_rets)).union(RegSet::of(abi.rets));
    let link: Vec<Reg> = abi.link.into_iter().collect();
    abi.caller_saved.minus(passed).minus(RegSet::of(&link)).minus(abi.hidden)
}

/// The registers besides those for arguments that may be live at a function's entry.
pub(super) fn live(abi: &Abi) -> RegSet {
    abi.live.iter().fold(abi.hidden, |all, (_, registers)| all.union(*registers))
}

/// Bytes from SP at a call up to a few words above where it was at the entry.
fn frame_bytes(seen: &Seen, call: &SeenCall) -> u64 {
    (seen.sp + CALLERS).saturating_sub(call.sp).min(call.words.len() as u64 * 8)
}
