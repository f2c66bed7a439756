// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask audit-corpus`: audits Debian's packages that have assembly, as `audit-corpus.toml` lists them.
//!
//! Packages are downloaded into the cache, through apt's own lists there. `results/audit.md` has what was found, and what came of
//! reading it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;
use wildmatch::WildMatch;

use crate::apt::{Apt, Archive};
use crate::failure::Failure;
use crate::tools::{below, call, name, read, root, tramptool, write};
use crate::tree::cache;
use crate::verb::Outcome;

/// The sign of objects that nobody is known to have written, in archives without any that a compiler is known to have made.
const NO_SIGN: &str = "it has nothing that compilers add";

/// The list.
#[derive(Deserialize)]
pub struct Corpus {
    packages: BTreeSet<String>,
    /// Packages of shared libraries whose sources have assembly: all that these export is judged, whoever wrote it.
    libraries: BTreeSet<String>,
    /// The suite of each of Debian's architectures.
    pub suites: BTreeMap<String, String>,
    /// Packages whose functions change stacks or return addresses.
    pub enforced: Vec<Changer>,
    /// Findings that somebody has read the code of.
    #[serde(default)]
    read: Vec<Read>,
}

/// A package, and functions of it that change stacks or return addresses.
#[derive(Deserialize)]
pub struct Changer {
    pub package: String,
    /// Patterns of their names.
    pub functions: Vec<String>,
}

/// What came of reading the code.
#[derive(Deserialize)]
struct Read {
    /// As `tramptool audit` names it, with `*` behind what is alike.
    finding: String,
    /// `true` or `false`.
    verdict: bool,
    /// What the code does, or why the claim is false.
    reason: String,
}

/// A package that was audited.
struct Row {
    package: String,
    arch: String,
    /// Objects with code, those by hand, functions, those that were judged.
    counts: [u64; 4],
    /// Why functions were not judged, and how many.
    reasons: BTreeMap<String, u64>,
    /// Each finding, with its tier.
    findings: BTreeMap<String, String>,
}

/// Do it.
pub fn run(args: &[String]) -> Result<Outcome, Failure> {
    let corpus = Corpus::read()?;
    let (mut rows, mut refused) = (Vec::new(), Vec::new());
    for (arch, suite) in corpus.suites.iter().filter(|(arch, _)| args.is_empty() || args.contains(arch)) {
        for (package, file) in fetched(&(&corpus.packages | &corpus.libraries), arch, suite)? {
            match audited(&package, arch, &corpus.files(&package, &file)?)? {
                Ok(row) => rows.extend(Some(row).filter(|row| corpus.has_assembly(row))),
                Err(why) => refused.push(format!("{package} ({arch}): {why}")),
            }
        }
    }
    let text = report(&corpus, &rows, &refused);
    if args.is_empty() {
        write(&root().join("results/audit.md"), text.as_bytes())?;
    } else {
        print!("{text}");
    }
    Ok(Outcome::Good)
}

/// The packages' files, of those packages that there are.
pub fn fetched(wanted: &BTreeSet<String>, arch: &str, suite: &str) -> Result<Vec<(String, PathBuf)>, Failure> {
    let dir = cache()?.join("audit").join(format!("{suite}-{arch}"));
    let missing =
        |name: &&String| !dir.join(format!("{name}.deb")).exists() && !dir.join(format!("{name}.none")).exists();
    let missing: Vec<String> = wanted.iter().filter(missing).cloned().collect();
    if !missing.is_empty() {
        let apt = Apt::new(&dir, &Archive::Suite(suite), Some(arch))?;
        let known: BTreeSet<String> = apt.names("")?.into_iter().collect();
        for name in missing {
            let (there, place) = (known.contains(&name), dir.join(&name));
            if !there || apt.download(&name, &place.with_file_name(format!("{name}.deb"))).is_err() {
                write(&place.with_file_name(format!("{name}.none")), b"")?;
            }
        }
    }
    let files = wanted.iter().map(|name| (name.clone(), dir.join(format!("{name}.deb"))));
    Ok(files.filter(|(_, file)| file.exists()).collect())
}

