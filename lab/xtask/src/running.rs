// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask running`: boots Debian's own kernels, or what is built of their source where there is none, with BPF programs, tracers and
//! probes, takes the trampolines that they wrote out of their memory, has the tool judge all of them, and compares what it found with
//! the kernel's own lists.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::boot::{Bench, place};
use crate::debian::debian;
use crate::failure::Failure;
use crate::kernels::{Kernel, kernels, profile_in};
use crate::listed::{Lists, Written};
use crate::modules::vmlinux;
use crate::qemu::{Boot, Trial, archive, program};
use crate::tools::{name as file_name, root, tramptool, write};
use crate::tree::{cache, source};
use crate::verb::Outcome;

/// Do it.
pub fn run(args: &[String]) -> Result<Outcome, Failure> {
    let (profile, mut names) = profile_in(args)?;
    let before = names.len();
    names.retain(|name| *name != "--built");
    let may_build = names.len() < before;
    let profiles = profile.map_or_else(|| vec!["linux-6.12", "linux-7.3"], |profile| vec![profile]);
    let cache = cache()?;
    let mut good = true;
    for profile in profiles {
        let all = kernels(Some(profile))?;
        let asked = |k: &&Kernel| k.first() && (names.is_empty() || names.contains(&&k.name));
        for kernel in all.iter().filter(asked) {
            let (what, image) = match image(kernel, may_build, &cache) {
                Ok(found) => found,
                // The archive of one architecture may be out of order when those of others are not.
                Err(failure) => {
                    println!("{}: no image of {}: {failure}", kernel.name, kernel.version);
                    good = false;
                    continue;
                }
            };
            let dir = cache.join("running").join(format!("{}-{}", kernel.version, kernel.name));
            fs::create_dir_all(&dir).map_err(|e| Failure::at(&dir, e, "make room for the cache"))?;
            println!("{}: {what}", kernel.name);
            let boot = boot(kernel, &image, &dir)?;
            let lists = lists(&boot);
            let files = Files::write(kernel, &image, &boot, &dir)?;
            println!("    {}", lists.counts());
            good &= judged(&files, &lists)?;
            good &= sited(&files, &lists)?;
        }
    }
    Ok(if good { Outcome::Good } else { Outcome::Bad })
}

/// What a kernel is, and its image: Debian's own; or, if one may be built, one of Debian's source where the archive does not give Debian's.
fn image(kernel: &Kernel, may_build: bool, cache: &Path) -> Result<(String, PathBuf), Failure> {
    let missing = match debian(kernel, cache) {
        Ok((place, _)) => return Ok((place.what, place.image)),
        Err(missing) if may_build => missing,
        Err(missing) => return Err(missing),
    };
    println!("{}: Debian's kernel {} is not to be had: {missing}", kernel.name, kernel.version);
    let name = format!("{}-running", kernel.name);
    let config = ["common", &kernel.name, "running"].map(str::to_owned).to_vec();
    let built = Kernel { name, config, ..kernel.clone() };
    let (linux, dir) = (source(None, &built.version, cache)?, place(&built, cache));
    let bench = Bench::new(&built, &linux, &dir);
    bench.build()?;
    let what = format!("{}, built here of Debian's source with {}", bench.version()?, bench.compiler()?);
    Ok((what, bench.stock.join(file_name(&built.on.image))))
}

/// Boot a kernel with our program.
fn boot(kernel: &Kernel, image: &Path, dir: &Path) -> Result<Boot, Failure> {
    let init = program(&kernel.on.cross, &root().join("lab/xtask/kernel/running.c"))?;
    let initramfs = dir.join("initramfs");
    write(&initramfs, &archive([("init".to_owned(), init)].iter()))?;
    let boot = kernel.on.machine.boot(image, &Trial::new(&initramfs))?;
    boot.must_be_well(&kernel.name)?;
    told(&boot, "running: ").iter().for_each(|line| println!("    {line}"));
    Ok(boot)
}

/// What our program told, of the lines that begin so.
fn told<'b>(boot: &'b Boot, start: &str) -> Vec<&'b str> {
    boot.told.iter().filter_map(|line| line.strip_prefix(start)).collect()
}

/// What the kernel's own lists say.
fn lists(boot: &Boot) -> Lists<'_> {
    Lists {
        symbols: told(boot, "symbol: "),
        traced: told(boot, "traced: "),
        kprobes: told(boot, "kprobe: "),
        links: told(boot, "link: "),
    }
}

/// What the tool is given.
struct Files {
    kcore: PathBuf,
    kallsyms: PathBuf,
    btf: PathBuf,
}

