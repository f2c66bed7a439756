//! The kernel's own objects, and those of Debian's packages; and what docs/findings.md says of them.

use std::process::Command;

use tool::contracts::CONTRACTS;

use crate::case::text;
use crate::common::chosen;

/// What a section of docs/findings.md says is what its commands print. Returns how many findings there are.
fn shown_by_their_commands(findings: &str) -> usize {
    let cache = kernel_cache::directory().unwrap();
    let (mut said, mut shown) = (Vec::new(), 0);
    for row in findings.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        if let Some(command) = cells[3].strip_prefix("`tramptool ") {
            let command =
                format!("{} {} --format json", env!("CARGO_BIN_EXE_tramptool"), command.trim_end_matches('`'));
            let (code, out, err) = text(Command::new("sh").args(["-c", &command]).env("K", &cache).output().unwrap());
            assert_eq!((code, err.as_str()), (Some(0), ""), "{command}\n{out}");
            let report: serde_json::Value = serde_json::from_str(&out).unwrap();
            said.clone_from(report["results"].as_array().unwrap());
            continue;
        }
        let trampoline = cells[1].trim_start_matches('`').split(['`', '*']).next().unwrap();
        for finding in cells[2].split(", ") {
            // "P4 `r11`", or the clause alone.
            let (clause, place) = (finding.split(' ').next().unwrap(), finding.split('`').nth(1).unwrap_or(""));
            let told = |found: &serde_json::Value| {
                let has = |key: &str, part: &str| found[key].as_str().is_some_and(|text| text.contains(part));
                let deviates = found["verdict"] == "deviates" && found["clause"] == clause;
                deviates && has("trampoline", trampoline) && has("reason", place)
            };
            assert!(said.iter().any(told), "{finding} of {row}\n{said:#?}");
        }
        shown += 1;
    }
    shown
}

/// The part of docs/findings.md behind this heading; without one, what comes first.
fn section(heading: &str) -> &'static str {
    let text = include_str!("../../docs/findings.md");
    let from = text.find(heading).unwrap_or_else(|| panic!("docs/findings.md has no {heading}"));
    let inside = &text[from + heading.len()..];
    inside.find("\n## ").map_or(inside, |end| &inside[..end])
}

#[test]
#[ignore = "needs the kernel's objects: cargo xtask kernel-objects"]
fn the_findings_are_shown_by_their_commands() {
    let shown = shown_by_their_commands(section(""));
    assert!(shown > 25, "{shown}");
}

#[test]
#[ignore = "needs objects of Debian's packages: cargo xtask package-objects"]
fn the_findings_of_packages_are_shown_by_their_commands() {
    let shown = shown_by_their_commands(section("\n## In user space"));
    assert!(shown > 3, "{shown}");
}

/// The kernel's own trampolines deviate as their contracts say, in no other way, and in no fewer.
#[test]
#[ignore = "needs the kernel's objects: cargo xtask kernel-objects"]
fn the_kernels_own_objects_deviate_as_expected() {
    let replaced = deviate_as_expected(|name| name.starts_with("linux-"));
    assert!(replaced.contains(&"linux-7.3-x86_64-cfi") && replaced.len() > 3, "{replaced:?}");
}

/// So do those of Debian's packages.
#[test]
#[ignore = "needs objects of Debian's packages: cargo xtask package-objects"]
fn the_objects_of_packages_deviate_as_expected() {
    assert!(deviate_as_expected(|name| !name.starts_with("linux-")).is_empty());
}

