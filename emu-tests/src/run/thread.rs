//! The memory of a thread: the words and the buffer of trampolines that record.

use std::collections::BTreeSet;

use codegen::contract::Contract;
use codegen::words::error::{Error, Result};
use codegen::words::recorder::Recorder;

use crate::engine::cpu::{put_word, word, words};
use crate::engine::interface::{Cpu, Holds};
use crate::engine::registers::Registers;
use crate::engine::shadow_stack::{self, FRESH, Kept};
use crate::run::case::Case;
use crate::run::scs;
use crate::run::situation::{First, Situation};

/// The thread pointer, with memory on both sides.
pub(crate) const POINTER: u64 = 0x67_8d21_0000;
/// Bytes from there to the variable that has the thread's words, where one has them: its words lie on both sides of a multiple of
/// 4096, and each part of an offset counts.
pub(crate) const VARIABLE: u64 = 0x5ff0;
/// Bytes of memory on each side.
const SIDE: u64 = 0x1_0000;
/// Bytes beside each word that must stay as they are.
const BESIDE: u64 = 256;
/// Above this the buffer lies.
pub(crate) const BUFFER: u64 = 0x67_8d24_0000;
/// Bytes of it, with what lies behind where no record begins.
pub(crate) const SIZE: u64 = 0x1000;
/// Where a bit of the address says so, bytes before that; and as many behind it.
const BELOW: u64 = 0x1000;
/// The counter's first value: counting up changes both halves.
pub(crate) const COUNT: u64 = 0x1234_5678_ffff_ffff;
/// Bytes for each of which one record has the time, where not all have it.
const BLOCK: u64 = 128;
/// Bytes from where the buffer begins to where the routine makes room.
const FURTHER: u64 = BELOW / 2;
/// The clock's first value.
pub(crate) const TIME: u64 = 0x0102_0304_0506_0708;

/// Have the thread pointer point there: the register of this name, or, without one, the first that the machine has for that.
///
/// # Errors
/// The engine has no such register.
pub(crate) fn point<D>(uc: &mut Cpu<'_, D>, registers: Registers, pointer: Option<&str>, at: u64) -> Result<()> {
    if let Some(reg) = pointer.and_then(|name| registers.abi.find(name)) {
        registers.set(uc, reg, at);
        return Ok(());
    }
    let mut known = registers.machine.threads.iter();
    let reg = known.find(|reg| pointer.is_none_or(|name| reg.name == name));
    reg.map_or(Ok(()), |reg| uc.write(reg.id, at))
}

/// Map the thread's memory, with buffers of so many bytes.
///
/// # Errors
/// The engine does not.
pub(crate) fn map<D>(uc: &mut Cpu<'_, D>, buffers: impl IntoIterator<Item = (u64, u64)>) -> Result<()> {
    let beside = (POINTER - SIDE, 2 * SIDE);
    let mut all = [beside, (shadow_stack::STACK, shadow_stack::SIZE)].into_iter().chain(buffers);
    all.try_for_each(|(at, size)| uc.map(at, size, Holds::Data))
}

/// Make room for what these trampolines record, if one does, and for a shadow call stack.
pub(crate) fn map_for<D>(uc: &mut Cpu<'_, D>, contracts: &[Contract]) -> Result<()> {
    scs::map_for(uc, contracts)?;
    if contracts.iter().all(|c| c.kind.recorder().is_none()) {
        return Ok(());
    }
    contracts.iter().try_for_each(Words::check)?;
    map(uc, buffers(contracts))
}

/// The buffers of trampolines with these contracts: where each begins, and its bytes.
pub(crate) fn buffers(contracts: &[Contract]) -> BTreeSet<(u64, u64)> {
    contracts.iter().filter_map(Words::of).map(|words| (words.buffer, words.size())).collect()
}

/// The words of a thread: where each is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    pub cursor: u64,
    pub limit: u64,
    pub count: u64,
    /// The address of the buffer.
    pub buffer: u64,
    /// A routine is called where there is no room: where none begins any more by that, and the bit of an address that says so.
    full: Option<(u64, u64)>,
    /// The way back is on the shadow stack.
    pub kept: Option<Kept>,
    /// A slot has the record of a return behind that of the entry.
    pub pair: bool,
}

