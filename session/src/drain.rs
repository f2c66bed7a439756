//! From the pool to the sink.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::Path;

use codegen::words::input;

use crate::pool::{BUFFER, Pool, State};
use crate::sink::Sink;

/// Empties buffers.
#[derive(Default)]
pub struct Drain {
    words: Vec<u64>,
    /// Those that were handed in with a record that is not there yet: a signal has interrupted it, and its handler has filled the
    /// buffer up.
    late: HashSet<usize>,
    /// The serial of each thread's next buffer.
    next: HashMap<(u32, u32), u32>,
    /// All was written: whatever comes now comes too late.
    over: bool,
    /// Records of entries and of all kinds that were seen.
    pub seen: Seen,
}

/// The amount that was recorded.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Functions that were entered.
    pub entries: u64,
    /// Records in all.
    pub records: u64,
}

/// The offsets of a record's words (docs/trampolines.md, "Records").
const WHAT: usize = 1;
const WORDS: usize = 2;

impl Drain {
    /// Write what threads have handed in, and give the buffers back. With `all`, what they have not handed in is written too: they
    /// have ended.
    ///
    /// # Errors
    /// The sink takes no more.
    pub fn run(&mut self, pool: &Pool, sink: &mut dyn Sink, all: bool) -> io::Result<()> {
        if self.over {
            return Ok(());
        }
        self.over = all;
        let starved = pool.starved();
        let taken = |n: &usize| match pool.state(*n) {
            State::Full => true,
            State::Taken if pool.owner(*n).pid == 0 => false,
            State::Taken => all || (starved && dead(pool.owner(*n).pid, pool.thread(*n))),
            State::Free => false,
        };
        let mut buffers: Vec<usize> = (0..pool.buffers()).filter(taken).collect();
        buffers.sort_by_key(|n| pool.taken(*n).monotonic);
        // What waits for a late record must not keep the program waiting.
        let patient = !all && self.late.len() < pool.buffers() / 4;
        for buffer in buffers {
            let owner = pool.owner(buffer);
            let thread = (owner.pid, owner.tid);
            // While the table was looked at, a later one may have come. Whoever has 0 begins.
            let next = self.next.get(&thread).copied().unwrap_or_default();
            if !all && owner.serial != 0 && owner.serial != next {
                continue;
            }
            let mut pairs = Pairs::default();
            pool.copy(buffer, &mut self.words, |pair| pairs.add(pair));
            let (records, complete, seen) = self.count(&pairs);
            if !complete && patient {
                self.late.insert(buffer);
                continue;
            }
            self.late.remove(&buffer);
            self.seen.records += seen.records;
            self.seen.entries += seen.entries;
            self.next.insert(thread, owner.serial.wrapping_add(1));
            let Some(words) = self.words.get(..records).filter(|words| !words.is_empty()) else {
                pool.give_back(buffer);
                continue;
            };
            sink.records(owner, pool.taken(buffer), words)?;
            pool.give_back(buffer);
        }
        Ok(())
    }

    /// How many words there are up to the last record, whether no record before it is missing, and what they are.
    fn count(&self, pairs: &Pairs) -> (usize, bool, Seen) {
        if let Some(seen) = pairs.plain(&self.words) {
            return (WORDS * seen.records as usize, true, seen);
        }
        let (mut at, mut end, mut complete, mut seen) = (0, 0, true, Seen::default());
        while let Some(&what) = self.words.get(at + WHAT) {
            if what == 0 {
                // The rest may be empty.
                let rest = self.words.get(at..).unwrap_or_default();
                let Some(next) = rest.iter().position(|word| *word != 0) else { break };
                complete = false;
                at += (next & !1).max(WORDS);
                continue;
            }
            at += WORDS + (what >> 4 & 15) as usize;
            end = at.min(self.words.len());
            seen.records += 1;
            seen.entries += u64::from(what & 15 == 1);
        }
        (end, complete, seen)
    }
}

/// Has the process ended? Its first thread may have ended before others.
pub fn ended(pid: u32) -> bool {
    let others = fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|threads| threads.count() > 1);
    !others && dead(pid, pid)
}

/// Has this thread ended, perhaps without a word, as by `_exit`?
fn dead(pid: u32, tid: u32) -> bool {
    let stat = input::text(Path::new(&format!("/proc/{pid}/task/{tid}/stat")));
    // Behind the name, which may have any characters, comes the state.
    stat.map_or(true, |stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X'])))
}

/// What pairs of words are, if each is a record without words, as most are.
#[derive(Default)]
struct Pairs {
    /// Those that are no record.
    empty: u64,
    /// Bits of them that give a record words.
    more: u64,
    /// Those that are entries.
    entries: u64,
}

impl Pairs {
    fn add(&mut self, [_, what]: [u64; WORDS]) {
        self.empty += u64::from(what == 0);
        self.more |= what & 0xf0;
        self.entries += u64::from(what & 15 == 1);
    }

    /// The records of a buffer with these pairs, if records without words fill it. They fill it exactly.
    fn plain(&self, words: &[u64]) -> Option<Seen> {
        let (full, behind) = words.split_at_checked(BUFFER / 8)?;
        let alone = self.empty == (behind.len() / WORDS) as u64 && behind.iter().all(|word| *word == 0);
        let seen = Seen { entries: self.entries, records: (full.len() / WORDS) as u64 };
        (alone && self.more == 0).then_some(seen)
    }
}
