//! Contracts that are for several objects, and code that has no object or no end.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::common::{Bench, any, arches};

/// Change the contract in a file.
fn edit(b: &Bench, file: &str, change: impl Fn(String) -> String) {
    let text = fs::read_to_string(b.path(file)).unwrap();
    let changed = change(text.clone());
    assert_ne!(changed, text, "{file}");
    fs::write(b.path(file), changed).unwrap();
}

fn of_several_objects(text: String) -> String {
    format!("several-objects = true\n{text}")
}

/// One object of several is judged for what it defines, if the contract says that there are several; what it does not define is
/// told, and `--strict` wants all.
#[test]
fn one_object_of_several_is_judged_alone() {
    for (arch, _) in arches() {
        let b = Bench::new();
        let made = |names: &[&str], emit: &str, stem: &str| {
            b.ok(&[&["gen"], names, &["--arch", arch, "--emit", emit, "--stem", stem]].concat());
        };
        let entry = ["ftrace_caller", "ftrace_stub_direct_tramp"];
        made(&[&["ftrace_stub"], &entry[..]].concat(), "obj,contract", "both");
        made(&entry, "obj", "one");
        made(&["ftrace_stub"], "obj", "other");
        edit(&b, "both.toml", of_several_objects);
        let check = |code, objects: &[&str], more: &[&str]| {
            b.ends(code, &[&["check", "--contract", "both.toml", "--object"], objects, more].concat())
        };
        let whole = check(0, &["one.o", "other.o"], &[]);
        assert!(whole.lines().next().unwrap().contains(": 3 trampolines") && !whole.contains("not judged"), "{whole}");
        let alone = check(0, &["one.o"], &[]);
        let told = "\nnot judged, because none of the objects defines it: ftrace_stub\n";
        assert!(alone.lines().next().unwrap().contains(": 2 trampolines") && alone.contains(told), "{alone}");
        let report: Value = serde_json::from_str(&check(0, &["one.o"], &["--format", "json"])).unwrap();
        let of_stub = report["results"].as_array().unwrap().iter().filter(|row| row["trampoline"] == "ftrace_stub");
        let told: Vec<&Value> = of_stub.map(|row| &row["reason_id"]).collect();
        assert_eq!(told, ["not-defined"], "{report}");
        check(1, &["one.o"], &["--strict"]);
        // Where nothing is defined, it is the wrong object.
        b.ok(&["gen", "direct", "--args", "1", "--call", "f", "--arch", arch, "--emit", "obj", "--stem", "wrong"]);
        let wrong = ["check", "--contract", "both.toml", "--object", "wrong.o"];
        b.refuses(&wrong, &["both.toml:", "no object defines ftrace_", "valid: "]);
    }
}

/// What a contract speaks of and no object has is not decided; its symbol may be misspelt.
#[test]
fn a_misspelt_symbol_does_not_pass() {
    let (b, arch) = (Bench::new(), any());
    let stub =
        ["gen", "ftrace_stub", "ftrace_stub_direct_tramp", "--arch", arch, "--emit", "obj,contract", "--stem", "t"];
    b.ok(&stub);
    let check = ["check", "--object", "t.o", "--contract", "t.toml"];
    b.ends(0, &check);
    edit(&b, "t.toml", |text| text.replace("\"ftrace_stub\"", "\"ftrace_stab\""));
    let text = b.ends(1, &check);
    assert!(text.starts_with("not decided: 1 trampoline, 1 clause not decided\n"), "{text}");
    let told = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let why = "ftrace_stab (t.toml): none of the objects defines it: similar is ftrace_stub, ftrace_stub_direct_tramp: coverage";
    assert!(told.contains(&format!("NOT DECIDED of {arch} {why}")), "{text}");
    let report: Value = serde_json::from_str(&b.ends(1, &[&check[..], &["--format", "json"]].concat())).unwrap();
    let row = report["results"].as_array().unwrap().iter().find(|row| row["trampoline"] == "ftrace_stab").unwrap();
    assert_eq!((&row["verdict"], &row["reason_id"]), (&"open".into(), &"not-defined".into()), "{row}");
    let absent = ["ftrace_stab", "none of the objects defines it", "similar is ftrace_stub"];
    b.refuses(&["mutate", "--object", "t.o", "--contract", "t.toml"], &absent);
    b.refuses(&["review", "t.o", "t.o", "--contract", "t.toml"], &absent);
    // Nobody asked for it.
    b.ends(0, &[&check[..1], &["ftrace_stub_direct_tramp"], &check[1..]].concat());
    // The contract says that others may have it.
    edit(&b, "t.toml", of_several_objects);
    b.ends(0, &check);
    edit(&b, "t.toml", |text| text.replace("ftrace_stub_direct_tramp", "ftrace_stub_direct_ramp"));
    b.refuses(&check, &["t.toml:", "no object defines ftrace_st", "similar is ftrace_stub, ftrace_stub_direct_tramp"]);
}

/// A trampoline of an object that the contract names, and that is not given.
#[test]
fn an_object_that_is_not_given_is_missed() {
    let (b, arch) = (Bench::new(), any());
    b.ok(&["gen", "ftrace_stub", "ftrace_stub_direct_tramp", "--arch", arch, "--emit", "obj,contract", "--stem", "t"]);
    let of = |object: &str| format!("object = \"{object}\"\nsymbol = \"ftrace_stub\"");
    let check = ["check", "--object", "t.o", "--contract", "t.toml"];
    edit(&b, "t.toml", |text| text.replace("symbol = \"ftrace_stub\"", &of("other.o")));
    let text = b.ends(1, &check).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains("none of the objects defines it: other.o, which has it by the contract, is not given"),
        "{text}"
    );
    edit(&b, "t.toml", of_several_objects);
    b.ends(0, &check);
}