impl Words {
    /// The words that a contract names; `None` if its trampoline records nothing.
    pub(crate) fn of(contract: &Contract) -> Option<Words> {
        let Recorder { refill, shadow, pair, .. } = contract.kind.recorder()?;
        let from = if contract.tls.is_empty() { POINTER } else { POINTER + VARIABLE };
        let place = |at: i32| from.wrapping_add_signed(at.into());
        let [cursor, limit, count] = contract.thread_words.map(place);
        let kept = shadow.then(|| contract.shadow_words.map(place)).map(|[top, limit]| Kept { top, limit });
        let room = 1_u64.checked_shl(contract.full_bit.unsigned_abs()).filter(|_| refill);
        // Half of so much memory is for records, and the bit is set in the other half.
        let full = room.map(|room| (BUFFER.next_multiple_of(2 * room) + room, room));
        let buffer = full.map_or(BUFFER, |(full, _)| full - BELOW);
        Some(Words { cursor, limit, count, buffer, full, kept, pair })
    }

    /// Refuse what lies where the emulated thread has no memory, or on one another.
    ///
    /// # Errors
    /// It does.
    pub(crate) fn check(contract: &Contract) -> Result<()> {
        let most = (SIDE - VARIABLE - BESIDE - 8) as i32;
        let Some(recorder) = contract.kind.recorder() else { return Ok(()) };
        let shadow = contract.shadow_words.into_iter().filter(|_| recorder.shadow);
        let at: Vec<i32> = contract.thread_words.into_iter().chain(shadow).collect();
        if let Some(far) = at.iter().find(|at| !(-most..=most).contains(*at)) {
            let valid = format!("{} to {}", -(most / 8 * 8), most / 8 * 8);
            return Err(Error::new(format!("{}: {far} bytes from the thread pointer; valid: {valid}", contract.name)));
        }
        contract.places().map_err(|e| e.at(&contract.name))
    }

    /// Bytes of the buffer, with what lies behind.
    fn size(self) -> u64 {
        if self.full.is_some() { 2 * BELOW } else { SIZE }
    }

    /// What all of them hold before a run.
    fn at_first(self, case: &Case) -> impl Iterator<Item = (u64, u64)> {
        let limit = match (self.full, case.situation.room()) {
            _ if matches!(case.situation, Situation::First(_)) => 0,
            // No record may begin there, and the word says nothing.
            (Some(_), _) => COUNT,
            (None, None) => self.end(),
            (None, Some(room)) => self.first(case) + 8 * room,
        };
        let kept = self.kept.map(|kept| match case.situation {
            Situation::First(First::Made) => kept.promised(),
            Situation::First(_) => kept.none(),
            situation => kept.at_first(situation.untraced(), case.closely),
        });
        let three = [(self.cursor, self.first(case)), (self.limit, limit), (self.count, COUNT)];
        three.into_iter().chain(kept.into_iter().flatten())
    }

    /// The addresses of the words.
    fn all(self) -> impl Iterator<Item = u64> {
        let kept = self.kept.map(|Kept { top, limit }| [top, limit]);
        [self.cursor, self.limit, self.count].into_iter().chain(kept.into_iter().flatten())
    }

    /// Where the first record of a run begins: anywhere in a block; with little room, right below where none does.
    pub(crate) fn first(self, case: &Case) -> u64 {
        match (self.full, case.situation.room()) {
            (full, _) if matches!(case.situation, Situation::First(_)) => full.map_or(0, |(_, bit)| bit),
            (Some((full, _)), Some(0)) => full + 8 * case.slot,
            (Some((full, _)), Some(room)) => full - 8 * room,
            _ => self.buffer + 8 * case.slot,
        }
    }

    /// Where no record begins, if there is room for all before that.
    fn end(self) -> u64 {
        let largest = if self.pair { Recorder::LARGEST_PAIR } else { Recorder::LARGEST };
        self.full.map_or(self.buffer + SIZE - largest as u64, |(full, _)| full)
    }

    /// May a record begin there?
    fn has_room(self, at: u64, limit: u64) -> bool {
        self.full.map_or(at < limit, |(_, bit)| at & bit == 0)
    }

    /// The address at which the routine makes room.
    fn further(self, case: &Case) -> u64 {
        self.buffer + FURTHER + 8 * case.slot
    }

    /// Bytes of the buffer in which records may begin.
    pub(crate) fn room(self, case: &Case) -> u64 {
        match case.situation.room() {
            Some(_) if case.situation.refills() => self.end() - self.further(case),
            Some(room) => 8 * room,
            None => self.end() - self.first(case),
        }
    }

    /// Where records begin in a run: where they do at first, if there is room, and where the routine made some.
    pub(crate) fn beginnings(self, case: &Case) -> impl Iterator<Item = u64> {
        let first = self.first(case);
        let further = case.situation.refills().then(|| self.further(case));
        Some(first).filter(|at| *at >= self.buffer && self.has_room(*at, u64::MAX)).into_iter().chain(further)
    }

