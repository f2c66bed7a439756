//! What a function does with registers that C lets it change.

use std::collections::{BTreeMap, BTreeSet};

use super::claim::Claim;
use super::look::HABIT;

/// What a function does with registers that C lets it change, by their names.
#[derive(Debug, Default)]
pub(super) struct Habits {
    /// Those that it saves, changes and restores.
    pub keeps: BTreeSet<&'static str>,
    /// Those that it changes and never saves: what would be claimed of each.
    pub changes: BTreeMap<&'static str, Claim>,
}

impl Habits {
    /// It keeps so many that this is no chance.
    pub fn is_habit(&self) -> bool {
        self.keeps.len() >= HABIT
    }
}
