//! Names that live as long as the process, such as those of a profile or a contract, which are read once and used everywhere.

use std::collections::HashSet;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The one copy of `name`. The same name costs memory once, however often it is read.
pub fn intern(name: &str) -> &'static str {
    static NAMES: OnceLock<Mutex<HashSet<&'static str>>> = OnceLock::new();
    let names = NAMES.get_or_init(Mutex::default);
    let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
    match names.get(name) {
        Some(known) => known,
        None => {
            let new: &'static str = Box::leak(name.into());
            names.insert(new);
            new
        }
    }
}
