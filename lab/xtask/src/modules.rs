// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask modules`: a generated module in Debian's own kernels, and in one of ours, judged by our program there.
//!
//! Packages are downloaded and unpacked in the cache, through apt's own lists there: nothing of the host changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::boot::{Bench, live_sites, place};
use crate::debian::{Place, debian};
use crate::document::{Begun, KERNELS, record, record_time, today};
use crate::failure::Failure;
use crate::hook;
use crate::kernels::{Kernel, kernels, profile_in};
use crate::qemu::{Trial, initramfs};
use crate::tools::{call, name, write};
use crate::tree::{cache, source};
use crate::verb::Outcome;

/// Do it.
pub fn run(args: &[String]) -> Result<Outcome, Failure> {
    let (profile, args) = profile_in(args)?;
    let kernels = kernels(profile)?;
    let (how, names) = match args.split_first() {
        Some((how, names)) if how.starts_with("--") => (how.as_str(), names),
        _ => ("", &*args),
    };
    let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    let known: Vec<&str> = kernels.iter().map(|k| k.name.as_str()).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        let remedy = format!("give some of {}, or nothing for all", known.join(", "));
        return Err(Failure::new("cargo xtask modules", format!("there is no kernel {unknown}"), remedy));
    }
    let cache = cache()?;
    let chosen = kernels.iter().filter(|k| if names.is_empty() { k.first() } else { names.contains(&k.name.as_str()) });
    let start = Begun::now();
    let good = match how {
        "--fetch" => {
            let mut debians = chosen.filter(|k| k.on.loads_into_debian);
            debians.try_for_each(|k| debian(k, &cache).map(drop))?;
            true
        }
        "" if names.is_empty() => all(&kernels, None, &cache)?,
        "" => {
            let loaded = load(chosen, None, &cache)?;
            if loaded.good {
                let command = format!(
                    "`./x modules --profile {} {}`",
                    kernels.first().map_or("", |k| &k.profile),
                    names.join(" ")
                );
                record_time(&(command + loaded.with_downloads()), start)?;
            }
            loaded.good
        }
        "--check" => load(chosen, None, &cache)?.good,
        _ => {
            return Err(Failure::new(
                "cargo xtask modules",
                format!("unknown option {how}"),
                "give --fetch or --check",
            ));
        }
    };
    Ok(if good { Outcome::Good } else { Outcome::Bad })
}

/// Load it into all kernels, those of ours built from `linux` or from Debian's source, and write down what came of it.
pub fn all(kernels: &[Kernel], linux: Option<PathBuf>, cache: &Path) -> Result<bool, Failure> {
    let start = Begun::now();
    // The document is about Debian's.
    let recorded = linux.is_none();
    let loaded = load(kernels.iter().filter(|k| k.first()), linux, cache)?;
    if let Some(first) = kernels.first().filter(|_| loaded.good && recorded) {
        record(KERNELS, &format!("Modules, Linux {}", first.version), &loaded.table)?;
        record_time(&format!("`./x modules --profile {}`{}", first.profile, loaded.with_downloads()), start)?;
    }
    Ok(loaded.good)
}

/// What came of loading it.
struct Loaded {
    table: String,
    good: bool,
    /// Something was not in the cache before.
    downloaded: bool,
}

impl Loaded {
    fn with_downloads(&self) -> &'static str {
        if self.downloaded { ", with the downloads" } else { "" }
    }
}

/// Load it into some kernels.
fn load<'k>(
    kernels: impl Iterator<Item = &'k Kernel>,
    linux: Option<PathBuf>,
    cache: &Path,
) -> Result<Loaded, Failure> {
    let mut table = vec![
        format!("{}. A direct-call trampoline for `{}`.\n", today(), hook::CALLED.sig),
        "| architecture | kernel | sites | packages, seconds | build, seconds | boot, seconds | result |".to_owned(),
        "|---|---|---|---|---|---|---|".to_owned(),
    ];
    let (mut good, mut downloaded) = (true, false);
    for kernel in kernels {
        let start = Instant::now();
        let (place, fresh) = match kernel.on.loads_into_debian {
            true => debian(kernel, cache)?,
            false => (ours(kernel, linux.clone(), cache)?, false),
        };
        downloaded |= fresh;
        let (row, well) = judge(kernel, &place, start.elapsed().as_secs_f64())?;
        println!("{row}");
        table.push(row);
        good &= well;
    }
    Ok(Loaded { table: table.join("\n") + "\n", good, downloaded })
}

