// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask modules`: a generated module in Debian's own kernels, and in one of ours, judged by our program there.
//!
//! Packages are downloaded and unpacked in the cache, through apt's own lists there: nothing of the host changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::apt::{Apt, Archive};
use crate::boot::{Bench, live_sites, place};
use crate::document::{record, record_time, today};
use crate::failure::Failure;
use crate::kernels::{Kernel, kernels, profile_in};
use crate::qemu::{SILENCE, initramfs};
use crate::tools::{call, name, read, tramptool, write};
use crate::tree::{cache, source};
use crate::verb::Outcome;

/// What is traced, and by what: see `kernel/init.c`.
const SIG: &str = "ssize_t comm_write(struct file *file, const char __user *buf, size_t count, loff_t *offset)";
const MODULE: &str = "trace_comm_write";

/// A kernel as it is installed.
struct Place {
    /// Whose it is, and its version.
    what: String,
    /// What modules are built with.
    headers: PathBuf,
    /// What QEMU boots.
    image: PathBuf,
}

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
    let start = Instant::now();
    let good = match how {
        "--fetch" => {
            let mut with_arch = chosen.filter_map(|k| Some((k, k.on.debian.as_deref()?)));
            with_arch.try_for_each(|(k, arch)| debian(arch, &k.version, &cache).map(drop))?;
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
    let start = Instant::now();
    // The document is about Debian's.
    let recorded = linux.is_none();
    let loaded = load(kernels.iter().filter(|k| k.first()), linux, cache)?;
    if let Some(first) = kernels.first().filter(|_| loaded.good && recorded) {
        record(&format!("Modules, Linux {}", first.version), &loaded.table)?;
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
        format!("{}. A direct-call trampoline for `{SIG}`.\n", today()),
        "| architecture | kernel | sites | packages, seconds | build, seconds | boot, seconds | result |".to_owned(),
        "|---|---|---|---|---|---|---|".to_owned(),
    ];
    let (mut good, mut downloaded) = (true, false);
    for kernel in kernels {
        let start = Instant::now();
        let (place, fresh) = match &kernel.on.debian {
            Some(arch) => debian(arch, &kernel.version, cache)?,
            None => (ours(kernel, linux.clone(), cache)?, false),
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
    let source = dir.path().join("module");
    let mut tool = tramptool();
    tool.args(["gen", "direct", "--sig", SIG, "--call", MODULE, "--emit", "kmod", "--profile", &kernel.profile]);
    call(tool.arg("--kernel-build").arg(&place.headers).arg("-o").arg(&source))?;
    // A call leaves nothing where arguments were.
    let main = source.join(format!("{MODULE}_main.c"));
    let (count, left) = ("\tWRITE_ONCE(calls, calls + 1);\n", "\tstatic char left[32];\n\n");
    let hostile = format!("{left}{count}\tsnprintf(left, sizeof(left), \"%lu\", calls);\n");
    let text = read(&main)?;
    if !text.contains(count) {
        return Err(Failure::at(&main, "does not count calls as before", "mend what is put in its place here"));
    }
    write(&main, text.replace(count, &hostile).as_bytes())?;
    let mut make = Command::new("make");
    make.arg("-sC").arg(&place.headers).arg(format!("M={}", source.display()));
    make.args([format!("ARCH={}", kernel.on.arch), format!("CROSS_COMPILE={}", kernel.on.cross)]);
    // Debian's headers have the type information of a vmlinux, and would have pahole make that of the module.
    let said = call(make.args(["CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"]))?.err;
    let built = start.elapsed().as_secs_f64();
    let object = |end: &str| {
        let path = source.join(format!("{MODULE}_tramp.{end}"));
        fs::read(&path).map_err(|e| Failure::at(&path, e, "see what make said"))
    };
    let ours = object("o")? == object("o_shipped")?;
    let files = dir.path().join("initramfs");
    initramfs(&kernel.on.cross, Some(&source.join(format!("{MODULE}.ko"))), &files)?;
    eprintln!("booting {} with {MODULE}.ko", place.what);
    let boot = kernel.on.machine.boot(&place.image, &files, SILENCE)?;
    let warned = !said.trim().is_empty();
    if warned {
        eprintln!("{said}");
    }
    if !boot.well() {
        boot.last.iter().for_each(|line| eprintln!("    {line}"));
    }
    let listed = vmlinux(&place.image, dir.path())?.map(|file| live_sites(&file)).transpose()?;
    let same_sites = listed.is_none() || listed == boot.sites;
    let result = match (warned, ours, boot.well()) {
        _ if !same_sites => "NO: the kernel says another number of sites than `tramptool sites`",
        (true, ..) => "NO: something was said while it was built",
        (_, false, _) => "NO: kbuild made another object",
        (.., false) => &boot.end,
        (false, true, true) => "all is well",
    };
    let seconds = format!("{fetched:.1} | {built:.1} | {:.1}", boot.took.as_secs_f64());
    let sites = listed.as_deref().unwrap_or("-");
    let good = boot.well() && ours && !warned && same_sites;
    Ok((format!("| {} | {} | {sites} | {seconds} | {result} |", kernel.name, place.what), good))
}

/// The vmlinux in a compressed image for x86 (kernel Documentation/arch/x86/boot.rst); `None` of another image.
fn vmlinux(image: &Path, dir: &Path) -> Result<Option<PathBuf>, Failure> {
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
    call(Command::new("zstd").args(["-qd"]).arg(&packed).arg("-o").arg(&unpacked))?;
    Ok(Some(unpacked))
}

/// A kernel of `cargo xtask kernel`.
fn ours(kernel: &Kernel, linux: Option<PathBuf>, cache: &Path) -> Result<Place, Failure> {
    let linux = source(linux, &kernel.version, cache)?;
    let dir = place(kernel, cache);
    let bench = Bench::new(kernel, &linux, &dir);
    bench.build()?;
    let image = bench.stock.join(name(&kernel.on.image));
    Ok(Place { what: format!("our own {}", bench.version()?), headers: dir, image })
}

/// Debian's newest kernel of a version for clouds, which boots without modules; from the cache if one is there, else downloaded,
/// which is also returned.
fn debian(arch: &str, kernel: &str, cache: &Path) -> Result<(Place, bool), Failure> {
    let dir = cache.join("debian").join(kernel).join(arch);
    let unpacked = dir.join("root");
    let fresh = !unpacked.exists();
    if fresh {
        eprintln!("downloading Debian's kernel for {arch}, 85 MB");
        fetch(arch, kernel, &dir)?;
    }
    let entries = fs::read_dir(unpacked.join("boot"));
    let entries = entries.map_err(|e| Failure::at(&unpacked, e, "remove this directory"))?;
    let mut files = entries.filter_map(|e| e.ok()?.file_name().into_string().ok());
    let found = files.find_map(|f| Some(f.strip_prefix("vmlinuz-")?.to_owned()));
    let version = found.ok_or_else(|| Failure::at(&unpacked, "no kernel in it", "remove this directory"))?;
    let place = Place {
        headers: unpacked.join(format!("usr/src/linux-headers-{version}")),
        image: unpacked.join(format!("boot/vmlinuz-{version}")),
        what: format!("Debian's {version}"),
    };
    Ok((place, fresh))
}

/// Download and unpack it.
fn fetch(arch: &str, kernel: &str, dir: &Path) -> Result<(), Failure> {
    let part = dir.join("root.part");
    let apt = Apt::new(&dir.join("apt"), &Archive::Host, Some(arch))?;
    let known = apt.names(&format!("linux-headers-{kernel}."))?;
    let suffix = format!("-cloud-{arch}");
    let number =
        |version: &str| version.split(|c: char| !c.is_ascii_digit()).nth(2).and_then(|n| n.parse::<u32>().ok());
    let versions = known.iter().filter_map(|l| l.strip_prefix("linux-headers-")?.strip_suffix(&suffix));
    let Some(version) = versions.max_by_key(|v| number(v)) else {
        return Err(Failure::new(
            "apt-cache pkgnames",
            format!("has no kernel {kernel} for clouds"),
            "give this machine the network, and the security archive of Debian 12 in its list of sources",
        ));
    };
    // The tools that build modules run here.
    let wanted = [
        format!("linux-image-{version}-cloud-{arch}"),
        format!("linux-headers-{version}-cloud-{arch}"),
        format!("linux-headers-{version}-common"),
        format!("linux-kbuild-{version}:{}", apt.host),
    ];
    apt.unpack(&wanted, &part)?;
    // The one absolute path in it.
    let makefile = part.join(format!("usr/src/linux-headers-{version}-cloud-{arch}/Makefile"));
    let text = read(&makefile)?.replace("/usr/src/", &format!("{}/usr/src/", dir.join("root").display()));
    write(&makefile, text.as_bytes())?;
    fs::rename(&part, dir.join("root")).map_err(|e| Failure::at(&part, e, "remove this directory"))
}
