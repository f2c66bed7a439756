// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compilers' functions, of which nothing should be claimed, and how long packages take.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::list::{Corpus, fetched};
use super::report::{audited, kind};
use crate::failure::Failure;
use crate::tools::{peak, read, tramptool};

/// Claims of a breach. The others are about tables and marks that a compiler's object need not have, or are no claims.
const BREACHES: [&str; 6] = ["C1", "C2", "C3", "C7", "C9", "C10"];

/// That part of the page.
///
/// # Errors
/// A package cannot be fetched, or the tool cannot be run.
pub(super) fn page(corpus: &Corpus) -> Result<String, Failure> {
    let mut out = String::from(
        "\n## Compilers' functions\n\nWith `--all`, as a control: compilers made most of these.\n\n\
         | package | architecture | judged | breaches | other findings |\n|---|---|--:|---|---|\n",
    );
    let (mut all, mut breaches) = (0, 0);
    for (arch, suite) in &corpus.suites {
        for (package, file) in fetched(&corpus.control.iter().cloned().collect(), arch, suite)? {
            eprintln!("{arch} {package}, compilers' functions");
            let given = corpus.files(&package, &file)?;
            let mut tool = tramptool();
            tool.args(["audit", "--all", "--format", "json"]).args(&given.files);
            let said = tool.output().map_err(|e| Failure::new(&package, e.to_string(), "build the tool"))?;
            let row = audited(&package, arch, &String::from_utf8_lossy(&said.stdout));
            let row = row.map_err(|why| Failure::new(&package, why, "see what the tool says"))?;
            let (claims, others): (Vec<&str>, Vec<&str>) =
                row.findings.keys().map(String::as_str).partition(|name| BREACHES.contains(&kind(name)));
            let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
            others.iter().for_each(|name| *kinds.entry(kind(name)).or_default() += 1);
            let kinds: Vec<String> = kinds.into_iter().map(|(kind, count)| format!("{count} {kind}")).collect();
            let [.., judged] = row.counts;
            (all, breaches) = (all + judged, breaches + claims.len());
            let _ = writeln!(out, "| {package} | {arch} | {judged} | {} | {} |", claims.join("; "), kinds.join(", "));
        }
    }
    let _ = writeln!(out, "\nOf {all} functions, {breaches} were claimed to breach what C relies on.");
    out += &measured(corpus)?;
    Ok(out)
}

/// How long packages take, and how much memory.
fn measured(corpus: &Corpus) -> Result<String, Failure> {
    let cpu = read(std::path::Path::new("/proc/cpuinfo"))?;
    let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let cpu = cpu.trim_matches([' ', '\t', ':']);
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut out = format!(
        "\n## Time and memory\n\nOn {cpus} CPUs, {cpu}.\n\n| package | architecture | functions | seconds | MiB |\n|---|---|--:|--:|--:|\n"
    );
    for (arch, suite) in &corpus.suites {
        for (package, file) in fetched(&corpus.measured.iter().cloned().collect(), arch, suite)? {
            let given = corpus.files(&package, &file)?;
            let failure = |e: std::io::Error| Failure::new(&package, e.to_string(), "build the tool, and make room");
            let kept = tempfile::NamedTempFile::new().map_err(failure)?;
            let mut tool = tramptool();
            tool.args(["audit", "--format", "json"]).args(&given.files).stdin(Stdio::null());
            let begun = Instant::now();
            let mut child = tool.stdout(File::create(kept.path()).map_err(failure)?).spawn().map_err(failure)?;
            let mut most = 0;
            while child.try_wait().map_err(failure)?.is_none() {
                most = most.max(peak(&child));
                sleep(Duration::from_millis(5));
            }
            let seconds = begun.elapsed().as_secs_f64();
            let row = audited(&package, arch, &read(kept.path())?);
            let row = row.map_err(|why| Failure::new(&package, why, "see what the tool says"))?;
            let [.., functions, _] = row.counts;
            let _ = writeln!(out, "| {package} | {arch} | {functions} | {seconds:.1} | {} |", most >> 10);
        }
    }
    Ok(out)
}
