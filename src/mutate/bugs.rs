//! What is known of mutants, as data: those that do what the original does, gaps of the checker, bugs that shipped.

use std::collections::BTreeSet;

use codegen::mutate::Mutant;
use codegen::words::error::{Error, Result};
use serde::Deserialize;

/// A description of mutants.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// The architecture; `*` at the end stands for anything.
    pub arch: String,
    /// The contract of the objects, `*` as above; empty for what is generated.
    #[serde(default)]
    pub contract: String,
    /// The trampoline; `*` at the end stands for anything.
    pub trampoline: String,
    /// The operator, with or without operand; `*` for any.
    pub operator: String,
    /// A piece of the diff.
    #[serde(default)]
    pub line: String,
    /// Why they survive.
    pub reason: String,
}

/// A bug that shipped, rebuilt.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bug {
    /// The corpus' name for it.
    pub id: String,
    /// The architecture.
    pub arch: String,
    /// The profile under which it is rebuilt.
    pub profile: String,
    /// The trampoline.
    pub trampoline: String,
    /// Options, `name=value`, under which the trampoline can have it.
    #[serde(default)]
    pub set: Vec<String>,
    /// The operator, with its operand where it has one.
    pub operator: String,
    /// A piece of the diff, where there would be several.
    #[serde(default)]
    pub line: String,
    /// The property that must notice.
    pub property: String,
    /// What happened.
    pub about: String,
}

/// What is known of mutants.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// They do what the original does.
    #[serde(default)]
    pub equivalent: Vec<Known>,
    /// The checker ought to notice, and does not yet.
    #[serde(default)]
    pub gap: Vec<Known>,
    /// The symbolic checker cannot notice: what it is wrong in is nothing that it follows.
    #[serde(default)]
    pub unseen: Vec<Known>,
    /// The observer cannot notice: no run of the code alone shows it.
    #[serde(default)]
    pub unobserved: Vec<Known>,
    /// Bugs of the corpus.
    #[serde(default)]
    pub bug: Vec<Bug>,
}

/// The table that is part of the tool.
///
/// # Errors
/// It does not parse.
pub fn table() -> Result<&'static Table> {
    static TABLE: std::sync::OnceLock<std::result::Result<Table, String>> = std::sync::OnceLock::new();
    let parsed = TABLE.get_or_init(|| toml::from_str(include_str!("../mutants.toml")).map_err(|e| e.to_string()));
    parsed.as_ref().map_err(|e| Error::new(format!("src/mutants.toml: {e}")))
}

fn fits(pattern: &str, text: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => text.starts_with(start),
        None => text == pattern,
    }
}

/// Is `pattern` the name of this mutant, with or without the offset, with or without the operand?
pub fn named(pattern: &str, mutant: &Mutant) -> bool {
    let full = mutant.to_string();
    let without_offset = full.split('@').next().unwrap_or_default();
    [full.as_str(), without_offset, mutant.operator.name()].contains(&pattern)
}

impl Known {
    /// Does it describe this mutant of a trampoline, `contract` being the objects' or empty?
    pub fn describes(&self, arch: &str, contract: &str, trampoline: &str, mutant: &Mutant) -> bool {
        fits(&self.arch, arch)
            && fits(&self.contract, contract)
            && fits(&self.trampoline, trampoline)
            && (named(&self.operator, mutant) || self.operator == "*")
            && mutant.diff.iter().any(|line| line.contains(&self.line))
    }
}

impl Bug {
    /// Is it this mutant, of its trampoline?
    pub fn is(&self, mutant: &Mutant) -> bool {
        named(&self.operator, mutant) && mutant.diff.iter().any(|line| line.contains(&self.line))
    }
}

/// What the names of bugs begin with.
pub const BUG: &str = "bug:";

/// The bugs called `id`, which may be `all`.
///
/// # Errors
/// There is none of that name.
pub fn find(id: &str) -> Result<Vec<&'static Bug>> {
    let known = &table()?.bug;
    let found: Vec<&Bug> = known.iter().filter(|b| id == "all" || b.id.eq_ignore_ascii_case(id)).collect();
    if found.is_empty() {
        let ids: BTreeSet<&str> = known.iter().map(|b| b.id.as_str()).collect();
        return Err(Error::unknown("bug", id, ids.into_iter().chain(["all"])));
    }
    Ok(found)
}
