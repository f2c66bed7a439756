// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask kernel-objects`: builds the kernel's own trampolines, unmodified, as `kernel-objects.toml` says.
//!
//! Source, build trees and objects stay in a cache outside the repository, and what is there is not built again. Only
//! the objects that are wanted are compiled, which takes about half a minute for each configuration.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::failure::Failure;
use crate::{Outcome, root};

/// Where Debian's package puts the source.
const TARBALL: &str = "/usr/src/linux-source-6.12.tar.xz";

/// What Debian calls the source and what compiling it needs.
pub const PACKAGES: &str = "linux-source-6.12 make flex bison bc libelf-dev libssl-dev gcc-x86-64-linux-gnu \
                        gcc-aarch64-linux-gnu gcc-riscv64-linux-gnu";

/// What `kernel-objects.toml` says.
#[derive(Debug, Deserialize)]
struct Manifest {
    /// Options of all builds, without `CONFIG_`.
    common: Vec<String>,
    /// The builds.
    build: Vec<Build>,
}

/// One configuration.
#[derive(Debug, Deserialize)]
struct Build {
    /// The contract that judges the objects; also the name of their directory.
    contract: String,
    /// `ARCH` for make.
    arch: String,
    /// `CROSS_COMPILE` for make.
    cross: String,
    /// Options, without `CONFIG_`.
    options: Vec<String>,
    /// What to build, relative to the kernel's tree.
    objects: Vec<PathBuf>,
}

/// Do it.
pub fn run(args: &[String]) -> Result<Outcome, Failure> {
    let linux = match args {
        [] => None,
        [option, dir] if option == "--linux" => Some(PathBuf::from(dir)),
        _ => {
            return Err(Failure::new("cargo xtask kernel-objects", "unknown arguments", "give --linux DIR or nothing"));
        }
    };
    let path = root().join("xtask/kernel-objects.toml");
    let text = fs::read_to_string(&path).map_err(|e| Failure::at(&path, e, "restore it from git"))?;
    let manifest: Manifest = toml::from_str(&text).map_err(|e| Failure::at(&path, e, "mend it"))?;
    let cache = cache()?;
    let linux = source(linux, &cache)?;
    for build in &manifest.build {
        for object in build_one(&manifest.common, build, &linux, &cache)? {
            println!("{}", object.display());
        }
    }
    Ok(Outcome::Good)
}

/// `$TRAMPTOOL_KERNEL_CACHE`, or a directory in the user's cache.
pub fn cache() -> Result<PathBuf, Failure> {
    let named = std::env::var_os("TRAMPTOOL_KERNEL_CACHE").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/tramptool/kernel-objects"));
    let cache = named.or_else(home).ok_or_else(|| {
        Failure::new("HOME", "is not set", "set TRAMPTOOL_KERNEL_CACHE to a directory outside the repository")
    })?;
    fs::create_dir_all(&cache)
        .map_err(|e| Failure::at(&cache, e, "set TRAMPTOOL_KERNEL_CACHE to another directory"))?;
    Ok(cache)
}

/// The kernel's source: the one that was given, or Debian's.
pub fn source(given: Option<PathBuf>, cache: &Path) -> Result<PathBuf, Failure> {
    match given {
        Some(dir) => dir.canonicalize().map_err(|e| Failure::at(&dir, e, "give the directory of a kernel's source")),
        None => unpack(cache),
    }
}

/// Debian's source, unpacked into the cache.
fn unpack(cache: &Path) -> Result<PathBuf, Failure> {
    let tree = cache.join("linux-source-6.12");
    if !tree.join("Makefile").exists() {
        if !Path::new(TARBALL).exists() {
            let remedy = format!("apt-get install -y --no-install-recommends {PACKAGES}; or give --linux DIR");
            return Err(Failure::new(TARBALL, "is not there", remedy));
        }
        eprintln!("unpacking {TARBALL}");
        call(Command::new("tar").arg("xf").arg(TARBALL).arg("-C").arg(cache))?;
    }
    Ok(tree)
}

/// Configure and build what is missing; returns the objects.
fn build_one(common: &[String], build: &Build, linux: &Path, cache: &Path) -> Result<Vec<PathBuf>, Failure> {
    let objects = cache.join(&build.contract);
    let place = |object: &PathBuf| objects.join(object.file_name().unwrap_or_default());
    let wanted: Vec<PathBuf> = build.objects.iter().map(place).collect();
    if wanted.iter().all(|object| object.exists()) {
        return Ok(wanted);
    }
    eprintln!("building {}", build.contract);
    let tree = cache.join("build").join(&build.contract);
    for dir in [&tree, &objects] {
        fs::create_dir_all(dir).map_err(|e| Failure::at(dir, e, "make room for the cache"))?;
    }
    let tree = Tree { linux, dir: &tree, arch: &build.arch, cross: &build.cross };
    let options: String = common.iter().chain(&build.options).map(|o| format!("CONFIG_{o}\n")).collect();
    tree.configure(&options)?;
    tree.make(&["prepare"])?;
    let targets: Vec<&str> = build.objects.iter().filter_map(|object| object.to_str()).collect();
    tree.make(&targets)?;
    for (object, wanted) in build.objects.iter().zip(&wanted) {
        let built = tree.dir.join(object);
        fs::copy(&built, wanted).map_err(|e| Failure::at(&built, e, "see what make said"))?;
    }
    Ok(wanted)
}

/// A directory in which a kernel is built.
#[derive(Clone, Copy)]
pub struct Tree<'t> {
    /// The source.
    pub linux: &'t Path,
    /// The directory.
    pub dir: &'t Path,
    /// `ARCH` for make.
    pub arch: &'t str,
    /// `CROSS_COMPILE` for make.
    pub cross: &'t str,
}

impl Tree<'_> {
    /// Make `targets`; returns what make had to say.
    pub fn make(&self, targets: &[&str]) -> Result<String, Failure> {
        let mut make = Command::new("make");
        make.current_dir(self.linux).args(["-s", "-j2"]).arg(format!("O={}", self.dir.display()));
        call(make.args([format!("ARCH={}", self.arch), format!("CROSS_COMPILE={}", self.cross)]).args(targets))
    }

    /// Write a configuration: tinyconfig with these lines.
    pub fn configure(&self, options: &str) -> Result<(), Failure> {
        self.make(&["tinyconfig"])?;
        let config = self.dir.join(".config");
        let mut text = fs::read_to_string(&config).map_err(|e| Failure::at(&config, e, "see what make said"))?;
        // Of several lines for one option, kconfig takes the last.
        text.push_str(options);
        fs::write(&config, text).map_err(|e| Failure::at(&config, e, "make room for the cache"))?;
        self.make(&["olddefconfig"])?;
        Ok(())
    }
}

/// Run a program to its end; returns what it wrote to stderr.
pub fn call(command: &mut Command) -> Result<String, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let remedy = || format!("apt-get install -y --no-install-recommends {PACKAGES}");
    let run = command.stdin(Stdio::null()).output().map_err(|e| Failure::new(&program, e.to_string(), remedy()))?;
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    if run.status.success() {
        return Ok(said);
    }
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message");
    Err(Failure::new(program, format!("{}: {last}", run.status), remedy()))
}
