//! What `check` writes for reading: the verdict first, nothing wider than the terminal, no word of a loss where nothing failed.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{Bench, CHECK_BROKEN, broken};

/// The same text, with commands in one line again.
fn joined(out: &str) -> String {
    out.replace(" \\\n      ", " ")
}

#[test]
fn the_verdict_is_in_the_first_lines() {
    let b = Bench::new();
    let lines = b.ok(&["check", "ftrace_stub"]);
    assert!(lines.starts_with("holds: 3 trampolines\n"), "{lines}");
    let arches: Vec<&str> = tool::BACKENDS.iter().map(|b| b.facts().name).collect();
    let mut rows = lines.lines().skip(1);
    let titles = ["trampolines", "options", "scenarios", "hold", "deviate", "fail"];
    assert_eq!(rows.next().unwrap().split_whitespace().collect::<Vec<_>>(), titles);
    let report: serde_json::Value = serde_json::from_str(&b.ok(&["check", "ftrace_stub", "--format", "json"])).unwrap();
    for (row, arch) in rows.by_ref().zip(&arches) {
        let of: Vec<&serde_json::Value> =
            report["results"].as_array().unwrap().iter().filter(|r| r["arch"] == *arch).collect();
        let options: BTreeSet<&str> = of.iter().map(|r| r["options"].as_str().unwrap()).collect();
        let scenarios = report["scenarios_by_arch"][arch].to_string();
        let expected = [arch, "1", &options.len().to_string(), &scenarios, "1", "0", "0"];
        assert_eq!(row.split_whitespace().collect::<Vec<_>>(), expected, "{lines}");
    }
    let sum: u64 = report["scenarios_by_arch"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(report["scenarios"], sum);
    // Nothing fails or deviates: there is no matrix.
    assert!(!lines.contains("clauses that") && !lines.contains("P1"), "{lines}");
    broken(&b);
    let out = b.ends(1, &CHECK_BROKEN);
    assert!(out.starts_with("fails: 1 trampoline, 1 with clauses that fail\n"), "{out}");
    let numbers = out.lines().nth(2).unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!((&numbers[..3], &numbers[4..]), (&["arm64", "1", "1"][..], &["0", "0", "1"][..]));
    assert!(out.lines().nth(4).unwrap().starts_with("FAIL P1 of arm64 my_handler_tramp"), "{out}");
}

#[test]
fn only_what_fails_is_reported_without_being_asked() {
    let b = Bench::new();
    broken(&b);
    let out = b.ends(1, &CHECK_BROKEN);
    let heading = out.lines().skip_while(|l| !l.starts_with("arm64: clauses that fail")).nth(1).unwrap();
    let named: Vec<&str> = heading.split_whitespace().collect();
    assert!(named.contains(&"P1") && !named.contains(&"P9"), "{out}");
    let all = b.ends(1, &[&CHECK_BROKEN[..], &["-v"]].concat());
    for (what, without) in
        [("arm64: registers", false), ("landing pads and types fit", false), ("  ok P9 ", false), ("FAIL P1 ", true)]
    {
        assert_eq!((out.contains(what), all.contains(what)), (without, true), "{what}\n{all}");
    }
}

/// `./x demo` ends with `check` of everything and what `x` prints after it.
#[test]
fn the_last_screen_of_the_demo_has_25_lines() {
    const SCREEN: usize = 25;
    let script = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/x")).unwrap();
    let demo = script.split("\ndemo() {").nth(1).unwrap().split("\n}").next().unwrap();
    let (_, after) = demo.split_once("\n    \"$target/debug/tramptool\" check\n").unwrap();
    // Each of these lines prints one; a loop or a call of another tool would not be counted.
    let one = |line: &str| line.trim_start().starts_with("say \"") || line.trim_start().starts_with("took ");
    assert!(after.lines().all(one), "{after}");
    let b = Bench::new();
    let out = b.ok(&["check"]);
    let printed = out.lines().count() + after.lines().count();
    assert!(printed <= SCREEN, "{printed} lines:\n{out}{after}");
    // One line a clause, and the clauses that deviate are those of the rows.
    let deviating: Vec<&str> = out.lines().filter(|l| l.starts_with("  P")).collect();
    let words: Vec<Vec<&str>> = deviating.iter().map(|l| l.split_whitespace().take(2).collect()).collect();
    let report: serde_json::Value = serde_json::from_str(&b.ok(&["check", "--format", "json"])).unwrap();
    let mut trampolines: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
    for row in report["results"].as_array().unwrap().iter().filter(|r| r["verdict"] == "deviates") {
        let [clause, arch, name] = ["clause", "arch", "trampoline"].map(|key| row[key].as_str().unwrap());
        trampolines.entry(clause).or_default().insert((arch, name));
    }
    let expected: Vec<Vec<String>> =
        trampolines.iter().map(|(clause, of)| vec![(*clause).to_owned(), of.len().to_string()]).collect();
    assert_eq!(words, expected, "{out}");
}

/// A pipe has 80 columns.
#[test]
fn no_line_is_wider_than_eighty_columns() {
    let b = Bench::new();
    broken(&b);
    for more in [&[][..], &["-v"]] {
        let failing = b.ends(1, &[&CHECK_BROKEN[..], more].concat());
        let caller =
            b.ok(&[&["check", "ftrace_caller", "--arch", "riscv64", "--function", "args2"][..], more].concat());
        let all = failing.lines().chain(caller.lines());
        // The code around a failure is not cut where everything is asked for.
        let long: Vec<&str> =
            all.filter(|l| l.chars().count() > 80 && (more.is_empty() || !l.contains("//"))).collect();
        assert_eq!(long, [""; 0]);
    }
}

#[test]
fn the_command_that_shows_a_failure_again_can_be_pasted() {
    let b = Bench::new();
    broken(&b);
    let out = b.ends(1, &CHECK_BROKEN);
    let at = out.find("again: tramptool ").unwrap();
    assert!(out[at..].contains(" \\\n"), "{out}");
    let one = joined(&out[at..]);
    let json = b.ends(1, &[&CHECK_BROKEN[..], &["--format", "json"]].concat());
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    let failing = |row: &&serde_json::Value| row["verdict"] == "fail";
    let replay = report["results"].as_array().unwrap().iter().find(failing).unwrap()["failures"][0]["replay"].clone();
    assert_eq!(one.lines().next().unwrap(), format!("again: {}", replay.as_str().unwrap()));
}

/// With that option, r11 is promised where the function goes on, and is lost on the way to a direct trampoline.
#[test]
fn nothing_is_called_lost_where_nothing_failed() {
    let b = Bench::new();
    let check = ["check", "ftrace_regs_caller", "--profile", "linux-6.12", "--arch", "x86_64", "--function", "args2"];
    let check = [&check[..], &["-v", "--set"]].concat();
    let letter = |out: &str| {
        let mut lines = out.lines().skip_while(|l| !l.starts_with("x86_64: registers"));
        let row = lines.find(|l| l.starts_with("  ftrace_regs_caller")).unwrap();
        // After the indent, the name and a blank: r8, r9, r10, r11.
        row.split_whitespace().nth(1).unwrap().chars().nth(3).unwrap()
    };
    let out = b.ok(&[&check[..], &["direct-way=jmp"]].concat());
    assert_eq!(letter(&out), 'o', "{out}");
    assert!(out.contains("ftrace_regs_caller: r11 promised on the way back into the traced function\n"), "{out}");
    assert!(!out.contains("LOST"), "{out}");
    assert_eq!(letter(&b.ok(&[&check[..], &["direct-way=ret"]].concat())), 'k');
}

#[test]
fn a_register_is_called_lost_where_a_clause_fails() {
    let b = Bench::new();
    broken(&b);
    let out = b.ends(1, &[&CHECK_BROKEN[..], &["-v"]].concat());
    let row =
        out.lines().skip_while(|l| !l.starts_with("arm64: registers")).find(|l| l.starts_with("  my_handler")).unwrap();
    assert!(row.contains(" kL"), "{out}");
}
