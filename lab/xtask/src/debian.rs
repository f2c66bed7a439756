// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian's own kernels: downloaded and unpacked in the cache, with what modules for them are built with.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::apt::{Apt, Archive};
use crate::failure::Failure;
use crate::kernels::Kernel;
use crate::tools::{below, name, read, write};
use crate::tree::NEWER;

/// What is behind Debian's modpost, for our architectures.
const MODPOST: &str = "scripts/mod/modpost.real-lsb-64";

/// A kernel as it is installed.
pub struct Place {
    /// Whose it is, and its version.
    pub what: String,
    /// The directory of the kernel's headers, which modules are built against.
    pub headers: PathBuf,
    /// Variables for make, with what it was not built with.
    pub make: Vec<String>,
    /// The kernel image that QEMU boots.
    pub image: PathBuf,
}

/// Debian's newest kernel of a version and a flavour, which boots without modules; from the cache if one is there, else downloaded,
/// which is also returned. The architecture is the flavour's last word.
pub fn debian(kernel: &Kernel, cache: &Path) -> Result<(Place, bool), Failure> {
    let flavour = kernel.on.debian.as_str();
    let arch = flavour.rsplit('-').next().unwrap_or(flavour);
    let dir = cache.join("debian").join(&kernel.version).join(arch);
    let unpacked = dir.join("root");
    let fresh = !unpacked.exists();
    if fresh {
        eprintln!("downloading Debian's kernel {} for {arch}, some 30 to 105 MB", kernel.version);
        fetch(kernel, (arch, flavour), &dir, cache)?;
    }
    let sources = unpacked.join("usr/src");
    let (start, end) = (format!("linux-headers-{}.", kernel.version), format!("-{flavour}"));
    let entries = fs::read_dir(&sources).map_err(|e| Failure::at(&sources, e, "remove this directory"))?;
    let mut names = entries.filter_map(|e| e.ok()?.file_name().into_string().ok());
    let headers = names.find(|name| name.starts_with(&start) && name.ends_with(&end));
    let headers = headers.ok_or_else(|| Failure::at(&sources, "no headers in it", "remove this directory"))?;
    let version = headers.trim_start_matches("linux-headers-");
    let names = ["vmlinuz", "vmlinux"];
    let places = |name| [format!("boot/{name}-{version}"), format!("usr/lib/modules/{version}/{name}")];
    let images = names.into_iter().flat_map(places);
    let image = images.map(|file| unpacked.join(file)).find(|file| file.exists());
    let place = Place {
        image: image.ok_or_else(|| Failure::at(&unpacked, "no kernel in it", "remove this directory"))?,
        what: format!("Debian's {version}"),
        make: variables(kernel, &sources.join(&headers))?,
        headers: sources.join(&headers),
    };
    Ok((place, fresh))
}

/// What make has to be told, since this machine has other tools than Debian built the kernel with.
fn variables(kernel: &Kernel, headers: &Path) -> Result<Vec<String>, Failure> {
    // The headers have the type information of a vmlinux, and would have pahole make that of the module.
    let mut make = vec!["CONFIG_DEBUG_INFO_BTF_MODULES=".to_owned()];
    let pinned = read(&headers.join(".kernelvariables"))?;
    let compiler = pinned.lines().find(|line| line.starts_with("CC =")).and_then(|line| line.rsplit(')').next());
    let compiler = format!("{}{}", kernel.on.cross, compiler.unwrap_or("gcc").trim());
    if Command::new(compiler).arg("--version").output().is_err() {
        make.push(format!("CC={}gcc", kernel.on.cross));
        // What GCC can do since version 14, and what is said where there is another pahole.
        make.extend(["CONFIG_CC_HAS_MIN_FUNCTION_ALIGNMENT=", "CONFIG_PAHOLE_VERSION=0"].map(str::to_owned));
    }
    Ok(make)
}

