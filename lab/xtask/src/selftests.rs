// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask kernel --selftests`: the ftrace selftests of the kernel's own tree, run by its own runner in that kernel, with
//! its own trampolines and with generated ones, and compared verdict by verdict.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::apt::{Apt, Archive};
use crate::boot::Bench;
use crate::document::today;
use crate::failure::Failure;
use crate::kernels::Platform;
use crate::qemu::{Boot, Trial, initramfs, program};
use crate::tools::{below, name};

/// Where they are in the kernel's tree.
const PLACE: &str = "tools/testing/selftests/ftrace";

/// What its runner says before the first verdict.
const BEGIN: &str = "TAP version 13";

/// How often a verdict of ours is looked for among those of the kernel's own.
const TRIES: usize = 3;

/// They take minutes, and some say nothing for long.
const LIMIT: Duration = Duration::from_secs(2400);
const SILENCE: Duration = Duration::from_secs(300);

/// Run them. Returns the report, and whether each verdict is the same.
pub fn judge(bench: &Bench, linux: &Path, cache: &Path) -> Result<(String, bool), Failure> {
    let place = Place { bench, linux, cache };
    let (baseline, before) = place.own(None)?;
    let (variant, after) = place.generated()?;
    let left_out = bench.kernel.without.iter().map(|(file, why)| format!(" Without `{file}`: {why}."));
    let without: String = left_out.collect();
    let mut rows = vec![
        format!("Linux {}, {}, {}.", bench.version()?, today(), bench.kernel.on.machine.version()?),
        format!("`ftracetest -K` of `{PLACE}`, in a shell of busybox.{without}\n"),
        "| variant | ended | passed | failed | unresolved | skipped | boot, seconds |".to_owned(),
        "|---|---|---|---|---|---|---|".to_owned(),
        baseline,
        variant,
    ];
    let differ = difference(&before, &after);
    let mut good = differ.is_empty() && before.len() > 100;
    let mut again: Vec<String> = Vec::new();
    if good {
        rows.push("\nEach verdict is the same.".to_owned());
    } else {
        // Some tests wait for a time, which is short on a machine that does other work: then the kernel's own gets that verdict too.
        let names: Vec<&str> = differ.iter().map(|line| test(line)).collect();
        let ours: Vec<String> =
            difference(&after, &before).iter().filter(|l| after.contains(l)).map(|l| bare(l)).collect();
        for _ in 0..TRIES {
            again.extend(place.own(Some(&names))?.1.iter().map(|line| bare(line)));
            good = before.len() == after.len() && before.len() > 100 && ours.iter().all(|line| again.contains(line));
            if good {
                break;
            }
        }
        let said = if good { "gets these verdicts too" } else { "does NOT get these verdicts" };
        rows.push(format!("\nVerdicts differ. In these tests alone, at most {TRIES} times, the kernel's own {said}."));
    }
    rows.push("\n| test | the kernel's own | generated | its own, in these tests alone |".to_owned());
    rows.push("|---|---|---|---|".to_owned());
    rows.extend(table(&before, &after, &again));
    Ok((rows.join("\n") + "\n", good))
}

/// A row for each test that ran, and for each warning of the kernel meanwhile, with its verdicts.
fn table(before: &[String], after: &[String], again: &[String]) -> Vec<String> {
    let named = |line: &&String| unlike(line);
    let new = after.iter().filter(|line| !before.iter().any(|b| unlike(b) == unlike(line)));
    let tests = before.iter().chain(new);
    let cell = |of: &[String], name: &str| of.iter().find(|line| named(line) == name).map_or("-", |line| kind(line));
    let row = |line: &String| {
        let name = unlike(line);
        let (own, ours) = (cell(before, &name), cell(after, &name));
        // Without its number, which is another there.
        let alone = |line: &&String| own != ours && unlike(line) == bare(&name);
        let mut alone: Vec<&str> = again.iter().filter(alone).map(|line| kind(line)).collect();
        alone.dedup();
        format!("| {} | {own} | {ours} | {} |", name.replace('|', "\\|"), alone.join(", "))
    };
    tests.map(row).collect()
}

