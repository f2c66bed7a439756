//! What every SARIF report is made of: places in files, fingerprints, the files that it brings along.

use std::collections::{BTreeMap, HashMap};
use std::path::{Component, Path};

use serde_json::{Value, json};
use serde_sarif::sarif;

/// What GitHub takes in one run; of these it shows the first 5,000, by severity.
const MOST: usize = 25_000;

/// A report of one run: rules, results of which not everything may be taken, and what is known of the run.
pub fn log<const N: usize>(
    rules: Vec<sarif::ReportingDescriptor>,
    mut results: Vec<sarif::Result>,
    artifacts: Artifacts,
    facts: [(&str, Value); N],
) -> sarif::Sarif {
    let mut facts = properties(facts);
    let left_out = results.len().saturating_sub(MOST);
    results.truncate(MOST);
    if left_out > 0 {
        facts.additional_properties.insert("leftOut".to_owned(), json!(left_out));
    }
    let driver =
        sarif::ToolComponent::builder().name("tramptool").version(env!("CARGO_PKG_VERSION")).rules(rules).build();
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

/// A rule: what it is about, and where there is more.
pub fn rule(id: &str, about: &str, help: &str) -> sarif::ReportingDescriptor {
    let text = |text: &str| sarif::MultiformatMessageString::builder().text(text).build();
    sarif::ReportingDescriptor::builder()
        .id(id)
        .short_description(text(about))
        .full_description(text(&format!("{id}: {about}")))
        .help(text(help))
        .build()
}

/// Fingerprints of the results of a run: the same for the same fault in every run, whatever the values were, and another for each
/// result. Faults that are alike are numbered, as GitHub numbers lines that are alike.
#[derive(Default)]
pub struct Fingerprints(HashMap<u64, u32>);

impl Fingerprints {
    /// Of a fault, by its name.
    pub fn of(&mut self, name: &str) -> BTreeMap<String, String> {
        // FNV-1a.
        let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, step);
        let number = self.0.entry(hash).or_insert(0);
        *number += 1;
        BTreeMap::from([("primaryLocationLineHash".to_owned(), format!("{hash:016x}:{number}"))])
    }
}

/// A line of a file that the report does not bring along.
pub fn line_of(uri: String, line: usize) -> sarif::PhysicalLocation {
    let artifact = sarif::ArtifactLocation::builder().uri(uri).build();
    sarif::PhysicalLocation::builder().artifact_location(artifact).region(region(line, "")).build()
}

/// What is suppressed, for this reason.
pub fn accepted(reason: &str) -> sarif::Suppression {
    sarif::Suppression::builder().kind(json!("external")).status(json!("accepted")).justification(reason).build()
}

/// Where an instruction is to be seen.
pub struct Source {
    /// Says what the text is of, one part a level.
    pub path: Vec<String>,
    /// What it is the text of.
    pub about: String,
    /// The text.
    pub text: String,
    /// From 1.
    pub line: usize,
}

/// A whole line.
fn region(line: usize, text: &str) -> sarif::Region {
    let (line, end) = (line as i64, text.chars().count().max(1) as i64 + 1);
    sarif::Region::builder().start_line(line).start_column(1).end_line(line).end_column(end).build()
}

/// A file below the current directory, which is where repositories are checked; any other as a whole URI.
pub fn relative(file: &str) -> String {
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

/// A relative URI, of its parts.
pub fn parts(path: &[String]) -> String {
    path.iter().map(|part| encode(&part.replace(' ', ","))).collect::<Vec<_>>().join("/")
}

/// A function, by a place in it: symbol+offset.
pub fn logical(place: &str) -> sarif::LogicalLocation {
    let symbol = place.split_once('+').map_or(place, |(symbol, _)| symbol);
    sarif::LogicalLocation::builder().name(symbol).fully_qualified_name(place).kind("function").build()
}

/// The files of a run that have their contents in the report.
#[derive(Default)]
pub struct Artifacts {
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
pub fn physical(source: Source, place: &str, artifacts: &mut Artifacts) -> sarif::PhysicalLocation {
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

/// What a report says beyond the standard.
pub fn properties<const N: usize>(values: [(&str, serde_json::Value); N]) -> sarif::PropertyBag {
    let values = values.map(|(name, value)| (name.to_owned(), value));
    sarif::PropertyBag::builder().additional_properties(BTreeMap::from(values)).build()
}
