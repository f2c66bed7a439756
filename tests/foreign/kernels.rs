//! The kernel's own objects, and what docs/findings.md says of them.

use std::process::Command;

use tool::contracts::CONTRACTS;

use crate::case::text;

/// What docs/findings.md says is what its commands print.
#[test]
#[ignore = "needs the kernel's objects: cargo xtask kernel-objects"]
fn the_findings_are_shown_by_their_commands() {
    let cache = kernel_cache::directory().unwrap();
    let (mut said, mut shown) = (String::new(), 0);
    let (findings, _) = include_str!("../../docs/findings.md").split_once("\n## ").unwrap();
    for row in findings.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        if let Some(command) = cells[3].strip_prefix("`tramptool ") {
            let command = format!("{} {}", env!("CARGO_BIN_EXE_tramptool"), command.trim_end_matches('`'));
            let (code, out, err) = text(Command::new("sh").args(["-c", &command]).env("K", &cache).output().unwrap());
            assert_eq!((code, err.as_str()), (Some(0), ""), "{command}\n{out}");
            said = out;
            continue;
        }
        let (clause, place) = cells[2].split_once(' ').unwrap();
        let trampoline = cells[1].trim_start_matches('`').split(['`', '*']).next().unwrap();
        let told = |line: &str| {
            let parts = [trampoline, place.trim_matches('`')];
            line.trim_start().starts_with(&format!("{clause} ")) && parts.iter().all(|part| line.contains(part))
        };
        assert!(said.lines().any(told), "{row}\n{said}");
        shown += 1;
    }
    assert!(shown > 25, "{shown}");
}

/// The kernel's own trampolines deviate as their contracts say, in no other way, and in no fewer.
#[test]
#[ignore = "needs the kernel's objects: cargo xtask kernel-objects"]
fn the_kernels_own_objects_deviate_as_expected() {
    let cache = kernel_cache::directory().unwrap();
    for (name, _) in CONTRACTS {
        let objects = std::fs::read_dir(cache.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut tool = Command::new(env!("CARGO_BIN_EXE_tramptool"));
        tool.args(["check", "--contract", name, "--object"]).args(objects.map(|o| o.unwrap().path()));
        let (code, out, err) = text(tool.output().unwrap());
        assert_eq!((code, err.as_str()), (Some(0), ""), "{name}\n{out}");
        assert!(out.contains("deviations, as the contracts say"), "{name}");
    }
}
