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

/// The first thing that is told is what was lost, not what could not be run for that.
#[test]
fn causes_come_before_what_follows() {
    for (arch, _) in arches() {
        let bench = Bench::new();
        let made = ["gen", "ftrace_caller", "ftrace_stub_direct_tramp", "--arch", arch, "--emit"];
        bench.ok(&[&made[..], &["obj,contract", "--stem", "old"]].concat());
        let faulty = |fault: &str| bench.run(&[&made[..], &["obj", "--stem", "new", "--fault", fault]].concat());
        // Among them are the way back, and registers with arguments.
        let known = String::from_utf8(faulty("ftrace_caller:none").stderr).unwrap();
        let faults = known.split(", ").filter(|name| name.starts_with("DROP_RESTORE(") && name.contains(")@"));
        let faults: Vec<&str> = faults.take(4).collect();
        assert_eq!(faults.len(), 4, "{known}");
        for fault in faults {
            assert!(faulty(&format!("ftrace_caller:{fault}")).status.success(), "{fault}");
            let review = ["review", "old.o", "new.o", "--contract", "old.toml", "--format", "json"];
            let json: Value = serde_json::from_str(&bench.ends(1, &review)).unwrap();
            let worse = json["worse"].as_array().unwrap();
            let lost = |change: &Value| change["found"].as_str().unwrap().starts_with("expected ");
            let coverage = |change: &Value| change["clause"] == "coverage";
            let first = worse.iter().take_while(|change| lost(change)).count();
            assert!(first > 0 && !worse[first..].iter().any(lost), "{arch} {fault}: {worse:?}");
            let mut rest = worse.iter().skip_while(|change| !coverage(change));
            assert!(rest.all(coverage), "{arch} {fault}: {worse:?}");
        }
    }
}

/// A frame that is laid out anew on purpose is judged by the contract of its own side.
#[test]
fn each_side_may_have_a_contract_of_its_own() {
    let bench = Bench::new();
    let made = |stem: &str, set: &[&str]| {
        let options = ["--arch", "arm64", "--emit", "obj,contract", "--stem", stem];
        bench.ok(&[&["gen", "ftrace_caller"], &options[..], set].concat());
    };
    made("old", &[]);
    made("new", &["--set", "FREGS_X8=72", "--set", "FREGS_DIRECT_TRAMP=64"]);
    let json = |code, by: &[&str]| -> Value {
        let review = ["review", "old.o", "new.o", "--format", "json"];
        serde_json::from_str(&bench.ends(code, &[&review[..], by].concat())).unwrap()
    };
    let own = ["--old", "old.toml", "--new", "new.toml"];
    let by_own = json(0, &own);
    assert_eq!((&by_own["contract_before"], &by_own["contract"]), (&"old.toml".into(), &"new.toml".into()));
    assert_eq!(by_own["worse"], Value::Array(Vec::new()), "{by_own}");
    assert_ne!(json(1, &["--contract", "old.toml"])["worse"], Value::Array(Vec::new()));
    assert_eq!(json(0, &["--contract", "new.toml", "--old", "old.toml"])["worse"], Value::Array(Vec::new()));
    let text = bench.ok(&[&["review", "old.o", "new.o"], &own[..]].concat());
    assert!(text.contains("before by the contract old.toml, now by new.toml, seed 1"), "{text}");
    bench.refuses(&["review", "old.o", "new.o", "--old", "old.toml"], &["--contract"]);
}

