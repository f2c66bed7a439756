//! The records of a thread, one after the other.

use std::io::{Read, Seek};

use codegen::words::error::Result;

use crate::file::Clock;
use crate::recording::{Recording, Thread};

/// The event of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    Entry,
    Return,
    Exception,
    /// The end of the thread: all its running calls end with it.
    ThreadEnd,
}

/// A record, its time in the recording's unit.
#[derive(Clone, Debug)]
pub struct Record {
    pub time: u64,
    pub function: u32,
    pub what: What,
    pub words: Vec<u64>,
}

/// A record as it lies in a buffer.
struct Raw {
    time: u64,
    function: u32,
    what: What,
    words: usize,
}

/// What `session/preload/preload.c` writes when a thread ends in the middle of calls.
const THREAD_END: u64 = 4;

/// Bytes of a record without words.
const LEAST: usize = 16;

/// The records of a thread.
pub struct Records<'r, R> {
    recording: &'r Recording<R>,
    thread: &'r Thread,
    /// The number of the thread's blocks that were loaded.
    loaded: usize,
    bytes: Vec<u8>,
    at: usize,
    /// The time of the last record, and what was near it.
    last: u64,
    near: usize,
    /// The next record with a time of its own: how many are before it, and the time.
    stamp: Option<(u64, u64)>,
    /// Bytes that are no record.
    unread: u64,
}

impl<'r, R: Read + Seek> Records<'r, R> {
    pub fn new(recording: &'r Recording<R>, thread: &'r Thread) -> Records<'r, R> {
        Records { recording, thread, loaded: 0, bytes: Vec::new(), at: 0, last: 0, near: 0, stamp: None, unread: 0 }
    }

    /// How many bytes so far are no record that was completed.
    pub fn unread(&self) -> u64 {
        self.unread
    }

    /// The next one. Those that were not completed are left out.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn next_record(&mut self) -> Result<Option<Record>> {
        let Some(raw) = self.next_raw()? else { return Ok(None) };
        let words = self.bytes[self.at - 8 * raw.words..self.at].chunks_exact(8).map(long).collect();
        Ok(Some(Record { time: self.time(&raw), function: raw.function, what: raw.what, words }))
    }

    /// The function of the next one, and what happened to it, where nobody asks when.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn next_event(&mut self) -> Result<Option<(u32, What)>> {
        Ok(self.next_raw()?.map(|raw| (raw.function, raw.what)))
    }

    fn next_raw(&mut self) -> Result<Option<Raw>> {
        loop {
            if let Some(raw) = self.next_in_block() {
                return Ok(Some(raw));
            }
            let Some(place) = self.thread.blocks.get(self.loaded) else { return Ok(None) };
            self.loaded += 1;
            self.at = 0;
            self.stamp = None;
            self.recording.load(*place, &mut self.bytes)?;
        }
    }

    fn next_in_block(&mut self) -> Option<Raw> {
        let (from, found) = (self.at, self.found(self.at));
        self.at = found.as_ref().map_or(self.bytes.len(), |(at, raw)| at + LEAST + 8 * raw.words);
        let skipped = found.as_ref().map_or(self.bytes.len(), |(at, _)| *at) - from;
        self.unread += skipped as u64;
        found.map(|(_, raw)| raw)
    }

    /// The first record from this offset on, and its offset. A slot that nobody completed has 0 in place of the function.
    fn found(&self, mut at: usize) -> Option<(usize, Raw)> {
        loop {
            let head = self.bytes.get(at..at + LEAST)?;
            let what = long(&head[8..]);
            let words = (what >> 4 & 15) as usize;
            let kind = match what & 15 {
                1 => Some(What::Entry),
                2 => Some(What::Return),
                3 => Some(What::Exception),
                _ if what == THREAD_END => Some(What::ThreadEnd),
                _ => None,
            };
            let known = |number: &u32| what == THREAD_END || self.recording.function(*number).is_some();
            let function = u32::try_from(what >> 8).ok().filter(known);
            let whole = at + LEAST + 8 * words <= self.bytes.len();
            match (function, kind) {
                (Some(function), Some(what)) if whole => {
                    return Some((at, Raw { time: long(head), function, what, words }));
                }
                // Slots with words begin at any multiple of 8.
                _ => at += if what == 0 { LEAST } else { 8 },
            }
        }
    }

    fn time(&mut self, raw: &Raw) -> u64 {
        let time = match self.recording.session.clock {
            Clock::None => self.last + 1,
            Clock::Stamp8 if raw.time == 0 => self.between(),
            Clock::Stamp8 | Clock::Tsc => {
                self.stamp = None;
                self.recording.time(raw.time, &mut self.near)
            }
        };
        // A signal's handler may record between the moments at which a record's slot and its time are taken.
        self.last = time.max(self.last);
        self.last
    }

    /// The time of a record that has none: as if all between two times took equally long.
    fn between(&mut self) -> u64 {
        let (before, time) = match self.stamp {
            Some(stamp) => stamp,
            None => self.next_stamp(),
        };
        self.stamp = Some((before.saturating_sub(1), time));
        if self.last == 0 {
            return time;
        }
        self.last + time.saturating_sub(self.last) / (before + 1)
    }

    /// The next time in this block, and how many records lie before it, the present one included.
    fn next_stamp(&mut self) -> (u64, u64) {
        let (mut at, mut before) = (self.at, 1);
        while let Some((place, raw)) = self.found(at) {
            if raw.time != 0 {
                return (before, self.recording.time(raw.time, &mut self.near));
            }
            before += 1;
            at = place + LEAST + 8 * raw.words;
        }
        (before, self.last)
    }
}

/// The first 8 bytes as a number.
fn long(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.get(..8).and_then(|eight| eight.try_into().ok()).unwrap_or_default())
}