/// Generate the module, build it, load it.
fn judge(kernel: &Kernel, place: &Place, fetched: f64) -> Result<(String, bool), Failure> {
    let dir = tempfile::tempdir().map_err(|e| Failure::new("temporary directory", e.to_string(), "set TMPDIR"))?;
    let start = Instant::now();
    let (mut modules, mut wrong) = (Vec::new(), None);
    for hook in [hook::CALLED].into_iter().chain(hook::jumped(kernel)) {
        let built = hook::build(kernel, &place.headers, &place.make, &hook)?;
        wrong = wrong.or(built.wrong);
        modules.push(built.file);
    }
    let built = start.elapsed().as_secs_f64();
    let files = dir.path().join("initramfs");
    initramfs(&kernel.on.cross, &modules, &files)?;
    eprintln!("booting {} with {}", place.what, modules.iter().map(|(name, _)| &**name).collect::<Vec<_>>().join(", "));
    let boot = kernel.on.machine.boot(&place.image, &Trial::new(&files))?;
    if !boot.well() {
        boot.last.iter().for_each(|line| eprintln!("    {line}"));
    }
    let listed = vmlinux(&place.image, dir.path())?.map(|file| live_sites(&file)).transpose()?;
    let same_sites = listed.is_none() || listed == boot.sites;
    let result = match wrong {
        _ if !same_sites => "NO: the kernel says another number of sites than `tramptool sites`",
        Some(wrong) => wrong,
        None if boot.well() => "all is well",
        None => &boot.end,
    };
    let seconds = format!("{fetched:.1} | {built:.1} | {:.1}", boot.took.as_secs_f64());
    let sites = listed.as_deref().unwrap_or("-");
    let good = boot.well() && wrong.is_none() && same_sites;
    Ok((format!("| {} | {} | {sites} | {seconds} | {result} |", kernel.name, place.what), good))
}

/// The vmlinux in a compressed image for x86 (kernel Documentation/arch/x86/boot.rst); `None` of another image.
pub fn vmlinux(image: &Path, dir: &Path) -> Result<Option<PathBuf>, Failure> {
    let bytes = fs::read(image).map_err(|e| Failure::at(image, e, "remove this directory"))?;
    let number = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize);
    if bytes.get(0x202..0x206) != Some(b"HdrS") {
        return Ok(None);
    }
    let payload = || {
        let setup = bytes.get(0x1f1).map(|&sectors| if sectors == 0 { 4 } else { usize::from(sectors) })?;
        let from = ((setup + 1) * 512).checked_add(number(0x248)?)?;
        // Behind it is its size.
        bytes.get(from..from.checked_add(number(0x24c)?.checked_sub(4)?)?)
    };
    let payload = payload().ok_or_else(|| Failure::at(image, "no payload in it", "remove this directory"))?;
    let (packed, unpacked) = (dir.join("vmlinux.zst"), dir.join("vmlinux"));
    write(&packed, payload)?;
    call(Command::new("zstd").args(["-qdf"]).arg(&packed).arg("-o").arg(&unpacked))?;
    Ok(Some(unpacked))
}

/// A kernel of `cargo xtask kernel`.
fn ours(kernel: &Kernel, linux: Option<PathBuf>, cache: &Path) -> Result<Place, Failure> {
    let linux = source(linux, &kernel.version, cache)?;
    let dir = place(kernel, cache);
    let bench = Bench::new(kernel, &linux, &dir);
    bench.build()?;
    let image = bench.stock.join(name(&kernel.on.image));
    let make = bench.compiled_by();
    Ok(Place { what: format!("our own {}", bench.version()?), make, headers: dir, image })
}
