// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of an audit of many packages.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::list::{Corpus, Read};
use super::report::{Finding, Row, kind};
use super::{confirm, control, fixed};
use crate::damage::Rng;
use crate::failure::Failure;

/// Findings that are drawn, and the number that the drawing begins with.
const DRAWN: usize = 200;
const SEED: u64 = 1;

/// A finding, and where it is.
#[derive(Clone, Copy)]
struct Met<'a> {
    row: &'a Row,
    name: &'a str,
    finding: &'a Finding,
}

/// Of findings: the true ones, the false ones, and those that nobody has read.
type Verdicts<'a> = BTreeMap<&'a str, [usize; 3]>;

/// The page.
///
/// # Errors
/// A package or the tool cannot be used again.
pub(super) fn page(corpus: &Corpus, rows: &[Row], refused: &[String], arches: &[String]) -> Result<String, Failure> {
    let mut out = packages(corpus, rows);
    let each = rows.iter().flat_map(|row| row.findings.iter().map(move |(name, finding)| Met { row, name, finding }));
    let all: Vec<Met> = each.collect();
    out += &read(corpus, &all)?;
    out += &drawn(corpus, &all);
    out += &unread(corpus, &all);
    if !refused.is_empty() {
        out += "\n## Packages that were refused\n\n";
    }
    for why in refused {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "- {why}");
    }
    if arches.is_empty() {
        out += &fixed::page(corpus)?;
        out += &control::page(corpus)?;
    }
    Ok(out)
}

/// Each package, and why functions were not judged.
fn packages(corpus: &Corpus, rows: &[Row]) -> String {
    let mut out = String::from("# Audit of Debian's packages\n\n");
    let suites: Vec<String> = corpus.suites.iter().map(|(arch, suite)| format!("{arch} of {suite}")).collect();
    let sum = |n: usize| rows.iter().map(|row| row.counts[n]).sum::<u64>();
    let packages: BTreeSet<&str> = rows.iter().map(|row| row.package.as_str()).collect();
    let libraries = packages.iter().filter(|package| corpus.libraries.contains(**package)).count();
    let _ = writeln!(
        out,
        "`cargo xtask audit-corpus` wrote this page: {}. {} packages have assembly, in {} files; of {libraries} of them, which are\n\
         shared libraries, their sources say so. {} of {} functions were judged.\n",
        suites.join(", "),
        packages.len(),
        rows.len(),
        sum(3),
        sum(2)
    );
    let _ = writeln!(out, "| package | architecture | objects | by hand | functions | judged | findings |");
    let _ = writeln!(out, "|---|---|--:|--:|--:|--:|---|");
    for Row { package, arch, counts: [objects, by_hand, functions, judged], findings, .. } in rows {
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for finding in findings.keys() {
            *kinds.entry(kind(finding)).or_default() += 1;
        }
        let kinds: Vec<String> = kinds.into_iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let kinds = kinds.join(", ");
        let by_hand = if corpus.libraries.contains(package) { String::new() } else { by_hand.to_string() };
        let _ = writeln!(out, "| {package} | {arch} | {objects} | {by_hand} | {functions} | {judged} | {kinds} |");
    }
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for (why, count) in rows.iter().flat_map(|row| &row.reasons) {
        *reasons.entry(why).or_default() += count;
    }
    let _ = writeln!(out, "\n## Functions that were not judged\n\n| because | functions |\n|---|--:|");
    for (why, count) in reasons {
        let _ = writeln!(out, "| {why} | {count} |");
    }
    out
}

/// The findings whose code was read; the first of each group is run again by another engine.
fn read(corpus: &Corpus, all: &[Met]) -> Result<String, Failure> {
    let mut out = String::from(
        "\n## Findings whose code was read\n\n| package | finding | it is | by another engine | the code |\n|---|---|---|---|---|\n",
    );
    let (mut verdicts, mut shown, mut of) = (Verdicts::new(), 0, BTreeSet::new());
    for read in &corpus.read {
        let met: Vec<Met> = all.iter().copied().filter(|met| read.is_about(met.name)).collect();
        let Some(first) = met.first() else {
            let _ = writeln!(out, "| | {} | gone | | {} |", read.finding, read.reason);
            continue;
        };
        verdicts.entry(kind(first.name)).or_default()[usize::from(!read.verdict)] += met.len();
        let more = if met.len() > 1 { format!(", and {} alike", met.len() - 1) } else { String::new() };
        let (package, verdict) = (&first.row.package, read.verdict);
        // That question is about functions beside it, which no run of it shows.
        let is_question = kind(first.name) == "C13";
        let witness = if is_question {
            String::new()
        } else {
            confirm::by_another_engine(corpus, first.row, first.name, first.finding)?
        };
        if read.verdict && !witness.is_empty() && !witness.starts_with("not ") {
            shown += 1;
            of.insert(package.as_str());
        }
        let _ = writeln!(out, "| {package} | `{}`{more} | {verdict} | {witness} | {} |", first.name, read.reason);
    }
    let _ = writeln!(
        out,
        "\nOf the lines with a true one, another engine shows {shown} too, in {} packages.\n\n| claim | true | false |\n|---|--:|--:|",
        of.len()
    );
    for (kind, [is, not, _]) in verdicts {
        let _ = writeln!(out, "| {kind} | {is} | {not} |");
    }
    Ok(out)
}

/// What came of reading findings that are drawn at random.
fn drawn(corpus: &Corpus, all: &[Met]) -> String {
    let (mut left, mut rng, mut verdicts) = (all.to_vec(), Rng(SEED), Verdicts::new());
    for _ in 0..DRAWN.min(all.len()) {
        let met = left.swap_remove(rng.below(left.len()));
        let verdict = match corpus.read_of(met.name) {
            Some(Read { verdict: true, .. }) => 0,
            Some(_) => 1,
            None => 2,
        };
        verdicts.entry(kind(met.name)).or_default()[verdict] += 1;
    }
    let count: usize = verdicts.values().flatten().sum();
    let mut out = format!(
        "\n## {count} findings at random\n\nDrawn of all {} with the number {SEED}.\n\n| claim | true | false | not read |\n|---|--:|--:|--:|\n",
        all.len()
    );
    for (kind, [is, not, unread]) in verdicts {
        let _ = writeln!(out, "| {kind} | {is} | {not} | {unread} |");
    }
    out
}

fn unread(corpus: &Corpus, all: &[Met]) -> String {
    let mut out = String::new();
    for met in all.iter().filter(|met| corpus.read_of(met.name).is_none()) {
        if out.is_empty() {
            out += "\n## Findings whose code nobody has read\n\n| package | finding | tier |\n|---|---|---|\n";
        }
        let _ = writeln!(out, "| {} | `{}` | {} |", met.row.package, met.name, met.finding.tier);
    }
    out
}
