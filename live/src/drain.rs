//! From the pool to the sink.

use std::collections::HashSet;
use std::io;

use crate::pool::{Pool, State};
use crate::sink::Sink;

/// Empties buffers.
pub struct Drain {
    words: Vec<u64>,
    /// Those that were handed in with a record that is not there yet: a signal has interrupted it, and its handler has filled the
    /// buffer up.
    late: HashSet<usize>,
    /// Records of entries and of all kinds that were seen.
    pub seen: Seen,
}

/// How much was recorded.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Functions that were entered.
    pub entries: u64,
    /// Records in all.
    pub records: u64,
}

/// Where the words of a record are (docs/trampolines.md, "Records").
const WHAT: usize = 1;
const WORDS: usize = 2;

impl Drain {
    /// Nothing has come yet.
    pub fn new() -> Drain {
        Drain { words: Vec::new(), late: HashSet::new(), seen: Seen::default() }
    }

    /// Write what threads have handed in, and give the buffers back. With `all`, what they have not handed in is written too: they
    /// have ended.
    ///
    /// # Errors
    /// The sink takes no more.
    pub fn run(&mut self, pool: &Pool, sink: &mut dyn Sink, all: bool) -> io::Result<()> {
        let taken = |n: &usize| match pool.state(*n) {
            State::Full => true,
            State::Taken => all,
            State::Free => false,
        };
        let mut buffers: Vec<usize> = (0..pool.buffers()).filter(taken).collect();
        buffers.sort_by_key(|n| pool.owner(*n).serial);
        // What waits for a late record must not keep the program waiting.
        let patient = !all && self.late.len() < pool.buffers() / 4;
        for buffer in buffers {
            pool.copy(buffer, &mut self.words);
            let (records, complete) = self.count();
            if !complete && patient {
                self.late.insert(buffer);
                continue;
            }
            self.late.remove(&buffer);
            let Some(words) = self.words.get(..records).filter(|words| !words.is_empty()) else {
                pool.give_back(buffer);
                continue;
            };
            sink.records(pool.owner(buffer), pool.taken(buffer), words)?;
            pool.give_back(buffer);
        }
        Ok(())
    }

    /// How many words there are up to the last record, and whether no record before it is missing.
    fn count(&mut self) -> (usize, bool) {
        let (mut at, mut end, mut complete) = (0, 0, true);
        while let Some(&what) = self.words.get(at + WHAT) {
            if what == 0 {
                // The rest may be empty.
                let Some(next) = self.words.get(at..).and_then(|rest| rest.iter().position(|word| *word != 0)) else {
                    break;
                };
                complete = false;
                at += (next & !1).max(WORDS);
                continue;
            }
            at += WORDS + (what >> 4 & 15) as usize;
            end = at.min(self.words.len());
            self.seen.records += 1;
            self.seen.entries += u64::from(what & 15 == 1);
        }
        (end, complete)
    }
}
