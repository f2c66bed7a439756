//! Findings that are accepted, with reasons.
//!
//! ```toml
//! [[accepted]]
//! finding = "C5 arm64 libx.a:mul.o mul CFA"
//! reason = "between the last pop and ret"
//! ```

use std::collections::HashMap;
use std::path::Path;

use codegen::words::error::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::cmd::shared::input;

/// A finding that is accepted.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    finding: String,
    reason: String,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    accepted: Vec<Entry>,
}

/// A file of them, and which of them there were.
#[derive(Default)]
pub struct Baseline(Vec<(Entry, bool)>);

impl Baseline {
    /// Those of a file.
    ///
    /// # Errors
    /// It cannot be read, or an entry has no reason or is there twice.
    pub fn of_file(path: &Path) -> Result<Baseline> {
        let name = path.display().to_string();
        let text = input::text(path).map_err(|e| Error::new(format!("cannot read {name}: {e}")))?;
        let file: File = toml::from_str(&text).map_err(|e| Error::new(e.to_string().trim_end()).at(&name))?;
        for (n, entry) in file.accepted.iter().enumerate() {
            let wrong = |what: &str| Err(Error::new(format!("{name}: '{}' {what}", entry.finding)));
            if entry.reason.trim().is_empty() {
                return wrong("has no reason; valid: reason = \"why it is accepted\"");
            }
            if file.accepted.iter().take(n).any(|other| other.finding == entry.finding) {
                return wrong("is accepted twice; valid: one entry");
            }
        }
        Ok(Baseline(file.accepted.into_iter().map(|entry| (entry, false)).collect()))
    }

    /// Is this one accepted?
    pub fn accepts(&mut self, finding: &str) -> bool {
        let entry = self.0.iter_mut().find(|(entry, _)| entry.finding == finding);
        entry.is_some_and(|(_, met)| {
            *met = true;
            true
        })
    }

    /// Why each is accepted.
    pub fn reasons(&self) -> HashMap<&str, &str> {
        self.0.iter().map(|(entry, _)| (entry.finding.as_str(), entry.reason.as_str())).collect()
    }

    /// What is accepted, and is not there any more.
    pub fn gone(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(_, met)| !met).map(|(entry, _)| entry.finding.as_str())
    }
}

/// A file that accepts these, once each has a reason.
///
/// # Errors
/// None that a finding causes.
pub fn written<'f>(findings: impl Iterator<Item = &'f str>) -> Result<String> {
    let accepted = findings.map(|finding| Entry { finding: finding.to_owned(), reason: String::new() }).collect();
    toml::to_string(&File { accepted }).map_err(|e| Error::new(format!("accepted findings: {e}")))
}
