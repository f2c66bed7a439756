//! The functions that can be traced, and sets of them.

use crate::errno::{Errno, Result};
use crate::word::Word;

/// A patchable entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site<'s> {
    /// The address of the function.
    pub ip: u64,
    /// The function's name, for patterns.
    pub name: &'s str,
}

/// All sites, sorted by address.
#[derive(Clone, Copy, Debug)]
pub struct Sites<'s>(&'s [Site<'s>]);

impl<'s> Sites<'s> {
    /// The list of sites, which must be sorted and no longer than a filter.
    ///
    /// # Errors
    /// `EINVAL`: the list is not sorted or has an address twice. `E2BIG`: it has more than `room` entries.
    pub fn new(list: &'s [Site<'s>], room: usize) -> Result<Self> {
        if list.len() > room {
            return Err(Errno::TooBig);
        }
        match list.is_sorted_by(|a, b| a.ip < b.ip) {
            true => Ok(Self(list)),
            false => Err(Errno::Inval),
        }
    }

    /// The index of `ip` in the list: the kernel's `ftrace_location`.
    #[must_use]
    pub fn find(&self, ip: u64) -> Option<usize> {
        self.0.binary_search_by_key(&ip, |s| s.ip).ok()
    }

    /// The address of the entry at index `site`; 0 if out of range.
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

/// The most users of a table. In a word, the bits of users that do not want the function begin here.
const NOT: u32 = 32;

/// The functions that the users of a table want: a word for each function, with two bits for each user.
///
/// One load gives all users that want a function. In the kernel an empty hash means "all", so that removing the last function
/// traces everything. Here a list that became empty means no function, and "all" is a state of its own.
#[derive(Debug)]
pub(crate) struct Filters<const W: usize> {
    /// A bit for each user that wants all functions. For other users the list counts.
    all: Word,
    functions: [[Word; 64]; W],
}

impl<const W: usize> Filters<W> {
    pub(crate) const fn new() -> Self {
        Self { all: Word::new(0), functions: [const { [const { Word::new(0) }; 64] }; W] }
    }

    fn function(&self, site: usize) -> Option<&Word> {
        self.functions.as_flattened().get(site)
    }

    /// The users that want this function, as a bit mask. Bits of users that do not exist have no meaning.
    pub(crate) fn wanting(&self, site: usize) -> u64 {
        let lists = self.function(site).map_or(0, Word::get);
        (lists | self.all.get()) & !(lists >> NOT)
    }

    /// Does the user list the function, whether or not lists count?
    pub(crate) fn lists(&self, user: usize, site: usize) -> bool {
        self.function(site).is_some_and(|word| word.get() >> user & 1 == 1)
    }

    /// Does the user want all functions?
    pub(crate) fn is_all(&self, user: usize) -> bool {
        self.all.get() >> user & 1 == 1
    }

    /// The number of functions in the user's list.
    pub(crate) fn count(&self, user: usize) -> usize {
        self.functions.as_flattened().iter().filter(|word| word.get() >> user & 1 == 1).count()
    }

    /// Put a function into the user's list or take it out. After the first call, the user wants only listed functions.
    pub(crate) fn set(&self, user: usize, site: usize, on: bool) {
        if let Some(word) = self.function(site) {
            let bit = 1 << user;
            word.set(if on { word.get() | bit } else { word.get() & !bit });
        }
        self.all.set(self.all.get() & !(1 << user));
    }

    /// Exclude this function for the user, listed or not.
    pub(crate) fn exclude(&self, user: usize, site: usize) {
        if let Some(word) = self.function(site) {
            word.set(word.get() | 1 << NOT << user);
        }
    }

    /// Clear the user's list, so that it wants all functions again.
    pub(crate) fn reset(&self, user: usize) {
        self.all.set(self.all.get() | 1 << user);
        let both = 1 << user | 1 << NOT << user;
        // Most words have no bit of the user, and are not written.
        let named = self.functions.as_flattened().iter().filter(|word| word.get() & both != 0);
        named.for_each(|word| word.set(word.get() & !both));
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
                // The last star matches one character more.
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                (p, n) = (at + 1, taken + 1);
            }
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}
