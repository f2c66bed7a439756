// SPDX-License-Identifier: MIT OR Apache-2.0
//! A kernel's source, and the directories in which it is built: all in a cache outside the repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::tools::{PACKAGES, call};

/// Where Debian's package puts the source.
const TARBALL: &str = "/usr/src/linux-source-6.12.tar.xz";

/// `$TRAMPTOOL_KERNEL_CACHE`, or a directory in the user's cache.
pub fn cache() -> Result<PathBuf, Failure> {
    let cache = kernel_cache::directory().ok_or_else(|| {
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
        // Under its name it is complete.
        let part = cache.join("linux-source.part");
        fs::create_dir_all(&part).map_err(|e| Failure::at(&part, e, "make room for the cache"))?;
        call(Command::new("tar").arg("xf").arg(TARBALL).arg("-C").arg(&part))?;
        fs::rename(part.join("linux-source-6.12"), &tree).map_err(|e| Failure::at(&tree, e, "remove it"))?;
    }
    Ok(tree)
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
        let arch = [format!("ARCH={}", self.arch), format!("CROSS_COMPILE={}", self.cross)];
        Ok(call(make.args(arch).args(targets))?.err)
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
