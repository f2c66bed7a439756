//! What a patch of a trampoline changes, for those who review it: what its contract says before and after, what it does
//! differently, and which faults in the changed instructions only the checks would notice.

mod faults;
mod write;

use std::collections::{BTreeMap, BTreeSet};

use codegen::words::error::{Error, Result};
use emu_tests::{Clause, Difference, Failure, Filter, Foreign, Reason, Report, Row, Suite, Summary, Verdict};
use link::Input;
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::Serialize;

use crate::accepted::{Baseline, Entry};
use crate::aligned::{Insn, Mark, Stores, aligned, changed, code};
pub use faults::{Fault, Faults};
pub use write::{WIDTH, text, verdicts};

/// The objects before or after.
pub struct Side {
    /// As they were given.
    pub name: String,
    /// Their names and contents.
    pub objects: Vec<(String, Vec<u8>)>,
    /// The objects and what is promised of them are in files of these names, so that a command shows a failure again.
    pub in_files: bool,
}

/// What a reviewer wants to know.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(title = "tramptool review")]
pub struct Review {
    /// The format's version.
    pub version: u32,
    /// What was before.
    pub old: String,
    /// What is now.
    pub new: String,
    /// What the contract says of both.
    #[serde(flatten)]
    pub verdicts: Verdicts,
    /// Each trampoline.
    pub trampolines: Vec<Reviewed>,
    /// How many differences the baseline accepts, by ids.
    pub accepted: usize,
    /// What the baseline accepts, and is gone.
    pub gone: Vec<Entry>,
    /// Faults in the changed instructions.
    pub faults: Faults,
}

/// What a contract says of two sides.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Verdicts {
    /// The contract.
    pub contract: String,
    /// That of what was before, if it is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contract_before: Option<String>,
    /// The seed of all random values.
    pub seed: u64,
    /// The clauses by their verdicts, before and now.
    pub clauses: [Counts; 2],
    /// What does not hold any more.
    pub worse: Vec<Change>,
    /// What holds now.
    pub better: Vec<Change>,
}

impl Verdicts {
    /// Something that held does not hold any more.
    pub fn is_worse(&self) -> bool {
        !self.worse.is_empty()
    }

    /// Judge both sides, each by a contract.
    ///
    /// # Errors
    /// An object that does not fit the contract, or cannot be run.
    pub fn of(sides: [&Side; 2], by: [&Foreign; 2], seed: u64) -> Result<Verdicts> {
        judged(sides, by, seed).map(|judged| judged.verdicts)
    }
}

/// Clauses by their verdicts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[allow(missing_docs, reason = "the verdicts' names")]
pub struct Counts {
    pub hold: usize,
    pub deviate: usize,
    pub fail: usize,
}

/// A clause whose verdict changed, at one place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Change {
    /// The trampoline.
    pub trampoline: String,
    /// The clause.
    pub clause: String,
    /// What it demands.
    pub about: String,
    /// The register, slot or place.
    pub place: String,
    /// What was expected there, and what was found; or why it is not known.
    pub found: String,
    /// The last instruction that wrote it; empty if none did.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub writer: String,
    /// The command that shows it; empty where no file has what was judged.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub replay: String,
}

/// A trampoline before and after.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Reviewed {
    /// Its name.
    pub trampoline: String,
    /// How many instructions it has now.
    pub instructions: usize,
    /// Those that are new, gone, moved or changed: a sign, the offset, the text.
    pub changed: Vec<String>,
    /// Offsets of those that are new, moved or changed.
    #[serde(skip)]
    offsets: BTreeSet<usize>,
    /// What it does differently.
    pub differences: Vec<Difference>,
}

