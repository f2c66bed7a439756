// SPDX-License-Identifier: MIT OR Apache-2.0
//! A kernel's source, and the directories in which it is built: all in a cache outside the repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::apt::{Apt, Archive};
use crate::failure::Failure;
use crate::tools::call;

/// The release of Debian whose backports have newer kernels.
pub const NEWER: &str = "trixie";

/// `$TRAMPTOOL_KERNEL_CACHE`, or a directory in the user's cache.
pub fn cache() -> Result<PathBuf, Failure> {
    let cache = kernel_cache::directory().ok_or_else(|| {
        Failure::new("HOME", "is not set", "set TRAMPTOOL_KERNEL_CACHE to a directory outside the repository")
    })?;
    fs::create_dir_all(&cache)
        .map_err(|e| Failure::at(&cache, e, "set TRAMPTOOL_KERNEL_CACHE to another directory"))?;
    Ok(cache)
}

/// The source of a kernel of this version: the one that was given, or Debian's.
pub fn source(given: Option<PathBuf>, version: &str, cache: &Path) -> Result<PathBuf, Failure> {
    match given {
        Some(dir) => dir.canonicalize().map_err(|e| Failure::at(&dir, e, "give the directory of a kernel's source")),
        None => unpack(version, cache),
    }
}

/// Debian's source, unpacked into the cache: from the package that is installed, or else from one that is downloaded.
fn unpack(version: &str, cache: &Path) -> Result<PathBuf, Failure> {
    let package = format!("linux-source-{version}");
    let tree = cache.join(&package);
    if tree.join("Makefile").exists() {
        return Ok(tree);
    }
    let place = Path::new("usr/src").join(format!("{package}.tar.xz"));
    let downloaded = cache.join(format!("{package}.package"));
    let mut tarball = Path::new("/").join(&place);
    if !tarball.exists() {
        eprintln!("downloading {package}");
        let apt = |archive, name: &str| Apt::new(&cache.join("apt").join(name), &archive, None);
        let mut apt_of = apt(Archive::Host, "host")?;
        if !apt_of.names(&package)?.contains(&package) {
            let suite = format!("{NEWER}-backports");
            apt_of = apt(Archive::Suite(&suite), &suite)?;
        }
        apt_of.unpack(std::slice::from_ref(&package), &downloaded)?;
        tarball = downloaded.join(place);
    }
    eprintln!("unpacking {}", tarball.display());
    // Under its name it is complete.
    let part = cache.join("linux-source.part");
    fs::create_dir_all(&part).map_err(|e| Failure::at(&part, e, "make room for the cache"))?;
    call(Command::new("tar").arg("xf").arg(&tarball).arg("-C").arg(&part))?;
    fs::rename(part.join(&package), &tree).map_err(|e| Failure::at(&tree, e, "remove it"))?;
    match fs::remove_dir_all(&downloaded) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Failure::at(&downloaded, e, "remove it")),
        _ => Ok(tree),
    }
}

/// Debian's configuration of a version for an architecture, as Debian names it: from this machine's archives, or else from
/// those of a later release.
pub fn debian_config(version: &str, arch: &str, cache: &Path) -> Result<String, Failure> {
    let package = format!("linux-config-{version}");
    let apt = |archive, name: &str| Apt::new(&cache.join("apt").join(format!("{name}-{arch}")), &archive, Some(arch));
    let mut apt_of = apt(Archive::Host, "host")?;
    if !apt_of.has(&package) {
        apt_of = apt(Archive::Suite(NEWER), NEWER)?;
    }
    let unpacked = cache.join(format!("{package}-{arch}.package"));
    apt_of.unpack(std::slice::from_ref(&package), &unpacked)?;
    let config = unpacked.join("usr/src").join(&package).join(format!("config.{arch}_none_{arch}.xz"));
    Ok(call(Command::new("xz").arg("-dc").arg(&config))?.out)
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
    /// `CC` for make, where it is not GCC.
    pub compiler: Option<&'t str>,
}

impl Tree<'_> {
    /// Make `targets`; returns what make had to say.
    pub fn make(&self, targets: &[&str]) -> Result<String, Failure> {
        let mut make = Command::new("make");
        make.current_dir(self.linux).args(["-s", "-j2"]).arg(format!("O={}", self.dir.display()));
        let arch = [format!("ARCH={}", self.arch), format!("CROSS_COMPILE={}", self.cross)];
        let compiler = self.compiler.map(|compiler| format!("CC={compiler}"));
        Ok(call(make.args(arch).args(compiler).args(targets))?.err)
    }

    /// Write a configuration: tinyconfig with these lines.
    pub fn configure(&self, options: &str) -> Result<(), Failure> {
        self.configure_from("tinyconfig", options)
    }

    /// Write a configuration: that of a target of kconfig, with these lines.
    pub fn configure_from(&self, base: &str, options: &str) -> Result<(), Failure> {
        // Kconfig says of it only that it failed.
        if let Some(compiler) = self.compiler.filter(|c| Command::new(c).arg("--version").output().is_err()) {
            return Err(Failure::new(compiler, "not installed", format!("apt-get install {compiler}")));
        }
        self.make(&[base])?;
        let config = self.dir.join(".config");
        let text = fs::read_to_string(&config).map_err(|e| Failure::at(&config, e, "see what make said"))?;
        // Of several lines for one option, kconfig takes the last.
        self.configured(&(text + options))
    }

    /// Write this configuration, completed by kconfig.
    pub fn configured(&self, text: &str) -> Result<(), Failure> {
        let config = self.dir.join(".config");
        fs::write(&config, text).map_err(|e| Failure::at(&config, e, "make room for the cache"))?;
        self.make(&["olddefconfig"])?;
        Ok(())
    }
}
