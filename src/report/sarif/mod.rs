//! SARIF 2.1.0, as code review tools read it: a rule per clause, a result per failure.

pub mod parts;

use emu_tests::{Clause, Failure, Report, Row, Verdict};
use serde_json::json;
use serde_sarif::sarif;

use self::parts::{
    Artifacts, Fingerprints, Source, accepted, line_of, log, logical, parts, physical, properties, relative, rule,
};
use super::document::{ContractFile, Scope};
use super::rows::explain;
use crate::{settings, suite};

/// The report as SARIF. What passes and what was not checked is left out unless `verbose`.
///
/// A result's place is a line of a file. Of a generated trampoline that is the text that `gen` writes: the line of the
/// instruction that last wrote the register, or else of the one where the check was made. Of any other it is the contract,
/// where it names the trampoline; the disassembly is a related location. What a file has that nobody else has is an artifact
/// with its contents.
pub fn document(report: &Report, scope: &Scope, verbose: bool) -> sarif::Sarif {
    let mut artifacts = Artifacts::default();
    let mut results = Vec::new();
    let mut same = Fingerprints::default();
    let told = |row: &&Row| verbose || matches!(row.verdict, Verdict::Fail | Verdict::Open | Verdict::Deviates);
    // What fails comes first, where not everything is taken.
    let (fail, other): (Vec<&Row>, Vec<&Row>) =
        report.results.iter().filter(told).partition(|row| row.verdict == Verdict::Fail);
    for row in fail.into_iter().chain(other) {
        let contract = scope.sources.iter().find(|source| source.options == row.options);
        if row.failures.is_empty() {
            let symbol = row.trampoline.as_str();
            results.push(result(row, &row.reason, &mut same, at(logical(symbol), contract, row), ""));
        }
        for (i, failure) in row.failures.iter().enumerate() {
            let place = place(failure);
            let mut location = at(logical(place), contract, row);
            let mut related = None;
            if let Some(source) = generated(row, place) {
                location.physical_location = Some(physical(source, place, &mut artifacts));
            } else if let Some(source) = disassembled(row, i, failure) {
                let about = sarif::Message::builder().text(source.about.as_str()).build();
                let physical = physical(source, place, &mut artifacts);
                related = Some(sarif::Location::builder().id(1).physical_location(physical).message(about).build());
            }
            let text: Vec<String> = explain(failure).collect();
            let mut result = result(row, &text.join("\n"), &mut same, location, &failure.place_id);
            result.related_locations = related.map(|location| vec![location]);
            if let Some(properties) = &mut result.properties {
                properties.additional_properties.insert("place".to_owned(), json!(failure.place_id));
            }
            results.push(result);
        }
    }
    let facts = [
        ("seed", json!(report.seed)),
        ("engine", json!(report.engine)),
        ("scenarios", json!(report.scenarios)),
        ("summary", json!(report.summary)),
    ];
    log(Clause::ALL.map(clause_rule).to_vec(), results, artifacts, facts)
}

/// What `gen` writes for a trampoline, if `row` is of generated ones.
fn generated(row: &Row, place: &str) -> Option<Source> {
    let (symbol, offset) = place.split_once("+0x")?;
    let backend = crate::backend(&row.arch).ok()?;
    let (profile, settings) = settings::of_options(&row.options).ok()?;
    let target = settings::target(backend, profile.convention(&row.arch).ok()?, &settings).ok()?;
    let trampolines = suite::trampolines(&target).ok()?;
    let spec = suite::specs(&trampolines).into_iter().find(|s| s.name == symbol)?;
    let listing = backend.text(&spec, &target).ok()?;
    let text = templates::asm(std::slice::from_ref(&listing), &target, target.facts.name).ok()?;
    let line = templates::line_of(&text, &listing, &target, usize::from_str_radix(offset, 16).ok()?)?;
    let path = vec![row.arch.clone(), row.options.clone(), format!("{symbol}.S")];
    Some(Source { path, about: suite::command(backend, &spec, &target), text, line })
}

/// The lines around an instruction, for the `i`th failure of `row`.
fn disassembled(row: &Row, i: usize, failure: &Failure) -> Option<Source> {
    let line = failure.context.iter().position(|l| l.starts_with("=>"))? + 1;
    let file = format!("{}.{}.txt", row.clause, i + 1);
    let path = vec![row.arch.clone(), row.trampoline.clone(), row.options.clone(), file];
    let about = format!("disassembly around {}", place(failure));
    Some(Source { path, about, text: failure.context.join("\n") + "\n", line })
}

fn clause_rule(clause: Clause) -> sarif::ReportingDescriptor {
    rule(clause.name(), clause.about(), &format!("`tramptool explain {}` has more.", clause.name()))
}

/// One result. `same` counts those that fail alike.
fn result(row: &Row, text: &str, same: &mut Fingerprints, location: sarif::Location, place_id: &str) -> sarif::Result {
    // Only what failed has a level of severity.
    let (kind, level) = match row.verdict {
        Verdict::Pass => (sarif::ResultKind::Pass, sarif::ResultLevel::None),
        Verdict::Fail => (sarif::ResultKind::Fail, sarif::ResultLevel::Error),
        Verdict::Deviates => (sarif::ResultKind::Fail, sarif::ResultLevel::Warning),
        Verdict::Skip => (sarif::ResultKind::Open, sarif::ResultLevel::None),
        // Platforms show what fails, and a run with it is no success.
        Verdict::Open => (sarif::ResultKind::Fail, sarif::ResultLevel::Error),
    };
    let name = format!("{} {} {} {} {place_id}", row.clause, row.arch, row.trampoline, row.options);
    let mut result = sarif::Result::builder()
        .rule_id(row.clause.name())
        .rule_index(row.clause as i64)
        .kind(kind)
        .level(level)
        .message(sarif::Message::builder().text(message(row, text)).build())
        .locations(vec![location])
        .partial_fingerprints(same.of(&name))
        .properties(properties([
            ("arch", json!(row.arch)),
            ("trampoline", json!(row.trampoline)),
            ("options", json!(row.options)),
        ]))
        .build();
    if row.verdict == Verdict::Deviates {
        result.suppressions = Some(vec![accepted(&row.reason)]);
    }
    result
}

/// A message must say something, also for a row that passes without a word.
fn message(row: &Row, text: &str) -> String {
    let text = if text.is_empty() { row.clause.about() } else { text };
    format!("{} of {} {}: {text}", row.clause, row.arch, row.trampoline)
}

/// Where to look: symbol+offset.
fn place(failure: &Failure) -> &str {
    failure.last_writer.split_once(": ").map_or(&failure.at, |(at, _)| at)
}

/// A place in code, in the file where a person looks first.
fn at(place: sarif::LogicalLocation, contract: Option<&ContractFile>, row: &Row) -> sarif::Location {
    let (uri, line) = match contract {
        Some(ContractFile { file, lines, .. }) => (relative(file), lines.get(&row.trampoline).copied().unwrap_or(1)),
        None => (parts(&path_of(row)), 1),
    };
    sarif::Location::builder().logical_locations(vec![place]).physical_location(line_of(uri, line)).build()
}

/// The text of a generated trampoline, one part a level.
fn path_of(row: &Row) -> Vec<String> {
    vec![row.arch.clone(), row.options.clone(), format!("{}.S", row.trampoline)]
}
