// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask kernel`: real kernels, with their own trampolines and with generated ones, judged by their own tests.
//!
//! A kernel is built once, in the cache, or with `--anew` in an empty one. It is booted as it is, for the baseline: what its startup tests say. Then its
//! trampoline objects are replaced by generated ones, it is linked again, and must say the same, line by line, and our
//! program in it that all is well. Objects with a fault must not get that far.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use object::{Object, ObjectSection, ObjectSymbol};
use serde::Deserialize;

use crate::failure::Failure;
use crate::kernel::{Tree, cache, call, source};
use crate::qemu::{Boot, Machine, SILENCE, initramfs};
use crate::{Outcome, modules, root};

/// What `kernel/kernels.toml` says.
#[derive(Debug, Deserialize)]
struct Manifest {
    kernel: Vec<Kernel>,
}

/// A kernel.
#[derive(Debug, Deserialize)]
pub struct Kernel {
    /// What it is called here.
    pub name: String,
    /// `ARCH` for make.
    pub arch: String,
    /// `CROSS_COMPILE` for make; also the prefix of the compiler for our program.
    pub cross: String,
    /// What QEMU boots, relative to the kernel's tree.
    pub image: PathBuf,
    #[serde(flatten)]
    /// Where it runs.
    pub machine: Machine,
    /// What Debian calls the architecture, where its release has such a kernel.
    pub debian: Option<String>,
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

/// The kernels of `kernel/kernels.toml`.
pub fn kernels() -> Result<Vec<Kernel>, Failure> {
    let path = root().join("xtask/kernel/kernels.toml");
    let manifest: Manifest = toml::from_str(&read(&path)?).map_err(|e| Failure::at(&path, e, "mend it"))?;
    Ok(manifest.kernel)
}

/// Do it.
pub fn run(args: &[String]) -> Result<Outcome, Failure> {
    let kernels = kernels()?;
    let names: Vec<&str> = kernels.iter().map(|k| k.name.as_str()).collect();
    let usage = || {
        let remedy = format!("give one of {}, all, with --quick, --anew or --linux DIR", names.join(", "));
        Failure::new("cargo xtask kernel", format!("unknown arguments: {}", args.join(" ")), remedy)
    };
    let (mut quick, mut anew, mut linux, mut name) = (false, false, None, None);
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match arg.as_str() {
            "--quick" => quick = true,
            "--anew" => anew = true,
            "--linux" => linux = Some(PathBuf::from(rest.next().ok_or_else(usage)?)),
            _ if name.is_none() => name = Some(arg),
            _ => return Err(usage()),
        }
    }
    let all = name.is_some_and(|name| name == "all");
    let chosen: Vec<&Kernel> = kernels.iter().filter(|k| all || Some(&k.name) == name).collect();
    if chosen.is_empty() {
        return Err(usage());
    }
    let start = Instant::now();
    let cache = cache()?;
    let empty = anew.then(|| tempfile::tempdir_in(&cache)).transpose();
    let empty = empty.map_err(|e| Failure::at(&cache, e, "make room for the cache, or make it writable"))?;
    let cache = empty.as_ref().map_or(&*cache, |dir| dir.path());
    let linux = source(linux, cache)?;
    let mut good = true;
    for kernel in chosen {
        good &= try_one(kernel, &linux, cache, quick)?;
    }
    if all {
        good &= modules::all(&kernels, cache)?;
        let flags = [("--quick ", quick), ("--anew ", anew)].map(|(flag, given)| if given { flag } else { "" });
        record_time(&format!("`./x kernel {}all`", flags.concat()), start)?;
    }
    Ok(if good { Outcome::Good } else { Outcome::Bad })
}

/// Build it if need be, judge it, and write down what came of it.
fn try_one(kernel: &Kernel, linux: &Path, cache: &Path, quick: bool) -> Result<bool, Failure> {
    let dir = cache.join("boot").join(&kernel.name);
    let bench = Bench::new(kernel, linux, &dir);
    let start = Instant::now();
    let built = bench.build()?;
    let judged = bench.judge(quick);
    bench.restore()?;
    let (report, good) = judged?;
    print!("{report}");
    if !quick {
        record(&kernel.name, &report)?;
    }
    let (quick, from) = (if quick { "--quick " } else { "" }, if built { ", the kernel not built yet" } else { "" });
    record_time(&format!("`./x kernel {quick}{}`{from}", kernel.name), start)?;
    Ok(good)
}