    /// Memory as it is before a run.
    pub(crate) fn prepare<D>(self, case: &Case, clock: Option<u64>, uc: &mut Cpu<'_, D>) {
        if let Some(at) = clock {
            put_word(uc, at, TIME);
        }
        for (at, _) in self.at_first(case) {
            uc.store(at - BESIDE, &[0; 2 * BESIDE as usize]);
        }
        uc.store(self.buffer, &vec![0xa5; self.size() as usize]);
        for (at, value) in self.at_first(case) {
            put_word(uc, at, value);
        }
        if self.kept.is_some() {
            Kept::prepare(uc);
        }
    }

    /// What is there afterwards: words with their addresses, those beside them included.
    pub(crate) fn left<D>(self, uc: &Cpu<'_, D>) -> Left {
        let beside = |at: u64| {
            let all = words(uc, at - BESIDE, 2 * BESIDE as usize);
            (at - BESIDE..).step_by(8).zip(all).collect::<Vec<_>>()
        };
        Left { near: self.all().flat_map(beside).collect(), buffer: words(uc, self.buffer, self.size() as usize) }
    }

    /// Was something stored where no record can be?
    pub(crate) fn overruns(self, case: &Case, left: &Left) -> bool {
        let Some((full, _)) = self.full else { return false };
        // The last record may begin right below.
        let last = if case.situation.room() == Some(0) { 0 } else { Recorder::LARGEST as u64 - 8 };
        left.buffer.iter().skip(((full + last - self.buffer) / 8) as usize).any(|word| *word != FRESH)
    }

    /// What the routine does that may make room, if there is none: a signal may have come before it.
    pub(crate) fn refill<D>(self, case: &Case, uc: &mut Cpu<'_, D>) {
        if case.situation.refills() && !self.has_room(word(uc, self.cursor), u64::MAX) {
            put_word(uc, self.cursor, self.further(case));
        }
        // A thread that has no shadow stack gets one.
        if let Some(kept) = self.kept.filter(|kept| word(uc, kept.top) == 0) {
            for (at, value) in kept.at_first(false, false) {
                put_word(uc, at, value);
            }
        }
    }

    /// Is the cursor known that is left when others record meanwhile?
    pub(crate) fn counts(self, case: &Case) -> bool {
        self.full.is_none() || case.situation.room().is_none()
    }

    /// How often the routine is called, if there is one: for each record that finds no room.
    pub(crate) fn refills(self, case: &Case, records: &[Written]) -> Option<u64> {
        self.full?;
        let (mut cursor, mut calls) = (self.first(case), 0);
        for record in records {
            let bytes = 8 * record.words.len() as u64;
            if !self.has_room(cursor, u64::MAX) {
                calls += 1;
                cursor = if case.situation.refills() { self.further(case) } else { cursor + bytes };
            }
            cursor += bytes;
        }
        Some(calls)
    }

    /// What must be there when these records were written, and the counter counted up so often.
    pub(crate) fn wanted(self, case: &Case, records: &[Written], counted: u64) -> Left {
        let mut known: Vec<(u64, u64)> = self.at_first(case).collect();
        if let (Some(kept), Situation::First(First::Made)) = (self.kept, case.situation) {
            known.truncate(3);
            known.extend(kept.at_first(false, false));
        }
        let (mut cursor, limit) = (known[0].1, known[1].1);
        known[2].1 = known[2].1.wrapping_add(counted);
        let mut buffer = vec![FRESH; self.size() as usize / 8];
        for record in records {
            let bytes = 8 * record.words.len() as u64;
            if !self.has_room(cursor, limit) && self.full.is_some() {
                // What was taken first counts on, and another slot is taken.
                cursor = if case.situation.refills() { self.further(case) } else { cursor + bytes };
            }
            let end = cursor + bytes;
            if self.has_room(cursor, limit) {
                let from = ((cursor - self.buffer) / 8) as usize;
                buffer.iter_mut().skip(from).zip(&record.words).for_each(|(slot, word)| *slot = *word);
                if record.stamp && !(cursor..end).any(|byte| byte % BLOCK == 0) {
                    buffer[from] = 0;
                }
            }
            cursor = end;
        }
        known[0].1 = cursor;
        let of = |at: u64| known.iter().find(|(place, _)| *place == at).map_or(0, |(_, value)| *value);
        let beside = |at: u64| (at - BESIDE..at + BESIDE).step_by(8).map(|at| (at, of(at))).collect::<Vec<_>>();
        Left { near: self.all().flat_map(beside).collect(), buffer }
    }
}

/// A record: its words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Written {
    pub words: Vec<u64>,
    /// It has the time only if a multiple of [`BLOCK`] bytes lies in it.
    pub stamp: bool,
}

/// The content of a thread's memory after a run.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Left {
    /// The words and what lies beside them, with their addresses.
    pub near: Vec<(u64, u64)>,
    /// The buffer.
    pub buffer: Vec<u64>,
}
