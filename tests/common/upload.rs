//! What GitHub's documentation asks of a SARIF file that is uploaded, as a list of rules:
//! "SARIF support for code scanning" (docs.github.com/en/code-security/code-scanning/integrating-with-code-scanning/
//! sarif-support-for-code-scanning) for the properties, and "SARIF results exceed one or more limits" (docs.github.com/en/
//! code-security/code-scanning/troubleshooting-sarif-uploads/results-exceed-limit) for the numbers, as they were in 2024.

use std::collections::HashSet;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

type Holds = fn(&Value) -> bool;

/// Of the file.
const OF_FILE: [(&str, Holds); 4] = [
    ("$schema and version are those of 2.1.0", |file| {
        file["version"] == "2.1.0" && file["$schema"].as_str().is_some_and(|s| s.contains("sarif-2.1.0"))
    }),
    ("1 to 20 runs", |file| (1..=20).contains(&list(&file["runs"]).len())),
    ("up to 10 MB, compressed by gzip", |file| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(file.to_string().as_bytes()).unwrap();
        gzip.finish().unwrap().len() <= 10_000_000
    }),
    ("no result has the fingerprint of another", |file| {
        let mut seen = HashSet::new();
        let results = list(&file["runs"]).iter().flat_map(|run| list(&run["results"]));
        let id = |r: &Value| format!("{} {}", r["ruleId"], r["partialFingerprints"]["primaryLocationLineHash"]);
        results.map(id).all(|id| seen.insert(id))
    }),
];

/// Of each run.
const OF_RUN: [(&str, Holds); 5] = [
    ("the tool has a name", |run| says(&run["tool"]["driver"]["name"])),
    ("up to 25,000 results, in a list", |run| run["results"].is_array() && list(&run["results"]).len() <= 25_000),
    ("up to 25,000 rules, in a list", |run| {
        run["tool"]["driver"]["rules"].is_array() && list(&run["tool"]["driver"]["rules"]).len() <= 25_000
    }),
    ("up to 100 extensions", |run| list(&run["tool"]["extensions"]).len() <= 100),
    ("rules have ids of their own, and each result has one of them", |run| {
        let rules = list(&run["tool"]["driver"]["rules"]);
        let ids: HashSet<&str> = rules.iter().filter_map(|rule| rule["id"].as_str()).collect();
        let known = |result: &Value| {
            let index = result["ruleIndex"].as_u64().map(|i| rules.get(i as usize).map(|rule| rule["id"].clone()));
            result["ruleId"].as_str().is_some_and(|id| ids.contains(id))
                && index.is_none_or(|id| id.as_ref() == Some(&result["ruleId"]))
        };
        ids.len() == rules.len() && list(&run["results"]).iter().all(known)
    }),
];

/// Of each rule.
const OF_RULE: [(&str, Holds); 4] = [
    ("a name has up to 255 characters", |rule| rule["name"].as_str().is_none_or(|name| name.len() <= 255)),
    ("descriptions say something, in up to 1024 characters", |rule| {
        ["shortDescription", "fullDescription"].iter().all(|key| {
            says(&rule[key]["text"]) && rule[key]["text"].as_str().is_some_and(|t| t.chars().count() <= 1024)
        })
    }),
    ("the help says something", |rule| says(&rule["help"]["text"])),
    ("up to 20 tags", |rule| list(&rule["properties"]["tags"]).len() <= 20),
];

/// Of each result.
const OF_RESULT: [(&str, Holds); 7] = [
    ("the message says something", |result| says(&result["message"]["text"])),
    ("a level of the standard", |result| {
        result["level"].as_str().is_none_or(|level| ["none", "note", "warning", "error"].contains(&level))
    }),
    ("1 to 1,000 locations, and as many related ones", |result| {
        (1..=1000).contains(&list(&result["locations"]).len()) && list(&result["relatedLocations"]).len() <= 1000
    }),
    ("locations are physical, in a file below the repository", |result| {
        list(&result["locations"]).iter().all(|location| {
            let uri = &location["physicalLocation"]["artifactLocation"]["uri"];
            says(uri) && uri.as_str().is_some_and(|uri| !uri.starts_with('/') && !uri.contains(".."))
        })
    }),
    ("regions have lines and columns, from 1, and end behind their start", |result| {
        list(&result["locations"]).iter().all(|location| {
            let of = |key: &str| location["physicalLocation"]["region"][key].as_u64().unwrap_or(0);
            let (start, end) = ((of("startLine"), of("startColumn")), (of("endLine"), of("endColumn")));
            start.0 > 0 && start.1 > 0 && end > start
        })
    }),
    ("a fingerprint", |result| says(&result["partialFingerprints"]["primaryLocationLineHash"])),
    ("up to 10,000 steps in code flows", |result| list(&result["codeFlows"]).len() <= 10_000),
];

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn says(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.trim().is_empty())
}