/// A kernel and where it is.
pub struct Bench<'b> {
    kernel: &'b Kernel,
    tree: Tree<'b>,
    /// The kernel as it was built: image, vmlinux, the objects that are replaced.
    pub stock: PathBuf,
}

impl<'b> Bench<'b> {
    /// A kernel built from `linux` in `dir`.
    pub fn new(kernel: &'b Kernel, linux: &'b Path, dir: &'b Path) -> Bench<'b> {
        let tree = Tree { linux, dir, arch: &kernel.arch, cross: &kernel.cross };
        Bench { kernel, tree, stock: dir.with_file_name(format!("{}-stock", kernel.name)) }
    }

    /// Build the kernel, unless it was built from this source with this configuration before.
    ///
    /// Returns whether it was built now.
    pub fn build(&self) -> Result<bool, Failure> {
        let place = root().join("xtask/kernel");
        let config = read(&place.join("common.config"))? + &read(&place.join(format!("{}.config", self.kernel.name)))?;
        let from = format!("# {}\n", self.tree.linux.display());
        let built = self.stock.join("config");
        let before = fs::read_to_string(&built).unwrap_or_default();
        if before.strip_prefix(&from) == Some(&config) {
            return Ok(false);
        }
        eprintln!("building a kernel for {}; this takes 5 to 20 minutes, once", self.kernel.name);
        for dir in [self.tree.dir, &self.stock] {
            // make does not see that the source is another one.
            if dir.exists() && !before.starts_with(&from) {
                fs::remove_dir_all(dir).map_err(|e| Failure::at(dir, e, "remove it"))?;
            }
            fs::create_dir_all(dir).map_err(|e| Failure::at(dir, e, "make room for the cache"))?;
        }
        self.tree.configure(&config)?;
        self.tree.make(&[name(&self.kernel.image), "modules"])?;
        for file in self.kept() {
            copy(&self.tree.dir.join(file), &self.stock.join(name(file)))?;
        }
        write(&built, (from + &config).as_bytes())?;
        Ok(true)
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
        initramfs(&self.kernel.cross, None, &self.stock.join("initramfs"))?;
        let baseline = self.boot(&self.stock, "baseline", SILENCE)?;
        if !baseline.well() {
            let log = baseline.last.join("\n    ");
            return Err(Failure::new("the kernel as it is", baseline.end, format!("its log ends:\n    {log}")));
        }
        let listed = self.listed(&self.stock.join("vmlinux"))?;
        let same_sites = baseline.sites.as_ref() == Some(&listed);
        let version = self.version()?;
        let mut rows = vec![
            format!("Linux {version}, {}, {}.", today(), self.kernel.machine.version()?),
            format!(
                "Configuration: tinyconfig, `common.config` and `{}.config` of `xtask/kernel`.\n",
                self.kernel.name
            ),
            "| variant | ended | tests passed | as the baseline | generate and link, seconds | boot, seconds |"
                .to_owned(),
            "|---|---|---|---|---|---|".to_owned(),
            row("the kernel's own", &baseline, "-", None),
        ];
        let mut good = same_sites;
        let silence = SILENCE.min(4 * baseline.silent + Duration::from_secs(20));
        let (variant, linked) = self.variant(None, silence)?;
        let differs = difference(&baseline.tests, &variant.tests);
        rows.push(row("generated", &variant, differs.as_deref().map_or("yes", |_| "NO"), Some(linked)));
        if let Some(line) = differs {
            good = false;
            rows.push(format!("\n    {line}\n    {}\n", variant.last.join("\n    ")));
        }
        let faults = if quick { 1 } else { self.kernel.fault.len() };
        for (about, fault) in self.kernel.fault.iter().take(faults) {
            let (control, linked) = self.variant(Some(fault), silence)?;
            let noticed = !control.well() && difference(&baseline.tests, &control.tests).is_some();
            good &= noticed;
            rows.push(row(
                &format!("fault: {about} (`{fault}`)"),
                &control,
                if noticed { "no, as it must be" } else { "YES: the fault went unnoticed" },
                Some(linked),
            ));
        }
        let sites = baseline.sites.as_deref().unwrap_or("an unknown number of");
        let agree = if same_sites { "as many as" } else { "NOT as many as" };
        rows.push(format!(
            "\nThe kernel allocates {sites} entries for ftrace, {agree} `tramptool sites` finds: {listed}.\n"
        ));
        rows.push("What `tramptool gen --kernel-build` takes from the configuration:\n".to_owned());
        rows.extend(self.options()?.iter().map(|line| format!("    {line}")));
        rows.push("\nWhat the tests say, on all that are like the baseline:\n".to_owned());
        rows.extend(baseline.tests.iter().map(|line| format!("    {line}")));
        Ok((rows.join("\n") + "\n", good))
    }

    /// Swap, link, look whether the image has what was generated, boot. Returns also how long it took up to the boot.
    fn variant(&self, fault: Option<&str>, silence: Duration) -> Result<(Boot, Duration), Failure> {
        let start = Instant::now();
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
        let linked = start.elapsed();
        Ok((self.boot(dir.path(), what, silence)?, linked))
    }

    fn boot(&self, dir: &Path, what: &str, silence: Duration) -> Result<Boot, Failure> {
        eprintln!("booting {}: {what}", self.kernel.name);
        let image = dir.join(name(&self.kernel.image));
        self.kernel.machine.boot(&image, &self.stock.join("initramfs"), silence)
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

    /// Which options of its configuration decide what is generated for it, as `gen` says it.
    fn options(&self) -> Result<Vec<String>, Failure> {
        let mut tool = tramptool();
        tool.args(["gen", "--all", "--kernel-build"]).arg(self.tree.dir);
        let said = call(tool.stdout(Stdio::null()))?;
        let lines = said.lines().filter_map(|l| l.strip_prefix("tramptool: "));
        Ok(lines.filter(|l| l.contains("CONFIG_")).map(str::to_owned).collect())
    }

    /// What it calls itself.
    pub fn version(&self) -> Result<String, Failure> {
        Ok(read(&self.tree.dir.join("include/config/kernel.release"))?.trim().to_owned())
    }
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

fn row(variant: &str, boot: &Boot, same: &str, linked: Option<Duration>) -> String {
    let linked = linked.map_or("-".to_owned(), |took| format!("{:.1}", took.as_secs_f64()));
    let took = boot.took.as_secs_f64();
    format!("| {variant} | {} | {} | {same} | {linked} | {took:.1} |", boot.end, boot.passed())
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

/// Replace the section of one kernel in the document.
pub fn record(name: &str, report: &str) -> Result<(), Failure> {
    let path = root().join("docs/real-kernels.md");
    let old = read(&path)?;
    let heading = format!("## {name}\n");
    let (before, rest) = old.split_once(&heading).unwrap_or((&old, ""));
    let after = rest.find("\n## ").and_then(|at| rest.get(at..)).unwrap_or_default();
    write(&path, format!("{}\n\n{heading}\n{report}{after}", before.trim_end()).as_bytes())
}

/// How long a command took, for the document.
pub fn record_time(command: &str, start: Instant) -> Result<(), Failure> {
    let old = read(&root().join("docs/real-kernels.md"))?;
    let section = old.split_once("## Times\n").and_then(|(_, rest)| rest.split("\n## ").next()).unwrap_or_default();
    let this = format!("| {command} |");
    let mut rows: Vec<String> =
        section.lines().filter(|l| l.starts_with("| `") && !l.starts_with(&this)).map(str::to_owned).collect();
    rows.push(format!("{this} {} | {:.0} |", today(), start.elapsed().as_secs_f64()));
    rows.sort();
    record("Times", &format!("| command | date | seconds |\n|---|---|---|\n{}\n", rows.join("\n")))
}

/// The date.
pub fn today() -> String {
    let run = Command::new("date").arg("+%Y-%m-%d").output();
    run.map_or_else(|_| "unknown date".to_owned(), |run| String::from_utf8_lossy(&run.stdout).trim().to_owned())
}

/// The tool of this repository.
pub fn tramptool() -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--quiet", "--locked", "--package", "tramptool", "--manifest-path"]);
    cargo.arg(root().join("Cargo.toml")).arg("--");
    cargo
}

/// The last part of a path.
pub fn name(path: &Path) -> &str {
    path.file_name().and_then(|n| n.to_str()).unwrap_or_default()
}

/// The text of a file.
pub fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|e| Failure::at(path, e, "restore it from git, or build the kernel again"))
}

/// Write a file.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
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