/// The build tree of a configured kernel promises what is generated for it.
#[test]
fn a_build_tree_stands_for_a_contract() {
    let bench = Bench::new();
    let config = |more: &str| {
        let tracer = ["", "_WITH_ARGS", "_WITH_REGS", "_WITH_DIRECT_CALLS"].map(|with| format!("DYNAMIC_FTRACE{with}"));
        let options = ["64BIT", "X86_64", "FUNCTION_TRACER", more].map(str::to_owned).into_iter().chain(tracer);
        let options: String = options.map(|option| format!("CONFIG_{option}=y\n")).collect();
        format!("#\n# Automatically generated file; DO NOT EDIT.\n# Linux/x86 7.3.0 Kernel Configuration\n#\n{options}")
    };
    for (tree, unwinder) in [("orc", "UNWINDER_ORC"), ("fp", "FRAME_POINTER")] {
        std::fs::create_dir_all(bench.path(tree).join("include/generated")).unwrap();
        std::fs::write(bench.path(tree).join("include/generated/asm-offsets.h"), "").unwrap();
        std::fs::write(bench.path(tree).join(".config"), config(unwinder)).unwrap();
        let made = ["gen", "ftrace_caller", "ftrace_stub_direct_tramp", "--kernel-build", tree];
        let out = bench.run(&[&made[..], &["--emit", "obj", "-o", ".", "--stem", tree]].concat());
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
    let review = ["review", "orc.o", "fp.o", "--format", "json"];
    let json: Value =
        serde_json::from_str(&bench.ok(&[&review[..], &["--old", "orc", "--new", "fp"]].concat())).unwrap();
    assert_eq!((&json["worse"], &json["contract"]), (&Value::Array(Vec::new()), &"fp".into()), "{json}");
    // Of that which has frame pointers, the other loses them.
    let back = ["review", "fp.o", "orc.o", "--old", "fp", "--new", "fp"];
    assert!(bench.ends(1, &back).contains("\nWorse\n"));
}

/// Names of others are code in Markdown, and words of others do nothing there.
#[test]
fn markdown_does_not_obey_names() {
    let name = "t`|<b>@me\u{202e}";
    for (arch, prefix) in arches() {
        let bench = Bench::new();
        let gen_old = ["gen", "direct", "--args", "1", "--call", "f", "--name", "tramp_name", "--arch", arch];
        bench.ok(&[&gen_old[..], &["--emit", "asm,contract", "--stem", "t"]].concat());
        let named = |file: &str, before: &str, callee: &str| {
            let text = std::fs::read_to_string(bench.path("t.S")).unwrap();
            let line = |line: &str| match line.strip_suffix("\tf") {
                _ if line.trim_start().starts_with(['#', '/']) => String::new(),
                Some(call) => format!("{before}{call}\t\"{callee}\""),
                None => line.to_owned(),
            };
            let text: Vec<String> = text.lines().map(line).collect();
            let text = text.join("\n").replace("tramp_name", &format!("\"{name}\"")) + "\n";
            std::fs::write(bench.path(&format!("{file}.s")), text).unwrap();
            bench.tool(&format!("{prefix}as"), &[&format!("{file}.s"), "-o", &format!("{file}.o")]);
        };
        named("old", "", "f");
        named("new", "", &format!("{name}2"));
        named("more", "\tnop\n", "f");
        let contract = std::fs::read_to_string(bench.path("t.toml")).unwrap();
        std::fs::write(bench.path("t.toml"), contract.replace("tramp_name", "t`|<b>@me\\u202e")).unwrap();
        for command in [
            vec!["diff", "old.o", "new.o", "--format", "markdown"],
            vec!["review", "old.o", "more.o", "--contract", "t.toml", "--format", "markdown"],
        ] {
            let out = bench.run(&command);
            let text = String::from_utf8(out.stdout).unwrap();
            assert!(text.contains("<b>@me"), "{arch} {command:?}: {text} {}", String::from_utf8_lossy(&out.stderr));
            assert!(!text.contains('\u{202e}'), "{text}");
            // Between fences, and in spans that a longer fence begins, everything is itself.
            let outside: String =
                text.split("```diff").map(|part| part.split_once("```\n").map_or(part, |(_, rest)| rest)).collect();
            let mut spans = outside.split("``");
            let words: String = spans.by_ref().step_by(2).collect();
            for obeyed in ["<b>", "@me", "`|"] {
                assert!(!words.contains(obeyed), "{obeyed} in {words}\nof {text}");
            }
        }
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

/// Where nothing fails, a clause that nobody decides any more is told: here a trampoline runs for too long to be interrupted everywhere.
#[test]
fn what_is_not_checked_any_more_is_told_if_nothing_else_fails() {
    let bench = Bench::new();
    let made = ["gen", "direct", "--args", "2", "--call", "f", "--profile", "bare", "--emit", "asm,contract"];
    bench.ok(&[&made[..], &["--arch", "x86_64", "--stem", "old"]].concat());
    let old = std::fs::read_to_string(bench.path("old.S")).unwrap();
    let new = old.replace("\tcall\tf\n", "\tmov $3000, %r11d\n1:\tdec %r11d\n\tjnz 1b\n\tcall\tf\n");
    std::fs::write(bench.path("new.S"), new).unwrap();
    let text = bench.ends(1, &review("x86_64", "old.S", "new.S"));
    assert!(text.contains("0 fail") && text.contains("f_tramp P25 "), "{text}");
}
