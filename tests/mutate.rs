//! The checker is checked: every fault is noticed, every bug of the corpus by its property.

use std::process::Command;

use serde_json::Value;

use common::{Bench, CONTRACT, kernel_cache};

mod common;

/// All mutants of all trampolines: none survives, what is called equivalent is needed, and the README has the figures.
#[test]
fn every_mutant_is_killed() {
    let b = Bench::new();
    b.ok(&["mutate", "--format", "json", "-o", "mutants.json"]);
    let report: Value = serde_json::from_str(&std::fs::read_to_string(b.path("mutants.json")).unwrap()).unwrap();
    let results = report["results"].as_array().unwrap();
    assert!(results.len() > 4000 && results.iter().all(|r| r["outcome"] != "survived"));
    for known in tramptool::mutate::table().unwrap().equivalent.iter().filter(|known| known.contract.is_empty()) {
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

/// What a direct-call trampoline of two arguments looks like that somebody wrote by hand: assembler, alignment, text.
const BY_HAND: [(&str, &str, &str, &str); 3] = [
    (
        "x86_64",
        "x86_64-linux-gnu-as",
        "8",
        "push %rbp
         mov %rsp, %rbp
         push %rdi
         push %rax
         mov %rsi, (%rsp)
         call direct_func
         mov (%rsp), %rsi
         mov -8(%rbp), %rdi
         leave
         ret",
    ),
    (
        "arm64",
        "aarch64-linux-gnu-as",
        "16",
        "stp x9, x30, [sp, #-48]!
         stp x0, x1, [sp, #16]
         str x8, [sp, #32]
         bl direct_func
         ldr x8, [sp, #32]
         ldp x0, x1, [sp, #16]
         ldp x30, x9, [sp], #48
         ret x9",
    ),
    (
        "riscv64",
        "riscv64-linux-gnu-as",
        "16",
        "addi sp, sp, -32
         sd a0, 0(sp)
         sd a1, 8(sp)
         sd t0, 16(sp)
         sd ra, 24(sp)
         call direct_func
         ld ra, 24(sp)
         ld t0, 16(sp)
         ld a1, 8(sp)
         ld a0, 0(sp)
         addi sp, sp, 32
         jr t0",
    ),
];

/// Faults in objects that others wrote: every instruction but NOPs has some, and all are noticed.
#[test]
fn faults_in_other_peoples_objects_are_noticed() {
    for (arch, assembler, align, body) in BY_HAND {
        let b = Bench::new();
        let text =
            format!(".globl my_tramp\n.type my_tramp, %function\nmy_tramp:\n{body}\n.size my_tramp, . - my_tramp\n");
        std::fs::write(b.path("t.S"), text).unwrap();
        b.tool(assembler, &["t.S", "-o", "t.o"]);
        let contract = CONTRACT.replace("x86_64", arch).replace("stack-align = 8", &format!("stack-align = {align}"));
        std::fs::write(b.path("t.toml"), &contract).unwrap();
        let place = ["--object", "t.o", "--contract", "t.toml"];
        let run = |more: &[&str]| -> Value {
            let args = [&["mutate", "--format", "json"], more, &place].concat();
            serde_json::from_str(&String::from_utf8(b.run(&args).stdout).unwrap()).unwrap()
        };
        let report = run(&[]);
        let results = report["results"].as_array().unwrap();
        let survivors: Vec<&Value> = results.iter().filter(|r| r["outcome"] != "killed").collect();
        assert!(survivors.is_empty(), "{arch}: {survivors:#?}");
        for (n, line) in body.lines().enumerate() {
            let mnemonic = match line.split_whitespace().next().unwrap() {
                "call" if arch == "riscv64" => "jalr",
                mnemonic => mnemonic,
            };
            let gone = |r: &&Value| r["diff"].as_array().unwrap().iter().all(|l| l.as_str().unwrap().starts_with('-'));
            let touched = results.iter().filter(gone).any(|r| r["diff"].to_string().contains(mnemonic));
            assert!(touched, "{arch}: line {n}, {line}: nothing is without it");
        }
        let kinds: Vec<&str> =
            report["scores"].as_array().unwrap().iter().map(|s| s["operator"].as_str().unwrap()).collect();
        for kind in ["DROP_SAVE", "DROP_RESTORE", "SWAP_SAVE", "NARROW_SAVE", "SLOT_OFFSET", "DROP_CALL", "DROP_LEAVE"]
        {
            assert!(kinds.contains(&kind), "{arch}: no {kind} in {kinds:?}");
        }
        // What is printed runs this one again.
        let one = &results[0];
        let replay = one["replay"].as_str().unwrap().replace("tramptool mutate ", "").replace('\'', "");
        let words: Vec<&str> = replay.split(' ').collect();
        let again: Value =
            serde_json::from_str(&b.ok(&[&["mutate", "--format", "json"], &words[..]].concat())).unwrap();
        assert_eq!(again["results"], Value::Array(vec![one.clone()]), "{replay}");
        b.refuses(&[&["mutate", "bug:all"], &place[..]].concat(), &["one or the other"]);
        // What is wrong already would be noticed with any fault; what the contract expects to be wrong hides none.
        let scratch = if arch == "x86_64" {
            "r10"
        } else if arch == "arm64" {
            "x11"
        } else {
            "t3"
        };
        std::fs::write(b.path("t.toml"), format!("{contract}keeps = [\"{scratch}\"]\n")).unwrap();
        b.refuses(
            &[&["mutate"], &place[..]].concat(),
            &["my_tramp fails P4 without a fault", "tramptool check my_tramp"],
        );
        let expected = format!("deviation = [{{ clause = \"P4\", place = \"{scratch}*\", reason = \"known\" }}]\n");
        std::fs::write(b.path("t.toml"), format!("{contract}keeps = [\"{scratch}\"]\n{expected}")).unwrap();
        let survivors = run(&[])["results"].as_array().unwrap().iter().filter(|r| r["outcome"] != "killed").count();
        assert_eq!(survivors, 0, "{arch}: {:#?}", run(&[])["results"]);
    }
}

/// The kernel's own objects, contract by contract: docs/findings.md has the figures, and what survives has a reason.
#[test]
#[ignore = "needs the kernel's objects: cargo xtask kernel-objects"]
fn faults_in_the_kernels_objects_are_noticed_or_known() {
    let b = Bench::new();
    let (table, findings) = (tramptool::mutate::table().unwrap(), include_str!("../docs/findings.md"));
    let mut reasons = Vec::new();
    for (name, _) in tramptool::contracts::CONTRACTS {
        let objects = std::fs::read_dir(kernel_cache().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let objects: Vec<String> = objects.map(|o| o.unwrap().path().display().to_string()).collect();
        let mut args = vec!["mutate", "--format", "json", "--contract", name, "--object"];
        args.extend(objects.iter().map(String::as_str));
        let report: Value = serde_json::from_str(&String::from_utf8(b.run(&args).stdout).unwrap()).unwrap();
        let results = report["results"].as_array().unwrap();
        let survived: Vec<&Value> = results.iter().filter(|r| r["outcome"] == "survived").collect();
        let unknown: Vec<&&Value> = survived.iter().filter(|r| r["reason"].is_null()).collect();
        assert!(unknown.is_empty(), "{name}: {unknown:#?}");
        let of = report["mutants"].as_u64().unwrap() - report["equivalent"].as_u64().unwrap();
        let row = format!("| `{name}` | {} of {of} | {} |", report["killed"], report["equivalent"]);
        assert!(findings.contains(&row), "docs/findings.md lacks: {row}");
        reasons.extend(results.iter().filter_map(|r| r["reason"].as_str().map(str::to_owned)));
    }
    for known in table.equivalent.iter().chain(&table.gap).filter(|known| !known.contract.is_empty()) {
        assert!(
            reasons.contains(&known.reason),
            "src/mutants.toml: {} of {} is noticed",
            known.operator,
            known.trampoline
        );
    }
}