/// Where an object has alternatives, the same with these in their places. Returns the contracts of those.
fn deviate_as_expected(wanted: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let cache = kernel_cache::directory().unwrap();
    let mut replaced = Vec::new();
    for (name, _) in CONTRACTS.iter().filter(|(name, _)| wanted(name)) {
        let mut tool = Command::new(env!("CARGO_BIN_EXE_tramptool"));
        tool.args(["check", "--contract", name]).args(chosen(&cache.join(name)));
        let (code, out, err) = text(tool.output().unwrap());
        assert_eq!((code, err.as_str()), (Some(0), ""), "{name}\n{out}");
        let deviates = include_str!("../../docs/findings.md").contains(&format!("--contract {name}`"));
        assert_eq!(out.contains("deviations that the contracts state"), deviates, "{name}");
        if out.contains("alternatives: not run") {
            let (code, out, err) = text(tool.arg("--alternatives").output().unwrap());
            assert_eq!((code, err.as_str()), (Some(0), ""), "{name} --alternatives\n{out}");
            assert!(out.contains("alternatives: in place, and run, at "), "{name}: {out}");
            replaced.push(*name);
        }
    }
    replaced
}

/// The generated trampoline of kretprobes in the place of the kernel's, with the kernel's other objects, under the contract that
/// was written for the kernel's: it holds, and falls short nowhere that the kernel's own does by a choice of its own.
#[test]
#[ignore = "needs the kernel's objects: cargo xtask kernel-objects"]
fn ours_takes_the_place_of_the_kernels_trampoline_of_kretprobes() {
    let cache = kernel_cache::directory().unwrap();
    // On riscv64 the kernel's C stands between trampoline and handler. On x86_64 it is in one file with the kernel's trampoline,
    // and what lies behind its structure is where it returns to; our callback returns that.
    let kernels = [
        ("linux-7.3-riscv64-norvc", "riscv64", "rvc=off", "rethook_trampoline.o", &["P10", "P14"][..]),
        ("linux-6.12-riscv64", "riscv64", "rvc=on", "rethook_trampoline.o", &["P10", "P14"]),
        ("linux-7.3-x86_64-orc", "x86_64", "unwinder=orc", "rethook.o", &["P10", "P12", "P14"]),
        ("linux-6.12-x86_64-orc", "x86_64", "unwinder=orc", "rethook.o", &["P10", "P12", "P14"]),
    ];
    for (name, arch, set, own, better) in kernels {
        let b = crate::common::Bench::new();
        let profile = name.split("-x86").next().unwrap().split("-riscv").next().unwrap();
        let (_, contract) = CONTRACTS.iter().find(|(n, _)| *n == name).unwrap();
        let (before, after) = contract.split_once("symbol = \"arch_rethook_trampoline\"").unwrap();
        let kept: Vec<&str> =
            after.lines().filter(|line| !better.iter().any(|clause| line.contains(&format!("\"{clause}\"")))).collect();
        let mut text = format!("{before}symbol = \"arch_rethook_trampoline\"{}\n", kept.join("\n"));
        if arch == "x86_64" {
            let returned =
                "    { member = \"return\", offset = 168, holds = \"parent-ip\", stores = \"take-effect\" },\n";
            assert_eq!(text.matches(returned).count(), 1);
            text = text.replace(returned, "").replace("size = 176", "size = 168");
            text =
                text.replace("calls = \"rethook_trampoline_handler\"", "calls = \"arch_rethook_trampoline_callback\"");
        }
        std::fs::write(b.path("t.toml"), text).unwrap();
        let profile = ["--arch", arch, "--profile", profile, "--set", set];
        b.ok(&[&["gen", "arch_rethook_trampoline", "--emit", "obj", "--stem", "ours"][..], &profile].concat());
        let others = std::fs::read_dir(cache.join(name)).unwrap().map(|entry| entry.unwrap().path());
        let others = others.filter(|path| path.extension().is_some_and(|e| e == "o") && !path.ends_with(own));
        let objects: Vec<String> = others.map(|path| path.display().to_string()).chain(["ours.o".to_owned()]).collect();
        let check = ["check", "arch_rethook_trampoline", "--contract", "t.toml", "--object"];
        let out = b.ok(&check.into_iter().chain(objects.iter().map(String::as_str)).collect::<Vec<_>>());
        assert!(out.contains("holds: 1 trampoline"), "{name}: {out}");
    }
}
