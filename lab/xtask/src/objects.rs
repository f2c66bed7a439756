// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask kernel-objects`: builds the kernel's own trampolines, unmodified, as `kernel-objects.toml` says.
//!
//! Source, build trees and objects stay in a cache outside the repository, and what is there is not built again. Only
//! the objects that are wanted are compiled, which takes about half a minute for each configuration.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::failure::Failure;
use crate::tools::root;
use crate::tree::{Tree, cache, debian_config, source};
use crate::verb::Outcome;

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
    /// The kernel's version.
    linux: String,
    /// `ARCH` for make.
    arch: String,
    /// `CROSS_COMPILE` for make.
    cross: String,
    /// `CC` for make, where it is not GCC.
    compiler: Option<String>,
    /// Options on top of the common ones, without `CONFIG_`.
    #[serde(default)]
    options: Vec<String>,
    /// Debian's name of the architecture: its default configuration takes the place of all options.
    debian: Option<String>,
    /// What to build, relative to the kernel's tree.
    objects: Vec<PathBuf>,
}

fn manifest() -> Result<Manifest, Failure> {
    let path = root().join("lab/xtask/kernel-objects.toml");
    let text = fs::read_to_string(&path).map_err(|e| Failure::at(&path, e, "restore it from git"))?;
    toml::from_str(&text).map_err(|e| Failure::at(&path, e, "mend it"))
}

/// The options of all builds, without `CONFIG_`.
pub fn common() -> Result<Vec<String>, Failure> {
    Ok(manifest()?.common)
}

/// Do it.
pub fn run(args: &[String]) -> Result<Outcome, Failure> {
    let manifest = manifest()?;
    let mut known: Vec<&str> = manifest.build.iter().map(|build| build.linux.as_str()).collect();
    known.dedup();
    let (versions, linux) = match args {
        [] => (known, None),
        [version] if known.contains(&version.as_str()) => (vec![version.as_str()], None),
        [version, option, dir] if known.contains(&version.as_str()) && option == "--linux" => {
            (vec![version.as_str()], Some(PathBuf::from(dir)))
        }
        _ => {
            let remedy = format!("give one of {}, and then --linux DIR if you like; or nothing", known.join(", "));
            return Err(Failure::new("cargo xtask kernel-objects", "unknown arguments", remedy));
        }
    };
    let cache = cache()?;
    for version in versions {
        let linux = source(linux.clone(), version, &cache)?;
        for build in manifest.build.iter().filter(|build| build.linux == version) {
            for object in build_one(&manifest.common, build, &linux, &cache)? {
                println!("{}", object.display());
            }
        }
    }
    Ok(Outcome::Good)
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
    let tree = Tree { linux, dir: &tree, arch: &build.arch, cross: &build.cross, compiler: build.compiler.as_deref() };
    match &build.debian {
        Some(arch) => tree.configured(&debian_config(&build.linux, arch, cache)?)?,
        None => {
            let options: String = common.iter().chain(&build.options).map(|o| format!("CONFIG_{o}\n")).collect();
            tree.configure(&options)?;
        }
    }
    tree.make(&["prepare"])?;
    let targets: Vec<&str> = build.objects.iter().filter_map(|object| object.to_str()).collect();
    tree.make(&targets)?;
    for (object, wanted) in build.objects.iter().zip(&wanted) {
        let built = tree.dir.join(object);
        fs::copy(&built, wanted).map_err(|e| Failure::at(&built, e, "see what make said"))?;
    }
    Ok(wanted)
}
