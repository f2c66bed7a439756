// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask engines`: fetches QEMU with plugins out of Debian's packages, for `tramptool check --engine qemu`.
//!
//! It is unpacked in the cache, with the C library that it wants: nothing of the host changes.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::apt::{Apt, Archive};
use crate::debian::started_by;
use crate::failure::Failure;
use crate::tools::write;
use crate::tree::cache;
use crate::verb::Outcome;

/// The first suite whose QEMU lets plugins set the program counter (version 6 of their interface).
const SUITE: &str = "sid";
/// The packages, and the programs that are wanted of them.
const PACKAGES: [&str; 2] = ["qemu-system-arm", "qemu-system-riscv"];
const PROGRAMS: [&str; 2] = ["qemu-system-aarch64", "qemu-system-riscv64"];
/// What a bare machine does without: firmware, data and services.
const WITHOUT: [&str; 7] =
    ["qemu-system-data", "ipxe-qemu", "seabios", "opensbi", "systemd", "libc6-dev", "openssl-provider-legacy"];

/// Do it.
pub fn run(args: &[String]) -> Result<Outcome, Failure> {
    if let [first, ..] = args {
        return Err(Failure::new("cargo xtask engines", format!("unknown argument '{first}'"), "give none"));
    }
    let dir = cache()?.join("engines");
    let (unpacked, programs) = (dir.join("root"), dir.join("bin"));
    if !unpacked.exists() {
        eprintln!("downloading QEMU of Debian's {SUITE}, some 45 MB");
        let apt = Apt::new(&dir.join("apt"), &Archive::Suite(SUITE), None)?;
        let packages = apt.dependencies(&PACKAGES.map(str::to_owned), &WITHOUT.map(str::to_owned))?;
        let part = dir.join("root.part");
        apt.unpack(&packages, &part)?;
        fs::rename(&part, &unpacked).map_err(|e| Failure::at(&part, e, "remove this directory"))?;
    }
    fs::create_dir_all(&programs).map_err(|e| Failure::at(&programs, e, "make room for the cache"))?;
    let with = started_by(&unpacked)?;
    for program in PROGRAMS {
        let file = programs.join(program);
        let binary = unpacked.join("usr/bin").join(program);
        write(&file, format!("#!/bin/sh\nexec {with} {} \"$@\"\n", binary.display()).as_bytes())?;
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&file, executable).map_err(|e| Failure::at(&file, e, "remove this directory"))?;
    }
    println!("export TRAMPTOOL_QEMU={}", programs.display());
    Ok(Outcome::Good)
}
