//! `review`: patches of trampolines that GNU as assembles, and faults that a real kernel's tests have noticed.
#![cfg(feature = "judge")]

mod common;

use codegen::words::error::Result;
use common::expected::expected;
use common::{Bench, arches};
use serde::Deserialize;
use serde_json::Value;
use tool::mutate::run::places;
use tool::mutate::selftests::unnoticed;
use tool::mutate::subject::MutationSubject;

/// A bench with `old.S`, its contract, and patches of it.
fn patched(arch: &str) -> Bench {
    let bench = Bench::new();
    let gen_old =
        ["gen", "ftrace_caller", "ftrace_stub_direct_tramp", "--arch", arch, "--emit", "asm,contract", "--stem", "old"];
    bench.ok(&gen_old);
    let old = std::fs::read_to_string(bench.path("old.S")).unwrap();
    let review = expected(tool::backend(arch).unwrap()).review;
    let line = |start: &str| {
        let begins =
            |line: &&str| line.trim_start().strip_prefix(start).is_some_and(|rest| !rest.starts_with([',', ' ']));
        let line = old.lines().find(begins).unwrap_or_else(|| panic!("{arch}: no {start:?}"));
        format!("{line}\n")
    };
    let write = |name: &str, text: String| std::fs::write(bench.path(name), text).unwrap();
    let (lost, left) = &review.lost;
    write("lost.S", old.replacen(&line(lost), &format!("\t{left}\n"), 1));
    let behind = |(what, place): &(String, String)| {
        let (what, place) = (line(what), line(place));
        old.replacen(&what, "", 1).replacen(&place, &format!("{place}{what}"), 1)
    };
    write("moved.S", behind(&review.moved));
    write("told.S", behind(&review.told));
    bench
}

fn review<'a>(arch: &'a str, old: &'a str, new: &'a str) -> [&'a str; 7] {
    ["review", old, new, "--arch", arch, "--contract", "old.toml"]
}

#[test]
fn a_patch_that_loses_a_register_is_worse_and_its_revert_is_better() {
    for (arch, _) in arches() {
        let bench = patched(arch);
        let register = expected(tool::backend(arch).unwrap()).review.register;
        let text = bench.ends(1, &review(arch, "old.S", "lost.S"));
        assert!(text.starts_with("lost.S is worse"), "{text}");
        let (_, worse) = text.split_once("\nWorse\n").unwrap_or_else(|| panic!("{text}"));
        let words = worse.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("ftrace_caller P1 ") && words.contains(&format!(", {register}: expected 0x")), "{text}");
        assert!(
            words.contains("(breaks traced code)") && words.contains("none were tried: what is new fails"),
            "{text}"
        );
        let text = bench.ok(&review(arch, "lost.S", "old.S"));
        let better = text.split_once("\nBetter\n").unwrap_or_else(|| panic!("{text}")).1;
        assert!(better.contains(&register) && !text.contains("\nWorse\n"), "{text}");
        // Both fail in the same way.
        let text = bench.ok(&review(arch, "lost.S", "lost.S"));
        assert!(text.starts_with("lost.S is no worse"), "{text}");
    }
}

/// A patch that changes something on purpose says so in a file.
#[test]
fn a_review_takes_a_baseline() {
    let arch = common::any();
    let bench = patched(arch);
    let baseline = ["--arch", arch, "--format", "baseline"];
    let accepted = bench.ends(1, &[&["diff", "old.S:ftrace_caller", "lost.S:ftrace_caller"], &baseline[..]].concat());
    let accepted = accepted.replace("reason = \"\"", "reason = \"on purpose\"");
    std::fs::write(bench.path("accepted.toml"), accepted).unwrap();
    let with_baseline = |new| [&review(arch, "old.S", new)[..], &["--baseline", "accepted.toml"]].concat();
    let text = bench.ends(1, &with_baseline("lost.S"));
    let told = !text.contains("breaks traced code") && !text.contains("is gone");
    assert!(text.contains("1 more that the baseline accepts") && told, "{text}");
    let text = bench.ends(1, &with_baseline("old.S"));
    assert!(text.contains("is accepted and is gone"), "{text}");
}

#[test]
fn a_save_that_a_patch_moves_is_a_move() {
    for (arch, _) in arches() {
        let bench = patched(arch);
        let text = bench.ok(&review(arch, "old.S", "moved.S"));
        assert!(text.starts_with("moved.S holds") && text.contains("  the same, without any contract too\n"), "{text}");
        let code: Vec<&str> = text.lines().filter(|line| line.starts_with("    ")).collect();
        let signs: Vec<&str> = code.iter().filter_map(|line| line.split_whitespace().next()).collect();
        assert!(signs.contains(&"<") && signs.contains(&">") && !signs.contains(&"-"), "{text}");
        let json: Value =
            serde_json::from_str(&bench.ok(&[&review(arch, "old.S", "moved.S")[..], &["--format", "json"]].concat()))
                .unwrap();
        let schema = serde_json::from_str(&bench.ok(&["report", "schema", "review"])).unwrap();
        jsonschema::validate(&schema, &json).unwrap();
        let faults = &json["faults"];
        // Of a save that is wrong, all is noticed, by the function that has another argument then, too.
        assert!(faults["run"].as_u64().unwrap() > 0 && faults["run"] == faults["noticed"], "{json}");
        let mut wrong = faults["unnoticed"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|f| f["mutant"].as_str().unwrap().starts_with("DROP_SAVE"));
        assert!(wrong.next().is_none(), "{json}");
    }
}

