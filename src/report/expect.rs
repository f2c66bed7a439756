//! Expectations: what is known to fail, with reasons, in a file. What is expected does not fail a run, and an
//! expectation that is no longer needed does.

use codegen::error::{Error, Result};
use emu_tests::{Clause, Report, Row, Verdict};
use serde::Deserialize;
use toml::Spanned;
use wildmatch::WildMatch;

/// The expectations of a file.
#[derive(Debug)]
pub struct Expectations {
    file: String,
    entries: Vec<(usize, Entry)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    expect: Vec<Spanned<Entry>>,
}

/// One expectation. Architecture, trampoline and options are globs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(default = "any")]
    arch: String,
    #[serde(default = "any")]
    trampoline: String,
    #[serde(default = "any")]
    options: String,
    clause: Clause,
    verdict: Expected,
    reason: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Expected {
    Fail,
    Deviates,
}

fn any() -> String {
    "*".to_owned()
}

impl Entry {
    fn is_about(&self, row: &Row) -> bool {
        self.clause == row.clause
            && WildMatch::new(&self.arch).matches(&row.arch)
            && WildMatch::new(&self.trampoline).matches(&row.trampoline)
            && WildMatch::new(&self.options).matches(&row.options)
    }
}

impl Expectations {
    /// Read the expectations of `file`, whose text is `text`.
    ///
    /// # Errors
    /// It is not TOML, or not of this form; the message names file and line.
    pub fn parse(file: &str, text: &str) -> Result<Expectations> {
        let line = |at: usize| 1 + text.bytes().take(at).filter(|&b| b == b'\n').count();
        let refused = |at: usize, why: &str| {
            let form = "[[expect]] with clause, verdict = \"fail\" or \"deviates\", reason, and globs arch, trampoline, options";
            Error::new(format!("{file}:{}: {why}; valid: {form}", line(at)))
        };
        let parsed: File = toml::from_str(text)
            .map_err(|e: toml::de::Error| refused(e.span().map_or(0, |s| s.start), e.message().trim()))?;
        let mut entries = Vec::new();
        for entry in parsed.expect {
            let at = entry.span().start;
            if entry.get_ref().reason.trim().is_empty() {
                return Err(refused(at, "an expectation without a reason"));
            }
            entries.push((line(at), entry.into_inner()));
        }
        Ok(Expectations { file: file.to_owned(), entries })
    }

    /// Judge the rows again. What was expected to fail and does, deviates; what was expected and does not happen,
    /// fails. Rows that were not checked, and expectations for rows that are not in the report, decide nothing.
    pub fn apply(&self, report: &mut Report) {
        for row in &mut report.results {
            let Some((line, entry)) = self.entries.iter().find(|(_, e)| e.is_about(row)) else { continue };
            let place = format!("{}:{line}", self.file);
            match (row.verdict, entry.verdict) {
                (Verdict::Skip, _) | (Verdict::Deviates, Expected::Deviates) | (Verdict::Fail, Expected::Deviates) => {}
                (Verdict::Fail, Expected::Fail) => {
                    row.verdict = Verdict::Deviates;
                    row.reason = format!("{} (expected in {place})", entry.reason);
                }
                (Verdict::Pass | Verdict::Deviates, expected) => {
                    let found = if row.verdict == Verdict::Pass { "passes" } else { "deviates by its contract" };
                    let expected = if expected == Expected::Fail { "fail" } else { "deviate" };
                    row.verdict = Verdict::Fail;
                    row.reason = format!("it {found}, but is expected to {expected}: {place} is no longer needed");
                }
            }
        }
        report.recount();
    }
}
