// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask checker`: what can be removed from those who judge, and no fault in a trampoline is missed for it.
//!
//! A copy of the repository gets a switch at each condition and each statement of the checkers, and is compiled once. With each
//! switch in turn, the tool puts its faults into trampolines. What finds the same faults as before is printed: it needs another
//! fault, a test, or is of no use. `checker.toml` lists what saves time alone, or tells a failure better.

mod points;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::Failure;
use crate::tools::{below, bounded, call, read, root, write};
use crate::verb::Outcome;
use points::{Point, points};
use serde::Deserialize;

/// Who judges, or a part of it that has tests of its own.
struct Checker {
    name: &'static str,
    /// The files with the checks, and folders of them. A file belongs to the first that names it.
    files: &'static [&'static str],
    /// Their crate's root.
    root: &'static str,
    /// Commands of the tool that show what is noticed: `SAMPLE` is a number of mutants.
    commands: &'static [&'static str],
    /// What `cargo test` runs: these tests pass, and with a switch one of them should fail.
    tests: &'static [&'static str],
}

const CHECKERS: [Checker; 6] = [
    Checker {
        name: "verify",
        files: &["codegen/src/verify"],
        root: "codegen/src/lib.rs",
        commands: &["mutate --by verify --sample SAMPLE --format json"],
        tests: &["--workspace --test verify"],
    },
    Checker {
        name: "sites",
        files: &[
            "emu-tests/src/judge/checks/compare.rs",
            "emu-tests/src/judge/checks/reach.rs",
            "emu-tests/src/judge/checks/site.rs",
        ],
        root: JUDGE,
        commands: &["mutate ftrace_stub --sample SAMPLE --format json"],
        tests: &["-p tramptool-emu-tests --test site --test protocol --test place"],
    },
    Checker {
        name: "records",
        files: &[
            "emu-tests/src/judge/checks/exceptions.rs",
            "emu-tests/src/judge/checks/shadow_mismatch.rs",
            "emu-tests/src/judge/checks/signals.rs",
            "emu-tests/src/judge/trace/records.rs",
        ],
        root: JUDGE,
        commands: &["mutate record_* --profile bare --sample SAMPLE --format json"],
        tests: &["-p tramptool-cli --test foreign -- changed records shadow"],
    },
    Checker {
        name: "programs",
        files: &["emu-tests/src/judge/checks/retire.rs"],
        root: JUDGE,
        commands: &["mutate programs* --sample SAMPLE --format json"],
        tests: &["-p tramptool-cli --test foreign programs"],
    },
    Checker {
        name: "protections",
        files: &["emu-tests/src/judge/checks/guard.rs", "emu-tests/src/judge/checks/marks.rs"],
        root: JUDGE,
        commands: &["mutate around_* --profile bare --sample SAMPLE --format json"],
        tests: &["-p tramptool-cli --test guarded --test marks"],
    },
    Checker {
        name: "judge",
        files: &["emu-tests/src/judge/checks", "emu-tests/src/judge/trace"],
        root: JUDGE,
        commands: &["mutate --sample SAMPLE --format json", "mutate --profile bare --sample SAMPLE --format json"],
        tests: &[],
    },
];

/// The root of the crate whose clauses judge.
const JUDGE: &str = "emu-tests/src/lib.rs";

/// Seconds of CPU, and bytes of addresses, for each process that shows what is noticed.
const SECONDS: u64 = 600;
const ADDRESSES: u64 = 16 << 30;

/// What reads the switch: a number in the environment.
const SWITCH: &str = "\n/// A statement that is left out.\n#[allow(missing_docs, reason = \"of `cargo xtask checker`\")]\npub mod removed {\n    \
    pub fn is(n: u32) -> bool {\n        \
    static N: std::sync::OnceLock<u32> = std::sync::OnceLock::new();\n        \
    let read = || std::env::var(\"TRAMPTOOL_REMOVED\").ok().and_then(|n| n.parse().ok()).unwrap_or(u32::MAX);\n        \
    *N.get_or_init(read) == n\n    }\n}\n";

/// What was asked for.
struct Asked {
    checker: &'static Checker,
    sample: usize,
    /// The first switch, and how far it is to the next one.
    from: usize,
    step: usize,
}

impl Asked {
    fn of(args: &[String]) -> Result<Asked, Failure> {
        let refused = |what: String| {
            let names = CHECKERS.map(|checker| checker.name).join(", ");
            let remedy = format!("give one of {names}, then [--sample N] [--from N] [--step N]");
            Failure::new("cargo xtask checker", what, remedy)
        };
        let name = args.first().map_or("", String::as_str);
        let checker = CHECKERS.iter().find(|checker| checker.name == name);
        let checker = checker.ok_or_else(|| refused(format!("no checker is called '{name}'")))?;
        let mut asked = Asked { checker, sample: 3, from: 0, step: 1 };
        let mut words = args.iter().skip(1);
        while let Some(word) = words.next() {
            let value = words.next().and_then(|value| value.parse().ok());
            let value: usize = value.ok_or_else(|| refused(format!("{word} has no number")))?;
            match word.as_str() {
                "--sample" => asked.sample = value,
                "--from" => asked.from = value,
                "--step" => asked.step = value.max(1),
                _ => return Err(refused(format!("unknown argument {word}"))),
            }
        }
        Ok(asked)
    }
}