#[test]
fn the_contracts_that_are_shipped_are_listed() {
    let b = Bench::new();
    let text = b.ok(&["list", "--contracts"]);
    let listed: Vec<&str> = text.lines().filter(|line| !line.starts_with(' ')).collect();
    let shipped: Vec<&str> = tool::contracts::CONTRACTS.iter().map(|(name, _)| *name).collect();
    assert_eq!(listed, shipped);
    assert!(text.contains("ftrace_64.o and rethook.o, CONFIG_UNWINDER_ORC") && text.contains("return_to_handler"));
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let json: Vec<Value> = serde_json::from_str(&b.ok(&["list", "--contracts", "--format", "json"])).unwrap();
    let arches: BTreeSet<&str> = json.iter().map(|contract| contract["arch"].as_str().unwrap()).collect();
    assert_eq!(arches, crate::common::arches().into_iter().map(|(arch, _)| arch).collect());
    assert!(json.iter().all(|contract| !contract["trampolines"].as_array().unwrap().is_empty()));
    let of_one = b.ok(&["list", "--contracts", "--arch", any()]);
    assert!(of_one.lines().count() < text.lines().count() && text.contains(&of_one[..of_one.find('\n').unwrap()]));
}

/// A first contract of a dump is taken by `check` of the same dump.
#[test]
fn a_first_contract_is_made_of_a_dump_too() {
    for (arch, _) in arches() {
        let b = Bench::new();
        b.ok(&["gen", "direct", "--args", "2", "--call", "f", "--arch", arch, "--emit", "obj", "--stem", "t"]);
        // Linked, what it calls is an address.
        let ld = format!("{}ld", crate::common::tools_of(arch));
        b.tool(&ld, &["t.o", "--defsym=f=0x40001000", "-e", "f_tramp", "-Ttext=0x40000000", "-o", "linked"]);
        let objcopy = format!("{}objcopy", crate::common::tools_of(arch));
        b.tool(&objcopy, &["-O", "binary", "-j", ".text", "linked", "t.bin"]);
        let place = ["--base", "0x40000000", "--entry", "0x40000000", "--arch", arch];
        let init = ["contract", "init", "--raw", "t.bin", "--symbol", "my_tramp", "-o", "t.toml"];
        b.ok(&[&init[..], &place].concat());
        let contract = fs::read_to_string(b.path("t.toml")).unwrap().replace("# args = ", "args = ");
        assert!(contract.contains("symbol = \"my_tramp\"") && contract.contains("kind = \"direct\""), "{contract}");
        fs::write(b.path("t.toml"), &contract).unwrap();
        let out = b.run(&[&["check", "--raw", "t.bin", "--contract", "t.toml"], &place[..]].concat());
        assert_eq!(out.status.code(), Some(0), "{arch}: {contract}\n{out:?}");
        b.refuses(&["contract", "init", "--raw", "t.bin", "--symbol", "my_tramp"], &["--base", "--entry", "--arch"]);
        b.refuses(&["contract", "init", "--symbol", "my_tramp"], &["--object"]);
    }
}

/// Nothing is promised by what never comes back, so that nothing is written.
#[test]
fn an_endless_function_has_no_contract() {
    let b = Bench::new();
    let object = |body: &str| {
        let text = format!(".globl t\n.type t, @function\nt: {body}\n.size t, . - t\n");
        fs::write(b.path("t.s"), text).unwrap();
        b.tool("x86_64-linux-gnu-as", &["t.s", "-o", "t.o"]);
    };
    for body in ["jmp t", "push %rdi\n call f\n pop %rdi\n1: jmp 1b", "1: test %rdi, %rdi\n jnz 1b\n ret"] {
        object(body);
        let out = b.run(&["contract", "init", "--object", "t.o", "--symbol", "t", "-o", "t.toml"]);
        let err = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(1), "{body}: {err}");
        assert!(err.starts_with("tramptool: t.o: t never comes back: ") && err.lines().count() == 1, "{body}: {err}");
        assert!(out.stdout.is_empty() && !b.path("t.toml").exists(), "{body}");
    }
}

/// Where no thread can be made, one does the work.
#[test]
fn no_threads_are_needed() {
    let b = Bench::new();
    let arch = any();
    b.ok(&["gen", "direct", "--args", "1", "--call", "f", "--arch", arch, "--emit", "obj,contract", "--stem", "t"]);
    for args in [
        vec!["check", "--object", "t.o", "--contract", "t.toml"],
        vec!["review", "t.o", "t.o", "--contract", "t.toml"],
        vec!["diff", "t.o", "t.o"],
        vec!["compose", "--random", "10"],
    ] {
        let out = std::process::Command::new(env!("CARGO_BIN_EXE_tramptool"))
            .args(&args)
            .current_dir(b.path(""))
            // A stack for which there is no room.
            .env("RUST_MIN_STACK", (1_u64 << 46).to_string())
            .output()
            .unwrap();
        let err = String::from_utf8(out.stderr).unwrap();
        assert!(out.status.code() == Some(0) && err.is_empty(), "{args:?}: {err}");
    }
}
