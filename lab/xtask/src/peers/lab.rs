// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the runs need: programs, tools, and their versions. What is missing is an error that names its package.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::programs::{Build, Program, sources};
use super::run::{CLANG, PACKAGES, bounded, told};
use super::verdict::{Alone, Ended, counted};
use crate::document::today;
use crate::failure::Failure;
use crate::tools::{read, root};
use crate::tree::cache;

const FRIDA: &str = "17.26.2";

/// A directory with everything.
pub struct Lab {
    dir: TempDir,
    pub tramptool: PathBuf,
    /// Libraries to be loaded with programs.
    pub live: PathBuf,
    pub retour: PathBuf,
    /// Python that has frida.
    pub python: PathBuf,
}

impl Lab {
    /// Build and fetch.
    pub fn new() -> Result<Lab, Failure> {
        for (program, _) in PACKAGES {
            told(Command::new(program).arg("--version"))?;
        }
        let dir = tempfile::tempdir().map_err(|e| Failure::new("temporary directory", e.to_string(), "set TMPDIR"))?;
        let (live, retour) = (dir.path().join("live.so"), dir.path().join("retour.so"));
        let manifest = root().join("Cargo.toml");
        let tool = ["build", "--package", "tramptool-cli", "--bin", "tramptool", "--no-default-features"];
        let tramptool = cargo(&manifest, &tool, "/tramptool")?;
        let library = ["rustc", "--package", "tramptool-live", "--lib", "--features", "c", "--crate-type", "staticlib"];
        let include = root().join("live/include");
        agent(&["-DLIVE", "-I", &include.display().to_string()], &cargo(&manifest, &library, ".a")?, &live)?;
        let detours = cargo(
            &sources().join("retour/Cargo.toml"),
            &["build", "--target-dir", &dir.path().join("detours").display().to_string()],
            ".a",
        )?;
        agent(&[], &detours, &retour)?;
        let python = python()?;
        Ok(Lab { dir, tramptool, live, retour, python })
    }

    /// A path in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The program, compiled so; with the libraries that it loads beside it.
    pub fn program(&self, build: &Build, program: &Program) -> Result<PathBuf, Failure> {
        let words = [build.flags, program.flags].concat().concat();
        let to = self.path(&format!("{}{words}", program.source.replace('.', "-")));
        if to.exists() {
            return Ok(to);
        }
        let [c, cpp] = build.compilers;
        let compile = |more: &[&str], to: &Path| {
            let mut command = Command::new(if program.source.ends_with(".cc") { cpp } else { c });
            command.args(["-O2", "-w", "-pthread"]).args(build.flags).args(program.flags).args(more);
            told(command.arg(sources().join(program.source)).args(["-ldl", "-o"]).arg(to))
        };
        for plugin in ["one", "two"].into_iter().filter(|_| program.name == "dlclose") {
            let to = to.with_file_name(format!("{}-{plugin}.so", to.file_name().unwrap_or_default().to_string_lossy()));
            compile(&["-fPIC", "-shared", &format!("-DPLUGIN={plugin}")], &to)?;
        }
        compile(&["-rdynamic"], &to)?;
        Ok(to)
    }

    /// What the program does alone, which is the same each time.
    pub fn alone(&self, build: &Build, program: &Program) -> Result<Alone, Failure> {
        let file = self.program(build, program)?;
        let run = || {
            let (ended, text, _) = bounded(Command::new(&file).arg(&file), self.dir.path())?;
            let calls = counted(&text).filter(|_| ended == Ended::Code(0));
            let calls =
                calls.ok_or_else(|| Failure::at(&file, format!("ends by itself: {ended:?}"), "mend the program"))?;
            Ok(Alone { text, calls })
        };
        let (first, second) = (run()?, run()?);
        match first == second {
            true => Ok(first),
            false => Err(Failure::at(&file, "prints something else each time", "mend the program")),
        }
    }

    /// The beginning of the page.
    pub fn head(&self) -> Result<String, Failure> {
        let version = |program: &str| -> Result<String, Failure> {
            let text = told(Command::new(program).arg("--version"))?;
            let is_version = |word: &&str| {
                word.contains('.') && word.trim_start_matches('v').starts_with(|c: char| c.is_ascii_digit())
            };
            Ok(text.split_whitespace().find(is_version).unwrap_or("?").trim_matches(['v', ')']).to_owned())
        };
        let detours = read(&sources().join("retour/Cargo.toml"))?;
        let retour = detours.split("retour = { version = \"=").nth(1).and_then(|rest| rest.split('"').next());
        let told_of = |file: &str, name: &str| -> Result<String, Failure> {
            let text = read(Path::new(file))?;
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.trim().strip_prefix([':', '=']).map(str::to_owned));
            Ok(line.unwrap_or_default().trim_matches([' ', '"']).to_owned())
        };
        Ok(format!(
            "# Hostile programs\n\n`cargo xtask peers` wrote this page, {}, on {} CPUs of an {} with Linux {} and {}.\n\
             gcc {}, clang and XRay {}, uftrace {}, retour {}, frida {FRIDA}, tramptool {}.\n\n\
             Each program counts its own calls, prints a result and the counts, and prints the same each time.\n\n\
             | program | |\n|---|---|\n",
            today(),
            std::thread::available_parallelism().map_or(1, usize::from),
            told_of("/proc/cpuinfo", "model name")?,
            read(Path::new("/proc/sys/kernel/osrelease"))?.trim(),
            told_of("/etc/os-release", "PRETTY_NAME")?,
            version("gcc")?,
            version(CLANG)?,
            version("uftrace")?,
            retour.unwrap_or("?"),
            env!("CARGO_PKG_VERSION"),
        ))
    }
}

/// Build something; returns the file with this ending.
fn cargo(manifest: &Path, words: &[&str], ending: &str) -> Result<PathBuf, Failure> {
    let mut cargo = Command::new("cargo");
    cargo.args(words).args(["--release", "--locked", "--message-format", "json-render-diagnostics", "--manifest-path"]);
    let text = told(cargo.arg(manifest))?;
    let file = text.rsplit('"').find(|word| word.ends_with(ending));
    file.map(PathBuf::from)
        .ok_or_else(|| Failure::at(manifest, format!("cargo makes no {ending}"), "see what it builds"))
}

/// The library that hooks functions by another one.
fn agent(flags: &[&str], library: &Path, to: &Path) -> Result<(), Failure> {
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-Wall", "-Werror", "-fexceptions", "-fPIC", "-shared"]).args(flags);
    gcc.arg(sources().join("agent.c")).arg(library).args(["-pthread", "-ldl", "-lm", "-o"]).arg(to);
    told(&mut gcc).map(drop)
}

/// Python with frida, in the cache.
fn python() -> Result<PathBuf, Failure> {
    let dir = cache()?.join(format!("frida-{FRIDA}"));
    let python = dir.join("bin/python");
    if told(Command::new(&python).args(["-c", "import frida"])).is_err() {
        told(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&dir))?;
        told(Command::new(&python).args(["-m", "pip", "install", "--quiet", &format!("frida=={FRIDA}")]))?;
    }
    Ok(python)
}