impl Review {
    /// Judge both sides, each by a contract; see what is different without one; put faults into what has changed.
    ///
    /// # Errors
    /// An object that does not fit the contract, or cannot be run.
    pub fn of(sides: [&Side; 2], by: [&Foreign; 2], seed: u64, mut baseline: Option<Baseline>) -> Result<Review> {
        let [old, new] = sides;
        let Judged { suites: [before, after], fails, verdicts } = judged(sides, by, seed)?;
        let mut trampolines = Vec::new();
        for suite in &after {
            let object = object_of(&suite.options, by[1]);
            let other = before.iter().find(|other| object_of(&other.options, by[0]) == object);
            let other = other.ok_or_else(|| Error::new(format!("{}: nothing for {}", old.name, suite.options)))?;
            let each = suite.contracts.par_iter().map(|contract| reviewed(other, suite, &contract.name));
            trampolines.extend(each.collect::<Result<Vec<_>>>()?);
        }
        let mut accepted = 0;
        if let Some(baseline) = &mut baseline {
            for t in &mut trampolines {
                accepted += baseline.take(&t.trampoline, &mut t.differences);
            }
        }
        let gone = baseline.map_or_else(Vec::new, Baseline::gone);
        let faults = match fails {
            false => {
                let changed = trampolines.iter().map(|t| (t.trampoline.as_str(), &t.offsets)).collect();
                faults::of(after, &changed, seed)?
            }
            true => Faults::not_run("what is new fails its contract as it is"),
        };
        Ok(Review {
            version: 2,
            old: old.name.clone(),
            new: new.name.clone(),
            verdicts,
            trampolines,
            accepted,
            gone,
            faults,
        })
    }
}

/// Two sides that were judged.
struct Judged {
    suites: [Vec<Suite>; 2],
    /// A clause of the new side fails; what is never executed is not meant.
    fails: bool,
    verdicts: Verdicts,
}

/// What a suite is called besides its contract: the object that is judged by itself.
fn object_of<'o>(options: &'o str, by: &Foreign) -> &'o str {
    options.strip_prefix(by.contract_name).unwrap_or(options)
}

fn judged([old, new]: [&Side; 2], by: [&Foreign; 2], seed: u64) -> Result<Judged> {
    let check = |side: &Side, foreign: &Foreign| {
        let foreign = Foreign { objects: side.objects.clone(), dump: None, again: None, ..*foreign };
        let suites = emu_tests::foreign_suites(&foreign, crate::BACKENDS)?;
        let report = emu_tests::check(&suites, &Filter::default(), seed, &|_, _| {})?;
        Ok((suites, report))
    };
    let (before, was) = check(old, by[0]).map_err(|e: Error| e.at(&old.name))?;
    let (after, is) = check(new, by[1]).map_err(|e: Error| e.at(&new.name))?;
    let undefined = |row: &&Row| (row.verdict, row.reason_id) == (Verdict::Open, Some(Reason::NotDefined));
    let of = |report: &Report, name: &str| report.results.iter().filter(undefined).any(|row| row.trampoline == name);
    if let Some(row) = is.results.iter().filter(undefined).find(|row| of(&was, &row.trampoline)) {
        return Err(Error::new(format!("{}: {}: {}", by[1].contract_name, row.trampoline, row.reason)));
    }
    let counts = |report: &Report| {
        let Summary { pass, deviates, fail, .. } = report.summary;
        Counts { hold: pass, deviate: deviates, fail }
    };
    let verdicts = Verdicts {
        contract: by[1].contract_name.to_owned(),
        contract_before: (by[0].contract_name != by[1].contract_name).then(|| by[0].contract_name.to_owned()),
        seed,
        clauses: [counts(&was), counts(&is)],
        worse: changes((&was, by[0]), (&is, by[1]), new.in_files),
        better: changes((&is, by[1]), (&was, by[0]), false),
    };
    let fails = is.results.iter().any(|row| row.verdict == Verdict::Fail && row.clause != Clause::Coverage);
    Ok(Judged { suites: [before, after], fails, verdicts })
}