impl Files {
    /// Write down what a kernel told; beside what the tool is given, the kernel's list of kprobes.
    fn write(kernel: &Kernel, image: &Path, boot: &Boot, dir: &Path) -> Result<Files, Failure> {
        let files = Files { kcore: dir.join("kcore"), kallsyms: dir.join("kallsyms"), btf: dir.join("btf") };
        let lines = |start: &str| told(boot, start).join("\n") + "\n";
        write(&files.kallsyms, lines("symbol: ").as_bytes())?;
        write(&dir.join("kprobes"), lines("kprobe: ").as_bytes())?;
        let release = told(boot, "release: ").first().copied().unwrap_or_default().to_owned();
        write(&files.kcore, &core((&kernel.name, kernel.on.elf_machine), &release, &told(boot, "memory: "))?)?;
        write(&files.btf, &types(image, dir)?)?;
        Ok(files)
    }
}

/// Have the tool say what each site does; print it, and whether those are on that the kernel lists, and no others, and lead to what it
/// says.
fn sited(files: &Files, lists: &Lists) -> Result<bool, Failure> {
    let mut tool = tramptool();
    tool.args(["sites", "--format", "json", "--kcore"]).arg(&files.kcore).arg("--kallsyms").arg(&files.kallsyms);
    let run = tool.output().map_err(|e| Failure::new("tramptool", e.to_string(), "set TRAMPTOOL"))?;
    let report: Value = serde_json::from_slice(&run.stdout).unwrap_or_default();
    let sites = report["sites"].as_array().map_or(&[][..], |all| all);
    let text = |site: &Value, key: &str| site[key].as_str().unwrap_or_default().to_owned();
    for site in sites {
        let calls = site["calls"].as_str().map_or(String::new(), |calls| format!(", which calls {calls}"));
        println!("    site: {} {} {}{calls}", text(site, "function"), text(site, "state"), text(site, "target"));
    }
    let on: Vec<_> = sites.iter().filter(|site| site["state"] == "on").collect();
    let astray = on.iter().map(|site| (text(site, "function"), text(site, "target")));
    let astray: Vec<_> = astray.filter(|(function, target)| !lists.leads(function, target)).collect();
    astray.iter().for_each(|(function, _)| println!("    the kernel says that the site of {function} leads elsewhere"));
    let on: BTreeSet<String> = on.iter().map(|site| text(site, "function")).collect();
    let traced = lists.functions();
    println!("    {} sites on, {} off; {} in the kernel's list", on.len(), report["totals"]["off"], traced.len());
    if on != traced || !run.status.success() {
        println!("    the kernel's list: {traced:?}");
        print!("{}", String::from_utf8_lossy(&run.stderr));
    }
    Ok(on == traced && astray.is_empty() && run.status.success() && !on.is_empty())
}

/// An ELF core file with this memory: addresses, and bytes in hexadecimal digits.
pub fn core((name, machine): (&str, u16), release: &str, memory: &[&str]) -> Result<Vec<u8>, Failure> {
    let odd = || Failure::new(name, "prints memory that cannot be read", "run it again");
    let mut parts: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for line in memory {
        let (at, digits) = line.split_once(' ').ok_or_else(odd)?;
        let at = u64::from_str_radix(at, 16).map_err(|_| odd())?;
        let byte = |n: usize| digits.get(n..n + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
        parts.insert(at, (0..digits.len()).step_by(2).map(byte).collect::<Option<_>>().ok_or_else(odd)?);
    }
    let note = format!("OSRELEASE={release}\n");
    let count = parts.len() + 1;
    let mut out = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let halves = |out: &mut Vec<u8>, all: &[u16]| all.iter().for_each(|half| out.extend(half.to_le_bytes()));
    halves(&mut out, &[4, machine]);
    out.extend(1_u32.to_le_bytes());
    [0_u64, 64, 0].iter().for_each(|word| out.extend(word.to_le_bytes()));
    out.extend(0_u32.to_le_bytes());
    halves(&mut out, &[64, 56, count as u16, 64, 0, 0]);
    let mut offset = 64 + 56 * count as u64;
    let mut program = |kind: u32, at: u64, size: u64, out: &mut Vec<u8>| {
        out.extend(kind.to_le_bytes());
        out.extend(7_u32.to_le_bytes());
        [offset, at, 0, size, size, 1].iter().for_each(|word| out.extend(word.to_le_bytes()));
        offset += size;
    };
    program(4, 0, note.len() as u64, &mut out);
    parts.iter().for_each(|(at, bytes)| program(1, *at, bytes.len() as u64, &mut out));
    out.extend(note.as_bytes());
    parts.values().for_each(|bytes| out.extend(bytes));
    Ok(out)
}

/// The type information in a kernel image: what begins with its header, as large as that says.
fn types(image: &Path, dir: &Path) -> Result<Vec<u8>, Failure> {
    let unpacked = match vmlinux(image, dir)? {
        Some(file) => fs::read(&file).map_err(|e| Failure::at(&file, e, "remove this directory"))?,
        None => plain(image)?,
    };
    let word = |at: usize| unpacked.get(at..at + 4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]) as usize);
    let size = |at: usize| Some(24 + word(at + 16)? + word(at + 20)?);
    let begins = |at: &usize| unpacked[*at..].starts_with(b"\x9f\xeb\x01\0\x18\0\0\0\0\0\0\0");
    let found = (0..unpacked.len().saturating_sub(24)).filter(begins);
    let found = found.filter_map(|at| Some(at..at + size(at)?)).filter(|range| range.end <= unpacked.len());
    let largest = found.max_by_key(|range| range.len());
    let range = largest.ok_or_else(|| Failure::at(image, "no type information in it", "give another kernel"))?;
    Ok(unpacked[range].to_vec())
}

