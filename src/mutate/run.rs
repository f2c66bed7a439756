//! Mutants put before the judge.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use codegen::contract::Contract;
use codegen::effect::faults::Operator;
use codegen::words::error::{Error, Result};
use codegen::words::shell::shell;
use emu_tests::{Clause, Filter, Observed, Of, Progress, Suite, Verdict};
use rayon::prelude::*;

use super::bugs::{Known, table};
use super::by::By;
use super::report::{Judged, Outcome};
use super::selftests::Failed;
use super::subject::Candidate;

/// Stands among the clauses for a mutant that no linker lets through.
const LINKER: &str = "link";

/// The function on which a mutant is run first.
const QUICK: &str = "args3";

/// Does every linker refuse what this error tells of? With any other error, nobody has judged the mutant.
fn refused_by_linkers(e: &Error) -> bool {
    // The fault took half of an address away from its other half, or loads a word from where no word is.
    matches!(e.kind(), Error::Unpaired { .. } | Error::Misaligned { .. })
}

/// The judge's report on a mutant; none if no linker lets it through.
fn report(c: &Candidate, faulty: &[Suite], filter: &Filter, seed: u64) -> Result<Option<emu_tests::Report>> {
    match emu_tests::check(faulty, filter, seed, &|_, _| {}) {
        Ok(report) => Ok(Some(report)),
        Err(e) if refused_by_linkers(&e) => Ok(None),
        Err(e) => Err(e.at(format_args!("{} {} {}", c.arch(), c.trampoline(), c.mutant))),
    }
}

/// The cases in which the trampoline runs are enough; but a deviation that is gone can be noticed anywhere.
fn concerning(c: &Candidate, suite: &Suite, filter: &Filter) -> Option<String> {
    let deviates = suite.deviations.iter().any(|d| filter.judges(d.clause));
    (!deviates).then(|| c.trampoline().to_owned())
}

/// Everything in which a mutant fails, in all cases; none if no linker lets it through.
///
/// # Errors
/// A mutant that cannot be put before the judge.
pub fn places(c: &Candidate, seed: u64) -> Result<Option<Vec<Failed>>> {
    let faulty = [c.suite()?];
    let filter = Filter { concerning: concerning(c, &faulty[0], &Filter::default()), ..Filter::default() };
    let Some(report) = report(c, &faulty, &filter, seed)? else { return Ok(None) };
    Ok(Some(failures(&report, |clause| clause.of() == Of::Trampoline)))
}

/// Where some of the clauses fail.
fn failures(report: &emu_tests::Report, of: impl Fn(Clause) -> bool) -> Vec<Failed> {
    let mut all = Vec::new();
    for row in report.results.iter().filter(|row| row.verdict == Verdict::Fail && of(row.clause)) {
        let named = |place: &str| Failed {
            trampoline: row.trampoline.clone(),
            clause: row.clause.name().to_owned(),
            place: place.split('@').next().unwrap_or_default().to_owned(),
        };
        all.extend(row.places.iter().map(|place| named(place)));
        // A deviation that is gone has no place.
        if row.places.is_empty() {
            all.push(named("deviation"));
        }
    }
    all.sort();
    all.dedup();
    all
}

/// What fails: in the first failing case, or in all.
fn found(c: &Candidate, seed: u64) -> Result<Found> {
    let mut filter = Filter { first_failure: c.bug.is_none(), ..Filter::default() };
    if !filter.first_failure {
        return failing(c, c.suite()?, &filter, seed);
    }
    // Most die without other trampolines, and on any function: one with a few arguments.
    filter.function = quick(c.contract()).map(str::to_owned);
    let first = c.alone(|suite| holds(suite, &filter, seed))?.map_or_else(|| c.suite(), Ok)?;
    let found = failing(c, first, &filter, seed)?;
    if !found.clauses.is_empty() {
        return Ok(found);
    }
    failing(c, c.suite()?, &Filter { function: None, ..filter }, seed)
}

/// The function on which a mutant of this trampoline is run first; of a direct one, each has its own arguments.
fn quick(contract: &Contract) -> Option<&'static str> {
    contract.kind.direct().is_none().then_some(QUICK)
}

/// Does the trampoline without a fault hold alone?
fn holds(suite: &Suite, filter: &Filter, seed: u64) -> bool {
    let report = emu_tests::check(std::slice::from_ref(suite), filter, seed, &|_, _| {});
    report.is_ok_and(|report| report.results.iter().all(|row| row.verdict != Verdict::Fail))
}

