//! A report of `check` as a part of a page.

use std::collections::BTreeMap;

use codegen::words::error::Result;
use emu_tests::{Clause, Report, Row, Verdict};
use templates::page::{
    ArchRow, Check, ClauseRow, FailedClause, Matrix, MatrixCell, MatrixRow, Single, Trampoline, part as rendered,
};

use super::super::rows::{counts, unique, worst};
use super::views;
use super::words::{line, pasted};

/// Architecture and trampoline.
type Name<'r> = (&'r str, &'r str);

/// The report with what is looked up often.
struct Of<'r> {
    report: &'r Report,
    id: &'r str,
    /// All trampolines, those of an architecture together.
    names: Vec<Name<'r>>,
    rows: BTreeMap<Name<'r>, Vec<&'r Row>>,
}

/// Title, verdict in a line, and the part itself, whose ids begin with `id`.
pub fn part(report: &Report, id: &str) -> Result<(String, String, String)> {
    let mut rows: BTreeMap<Name, Vec<&Row>> = BTreeMap::new();
    for row in &report.results {
        rows.entry((&row.arch, &row.trampoline)).or_default().push(row);
    }
    let arches = unique(report.results.iter().map(|r| r.arch.as_str()));
    let mut names = Vec::new();
    for arch in &arches {
        let of = report.results.iter().filter(|r| r.arch == *arch);
        names.extend(unique(of.map(|r| r.trampoline.as_str())).into_iter().map(|t| (*arch, t)));
    }
    let of = Of { report, id, names, rows };
    let title = "What trampolines promise, and what they do".to_owned();
    let counted: Vec<ArchRow> = arches.iter().map(|arch| of.arch(arch)).collect();
    let verdict = verdict(&counted, report.summary.open);
    let told = line(&verdict);
    let trampolines = (0..of.names.len()).map(|n| rendered(&of.trampoline(n))).collect::<Result<_>>()?;
    let check = Check {
        id: id.to_owned(),
        heading: "Verdict".to_owned(),
        verdict,
        arches: counted,
        meta: format!(
            "{}; {} scenarios, each function run unpatched, enabled and disabled; seed {}, {}",
            counts(report.summary),
            report.scenarios,
            report.seed,
            report.engine
        ),
        notes: notes(report),
        failures: of.failures(),
        matrices: arches.iter().enumerate().map(|(n, arch)| of.matrix(n, arch)).collect(),
        deviations: of.deviations(),
        seen: !report.views.is_empty(),
        trampolines,
        clauses: Clause::ALL.map(|c| (c.name(), c.about())).into(),
        undecided: report.undecided.iter().map(|u| (u.clause.clone(), u.reason.clone())).collect(),
    };
    Ok((title, told, rendered(&check)?))
}

fn notes(report: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    if !report.alternatives.is_empty() {
        let places = report.alternatives.join(", ");
        notes.push(format!("Not run, but may be patched in when the kernel boots: alternatives at {places}"));
    }
    if !report.alternatives_in_place.is_empty() {
        notes.push(format!("In place, and run: alternatives at {}", report.alternatives_in_place.join(", ")));
    }
    if !report.stubs.is_empty() {
        notes.push(format!("A function that returns at once stands in for {}", report.stubs.join(", ")));
    }
    if !report.in_place_of_engine.is_empty() {
        let (engine, all) = (&report.engine, report.in_place_of_engine.join(", "));
        notes
            .push(format!("Not run by {engine}, which lacks them or is told their results, but by the checker: {all}"));
    }
    notes.extend(report.warnings.iter().map(|w| format!("Warning: {w}")));
    notes
}

/// The verdict on all, so many clauses being left open.
fn verdict(arches: &[ArchRow], open: usize) -> templates::page::Verdict {
    let sum = |of: fn(&ArchRow) -> usize| arches.iter().map(of).sum::<usize>();
    let (all, hold, deviate, fail) = (sum(|a| a.trampolines), sum(|a| a.hold), sum(|a| a.deviate), sum(|a| a.fail));
    let (class, sign, word) = match (fail, hold + deviate) {
        (0, _) if open > 0 => ("fail", "?", "not decided"),
        (0, 0) => ("note", "–", "nothing was decided"),
        (0, _) => ("pass", "✓", "holds"),
        _ => ("fail", "✗", "fails"),
    };
    let s = if all == 1 { "" } else { "s" };
    let how = match (fail, deviate) {
        (0, _) if open > 0 => format!(", {open} clause{} not decided", if open == 1 { "" } else { "s" }),
        (0, 0) => String::new(),
        (0, _) => format!(", {deviate} of them with deviations that their contracts name"),
        _ => format!(", {fail} of them with clauses that fail"),
    };
    templates::page::Verdict { class, sign, word, text: format!("{all} trampoline{s}{how}") }
}

