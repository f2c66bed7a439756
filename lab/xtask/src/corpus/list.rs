// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of packages, and their files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use tempfile::TempDir;
use wildmatch::WildMatch;

use crate::apt::{Apt, Archive};
use crate::failure::Failure;
use crate::tools::{below, call, name, read, remove, root, write};
use crate::tree::cache;

/// The list.
#[derive(Deserialize)]
pub struct Corpus {
    pub packages: BTreeSet<String>,
    /// Packages of shared libraries whose sources have assembly: all that these export is judged, whoever wrote it.
    pub libraries: BTreeSet<String>,
    /// The suite of each of Debian's architectures.
    pub suites: BTreeMap<String, String>,
    /// Packages whose functions change stacks or return addresses.
    pub enforced: Vec<Changer>,
    /// Packages whose compiled functions are audited too: of those, nothing should be claimed.
    pub control: Vec<String>,
    /// Packages whose time and memory are measured.
    pub measured: Vec<String>,
    /// Faults that were mended in the field.
    #[serde(default)]
    pub fixed: Vec<Fixed>,
    /// Findings that somebody has read the code of.
    #[serde(default)]
    pub read: Vec<Read>,
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
pub struct Read {
    /// As `tramptool audit` names it, with `*` behind what is alike.
    pub finding: String,
    /// `true` or `false`.
    pub verdict: bool,
    /// What the code does, or why the claim is false.
    pub reason: String,
}

/// A fault that was mended, and the suites of Debian that have the package with it and without it.
#[derive(Deserialize)]
pub struct Fixed {
    /// Debian's architecture.
    pub arch: String,
    pub package: String,
    /// The suite with the fault.
    pub before: String,
    /// The suite without it.
    pub after: String,
    /// Patterns of the functions that are judged.
    pub functions: Vec<String>,
    /// The findings, as `tramptool audit` names them, with `*` behind what is alike.
    pub finding: String,
    /// What mended it.
    pub fix: String,
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
pub struct Given {
    pub files: Vec<PathBuf>,
    _unpacked: Option<TempDir>,
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
    pub fn files(&self, package: &str, file: &Path) -> Result<Given, Failure> {
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
    pub fn read_of(&self, finding: &str) -> Option<&Read> {
        self.read.iter().find(|read| read.is_about(finding))
    }
}

impl Read {
    pub fn is_about(&self, finding: &str) -> bool {
        WildMatch::new(&self.finding).matches(finding)
    }
}
