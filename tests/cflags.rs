//! `--cflags`: options as a real compiler reads the same flags.

use std::collections::BTreeSet;

use common::expected::{Cflags, expected};
use common::{Bench, arches};
use object::Object;

mod common;

/// What makes the difference in an object: these instructions, one that stands behind a return, and the ELF header's flags.
fn shown(bench: &Bench, tools: &str, object: &str, flags: &Cflags) -> (Vec<bool>, String) {
    let text = bench.tool(&format!("{tools}objdump"), &["-d", "--no-show-raw-insn", object]);
    let has = |line: &str, mnemonic: &str| line.split_whitespace().any(|word| word == mnemonic);
    let lines: Vec<&str> = text.lines().collect();
    let behind = |mnemonic: &String| lines.windows(2).any(|pair| has(pair[0], "ret") && has(pair[1], mnemonic));
    let anywhere = flags.shows.iter().map(|mnemonic| lines.iter().any(|line| has(line, mnemonic)));
    let bytes = std::fs::read(bench.path(object)).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let of_header = format!("{:?}", file.flags());
    (anywhere.chain(flags.behind_return.iter().map(behind)).collect(), of_header)
}

#[test]
fn flags_mean_what_they_mean_to_the_compiler() {
    let mut different = BTreeSet::new();
    for (arch, tools) in arches() {
        let cflags = &expected(tool::backend(arch).unwrap()).cflags;
        for flags in &cflags.flags {
            let bench = Bench::new();
            std::fs::write(bench.path("f.c"), "int g(int);\nint f(int n) { return g(n) + 1; }\n").unwrap();
            let words: Vec<&str> = flags.split(' ').collect();
            bench.tool(&format!("{tools}gcc"), &[&words[..], &["-O2", "-c", "f.c", "-o", "theirs.o"]].concat());
            let around = ["gen", "around", "--call", "enter", "--exit", "leave", "--function", "f", "--args", "1"];
            let target = ["--profile", "bare", "--arch", arch, "--stem", "ours", "--emit", "obj"];
            bench.ok(&[&around[..], &target, &["--cflags", flags]].concat());
            let [theirs, ours] = ["theirs.o", "ours.o"].map(|object| shown(&bench, tools, object, cflags));
            assert_eq!(ours, theirs, "{arch} {flags}");
            different.insert((arch, ours));
        }
    }
    // Landing pads and traps, apart and together; signatures; two ABIs.
    assert!(different.len() >= 7, "{different:?}");
}

#[test]
fn what_flags_cannot_decide_is_refused() {
    let bench = Bench::new();
    let entry = ["gen", "ftrace_caller", "--arch", common::any()];
    bench.refuses(&[&entry[..], &["--cflags", "-O2"]].concat(), &["linux-7.3", "--profile bare", "--kernel-build"]);
    bench.refuses(&["gen", "ftrace_caller", "--kernel-build", "tree", "--cflags", "-O2"], &["--cflags"]);
}

/// A trampoline guards its return address in one way.
#[test]
fn flags_that_ask_for_two_guards_are_refused() {
    let bench = Bench::new();
    let around = ["gen", "around", "--call", "enter", "--exit", "leave", "--function", "f", "--args", "1"];
    for (arch, _) in arches() {
        let expected = expected(tool::backend(arch).unwrap());
        let Some(other) = expected.shadow_call_stack.as_ref().map(|scs| &scs.refused_with) else { continue };
        let flags = format!("-fsanitize=shadow-call-stack {other}");
        let args = ["--profile", "bare", "--arch", arch, "--cflags", &flags];
        bench.refuses(&[&around[..], &args].concat(), &["--set guard-return=", "-fsanitize=shadow-call-stack", other]);
        bench.ok(&[&around[..], &args, &["--set", "guard-return=off"]].concat());
    }
}

#[test]
fn what_is_set_counts_for_more() {
    for (arch, _) in arches() {
        let [set, flag] = &expected(tool::backend(arch).unwrap()).cflags.overridden;
        let bench = Bench::new();
        let direct = ["gen", "direct", "--args", "1", "--call", "g", "--profile", "bare", "--arch", arch];
        let flag = ["--cflags", flag];
        let has = |text: &str| text.lines().nth(1).unwrap().contains(&format!(" {set}"));
        assert!(!has(&bench.ok(&[&direct[..], &flag].concat())), "{arch} {set}");
        assert!(has(&bench.ok(&[&direct[..], &flag, &["--set", set]].concat())), "{arch} {set}");
    }
}
