// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels that are built in the cache and booted: as they are, or with generated objects in place of their own.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use object::{Object, ObjectSection, ObjectSymbol};
use tempfile::TempDir;

use crate::failure::Failure;
use crate::kernels::Kernel;
use crate::qemu::{Boot, Trial};
use crate::tools::{call, copy, name, read, remove, root, tramptool, write};
use crate::tree::Tree;

/// Where a kernel is built.
pub fn place(kernel: &Kernel, cache: &Path) -> PathBuf {
    cache.join("boot").join(&kernel.version).join(&kernel.name)
}

/// A kernel with generated objects in it: what is linked next does not change it.
pub struct Linked {
    /// It has the image.
    pub dir: TempDir,
    /// What is in it.
    pub what: String,
    /// How long that took.
    pub took: Duration,
}

/// A kernel and where it is.
pub struct Bench<'b> {
    /// The kernel.
    pub kernel: &'b Kernel,
    tree: Tree<'b>,
    /// The kernel as it was built: image, vmlinux, the objects that are replaced.
    pub stock: PathBuf,
}

impl<'b> Bench<'b> {
    /// A kernel built from `linux` in `dir`.
    pub fn new(kernel: &'b Kernel, linux: &'b Path, dir: &'b Path) -> Bench<'b> {
        let (on, compiler) = (&kernel.on, kernel.compiler.as_deref());
        let tree = Tree { linux, dir, arch: &on.arch, cross: &on.cross, compiler };
        Bench { kernel, tree, stock: dir.with_file_name(format!("{}-stock", kernel.name)) }
    }

    /// Build the kernel, unless it was built from this source with this configuration before.
    ///
    /// Returns whether it was built now.
    pub fn build(&self) -> Result<bool, Failure> {
        let place = root().join("lab/xtask/kernel");
        let files = self.kernel.config.iter().map(|name| read(&place.join(format!("{name}.config"))));
        let config = files.collect::<Result<String, _>>()?;
        let built = self.stock.join("config");
        let compiler = self.kernel.compiler.as_deref().unwrap_or("gcc");
        let what = format!("# {} {compiler}\n{config}", self.tree.linux.display());
        if fs::read_to_string(&built).is_ok_and(|before| before == what) {
            return Ok(false);
        }
        eprintln!("building a kernel for {}; this takes 5 to 20 minutes, once", self.kernel.name);
        // Of another source, of another configuration, or not finished.
        for dir in [&self.stock, self.tree.dir] {
            if dir.exists() {
                fs::remove_dir_all(dir).map_err(|e| Failure::at(dir, e, "remove it"))?;
            }
            fs::create_dir_all(dir).map_err(|e| Failure::at(dir, e, "make room for the cache"))?;
        }
        self.tree.configure(&config)?;
        self.obeyed(&config)?;
        self.tree.make(&[name(&self.kernel.on.image), "modules"])?;
        for file in self.kept() {
            copy(&self.tree.dir.join(file), &self.stock.join(name(file)))?;
        }
        write(&built, what.as_bytes())?;
        Ok(true)
    }

    /// Is every option of this configuration as it says?
    fn obeyed(&self, config: &str) -> Result<(), Failure> {
        let path = self.tree.dir.join(".config");
        let remedy = "set what it depends on too, in lab/xtask/kernel, or leave it out";
        match dropped(config, &read(&path)?) {
            Some(line) => Err(Failure::at(&path, format!("not {line}"), remedy)),
            None => Ok(()),
        }
    }

    /// Where something is that was built.
    pub fn built(&self, file: &str) -> PathBuf {
        self.tree.dir.join(file)
    }

    /// The files that a swap changes.
    fn kept(&self) -> impl Iterator<Item = &Path> {
        let objects = self.kernel.on.swap.iter().map(|s| s.object.as_path());
        objects.chain([self.kernel.on.image.as_path(), Path::new("vmlinux")])
    }

    /// Put the kernel's own objects back.
    pub fn restore(&self) -> Result<(), Failure> {
        self.kernel
            .on
            .swap
            .iter()
            .try_for_each(|s| copy(&self.stock.join(name(&s.object)), &self.tree.dir.join(&s.object)))
    }

    /// Swap, link, look whether the image has what was generated.
    pub fn link(&self, fault: Option<&str>) -> Result<Linked, Failure> {
        let start = Instant::now();
        let dir = tempfile::tempdir().map_err(|e| Failure::new("temporary directory", e.to_string(), "set TMPDIR"))?;
        let mut generated = Vec::new();
        for (i, swap) in self.kernel.on.swap.iter().enumerate() {
            let stem = format!("swap{i}");
            let mut tool = tramptool();
            tool.arg("gen")
                .args(&swap.trampolines)
                .arg("--profile")
                .arg(&self.kernel.profile)
                .arg("--kernel-build")
                .arg(self.tree.dir);
            tool.args(swap.export.iter().flat_map(|e| ["--export", e]));
            let here = fault.filter(|f| swap.trampolines.iter().any(|t| f.starts_with(&format!("{t}:"))));
            tool.args(here.iter().flat_map(|f| ["--fault", f]));
            call(tool.args(["--emit", "obj", "--stem", &stem, "-o"]).arg(dir.path()))?;
            let object = dir.path().join(stem + ".o");
            copy(&object, &self.tree.dir.join(&swap.object))?;
            generated.push(object);
        }
        let image = self.tree.dir.join(&self.kernel.on.image);
        remove(&image)?;
        let said = self.tree.make(&[name(&self.kernel.on.image)])?;
        let warns = |line: &&str| line.to_lowercase().contains("warning");
        if let Some(line) = said.lines().find(|line| fault.is_none() && warns(line)) {
            return Err(Failure::new("linking the kernel", line, "see what is generated there, and mend it"));
        }
        let vmlinux = self.tree.dir.join("vmlinux");
        for object in &generated {
            if let Some(name) = missing(&vmlinux, object)? {
                let remedy = "see whether make linked the objects that it was given";
                return Err(Failure::at(&vmlinux, format!("{name} is not what was generated"), remedy));
            }
            if missing(&self.stock.join("vmlinux"), object)?.is_none() {
                let remedy = "the check that the image has what was generated cannot fail: mend it";
                return Err(Failure::at(&self.stock, "has our code already", remedy));
            }
        }
        copy(&image, &dir.path().join(name(&self.kernel.on.image)))?;
        Ok(Linked { dir, what: fault.unwrap_or("generated").to_owned(), took: start.elapsed() })
    }

    /// Boot what is in `dir`.
    pub fn boot(&self, dir: &Path, what: &str, trial: &Trial) -> Result<Boot, Failure> {
        eprintln!("booting {}: {what}", self.kernel.name);
        let image = dir.join(name(&self.kernel.on.image));
        self.kernel.on.machine.boot(&image, trial)
    }

    /// Which options of its configuration decide what is generated for it, as `gen` says it.
    pub fn options(&self) -> Result<Vec<String>, Failure> {
        let mut tool = tramptool();
        tool.args(["gen", "--all", "--profile", &self.kernel.profile, "--kernel-build"]).arg(self.tree.dir);
        let said = call(&mut tool)?.err;
        let lines = said.lines().filter_map(|l| l.strip_prefix("tramptool: "));
        Ok(lines.filter(|l| l.contains("CONFIG_")).map(str::to_owned).collect())
    }

    /// What tells make the compiler, where it is not GCC.
    pub fn compiled_by(&self) -> Vec<String> {
        self.kernel.compiler.iter().map(|compiler| format!("CC={compiler}")).collect()
    }

    /// What it was compiled by, as it says itself.
    pub fn compiler(&self) -> Result<String, Failure> {
        let path = self.tree.dir.join(".config");
        let config = read(&path)?;
        let text = config.lines().find_map(|l| l.strip_prefix("CONFIG_CC_VERSION_TEXT=")).map(|t| t.trim_matches('"'));
        text.map(str::to_owned).ok_or_else(|| Failure::at(&path, "names no compiler", "build the kernel again"))
    }

    /// What it calls itself.
    pub fn version(&self) -> Result<String, Failure> {
        Ok(read(&self.tree.dir.join("include/config/kernel.release"))?.trim().to_owned())
    }
}

/// The first line of a configuration that kconfig did not obey: what wants something else is dropped without a word.
fn dropped<'c>(config: &'c str, made: &str) -> Option<&'c str> {
    let made: HashMap<&str, &str> = made.lines().filter_map(|line| line.split_once('=')).collect();
    let mut wanted = config.lines().filter(|line| !line.starts_with('#'));
    wanted.find(|line| line.split_once('=').is_some_and(|(o, value)| made.get(o).copied().unwrap_or("n") != value))
}