#[test]
fn what_the_kernels_tests_do_not_look_at_is_named() {
    for (arch, _) in arches() {
        let bench = patched(arch);
        let text = bench.ok(&review(arch, "old.S", "told.S"));
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words.contains("never look at parent_ip, so not ftrace_caller ") && words.contains("(P10 parent_ip)"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 75), "{text}");
        let text = bench.ok(&[&review(arch, "old.S", "told.S")[..], &["--format", "markdown"]].concat());
        assert!(text.starts_with("**`told.S` holds") && text.contains("  ```diff\n"), "{text}");
        // The same code has nothing that is new.
        let text = bench.ok(&review(arch, "old.S", "old.S"));
        assert!(text.contains("none were tried: no instruction is new"), "{text}");
    }
}

/// `diff --contract` says what the contract does, and where the instructions went.
#[test]
fn a_comparison_takes_a_contract_too() {
    for (arch, _) in arches() {
        let bench = patched(arch);
        let assemble = |name: &str| {
            let assembler = format!("{}as", common::tools_of(arch));
            bench.tool(&assembler, &[&format!("{name}.S"), "-o", &format!("{name}.o")]);
            format!("{name}.o:ftrace_caller")
        };
        let [old, moved, lost] = ["old", "moved", "lost"].map(assemble);
        let diff = |code, new: &str| bench.ends(code, &["diff", &old, new, "--contract", "old.toml"]);
        let text = diff(0, &moved);
        assert!(
            text.contains(&format!("{moved} holds")) && text.contains("the same in behaviour")
                || text.contains("the same, "),
            "{text}"
        );
        assert!(text.contains("\n  < ") && text.contains("\n  > ") && !text.contains("\n  - "), "{text}");
        let text = diff(1, &lost);
        assert!(text.contains("\nWorse\n") && text.contains("breaks traced code"), "{text}");
        let json: Value =
            serde_json::from_str(&bench.ends(1, &["diff", &old, &lost, "--contract", "old.toml", "--format", "json"]))
                .unwrap();
        let schema = serde_json::from_str(&bench.ok(&["report", "schema", "diff"])).unwrap();
        jsonschema::validate(&schema, &json).unwrap();
        assert_eq!(json["by_contract"]["worse"][0]["clause"], "P1", "{json}");
        bench.refuses(&["diff", &old, &lost, "--contract", "none.toml"], &["none.toml"]);
    }
}

#[test]
fn what_cannot_be_reviewed_is_refused() {
    let bench = patched(common::any());
    let arch = common::any();
    bench.refuses(&review(arch, "old.S", "missing.S"), &["missing.S"]);
    bench.refuses(&["review", "old.S", "old.S", "--contract", "old.toml"], &["--arch"]);
    bench.refuses(&["review", "old.S", "old.S", "--arch", arch, "--contract", "none.toml"], &["none.toml", "valid"]);
    std::fs::write(bench.path("empty.S"), "\t.text\n").unwrap();
    bench.refuses(&review(arch, "old.S", "empty.S"), &["empty.S", "ftrace_caller"]);
    bench.refuses(&review(arch, "old.S", "linux-6.12"), &["linux-6.12"]);
}

/// `lab/xtask/kernel/kernels.toml`.
#[derive(Deserialize)]
struct Kernels {
    machine: Vec<Machine>,
}

#[derive(Deserialize)]
struct Machine {
    name: String,
    kernel: Vec<Kernel>,
}

#[derive(Deserialize)]
struct Kernel {
    profile: String,
    fault: Vec<(String, String)>,
}

/// Kernels with these faults did not pass their own tests: docs/real-kernels.md.
#[test]
fn faults_that_a_kernel_noticed_are_not_called_unnoticed() -> Result<()> {
    let kernels = concat!(env!("CARGO_MANIFEST_DIR"), "/lab/xtask/kernel/kernels.toml");
    let kernels: Kernels = toml::from_str(&std::fs::read_to_string(kernels).unwrap()).unwrap();
    assert_eq!(kernels.machine.len(), arches().len());
    for (arch, kernel) in kernels.machine.iter().flat_map(|m| m.kernel.iter().map(|kernel| (&m.name, kernel))) {
        let convention = tool::profile(&kernel.profile)?.convention(arch)?;
        let subject = MutationSubject::new(tool::backend(arch)?, convention, &[])?;
        for (what, fault) in &kernel.fault {
            let (trampoline, mutant) = fault.split_once(':').unwrap();
            // Offsets are those of that kernel.
            let (mutant, one_of_several) = mutant.split_once('@').map_or((mutant, false), |(mutant, _)| (mutant, true));
            let mut noticed = 0;
            for candidate in subject.mutants(|name| name == trampoline)? {
                if !tool::mutate::bugs::named(mutant, &candidate.mutant) {
                    continue;
                }
                let failed = places(&candidate, 1)?.unwrap();
                let reasons = unnoticed(arch, &failed)?;
                assert!(reasons.is_none() || one_of_several, "{what}: {failed:?}: {reasons:?}");
                noticed += usize::from(reasons.is_none());
                if noticed > 0 && one_of_several {
                    break;
                }
            }
            assert!(noticed > 0, "{arch}, {}: {fault}", kernel.profile);
        }
    }
    Ok(())
}
