//! Expectations: what is known to fail, with reasons, in a file. What is expected does not fail a run, and an
//! expectation that is no longer needed does.

use codegen::words::error::{Error, Result};
use emu_tests::{Clause, Failure, Report, Row, Verdict};
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

/// One expectation. Architecture, trampoline, options and place are globs.
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
    /// Only failures at this place, by its id, with or without `@` and the instruction.
    place: Option<String>,
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

    fn covers(&self, failure: &Failure) -> bool {
        self.place.as_ref().is_none_or(|place| {
            let place = WildMatch::new(place);
            place.matches(&failure.place_id) || place.matches(&format!("{}@{}", failure.place_id, failure.at))
        })
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
            let form = "[[expect]] with clause, verdict = \"fail\" or \"deviates\", reason, and globs arch, trampoline, options, place";
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
            // Of what deviates, the contract names the places.
            if entry.get_ref().place.is_some() && entry.get_ref().verdict == Expected::Deviates {
                return Err(refused(at, "a place with verdict = \"deviates\""));
            }
            entries.push((line(at), entry.into_inner()));
        }
        Ok(Expectations { file: file.to_owned(), entries })
    }

    /// Does one of them name a place? Then all failures are wanted, not only the first few of each clause.
    pub fn name_places(&self) -> bool {
        self.entries.iter().any(|(_, entry)| entry.place.is_some())
    }

    /// Judge the rows again. What was expected to fail and does, deviates; what was expected and does not happen,
    /// fails. Rows that were not checked, and expectations for rows that are not in the report, decide nothing.
    ///
    /// Of several expectations for a row the first one counts, unless it names a place: then those that do count together,
    /// and each failure must be covered by one of them.
    pub fn apply(&self, report: &mut Report) {
        for row in &mut report.results {
            let about = self.entries.iter().filter(|(_, e)| e.is_about(row));
            let Some((line, entry)) = about.clone().next() else { continue };
            let place = |line: usize| format!("{}:{line}", self.file);
            if row.verdict == Verdict::Fail && entry.place.is_some() {
                let placed: Vec<&(usize, Entry)> = about.filter(|(_, e)| e.place.is_some()).collect();
                let idle = placed.iter().find(|(_, e)| !row.failures.iter().any(|f| e.covers(f)));
                let all = row.failures.iter().all(|f| placed.iter().any(|(_, e)| e.covers(f)));
                if let Some((line, entry)) = idle {
                    let at = entry.place.as_deref().unwrap_or_default();
                    row.reason = format!("nothing fails at {at}: {} is no longer needed", place(*line));
                } else if all && !row.failures.is_empty() {
                    row.verdict = Verdict::Deviates;
                    let reasons = placed.iter().map(|(line, e)| format!("{} (expected in {})", e.reason, place(*line)));
                    row.reason = reasons.collect::<Vec<_>>().join("; ");
                }
                continue;
            }
            match (row.verdict, entry.verdict) {
                (Verdict::Skip | Verdict::Open, _)
                | (Verdict::Deviates, Expected::Deviates)
                | (Verdict::Fail, Expected::Deviates) => {}
                (Verdict::Fail, Expected::Fail) => {
                    row.verdict = Verdict::Deviates;
                    row.reason = format!("{} (expected in {})", entry.reason, place(*line));
                }
                (Verdict::Pass | Verdict::Deviates, expected) => {
                    let found = if row.verdict == Verdict::Pass { "passes" } else { "deviates by its contract" };
                    let expected = if expected == Expected::Fail { "fail" } else { "deviate" };
                    let place = place(*line);
                    row.verdict = Verdict::Fail;
                    row.reason_id = None;
                    row.reason = format!("it {found}, but is expected to {expected}: {place} is no longer needed");
                }
            }
        }
        report.recount();
    }
}
