//! SARIF 2.1.0, as code review tools read it: a rule per clause, a result per failure.

use std::collections::BTreeMap;

use emu_tests::{Clause, Failure, Report, Row, Verdict};
use serde_json::json;
use serde_sarif::sarif;

use super::rows::explain;
use crate::{settings, suite};

/// The report as SARIF. Rows that pass are left out unless `verbose`.
///
/// A failure's place is the instruction that last wrote the register, or else the one where the check was made. It lies
/// in the text that `gen` writes for a generated trampoline, and in the disassembly around it for any other; both are
/// artifacts with their contents.
pub fn document(report: &Report, verbose: bool) -> sarif::Sarif {
    let mut artifacts: Vec<sarif::Artifact> = Vec::new();
    let mut results = Vec::new();
    for row in report.results.iter().filter(|r| verbose || r.verdict != Verdict::Pass) {
        if row.failures.is_empty() {
            let symbol = row.trampoline.as_str();
            results.push(result(row, &row.reason, at(logical(symbol))));
        }
        for (i, failure) in row.failures.iter().enumerate() {
            let mut location = at(logical(place(failure)));
            if let Some(source) = generated(row, place(failure)).or_else(|| disassembled(row, i, failure)) {
                location.physical_location = Some(physical(source, place(failure), &mut artifacts));
            }
            let text: Vec<String> = explain(failure).collect();
            let mut result = result(row, &text.join("\n"), location);
            if let Some(properties) = &mut result.properties {
                properties.additional_properties.insert("place".to_owned(), json!(failure.place_id));
            }
            results.push(result);
        }
    }
    let driver = sarif::ToolComponent::builder()
        .name("tramptool")
        .version(env!("CARGO_PKG_VERSION"))
        .rules(Clause::ALL.map(rule).to_vec())
        .build();
    let run = sarif::Run::builder()
        .tool(sarif::Tool::builder().driver(driver).build())
        .artifacts(artifacts)
        .results(results)
        .properties(properties([
            ("seed", json!(report.seed)),
            ("engine", json!(report.engine)),
            ("scenarios", json!(report.scenarios)),
            ("summary", json!(report.summary)),
        ]))
        .build();
    sarif::Sarif::builder()
        .schema("https://json.schemastore.org/sarif-2.1.0.json")
        .version(json!("2.1.0"))
        .runs(vec![run])
        .build()
}

/// Where an instruction is to be seen.
struct Source {
    /// Says what the text is of, one part a level.
    path: Vec<String>,
    about: String,
    text: String,
    /// From 1.
    line: usize,
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

fn rule(clause: Clause) -> sarif::ReportingDescriptor {
    let about = sarif::MultiformatMessageString::builder().text(clause.about()).build();
    sarif::ReportingDescriptor::builder().id(clause.name()).short_description(about).build()
}

fn result(row: &Row, text: &str, location: sarif::Location) -> sarif::Result {
    // Only what failed has a level of severity.
    let (kind, level) = match row.verdict {
        Verdict::Pass => (sarif::ResultKind::Pass, sarif::ResultLevel::None),
        Verdict::Fail => (sarif::ResultKind::Fail, sarif::ResultLevel::Error),
        Verdict::Deviates => (sarif::ResultKind::Fail, sarif::ResultLevel::Warning),
        Verdict::Skip => (sarif::ResultKind::Open, sarif::ResultLevel::None),
    };
    let mut result = sarif::Result::builder()
        .rule_id(row.clause.name())
        .rule_index(row.clause as i64)
        .kind(kind)
        .level(level)
        .message(sarif::Message::builder().text(message(row, text)).build())
        .locations(vec![location])
        .properties(properties([
            ("arch", json!(row.arch)),
            ("trampoline", json!(row.trampoline)),
            ("options", json!(row.options)),
        ]))
        .build();
    if row.verdict == Verdict::Deviates {
        let accepted = sarif::Suppression::builder().kind(json!("external")).status(json!("accepted"));
        result.suppressions = Some(vec![accepted.justification(&row.reason).build()]);
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

fn at(place: sarif::LogicalLocation) -> sarif::Location {
    sarif::Location::builder().logical_locations(vec![place]).build()
}

fn logical(place: &str) -> sarif::LogicalLocation {
    let symbol = place.split_once('+').map_or(place, |(symbol, _)| symbol);
    sarif::LogicalLocation::builder().name(symbol).fully_qualified_name(place).kind("function").build()
}

/// A region of one line, whose file joins `artifacts` if it is not there.
fn physical(source: Source, place: &str, artifacts: &mut Vec<sarif::Artifact>) -> sarif::PhysicalLocation {
    let uri = source.path.iter().map(|part| encode(part)).collect::<Vec<_>>().join("/");
    let snippet = source.text.lines().nth(source.line - 1).unwrap_or_default();
    let snippet = sarif::ArtifactContent::builder().text(snippet).build();
    let region = sarif::Region::builder().start_line(source.line as i64).snippet(snippet).build();
    let is_it = |a: &sarif::Artifact| a.location.as_ref().is_some_and(|l| l.uri.as_deref() == Some(&uri));
    let index = artifacts.iter().position(is_it).unwrap_or_else(|| {
        artifacts.push(
            sarif::Artifact::builder()
                .location(sarif::ArtifactLocation::builder().uri(uri.as_str()).build())
                .description(sarif::Message::builder().text(source.about).build())
                .contents(sarif::ArtifactContent::builder().text(source.text).build())
                .source_language("assembly")
                .build(),
        );
        artifacts.len() - 1
    });
    let artifact = sarif::ArtifactLocation::builder().uri(uri).index(index as i64).build();
    let address = sarif::Address::builder().fully_qualified_name(place).kind("instruction").build();
    sarif::PhysicalLocation::builder().artifact_location(artifact).region(region).address(address).build()
}

/// A part of a relative URI: what is not plain is written as `%XX` (RFC 3986).
fn encode(part: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~=,".contains(&b);
    part.bytes()
        .map(|b| {
            if b == b' ' {
                ",".to_owned()
            } else if plain(b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}

fn properties<const N: usize>(values: [(&str, serde_json::Value); N]) -> sarif::PropertyBag {
    let values = values.map(|(name, value)| (name.to_owned(), value));
    sarif::PropertyBag::builder().additional_properties(BTreeMap::from(values)).build()
}
