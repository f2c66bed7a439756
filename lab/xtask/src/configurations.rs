// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask configurations`: builds the trampolines of kernels as people configure them, and has `tramptool check --kernel-build`
//! choose the contract of each and judge it.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::failure::Failure;
use crate::objects::common;
use crate::tools::{root, tramptool};
use crate::tree::{Tree, cache, source};
use crate::verb::Outcome;

/// What `configurations.toml` says.
#[derive(Deserialize)]
struct Manifest {
    versions: Vec<String>,
    machine: Vec<Machine>,
}

/// An architecture of the kernel.
#[derive(Deserialize)]
struct Machine {
    arch: String,
    cross: String,
    objects: Vec<String>,
    /// Options of all configurations that begin with tinyconfig, without `CONFIG_`.
    options: Vec<String>,
    configuration: Vec<Wanted>,
}

/// A configuration.
#[derive(Deserialize)]
struct Wanted {
    name: String,
    /// A target of kconfig; tinyconfig where none is named.
    base: Option<String>,
    compiler: Option<String>,
    #[serde(default)]
    options: Vec<String>,
}

/// Do it.
pub fn run(args: &[String]) -> Result<Outcome, Failure> {
    let path = root().join("lab/xtask/configurations.toml");
    let text = fs::read_to_string(&path).map_err(|e| Failure::at(&path, e, "restore it from git"))?;
    let manifest: Manifest = toml::from_str(&text).map_err(|e| Failure::at(&path, e, "mend it"))?;
    if let Some(unknown) = args.iter().find(|arg| !manifest.versions.contains(arg)) {
        let remedy = format!("give one of {}, or nothing", manifest.versions.join(", "));
        return Err(Failure::new("cargo xtask configurations", format!("unknown version {unknown}"), remedy));
    }
    let (cache, mut bad) = (cache()?, 0);
    for version in manifest.versions.iter().filter(|version| args.is_empty() || args.contains(version)) {
        let linux = source(None, version, &cache)?;
        for machine in &manifest.machine {
            for wanted in &machine.configuration {
                let name = format!("config-{version}-{}-{}", machine.arch, wanted.name);
                let dir = cache.join("build").join(&name);
                build(&linux, &dir, machine, wanted)?;
                let (holds, said) = judged(&dir)?;
                println!("{name}: {said}");
                bad += usize::from(!holds);
            }
        }
    }
    Ok(if bad == 0 { Outcome::Good } else { Outcome::Bad })
}

/// Configure and build, unless it is there.
fn build(linux: &Path, dir: &Path, machine: &Machine, wanted: &Wanted) -> Result<(), Failure> {
    if machine.objects.iter().all(|object| dir.join(object).exists()) {
        return Ok(());
    }
    fs::create_dir_all(dir).map_err(|e| Failure::at(dir, e, "make room for the cache"))?;
    let Machine { arch, cross, .. } = machine;
    let tree = Tree { linux, dir, arch, cross, compiler: wanted.compiler.as_deref() };
    let lines = |options: &[String]| options.iter().map(|option| format!("CONFIG_{option}\n")).collect::<String>();
    match &wanted.base {
        None => tree.configure(&(lines(&common()?) + &lines(&machine.options) + &lines(&wanted.options)))?,
        Some(base) => tree.configure_from(base, &(lines(&common()?) + &lines(&wanted.options)))?,
    }
    tree.make(&["prepare"])?;
    let objects: Vec<&str> = machine.objects.iter().map(String::as_str).collect();
    tree.make(&objects)?;
    Ok(())
}

/// Whether all clauses hold, and the report's sum or what is wrong.
fn judged(dir: &Path) -> Result<(bool, String), Failure> {
    let run = tramptool().args(["check", "--kernel-build"]).arg(dir).output();
    let run = run.map_err(|e| Failure::new("tramptool", e.to_string(), "set TRAMPTOOL"))?;
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    let first = |of: &str| out.lines().find(|line| line.contains(of)).map(str::to_owned);
    let said = match run.status.code() {
        Some(0) => first(" pass, "),
        Some(1) => first("FAIL"),
        _ => None,
    };
    Ok((run.status.success(), said.unwrap_or_else(|| err.trim().to_owned())))
}
