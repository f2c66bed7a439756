//! The profiles that are compiled in, `*.toml` beside this crate's manifest, those that users write, and the reader of both.

mod line;
mod read;
mod schema;
mod sites;

pub use read::{Source, schema};

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use codegen::arch::facts::Facts;
use codegen::profile::{Convention, Profile};
use codegen::words::error::{Error, Result};
use codegen::words::input;

use crate::read::{Scope, read};

/// The default profile.
pub const DEFAULT: &str = "linux-7.3";
/// The profile of code in user space.
pub const USER: &str = "bare";

/// The profiles that are compiled in, by name.
pub const BUILT_IN: &[(&str, &str)] = &[
    ("linux-6.12", include_str!("../linux-6.12.toml")),
    ("linux-7.2", include_str!("../linux-7.2.toml")),
    ("linux-7.3", include_str!("../linux-7.3.toml")),
    ("bare", include_str!("../bare.toml")),
];

/// The profile called `name`, or the one in the file of that name, for these architectures.
///
/// # Errors
/// There is no such profile; a file that cannot be read or is no profile. The message has file, line and valid values.
pub fn find(name: &str, facts: &[&'static Facts]) -> Result<&'static Profile> {
    if let Some(source) = built_in(name) {
        return load(source, facts);
    }
    if !name.ends_with(".toml") {
        return Err(unknown(name));
    }
    let text = input::text(Path::new(name))
        .map_err(|e| Error::new(format!("cannot read profile {name}: {e}; valid: a file, {}", names().join(", "))))?;
    load(Source { name, text: &text }, facts)
}

/// The profile in `source`.
///
/// # Errors
/// As [`find`].
pub fn load(source: Source, facts: &[&'static Facts]) -> Result<&'static Profile> {
    kept(source, Scope::All(facts))
}

/// Read a profile once and keep it, because targets borrow their profile, as they borrow their architecture.
fn kept(source: Source, scope: Scope) -> Result<&'static Profile> {
    type Key = (String, String, &'static str);
    static PROFILES: OnceLock<Mutex<HashMap<Key, &'static Profile>>> = OnceLock::new();
    let profiles = PROFILES.get_or_init(Mutex::default);
    let only = match scope {
        Scope::All(_) => "",
        Scope::One(facts) => facts.name,
    };
    let key = (source.name.to_owned(), source.text.to_owned(), only);
    if let Some(profile) = profiles.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
        return Ok(profile);
    }
    let parent = |name: &str| built_in(name).ok_or_else(|| unknown(name));
    let profile: &'static Profile = Box::leak(Box::new(read(source, &parent, scope)?));
    Ok(profiles.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_insert(profile))
}

/// The default profile's convention for one architecture.
///
/// # Errors
/// The profile does not support the architecture.
pub fn default_convention(facts: &'static Facts) -> Result<&'static Convention> {
    convention(DEFAULT, facts)
}

/// The convention for one architecture of the profile called `name`, one of those that are compiled in.
///
/// # Errors
/// There is no profile of this name, or it does not support the architecture.
pub fn convention(name: &str, facts: &'static Facts) -> Result<&'static Convention> {
    let source = built_in(name).ok_or_else(|| unknown(name))?;
    kept(source, Scope::One(facts))?.convention(facts.name)
}

/// The names of the profiles that are compiled in.
pub fn names() -> Vec<&'static str> {
    BUILT_IN.iter().map(|(name, _)| *name).collect()
}

fn built_in(name: &str) -> Option<Source<'static>> {
    BUILT_IN.iter().find(|(n, _)| *n == name).map(|&(name, text)| Source { name, text })
}

fn unknown(name: &str) -> Error {
    Error::unknown("profile", name, names().into_iter().chain(["a file that ends in .toml"]))
}
