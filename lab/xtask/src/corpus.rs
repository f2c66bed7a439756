// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask audit-corpus`: audits Debian's packages that have assembly, as `audit-corpus.toml` lists them.
//!
//! Packages are downloaded into the cache, through apt's own lists there. `results/audit.md` has what was found, and what came of
//! reading it. With `--kept DIR`, the reports are kept there, and a run that was broken off goes on with those that it lacks.

mod confirm;
mod control;
mod fixed;
mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;
use wildmatch::WildMatch;

use crate::apt::{Apt, Archive};
use crate::failure::Failure;
use crate::tools::{below, call, name, on_each_cpu, read, remove, root, tramptool, write};
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
    /// Packages whose compiled functions are audited too: of those, nothing should be claimed.
    control: Vec<String>,
    /// Packages whose time and memory are measured.
    measured: Vec<String>,
    /// Faults that were mended in the field.
    #[serde(default)]
    fixed: Vec<fixed::Fixed>,
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
    /// Each finding by its name.
    findings: BTreeMap<String, Finding>,
}

/// A finding.
struct Finding {
    tier: String,
    /// The function that is run, and the run, if one shows it.
    run: Option<(String, u64)>,
}

/// Do it.
pub fn run(args: &[String]) -> Result<Outcome, Failure> {
    let corpus = Corpus::read()?;
    let (kept, arches) = match args {
        [option, dir, arches @ ..] if option == "--kept" => (Some(Path::new(dir)), arches),
        arches => (None, arches),
    };
    let mut packages = Vec::new();
    for (arch, suite) in corpus.suites.iter().filter(|(arch, _)| arches.is_empty() || arches.contains(arch)) {
        let fetched = fetched(&(&corpus.packages | &corpus.libraries), arch, suite)?;
        packages.extend(fetched.into_iter().map(|(package, file)| (arch.as_str(), package, file)));
    }
    let said = Mutex::new(BTreeMap::new());
    let left = Mutex::new(packages.iter().enumerate());
    on_each_cpu(|| {
        // What a worker that panicked holds is of no use to anybody: the panic ends this.
        let next = || left.lock().ok()?.next();
        while let Some((at, (arch, package, file))) = next() {
            let row = audited(package, arch, &kept_in(kept, package, arch, || corpus.files(package, file))?);
            if let Ok(mut said) = said.lock() {
                said.insert(at, row);
            }
        }
        Ok(())
    })?;
    let (mut rows, mut refused) = (Vec::new(), Vec::new());
    for ((arch, package, _), row) in packages.iter().zip(said.into_inner().unwrap_or_default().into_values()) {
        match row {
            Ok(row) => rows.extend(Some(row).filter(|row| corpus.has_assembly(row))),
            Err(why) => refused.push(format!("{package} ({arch}): {why}")),
        }
    }
    let text = page::page(&corpus, &rows, &refused, arches)?;
    if arches.is_empty() {
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

/// The report on a package, or why it is refused: as it was kept, or else made.
fn kept_in(
    kept: Option<&Path>,
    package: &str,
    arch: &str,
    files: impl Fn() -> Result<Given, Failure>,
) -> Result<String, Failure> {
    let place = kept.map(|dir| dir.join(format!("{package}-{arch}.json")));
    if let Some(said) = place.as_deref().and_then(|place| fs::read_to_string(place).ok()) {
        return Ok(said);
    }
    eprintln!("{arch} {package}");
    let mut tool = tramptool();
    let said = tool.arg("audit").args(&files()?.files).args(["--format", "json"]).output();
    let said = said.map_err(|e| Failure::new(package, e.to_string(), "build the tool"))?;
    let said = String::from_utf8_lossy(if said.stdout.is_empty() { &said.stderr } else { &said.stdout }).into_owned();
    if let Some(place) = place {
        write(&place, said.as_bytes())?;
    }
    Ok(said)
}

/// What a report says of a package, or why it was refused.
fn audited(package: &str, arch: &str, said: &str) -> Result<Row, String> {
    let report: Value = serde_json::from_str(said).map_err(|_| said.trim().to_owned())?;
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
    let run = |finding: &Value| Some((text(&finding["function"]), finding["seed"].as_u64()?));
    let finding = |f: &Value| (together(&text(&f["finding"])), Finding { tier: text(&f["tier"]), run: run(f) });
    let findings = list(&report["findings"]).iter().map(finding).collect();
    Ok(Row { package: package.to_owned(), arch: arch.to_owned(), counts, reasons, findings })
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
        let wanted = |file: &Path| [".a", ".o", ".h"].iter().any(|end| name(file).ends_with(end)) && !file.is_symlink();
        let files = below(made.path())?;
        if !files.iter().any(|file| wanted(file) && !name(file).ends_with(".h")) {
            return Ok(whole);
        }
        files.iter().filter(|file| !wanted(file)).try_for_each(|file| remove(file))?;
        Ok(Given { files: vec![made.path().to_owned()], _unpacked: Some(made) })
    }

    /// What came of reading a finding's code.
    fn read_of(&self, finding: &str) -> Option<&Read> {
        self.read.iter().find(|read| read.is_about(finding))
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