/// OASIS's own schema of the format.
pub fn schema() -> jsonschema::Validator {
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    // The crate that has the types of SARIF has OASIS's own schema too.
    let metadata = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--offline",
            "--locked",
            "--filter-platform",
            "x86_64-unknown-linux-gnu",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let metadata = json(&String::from_utf8(metadata.stdout).unwrap());
    let package = metadata["packages"].as_array().unwrap().iter().find(|p| p["name"] == "serde-sarif").unwrap();
    let directory = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
    // Its pattern of a language has a bracket too many, which not every reader of regular expressions takes.
    let schema = std::fs::read_to_string(directory.join("src/schema.json")).unwrap();
    let schema = json(&schema.replace("{2}]?$", "{2}$"));
    assert_eq!(schema["title"], "Static Analysis Results Format (SARIF) Version 2.1.0 JSON Schema");
    jsonschema::validator_for(&schema).unwrap()
}

/// The rules that this file breaks.
pub fn broken_rules(file: &Value) -> Vec<&'static str> {
    let runs = list(&file["runs"]);
    let rules = || runs.iter().flat_map(|run| list(&run["tool"]["driver"]["rules"]));
    let results = || runs.iter().flat_map(|run| list(&run["results"]));
    let mut broken = Vec::new();
    broken.extend(OF_FILE.iter().filter(|(_, holds)| !holds(file)).map(|(rule, _)| *rule));
    broken.extend(OF_RUN.iter().filter(|(_, holds)| !runs.iter().all(holds)).map(|(rule, _)| *rule));
    broken.extend(OF_RULE.iter().filter(|(_, holds)| !rules().all(holds)).map(|(rule, _)| *rule));
    broken.extend(OF_RESULT.iter().filter(|(_, holds)| !results().all(holds)).map(|(rule, _)| *rule));
    broken
}

/// A file that breaks no rule, changed in one place, breaks just those that are named.
pub fn each_rule_can_be_broken(right: &Value) {
    assert_eq!(broken_rules(right), [""; 0]);
    let run = "/runs/0";
    let (rule, result) = ("/runs/0/tool/driver/rules/0", "/runs/0/results/0");
    let many = |n: usize, of: Value| Value::Array(vec![of; n]);
    let long = "x".repeat(1025);
    let first = right.pointer(result).unwrap().clone();
    let place = |key: &str| format!("{result}/locations/0/physicalLocation/{key}");
    let changes: Vec<(String, Value, &str)> = vec![
        ("/version".into(), "2.0.0".into(), OF_FILE[0].0),
        ("/runs".into(), many(0, Value::Null), OF_FILE[1].0),
        (format!("{result}/message/text"), noise(16_000_000).into(), OF_FILE[2].0),
        (format!("{run}/results"), many(2, first.clone()), OF_FILE[3].0),
        (format!("{run}/tool/driver/name"), "".into(), OF_RUN[0].0),
        (format!("{run}/results"), numbered(&first, 25_001), OF_RUN[1].0),
        (format!("{run}/tool/driver/rules"), Value::Null, OF_RUN[2].0),
        (format!("{run}/tool/driver"), with(right.pointer("/runs/0/tool/driver").unwrap(), "x", 1), OF_RUN[3].0),
        (format!("{rule}/id"), right["runs"][0]["tool"]["driver"]["rules"][1]["id"].clone(), OF_RUN[4].0),
        (rule.into(), with(right.pointer(rule).unwrap(), "name", 256), OF_RULE[0].0),
        (format!("{rule}/fullDescription/text"), long.into(), OF_RULE[1].0),
        (format!("{rule}/help/text"), " ".into(), OF_RULE[2].0),
        (rule.into(), with(right.pointer(rule).unwrap(), "properties", 21), OF_RULE[3].0),
        (format!("{result}/message/text"), "".into(), OF_RESULT[0].0),
        (format!("{result}/level"), "fatal".into(), OF_RESULT[1].0),
        (format!("{result}/locations"), many(0, Value::Null), OF_RESULT[2].0),
        (place("artifactLocation/uri"), "/etc/passwd".into(), OF_RESULT[3].0),
        (place("region/startLine"), 0.into(), OF_RESULT[4].0),
        (format!("{result}/partialFingerprints/primaryLocationLineHash"), "".into(), OF_RESULT[5].0),
        (result.into(), with(&first, "codeFlows", 10_001), OF_RESULT[6].0),
    ];
    for (at, value, rule) in changes {
        let mut wrong = right.clone();
        if at == "/runs/0/tool/driver" {
            wrong["runs"][0]["tool"]["extensions"] = many(101, "x".into());
        } else {
            *wrong.pointer_mut(&at).unwrap_or_else(|| panic!("no {at}")) = value;
        }
        assert!(broken_rules(&wrong).contains(&rule), "{at}: {rule}: {:?}", broken_rules(&wrong));
    }
}

/// Text that no compression makes smaller by much.
fn noise(bytes: usize) -> String {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b'!' + (state >> 33) as u8 % 90)
    };
    (0..bytes).map(|_| next()).collect()
}

/// The same again and again, with fingerprints of their own.
fn numbered(result: &Value, n: usize) -> Value {
    let numbered = |i: usize| {
        let mut result = result.clone();
        result["partialFingerprints"]["primaryLocationLineHash"] = format!("{i}").into();
        result
    };
    Value::Array((0..n).map(numbered).collect())
}

/// A copy with more in it.
fn with(value: &Value, key: &str, n: usize) -> Value {
    let mut value = value.clone();
    value[key] = match key {
        "name" => "x".repeat(n).into(),
        "properties" => serde_json::json!({"tags": vec!["x"; n]}),
        _ => Value::Array(vec![Value::Null; n]),
    };
    value
}
