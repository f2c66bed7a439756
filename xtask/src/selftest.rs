// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask kernel`: real kernels, with their own trampolines and with generated ones, judged by their own tests.
//!
//! A kernel is built once, in the cache. It is booted as it is, for the baseline: what its startup tests say. Then its
//! trampoline objects are replaced by generated ones, it is linked again, and must say the same, line by line, and our
//! program in it that all is well. Objects with a fault must not get that far.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use object::{Object, ObjectSection, ObjectSymbol};
use serde::Deserialize;

use crate::failure::Failure;
use crate::kernel::{PACKAGES, Tree, cache, call, source};
use crate::{Outcome, root};

/// What our program prints when the kernel has come that far and its own checks are good.
const WELL: &str = "init: all is well";

/// A kernel that has not ended by then never will.
const LIMIT: Duration = Duration::from_secs(240);

/// Nor one that says nothing for so long; where it is known how long a boot takes, for three times that.
const SILENCE: Duration = Duration::from_secs(45);

/// A kernel that says so much repeats itself.
const MOST: u64 = 4 << 20;

/// What `kernel/kernels.toml` says.
#[derive(Debug, Deserialize)]
struct Manifest {
    kernel: Vec<Kernel>,
}

/// A kernel.
#[derive(Debug, Deserialize)]
struct Kernel {
    name: String,
    /// `ARCH` for make.
    arch: String,
    /// `CROSS_COMPILE` for make; also the prefix of the compiler for our program.
    cross: String,
    /// What QEMU boots, relative to the kernel's tree.
    image: PathBuf,
    /// The machine.
    qemu: Vec<String>,
    /// The kernel's options about its console.
    console: String,
    /// What is replaced.
    swap: Vec<Swap>,
    /// Faults: in words, and as `gen --fault` takes them.
    fault: Vec<(String, String)>,
}

/// An object of the kernel, and what goes into its place.
#[derive(Debug, Deserialize)]
struct Swap {
    object: PathBuf,
    trampolines: Vec<String>,
    export: Vec<String>,
}

/// A boot that has ended, one way or another.
struct Boot {
    /// How, in words.
    end: String,
    /// What the tests said, without what differs from run to run.
    tests: Vec<String>,
    /// The last lines of the log.
    last: Vec<String>,
    /// Sites that the kernel says that it has.
    sites: Option<String>,
    took: Duration,
}

impl Boot {
    fn well(&self) -> bool {
        self.tests.iter().any(|line| line == WELL)
    }

    fn passed(&self) -> usize {
        self.tests.iter().filter(|line| line.ends_with("PASSED")).count()
    }
}

/// Do it.
pub fn run(args: &[String]) -> Result<Outcome, Failure> {
    let place = root().join("xtask/kernel");
    let path = place.join("kernels.toml");
    let manifest: Manifest = toml::from_str(&read(&path)?).map_err(|e| Failure::at(&path, e, "mend it"))?;
    let names: Vec<&str> = manifest.kernel.iter().map(|k| k.name.as_str()).collect();
    let usage = || {
        let remedy = format!("give one of {}, with --quick or --linux DIR", names.join(", "));
        Failure::new("cargo xtask kernel", format!("unknown arguments: {}", args.join(" ")), remedy)
    };
    let (mut quick, mut linux, mut name) = (false, None, None);
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match arg.as_str() {
            "--quick" => quick = true,
            "--linux" => linux = Some(PathBuf::from(rest.next().ok_or_else(usage)?)),
            _ if name.is_none() => name = Some(arg),
            _ => return Err(usage()),
        }
    }
    let kernel = manifest.kernel.iter().find(|k| Some(&k.name) == name).ok_or_else(usage)?;
    let cache = cache()?;
    let linux = source(linux, &cache)?;
    let dir = cache.join("boot").join(&kernel.name);
    let bench = Bench {
        kernel,
        tree: Tree { linux: &linux, dir: &dir, arch: &kernel.arch, cross: &kernel.cross },
        stock: cache.join("boot").join(format!("{}-stock", kernel.name)),
    };
    bench.build(&(read(&place.join("common.config"))? + &read(&place.join(format!("{}.config", kernel.name)))?))?;
    let judged = bench.judge(quick);
    bench.restore()?;
    let (report, good) = judged?;
    print!("{report}");
    if !quick {
        record(&kernel.name, &report)?;
    }
    Ok(if good { Outcome::Good } else { Outcome::Bad })
}

