// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask package-objects`: takes trampolines of user space, unmodified, out of Debian's packages, as
//! `package-objects.toml` says, and libraries that tests link programs of other architectures with.
//!
//! Packages are downloaded and unpacked in the cache, through apt's own lists there: nothing of the host changes. What is
//! there is not fetched again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::apt::{Apt, Archive};
use crate::failure::Failure;
use crate::tools::{call, root, write};
use crate::tree::cache;
use crate::verb::Outcome;

/// What `package-objects.toml` says.
#[derive(Debug, Deserialize)]
struct Manifest {
    package: Vec<Package>,
    #[serde(rename = "library")]
    libraries: Vec<Library>,
}

/// Files that programs for another architecture are compiled and run with.
#[derive(Debug, Deserialize)]
struct Library {
    /// The name of their directory.
    name: String,
    /// What Debian calls the architecture.
    arch: String,
    /// The suite of Debian's archive that has it.
    suite: String,
    packages: Vec<String>,
    /// From the root of the file system.
    files: Vec<PathBuf>,
}

/// Members of an archive in a package, or bytes of a file.
#[derive(Debug, Deserialize)]
struct Package {
    /// The contract that judges them; also the name of their directory.
    contract: String,
    /// What Debian calls the architecture of the package.
    arch: String,
    /// Its name.
    package: String,
    /// The suite of Debian's archive that has it; without it, the host's.
    suite: Option<String>,
    /// What is taken.
    #[serde(flatten)]
    part: Part,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Part {
    /// These members of an archive.
    Members {
        /// From the root of the file system.
        archive: PathBuf,
        members: Vec<String>,
    },
    /// Code at an address, which is where it lies in the file too.
    Bytes { file: PathBuf, at: usize, bytes: usize },
}

/// Do it.
pub fn run(args: &[String]) -> Result<Outcome, Failure> {
    if let [first, ..] = args {
        return Err(Failure::new("cargo xtask package-objects", format!("unknown argument '{first}'"), "give none"));
    }
    let path = root().join("lab/xtask/package-objects.toml");
    let text = fs::read_to_string(&path).map_err(|e| Failure::at(&path, e, "restore it from git"))?;
    let manifest: Manifest = toml::from_str(&text).map_err(|e| Failure::at(&path, e, "mend it"))?;
    let cache = cache()?;
    for package in &manifest.package {
        for object in take(package, &cache)? {
            println!("{}", object.display());
        }
    }
    for library in &manifest.libraries {
        for file in copy(library, &cache)? {
            println!("{}", file.display());
        }
    }
    Ok(Outcome::Good)
}

/// Fetch the files that are missing; returns where all of them are, side by side.
fn copy(library: &Library, cache: &Path) -> Result<Vec<PathBuf>, Failure> {
    let dir = cache.join(&library.name);
    let place = |file: &PathBuf| dir.join(file.file_name().unwrap_or_default());
    let wanted: Vec<PathBuf> = library.files.iter().map(place).collect();
    if wanted.iter().all(|file| file.exists()) {
        return Ok(wanted);
    }
    eprintln!("taking {} out of {}", library.name, library.packages.join(", "));
    let lists = cache.join("apt").join(format!("{}-{}", library.suite, library.arch));
    let part = cache.join(format!("{}.part", library.name));
    Apt::new(&lists, &Archive::Suite(&library.suite), Some(&library.arch))?.unpack(&library.packages, &part)?;
    fs::create_dir_all(&dir).map_err(|e| Failure::at(&dir, e, "make room for the cache"))?;
    for (file, to) in library.files.iter().zip(&wanted) {
        let from = part.join(file);
        fs::copy(&from, to).map_err(|e| Failure::at(&from, e, "see what the packages have"))?;
    }
    fs::remove_dir_all(&part).map_err(|e| Failure::at(&part, e, "remove it"))?;
    Ok(wanted)
}

/// Fetch what is missing; returns the objects.
fn take(package: &Package, cache: &Path) -> Result<Vec<PathBuf>, Failure> {
    let objects = cache.join(&package.contract);
    let wanted: Vec<PathBuf> = match &package.part {
        Part::Members { members, .. } => members.iter().map(|member| objects.join(member)).collect(),
        Part::Bytes { at, .. } => vec![objects.join(format!("{at:#x}.bin"))],
    };
    if wanted.iter().all(|object| object.exists()) {
        return Ok(wanted);
    }
    eprintln!("taking {} out of {}", package.contract, package.package);
    let (lists, archive) = match &package.suite {
        Some(suite) => (format!("{suite}-{}", package.arch), Archive::Suite(suite)),
        None => (package.arch.clone(), Archive::Host),
    };
    let apt = Apt::new(&cache.join("apt").join(lists), &archive, Some(&package.arch))?;
    let part = cache.join(format!("{}.part", package.contract));
    apt.unpack(std::slice::from_ref(&package.package), &part)?;
    fs::create_dir_all(&objects).map_err(|e| Failure::at(&objects, e, "make room for the cache"))?;
    match &package.part {
        Part::Members { archive, members } => {
            call(Command::new("ar").arg("x").arg(part.join(archive)).args(members).current_dir(&objects))?;
        }
        Part::Bytes { file, at, bytes } => {
            let path = part.join(file);
            let all = fs::read(&path).map_err(|e| Failure::at(&path, e, "see what the package has"))?;
            let code = all.get(*at..at + bytes);
            let code = code.ok_or_else(|| Failure::at(&path, "is too short", "see what the package has"))?;
            write(&wanted[0], code)?;
        }
    }
    fs::remove_dir_all(&part).map_err(|e| Failure::at(&part, e, "remove it"))?;
    Ok(wanted)
}
