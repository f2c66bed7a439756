//! The checker is checked: every fault is noticed, every bug of the corpus by its property.

use std::process::Command;

use serde_json::Value;

use common::Bench;

mod common;

/// All mutants of all trampolines: none survives, what is called equivalent is needed, and the README has the figures.
#[test]
fn every_mutant_is_killed() {
    let b = Bench::new();
    b.ok(&["mutate", "--format", "json", "-o", "mutants.json"]);
    let report: Value = serde_json::from_str(&std::fs::read_to_string(b.path("mutants.json")).unwrap()).unwrap();
    let results = report["results"].as_array().unwrap();
    assert!(results.len() > 4000 && results.iter().all(|r| r["outcome"] != "survived"));
    for known in &tramptool::mutate::table().unwrap().equivalent {
        assert!(known.reason.len() > 20, "{}: say why", known.operator);
        let needed = results.iter().any(|r| r["outcome"] == "equivalent" && r["reason"] == known.reason.as_str());
        assert!(needed, "src/mutants.toml: {} of {} is noticed, or is gone", known.operator, known.trampoline);
    }
    let (of, killed) =
        (report["mutants"].as_u64().unwrap() - report["equivalent"].as_u64().unwrap(), &report["killed"]);
    let readme = include_str!("../README.md");
    let total =
        format!("{killed} of {of} mutants killed, 100.0 %; {} more are equivalent; seed 1", report["equivalent"]);
    assert!(readme.contains(&total), "README.md lacks `tramptool mutate`: {total}");
    for score in report["scores"].as_array().unwrap() {
        let of = score["mutants"].as_u64().unwrap() - score["equivalent"].as_u64().unwrap();
        let row = readme.lines().find(|l| l.split_whitespace().next() == score["operator"].as_str());
        let cell = format!("{}/{of}", score["killed"]);
        assert!(row.is_some_and(|r| r.split_whitespace().any(|w| w == cell)), "README.md: {score}");
    }
}

#[test]
fn every_bug_is_noticed_by_its_property() {
    let b = Bench::new();
    let report: Value = serde_json::from_str(&b.ok(&["mutate", "bug:all", "--format", "json"])).unwrap();
    let results = report["results"].as_array().unwrap();
    let bugs = &tramptool::mutate::table().unwrap().bug;
    assert!(bugs.len() >= 30);
    for bug in bugs {
        let rebuilt = results.iter().filter(|r| r["bug"][0] == bug.id.as_str());
        let noticed = |r: &Value| r["clauses"].as_array().unwrap().iter().any(|c| *c == bug.property.as_str());
        assert!(rebuilt.clone().count() > 0 && rebuilt.clone().all(noticed), "{}", bug.id);
    }
    // A bug's page has what the table says, the fault as `mutate` makes it, and the command that runs it.
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let list = b.ok(&["explain", "bug:all"]);
    assert_eq!(list.lines().count(), bugs.len());
    for bug in bugs {
        assert!(list.contains(&format!("bug:{} ({}, {} ", bug.id, bug.property, bug.arch)), "{list}");
        let page = b.ok(&["explain", &format!("bug:{}", bug.id.to_lowercase())]);
        assert!(page.lines().all(|l| l.chars().count() <= 100), "{page}");
        let page = one_line(&page);
        let run = format!("How to run it tramptool mutate bug:{}", bug.id);
        for part in [&bug.about, &run, &format!("tramptool explain {}", bug.property), &bug.set.join(" ")] {
            assert!(page.contains(part.as_str()), "no {part:?} in {page}");
        }
        for result in results.iter().filter(|r| r["bug"][0] == bug.id.as_str()) {
            let diff = result["diff"].as_array().unwrap().iter().map(|l| l.as_str().unwrap());
            for line in diff.chain([result["mutant"].as_str().unwrap()]) {
                assert!(page.contains(&one_line(line)), "no {line:?} in {page}");
            }
        }
    }
    b.refuses(&["explain", "bug:Z9"], &["unknown bug 'Z9'", "A1, A4", "all"]);
    assert!(b.ok(&["mutate", "bug:f1"]).contains("noticed by their property, 1 of 1: F1"));
    b.refuses(&["mutate", "bug:Z9"], &["unknown bug 'Z9'", "A1", "all"]);
}