/// A kernel and where it is.
struct Bench<'b> {
    kernel: &'b Kernel,
    tree: Tree<'b>,
    /// The kernel as it was built: image, vmlinux, the objects that are replaced.
    stock: PathBuf,
}

impl Bench<'_> {
    /// Build the kernel, unless it was built with this configuration before, and our program.
    fn build(&self, config: &str) -> Result<(), Failure> {
        let built = self.stock.join("config");
        if fs::read_to_string(&built).is_ok_and(|old| old == config) {
            return Ok(());
        }
        eprintln!("building a kernel for {}; this takes 5 to 20 minutes, once", self.kernel.name);
        for dir in [self.tree.dir, &self.stock] {
            fs::create_dir_all(dir).map_err(|e| Failure::at(dir, e, "make room for the cache"))?;
        }
        self.tree.configure(config)?;
        self.tree.make(&[name(&self.kernel.image)])?;
        for file in self.kept() {
            copy(&self.tree.dir.join(file), &self.stock.join(name(file)))?;
        }
        let init = self.stock.join("init");
        let mut gcc = Command::new(format!("{}gcc", self.kernel.cross));
        call(gcc.args(["-O2", "-static", "-o"]).arg(&init).arg(root().join("xtask/kernel/init.c")))?;
        let program = fs::read(&init).map_err(|e| Failure::at(&init, e, "see what the compiler said"))?;
        write(&self.stock.join("initramfs"), &archive(&program))?;
        write(&built, config.as_bytes())
    }

    /// The files that a swap changes.
    fn kept(&self) -> impl Iterator<Item = &Path> {
        let objects = self.kernel.swap.iter().map(|s| s.object.as_path());
        objects.chain([self.kernel.image.as_path(), Path::new("vmlinux")])
    }

    /// Put the kernel's own objects back.
    fn restore(&self) -> Result<(), Failure> {
        self.kernel
            .swap
            .iter()
            .try_for_each(|s| copy(&self.stock.join(name(&s.object)), &self.tree.dir.join(&s.object)))
    }

    /// Boot the kernel as it is, with generated objects, and with faulty ones. Returns the report, and whether all is as
    /// it should be.
    fn judge(&self, quick: bool) -> Result<(String, bool), Failure> {
        let baseline = self.boot(&self.stock, "baseline", SILENCE)?;
        if !baseline.well() {
            let log = baseline.last.join("\n    ");
            return Err(Failure::new("the kernel as it is", baseline.end, format!("its log ends:\n    {log}")));
        }
        let listed = self.listed(&self.stock.join("vmlinux"))?;
        let same_sites = baseline.sites.as_ref() == Some(&listed);
        let version = self.version()?;
        let mut rows = vec![
            format!("Linux {version}, {}, {}", today(), self.qemu_version()?),
            String::new(),
            "| variant | ended | tests passed | as the baseline | seconds |".to_owned(),
            "|---|---|---|---|---|".to_owned(),
            row("the kernel's own", &baseline, "-"),
        ];
        let mut good = same_sites;
        let silence = SILENCE.min(3 * baseline.took + Duration::from_secs(5));
        let variant = self.variant(None, silence)?;
        let differs = difference(&baseline.tests, &variant.tests);
        rows.push(row("generated", &variant, differs.as_deref().map_or("yes", |_| "NO")));
        if let Some(line) = differs {
            good = false;
            rows.push(format!("\n    {line}\n    {}\n", variant.last.join("\n    ")));
        }
        let faults = if quick { 1 } else { self.kernel.fault.len() };
        for (about, fault) in self.kernel.fault.iter().take(faults) {
            let control = self.variant(Some(fault), silence)?;
            let noticed = !control.well() && difference(&baseline.tests, &control.tests).is_some();
            good &= noticed;
            rows.push(row(
                &format!("fault: {about} (`{fault}`)"),
                &control,
                if noticed { "no, as it must be" } else { "YES: the fault went unnoticed" },
            ));
        }
        let sites = baseline.sites.as_deref().unwrap_or("an unknown number of");
        let agree = if same_sites { "as many as" } else { "NOT as many as" };
        rows.push(format!(
            "\nThe kernel allocates {sites} entries for ftrace, {agree} `tramptool sites` finds: {listed}.\n"
        ));
        rows.push("What the tests say, on all that are like the baseline:\n".to_owned());
        rows.extend(baseline.tests.iter().map(|line| format!("    {line}")));
        Ok((rows.join("\n") + "\n", good))
    }

    /// Swap, link, look whether the image has what was generated, boot.
    fn variant(&self, fault: Option<&str>, silence: Duration) -> Result<Boot, Failure> {
        let what = fault.unwrap_or("generated");
        let dir = tempfile::tempdir().map_err(|e| Failure::new("temporary directory", e.to_string(), "set TMPDIR"))?;
        let mut generated = Vec::new();
        for (i, swap) in self.kernel.swap.iter().enumerate() {
            let stem = format!("swap{i}");
            let mut tool = tramptool();
            tool.arg("gen").args(&swap.trampolines).arg("--kernel-build").arg(self.tree.dir);
            tool.args(swap.export.iter().flat_map(|e| ["--export", e]));
            let here = fault.filter(|f| swap.trampolines.iter().any(|t| f.starts_with(&format!("{t}:"))));
            tool.args(here.iter().flat_map(|f| ["--fault", f]));
            call(tool.args(["--emit", "obj", "--stem", &stem, "-o"]).arg(dir.path()))?;
            let object = dir.path().join(stem + ".o");
            copy(&object, &self.tree.dir.join(&swap.object))?;
            generated.push(object);
        }
        let said = self.tree.make(&[name(&self.kernel.image)])?;
        if let Some(line) = said.lines().find(|line| fault.is_none() && line.contains("warning")) {
            return Err(Failure::new("linking the kernel", line, "see what is generated there, and mend it"));
        }
        let vmlinux = self.tree.dir.join("vmlinux");
        for object in &generated {
            contains(&vmlinux, object)?;
            if contains(&self.stock.join("vmlinux"), object).is_ok() {
                let remedy = "the check that the image has what was generated cannot fail: mend it";
                return Err(Failure::at(&self.stock, "has our code already", remedy));
            }
        }
        copy(&self.tree.dir.join(&self.kernel.image), &dir.path().join(name(&self.kernel.image)))?;
        self.boot(dir.path(), what, silence)
    }

    /// Boot the image in a directory; it is over when it says nothing for `silence`.
    fn boot(&self, dir: &Path, what: &str, silence: Duration) -> Result<Boot, Failure> {
        eprintln!("booting {}: {what}", self.kernel.name);
        let log = tempfile::NamedTempFile::new()
            .map_err(|e| Failure::new("temporary file", e.to_string(), "set TMPDIR to another directory"))?;
        let to = |file: std::io::Result<File>| {
            file.map_err(|e| Failure::at(log.path(), e, "set TMPDIR to another directory"))
        };
        let (program, machine) =
            self.kernel.qemu.split_first().ok_or_else(|| Failure::new("qemu", "is empty", "name one"))?;
        let start = Instant::now();
        let mut qemu = Command::new(program)
            .args(machine)
            .args(["-m", "512", "-smp", "1", "-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio", "-kernel"])
            .arg(dir.join(name(&self.kernel.image)))
            .arg("-initrd")
            .arg(self.stock.join("initramfs"))
            .args(["-append", &format!("{} panic=-1 oops=panic", self.kernel.console)])
            .stdin(Stdio::null())
            .stdout(to(log.reopen())?)
            .stderr(to(log.reopen())?)
            .spawn()
            .map_err(|e| Failure::new(program, e.to_string(), qemu_remedy()))?;
        let (mut size, mut heard) = (0, start);
        let end = loop {
            let ended = qemu.try_wait().map_err(|e| Failure::new(program, e.to_string(), qemu_remedy()))?;
            let now = log.as_file().metadata().map_or(0, |m| m.len());
            if now != size {
                (size, heard) = (now, Instant::now());
            }
            let stop = match () {
                () if ended.is_some() => break "by itself",
                () if heard.elapsed() > silence => "silence",
                () if start.elapsed() > LIMIT => "no end",
                () if size > MOST => "endless messages",
                () => {
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                }
            };
            // It may have ended in this moment.
            let _ = qemu.kill();
            let _ = qemu.wait();
            break stop;
        };
        let bytes = fs::read(log.path()).map_err(|e| Failure::at(log.path(), e, "set TMPDIR to another directory"))?;
        Ok(heard_in(&String::from_utf8_lossy(&bytes), end, start.elapsed()))
    }

    /// How many live sites `tramptool sites` finds.
    fn listed(&self, vmlinux: &Path) -> Result<String, Failure> {
        let run = tramptool().arg("sites").arg(vmlinux).output();
        let run = run.map_err(|e| Failure::new("tramptool sites", e.to_string(), "put cargo on the PATH"))?;
        let text = String::from_utf8_lossy(&run.stdout);
        let live = text.lines().rev().find_map(|l| l.split_once(" entries, ")?.1.split_once(" live"));
        live.map(|(n, _)| n.to_owned())
            .ok_or_else(|| Failure::new("tramptool sites", String::from_utf8_lossy(&run.stderr), "see what it says"))
    }

    fn version(&self) -> Result<String, Failure> {
        Ok(read(&self.tree.dir.join("include/config/kernel.release"))?.trim().to_owned())
    }

    fn qemu_version(&self) -> Result<String, Failure> {
        let program = self.kernel.qemu.first().map_or("", String::as_str);
        let run = Command::new(program).arg("--version").output();
        let run = run.map_err(|e| Failure::new(program, e.to_string(), qemu_remedy()))?;
        let text = String::from_utf8_lossy(&run.stdout).into_owned();
        let words: Vec<&str> = text.split_whitespace().take(4).collect();
        Ok(words.join(" "))
    }
}