/// An image as it is, or unpacked by gzip or zstd, which begin somewhere in it.
fn plain(image: &Path) -> Result<Vec<u8>, Failure> {
    let bytes = fs::read(image).map_err(|e| Failure::at(image, e, "remove this directory"))?;
    for (magic, tool) in [(&b"\x1f\x8b\x08"[..], "gzip"), (b"\x28\xb5\x2f\xfd", "zstd")] {
        if let Some(at) = bytes.windows(magic.len()).position(|window| window == magic) {
            let packed = tempfile::NamedTempFile::new();
            let packed = packed.map_err(|e| Failure::new("temporary file", e.to_string(), "set TMPDIR"))?;
            write(packed.path(), &bytes[at..])?;
            // What follows it is none of it, which the tool says too.
            let run = Command::new(tool)
                .arg("-dcq")
                .stdin(fs::File::open(packed.path()).map_err(|e| Failure::at(image, e, "try again"))?)
                .output();
            let out = run.map_err(|e| Failure::new(tool, e.to_string(), format!("apt-get install {tool}")))?.stdout;
            if out.len() > bytes.len() {
                return Ok(out);
            }
        }
    }
    Ok(bytes)
}

/// Have the tool judge all of it; print what it says of each, and whether it found those that the kernel lists.
fn judged(files: &Files, lists: &Lists) -> Result<bool, Failure> {
    let (verdicts, said) = verdicts(&files.kcore, &files.kallsyms, Some(&files.btf))?;
    for (name, (verdict, more)) in &verdicts {
        println!("    {verdict}: {name}{more}");
    }
    let found: BTreeSet<Written> = verdicts.keys().filter_map(|name| Written::told(name)).collect();
    lists.idle(&found).iter().for_each(|one| println!("    no site leads to {}@{:#x}", one.name, one.address));
    let wrong = lists.differences(&found);
    if !wrong.is_empty() {
        wrong.iter().for_each(|line| println!("    {line}"));
        print!("{said}");
    }
    let good = verdicts.values().all(|(verdict, _)| verdict == "holds");
    Ok(good && wrong.is_empty() && !found.is_empty())
}

/// By the names of trampolines, a verdict, and of what.
type Verdicts = BTreeMap<String, (String, String)>;

/// What the tool says of each trampoline in a kernel's memory, and what it says on stderr.
pub fn verdicts(kcore: &Path, kallsyms: &Path, btf: Option<&Path>) -> Result<(Verdicts, String), Failure> {
    let mut tool = tramptool();
    tool.args(["check", "--format", "json", "--kcore"]).arg(kcore).arg("--kallsyms").arg(kallsyms);
    tool.args(btf.map(|btf| [Path::new("--btf"), btf]).into_iter().flatten());
    let run = tool.output().map_err(|e| Failure::new("tramptool", e.to_string(), "set TRAMPTOOL"))?;
    let report: Value = serde_json::from_slice(&run.stdout).unwrap_or_default();
    let mut verdicts = Verdicts::new();
    for result in report["results"].as_array().map_or(&[][..], |all| all) {
        let text = |key: &str| result[key].as_str().unwrap_or_default().to_owned();
        let name = match text("reason_id").as_str() {
            "cannot-be-judged" => text("trampoline"),
            _ => text("options"),
        };
        let entry = verdicts.entry(name).or_insert_with(|| ("nothing judged".to_owned(), String::new()));
        match text("verdict").as_str() {
            "fail" => {
                entry.0 = "fails".to_owned();
                let _ = write!(entry.1, " {}", text("clause"));
            }
            "pass" if entry.0 == "nothing judged" => entry.0 = "holds".to_owned(),
            "open" => *entry = ("not judged".to_owned(), format!(" {}", text("reason"))),
            _ => {}
        }
    }
    Ok((verdicts, String::from_utf8_lossy(&run.stderr).into_owned()))
}