/// How many live sites `tramptool sites` finds.
pub fn live_sites(vmlinux: &Path) -> Result<String, Failure> {
    let text = call(tramptool().arg("sites").arg(vmlinux))?.out;
    let live = text.lines().rev().find_map(|l| l.split_once(" entries, ")?.1.split_once(" live"));
    live.map(|(n, _)| n.to_owned())
        .ok_or_else(|| Failure::at(vmlinux, "no number of live sites", "see `tramptool sites`"))
}

/// The first function of `object` whose code the kernel does not have, but for the fields that the linker filled in.
fn missing(vmlinux: &Path, object: &Path) -> Result<Option<String>, Failure> {
    let bytes = |path: &Path| fs::read(path).map_err(|e| Failure::at(path, e, "see what make said"));
    let (kernel, ours) = (bytes(vmlinux)?, bytes(object)?);
    let parse = |path: &Path, e: object::Error| Failure::at(path, e, "see what make said");
    let kernel = object::File::parse(&*kernel).map_err(|e| parse(vmlinux, e))?;
    let ours = object::File::parse(&*ours).map_err(|e| parse(object, e))?;
    let text = ours.section_by_name(".text").and_then(|text| Some((text.data().ok()?, text.relocations())));
    let (code, relocations) = text.ok_or_else(|| Failure::at(object, "no .text in it", "see what was generated"))?;
    // Where the size is not known, it is that of two instructions.
    let field = |(at, r): (u64, object::Relocation)| at..at + if r.size() == 0 { 8 } else { u64::from(r.size()) / 8 };
    let fields: Vec<Range<u64>> = relocations.map(field).collect();
    let kept = |at: u64| !fields.iter().any(|f| f.contains(&at));
    let theirs: HashMap<&str, u64> = kernel.symbols().filter_map(|s| Some((s.name().ok()?, s.address()))).collect();
    for function in ours.symbols().filter(|s| s.is_definition() && s.size() > 0) {
        let name = function.name().unwrap_or_default();
        let range = function.address()..function.address() + function.size();
        let there = theirs
            .get(name)
            .and_then(|address| kernel.sections().find_map(|s| s.data_range(*address, function.size()).ok().flatten()));
        let here = code.get(range.start as usize..range.end as usize);
        let same = here.zip(there).is_some_and(|(a, b)| {
            a.len() == b.len() && range.clone().zip(a.iter().zip(b)).all(|(at, (a, b))| a == b || !kept(at))
        });
        if !same {
            return Ok(Some(name.to_owned()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_kconfig_drops_is_seen() {
        let made = "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=2\n";
        assert_eq!(dropped("# for a reason\nCONFIG_A=y\nCONFIG_B=n\nCONFIG_C=2\nCONFIG_D=n\n", made), None);
        for line in ["CONFIG_A=n", "CONFIG_B=y", "CONFIG_C=3", "CONFIG_D=y"] {
            assert_eq!(dropped(&format!("CONFIG_A=y\n{line}\n"), made), Some(line));
        }
    }
}