fn qemu_remedy() -> String {
    format!("apt-get install -y --no-install-recommends qemu-system-misc qemu-system-arm qemu-system-x86 {PACKAGES}")
}

/// What a log says.
fn heard_in(log: &str, end: &str, took: Duration) -> Boot {
    let mut tests = Vec::new();
    let mut testing = "";
    for line in log.lines().map(without_time) {
        // The verdict may come on a line of its own, after what others said, or with numbers that vary.
        if line.starts_with("Testing ") {
            testing = line;
        }
        if line.ends_with("PASSED") && !line.starts_with("Testing ") {
            tests.push(format!("{} PASSED", testing.split_once(": ").map_or(testing, |(t, _)| t).trim_end()));
        } else if line == WELL
            || ["PASSED", ": OK"].iter().any(|end| line.ends_with(end))
            || ["FAILED", "NG: ", "not ok "].iter().any(|part| line.contains(part))
            || ["ok ", "    ok ", "WARNING: ", "BUG: "].iter().any(|start| line.starts_with(start))
        {
            tests.push(line.to_owned());
        }
    }
    let panic = log.lines().map(without_time).find(|l| l.starts_with("Kernel panic"));
    let last: Vec<&str> = log.lines().collect();
    let from = last.len().saturating_sub(8);
    let end = match panic {
        Some(panic) => panic.to_owned(),
        None if tests.iter().any(|l| l == WELL) => "switched off".to_owned(),
        None => end.to_owned(),
    };
    let allocating = log.lines().find_map(|l| l.split_once("ftrace: allocating ")?.1.split_once(' '));
    Boot {
        end,
        tests,
        last: last.get(from..).unwrap_or_default().iter().map(|l| (*l).to_owned()).collect(),
        sites: allocating.map(|(n, _)| n.to_owned()),
        took,
    }
}

