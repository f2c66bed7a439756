//! SARIF 2.1.0, as code review tools read it: a rule per clause, a result per failure.

use std::collections::{BTreeMap, HashMap};
use std::path::{Component, Path};

use emu_tests::{Clause, Failure, Report, Row, Verdict};
use serde_json::json;
use serde_sarif::sarif;

use super::document::{ContractFile, Scope};
use super::rows::explain;
use crate::{settings, suite};

/// What GitHub takes in one run; of these it shows the first 5,000, by severity.
const MOST: usize = 25_000;

/// The report as SARIF. What passes and what was not checked is left out unless `verbose`.
///
/// A result's place is a line of a file. Of a generated trampoline that is the text that `gen` writes: the line of the
/// instruction that last wrote the register, or else of the one where the check was made. Of any other it is the contract,
/// where it names the trampoline; the disassembly is a related location. What a file has that nobody else has is an artifact
/// with its contents.
pub fn document(report: &Report, scope: &Scope, verbose: bool) -> sarif::Sarif {
    let mut artifacts = Artifacts::default();
    let mut results = Vec::new();
    let mut same = HashMap::new();
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
    let left_out = results.len().saturating_sub(MOST);
    results.truncate(MOST);
    let driver = sarif::ToolComponent::builder()
        .name("tramptool")
        .version(env!("CARGO_PKG_VERSION"))
        .rules(Clause::ALL.map(rule).to_vec())
        .build();
    let mut facts = properties([
        ("seed", json!(report.seed)),
        ("engine", json!(report.engine)),
        ("scenarios", json!(report.scenarios)),
        ("summary", json!(report.summary)),
    ]);
    if left_out > 0 {
        facts.additional_properties.insert("leftOut".to_owned(), json!(left_out));
    }
    let run = sarif::Run::builder()
        .tool(sarif::Tool::builder().driver(driver).build())
        .artifacts(artifacts.files)
        .results(results)
        .properties(facts)
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
    let text = |text: &str| sarif::MultiformatMessageString::builder().text(text).build();
    sarif::ReportingDescriptor::builder()
        .id(clause.name())
        .short_description(text(clause.about()))
        .full_description(text(&format!("{}: {}", clause.name(), clause.about())))
        .help(text(&format!("`tramptool explain {}` has more.", clause.name())))
        .build()
}