/// Colour, sign and word.
fn shown(verdict: Option<Verdict>) -> (&'static str, &'static str, &'static str) {
    match verdict {
        Some(Verdict::Pass) => ("pass", "✓", "holds"),
        Some(Verdict::Fail) => ("fail", "✗", "fails"),
        Some(Verdict::Deviates) => ("deviates", "d", "deviates"),
        Some(Verdict::Skip) => ("skip-cell", "–", "not checked"),
        Some(Verdict::Open) => ("fail", "?", "not decided"),
        None => ("skip-cell", "", "not asked"),
    }
}

impl<'r> Of<'r> {
    fn rows(&self, name: Name<'r>) -> std::iter::Copied<std::slice::Iter<'_, &'r Row>> {
        self.rows.get(&name).map_or(&[][..], Vec::as_slice).iter().copied()
    }

    /// The id of the part about a trampoline.
    fn target(&self, name: Name) -> String {
        let number = self.names.iter().position(|n| *n == name).unwrap_or(0);
        format!("{}-t{number}", self.id)
    }

    fn arch(&self, arch: &str) -> ArchRow {
        let name = arch.to_owned();
        let mut row = ArchRow { name, trampolines: 0, hold: 0, deviate: 0, fail: 0 };
        for name in self.names.iter().filter(|(a, _)| *a == arch) {
            row.trampolines += 1;
            match worst(self.rows(*name)) {
                Some(Verdict::Fail) => row.fail += 1,
                Some(Verdict::Deviates) => row.deviate += 1,
                Some(Verdict::Pass) => row.hold += 1,
                Some(Verdict::Skip | Verdict::Open) | None => {}
            }
        }
        row
    }

    fn failures(&self) -> Vec<FailedClause> {
        let failing = self.report.results.iter().filter(|r| r.verdict == Verdict::Fail);
        let single = |f: &emu_tests::Failure| Single {
            place: f.place.clone(),
            expected: f.expected.clone(),
            found: f.found.clone(),
            at: f.at.clone(),
            writer: f.last_writer.clone(),
            context: f.context.clone(),
            replay: pasted(&f.replay),
        };
        let clause = |row: &Row| FailedClause {
            clause: row.clause.name().to_owned(),
            about: row.clause.about(),
            arch: row.arch.clone(),
            trampoline: row.trampoline.clone(),
            target: self.target((&row.arch, &row.trampoline)),
            options: row.options.clone(),
            reason: row.reason.clone(),
            each: row.failures.iter().map(single).collect(),
            others: Vec::new(),
        };
        let mut all: Vec<FailedClause> = Vec::new();
        for row in failing {
            let same = |f: &&mut FailedClause| {
                (f.clause.as_str(), &f.arch, &f.trampoline) == (row.clause.name(), &row.arch, &row.trampoline)
            };
            match all.iter_mut().find(same) {
                Some(known) => known.others.push(row.options.clone()),
                None => all.push(clause(row)),
            }
        }
        all
    }

    fn matrix(&self, number: usize, arch: &str) -> Matrix {
        let options = self.report.results.iter().filter(|r| r.arch == arch).map(|r| r.options.as_str());
        let row = |name: &Name| {
            let target = self.target(*name);
            let cell = |clause: Clause| {
                let verdict = worst(self.rows(*name).filter(|r| r.clause == clause));
                let (class, sign, word) = shown(verdict);
                let why = self.why(*name, clause).join("; ");
                let colon = if why.is_empty() { "" } else { ": " };
                let label = format!("{} {} of {}: {word}{colon}{why}", clause, clause.about(), name.1);
                MatrixCell { class, sign, target: format!("{target}-{clause}"), label }
            };
            MatrixRow { name: name.1.to_owned(), target: target.clone(), cells: Clause::ALL.map(cell).into() }
        };
        let short = |c: Clause| match c {
            Clause::Coverage => ("cov".to_owned(), c.about()),
            Clause::Wide => ("2w".to_owned(), c.about()),
            _ => (c.name().trim_start_matches('P').to_owned(), c.about()),
        };
        Matrix {
            id: format!("{}-m{number}", self.id),
            arch: arch.to_owned(),
            sets: unique(options).len(),
            clauses: Clause::ALL.map(short).into(),
            rows: self.names.iter().filter(|(a, _)| *a == arch).map(row).collect(),
        }
    }

