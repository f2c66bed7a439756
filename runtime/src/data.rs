//! What handlers of one user hand from an entry to its return.

use crate::word::Word;

/// Words on the shadow stack that belong to one user.
#[derive(Clone, Copy, Debug)]
pub struct Data<'t>(pub(crate) &'t [Word]);

impl Data<'_> {
    /// How many words.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// There is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The word at `index`; 0 outside.
    #[must_use]
    pub fn get(&self, index: usize) -> u64 {
        self.0.get(index).map_or(0, Word::get)
    }

    /// Store a word. Outside, nothing happens.
    pub fn set(&self, index: usize, value: u64) {
        if let Some(word) = self.0.get(index) {
            word.set(value);
        }
    }
}
