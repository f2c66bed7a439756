//! Data that a user's entry handler hands to its return handler.

use crate::word::Word;

/// Words on the shadow stack that belong to one user.
#[derive(Clone, Copy, Debug)]
pub struct Data<'t>(pub(crate) &'t [Word]);

impl Data<'_> {
    /// The number of words.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Is the number of words zero?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The word at `index`; 0 if `index` is out of range.
    #[must_use]
    pub fn get(&self, index: usize) -> u64 {
        self.0.get(index).map_or(0, Word::get)
    }

    /// Store a word at `index`. Does nothing if `index` is out of range.
    pub fn set(&self, index: usize, value: u64) {
        if let Some(word) = self.0.get(index) {
            word.set(value);
        }
    }
}