/// What is audited of a package: all of it, or the archives and objects that lie unpacked in a directory.
struct Given {
    files: Vec<PathBuf>,
    _unpacked: Option<TempDir>,
}

/// What the tool says of a package, or why it refuses it.
fn audited(package: &str, arch: &str, given: &Given) -> Result<Result<Row, String>, Failure> {
    eprintln!("{arch} {package}");
    let mut tool = tramptool();
    let said = tool.arg("audit").args(&given.files).args(["--format", "json"]).output();
    let said = said.map_err(|e| Failure::new(package, e.to_string(), "build the tool"))?;
    let Ok(report) = serde_json::from_slice::<Value>(&said.stdout) else {
        return Ok(Err(String::from_utf8_lossy(&said.stderr).trim().to_owned()));
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let (mut counts, mut reasons) = ([0; 4], BTreeMap::new());
    for unit in list(&report["units"]) {
        let functions = list(&unit["functions"]);
        let judged = functions.iter().filter(|function| function["not_judged"].is_null()).count();
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let signs = unit["by_hand"].as_object().into_iter().flatten();
        let by_hand: u64 = signs.filter(|(sign, _)| *sign != NO_SIGN).map(|(_, count)| number(count)).sum();
        let more = [number(&unit["objects"]), by_hand, functions.len() as u64, judged as u64];
        for why in functions.iter().filter_map(|function| function["not_judged"].as_str()) {
            *reasons.entry(why.to_owned()).or_default() += 1;
        }
        counts.iter_mut().zip(more).for_each(|(all, more)| *all += more);
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let findings =
        list(&report["findings"]).iter().map(|f| (together(&text(&f["finding"])), text(&f["tier"]))).collect();
    Ok(Ok(Row { package: package.to_owned(), arch: arch.to_owned(), counts, reasons, findings }))
}

/// Marks are an archive's: one that one object lacks is lost to all of it.
fn together(finding: &str) -> String {
    match (finding.split_once(':'), finding.rsplit_once(' ')) {
        (Some((archive, _)), Some((_, place @ ".note.gnu.property"))) => format!("{archive} {place}"),
        _ => finding.to_owned(),
    }
}

impl Corpus {
    /// Read it.
    ///
    /// # Errors
    /// It is damaged.
    pub fn read() -> Result<Corpus, Failure> {
        let list = root().join("lab/xtask/audit-corpus.toml");
        toml::from_str(&read(&list)?).map_err(|e| Failure::at(&list, e, "mend it"))
    }

    /// Of a package that has archives, those are asked about: who wrote what in its shared libraries, nobody can tell.
    fn files(&self, package: &str, file: &Path) -> Result<Given, Failure> {
        let whole = Given { files: vec![file.to_owned()], _unpacked: None };
        if self.libraries.contains(package) {
            return Ok(whole);
        }
        let made = tempfile::tempdir().map_err(|e| Failure::at(Path::new("."), e, "make room"))?;
        call(Command::new("dpkg-deb").arg("-x").arg(file).arg(made.path()))?;
        let wanted =
            |file: &PathBuf| [".a", ".o", ".h"].iter().any(|end| name(file).ends_with(end)) && !file.is_symlink();
        let files: Vec<PathBuf> = below(made.path())?.into_iter().filter(wanted).collect();
        if files.iter().any(|file| !name(file).ends_with(".h")) {
            return Ok(Given { files, _unpacked: Some(made) });
        }
        Ok(whole)
    }

    /// Has a package assembly? Of a shared library, its sources say so.
    fn has_assembly(&self, row: &Row) -> bool {
        let [_, by_hand, functions, _] = row.counts;
        by_hand > 0 || functions > 0 && self.libraries.contains(&row.package)
    }
}

impl Read {
    fn is_about(&self, finding: &str) -> bool {
        WildMatch::new(&self.finding).matches(finding)
    }
}

/// The page.
fn report(corpus: &Corpus, rows: &[Row], refused: &[String]) -> String {
    // Writing to a String cannot fail.
    let mut out = String::from("# Audit of Debian's packages\n\n");
    let suites: Vec<String> = corpus.suites.iter().map(|(arch, suite)| format!("{arch} of {suite}")).collect();
    let sum = |n: usize| rows.iter().map(|row| row.counts[n]).sum::<u64>();
    let packages: BTreeSet<&str> = rows.iter().map(|row| row.package.as_str()).collect();
    let _ = writeln!(
        out,
        "`cargo xtask audit-corpus` wrote this page: {}. {} packages have assembly, in {} files. {} of {} functions were judged.\n",
        suites.join(", "),
        packages.len(),
        rows.len(),
        sum(3),
        sum(2)
    );
    let _ = writeln!(out, "| package | architecture | objects | by hand | functions | judged | findings |");
    let _ = writeln!(out, "|---|---|--:|--:|--:|--:|---|");
    for Row { package, arch, counts: [objects, by_hand, functions, judged], findings, .. } in rows {
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for finding in findings.keys() {
            *kinds.entry(finding.split(' ').next().unwrap_or_default()).or_default() += 1;
        }
        let kinds: Vec<String> = kinds.into_iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let kinds = kinds.join(", ");
        let by_hand = if corpus.libraries.contains(package) { String::new() } else { by_hand.to_string() };
        let _ = writeln!(out, "| {package} | {arch} | {objects} | {by_hand} | {functions} | {judged} | {kinds} |");
    }
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for (why, count) in rows.iter().flat_map(|row| &row.reasons) {
        *reasons.entry(why).or_default() += count;
    }
    let _ = writeln!(out, "\n## Functions that were not judged\n\n| because | functions |\n|---|--:|");
    for (why, count) in reasons {
        let _ = writeln!(out, "| {why} | {count} |");
    }
    let all = || rows.iter().flat_map(|row| row.findings.iter().map(move |(finding, tier)| (row, finding, tier)));
    let _ = writeln!(
        out,
        "\n## Findings whose code was read\n\n| package | finding | it is | the code |\n|---|---|---|---|"
    );
    let mut verdicts: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for read in &corpus.read {
        let met: Vec<_> = all().filter(|(_, finding, _)| read.is_about(finding)).collect();
        let Some((row, finding, _)) = met.first() else {
            let _ = writeln!(out, "| | {} | gone | {} |", read.finding, read.reason);
            continue;
        };
        let kind = finding.split(' ').next().unwrap_or_default();
        verdicts.entry(kind).or_default()[usize::from(!read.verdict)] += met.len();
        let verdict = if read.verdict { "true" } else { "false" };
        let more = if met.len() > 1 { format!(", and {} alike", met.len() - 1) } else { String::new() };
        let _ = writeln!(out, "| {} | `{finding}`{more} | {verdict} | {} |", row.package, read.reason);
    }
    let _ = writeln!(out, "\n| claim | true | false |\n|---|--:|--:|");
    for (kind, [is, not]) in verdicts {
        let _ = writeln!(out, "| {kind} | {is} | {not} |");
    }
    let unread = all().filter(|(_, finding, _)| !corpus.read.iter().any(|read| read.is_about(finding)));
    let unread: Vec<_> = unread.collect();
    if !unread.is_empty() {
        let _ =
            writeln!(out, "\n## Findings whose code nobody has read\n\n| package | finding | tier |\n|---|---|---|");
    }
    for (row, finding, tier) in unread {
        let _ = writeln!(out, "| {} | `{finding}` | {tier} |", row.package);
    }
    if !refused.is_empty() {
        let _ = writeln!(out, "\n## Packages that were refused\n");
    }
    for why in refused {
        let _ = writeln!(out, "- {why}");
    }
    out
}
