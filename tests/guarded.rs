//! Return addresses that are guarded while they are in memory: P28, and that faults in it are noticed.

use codegen::arch::harden::ReturnGuard;
use common::{Bench, expected::expected};
use serde_json::Value;

mod common;

/// What goes wrong with a guard. Where nothing is signed, SP is no part of it, and what is pushed late is not stored yet.
const FAULTS: [(&str, bool); 9] = [
    ("GUARD_MISSING", false),
    ("CHECK_MISSING", false),
    ("UNGUARDED", false),
    ("CHECK_EARLY", false),
    ("GUARD_OTHER", false),
    ("CHECK_OTHER", false),
    ("GUARD_LATE", true),
    ("CHECK_SP", true),
    ("GUARD_UNTOLD", true),
];

/// Each architecture that guards return addresses: its name, the setting, and are they signed?
fn guarded() -> Vec<(&'static str, String, bool)> {
    let of = |backend: &&'static dyn codegen::backend::Backend| {
        let setting = expected(*backend).process.guarded.clone()?;
        let signs = backend.facts().guards.iter().any(|guard| guard.name() == "signed");
        Some((backend.facts().name, setting, signs))
    };
    tool::BACKENDS.iter().filter_map(of).collect()
}

#[test]
fn every_fault_of_a_guard_is_noticed() {
    let mut architectures = 0;
    for (arch, setting, signs) in guarded() {
        architectures += 1;
        let bench = Bench::new();
        for (operator, of_signatures) in FAULTS.iter().filter(|(_, of_signatures)| signs || !of_signatures) {
            let args = ["mutate", "--profile", "bare", "--arch", arch, "--set", &setting, "--only", operator];
            let report: Value = serde_json::from_str(&bench.ok(&[&args[..], &["--format", "json"]].concat())).unwrap();
            let results = report["results"].as_array().unwrap();
            // Those that call functions and have a frame meanwhile.
            assert!(results.len() > 15, "{arch} {operator} {of_signatures}: {}", results.len());
            for result in results {
                let clauses = result["clauses"].as_array().unwrap();
                assert!(result["outcome"] == "killed" && clauses.contains(&"P28".into()), "{arch}: {result:#}");
            }
        }
    }
    assert_eq!(architectures, 2);
}

/// The arguments of `gen` for a trampoline that calls a function.
const AROUND: [&str; 12] =
    ["gen", "around", "--call", "enter", "--exit", "leave", "--function", "f+8", "--args", "2", "--profile", "bare"];

/// A trampoline without a guard under a contract that asks for one, and the other way round.
#[test]
fn a_contract_that_asks_for_a_guard_gets_one() {
    for (arch, setting, signs) in guarded() {
        let bench = Bench::new();
        let gen_ = |stem: &str, more: &[&str]| {
            let rest = ["--arch", arch, "--stem", stem, "--emit", "obj,contract"];
            bench.ok(&[&AROUND[..], &rest, more].concat());
        };
        gen_("plain", &[]);
        gen_("guarded", &["--set", &setting]);
        let (guard, other) = if signs { ("signed", "pushed") } else { ("pushed", "signed") };
        let text = std::fs::read_to_string(bench.path("guarded.toml")).unwrap();
        let key = format!("guard = \"{guard}\"\n");
        assert!(text.contains(&key), "{text}");
        let verdicts = |object: &str, contract: &str, code: i32| -> Vec<Value> {
            let args = ["check", "--object", object, "--contract", contract, "--format", "json"];
            let report: Value = serde_json::from_str(&bench.ends(code, &args)).unwrap();
            let rows = report["results"].as_array().unwrap().clone();
            rows.into_iter().filter(|row| row["clause"] == "P28").collect()
        };
        assert_eq!(verdicts("guarded.o", "guarded.toml", 0)[0]["verdict"], "pass", "{arch}");
        assert_eq!(verdicts("plain.o", "plain.toml", 0)[0]["reason_id"], "not-guarded", "{arch}");
        let broken = &verdicts("plain.o", "guarded.toml", 1)[0];
        assert_eq!(broken["verdict"], "fail", "{arch}");
        let wrong = text.replace(&key, &format!("guard = \"{other}\"\n"));
        std::fs::write(bench.path("wrong.toml"), wrong).unwrap();
        let check = ["check", "--object", "guarded.o", "--contract", "wrong.toml"];
        bench.refuses(&check, &["wrong.toml", "guard: ", guard]);
    }
}

/// Whatever an architecture can do is in reach of an option, and nothing else is.
#[test]
fn each_guard_has_its_option() {
    for backend in tool::BACKENDS {
        let targets = common::targets(*backend);
        let offered: Vec<ReturnGuard> = targets.iter().filter_map(|target| target.harden.guard).collect();
        for guard in ReturnGuard::ALL {
            let can = backend.facts().guards.contains(&guard);
            assert_eq!(offered.contains(&guard), can, "{} {}", backend.facts().name, guard.name());
        }
    }
}
