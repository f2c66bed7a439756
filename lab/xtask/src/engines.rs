// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask engines`: fetches QEMU with plugins and Bochs out of Debian's packages, for `tramptool check --engine qemu`,
//! `--engine gdb`, `--engine bochs` and `--enforce`; and newer readers of recordings than this machine has, for the tests of `trace`.
//!
//! They are unpacked in the cache, each with the C library that it wants: nothing of the host changes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::apt::{Apt, Archive};
use crate::debian::started_by;
use crate::failure::Failure;
use crate::tools::write;
use crate::tree::cache;
use crate::verb::Outcome;

/// Programs that are fetched.
struct Engine {
    /// What people call it.
    name: &'static str,
    suite: &'static str,
    size: &'static str,
    packages: &'static [&'static str],
    /// What a bare machine does without: firmware, data, services, displays.
    without: &'static [&'static str],
    /// What it is unpacked in, below the directory of engines.
    dir: &'static str,
    /// The programs that are wanted, with the file of each below that directory.
    programs: &'static [(&'static str, &'static str)],
    /// Directories below it that variables name.
    variables: &'static [(&'static str, &'static str)],
    /// The variable that names the directory of programs.
    named_by: &'static str,
}

const ENGINES: [Engine; 3] = [
    Engine {
        name: "QEMU",
        // The first suite whose QEMU lets plugins set the program counter (version 6 of their interface).
        suite: "sid",
        size: "45 MB",
        packages: &["qemu-system-arm", "qemu-system-riscv"],
        without: &[
            "qemu-system-data",
            "ipxe-qemu",
            "seabios",
            "opensbi",
            "systemd",
            "libc6-dev",
            "openssl-provider-legacy",
        ],
        dir: "root",
        programs: &[
            ("qemu-system-aarch64", "usr/bin/qemu-system-aarch64"),
            ("qemu-system-riscv64", "usr/bin/qemu-system-riscv64"),
        ],
        variables: &[],
        named_by: "TRAMPTOOL_QEMU",
    },
    Engine {
        name: "Bochs",
        suite: "bookworm",
        size: "35 MB",
        packages: &["bochs"],
        without: &[
            "bochs-wx",
            "bochsbios",
            "seabios",
            "vgabios",
            "libgtk-3-common",
            "adwaita-icon-theme",
            "hicolor-icon-theme",
            "shared-mime-info",
            "libgdk-pixbuf2.0-common",
            "dconf-gsettings-backend",
            "fontconfig-config",
            "x11-common",
        ],
        dir: "bochs",
        programs: &[("bochs", "usr/bin/bochs-bin")],
        variables: &[("LTDL_LIBRARY_PATH", "usr/lib/x86_64-linux-gnu/bochs/plugins"), ("BXSHARE", "usr/share/bochs")],
        named_by: "TRAMPTOOL_BOCHS",
    },
    Engine {
        name: "uftrace and babeltrace2",
        // uftrace 0.19, and babeltrace2 2.1, which reads CTF 2.
        suite: "sid",
        size: "25 MB",
        packages: &["uftrace", "babeltrace2"],
        without: &["libc6-dev", "openssl-provider-legacy"],
        dir: "readers",
        programs: &[("uftrace", "usr/bin/uftrace"), ("babeltrace2", "usr/bin/babeltrace2")],
        variables: &[("BABELTRACE_PLUGIN_PATH", "usr/lib/x86_64-linux-gnu/babeltrace2/plugins")],
        named_by: "TRAMPTOOL_READERS",
    },
];

/// Do it.
pub fn run(args: &[String]) -> Result<Outcome, Failure> {
    if let [first, ..] = args {
        return Err(Failure::new("cargo xtask engines", format!("unknown argument '{first}'"), "give none"));
    }
    let dir = cache()?.join("engines");
    let programs = dir.join("bin");
    fs::create_dir_all(&programs).map_err(|e| Failure::at(&programs, e, "make room for the cache"))?;
    for engine in &ENGINES {
        fetch(engine, &dir, &programs)?;
        println!("export {}={}", engine.named_by, programs.display());
    }
    Ok(Outcome::Good)
}

/// Unpack an engine, and have scripts that start its programs.
fn fetch(engine: &Engine, dir: &Path, programs: &Path) -> Result<(), Failure> {
    let unpacked = dir.join(engine.dir);
    if !unpacked.exists() {
        eprintln!("downloading {} of Debian's {}, some {}", engine.name, engine.suite, engine.size);
        let apt = Apt::new(&dir.join("apt").join(engine.suite), &Archive::Suite(engine.suite), None)?;
        let owned = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let packages = apt.dependencies(&owned(engine.packages), &owned(engine.without))?;
        let part = unpacked.with_extension("part");
        apt.unpack(&packages, &part)?;
        fs::rename(&part, &unpacked).map_err(|e| Failure::at(&part, e, "remove this directory"))?;
    }
    let with = started_by(&unpacked)?;
    let variables: String =
        engine.variables.iter().map(|(name, at)| format!("export {name}={}\n", unpacked.join(at).display())).collect();
    for (program, at) in engine.programs {
        let (file, binary) = (programs.join(program), unpacked.join(at));
        write(&file, format!("#!/bin/sh\n{variables}exec {with} {} \"$@\"\n", binary.display()).as_bytes())?;
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&file, executable).map_err(|e| Failure::at(&file, e, "remove this directory"))?;
    }
    Ok(())
}
