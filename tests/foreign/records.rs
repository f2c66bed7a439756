//! Records, by text that somebody has changed.

use crate::common::Bench;

/// A trampoline that records two arguments and the time, of an architecture, as lines of its text.
fn recorded(b: &Bench, arch: &str) -> Vec<String> {
    let kind =
        ["gen", "record", "--events", "entry", "--clock", "tsc", "--args", "2", "--sig", "long f(long a, long b)"];
    let of = ["--function", "f+8", "--name", "mine", "--arch", arch, "--profile", "bare"];
    b.ok(&[&kind[..], &of, &["--emit", "asm,contract", "--stem", "t", "-o", "."]].concat());
    std::fs::read_to_string(b.path("t.S")).unwrap().lines().map(str::to_owned).collect()
}

/// The clauses that fail of this text.
fn failures(b: &Bench, prefix: &str, lines: &[String]) -> String {
    std::fs::write(b.path("t.S"), lines.join("\n") + "\n").unwrap();
    b.tool(&format!("{prefix}as"), &["t.S", "-o", "t.o"]);
    let out = b.run(&["check", "--object", "t.o", "--contract", "t.toml"]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(i32::from(text.contains("\nFAIL "))), "{text}");
    text.lines().filter(|line| line.starts_with("FAIL ")).map(|line| line[5..].split(' ').next().unwrap()).collect()
}

/// Where the line with one of these words is.
fn line(lines: &[String], words: &[&str]) -> usize {
    let has = |line: &String| line.starts_with('\t') && words.iter().any(|word| line.contains(word));
    lines.iter().position(has).unwrap_or_else(|| panic!("no {words:?} in {lines:#?}"))
}

/// What happened is stored last, so that whoever finds it finds all: also a signal handler.
#[test]
fn a_record_that_says_too_soon_what_happened_fails() {
    for (arch, prefix) in crate::common::arches() {
        let b = Bench::new();
        let mut lines = recorded(&b, arch);
        assert_eq!(failures(&b, prefix, &lines), "", "{arch}");
        let argument = lines.remove(line(&lines, &["24(%r11)", "#24]", "24(t3)"]));
        let what = line(&lines, &["what happened"]);
        lines.insert(what + 1, argument);
        assert_eq!(failures(&b, prefix, &lines), "P25", "{arch}");
    }
}

/// Time goes on: a record has what the clock said first.
#[test]
fn a_clock_that_is_read_twice_is_noticed() {
    for (arch, prefix) in crate::common::arches() {
        let b = Bench::new();
        let mut lines = recorded(&b, arch);
        let clock = line(&lines, &["rdtsc", "cntvct_el0", "rdtime"]);
        lines.insert(clock, lines[clock].clone());
        assert_eq!(failures(&b, prefix, &lines), "P24", "{arch}");
        // Each record has a reading of its own, that of an exception too.
        let kind = ["gen", "record", "--events", "both", "--clock", "tsc", "--unwind", "--sig", "long f(long a)"];
        let of = ["--function", "f+8", "--name", "mine", "--arch", arch, "--profile", "bare", "--emit", "obj,contract"];
        b.ok(&[&kind[..], &of, &["--stem", "u", "-o", "."]].concat());
        b.ok(&["check", "--object", "u.o", "--contract", "u.toml"]);
    }
}
