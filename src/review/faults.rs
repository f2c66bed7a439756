//! Faults in changed instructions, and what the kernel's own tests would say of them.

use std::collections::{BTreeMap, BTreeSet};

use codegen::words::error::Result;
use emu_tests::Suite;
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::Serialize;

use crate::mutate::bugs::table;
use crate::mutate::run::places;
use crate::mutate::selftests::unnoticed;
use crate::mutate::subject::{Candidate, MutationSubject};

/// Faults that were put into changed instructions, one at a time.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, JsonSchema)]
pub struct Faults {
    /// How many.
    pub run: usize,
    /// Of these, how many the checks notice.
    pub noticed: usize,
    /// Those that nothing notices.
    pub survivors: Vec<Fault>,
    /// Those that the checks notice and the kernel's own tests do not.
    pub unnoticed: Vec<Fault>,
    /// Why none were run; else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// A fault.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Fault {
    /// The trampoline.
    pub trampoline: String,
    /// Operator, operand and offset.
    pub mutant: String,
    /// The changed lines.
    pub diff: Vec<String>,
    /// In which clauses it fails, and where.
    pub fails: Vec<String>,
    /// Why the kernel's own tests do not notice it.
    pub reasons: Vec<String>,
}

impl Faults {
    /// None were run.
    pub fn not_run(reason: &str) -> Faults {
        Faults { reason: reason.to_owned(), ..Faults::default() }
    }
}

/// Put every fault into what has changed, by the trampolines' names; the suites hold as they are.
pub(super) fn of(suites: Vec<Suite>, changed: &BTreeMap<&str, &BTreeSet<usize>>, seed: u64) -> Result<Faults> {
    if changed.values().all(|offsets| offsets.is_empty()) {
        return Ok(Faults::not_run("no instruction is new"));
    }
    let subjects = suites.into_iter().map(|suite| MutationSubject::objects(suite, seed, &|_, _| {}));
    let subjects = subjects.collect::<Result<Vec<_>>>()?;
    let changed = |c: &Candidate| {
        let Some(offsets) = changed.get(c.trampoline()) else { return false };
        let mut before = c.mutant.diff.iter().filter_map(|line| offset(line));
        c.mutant.symbol.is_empty() && before.any(|at| offsets.contains(&at))
    };
    let mut candidates = Vec::new();
    for subject in &subjects {
        candidates.extend(subject.mutants(|_| true)?.into_iter().filter(|c| changed(c)));
    }
    let equivalent = &table()?.equivalent;
    candidates.retain(|c| !equivalent.iter().any(|known| c.is(known)));
    let judged = candidates.par_iter().map(|c| judge(c, seed)).collect::<Result<Vec<_>>>()?;
    let mut all = Faults { run: judged.len(), ..Faults::default() };
    for (fault, seen) in judged {
        match seen {
            Seen::Nobody => all.survivors.push(fault),
            Seen::Checks => all.unnoticed.push(fault),
            Seen::Tests => {}
        }
    }
    all.noticed = all.run - all.survivors.len();
    Ok(all)
}

/// The offset in a line of a diff that was there before.
fn offset(line: &str) -> Option<usize> {
    usize::from_str_radix(line.strip_prefix('-')?.split_whitespace().next()?, 16).ok()
}

/// Who notices a fault.
enum Seen {
    Nobody,
    Checks,
    Tests,
}

fn judge(c: &Candidate, seed: u64) -> Result<(Fault, Seen)> {
    let failed = places(c, seed)?;
    let reasons = failed.as_deref().map_or(Ok(None), |all| unnoticed(c.arch(), all))?;
    let seen = match (&failed, &reasons) {
        (Some(all), _) if all.is_empty() => Seen::Nobody,
        (_, Some(_)) => Seen::Checks,
        (_, None) => Seen::Tests,
    };
    let fails = failed.unwrap_or_default().into_iter().map(|f| {
        let of = if f.trampoline == c.trampoline() { String::new() } else { format!(" of {}", f.trampoline) };
        format!("{} {}{of}", f.clause, f.place)
    });
    let fault = Fault {
        trampoline: c.trampoline().to_owned(),
        mutant: c.mutant.to_string(),
        diff: c.mutant.diff.clone(),
        fails: fails.collect(),
        reasons: reasons.unwrap_or_default().into_iter().map(str::to_owned).collect(),
    };
    Ok((fault, seen))
}