/// The clauses that fail, and where.
#[derive(Default)]
struct Found {
    clauses: Vec<&'static str>,
    places: Vec<Failed>,
}

/// What fails in a suite with the fault.
fn failing(c: &Candidate, faulty: Suite, filter: &Filter, seed: u64) -> Result<Found> {
    let filter = Filter { concerning: concerning(c, &faulty, filter), ..filter.clone() };
    let Some(report) = report(c, &[faulty], &filter, seed)? else {
        return Ok(Found { clauses: vec![LINKER], places: Vec::new() });
    };
    let failed = report.results.iter().filter(|r| r.verdict == Verdict::Fail).map(|r| r.clause);
    let failed: BTreeSet<Clause> = failed.filter(|clause| *clause != Clause::Coverage).collect();
    let places = failures(&report, |clause| failed.contains(&clause));
    Ok(Found { clauses: failed.into_iter().map(Clause::name).collect(), places })
}

/// Does nobody to whom the trampoline goes on find with the fault what he does not find without?
fn leaves_the_same(c: &Candidate, seed: u64) -> Result<bool> {
    let filter = |suite: &Suite| Filter {
        concerning: concerning(c, suite, &Filter::default()),
        first_failure: true,
        ..Filter::default()
    };
    let left = |suite: &Suite| emu_tests::left(suite, &filter(suite), seed);
    if !c.mutant.operator.concerns_values() {
        return Ok(false);
    }
    let original = c.left(left)?;
    Ok(!original.is_empty() && left(&c.suite()?)? == *original)
}

/// Whom differences of behaviour concern, between the original and what has the fault.
fn concerned(c: &Candidate, originals: &Originals) -> Result<Vec<&'static str>> {
    let at = |e: Error| e.at(format_args!("{} {} {}", c.arch(), c.trampoline(), c.mutant));
    let original = originals.get(&c.place()).ok_or_else(|| Error::new("an original was not observed")).map_err(at)?;
    let faulty = match c.observed(&c.faulty()?) {
        Ok(observed) => observed,
        Err(e) if refused_by_linkers(&e) => return Ok(vec![LINKER]),
        Err(e) => return Err(at(e)),
    };
    let all = emu_tests::differences(original, &faulty, &c.contract().facts.abi);
    let concerned: BTreeSet<_> = all.iter().map(|d| d.severity).filter(|s| s.is_behaviour()).collect();
    Ok(concerned.into_iter().map(|severity| severity.words()).collect())
}

/// What trampolines do without a fault, by their places.
type Originals = BTreeMap<(usize, usize), Observed>;

/// Observe each original once.
fn originals(candidates: &[(usize, Candidate)]) -> Result<Originals> {
    let first: BTreeMap<_, _> = candidates.iter().map(|(_, c)| (c.place(), c)).collect();
    first.into_par_iter().map(|(place, c)| Ok((place, c.original()?))).collect()
}

/// Keep `n` of each operator on each architecture, the same ones for the same seed.
pub fn sample(candidates: &mut Vec<Candidate>, n: usize, seed: u64) {
    let rank = |c: &Candidate| {
        let mut hasher = DefaultHasher::new();
        (seed, c.trampoline(), c.mutant.to_string()).hash(&mut hasher);
        hasher.finish()
    };
    let mut classes: BTreeMap<(&str, Operator), Vec<u64>> = BTreeMap::new();
    for c in candidates.iter() {
        classes.entry((c.arch(), c.mutant.operator)).or_default().push(rank(c));
    }
    for ranks in classes.values_mut() {
        ranks.sort_unstable();
        ranks.truncate(n);
    }
    candidates.retain(|c| classes[&(c.arch(), c.mutant.operator)].contains(&rank(c)));
}

/// Why nobody can notice a mutant of values that do not matter.
const LEFT: &str = "whoever it calls and returns to finds the same registers, stack and memory";

/// Why nobody can notice a mutant of a note.
const SAME: &str = "the object is the same: another trampoline in it breaks the promise";