/// Download and unpack it.
fn fetch(kernel: &Kernel, (arch, flavour): (&str, &str), dir: &Path, cache: &Path) -> Result<(), Failure> {
    let part = dir.join("root.part");
    let (prefix, suffix) = (format!("linux-headers-{}.", kernel.version), format!("-{flavour}"));
    let lists = dir.join("apt");
    let mut apt = Apt::new(&lists, &Archive::Host, Some(arch))?;
    let mut version = newest(&apt, &prefix, &suffix)?;
    for suite in [NEWER.to_owned(), format!("{NEWER}-backports")] {
        if version.is_none() {
            apt = Apt::new(&lists, &Archive::Suite(&suite), Some(arch))?;
            version = newest(&apt, &prefix, &suffix)?;
        }
    }
    let Some(version) = version else {
        return Err(Failure::new(
            "apt-cache pkgnames",
            format!("has no kernel {} of flavour {flavour}", kernel.version),
            "give this machine the network, and the security archive of Debian 12 in its list of sources",
        ));
    };
    // Of late the image is a package of its own.
    let image = format!("linux-binary-{version}{suffix}");
    let image = if apt.names(&image)?.is_empty() { format!("linux-image-{version}{suffix}") } else { image };
    // The tools that build modules run here.
    let wanted = [
        image,
        format!("linux-headers-{version}{suffix}"),
        format!("linux-headers-{version}-common"),
        format!("linux-kbuild-{version}:{}", apt.host),
    ];
    apt.unpack(&wanted, &part)?;
    let tools = part.join(format!("usr/lib/linux-kbuild-{version}"));
    if !runs(&tools.join(MODPOST)) {
        with_library(&tools, cache)?;
    }
    // The one absolute path in it.
    let makefile = part.join(format!("usr/src/linux-headers-{version}{suffix}/Makefile"));
    let text = read(&makefile)?.replace("/usr/src/", &format!("{}/usr/src/", dir.join("root").display()));
    write(&makefile, text.as_bytes())?;
    fs::rename(&part, dir.join("root")).map_err(|e| Failure::at(&part, e, "remove this directory"))
}

/// The newest version of which there are headers.
fn newest(apt: &Apt, prefix: &str, suffix: &str) -> Result<Option<String>, Failure> {
    let known = apt.names(prefix)?;
    let number =
        |version: &str| version.split(|c: char| !c.is_ascii_digit()).nth(2).and_then(|n| n.parse::<u32>().ok());
    let versions = known.iter().filter_map(|l| l.strip_prefix("linux-headers-")?.strip_suffix(suffix));
    Ok(versions.max_by_key(|v| number(v)).map(str::to_owned))
}

/// Does a program start here? Debian's newer ones want a newer C library.
fn runs(program: &Path) -> bool {
    let run = Command::new(program).output();
    run.is_ok_and(|run| !String::from_utf8_lossy(&run.stderr).contains("GLIBC"))
}

/// How programs are started by the C library that is unpacked in a directory, with the libraries beside it.
pub fn started_by(library: &Path) -> Result<String, Failure> {
    let mut found = below(library)?.into_iter().filter(|file| name(file).starts_with("ld-linux"));
    let loader = found.find(|file| file.with_file_name("libc.so.6").exists());
    let loader = loader.ok_or_else(|| Failure::at(library, "no C library in it", "remove this directory"))?;
    let beside = loader.parent().unwrap_or(library);
    // Releases before trixie have the C library in /lib, and others below /usr/lib.
    let others = match beside.strip_prefix(library.join("usr")) {
        Ok(merged) => library.join(merged),
        Err(_) => library.join("usr").join(beside.strip_prefix(library).unwrap_or(beside)),
    };
    Ok(format!("{} --library-path {}:{}", loader.display(), beside.display(), others.display()))
}

/// Let the programs of this machine among these be started by the C library of Debian's newer release, in a directory of the cache.
fn with_library(tools: &Path, cache: &Path) -> Result<(), Failure> {
    let library = cache.join(format!("libc6-{NEWER}"));
    if !library.exists() {
        let apt = Apt::new(&cache.join("apt").join(NEWER), &Archive::Suite(NEWER), None)?;
        apt.unpack(&["libc6".to_owned()], &cache.join("libc6.part"))?;
        fs::rename(cache.join("libc6.part"), &library).map_err(|e| Failure::at(&library, e, "remove it"))?;
    }
    // Each finds others by its own name.
    let with = format!("{} --argv0 \"$0\"", started_by(&library)?);
    let script = format!("#!/bin/sh\nexec {with} \"$0.program\" \"$@\"\n");
    for file in below(tools)? {
        let trouble = |e| Failure::at(&file, e, "remove this directory");
        let permissions = fs::metadata(&file).map_err(trouble)?.permissions();
        if permissions.mode() & 0o111 == 0 || !fs::read(&file).map_err(trouble)?.starts_with(b"\x7fELF") {
            continue;
        }
        fs::rename(&file, format!("{}.program", file.display())).map_err(trouble)?;
        write(&file, script.as_bytes())?;
        fs::set_permissions(&file, permissions).map_err(trouble)?;
    }
    Ok(())
}
