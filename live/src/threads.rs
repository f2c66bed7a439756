//! The threads of this process are asked to leave code that is about to change.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use codegen::words::input;
use libc::c_int;
use session::maps::{self, Mapping};

use crate::signals::{self, ASKED, Answer, Middle, Question};

/// The way in which threads are asked.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// The signal.
    pub signal: c_int,
    /// For how long.
    pub patience: Duration,
    /// `/proc/self/mem`, or -1.
    pub memory: c_int,
}

/// The number of the round that comes next: no answer is taken for one of another round.
static ROUND: AtomicU32 = AtomicU32::new(1);

/// The current mappings.
pub fn mappings() -> Vec<Mapping> {
    input::text(Path::new("/proc/self/maps")).map(|text| maps::parse(&text)).unwrap_or_default()
}

/// Ask all threads but this one to leave the middle of this code. Gives those that have not, or may come back.
pub fn leave(mut middles: Vec<Middle>, how: How) -> Vec<u32> {
    middles.sort_by_key(|middle| middle.at);
    let begun = Instant::now();
    // Whoever has left meets the breakpoint, and comes back no more. Nor do threads that begin now.
    let mut gone = HashSet::new();
    loop {
        let question = Question { middles: middles.clone(), stacks: stacks(), memory: how.memory };
        let open = signals::asking(question, |question| all_asked(question, how, begun, &mut gone));
        if open.is_empty() || open.contains(&UNKNOWN) || begun.elapsed() >= how.patience {
            return open;
        }
        // Whoever is where it may come back from goes on meanwhile.
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Memory that may be a stack.
fn stacks() -> Vec<(u64, u64)> {
    const DATA: u8 = 3;
    let data = mappings().into_iter().filter(|m| m.protection & DATA == DATA);
    let mut all: Vec<(u64, u64)> = data.map(|m| (m.range.start, m.range.end)).collect();
    all.sort_unstable();
    all
}

/// Time after which it is looked again at threads that have not answered.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Stands for threads that cannot be listed.
const UNKNOWN: u32 = 0;

/// The threads of this process but this one.
fn threads() -> Vec<u32> {
    let this = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    let Ok(names) = fs::read_dir("/proc/self/task") else { return vec![UNKNOWN] };
    let names = names.flatten();
    let numbers = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|tid| *tid != this).collect()
}

/// The stack pointer of a thread that sleeps in a system call, with all that the kernel says of it.
fn asleep(tid: u32) -> Option<(u64, String)> {
    let text = input::text(Path::new(&format!("/proc/self/task/{tid}/syscall"))).ok()?;
    let mut words = text.split_whitespace();
    words.next()?.parse::<u32>().ok()?;
    let sp = words.nth(6)?.strip_prefix("0x")?;
    Some((u64::from_str_radix(sp, 16).ok()?, text.clone()))
}

/// Whether a thread sleeps outside of all this code, and comes back to none of it when it wakes.
fn sleeps_outside(tid: u32, question: &Question, signal: c_int) -> bool {
    let outside = |sp| !question.may_return(sp) || blocks(tid, signal) && is_foreign(sp);
    asleep(tid).is_some_and(|(sp, before)| outside(sp) && asleep(tid).is_some_and(|(_, after)| after == before))
}

/// Whether this process has no memory at this address. A thread with its stack there is an emulator's own, if it has blocked our signal
/// (QEMU's has blocked all), and never runs code of this process.
fn is_foreign(sp: u64) -> bool {
    let mappings = mappings();
    !mappings.is_empty() && !mappings.iter().any(|mapping| mapping.range.contains(&sp))
}

/// Whether a thread has blocked a signal.
fn blocks(tid: u32, signal: c_int) -> bool {
    let text = input::text(Path::new(&format!("/proc/self/task/{tid}/status"))).unwrap_or_default();
    let blocked = text.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let mask = blocked.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Ask each thread once that is not gone. The list is read again until no new one is in it. Gives those that have not left.
fn all_asked(question: &Question, how: How, begun: Instant, gone: &mut HashSet<u32>) -> Vec<u32> {
    let round = ROUND.fetch_add(1, Ordering::Relaxed) & 0x3fff_ffff;
    let mut slots: HashMap<u32, usize> = HashMap::new();
    let mut looked = Instant::now();
    loop {
        let mut open: Vec<u32> = threads();
        open.retain(|tid| !gone.contains(tid));
        if open.contains(&UNKNOWN) {
            return open;
        }
        let mut asked = false;
        for tid in open.iter().filter(|tid| !slots.contains_key(tid)).copied().collect::<Vec<_>>() {
            let slot = slots.len();
            if sleeps_outside(tid, question, how.signal) {
                gone.insert(tid);
            } else if slot < ASKED {
                // One that has ended is not in the list the next time.
                asked |= signals::ask(how.signal, tid, slot, round);
                slots.insert(tid, slot);
            }
        }
        let said = |tid: &u32| slots.get(tid).map(|slot| signals::answer(*slot, round));
        gone.extend(open.iter().filter(|tid| said(tid) == Some(Answer::Gone)));
        if looked.elapsed() >= LOOK_AGAIN {
            // It was awake when it was asked, and sleeps now.
            let unheard = open.iter().filter(|tid| said(tid) == Some(Answer::None));
            gone.extend(unheard.filter(|tid| sleeps_outside(**tid, question, how.signal)));
            looked = Instant::now();
        }
        open.retain(|tid| !gone.contains(tid));
        let waits = open.iter().any(|tid| said(tid) == Some(Answer::None));
        if !(asked || waits) || begun.elapsed() >= how.patience {
            return open;
        }
        std::thread::sleep(Duration::from_micros(20));
    }
}
