//! `compose`: the command as its users have it. What the oracle finds is judged in `lab/compose/tests`.

mod common;

use common::Bench;

/// The kernel's graph shows returns to its user in slot 0 of functions that only another user traces: `docs/findings.md`.
const FINDING: &str = "\
  u0: graph user on f0, object 26
  1 graph users come
  register u0
  f0
  event 5: expected return handler of object 26 for f0, call 0, caller 0x0, depth 0, value 0x685c1e9e305eef81, data 0x0
         : seen     return handler of object 2048 for f0, call 0, caller 0x0, depth 0, value 0x685c1e9e305eef81, data 0x0
";
const LINUX: [&str; 7] = ["compose", "--core", "kernel-7.3", "--users", "graph", "--random", "300"];

#[test]
fn events_that_agree_are_counted() {
    let b = Bench::new();
    assert_eq!(b.ok(&["compose", "--random", "500"]), "runtime: 500 cases, 0 differ from the model\n");
    // Two users have four subsets, each with 9 shapes at 9 moments.
    let all = b.ok(&["compose", "--all", "--users", "graph,fprobe"]);
    assert_eq!(all, "runtime: 324 cases, 0 differ from the model\n");
    let both = b.ok(&["compose", "--all", "--users", "graph", "--random", "2", "--seed", "7"]);
    assert_eq!(both, "runtime: 164 cases, 0 differ from the model\n");
    let repaired = b.ok(&["compose", "--core", "kernel-7.3-repaired", "--all", "--users", "args,graph"]);
    let numbers: Vec<u64> = repaired.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [cases, 0, skipped] = numbers[..] else { panic!("{repaired}") };
    assert_eq!(cases + skipped, 324, "{repaired}");
    assert!(
        cases > 0 && repaired.ends_with(" cases have users or acts that kernel-7.3-repaired has not\n"),
        "{repaired}"
    );
}

#[test]
fn what_differs_is_shown_small_with_the_command_that_repeats_it() {
    let b = Bench::new();
    let long = b.ends(1, &LINUX);
    let small = b.ends(1, &[&LINUX[..], &["--minimise"]].concat());
    assert!(small.contains(FINDING), "{small}");
    assert!(!long.contains(FINDING) && long.lines().count() > small.lines().count(), "{long}");
    let counts = |out: &str| out.lines().find(|line| line.starts_with("kernel-7.3: ")).map(str::to_owned);
    assert_eq!(counts(&long), counts(&small));
    for failure in small.split("\n\n").filter(|part| part.starts_with("case ")) {
        let (shown, again) = failure.split_once("  again: ").unwrap();
        let once = b.shell(1, again.trim());
        assert!(once.starts_with(shown), "{again}: {once}");
        assert!(once.contains("kernel-7.3: 1 cases, 1 differ"), "{again}: {once}");
    }
    // The same number without what is repaired in another core does not fail.
    let number = small.strip_prefix("case ").unwrap().split(':').next().unwrap();
    let good = ["compose", "--users", "graph", "--random", "300", "--case", number];
    assert_eq!(b.ok(&good), "runtime: 1 cases, 0 differ from the model\n");
}

#[test]
fn a_number_names_the_same_case_with_and_without_the_others() {
    let b = Bench::new();
    let all = ["compose", "--core", "kernel-7.3", "--all", "--users", "graph,graph2"];
    let out = b.ends(1, &all);
    let number = out.split("case ").nth(1).unwrap().split(':').next().unwrap();
    let one = b.ends(1, &[&all[..], &["--case", number]].concat());
    assert!(one.starts_with(&format!("case {number}:\n")), "{one}");
    assert!(out.contains(one.split("\n\n").next().unwrap()), "{out}\n{one}");
}

#[test]
fn what_cannot_be_run_is_refused_by_name() {
    let b = Bench::new();
    let refused = |args: &[&str], parts: &[&str]| b.refuses(&[&["compose"], args].concat(), parts);
    refused(&["--core", "kernel-7"], &["core 'kernel-7'", "runtime", "kernel-6.12", "kernel-7.3-repaired"]);
    refused(&["--users", "graph,grpah"], &["user 'grpah'", "graph2", "kretprobe"]);
    refused(&["--random", "0"], &["no case to run", "--all"]);
    refused(&["--random", "many"], &["'many'", "--random"]);
    refused(&["--random", "5", "--case", "5"], &["no case 5", "below 5"]);
    refused(&["--all", "--users", "args", "--case", "2"], &["no case to run"]);
    refused(&["--core", "kernel-6.12", "--users", "hijack", "--random", "1"], &["kernel-6.12 has not", "1 cases"]);
    refused(&["--seed", "18446744073709551616"], &["--seed"]);
    refused(&["more"], &["'more'"]);
}
