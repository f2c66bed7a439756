//! How entries of functions are written while threads execute them: breakpoints first, then one question to all threads, then the
//! rest, and the first bytes at last.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::machine::MACHINE;
use crate::memory::{Barrier, Text, Window, Writer};
use crate::signals::{Middle, WAYS, Way, undisturbed};
use crate::threads::{How, leave};

/// The code at an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Code {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// For each instruction but the first: its offset from the first byte, and the address at which a thread goes on that is there when
    /// other code is written.
    pub moved: Vec<(u64, u64)>,
}

/// The entry of a function.
pub struct Site {
    /// The function's name.
    pub function: String,
    /// The address of the site.
    pub at: u64,
    /// The pages that it is in.
    pub text: Text,
    /// The code at the entry, or that which will be there when every thread has answered.
    now: Code,
    /// The first bytes are a breakpoint.
    trapped: bool,
    way: &'static Way,
}

/// A change of an entry.
pub struct Change<'a> {
    /// The address of the entry.
    pub site: &'a mut Site,
    /// The code that the entry is to have.
    pub to: Code,
    /// The address at which a thread goes on that hits the breakpoint.
    pub way: u64,
}

/// A deviation from what the caller asked for, which works.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Notes {
    /// Threads that have not answered, or may come back into code that was to change; 0 if the process may not list them.
    pub unanswered: Vec<u32>,
    /// Functions that are hooked by a breakpoint for that reason, which is slower. The next batch tries again.
    pub trapped: Vec<String>,
}

/// Steps of the protocol to leave out, for tests that must see it fail.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[doc(hidden)]
pub struct LeftOut {
    /// Threads are not asked.
    pub question: bool,
    /// No breakpoint comes first.
    pub trap: bool,
}

/// The writer of code at entries.
pub struct Patcher {
    pub writer: Writer,
    pub barrier: Barrier,
    pub how: How,
    pub left_out: LeftOut,
}

impl Site {
    /// The entry at this address, which has these bytes.
    pub fn new(function: &str, at: u64, text: Text, now: Code) -> Site {
        let way = WAYS.get(at).unwrap_or_else(|| {
            let way: &'static Way = Box::leak(Box::new(Way { to: AtomicU64::new(at) }));
            WAYS.put(at, way);
            way
        });
        Site { function: function.to_owned(), at, text, now, trapped: false, way }
    }

    /// The code at the entry, or that which will be there when every thread has answered.
    pub fn code(&self) -> &Code {
        &self.now
    }

    /// Whether the first bytes are a breakpoint, which does what a jump is to do.
    pub fn is_trapped(&self) -> bool {
        self.trapped
    }

    /// The bytes that are in memory, if nobody else has written there, in two parts.
    fn expected(&self) -> [&[u8]; 2] {
        let first: &[u8] = if self.trapped { MACHINE.trap } else { &[] };
        [first, self.now.bytes.get(first.len()..).unwrap_or_default()]
    }

    /// Nobody else has written there.
    ///
    /// # Errors
    /// Somebody has.
    pub fn untouched(&self, writer: &Writer) -> Result<()> {
        self.has(writer.read(self.at, self.now.bytes.len()))
    }

    /// Nobody else has written what is found there.
    fn has(&self, found: Vec<u8>) -> Result<()> {
        let [first, rest] = self.expected();
        if found.strip_prefix(first) == Some(rest) {
            return Ok(());
        }
        Err(Error::Foreign { function: self.function.clone(), found, expected: [first, rest].concat() })
    }
}

/// What of a site differs, if that is one aligned instruction before and after, which threads may execute meanwhile.
fn one_word(from: &Code, to: &Code, at: u64) -> Option<usize> {
    let word = MACHINE.word;
    if word == 0 || from.bytes.len() != to.bytes.len() {
        return None;
    }
    let differs = |n: &usize| from.bytes.get(*n..n + word) != to.bytes.get(*n..n + word);
    let mut differing = (0..from.bytes.len()).step_by(word).filter(differs);
    let (first, others) = (differing.next()?, differing.next());
    let begins = |code: &Code| first == 0 || code.moved.iter().any(|(behind, _)| *behind == first as u64);
    let ends = |code: &Code| {
        let inside = |n: u64| n > first as u64 && n < (first + word) as u64;
        !code.moved.iter().any(|(behind, _)| inside(*behind))
    };
    let aligned = (at + first as u64).is_multiple_of(word as u64);
    (others.is_none() && aligned && [from, to].iter().all(|code| begins(code) && ends(code))).then_some(first)
}

