//! The unit of all state: a word that signals, interrupts and other threads may read at any time.

use core::sync::atomic::{AtomicU64, Ordering};

/// A 64-bit word. Loads acquire and stores release, so a reader that sees an id sees what was written before it.
#[derive(Debug, Default)]
pub struct Word(AtomicU64);

impl Word {
    /// A word with this value.
    #[must_use]
    pub const fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    /// The value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Store a value.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    /// Add to the word, and return its old value. Wraps on overflow.
    pub fn add(&self, value: u64) -> u64 {
        self.0.fetch_add(value, Ordering::AcqRel)
    }

    /// Store `new` if the value is `old`. Returns whether it did.
    pub fn swap_if(&self, old: u64, new: u64) -> bool {
        self.0.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The value as an index. Stored indices come from a `usize`.
    pub(crate) fn index(&self) -> usize {
        self.get() as usize
    }
}