/// A sample covers every operator, is the same for the same seed, and shares of it make the whole.
#[test]
fn samples_and_shares() {
    let b = Bench::new();
    let run = |more: &[&str]| -> Vec<String> {
        let args = [&["mutate", "--arch", "riscv64", "--format", "json", "--sample", "1"], more].concat();
        let report: Value = serde_json::from_str(&b.ok(&args)).unwrap();
        let name = |r: &Value| format!("{} {}", r["trampoline"], r["mutant"]);
        report["results"].as_array().unwrap().iter().map(name).collect()
    };
    let whole = run(&[]);
    assert_eq!(run(&[]), whole);
    let mut shares = [run(&["--partition", "1/2"]), run(&["--partition", "2/2"])].concat();
    shares.sort();
    let mut sorted = whole.clone();
    sorted.sort();
    assert_eq!(shares, sorted);
    let all: Value =
        serde_json::from_str(&b.ok(&["mutate", "return_to_handler", "--arch", "riscv64", "--format", "json"])).unwrap();
    for score in all["scores"].as_array().unwrap() {
        let operator = score["operator"].as_str().unwrap();
        assert!(whole.iter().any(|m| m.contains(operator)), "{operator}");
    }
}

/// What partitions of a run wrote is put together to what one run writes, in both formats; what is no whole is refused.
#[test]
fn merged_shares_are_the_whole() {
    let b = Bench::new();
    let json = ["--format", "json"];
    for what in [&["return_to_handler", "direct_1", "--sample", "1"][..], &["bug:F1", "bug:c1", "bug:E1", "bug:A1"]] {
        let run = [&["mutate"], what].concat();
        for k in ["1", "2", "3"] {
            b.ok(&[&run[..], &json, &["--partition", &format!("{k}/3"), "-o", &format!("{k}.json")]].concat());
        }
        let merge = ["report", "merge", "3.json", "1.json", "2.json"];
        assert_eq!(b.ok(&[&merge[..], &json].concat()), b.ok(&[&run[..], &json].concat()));
        assert_eq!(b.ok(&merge), b.ok(&run));
    }
    let merge = ["report", "merge", "1.json", "2.json", "3.json"];
    b.refuses(&[&merge[..], &["3.json"]].concat(), &["3.json: ", " is in 3.json too"]);
    b.refuses(&merge[..4], &["no report has mutant number ", " of 5, ", "all partitions together"]);
    b.refuses(&[&merge[..], &["--format", "sarif"]].concat(), &["of `mutate`", "human or json"]);
    b.refuses(&[&merge[..], &["--strict"]].concat(), &["of `mutate`", "--strict"]);
    for (more, part) in [(["--seed", "2"], "seed 2"), (["--arch", "x86_64"], "--arch x86_64")] {
        b.ok(&[&["mutate", "bug:F1", "-o", "other.json"], &json[..], &more].concat());
        b.refuses(&["report", "merge", "1.json", "other.json"], &["other.json: ", part, "but 1.json: 5 mutants"]);
    }
    b.ok(&["check", "direct_1", "--arch=riscv64", "--function=args1", "--format=json", "-o", "check.json"]);
    b.refuses(&["report", "merge", "1.json", "check.json"], &["check.json is a report of `check`, 1.json of `mutate`"]);
    let text = std::fs::read_to_string(b.path("1.json")).unwrap();
    std::fs::write(b.path("other.json"), text.replace("\"version\": 1", "\"version\": 2")).unwrap();
    b.refuses(&["report", "merge", "other.json"], &["other.json: a report of version 2", "valid: 1"]);
    // One that survives fails the merged run too, and is told with its diff.
    let survived = text.replace("\"outcome\": \"killed\"", "\"outcome\": \"survived\"");
    std::fs::write(b.path("1.json"), survived).unwrap();
    assert!(b.ends(1, &merge).contains("  tramptool mutate bug:"));
}

#[test]
fn bad_requests_are_refused() {
    let b = Bench::new();
    b.refuses(&["mutate", "--only", "DROP_EVERYTHING"], &["unknown mutant", "DROP_SAVE"]);
    b.refuses(&["mutate", "ftrace_caller", "bug:A1"], &["one or the other"]);
    b.refuses(&["mutate", "no_such"], &["unknown trampoline 'no_such'", "ftrace_caller"]);
    b.refuses(&["mutate", "-o", "no/such/place.json"], &["no/such/place.json"]);
    let help = Command::new(env!("CARGO_BIN_EXE_tramptool")).args(["mutate", "--help"]).output().unwrap();
    assert!(String::from_utf8(help.stdout).unwrap().contains("CFI_OFFBY"));
}
