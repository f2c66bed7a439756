// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask kernel --selftests`: the ftrace selftests of the kernel's own tree, run by its own runner in that kernel, with
//! its own trampolines and with generated ones, and compared verdict by verdict.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::apt::{Apt, Archive};
use crate::boot::Bench;
use crate::document::{folded, today};
use crate::failure::Failure;
use crate::kernels::Platform;
use crate::qemu::{Boot, Trial, initramfs, program};
use crate::tools::name;

/// Where they are in the kernel's tree.
const PLACE: &str = "tools/testing/selftests/ftrace";

/// They take minutes, and some say nothing for long.
const LIMIT: Duration = Duration::from_secs(2400);
const SILENCE: Duration = Duration::from_secs(300);

/// Run them. Returns the report, and whether each verdict is the same.
pub fn judge(bench: &Bench, linux: &Path, cache: &Path) -> Result<(String, bool), Failure> {
    let files = bench.stock.join("initramfs-selftests");
    initramfs(&bench.kernel.on.cross, &userland(bench, linux, cache)?, &files)?;
    let trial = Trial { initramfs: &files, silence: SILENCE, limit: LIMIT };
    let baseline = bench.boot(&bench.stock, "baseline, with the ftrace selftests", &trial)?;
    baseline.must_be_well()?;
    let (variant, _) = bench.variant(None, &trial)?;
    let before = verdicts(&baseline);
    let after = verdicts(&variant);
    let left_out = bench.kernel.without.iter().map(|(file, why)| format!(" Without `{file}`: {why}."));
    let without: String = left_out.collect();
    let mut rows = vec![
        format!("Linux {}, {}, {}.", bench.version()?, today(), bench.kernel.on.machine.version()?),
        format!("`ftracetest -K` of `{PLACE}`, in a shell of busybox.{without}\n"),
        "| variant | ended | passed | failed | unresolved | skipped | boot, seconds |".to_owned(),
        "|---|---|---|---|---|---|---|".to_owned(),
        row("the kernel's own", &baseline, &before),
        row("generated", &variant, &after),
    ];
    let mut differ: Vec<String> = Vec::new();
    for line in before.iter().filter(|line| !after.contains(line)) {
        differ.push(format!("- {line}"));
    }
    for line in after.iter().filter(|line| !before.contains(line)) {
        differ.push(format!("+ {line}"));
    }
    let good = differ.is_empty() && before.len() > 100 && variant.well();
    rows.push(if differ.is_empty() { "\nEach verdict is the same." } else { "\nThese verdicts DIFFER:\n" }.to_owned());
    rows.extend(differ.iter().map(|line| folded(line)));
    rows.push("\nWhat did not pass, in both:\n".to_owned());
    rows.extend(before.iter().filter(|line| kind(line) != "passed").map(|line| folded(line)));
    if !variant.well() {
        rows.push(format!("\n    {}", variant.last.join("\n    ")));
    }
    Ok((rows.join("\n") + "\n", good))
}

/// The runner, its tests, the modules that they load, and a shell with what is called from it.
fn userland(bench: &Bench, linux: &Path, cache: &Path) -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let read = |path: &Path| fs::read(path).map_err(|e| Failure::at(path, e, "build the kernel again"));
    let tests = linux.join(PLACE);
    let mut files = vec![
        ("bin/busybox".to_owned(), shell(&bench.kernel.on, cache)?),
        ("ftrace/poll".to_owned(), program(&bench.kernel.on.cross, &tests.join("poll.c"))?),
        ("ftrace/ftracetest".to_owned(), read(&tests.join("ftracetest"))?),
        // Another group than that of root.
        ("etc/group".to_owned(), b"root:x:0:\nusers:x:100:\n".to_vec()),
    ];
    for path in below(&tests.join("test.d"))? {
        let name = path.strip_prefix(&tests).unwrap_or(&path);
        if !bench.kernel.without.iter().any(|(file, _)| name.ends_with(file)) {
            files.push((format!("ftrace/{}", name.display()), read(&path)?));
        }
    }
    let version = bench.version()?;
    for module in below(&bench.built("samples"))?.iter().filter(|path| path.extension().is_some_and(|e| e == "ko")) {
        files.push((format!("lib/modules/{version}/{}", name(module)), read(module)?));
    }
    Ok(files)
}

/// All files below a directory.
fn below(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(dir).map_err(|e| Failure::at(dir, e, "give the whole source of a kernel"))?;
    let mut files = Vec::new();
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() {
            files.extend(below(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
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

/// What the runner said of each test. The kernel's own startup tests have said so before it began.
fn verdicts(boot: &Boot) -> Vec<String> {
    let verdict = |line: &&String| line.starts_with("ok ") || line.starts_with("not ok ") || line.contains("WARNING: ");
    boot.tests.iter().filter(verdict).cloned().collect()
}

/// What a verdict is.
fn kind(line: &str) -> &'static str {
    match line {
        _ if line.starts_with("ok ") && !line.contains(" # SKIP") => "passed",
        _ if line.starts_with("ok ") => "skipped",
        _ if line.ends_with(" # UNRESOLVED") => "unresolved",
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
            ("WARNING: kernel/trace/ftrace.c:1", "failed"),
        ];
        for (line, wanted) in kinds {
            assert_eq!(kind(line), wanted, "{line}");
        }
    }
}