/// A line of the log without its time.
fn without_time(line: &str) -> &str {
    line.trim_end().split_once("] ").filter(|(time, _)| time.starts_with('[')).map_or(line.trim_end(), |(_, rest)| rest)
}

/// The first line in which they differ.
fn difference(baseline: &[String], other: &[String]) -> Option<String> {
    let none = "(nothing more)".to_owned();
    let at = baseline.iter().zip(other).position(|(a, b)| a != b).unwrap_or(baseline.len().min(other.len()));
    if baseline.len() == other.len() && at == baseline.len() {
        return None;
    }
    let line = |of: &[String]| of.get(at).unwrap_or(&none).clone();
    Some(format!("baseline: {}; here: {}", line(baseline), line(other)))
}

fn row(variant: &str, boot: &Boot, same: &str) -> String {
    format!("| {variant} | {} | {} | {same} | {:.1} |", boot.end, boot.passed(), boot.took.as_secs_f64())
}

/// Does the kernel have the code of each function of `object`, but for the fields that the linker filled in?
fn contains(vmlinux: &Path, object: &Path) -> Result<(), Failure> {
    let fail = |what: String| Failure::at(vmlinux, what, "see whether make linked the objects that it was given");
    let bytes = |path: &Path| fs::read(path).map_err(|e| Failure::at(path, e, "see what make said"));
    let (kernel, ours) = (bytes(vmlinux)?, bytes(object)?);
    let kernel = object::File::parse(&*kernel).map_err(|e| fail(e.to_string()))?;
    let ours = object::File::parse(&*ours).map_err(|e| fail(e.to_string()))?;
    let text = ours.section_by_name(".text").ok_or_else(|| fail("no .text in the object".to_owned()))?;
    let code = text.data().map_err(|e| fail(e.to_string()))?;
    // A relocation changes at most the eight bytes from its place on.
    let fields: Vec<u64> = text.relocations().map(|(at, _)| at).collect();
    let kept = |at: u64| !fields.iter().any(|f| (*f..f + 8).contains(&at));
    let theirs: HashMap<&str, u64> = kernel.symbols().filter_map(|s| Some((s.name().ok()?, s.address()))).collect();
    for function in ours.symbols().filter(|s| s.is_definition() && s.size() > 0) {
        let name = function.name().unwrap_or_default();
        let address = theirs.get(name).ok_or_else(|| fail(format!("no {name}")))?;
        let range = function.address()..function.address() + function.size();
        let there = kernel.sections().find_map(|s| s.data_range(*address, function.size()).ok().flatten());
        let here = code.get(range.start as usize..range.end as usize);
        let same = here.zip(there).is_some_and(|(a, b)| {
            a.len() == b.len() && range.clone().zip(a.iter().zip(b)).all(|(at, (a, b))| a == b || !kept(at))
        });
        if !same {
            return Err(fail(format!("{name} is not what was generated")));
        }
    }
    Ok(())
}

