//! SARIF 2.1.0, as code review tools read it: a rule per clause, a result per failure.

use std::collections::BTreeMap;

use emu_tests::{Clause, Failure, Report, Row, Verdict};
use serde_json::json;
use serde_sarif::sarif;

use super::explain;

/// The report as SARIF. Rows that pass are left out unless `verbose`.
///
/// A failure's place is the instruction that last wrote the register, or else the one where the check was made. The
/// disassembly around it is an artifact of its own, with its contents: a trampoline need not have a source.
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
            if let Some(line) = failure.context.iter().position(|l| l.starts_with("=>")) {
                let options = row.options.replace(' ', ",");
                let uri = format!("{}/{}/{options}/{}.{}.txt", row.arch, row.trampoline, row.clause, i + 1);
                location.physical_location = Some(physical(&uri, artifacts.len(), line, failure));
                artifacts.push(disassembly(uri, failure));
            }
            let text: Vec<String> = explain(failure).collect();
            results.push(result(row, &text.join("\n"), location));
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

fn physical(uri: &str, index: usize, line: usize, failure: &Failure) -> sarif::PhysicalLocation {
    let artifact = sarif::ArtifactLocation::builder().uri(uri).index(index as i64).build();
    let text = sarif::ArtifactContent::builder().text(failure.context[line].as_str()).build();
    let region = sarif::Region::builder().start_line(line as i64 + 1).snippet(text).build();
    let address = sarif::Address::builder().fully_qualified_name(place(failure)).kind("instruction").build();
    sarif::PhysicalLocation::builder().artifact_location(artifact).region(region).address(address).build()
}

fn disassembly(uri: String, failure: &Failure) -> sarif::Artifact {
    let text = failure.context.join("\n") + "\n";
    sarif::Artifact::builder()
        .location(sarif::ArtifactLocation::builder().uri(uri).build())
        .contents(sarif::ArtifactContent::builder().text(text).build())
        .source_language("assembly")
        .build()
}

fn properties<const N: usize>(values: [(&str, serde_json::Value); N]) -> sarif::PropertyBag {
    let values = values.map(|(name, value)| (name.to_owned(), value));
    sarif::PropertyBag::builder().additional_properties(BTreeMap::from(values)).build()
}