/// One result. `same` counts those that fail alike.
fn result(
    row: &Row,
    text: &str,
    same: &mut HashMap<u64, u32>,
    location: sarif::Location,
    place_id: &str,
) -> sarif::Result {
    // Only what failed has a level of severity.
    let (kind, level) = match row.verdict {
        Verdict::Pass => (sarif::ResultKind::Pass, sarif::ResultLevel::None),
        Verdict::Fail => (sarif::ResultKind::Fail, sarif::ResultLevel::Error),
        Verdict::Deviates => (sarif::ResultKind::Fail, sarif::ResultLevel::Warning),
        Verdict::Skip => (sarif::ResultKind::Open, sarif::ResultLevel::None),
        // Platforms show what fails, and a run with it is no success.
        Verdict::Open => (sarif::ResultKind::Fail, sarif::ResultLevel::Error),
    };
    let mut result = sarif::Result::builder()
        .rule_id(row.clause.name())
        .rule_index(row.clause as i64)
        .kind(kind)
        .level(level)
        .message(sarif::Message::builder().text(message(row, text)).build())
        .locations(vec![location])
        .partial_fingerprints(BTreeMap::from([(
            "primaryLocationLineHash".to_owned(),
            fingerprint(row, place_id, same),
        )]))
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

/// The same for the same fault in every run, whatever the values were, and another for each result of a run: faults that are
/// alike are numbered, as GitHub numbers lines that are alike.
fn fingerprint(row: &Row, place_id: &str, same: &mut HashMap<u64, u32>) -> String {
    let name = format!("{} {} {} {} {place_id}", row.clause, row.arch, row.trampoline, row.options);
    // FNV-1a.
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    let number = same.entry(hash).or_insert(0);
    *number += 1;
    format!("{hash:016x}:{number}")
}

/// A place in code, in the file where a person looks first.
fn at(place: sarif::LogicalLocation, contract: Option<&ContractFile>, row: &Row) -> sarif::Location {
    let (uri, line) = match contract {
        Some(ContractFile { file, lines, .. }) => (relative(file), lines.get(&row.trampoline).copied().unwrap_or(1)),
        None => (parts(&path_of(row)), 1),
    };
    let artifact = sarif::ArtifactLocation::builder().uri(uri).build();
    let physical = sarif::PhysicalLocation::builder().artifact_location(artifact).region(region(line, "")).build();
    sarif::Location::builder().logical_locations(vec![place]).physical_location(physical).build()
}

/// A whole line.
fn region(line: usize, text: &str) -> sarif::Region {
    let (line, end) = (line as i64, text.chars().count().max(1) as i64 + 1);
    sarif::Region::builder().start_line(line).start_column(1).end_line(line).end_column(end).build()
}

/// The text of a generated trampoline, one part a level.
fn path_of(row: &Row) -> Vec<String> {
    vec![row.arch.clone(), row.options.clone(), format!("{}.S", row.trampoline)]
}

/// A file below the current directory, which is where repositories are checked; any other as a whole URI.
fn relative(file: &str) -> String {
    let path = Path::new(file);
    let below = std::env::current_dir().ok().and_then(|here| path.strip_prefix(here).ok());
    let path = below.unwrap_or(path);
    let steps = path.components().filter_map(|step| match step {
        Component::RootDir | Component::CurDir => None,
        step => Some(encode(&step.as_os_str().to_string_lossy())),
    });
    let root = if path.is_absolute() { "file:///" } else { "" };
    format!("{root}{}", steps.collect::<Vec<_>>().join("/"))
}

fn parts(path: &[String]) -> String {
    path.iter().map(|part| encode(&part.replace(' ', ","))).collect::<Vec<_>>().join("/")
}

fn logical(place: &str) -> sarif::LogicalLocation {
    let symbol = place.split_once('+').map_or(place, |(symbol, _)| symbol);
    sarif::LogicalLocation::builder().name(symbol).fully_qualified_name(place).kind("function").build()
}

/// The files of a run that have their contents in the report.
#[derive(Default)]
struct Artifacts {
    files: Vec<sarif::Artifact>,
    /// The number of each file, by its URI.
    numbers: HashMap<String, usize>,
}

impl Artifacts {
    /// The number of a file, which is added if it is new.
    fn number(&mut self, uri: &str, about: String, text: String) -> usize {
        if let Some(number) = self.numbers.get(uri) {
            return *number;
        }
        self.files.push(
            sarif::Artifact::builder()
                .location(sarif::ArtifactLocation::builder().uri(uri).build())
                .description(sarif::Message::builder().text(about).build())
                .contents(sarif::ArtifactContent::builder().text(text).build())
                .source_language("assembly")
                .build(),
        );
        let number = self.files.len() - 1;
        self.numbers.insert(uri.to_owned(), number);
        number
    }
}

/// A region of one line, whose file joins `artifacts`.
fn physical(source: Source, place: &str, artifacts: &mut Artifacts) -> sarif::PhysicalLocation {
    let uri = parts(&source.path);
    let line = source.text.lines().nth(source.line - 1).unwrap_or_default();
    let snippet = sarif::ArtifactContent::builder().text(line).build();
    let region = sarif::Region { snippet: Some(snippet), ..region(source.line, line) };
    let index = artifacts.number(&uri, source.about, source.text);
    let artifact = sarif::ArtifactLocation::builder().uri(uri).index(index as i64).build();
    let address = sarif::Address::builder().fully_qualified_name(place).kind("instruction").build();
    sarif::PhysicalLocation::builder().artifact_location(artifact).region(region).address(address).build()
}

/// A part of a relative URI: what is not plain is written as `%XX` (RFC 3986).
fn encode(part: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~=,".contains(&b);
    part.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

fn properties<const N: usize>(values: [(&str, serde_json::Value); N]) -> sarif::PropertyBag {
    let values = values.map(|(name, value)| (name.to_owned(), value));
    sarif::PropertyBag::builder().additional_properties(BTreeMap::from(values)).build()
}