/// An initramfs with our program (kernel Documentation/driver-api/early-userspace/buffer-format.rst).
fn archive(program: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, mode, data) in [("init", 0o100_755, program), ("TRAILER!!!", 0, &[])] {
        let fields = [1, mode, 0, 0, 1, 0, data.len(), 0, 0, 0, 0, name.len() + 1, 0];
        out.extend_from_slice(b"070701");
        fields.iter().for_each(|field| out.extend_from_slice(format!("{field:08x}").as_bytes()));
        for part in [&[name.as_bytes(), b"\0"].concat()[..], data] {
            out.extend_from_slice(part);
            out.resize(out.len().next_multiple_of(4), 0);
        }
    }
    out
}

/// Replace the section of one kernel in the document.
fn record(name: &str, report: &str) -> Result<(), Failure> {
    let path = root().join("docs/real-kernels.md");
    let old = read(&path)?;
    let heading = format!("## {name}\n");
    let (before, rest) = old.split_once(&heading).unwrap_or((&old, ""));
    let after = rest.find("\n## ").and_then(|at| rest.get(at..)).unwrap_or_default();
    write(&path, format!("{}\n\n{heading}\n{report}{after}", before.trim_end()).as_bytes())
}

fn today() -> String {
    let run = Command::new("date").arg("+%Y-%m-%d").output();
    run.map_or_else(|_| "unknown date".to_owned(), |run| String::from_utf8_lossy(&run.stdout).trim().to_owned())
}

