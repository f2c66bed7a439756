//! What a listing says that its trampoline costs is what is counted while it runs, and results/cost.md has it.

mod common;

use std::path::Path;
use std::process::Command;

use codegen::ask::spec::Kind;
use emu_tests::Situation;

#[test]
fn the_cost_that_is_told_is_the_cost_that_is_counted() {
    let mut compared = 0;
    for backend in tool::BACKENDS {
        for target in common::targets(*backend) {
            // What aligning SP takes is not known before it runs.
            if target.realign.is_some() {
                continue;
            }
            let suite = tool::suite::suite(*backend, &target).unwrap();
            let trampolines = tool::suite::trampolines(&target).unwrap();
            for spec in tool::suite::specs(&trampolines) {
                let (_, spent) = emu_tests::spent(&suite, spec.name).unwrap();
                let cost = backend.text(&spec, &target).unwrap().cost;
                let what = format!("{} {} {}", target.facts.name, spec.name, suite.options);
                if spent.is_empty() {
                    // What no site goes to: a callback, or what code calls wherever it is.
                    assert!(matches!(spec.kind, Kind::Stub | Kind::StubGraph | Kind::Sled), "{what}: never ran");
                }
                for s in &spent {
                    let counted = (s.executed, s.loads, s.stores);
                    let told = cost.paths.iter().map(|p| (p.executed, p.loads, p.stores));
                    let told: Vec<_> = told.collect();
                    // In code that is retired or detached stands what the listing does not have.
                    let jumps = matches!(s.situation, Situation::Retired | Situation::Detached { .. });
                    let listed = jumps || told.contains(&counted);
                    assert!(listed, "{what}, {}: counted {counted:?} of {told:?}", s.situation);
                    let probed = s.situation.rethook();
                    let hooked = s.situation.parent() && !probed && !spec.kind.for_one_function();
                    // Where the return address is in a register, what goes to a direct trampoline is a jump.
                    let jumps = suite.options.contains("direct-way=jmp") || target.facts.abi.link.is_some();
                    let sent = s.situation.direct() || s.situation.direct_jump();
                    let pushed = u32::from(sent && !jumps);
                    // A hooked return costs the function's own prediction, and what the way back to the parent costs.
                    let exit = &target.convention.exit;
                    let (mispredicted, left) =
                        if hooked { (exit.mispredicted, -(exit.unpaired as i32)) } else { (0, 0) };
                    // Nothing returns where the site called from, so the parent's call is left over.
                    let skipped = i32::from(spec.kind.calls_body() && !spec.kind.jumped_to());
                    // So does a kretprobe: the function's RET goes to its trampoline, and that one's elsewhere than behind its
                    // call, which keeps the balance.
                    let probes = if probed { 2 } else { 0 };
                    let (mispredicted, left) = (mispredicted + pushed + probes + skipped as u32, left + skipped);
                    assert_eq!((s.mispredicted, s.imbalance), (mispredicted, left), "{what}, {}", s.situation);
                    let promised = codegen::contract::Contract::of(&spec, &target).unwrap().mispredicted;
                    if spec.kind == Kind::Return || spec.kind.for_one_function() {
                        assert_eq!(promised, mispredicted, "{what}");
                    }
                    compared += 1;
                }
                let deepest = spent.iter().map(|s| s.stack).max();
                assert!(deepest.is_none_or(|d| d == cost.stack as u32), "{what}: {deepest:?} of {}", cost.stack);
            }
        }
    }
    assert!(compared > 100, "{compared}");
}

const COST: &str = include_str!("../results/cost.md");

fn table(cache: &Path) -> String {
    let mut tool = Command::new(env!("CARGO_BIN_EXE_tramptool"));
    let run = tool.args(["cost", "--table"]).env("TRAMPTOOL_KERNEL_CACHE", cache).output().unwrap();
    assert!(run.status.success() && run.stderr.is_empty(), "{}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8(run.stdout).unwrap()
}

fn kernels(line: &str) -> bool {
    line.starts_with("| kernel's ")
}

#[test]
fn the_table_has_what_ours_spend_now() {
    let now = table(Path::new("/nonexistent"));
    let ours: Vec<&str> = COST.lines().filter(|line| !kernels(line)).collect();
    assert_eq!(now.lines().count(), ours.len(), "results/cost.md is stale: `tramptool cost --table` writes it");
    for (now, then) in now.lines().zip(ours) {
        assert_eq!(now, then, "results/cost.md is stale: `tramptool cost --table` writes it");
    }
}

/// Nothing is spent that the kernel's own does not spend, or the row says why; and what it says is needed.
#[test]
fn the_table_says_why_ours_spend_more() {
    let (mut compared, mut less, mut more, mut reasons) = (0, 0, 0, std::collections::BTreeMap::new());
    for (theirs, ours) in COST.lines().zip(COST.lines().skip(1)).filter(|(line, _)| kernels(line)) {
        let cell = |line: &'static str, i: usize| line.split('|').nth(i + 1).unwrap().trim();
        let figures = |line| [2, 3, 4, 5].map(|i| cell(line, i).parse::<u32>().unwrap());
        let (before, after, why) = (figures(theirs), figures(ours), cell(ours, 8));
        let above = before.iter().zip(&after).any(|(theirs, ours)| ours > theirs);
        assert!(!above || !why.is_empty(), "no reason: {ours}");
        *reasons.entry(why).or_insert(false) |= above;
        compared += 1;
        (less, more) = (less + u32::from(before > after), more + u32::from(above));
    }
    assert!(compared > 40 && less > 20 && more < compared / 2, "{compared} {less} {more}");
    reasons.remove("");
    assert!(reasons.values().all(|needed| *needed), "{reasons:?}");
}

#[test]
#[ignore = "needs the kernel's objects: cargo xtask kernel-objects"]
fn the_table_has_what_the_kernels_own_spend() {
    assert!(
        table(&kernel_cache::directory().unwrap()) == COST,
        "results/cost.md is stale: `tramptool cost --table` writes it"
    );
}
