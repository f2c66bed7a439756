//! What is a thread's: the words and the buffer of trampolines that record.

use codegen::contract::Contract;
use codegen::error::{Error, Result};
use codegen::recorder::Recorder;
use unicorn_engine::Prot;

use crate::case::Case;
use crate::cpu::{Cpu, put_word, word, words};

/// Where the thread pointer points to, with memory on both sides.
pub(crate) const POINTER: u64 = 0x4001_0000;
/// Bytes of memory on each side.
const SIDE: u64 = 0x1_0000;
/// Bytes beside each word that must stay as they are.
const BESIDE: u64 = 256;
/// The buffer.
pub(crate) const BUFFER: u64 = 0x4004_0000;
/// Bytes of it, with what lies behind the limit.
pub(crate) const SIZE: u64 = 0x1000;
/// The limit, where there is room for all.
const ROOMY: u64 = BUFFER + SIZE - Recorder::LARGEST as u64;
/// What the counter holds at first: both halves change when it is counted up.
pub(crate) const COUNT: u64 = 0x1234_5678_ffff_ffff;
/// Bytes for each of which one record has the time, where not all have it.
const BLOCK: u64 = 128;
/// Bytes from where the first record begins to where the routine makes room, which is less than what follows.
const FURTHER: u64 = 0x800;
/// What each word of the buffer holds at first: no record has it.
pub(crate) const FRESH: u64 = 0xa5a5_a5a5_a5a5_a5a5;
/// What the time is at first.
pub(crate) const TIME: u64 = 0x0102_0304_0506_0708;

/// Map the thread's memory.
///
/// # Errors
/// The engine does not.
pub(crate) fn map<D>(uc: &mut Cpu<'_, D>) -> Result<()> {
    let failed = |e| Error::new(format!("emulator: the thread's memory: {e:?}"));
    uc.mem_map(POINTER - SIDE, 2 * SIDE, Prot::READ | Prot::WRITE).map_err(failed)?;
    uc.mem_map(BUFFER, SIZE, Prot::READ | Prot::WRITE).map_err(failed)
}

/// The words of a thread: where each is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    pub cursor: u64,
    pub limit: u64,
    pub count: u64,
    /// A routine is called where there is no room.
    refill: bool,
}

impl Words {
    /// Those that a contract names; `None` of one that records nothing.
    pub(crate) fn of(contract: &Contract) -> Option<Words> {
        let refill = contract.kind.recorder()?.refill;
        let [cursor, limit, count] = contract.thread_words.map(|at| POINTER.wrapping_add_signed(at.into()));
        Some(Words { cursor, limit, count, refill })
    }

    /// Refuse what lies where the emulated thread has no memory, or on one another.
    ///
    /// # Errors
    /// It does.
    pub(crate) fn check(contract: &Contract) -> Result<()> {
        let most = (SIDE - BESIDE - 8) as i32;
        let Some(at) = contract.kind.recorder().and(Some(contract.thread_words)) else { return Ok(()) };
        if let Some(far) = at.into_iter().find(|at| !(-most..=most).contains(at) || at % 8 != 0) {
            let valid = format!("multiples of 8 from {} to {}", -(most / 8 * 8), most / 8 * 8);
            return Err(Error::new(format!("{}: {far} bytes from the thread pointer; valid: {valid}", contract.name)));
        }
        let [cursor, limit, count] = at;
        if cursor == limit || limit == count || cursor == count {
            let valid = "valid: cursor, limit and counter each at a place of its own";
            return Err(Error::new(format!("{}: two words of the thread at one place; {valid}", contract.name)));
        }
        Ok(())
    }

    /// What all three hold before a run.
    fn at_first(self, case: &Case) -> [(u64, u64); 3] {
        let limit = match case.situation.room() {
            None => ROOMY,
            // One record begins right below the limit.
            Some(room) => first(case) + 8 * room,
        };
        [(self.cursor, first(case)), (self.limit, limit), (self.count, COUNT)]
    }

    /// Bytes of the buffer in which records may begin.
    pub(crate) fn room(self, case: &Case) -> u64 {
        self.at_first(case)[1].1 - first(case)
    }