impl Change<'_> {
    fn word(&self) -> Option<usize> {
        if self.site.trapped { None } else { one_word(&self.site.now, &self.to, self.site.at) }
    }

    fn first(&self) -> usize {
        MACHINE.trap.len()
    }

    /// Whether a thread may be in the middle of the overwritten instructions.
    fn asks(&self) -> bool {
        let tail = |code: &Code| code.bytes.get(self.first()..).map(<[u8]>::to_vec);
        !self.site.now.moved.is_empty() && tail(&self.site.now) != tail(&self.to)
    }

    fn middle(&self) -> Middle {
        Middle { at: self.site.at, len: self.site.now.bytes.len() as u64, moved: self.site.now.moved.clone() }
    }
}

impl Patcher {
    /// Make all these changes, or none of them.
    ///
    /// # Errors
    /// Somebody else has written to one of the sites; code cannot be written.
    pub fn apply(&self, changes: Vec<Change>) -> Result<Notes> {
        let needed = |change: &Change| change.site.now.bytes != change.to.bytes || change.site.trapped;
        let (mut changes, others): (Vec<Change>, Vec<Change>) = changes.into_iter().partition(needed);
        for change in others {
            change.site.way.to.store(change.way, Ordering::SeqCst);
        }
        if changes.is_empty() {
            return Ok(Notes::default());
        }
        changes.sort_by_key(|change| change.site.at);
        let places: Vec<_> = changes.iter().map(|change| (change.site.at, change.site.now.bytes.len())).collect();
        let found = self.writer.read_all(&places);
        changes.iter().zip(found).try_for_each(|(change, found)| change.site.has(found))?;
        let code = |change: &Change| {
            let from = change.site.at;
            from..from + change.to.bytes.len() as u64
        };
        let places: Vec<_> = changes.iter().map(|change| (&change.site.text, code(change))).collect();
        let window = self.writer.open(&places)?;
        drop(places);
        Ok(undisturbed(|| self.write(&window, &mut changes)))
    }

    fn write(&self, window: &Window, changes: &mut [Change]) -> Notes {
        for change in changes.iter() {
            change.site.way.to.store(change.way, Ordering::SeqCst);
        }
        let (words, mut others): (Vec<&mut Change>, Vec<&mut Change>) =
            changes.iter_mut().partition(|change| change.word().is_some());
        for change in words {
            let from = change.word().unwrap_or_default();
            let word = change.to.bytes.get(from..from + MACHINE.word).unwrap_or_default();
            window.write_at_once(change.site.at + from as u64, word);
            change.site.now = change.to.clone();
        }
        let mut unanswered = if others.is_empty() { Vec::new() } else { self.write_others(window, &mut others) };
        unanswered.extend(self.pass());
        unanswered.sort_unstable();
        unanswered.dedup();
        let trapped = others.iter().filter(|change| change.site.trapped).map(|change| change.site.function.clone());
        Notes { trapped: trapped.collect(), unanswered }
    }

    /// Let every thread fetch what was stored before. Whoever answers a signal has done so; those that do not are given.
    fn pass(&self) -> Vec<u32> {
        if self.barrier.pass() { Vec::new() } else { leave(Vec::new(), self.how) }
    }

    /// Breakpoints, a question, all but the first bytes, and these.
    fn write_others(&self, window: &Window, others: &mut [&mut Change]) -> Vec<u32> {
        for change in others.iter_mut().filter(|change| !change.site.trapped && !self.left_out.trap) {
            window.write_at_once(change.site.at, MACHINE.trap);
            change.site.trapped = true;
        }
        let mut unanswered = self.pass();
        let middles: Vec<Middle> = others.iter().filter(|change| change.asks()).map(|c| c.middle()).collect();
        let ask = !middles.is_empty() && !self.left_out.question;
        let passed = unanswered.is_empty();
        unanswered.extend(if ask { leave(middles, self.how) } else { Vec::new() });
        let all = unanswered.is_empty();
        let free = |change: &&mut &mut Change| all || (passed && !change.asks());
        for change in others.iter_mut().filter(free) {
            let tail = change.to.bytes.get(change.first()..).unwrap_or_default();
            window.write(change.site.at + change.first() as u64, tail);
        }
        unanswered.extend(self.pass());
        for change in others.iter_mut().filter(free) {
            let first = change.to.bytes.get(..change.first()).unwrap_or_default();
            window.write_at_once(change.site.at, first);
            change.site.now = change.to.clone();
            change.site.trapped = false;
        }
        unanswered
    }
}

/// For how long threads are waited for where nobody says.
pub const PATIENCE: Duration = Duration::from_secs(1);
