//! Differences that count: those that are asked for, without those that a file accepts.
//!
//! Such a file names each difference by its id and says why it is accepted:
//!
//! ```toml
//! [[accepted]]
//! trampoline = "x86_64:ftrace_caller"
//! id = "leave.rax"
//! now = "call1.rax"
//! reason = "the callback's result is nobody's"
//! ```

use std::path::Path;

use codegen::words::error::{Error, Result};
use codegen::words::input;
use emu_tests::{At, Difference, Found, is_id};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A difference that is accepted.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The trampoline, as a comparison of many names it; of two, its symbol on the right.
    pub trampoline: String,
    /// The difference's id.
    pub id: String,
    /// What is there now, as JSON has it in `is`; left out where that is null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub now: Option<toml::Value>,
    /// Why this is accepted.
    pub reason: String,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    accepted: Vec<Entry>,
}

/// A file of accepted differences, and which of them there were.
pub struct Baseline {
    all: Vec<(Entry, bool)>,
}

impl Baseline {
    /// Those of a file.
    ///
    /// # Errors
    /// It cannot be read, or `read` says why not.
    pub fn of_file(path: &Path) -> Result<Baseline> {
        let name = path.display().to_string();
        let text = input::text(path).map_err(|e| Error::new(format!("cannot read {name}: {e}")))?;
        Baseline::read(&name, &text)
    }

    /// The entries of a file's text.
    ///
    /// # Errors
    /// It is no such file; an entry has no reason, an id that nothing can have, or is there twice.
    pub fn read(name: &str, text: &str) -> Result<Baseline> {
        let file: File = toml::from_str(text).map_err(|e| Error::new(e.to_string().trim_end()).at(name))?;
        for (n, entry) in file.accepted.iter().enumerate() {
            let Entry { id, trampoline, reason, .. } = entry;
            let wrong = |what: &str| Err(Error::new(format!("{name}: {id} of {trampoline} {what}")));
            if !known(id) {
                return wrong("is no difference; valid: an id of `tramptool diff --ids`");
            }
            if reason.trim().is_empty() {
                return wrong("has no reason; valid: reason = \"why it is accepted\"");
            }
            if file
                .accepted
                .iter()
                .take(n)
                .any(|other| (&other.id, &other.trampoline, &other.now) == (id, trampoline, &entry.now))
            {
                return wrong("is accepted twice; valid: one entry");
            }
        }
        Ok(Baseline { all: file.accepted.into_iter().map(|entry| (entry, false)).collect() })
    }

    /// Take out what is accepted; how many spots that were.
    pub fn take(&mut self, trampoline: &str, differences: &mut Vec<Difference>) -> usize {
        let mut taken = 0;
        for d in differences.iter_mut() {
            d.retain(|At { id, is, .. }| {
                let accepts = |(entry, _): &&mut (Entry, bool)| {
                    entry.trampoline == trampoline && entry.id == *id && is_the_same(&entry.now, is)
                };
                let accepted = self.all.iter_mut().find(accepts);
                let open = accepted.is_none();
                if let Some((_, met)) = accepted {
                    (*met, taken) = (true, taken + 1);
                }
                open
            });
        }
        differences.retain(|d| !d.spots.is_empty());
        taken
    }

    /// What is accepted, and is not there.
    pub fn gone(self) -> Vec<Entry> {
        self.all.into_iter().filter(|(_, met)| !met).map(|(entry, _)| entry).collect()
    }
}

impl Entry {
    /// That it is accepted and gone, in words.
    pub fn is_gone(&self) -> String {
        format!("{} of {} is accepted and is gone, or is another now: {}", self.id, self.trampoline, self.reason)
    }
}

/// A file that accepts these differences of trampolines, once each has a reason.
///
/// # Errors
/// None that a difference causes.
pub fn written<'d>(all: impl Iterator<Item = (&'d str, &'d Difference)>) -> Result<String> {
    let mut file = File::default();
    for (trampoline, d) in all {
        for At { id, is, .. } in d.at() {
            let now = match json(&is)? {
                serde_json::Value::Null => None,
                now => Some(toml::Value::try_from(now).map_err(|e| Error::new(format!("{d}: {e}")))?),
            };
            let (trampoline, reason) = (trampoline.to_owned(), String::new());
            file.accepted.push(Entry { trampoline, id, now, reason });
        }
    }
    toml::to_string(&file).map_err(|e| Error::new(format!("accepted differences: {e}")))
}

fn json(value: &impl Serialize) -> Result<serde_json::Value> {
    serde_json::to_value(value).map_err(|e| Error::new(format!("a value as JSON: {e}")))
}

/// Do TOML and JSON say the same?
fn is_the_same(now: &Option<toml::Value>, is: &Found) -> bool {
    matches!((json(now), json(is)), (Ok(now), Ok(is)) if now == is)
}

fn known(id: &str) -> bool {
    crate::BACKENDS.iter().any(|backend| is_id(id, *backend))
}

/// Ids that were given: each names a difference, or all whose ids begin with it, as `leave`, `cost` or `call1` do.
pub struct Ids(Vec<String>);

impl Ids {
    /// Those of a command line.
    ///
    /// # Errors
    /// One that no difference can have.
    pub fn of(all: &[String]) -> Result<Ids> {
        match all.iter().find(|id| !known(id)) {
            Some(id) => {
                let valid = "an id of `tramptool diff --ids`, or the beginning of several: leave, call1, cost";
                Err(Error::new(format!("'{id}' is the id of no difference; valid: {valid}")))
            }
            None => Ok(Ids(all.to_vec())),
        }
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Is it one of these?
    pub fn name(&self, id: &str) -> bool {
        self.0
            .iter()
            .any(|given| id.strip_prefix(given.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
    }
}
