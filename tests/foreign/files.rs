//! Kinds of file, and compilers; contracts and objects that are refused.

use std::path::Path;

use tool::contracts::CONTRACTS;

use crate::case::{ARCH, Case, TRAMPOLINE};
use crate::common::{CONTRACT, arches};

#[test]
fn modules_and_shared_libraries_are_judged_too() {
    let case = Case::new(TRAMPOLINE, CONTRACT);
    let make = |program: &str, args: &[&str]| {
        let (code, _, err) = case.run(program, args);
        assert_eq!(code, Some(0), "{err}");
    };
    make("x86_64-linux-gnu-ld", &["-r", "t.o", "-o", "t.ko"]);
    make("x86_64-linux-gnu-ld", &["-shared", "t.o", "-o", "t.so"]);
    make("x86_64-linux-gnu-strip", &["t.so"]);
    for file in ["t.ko", "t.so"] {
        let (code, out, err) = case.tool(&["check", "--object", file, "--contract", "t.toml"]);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{file}: {out}");
        assert!(out.contains("stands in for other_helper"), "{file}: {out}");
    }
    make("x86_64-linux-gnu-ld", &["t.o", "--defsym=direct_func=0", "--defsym=other_helper=0", "-e0", "-o", "t.exe"]);
    let (code, _, err) = case.tool(&["check", "--object", "t.exe", "--contract", "t.toml"]);
    assert!(code == Some(2) && err.contains("t.exe: an executable's code runs at its own address only"), "{err}");
    std::fs::write(case.dir.path().join("t.bc"), b"BC\xc0\xde").unwrap();
    let (code, _, err) = case.tool(&["check", "--object", "t.bc", "--contract", "t.toml"]);
    assert!(code == Some(2) && err.contains("LLVM bitcode; compile without -flto"), "{err}");
    // Whatever the damage, there is an answer.
    let whole = std::fs::read(case.dir.path().join("t.so")).unwrap();
    let backend = tool::backend(ARCH).unwrap();
    for at in 0..whole.len().min(4096) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0xff;
        for bytes in [&damaged[..], &whole[..at]] {
            let _ = link::relocatable(backend, &link::Input { name: "t.so", bytes });
        }
    }
}

#[test]
#[ignore = "needs clang-14"]
fn objects_of_clang_are_judged_too() {
    let case = Case::new(TRAMPOLINE, CONTRACT);
    let (code, _, err) = case.run("clang-14", &["--target=x86_64-linux-gnu", "-c", "t.S", "-o", "t.o"]);
    assert_eq!((code, case.check().0), (Some(0), Some(0)), "{err}");
}

#[test]
#[ignore = "needs llvm-mc-14"]
fn objects_of_llvm_mc_are_judged_too() {
    let case = Case::new(TRAMPOLINE, CONTRACT);
    let args = ["--triple=x86_64-linux-gnu", "-filetype=obj", "t.S", "-o", "t.o"];
    let (code, _, err) = case.run("llvm-mc-14", &args);
    assert_eq!((code, case.check().0), (Some(0), Some(0)), "{err}");
}

#[test]
fn a_wrong_contract_is_refused_with_its_line_and_what_is_valid() {
    let refused = |change: (&str, &str), line: u32, parts: &[&str]| {
        let (code, out, err) = Case::new(TRAMPOLINE, &CONTRACT.replace(change.0, change.1)).check();
        assert_eq!((code, out.as_str()), (Some(2), ""), "{change:?}");
        for part in parts.iter().map(|p| (*p).to_owned()).chain([format!("t.toml:{line}: ")]) {
            assert!(err.contains(&part), "{change:?}: no '{part}' in {err}");
        }
        assert_eq!(err.lines().count(), 1, "{err}");
    };
    refused(("\"x86_64\"", "\"vax\""), 2, &["unknown architecture 'vax'", "arm64, riscv64"]);
    refused(("\"direct\"", "\"detour\""), 7, &["unknown variant `detour`", "`rethook`", "`stub-direct`"]);
    refused(("args = 2", "args = 7"), 8, &["args = 7; valid: 0 to 6"]);
    refused(("stack-align = 8", "stack-align = 12"), 10, &["stack-align = 12; valid: a power of 2"]);
    refused(("stack-align = 8", "stack-align = 8\nkeeps = [\"r99\"]"), 11, &["unknown register 'r99'", "r15"]);
    refused(("stack-align = 8", "stack-align = 8\nframe = \"f\""), 11, &["frame is for kind entry, regs"]);
    refused(("stack-align = 8", "stack-align = 8\nsites = 1"), 11, &["unknown field `sites`", "`slot`"]);
    let place = "stack-align = 8\ndeviation = [{ clause = \"P1\", place = 3, reason = \"\" }]";
    refused(("stack-align = 8", place), 11, &["expected a place, or a list of places"]);
    refused(("about = \"a direct-call trampoline\"", ""), 1, &["missing field `about`"]);
    let deviation = "stack-align = 8\ndeviation = [{ clause = \"P99\", place = \"*\", reason = \"\" }]";
    refused(("stack-align = 8", deviation), 11, &["unknown clause 'P99'", "P28, coverage"]);
}

#[test]
fn objects_that_do_not_fit_are_refused() {
    let case = Case::new(TRAMPOLINE, &CONTRACT.replace("my_tramp", "your_tramp"));
    let (code, _, err) = case.check();
    assert_eq!(code, Some(2));
    assert!(err.contains("no object defines your_tramp"), "{err}");
    let (other, _) = arches().into_iter().find(|(arch, _)| *arch != ARCH).unwrap();
    let case = Case::new(TRAMPOLINE, &CONTRACT.replace(ARCH, other));
    let (code, _, err) = case.check();
    assert_eq!(code, Some(2));
    assert!(err.contains("machine 62"), "{err}");
}

#[test]
fn every_contract_has_an_object_to_judge() {
    let lists =
        [include_str!("../../lab/xtask/kernel-objects.toml"), include_str!("../../lab/xtask/package-objects.toml")];
    let list = lists.concat();
    for (name, text) in CONTRACTS {
        assert!(list.contains(&format!("contract = \"{name}\"")), "{name}");
        assert!(text.parse::<toml::Table>().is_ok(), "{name}");
    }
    assert_eq!(list.matches("contract = ").count(), CONTRACTS.len());
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("contracts");
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), CONTRACTS.len(), "a contract that src/contracts.rs forgot");
}
