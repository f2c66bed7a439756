//! The functions that can be traced, and sets of them.

use crate::errno::{Errno, Result};
use crate::word::Word;

/// A patchable entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site<'s> {
    /// Address of the function.
    pub ip: u64,
    /// Its name, for patterns.
    pub name: &'s str,
}

/// All of them, sorted by address.
#[derive(Clone, Copy, Debug)]
pub struct Sites<'s>(&'s [Site<'s>]);

impl<'s> Sites<'s> {
    /// The list of sites, which must be sorted and no longer than a filter.
    ///
    /// # Errors
    /// `EINVAL`: it is not sorted or has an address twice. `E2BIG`: it has more than `room` entries.
    pub fn new(list: &'s [Site<'s>], room: usize) -> Result<Self> {
        if list.len() > room {
            return Err(Errno::TooBig);
        }
        match list.is_sorted_by(|a, b| a.ip < b.ip) {
            true => Ok(Self(list)),
            false => Err(Errno::Inval),
        }
    }

    /// Where `ip` is in the list: the kernel's `ftrace_location`.
    #[must_use]
    pub fn find(&self, ip: u64) -> Option<usize> {
        self.0.binary_search_by_key(&ip, |s| s.ip).ok()
    }

    /// The address of an entry; 0 outside.
    #[must_use]
    pub fn ip(&self, site: usize) -> u64 {
        self.0.get(site).map_or(0, |s| s.ip)
    }

    /// All entries.
    #[must_use]
    pub const fn all(&self) -> &'s [Site<'s>] {
        self.0
    }
}

/// A set of functions, a bit each; or all of them.
///
/// The kernel takes an empty hash for "all", so that taking the last function away traces everything. Here a set that
/// became empty has none, and "all" is a state of its own.
#[derive(Debug)]
pub(crate) struct Filter<const W: usize> {
    restricted: Word,
    words: [Word; W],
}

impl<const W: usize> Filter<W> {
    pub(crate) const fn new() -> Self {
        Self { restricted: Word::new(0), words: [const { Word::new(0) }; W] }
    }

    /// Is the function in it?
    pub(crate) fn passes(&self, site: usize) -> bool {
        self.restricted.get() == 0 || self.lists(site)
    }

    /// Is the function listed, whether or not lists count?
    pub(crate) fn lists(&self, site: usize) -> bool {
        self.words.get(site / 64).is_some_and(|w| w.get() >> (site % 64) & 1 == 1)
    }

    /// Does it have all functions?
    pub(crate) fn is_all(&self) -> bool {
        self.restricted.get() == 0
    }

    /// How many are listed.
    pub(crate) fn count(&self) -> u32 {
        self.words.iter().map(|w| w.get().count_ones()).sum()
    }

    /// Put a function in or take it out. From the first on, only those that are in pass.
    pub(crate) fn set(&self, site: usize, on: bool) {
        if let Some(word) = self.words.get(site / 64) {
            let bit = 1 << (site % 64);
            word.set(if on { word.get() | bit } else { word.get() & !bit });
        }
        self.restricted.set(1);
    }

    /// All functions again.
    pub(crate) fn reset(&self) {
        self.restricted.set(0);
        self.words.iter().for_each(|w| w.set(0));
    }
}

/// Does `name` match a pattern with `*` and `?`, as the kernel's filters have them?
#[must_use]
pub fn glob(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(&c) if c == b'?' || c == name[n] => (p, n) = (p + 1, n + 1),
            _ => {
                // The last star takes one character more.
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                (p, n) = (at + 1, taken + 1);
            }
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}