    /// The reasons behind a cell: each once, with the options under which it is one if it is not always.
    fn why(&self, name: Name<'r>, clause: Clause) -> Vec<String> {
        let rows: Vec<&Row> = self.rows(name).filter(|r| r.clause == clause).collect();
        let mut groups: Vec<(&Row, Vec<&str>)> = Vec::new();
        for row in &rows {
            match groups.iter_mut().find(|(r, _)| (r.verdict, &r.reason) == (row.verdict, &row.reason)) {
                Some((_, options)) => options.push(&row.options),
                None => groups.push((row, vec![&row.options])),
            }
        }
        let several = groups.len() > 1;
        let tell = |(row, options): (&Row, Vec<&str>)| {
            if !several {
                return row.reason.clone();
            }
            let word = shown(Some(row.verdict)).2;
            let colon = if row.reason.is_empty() { "" } else { ": " };
            let under = match options[..] {
                [one] => format!("under {one}"),
                _ => format!("under {} of {} sets of options", options.len(), rows.len()),
            };
            format!("{word} {under}{colon}{}", row.reason)
        };
        groups.into_iter().map(tell).filter(|why| !why.is_empty()).collect()
    }

    fn deviations(&self) -> Vec<(String, String, String)> {
        let mut all: Vec<(String, Vec<&str>, String)> = Vec::new();
        for clause in Clause::ALL {
            for row in self.report.results.iter().filter(|r| r.verdict == Verdict::Deviates && r.clause == clause) {
                match all.iter_mut().find(|(c, _, reason)| *c == clause.name() && *reason == row.reason) {
                    Some((_, whose, _)) if whose.contains(&row.trampoline.as_str()) => {}
                    Some((_, whose, _)) => whose.push(&row.trampoline),
                    None => all.push((clause.name().to_owned(), vec![&row.trampoline], row.reason.clone())),
                }
            }
        }
        all.into_iter().map(|(clause, whose, reason)| (clause, whose.join(", "), reason)).collect()
    }

    fn trampoline(&self, number: usize) -> Trampoline {
        let name = self.names[number];
        let id = self.target(name);
        let (class, sign, word) = shown(worst(self.rows(name)));
        let clause = |clause: Clause| {
            let rows = || self.rows(name).filter(|r| r.clause == clause);
            let (class, sign, word) = shown(worst(rows()));
            ClauseRow {
                id: format!("{id}-{clause}"),
                name: clause.name(),
                class,
                sign,
                word,
                // What is read may count anything.
                checks: rows().map(|r| r.checks).fold(0, u64::saturating_add),
                why: self.why(name, clause),
            }
        };
        let longest = self.report.views.iter().flat_map(|v| &v.paths).map(|p| p.steps.len()).max().unwrap_or(1);
        let views = self.report.views.iter().filter(|v| (v.arch.as_str(), v.trampoline.as_str()) == name);
        // Of those under which it fails, one has to do: the failures name all.
        let fails = |v: &&emu_tests::View| v.paths.iter().any(|p| !p.failures.is_empty());
        let chosen = views.clone().find(fails).or_else(|| views.clone().next());
        let view = |(k, view): (usize, &emu_tests::View)| {
            let rows = self.rows(name).filter(|r| r.options == view.options);
            views::view(view, &rows.collect::<Vec<_>>(), longest, &format!("{id}-v{k}"))
        };
        Trampoline {
            name: name.1.to_owned(),
            arch: name.0.to_owned(),
            class,
            sign,
            word,
            open: class == "fail",
            clauses: Clause::ALL.map(clause).into(),
            views: chosen.into_iter().enumerate().map(view).collect(),
            id,
        }
    }
}