/// What fails or is not known in one report, and is not so in the other: causes first, and then what follows from them.
fn changes(without: (&Report, &Foreign), with: (&Report, &Foreign), replayed: bool) -> Vec<Change> {
    let key = |row: &Row, by| (row.trampoline.clone(), object_of(&row.options, by).to_owned(), row.clause);
    let others: BTreeMap<_, &Row> = without.0.results.iter().map(|row| (key(row, without.1), row)).collect();
    let fails = |of: &Row| {
        let mut rows = with.0.results.iter().filter(|row| row.trampoline == of.trampoline);
        rows.any(|row| row.verdict == Verdict::Fail)
    };
    let mut all = Vec::new();
    for row in &with.0.results {
        let other = others.get(&key(row, with.1)).copied();
        let held = other.is_some_and(|other| matches!(other.verdict, Verdict::Pass | Verdict::Deviates));
        let mut push = |place: &str, failure: Option<&Failure>, found: String| {
            all.push((rank(row, failure), change(row, place, failure, found, replayed)));
        };
        match row.verdict {
            Verdict::Fail if row.places.is_empty() && other.is_none_or(|other| other.verdict != Verdict::Fail) => {
                push("", None, row.reason.clone());
            }
            Verdict::Fail => {
                let known = other.map(ids).unwrap_or_default();
                for id in ids(row).difference(&known) {
                    let failure = row.failures.iter().find(|f| f.place_id == *id);
                    let found =
                        failure.map_or_else(String::new, |f| format!("expected {}, found {}", f.expected, f.found));
                    push(failure.map_or(id, |f| &f.place), failure, found);
                }
            }
            // It follows from a failure, which is told.
            Verdict::Skip if row.reason_id == Some(Reason::NotInterrupted) && fails(row) => {}
            Verdict::Skip if held => push("", None, format!("not checked: {}", row.reason)),
            Verdict::Open if held => push("", None, format!("not decided: {}", row.reason)),
            Verdict::Pass | Verdict::Deviates | Verdict::Skip | Verdict::Open => {}
        }
    }
    all.sort_by_key(|(rank, _)| *rank);
    all.into_iter().map(|(_, change)| change).collect()
}

/// How far it is from the cause: what is lost, what code did that had gone astray, what was lost as often, what was not run for that.
fn rank(row: &Row, failure: Option<&Failure>) -> u8 {
    let coverage = row.clause == Clause::Coverage;
    match (row.verdict, failure) {
        (Verdict::Fail, _) if coverage => 3,
        (Verdict::Fail, None) => 2,
        (Verdict::Fail, Some(f)) => u8::from(row.clause == Clause::P7 && f.at.starts_with("0x")),
        _ => 4 + u8::from(coverage),
    }
}

fn change(row: &Row, place: &str, failure: Option<&Failure>, found: String, replayed: bool) -> Change {
    Change {
        trampoline: row.trampoline.clone(),
        clause: row.clause.name().to_owned(),
        about: row.clause.about().to_owned(),
        place: place.to_owned(),
        found,
        writer: failure.map_or_else(String::new, |f| f.last_writer.clone()),
        replay: failure.filter(|_| replayed).map_or_else(String::new, |f| f.replay.clone()),
    }
}

/// The places at which a clause failed, without the instructions.
fn ids(row: &Row) -> BTreeSet<&str> {
    row.places.iter().map(|place| place.split('@').next().unwrap_or_default()).collect()
}

/// A trampoline of two suites.
fn reviewed(before: &Suite, after: &Suite, name: &str) -> Result<Reviewed> {
    let find = |suite: &Suite| -> Result<(usize, Vec<Insn>)> {
        for (n, (object, bytes)) in suite.objects.iter().enumerate() {
            let (insns, _) = code(&Input { name: object, bytes }, name, &Stores::new())?;
            if !insns.is_empty() {
                return Ok((n, insns));
            }
        }
        Err(Error::new(format!("{}: no code of {name}", suite.options)))
    };
    let ((l, left), (r, right)) = (find(before)?, find(after)?);
    let pairs = aligned(&left, &right);
    let changed = changed(&left, &right, &pairs);
    let new = pairs.iter().filter(|pair| pair.mark != Mark::Same).filter_map(|pair| Some(right.get(pair.right?)?.at));
    let offsets = new.collect();
    let observed = |suite: &Suite, n: usize| {
        let (object, bytes) = &suite.objects[n];
        emu_tests::observe(&Input { name: object, bytes }, Some(name), crate::BACKENDS, suite.convention.orc)
    };
    let abi = &after.backend.facts().abi;
    let differences = emu_tests::differences(&observed(before, l)?, &observed(after, r)?, abi);
    Ok(Reviewed { trampoline: name.to_owned(), instructions: right.len(), changed, offsets, differences })
}