    /// Memory as it is before a run.
    pub(crate) fn prepare<D>(self, case: &Case, clock: Option<u64>, uc: &mut Cpu<'_, D>) {
        if let Some(at) = clock {
            put_word(uc, at, TIME);
        }
        for (at, _) in self.at_first(case) {
            let _ = uc.mem_write(at - BESIDE, &[0; 2 * BESIDE as usize]);
        }
        let _ = uc.mem_write(BUFFER, &[0xa5; SIZE as usize]);
        for (at, value) in self.at_first(case) {
            put_word(uc, at, value);
        }
    }

    /// What is there afterwards: words with their addresses, those beside the three included.
    pub(crate) fn left<D>(self, uc: &Cpu<'_, D>) -> Left {
        let beside = |at: u64| {
            let all = words(uc, at - BESIDE, 2 * BESIDE as usize);
            (at - BESIDE..).step_by(8).zip(all).collect::<Vec<_>>()
        };
        let near = [self.cursor, self.limit, self.count].into_iter().flat_map(beside);
        Left { near: near.collect(), buffer: words(uc, BUFFER, SIZE as usize) }
    }

    /// What the routine does that may make room: the words as they are then, if it changes them.
    pub(crate) fn refill<D>(self, case: &Case, uc: &mut Cpu<'_, D>) {
        let now = (word(uc, self.cursor), word(uc, self.limit));
        // A signal may have come before it, and made room already.
        if now.0 >= now.1 {
            let (cursor, limit) = refilled(case, now);
            put_word(uc, self.cursor, cursor);
            put_word(uc, self.limit, limit);
        }
    }

    /// Is the cursor known that is left when others record meanwhile?
    pub(crate) fn counts(self, case: &Case) -> bool {
        !self.refill || case.situation.room().is_none()
    }

    /// What must be there when these records were written, and the counter counted up so often.
    pub(crate) fn wanted(self, case: &Case, records: &[Written], counted: u64) -> Left {
        let [(_, mut cursor), (_, mut limit), (_, count)] = self.at_first(case);
        let mut buffer = vec![FRESH; SIZE as usize / 8];
        for record in records {
            let bytes = 8 * record.words.len() as u64;
            if cursor >= limit && self.refill {
                // What was taken first counts on, and another slot is taken.
                (cursor, limit) = refilled(case, (cursor + bytes, limit));
            }
            let end = cursor + bytes;
            if cursor < limit {
                let from = ((cursor - BUFFER) / 8) as usize;
                buffer.iter_mut().skip(from).zip(&record.words).for_each(|(slot, word)| *slot = *word);
                if record.stamp && !(cursor..end).any(|byte| byte % BLOCK == 0) {
                    buffer[from] = 0;
                }
            }
            cursor = end;
        }
        let of = |at: u64| {
            let known = [(self.cursor, cursor), (self.limit, limit), (self.count, count.wrapping_add(counted))];
            known.into_iter().find(|(place, _)| *place == at).map_or(0, |(_, value)| value)
        };
        let beside = |at: u64| (at - BESIDE..at + BESIDE).step_by(8).map(|at| (at, of(at))).collect::<Vec<_>>();
        let near = [self.cursor, self.limit, self.count].into_iter().flat_map(beside);
        Left { near: near.collect(), buffer }
    }
}

/// Cursor and limit when the routine was called.
fn refilled(case: &Case, now: (u64, u64)) -> (u64, u64) {
    if case.situation.refills() { (first(case) + FURTHER, ROOMY) } else { now }
}

/// Where records may begin in a run, and those that are made room for.
pub(crate) fn beginnings(case: &Case) -> impl Iterator<Item = u64> {
    let further = case.situation.refills().then_some(first(case) + FURTHER);
    std::iter::once(first(case)).chain(further)
}

/// A record: its words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Written {
    pub words: Vec<u64>,
    /// It has the time only if a multiple of [`BLOCK`] bytes lies in it.
    pub stamp: bool,
}

/// Where the first record of a run begins: anywhere in a block.
pub(crate) fn first(case: &Case) -> u64 {
    BUFFER + 8 * case.slot
}

/// What is in a thread's memory after a run.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Left {
    /// The three words and what lies beside them, with their addresses.
    pub near: Vec<(u64, u64)>,
    /// The buffer.
    pub buffer: Vec<u64>,
}