/// Run mutants, of which each comes with its number in the whole run.
///
/// # Errors
/// A mutant that cannot be put before the judge.
pub fn judge(candidates: &[(usize, Candidate)], by: By, seed: u64, progress: Progress) -> Result<Vec<Judged>> {
    let table = table()?;
    let originals = if by == By::Observe { originals(candidates)? } else { Originals::new() };
    let (done, all) = (AtomicU64::new(0), candidates.len() as u64);
    let judge = |(number, c): &(usize, Candidate)| -> Result<Judged> {
        let verified = match by {
            By::Emulator => None,
            By::Observe => Some(concerned(c, &originals)?),
            By::Verify | By::Both => Some(c.properties()?),
        };
        let Found { clauses, places } = if by.alone() { Found::default() } else { found(c, seed)? };
        if let (true, Some(bug)) = (by.alone(), c.bug) {
            return Err(Error::new(format!(
                "bug:{} must be noticed by {}, which only the emulator knows; valid: --by emulator",
                bug.id, bug.property
            )));
        }
        let known = |list: &'static [Known]| list.iter().find(|k| c.is(k)).map(|k| k.reason.as_str());
        let noticed = match (c.bug, &verified) {
            (Some(bug), _) => clauses.contains(&bug.property.as_str()),
            (None, Some(properties)) if by.alone() => !properties.is_empty(),
            (None, _) => !clauses.is_empty(),
        };
        let gap = known(match by {
            By::Verify => &table.unseen,
            By::Observe => &table.unobserved,
            By::Emulator | By::Both => &table.gap,
        });
        let equivalent = match known(&table.equivalent) {
            // The line that says so fits others too, of which it is not true.
            Some(_) if by.alone() && !found(c, seed)?.clauses.is_empty() => None,
            None if !noticed && !by.alone() && c.is_unchanged()? => Some(SAME),
            None if !noticed && !by.alone() && gap.is_none() && leaves_the_same(c, seed)? => Some(LEFT),
            known => known,
        };
        let (outcome, reason) = match (noticed, gap, equivalent) {
            // What does as the original does is none that it ought to find, though a promise may be broken.
            (_, _, Some(reason)) if by.alone() => (Outcome::Equivalent, reason),
            (true, ..) => (Outcome::Killed, ""),
            (false, None, Some(reason)) => (Outcome::Equivalent, reason),
            (false, gap, _) => (Outcome::Survived, gap.unwrap_or("")),
        };
        let which = match c.bug {
            Some(bug) => vec![format!("bug:{}", bug.id)],
            None => {
                let only = ["--only".to_owned(), c.mutant.to_string()];
                let by = if by == By::Emulator { Vec::new() } else { vec!["--by".to_owned(), by.name().to_owned()] };
                let trampoline = std::iter::once(c.trampoline().to_owned());
                trampoline.chain(c.subject.chosen.words()).chain(by).chain(only).collect()
            }
        };
        let replay = format!("tramptool mutate {} --seed {seed}", shell(&which));
        progress(done.fetch_add(1, Ordering::Relaxed) + 1, all);
        Ok(Judged {
            number: *number,
            arch: c.arch().to_owned(),
            trampoline: c.trampoline().to_owned(),
            operator: c.mutant.operator.name().to_owned(),
            mutant: c.mutant.to_string(),
            diff: c.mutant.diff.clone(),
            outcome,
            clauses: clauses.into_iter().map(str::to_owned).collect(),
            places,
            verified: verified.map(|names| names.into_iter().map(str::to_owned).collect()),
            reason: reason.to_owned(),
            bug: c.bug.map(|b| (b.id.clone(), b.property.clone())),
            replay,
        })
    };
    candidates.par_iter().map(judge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutate::subject::MutationSubject;

    /// Half of an address without its other half is refused by every linker. Another error of the linker, though it names
    /// the same object, says nothing of the fault.
    #[test]
    fn only_half_an_address_is_for_linkers_to_notice() {
        let backend = crate::backend("riscv64").unwrap();
        let convention = crate::profile("bare").unwrap().convention("riscv64").unwrap();
        let mut subject = MutationSubject::new(backend, convention, &[("abi", "lp64")]).unwrap();
        let found = |subject: &MutationSubject| {
            let mutants = subject.mutants(|name| name == "around_frame_0").unwrap();
            let auipc = |c: &&Candidate| c.mutant.diff.iter().any(|line| line.contains("auipc"));
            let dropped = mutants.iter().filter(auipc).find(|c| c.mutant.operator.name() == "DROP_ARG").unwrap();
            failing(dropped, dropped.suite().unwrap(), &Filter::default(), 1).map(|found| found.clauses)
        };
        assert_eq!(found(&subject).unwrap(), [LINKER]);
        let name = subject.suite.objects[0].0.clone();
        subject.suite.objects.push((name.clone(), b"no object".to_vec()));
        let e = found(&subject).unwrap_err().to_string();
        assert!(e.contains(&format!("{name}: not ELF")), "{e}");
    }
}