/// A verdict without what it is: the test's number and name; a warning whole.
fn unlike(verdict: &str) -> String {
    let test = verdict.trim_start_matches("not ").trim_start_matches("ok ");
    test.split(" # ").next().unwrap_or(test).trim().to_owned()
}

/// Where they run, and where everything for that is.
struct Place<'p> {
    bench: &'p Bench<'p>,
    linux: &'p Path,
    cache: &'p Path,
}

/// A row of the table, and the verdicts.
type Ran = (String, Vec<String>);

impl Place<'_> {
    /// Run all tests, or those with these names, with the kernel's own trampolines.
    fn own(&self, only: Option<&[&str]>) -> Result<Ran, Failure> {
        let files = self.bench.stock.join("initramfs-selftests");
        initramfs(&self.bench.kernel.on.cross, &self.userland(only)?, &files)?;
        let boot = self.bench.boot(&self.bench.stock, "baseline, with the ftrace selftests", &trial(&files))?;
        boot.must_be_well("the kernel as it is")?;
        Ok(ran("the kernel's own", &boot))
    }

    /// Run what ran last, with generated trampolines.
    fn generated(&self) -> Result<Ran, Failure> {
        let linked = self.bench.link(None)?;
        let files = self.bench.stock.join("initramfs-selftests");
        let boot = self.bench.boot(linked.dir.path(), &linked.what, &trial(&files))?;
        boot.must_be_well("the kernel with generated trampolines")?;
        Ok(ran("generated", &boot))
    }

    /// The runner, its tests, the modules that they load, and a shell with what is called from it.
    fn userland(&self, only: Option<&[&str]>) -> Result<Vec<(String, Vec<u8>)>, Failure> {
        let bench = self.bench;
        let read = |path: &Path| fs::read(path).map_err(|e| Failure::at(path, e, "build the kernel again"));
        let tests = self.linux.join(PLACE);
        let mut files = vec![
            ("bin/busybox".to_owned(), shell(&bench.kernel.on, self.cache)?),
            ("ftrace/poll".to_owned(), program(&bench.kernel.on.cross, &tests.join("poll.c"))?),
            ("ftrace/ftracetest".to_owned(), read(&tests.join("ftracetest"))?),
            // Another group than that of root.
            ("etc/group".to_owned(), b"root:x:0:\nusers:x:100:\n".to_vec()),
        ];
        for path in below(&tests.join("test.d"))? {
            let (name, bytes) = (path.strip_prefix(&tests).unwrap_or(&path), read(&path)?);
            let left_out = bench.kernel.without.iter().any(|(file, _)| name.ends_with(file));
            let wanted = only.is_none_or(|only| described(&bytes).is_none_or(|test| only.contains(&&*test)));
            if wanted && !left_out {
                files.push((format!("ftrace/{}", name.display()), bytes));
            }
        }
        let version = bench.version()?;
        for module in below(&bench.built("samples"))?.iter().filter(|path| path.extension().is_some_and(|e| e == "ko"))
        {
            files.push((format!("lib/modules/{version}/{}", name(module)), read(module)?));
        }
        Ok(files)
    }
}

fn trial(files: &Path) -> Trial<'_> {
    Trial { initramfs: files, silence: SILENCE, limit: LIMIT }
}

fn ran(name: &str, boot: &Boot) -> Ran {
    let verdicts = verdicts(boot);
    (row(name, boot, &verdicts), verdicts)
}

/// What a test is called in verdicts; what is no test has no such line.
fn described(file: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(file);
    text.lines().find_map(|line| Some(line.strip_prefix("# description:")?.trim().to_owned()))
}

/// The name of the test in a verdict.
fn test(verdict: &str) -> &str {
    let numbered = verdict.trim_start_matches("not ").trim_start_matches("ok ");
    let name = numbered.split_once(' ').map_or(numbered, |(_, name)| name);
    name.trim_start_matches("(instance) ").split(" # ").next().unwrap_or(name).trim()
}

/// A verdict without its number, which is another where fewer tests run.
fn bare(verdict: &str) -> String {
    let digits = |word: &&str| !word.chars().all(|c| c.is_ascii_digit());
    verdict.split(' ').filter(digits).collect::<Vec<_>>().join(" ")
}