/// Do it.
pub fn run(args: &[String]) -> Result<Outcome, Failure> {
    let asked = Asked::of(args)?;
    let copy = root().join("target/checker");
    let all = switched(&copy)?;
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--locked", "--quiet", "--bin", "tramptool"]).current_dir(&copy);
    call(&mut cargo)?;
    let (name, before) = (asked.checker.name, noticed(&asked, &copy, None)?);
    let mine: Vec<(usize, &Point)> = all.iter().enumerate().filter(|(_, point)| point.checker == name).collect();
    let tried: Vec<_> = mine.iter().skip(asked.from).step_by(asked.step).collect();
    let known: Known =
        toml::from_str(&read(&root().join(KNOWN))?).map_err(|e| Failure::new(KNOWN, e.to_string(), "mend it"))?;
    let (mut unnoticed, mut told) = (0, 0);
    for (n, point) in &tried {
        let missed = noticed(&asked, &copy, Some((*n, &before)))? == before;
        let of = |of: &&Unneeded| of.file == point.file && of.text == point.text;
        match known.unneeded.iter().find(of) {
            Some(_) if missed => told += 1,
            Some(of) => {
                unnoticed += 1;
                println!("{}:{}: {}: noticed, though {KNOWN} says: {}", point.file, point.line, point.text, of.reason);
            }
            None if missed => {
                unnoticed += 1;
                println!("{}:{}: {}", point.file, point.line, point.text);
            }
            None => {}
        }
    }
    println!("{name}: {} switches, {} tried, {told} of {KNOWN}, {unnoticed} unnoticed", mine.len(), tried.len());
    Ok(if unnoticed == 0 { Outcome::Good } else { Outcome::Bad })
}

/// What changes no verdict, with the reason.
#[derive(Deserialize)]
struct Known {
    unneeded: Vec<Unneeded>,
}

#[derive(Deserialize)]
struct Unneeded {
    file: String,
    text: String,
    reason: String,
}

/// Where it is listed.
const KNOWN: &str = "lab/xtask/checker.toml";

/// Make the copy: what git has in the work tree, with switches.
fn switched(copy: &Path) -> Result<Vec<Point>, Failure> {
    let listed = call(Command::new("git").args(["ls-files"]).current_dir(root()))?.out;
    for file in listed.lines() {
        let (from, to) = (root().join(file), copy.join(file));
        let refused = |e: std::io::Error| Failure::at(&to, e, "make room");
        fs::create_dir_all(to.parent().unwrap_or(copy)).map_err(refused)?;
        let bytes = fs::read(&from).map_err(|e| Failure::at(&from, e, "restore it from git"))?;
        // What is as it was is not compiled again.
        if fs::read(&to).ok().as_deref() != Some(&bytes) && !is_judge(file) {
            write(&to, &bytes)?;
        }
    }
    let mut all = Vec::new();
    for Checker { name: checker, files: dirs, root: lib, .. } in CHECKERS {
        for named in dirs {
            let path = root().join(named);
            let mut files: Vec<PathBuf> = if path.is_file() { vec![path] } else { below(&path)? };
            files.sort();
            for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "rs")) {
                let name = file.strip_prefix(root()).unwrap_or(file).display().to_string();
                if all.iter().any(|point: &Point| point.file == name) {
                    continue;
                }
                let text = points(checker, &name, &read(file)?, &mut all)?;
                changed(&copy.join(&name), &text)?;
            }
        }
        changed(&copy.join(lib), &(read(&root().join(lib))? + SWITCH))?;
    }
    Ok(all)
}

/// Is the file one that gets switches?
fn is_judge(file: &str) -> bool {
    CHECKERS.iter().any(|checker| checker.root == file || checker.files.iter().any(|dir| file.starts_with(dir)))
}

/// Write a file, if it is another one.
fn changed(path: &Path, text: &str) -> Result<(), Failure> {
    if fs::read_to_string(path).ok().as_deref() == Some(text) { Ok(()) } else { write(path, text.as_bytes()) }
}

/// What each command says of each fault, and how each test ends, the quicker ones first; with a switch, up to the first that is not as it was.
fn noticed(asked: &Asked, copy: &Path, switch: Option<(usize, &Vec<String>)>) -> Result<Vec<String>, Failure> {
    let tool = copy.join("target/debug/tramptool");
    let tests = asked.checker.tests.iter().map(|words| (Path::new("cargo"), format!("test --locked --quiet {words}")));
    let sample = asked.sample.to_string();
    let commands = asked.checker.commands.iter().map(|words| (tool.as_path(), words.replace("SAMPLE", &sample)));
    let mut all = Vec::new();
    for (program, words) in commands.chain(tests) {
        let mut run = Command::new(program);
        run.args(words.split(' ')).current_dir(copy);
        if let Some((n, _)) = switch {
            run.env("TRAMPTOOL_REMOVED", n.to_string());
        }
        run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let refused = |e: std::io::Error| Failure::at(program, e, "see what cargo said");
        let child = run.spawn().map_err(refused)?;
        // What keeps a checker from going on for ever may be what is left out.
        bounded(&child, SECONDS, ADDRESSES);
        let out = child.wait_with_output().map_err(refused)?;
        // What is refused notices nothing, and a test that fails anyway does not either.
        let begins = if program == tool { matches!(out.status.code(), Some(0 | 1)) } else { out.status.success() };
        if switch.is_none() && !begins {
            return Err(Failure::new(words, format!("{} before anything is left out", out.status), "mend that row"));
        }
        all.push(format!("{:?}\n{}", out.status.code(), outcomes(&String::from_utf8_lossy(&out.stdout))));
        if switch.is_some_and(|(_, before)| all.last() != before.get(all.len() - 1)) {
            break;
        }
    }
    Ok(all)
}

/// The lines of a report that say what became of a mutant.
fn outcomes(report: &str) -> String {
    let told =
        |line: &&str| line.contains("\"mutant\"") || line.contains("\"outcome\"") || line.contains("\"trampoline\"");
    report.lines().filter(told).collect::<Vec<_>>().join("\n")
}
