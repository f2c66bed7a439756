//! Reports: the formats tell the same, what is saved is read again, expectations and exit codes hold.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use emu_tests::{Clause, Filter, check};
use quick_junit::TestCaseStatus;
use serde_json::Value;
use tool::report::{COLUMNS, Document, Format, Palette, Scope, Style, render};

use common::expected::{expected, tools};
use common::{Bench, CONTRACT};

#[path = "common/upload.rs"]
mod upload;

mod common;

/// A direct-call trampoline that loses rsi and keeps rdi.
const LOSES_RSI: &str = "
    .globl  my_tramp
my_tramp:
    push    %rdi
    call    direct_func
    pop     %rdi
    ret
    .size   my_tramp, . - my_tramp
";

/// What is checked in most tests: two trampolines under six sets of options, with one function.
const QUICK: [&str; 8] = [
    "check",
    "direct_1",
    "ftrace_caller",
    "--arch",
    "riscv64",
    "--profile=linux-6.12",
    "--set=abi=lp64",
    "--function=args1",
];

fn with(args: &[&'static str]) -> Vec<&'static str> {
    QUICK.iter().chain(args).copied().collect()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// An object that fails, with the arguments that check it.
fn failing(b: &Bench) -> Vec<&'static str> {
    std::fs::write(b.path("t.S"), LOSES_RSI).unwrap();
    std::fs::write(b.path("t.toml"), CONTRACT).unwrap();
    b.tool("x86_64-linux-gnu-as", &["t.S", "-o", "t.o"]);
    vec!["check", "--object", "t.o", "--contract", "t.toml"]
}

fn rows(report: &Value) -> impl Iterator<Item = &Value> {
    report["results"].as_array().unwrap().iter()
}

fn failures(report: &Value) -> impl Iterator<Item = &Value> {
    rows(report).flat_map(|r| r["failures"].as_array().into_iter().flatten())
}

fn count(report: &Value, verdict: &str) -> usize {
    rows(report).filter(|r| r["verdict"] == verdict).count()
}

/// JSON is the report; the others must tell the same verdicts, read by other programs' eyes.
#[test]
fn formats_agree() {
    let b = Bench::new();
    for (code, args) in [(0, with(&[])), (1, failing(&b))] {
        let rendered = |format| b.ends(code, &[&args[..], &["--format", format]].concat());
        let report = json(&rendered("json"));
        let [pass, fail, deviates, skip] = ["pass", "fail", "deviates", "skip"].map(|v| count(&report, v));
        assert!(pass > 0 && skip > 0 && (fail > 0) == (code == 1), "{report}");
        for (name, n) in [("pass", pass), ("fail", fail), ("deviates", deviates), ("skip", skip)] {
            assert_eq!(report["summary"][name], n, "{name}");
        }

        let ktap = rendered("ktap");
        assert!(ktap.starts_with("KTAP version 1\n1.."), "{ktap}");
        let leaves = |what: &str| ktap.lines().filter(|l| l.starts_with("    ") && l.contains(what)).count();
        assert_eq!(leaves("    not ok "), fail);
        assert_eq!(leaves(" # XFAIL "), deviates);
        assert_eq!(leaves(" # SKIP "), skip);
        assert_eq!(leaves("    ok "), pass + deviates + skip);

        let junit = quick_junit::Report::deserialize_from_str(&rendered("junit")).unwrap();
        assert_eq!((junit.tests, junit.failures, junit.errors), (pass + fail + deviates + skip, fail, 0));
        let cases = junit.test_suites.iter().flat_map(|s| &s.test_cases);
        let skipped = cases.filter(|c| matches!(c.status, TestCaseStatus::Skipped { .. })).count();
        assert_eq!(skipped, deviates + skip);

        let sarif = json(&rendered("sarif"));
        assert!(serde_json::from_value::<serde_sarif::sarif::Sarif>(sarif.clone()).is_ok());
        assert_eq!(sarif["version"], "2.1.0");
        let run = &sarif["runs"][0];
        let results = run["results"].as_array().unwrap();
        let errors: Vec<&Value> = results.iter().filter(|r| r["level"] == "error").collect();
        let failing = rows(&report).filter(|r| r["verdict"] == "fail");
        let told: usize = failing.map(|r| r["failures"].as_array().map_or(1, Vec::len)).sum();
        assert_eq!(errors.len(), told);
        for error in errors {
            // A person looks into the contract first; the disassembly's arrow points at the instruction.
            let contract = &error["locations"][0]["physicalLocation"];
            assert_eq!(contract["artifactLocation"]["uri"], "t.toml");
            let named = CONTRACT.lines().position(|line| line == "symbol = \"my_tramp\"").unwrap() as u64;
            assert_eq!(contract["region"]["startLine"], named + 1);
            let place = &error["relatedLocations"][0]["physicalLocation"];
            let artifact = &run["artifacts"][place["artifactLocation"]["index"].as_u64().unwrap() as usize];
            let line = place["region"]["startLine"].as_u64().unwrap() as usize;
            let text = artifact["contents"]["text"].as_str().unwrap();
            let words: Vec<&str> = text.lines().nth(line - 1).unwrap().split_whitespace().collect();
            let name = error["locations"][0]["logicalLocations"][0]["fullyQualifiedName"].as_str().unwrap();
            assert!(words[0] == "=>" && name == format!("my_tramp+0x{}", words[1]), "{name}: {text}");
            assert_eq!(
                run["tool"]["driver"]["rules"][error["ruleIndex"].as_u64().unwrap() as usize]["id"],
                error["ruleId"]
            );
        }
    }
}

/// What the standard's schema and GitHub's documentation of uploads ask for, of a generated trampoline and of another one.
#[test]
fn code_review_takes_the_sarif() {
    let schema = upload::schema();
    let b = Bench::new();
    let failing = failing(&b);
    let strict = with(&["--strict"]);
    for (code, args, own) in [(0, with(&[]), false), (1, strict, false), (1, failing, true)] {
        let quiet = json(&b.ends(code, &[&args[..], &["--format", "sarif"]].concat()));
        let verbose = json(&b.ends(code, &[&args[..], &["--format", "sarif", "-v"]].concat()));
        for sarif in [&quiet, &verbose] {
            assert_eq!(schema.iter_errors(sarif).map(|e| e.to_string()).collect::<Vec<_>>(), [""; 0]);
            assert_eq!(upload::broken_rules(sarif), [""; 0]);
            for result in sarif["runs"][0]["results"].as_array().unwrap() {
                let uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].as_str().unwrap();
                assert!(
                    if own { uri == "t.toml" } else { uri.starts_with("riscv64/") && uri.ends_with(".S") },
                    "{uri}"
                );
            }
        }
        let kinds = |sarif: &Value, kind: &str| {
            sarif["runs"][0]["results"].as_array().unwrap().iter().filter(|r| r["kind"] == kind).count()
        };
        assert!(kinds(&quiet, "fail") > 0 && kinds(&quiet, "open") + kinds(&quiet, "pass") == 0);
        assert!(kinds(&verbose, "pass") > 0 && kinds(&verbose, "fail") == kinds(&quiet, "fail"));
    }
    let right = json(&b.ok(&with(&["--format", "sarif"])));
    let mut wrong = right.clone();
    wrong["runs"][0]["results"][0]["level"] = "fatal".into();
    assert!(!schema.is_valid(&wrong));
    upload::each_rule_can_be_broken(&right);
}

/// More failures than an upload may have: the first are there, and how many are not.
#[test]
fn an_upload_has_no_more_than_is_taken() {
    let b = Bench::new();
    let mut report = json(&b.ends(1, &[failing(&b), vec!["--format", "json"]].concat()));
    let failed = report["results"].as_array_mut().unwrap().iter_mut().find(|row| row["verdict"] == "fail").unwrap();
    let failures = failed["failures"].as_array().unwrap();
    let many: Vec<Value> = failures.iter().cycle().take(25_001).cloned().collect();
    failed["failures"] = many.into();
    let all: usize = rows(&report).filter_map(|row| row["failures"].as_array()).map(Vec::len).sum();
    std::fs::write(b.path("many.json"), report.to_string()).unwrap();
    let sarif = json(&b.ends(1, &["report", "write", "many.json", "--format", "sarif"]));
    assert_eq!(upload::broken_rules(&sarif), [""; 0]);
    let run = &sarif["runs"][0];
    assert_eq!(run["results"].as_array().unwrap().len(), 25_000);
    assert!(run["properties"]["leftOut"].as_u64().unwrap() >= all as u64 - 25_000);
}

/// The region of a failure of a generated trampoline is the line of the `.S` that `gen` writes on which GNU as puts the
/// instruction.
#[test]
fn a_failure_in_generated_text_is_on_its_line() {
    let b = Bench::new();
    let mut seen = 0;
    for &backend in tool::BACKENDS {
        let (set, prefix) = (expected(backend).report.set, tools(backend).trim_end_matches('-'));
        let set = (set.0.as_str(), set.1.as_str());
        let target = tool::settings::target(backend, tool::convention(backend).unwrap(), &[set]).unwrap();
        let mut suite = tool::suite::suite(backend, &target).unwrap();
        // More than they promise, so that there are failures.
        for contract in &mut suite.contracts {
            contract.kept = backend.facts().abi.caller_saved;
            contract.stack_align = 64;
        }
        let report =
            check(&[suite], &Filter { function: Some("args1".to_owned()), ..Filter::default() }, 1, &|_, _| {});
        let scope = Scope { suites: Vec::new(), sources: Vec::new() };
        let style = Style { palette: Palette { colour: false }, width: COLUMNS, verbose: false };
        let sarif = render(&Document { report: report.unwrap(), scope }, Format::Sarif, style).unwrap();
        let run = &json(&sarif)["runs"][0];
        let artifacts = run["artifacts"].as_array().unwrap();
        let lines: Vec<_> = artifacts.iter().map(|a| lines_by_offset(&b, prefix, a)).collect();
        for artifact in artifacts {
            let command = artifact["description"]["text"].as_str().unwrap();
            // What is between quotes is one word.
            let parts = command.split('\'').enumerate();
            let words = parts.flat_map(|(i, p)| if i % 2 == 1 { vec![p] } else { p.split_whitespace().collect() });
            let words: Vec<&str> = words.skip(1).collect();
            assert!(command.contains(&format!("--set {}={}", set.0, set.1)), "{command}");
            // Where SP is aligned to 8 bytes, `gen` refuses functions with floating point.
            if command.contains("double") && target.stack_align < 16 {
                continue;
            }
            assert_eq!(b.ok(&words), artifact["contents"]["text"].as_str().unwrap(), "{command}");
        }
        for location in run["results"].as_array().unwrap().iter().map(|r| &r["locations"][0]) {
            let place = &location["physicalLocation"];
            let Some(index) = place["artifactLocation"]["index"].as_u64() else { continue };
            let line = place["region"]["startLine"].as_u64().unwrap();
            let name = location["logicalLocations"][0]["fullyQualifiedName"].as_str().unwrap();
            let (symbol, offset) = name.split_once("+0x").unwrap();
            let uri = artifacts[index as usize]["location"]["uri"].as_str().unwrap();
            assert!(uri.ends_with(&format!("/{symbol}.S")), "{name} in {uri}");
            let offset = u64::from_str_radix(offset, 16).unwrap();
            // Two instructions can be one line: auipc and jalr are `call`.
            let (_, expected) = lines[index as usize].range(..=offset).next_back().unwrap();
            assert_eq!(line, *expected, "{name} in {uri}");
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
}

/// The lines of an artifact by the offset from its symbol where GNU as puts them, as its own listing says.
fn lines_by_offset(b: &Bench, prefix: &str, artifact: &Value) -> BTreeMap<u64, u64> {
    let text = artifact["contents"]["text"].as_str().unwrap();
    let uri = artifact["location"]["uri"].as_str().unwrap();
    let symbol = uri.rsplit('/').next().unwrap().strip_suffix(".S").unwrap();
    // An instruction may stand before the symbol.
    let label = 1 + text.lines().position(|l| l == format!("{symbol}:")).unwrap() as u64;
    std::fs::write(b.path("a.S"), text).unwrap();
    let listing = b.tool(&format!("{prefix}-as"), &["-aln", "a.S", "-o", "a.o"]);
    let numbers = listing.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let number: u64 = words.next()?.parse().ok()?;
        // A line that goes on with more bytes has no offset.
        let offset = words.next().filter(|w| w.len() == 4)?;
        Some((u64::from_str_radix(offset, 16).ok()?, number))
    });
    // Other sections are behind the code.
    let end = text.lines().position(|l| l.trim_start().starts_with(".section")).map_or(u64::MAX, |l| l as u64);
    let inside: Vec<(u64, u64)> = numbers.filter(|(_, number)| (label..end).contains(number)).collect();
    let start = inside.iter().map(|(offset, _)| *offset).min().unwrap();
    inside.into_iter().map(|(offset, number)| (offset - start, number)).collect()
}

#[test]
fn the_schemas_describe_what_is_written_and_read() {
    let b = Bench::new();
    let validator = |of| jsonschema::validator_for(&json(&b.ok(&["report", "schema", of]))).unwrap();
    let report = validator("report");
    for (code, args) in [(0, with(&["--format", "json"])), (1, [failing(&b), vec!["--format", "json"]].concat())] {
        let mut value = json(&b.ends(code, &args));
        assert_eq!(report.iter_errors(&value).map(|e| e.to_string()).collect::<Vec<_>>(), [""; 0]);
        value["results"][0]["verdict"] = "perhaps".into();
        assert!(!report.is_valid(&value));
    }
    let mut value = json(&b.ok(&["mutate", "bug:F1", "--format", "json"]));
    let mutants = validator("mutants");
    assert_eq!(mutants.iter_errors(&value).map(|e| e.to_string()).collect::<Vec<_>>(), [""; 0]);
    value["results"][0]["outcome"] = "perhaps".into();
    assert!(!mutants.is_valid(&value) && !report.is_valid(&value));
    let contract = validator("contract");
    for (name, text) in tool::contracts::CONTRACTS.iter().copied().chain([("t.toml", CONTRACT)]) {
        let table: toml::Table = text.parse().unwrap();
        let mut value = serde_json::to_value(table).unwrap();
        assert_eq!(contract.iter_errors(&value).map(|e| e.to_string()).collect::<Vec<_>>(), [""; 0], "{name}");
        value["trampoline"][0]["kind"] = "detour".into();
        assert!(!contract.is_valid(&value), "{name}");
    }
}

#[test]
fn what_is_saved_is_read_again() {
    let b = Bench::new();
    let whole = b.ok(&[&QUICK[..], &["--format", "json"]].concat());
    std::fs::write(b.path("whole.json"), &whole).unwrap();
    assert_eq!(b.ok(&["report", "write", "whole.json", "--format", "json"]), whole);
    assert_eq!(b.ok(&["report", "write", "whole.json"]), b.ok(&QUICK));
    std::fs::write(b.path("old.json"), "{\"version\": 0}").unwrap();
    b.refuses(&["report", "write", "old.json"], &["old.json", "version 0", "valid: 1"]);
    std::fs::write(b.path("torn.json"), &whole[..whole.len() / 2]).unwrap();
    b.refuses(&["report", "write", "torn.json"], &["torn.json", "line"]);
}

/// Code, page and sums come from counts that others may have written.
#[test]
fn counts_that_cannot_be_are_refused_or_told() {
    let b = Bench::new();
    let mut report = json(&b.ok(&[&QUICK[..], &["--format", "json"]].concat()));
    let save = |report: &Value| std::fs::write(b.path("run.json"), report.to_string()).unwrap();
    for n in 0..3 {
        report["results"][n]["checks"] = u64::MAX.into();
    }
    save(&report);
    b.ok(&["report", "write", "run.json"]);
    b.ok(&["report", "html", "run.json", "-o", "run.html"]);
    assert!(std::fs::read_to_string(b.path("run.html")).unwrap().contains(&u64::MAX.to_string()));
    for count in [0, u64::MAX] {
        report["summary"]["pass"] = count.into();
        report["summary"]["deviates"] = count.into();
        save(&report);
        let uneven = ["run.json: its counts are not those of its \"results\"", "check"];
        b.refuses(&["report", "write", "run.json"], &uneven);
        b.refuses(&["report", "html", "run.json", "-o", "run.html"], &uneven);
    }
}

/// What others named can have any characters, and a terminal obeys some.
#[test]
fn a_terminal_has_nothing_to_obey() {
    let b = Bench::new();
    let name = "t\u{1b}[2J\u{202e}\u{61c}\u{fffe}\u{ffff}";
    std::fs::write(b.path("t.S"), LOSES_RSI.replace("my_tramp", &format!("\"{name}\""))).unwrap();
    let reason =
        "[[trampoline.deviation]]\nclause = \"P1\"\nplace = \"rsi\"\nreason = \"\\u001b]0;title\\u0007\\nok\"\n";
    let contract = CONTRACT.replace("my_tramp", "t\\u001b[2J\\u202e\\u061c\\ufffe\\uffff");
    std::fs::write(b.path("t.toml"), format!("{contract}\n{reason}")).unwrap();
    b.tool("x86_64-linux-gnu-as", &["t.S", "-o", "t.o"]);
    let check = ["check", "--object", "t.o", "--contract", "t.toml", "--function", "args2", "-v", "--format"];
    for format in ["human", "ktap", "junit", "sarif", "html"] {
        let text = b.ok(&[&check[..], &[format]].concat());
        let obeyed =
            |c: &char| (c.is_control() && *c != '\n') || ['\u{202e}', '\u{61c}', '\u{fffe}', '\u{ffff}'].contains(c);
        assert_eq!(text.chars().find(obeyed), None, "{format}: {text}");
        assert!(text.contains("u{1b}[2J") && !text.lines().any(|line| line == "ok"), "{format}: {text}");
    }
    // Of mutants, what never runs is named.
    let keeps = "push %rsi\n push %rdi\n call direct_func\n pop %rdi\n pop %rsi\n ret\n ud2";
    let keeps = format!(".globl \"{name}\"\n\"{name}\":\n {keeps}\n.size \"{name}\", . - \"{name}\"\n");
    std::fs::write(b.path("m.S"), keeps).unwrap();
    std::fs::write(b.path("m.toml"), contract).unwrap();
    b.tool("x86_64-linux-gnu-as", &["m.S", "-o", "m.o"]);
    let mutants = b.run(&["mutate", "--object", "m.o", "--contract", "m.toml", "--sample", "1"]);
    let mutants = String::from_utf8(mutants.stdout).unwrap();
    assert!(
        mutants.contains("never executed") && mutants.contains("u{1b}[2J") && !mutants.contains('\x1b'),
        "{mutants}"
    );
    // It is for programs, which need the name itself.
    let text = b.ok(&[&check[..], &["json"]].concat());
    assert!(!text.contains('\u{202e}'), "{text}");
    assert!(rows(&json(&text)).all(|row| row["trampoline"] == name));
    let err = b.run(&["check", "\u{202e}\u{61c}"]).stderr;
    assert!(String::from_utf8(err).unwrap().contains("unknown trampoline '\\u202e\\u061c'"));
}

#[test]
fn what_is_expected_to_fail_does_not_fail_the_run() {
    let b = Bench::new();
    let args = failing(&b);
    let report = json(&b.ends(1, &[&args[..], &["--format", "json"]].concat()));
    let failing = rows(&report).filter(|r| r["verdict"] == "fail").map(|r| r["clause"].as_str().unwrap());
    let failing: Vec<&str> = failing.collect();
    assert!(failing.contains(&"P1"), "{failing:?}");
    let entry = |clause: &str, more: &str| {
        format!("[[expect]]\nclause = \"{clause}\"\nverdict = \"fail\"\nreason = \"known\"\n{more}")
    };
    let expect = |text: String| std::fs::write(b.path("known.toml"), text).unwrap();
    let known = [&args[..], &["--expect", "known.toml"]].concat();
    expect(failing.iter().map(|c| entry(c, "trampoline = \"my_*\"\n")).collect());
    assert!(b.ok(&known).contains("known (expected in known.toml:1)"));
    // Of another trampoline.
    expect(failing.iter().map(|c| entry(c, "trampoline = \"your_*\"\n")).collect());
    b.ends(1, &known);
    // One that does not fail.
    expect(failing.iter().map(|c| entry(c, "")).chain([entry("P8", "")]).collect());
    let one_line = b.ends(1, &known).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(one_line.contains("is expected to fail: known.toml:"));
    // At places: all of them, and no others.
    let others = |place: &str| {
        let rest = failing.iter().filter(|c| **c != "P1").map(|c| entry(c, ""));
        expect(rest.chain([entry("P1", place)]).collect());
    };
    let id = failures(&report).find(|f| f["clause"] == "P1").unwrap()["place_id"].as_str().unwrap();
    assert_eq!(id, "rsi");
    others("place = \"rs?\"\n");
    assert!(b.ok(&known).contains("known (expected in known.toml:"));
    others("place = \"rsi@*\"\n");
    b.ok(&known);
    others("place = \"rdx\"\n");
    assert!(b.ends(1, &known).contains("nothing fails at rdx: known.toml:"));
    expect(failing.iter().map(|c| entry(c, "")).collect::<String>() + &entry("P1", "place = \"rsi\"\n"));
    b.ok(&known);
    let text = "[[expect]]\nclause = \"P1\"\nverdict = \"deviates\"\nreason = \"known\"\nplace = \"rsi\"";
    expect(text.to_owned());
    b.refuses(&known, &["known.toml", ":1:", "a place with verdict"]);
    for (text, line) in [
        ("[[expect]]\nclause = \"P99\"", ":2:"),
        ("\n[[expect]]\nclause = \"P1\"\nverdict = \"fail\"\nreason = \"\"", ":2:"),
        ("a = 1", ":1:"),
    ] {
        expect(text.to_owned());
        b.refuses(&known, &["known.toml", line, "valid: "]);
    }
}

#[test]
fn exit_codes() {
    let b = Bench::new();
    let kselftest = |more| with(more).into_iter().chain(["--kselftest"]).collect::<Vec<_>>();
    b.ok(&kselftest(&[]));
    b.ends(1, &[failing(&b), vec!["--kselftest"]].concat());
    assert_eq!(b.run(&["check", "--expect", "missing.toml", "--kselftest"]).status.code(), Some(1));
    // A skip is no pass.
    let strict = b.ends(1, &with(&["--strict"])).replace("\n  ", " ");
    assert!(strict.contains("which --strict refuses: runs before the function"), "{strict}");
    let verbose = b.ok(&with(&["-v"]));
    assert!(verbose.contains("\n  ok P1") && verbose.contains("   - P3"), "{verbose}");
    // What cannot be written is known before the run.
    b.refuses(&with(&["-o", "no/such/place.json"]), &["no/such/place.json"]);
}

#[test]
fn every_property_has_its_page() {
    let b = Bench::new();
    let list = b.ok(&["check", "--list-clauses"]);
    let mut names: Vec<String> = (1..=28).map(|n| format!("P{n}")).chain(["coverage".to_owned()]).collect();
    names.insert(2, "P2-wide".to_owned());
    assert_eq!(list.lines().map(|l| l.split(' ').next().unwrap()).collect::<Vec<_>>(), names);
    for name in &names {
        let page = b.ok(&["explain", &name.to_lowercase()]);
        let checked = Clause::ALL.iter().find(|c| c.name() == name);
        let decided = if checked.is_some() { "\nHow it is decided\n" } else { "\nNot checked" };
        for part in ["\nWhat it means\n", "\nWhy it matters\n", decided] {
            assert!(page.contains(part), "{name}: no {part:?}");
        }
        assert!(checked.is_none_or(|c| page.starts_with(&format!("{name}: {}\n", c.about()))), "{page}");
        assert!(page.lines().all(|l| l.chars().count() <= 100), "{page}");
    }
    assert!(b.ok(&["explain", "P9"]).contains("  bug:F1 (P9, arm64 ftrace_stub_direct_tramp): the stub went back"));
    assert!(!b.ok(&["explain", "coverage"]).contains("bug:"));
    b.refuses(&["explain", "P29"], &["unknown clause 'P29'", "P1, P2", "coverage"]);
}

/// A failing run prints the command that runs exactly the failing case again, and that command fails in the same way.
#[test]
fn a_failure_can_be_seen_again() {
    let b = Bench::new();
    let args = failing(&b);
    let report = json(&b.ends(1, &[&args[..], &["--format", "json"]].concat()));
    assert_ne!(failures(&report).count(), 0);
    for failure in failures(&report) {
        let again = json(&b.shell(1, &format!("{} --format json", failure["replay"].as_str().unwrap())));
        let same = |f: &Value| ["clause", "place", "expected", "found", "at"].iter().all(|k| f[k] == failure[k]);
        assert!(failures(&again).any(same), "{failure}: {again}");
        assert_eq!(again["scenarios"], 1);
    }
}

/// The kernel's own reader of KTAP must see the same numbers.
#[test]
#[ignore = "needs the kernel's source: cargo xtask kernel-objects"]
fn the_kernels_tool_reads_our_ktap() {
    let cache = kernel_cache::directory().unwrap();
    let kunit: &Path = &cache.join("linux-source-6.12/tools/testing/kunit/kunit.py");
    let b = Bench::new();
    for (code, args) in [(0, with(&[])), (1, failing(&b))] {
        let summary = &json(&b.ends(code, &[&args[..], &["--format", "json"]].concat()))["summary"];
        b.ends(code, &[&args[..], &["--format", "ktap", "-o", "report.ktap"]].concat());
        let out = Command::new("python3").arg(kunit).arg("parse").arg(b.path("report.ktap")).output();
        let said = String::from_utf8(out.unwrap().stdout).unwrap();
        let last = said.lines().last().unwrap_or_default();
        let n = |name: &str| summary[name].as_u64().unwrap();
        let total = format!(
            "Ran {} tests: passed: {}",
            n("pass") + n("fail") + n("deviates") + n("skip"),
            n("pass") + n("deviates")
        );
        assert!(last.contains(&total) && last.ends_with(&format!("skipped: {}", n("skip"))), "{said}");
        assert_eq!(last.contains(&format!("failed: {}", n("fail"))), code == 1, "{said}");
        assert!(!said.contains("[ERROR]"), "{said}");
    }
}