/// The verdicts that are not in both.
fn difference(before: &[String], after: &[String]) -> Vec<String> {
    let lacks = |of: &[String], line: &&String| !of.contains(line);
    let gone = before.iter().filter(|line| lacks(after, line));
    gone.chain(after.iter().filter(|line| lacks(before, line))).cloned().collect()
}

/// Debian's busybox, from its package.
fn shell(platform: &Platform, cache: &Path) -> Result<Vec<u8>, Failure> {
    let (suite, arch) = &platform.shell;
    let dir = cache.join(format!("busybox-{suite}-{arch}"));
    if !dir.exists() {
        eprintln!("downloading busybox-static for {arch}");
        let part = cache.join(format!("busybox-{suite}-{arch}.part"));
        let apt = Apt::new(&cache.join("apt").join(format!("{suite}-{arch}")), &Archive::Suite(suite), Some(arch))?;
        apt.unpack(&["busybox-static".to_owned()], &part)?;
        fs::rename(&part, &dir).map_err(|e| Failure::at(&part, e, "remove it"))?;
    }
    // Newer releases have it below usr.
    let places: Vec<PathBuf> = ["bin/busybox", "usr/bin/busybox"].map(|file| dir.join(file)).into();
    let found = places.iter().find_map(|path| fs::read(path).ok());
    found.ok_or_else(|| Failure::at(&dir, "no busybox in it", "remove this directory"))
}

/// What the runner said of each test, and what the kernel warned of. Its own startup tests have said so before.
fn verdicts(boot: &Boot) -> Vec<String> {
    let verdict = |line: &&String| line.starts_with("ok ") || line.starts_with("not ok ") || line.contains("WARNING: ");
    boot.tests.iter().skip_while(|line| *line != BEGIN).filter(verdict).cloned().collect()
}

/// What a verdict is.
fn kind(line: &str) -> &'static str {
    match line {
        _ if line.starts_with("ok ") && !line.contains(" # SKIP") => "passed",
        _ if line.starts_with("ok ") => "skipped",
        _ if line.ends_with(" # UNRESOLVED") => "unresolved",
        _ if line.contains("WARNING: ") => "warned of",
        _ => "failed",
    }
}

fn row(variant: &str, boot: &Boot, verdicts: &[String]) -> String {
    let number = |wanted: &str| verdicts.iter().filter(|line| kind(line) == wanted).count();
    let [passed, failed, unresolved, skipped] = ["passed", "failed", "unresolved", "skipped"].map(number);
    let (end, took) = (&boot.end, boot.took.as_secs_f64());
    format!("| {variant} | {end} | {passed} | {failed} | {unresolved} | {skipped} | {took:.1} |")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_told_apart() {
        let kinds = [
            ("ok 1 Basic trace file check", "passed"),
            ("ok 2 Snapshot # SKIP", "skipped"),
            ("not ok 3 Poll # UNRESOLVED", "unresolved"),
            ("not ok 4 Direct", "failed"),
            ("WARNING: kernel/trace/ftrace.c:1", "warned of"),
        ];
        for (line, wanted) in kinds {
            assert_eq!(kind(line), wanted, "{line}");
        }
    }

    #[test]
    fn what_differs_is_found_again_by_its_name() {
        let [same, before, after] =
            ["ok 1 one", "ok 174 (instance) poll - wait", "not ok 174 (instance) poll - wait # x"];
        let lines = |all: [&str; 2]| all.map(str::to_owned);
        let differ = difference(&lines([same, before]), &lines([same, after]));
        assert_eq!(differ, lines([before, after]));
        let tests: Vec<&str> = differ.iter().map(|line| test(line)).collect();
        assert_eq!(tests, ["poll - wait"; 2]);
        assert_eq!(described(b"#!/bin/sh\n# description: poll - wait\n").as_deref(), Some(tests[0]));
        assert_eq!(described(b"helper() {\n"), None);
        assert_eq!(bare(before), "ok (instance) poll - wait");
        assert_ne!(bare(before), bare(after));
        let [before, after] = [before, after].map(|verdict| lines([same, verdict]));
        let rows = table(&before, &after, &[bare(&after[1]), bare(&before[1]), bare(&before[1])]);
        let row = "| 174 (instance) poll - wait | passed | failed | failed, passed |";
        assert_eq!(rows, ["| 1 one | passed | passed |  |", row]);
    }
}
