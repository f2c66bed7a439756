//! `check --minimise`: the smallest case that fails in the same way, not the one that is found first.

use codegen::ask::option::Choices;
use codegen::words::abi::RegSet;
use emu_tests::{Filter, Report, Suite};
use serde_json::Value;
use tool::minimise::minimise;

use common::Bench;

mod common;

/// Loses rsi when the function is `pair` or `leaf`, and its callback changed the first argument and went elsewhere, or
/// hooked the return.
const SOMETIMES: &str = concat!(
    "
    .globl  my_entry, my_call, my_rethook
my_entry:
    push    8(%rsp)
    push    8(%rsp)
    push    %rdi
    .irp    reg, rax, r9, r8, rcx, rdx, rsi, rdi
    push    %\\reg
    .endr
    mov     64(%rsp), %rdi
    sub     $5, %rdi
    mov     72(%rsp), %rsi
    lea     ops(%rip), %rdx
    mov     %rsp, %rcx
my_call:
    call    ftrace_stub
    mov     56(%rsp), %r10
    cmp     %r10, (%rsp)
    je      1f
    mov     64(%rsp), %r10
    cmp     %r10, 80(%rsp)
    jne     2f
1:  mov     72(%rsp), %r10
    cmp     %r10, 88(%rsp)
    je      3f
2:  .irp    function, pair, leaf
    lea     \\function(%rip), %r10
    sub     64(%rsp), %r10
    add     $16, %r10
    cmp     $16, %r10
    jb      4f
    .endr
3:  .irp    reg, rdi, rsi, rdx, rcx, r8, r9, rax
    pop     %\\reg
    .endr
    add     $24, %rsp
    ret
4:  movq    $0, 8(%rsp)
    jmp     3b
    .size   my_entry, . - my_entry
",
    include_str!("common/rethook.S")
);

const CONTRACT: &str = r#"
arch = "x86_64"
about = "an entry trampoline, and the trampoline of a kretprobe"

[frame.entry]
struct = "args"
size = 88
field = [
    { member = "di", offset = 0, holds = "rdi", stores = "take-effect" },
    { member = "ip", offset = 80, holds = "pc", stores = "take-effect" },
]

[frame.rethook]
struct = "pt_regs"
size = 136
field = [{ member = "return", offset = 128, holds = "parent-ip", stores = "take-effect" }]

[[trampoline]]
symbol = "my_entry"
kind = "entry"
slot = "my_call"
frame = "entry"
stack-align = 8

[[trampoline]]
symbol = "my_rethook"
kind = "rethook"
calls = "my_c"
frame = "rethook"
keeps-flags = true
unpaired = 1
stack-align = 8
"#;

/// Clause, place and command of each failure.
fn failures(report: &str) -> Vec<[String; 3]> {
    let report: Value = serde_json::from_str(report).unwrap();
    let rows = report["results"].as_array().unwrap().iter();
    let failures = rows.flat_map(|r| r["failures"].as_array().into_iter().flatten());
    failures.map(|f| ["clause", "place", "replay"].map(|k| f[k].as_str().unwrap().to_owned())).collect()
}

#[test]
fn the_smallest_case_is_told_and_none_is_smaller() {
    let b = Bench::new();
    std::fs::write(b.path("t.S"), SOMETIMES).unwrap();
    std::fs::write(b.path("t.toml"), CONTRACT).unwrap();
    b.tool("x86_64-linux-gnu-as", &["t.S", "-o", "t.o"]);
    let check = ["check", "--object", "t.o", "--contract=t.toml"];
    let json = ["--format", "json"];
    let first = failures(&b.ends(1, &[&check[..], &json].concat()));
    assert!(first[0][2].contains(" --function pair --situation args+ip "), "{first:?}");
    // What is found first with the larger function, in two situations, is one failure.
    let smallest = failures(&b.ends(1, &[&check[..], &json, &["--minimise"]].concat()));
    let [[clause, place, replay]] = &smallest[..] else { panic!("{smallest:?}") };
    assert_eq!((clause.as_str(), place.as_str()), ("P1", "rsi"));
    assert!(replay.contains(" --attached my_entry --fixture plain --function leaf --situation rethook "), "{replay}");
    let again = b.shell(1, &format!("{replay} --format json"));
    assert_eq!(failures(&again), smallest);
    // No situation but this one is run.
    assert_eq!(serde_json::from_str::<Value>(&again).unwrap()["scenarios"], 1);
    for other in ["plain", "args"] {
        b.shell(0, &replay.replace("--situation rethook", &format!("--situation {other}")));
    }
    for simpler in [&["--function=args0"][..], &["--function=args1"], &["--function=leaf", "--situation=plain"]] {
        b.ok(&[&check[..], &["my_entry"], simpler].concat());
    }
    // Within what is asked for.
    let asked = ["--function=pair", "--situation=args+ip", "--minimise"];
    assert_eq!(failures(&b.ends(1, &[&check[..], &json, &asked].concat()))[0], first[0]);
}

/// Generated trampolines that are held to more than they promise, under some options.
#[test]
fn the_fewest_options_are_changed() {
    let backend = tool::backend("x86_64").unwrap();
    let abi = &backend.facts().abi;
    let r11 = abi.find("r11").unwrap();
    let mut suites: Vec<Suite> = Vec::new();
    // In this order, the one with the fewest changes that fails is neither the first nor the last.
    for changes in [&[0, 1, 2][..], &[0, 2], &[], &[2], &[0, 1]] {
        let choices = changes.iter().fold(Choices::default(), |c, i| c.with(*i, 1));
        let mut suite =
            tool::suite::suite(backend, &backend.target(tool::convention(backend).unwrap(), choices).unwrap()).unwrap();
        let contract = suite.contracts.iter_mut().find(|c| c.name == "direct_1").unwrap();
        if !changes.is_empty() {
            contract.kept = contract.kept.union(RegSet::of(&[r11]));
        }
        suites.push(suite);
    }
    let filter = Filter { trampolines: vec!["direct_1".to_owned()], ..Filter::default() };
    let found = emu_tests::check(&suites, &filter, 1, &|_, _| {}).unwrap();
    let minimised = |suites: &[&Suite]| -> Report {
        let mut report = found.clone();
        minimise(suites, &filter, &mut report).unwrap();
        report
    };
    let report = minimised(&suites.iter().collect::<Vec<_>>());
    let failing: Vec<_> = report.results.iter().filter(|r| !r.failures.is_empty()).collect();
    assert_eq!(failing.len(), 4);
    for row in failing {
        let [failure] = &row.failures[..] else { panic!("{row:?}") };
        let fewest = tool::suite::settings(
            backend,
            &backend.target(tool::convention(backend).unwrap(), Choices::default().with(2, 1)).unwrap(),
        );
        let fewest = fewest.join(" --set ");
        assert!(failure.replay.contains(&format!("{fewest} --attached direct_1 --fixture")), "{}", failure.replay);
        assert!(failure.replay.contains("--function args1 --situation plain"), "{}", failure.replay);
    }
    // Whatever the order in which the suites come.
    assert_eq!(minimised(&suites.iter().rev().collect::<Vec<_>>()), report);
}