/// The tool of this repository.
fn tramptool() -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--quiet", "--locked", "--package", "tramptool", "--manifest-path"]);
    cargo.arg(root().join("Cargo.toml")).arg("--");
    cargo
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|n| n.to_str()).unwrap_or_default()
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|e| Failure::at(path, e, "restore it from git, or build the kernel again"))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    fs::write(path, bytes).map_err(|e| Failure::at(path, e, "make room, or make it writable"))
}

/// Copy a file; the copy is younger than everything, so that make keeps it.
fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    let bytes = fs::read(from).map_err(|e| Failure::at(from, e, "see what make said"))?;
    write(to, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As kernels say it: with the time, over two lines, with numbers that vary.
    const LOG: &str = "[    0.000000] ftrace: allocating 10997 entries in 43 pages\n\
                       [    0.095900] Testing tracer function: PASSED\n\
                       [    0.964309] Testing dynamic ftrace ops #1: \n\
                       [    0.970000] something else\n\
                       [    1.378498] (3 3 5 0 79340) PASSED\n\
                       [    1.500000]     ok 1 test_kprobe\n\
                       init: all is well\n";

    #[test]
    fn what_varies_is_not_compared() {
        let boot = heard_in(LOG, "by itself", Duration::ZERO);
        let wanted = [
            "Testing tracer function: PASSED",
            "Testing dynamic ftrace ops #1: PASSED",
            "    ok 1 test_kprobe",
            "init: all is well",
        ];
        assert_eq!((boot.tests.as_slice(), boot.passed(), boot.well()), (&wanted.map(String::from)[..], 2, true));
        assert_eq!((boot.sites.as_deref(), boot.end.as_str()), (Some("10997"), "switched off"));
        let later = LOG.replace("79340", "12").replace("0.095900", "7.1");
        assert_eq!(difference(&boot.tests, &heard_in(&later, "", Duration::ZERO).tests), None);
        let worse = heard_in(&LOG.replace("function: PASSED", "function: FAILED!"), "", Duration::ZERO);
        assert!(difference(&boot.tests, &worse.tests).is_some());
        let hung = heard_in(LOG.split("    ok 1").next().unwrap_or_default(), "silence", Duration::ZERO);
        assert_eq!((hung.well(), hung.end.as_str(), hung.last.len()), (false, "silence", 6));
        assert!(difference(&boot.tests, &hung.tests).is_some_and(|d| d.ends_with("(nothing more)")));
        let dead = heard_in("[    0.1] Kernel panic - not syncing: Oops\n", "by itself", Duration::ZERO);
        assert_eq!(dead.end, "Kernel panic - not syncing: Oops");
    }

    #[test]
    fn every_kernel_has_a_configuration_and_three_faults() {
        let place = root().join("xtask/kernel");
        let manifest: Manifest = toml::from_str(&read(&place.join("kernels.toml")).unwrap()).unwrap();
        for kernel in manifest.kernel {
            assert!(place.join(format!("{}.config", kernel.name)).exists());
            assert_eq!(kernel.fault.len(), 3, "{}", kernel.name);
            let trampolines: Vec<&String> = kernel.swap.iter().flat_map(|s| &s.trampolines).collect();
            for (_, fault) in &kernel.fault {
                assert!(trampolines.iter().any(|t| fault.starts_with(&format!("{t}:"))), "{fault}");
            }
        }
    }
}
