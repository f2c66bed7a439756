// SPDX-License-Identifier: MIT OR Apache-2.0
//! A command or a test that shows what is noticed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::rows::Checker;
use crate::failure::Failure;
use crate::tools::{bounded, call, on_each_cpu, read, remove};

/// Seconds of CPU at least, and bytes of addresses at most, for each process.
const SECONDS: u64 = 20;
const ADDRESSES: u64 = 16 << 30;

/// A run of the tool or of one test, and what came of it with nothing left out.
pub struct Show {
    program: PathBuf,
    words: Vec<String>,
    dir: PathBuf,
    /// The switches that it comes to.
    pub reached: BTreeSet<usize>,
    told: String,
    took: Duration,
}

/// What cargo says of a test program that it has compiled.
#[derive(Deserialize)]
struct Compiled {
    manifest_path: Option<PathBuf>,
    executable: Option<PathBuf>,
    profile: Option<Profile>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

impl Show {
    /// All of a checker, the quickest first.
    ///
    /// # Errors
    /// One fails with nothing left out.
    pub fn all(checker: &Checker, sample: usize, copy: &Path) -> Result<Vec<Show>, Failure> {
        let mut all = Vec::new();
        for words in checker.commands {
            let words = words.replace("SAMPLE", &sample.to_string());
            let words = words.split(' ').map(str::to_owned).collect();
            all.push(Show::new(copy.join("target/debug/tramptool"), words, copy));
        }
        for words in checker.tests {
            let mut cargo = Command::new("cargo");
            cargo.args(["test", "--locked", "--quiet", "--no-run", "--message-format", "json"]).args(words.split(' '));
            let out = call(cargo.current_dir(copy))?.out;
            let compiled = out.lines().filter_map(|line| serde_json::from_str::<Compiled>(line).ok());
            let tests = compiled.filter(|compiled| compiled.profile.as_ref().is_some_and(|profile| profile.test));
            for compiled in tests {
                let (Some(program), Some(manifest)) = (compiled.executable, compiled.manifest_path) else { continue };
                let dir = manifest.parent().unwrap_or(copy);
                let listed = call(Command::new(&program).arg("--list").current_dir(dir))?.out;
                for name in listed.lines().filter_map(|line| line.strip_suffix(": test")) {
                    all.push(Show::new(program.clone(), vec!["--exact".to_owned(), name.to_owned()], dir));
                }
            }
        }
        let left = Mutex::new(all.iter_mut().enumerate());
        on_each_cpu(|| {
            let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
            while let Some((n, show)) = next() {
                show.begin(&copy.join(format!("target/reached-{n}")))?;
            }
            Ok(())
        })?;
        all.sort_by_key(|show| show.took);
        Ok(all)
    }

    fn new(program: PathBuf, words: Vec<String>, dir: &Path) -> Show {
        let (reached, told, took) = (BTreeSet::new(), String::new(), Duration::ZERO);
        Show { program, words, dir: dir.to_path_buf(), reached, told, took }
    }

    /// Run it with nothing left out, which writes to this file what it comes to.
    fn begin(&mut self, path: &Path) -> Result<(), Failure> {
        remove(path)?;
        let begun = Instant::now();
        self.told = self.run(("TRAMPTOOL_REACHED", &path.display().to_string()), 600)?;
        self.took = begun.elapsed();
        // What is refused notices nothing, and a test that fails anyway does not either.
        if !(self.told.starts_with("Some(0)") || self.is_command() && self.told.starts_with("Some(1)")) {
            let what = format!("{}: {}", self.words.join(" "), self.told.lines().next().unwrap_or_default());
            return Err(Failure::new("before anything is left out", what, "mend that row"));
        }
        if path.exists() {
            self.reached = read(path)?.lines().filter_map(|n| n.parse().ok()).collect();
            remove(path)?;
        }
        Ok(())
    }

    fn is_command(&self) -> bool {
        self.words.first().is_some_and(|word| word != "--exact")
    }

    /// Is something else said without this?
    ///
    /// # Errors
    /// It cannot be started.
    pub fn notices(&self, switch: usize) -> Result<bool, Failure> {
        let seconds = SECONDS.max(10 * self.took.as_secs());
        Ok(self.run(("TRAMPTOOL_REMOVED", &switch.to_string()), seconds)? != self.told)
    }

    /// How it ends, and what a command says.
    fn run(&self, (name, value): (&str, &str), seconds: u64) -> Result<String, Failure> {
        let mut run = Command::new(&self.program);
        run.args(&self.words).current_dir(&self.dir).env(name, value).env("RAYON_NUM_THREADS", "1");
        run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let refused = |e: std::io::Error| Failure::at(&self.program, e, "see what cargo said");
        let child = run.spawn().map_err(refused)?;
        // What keeps a checker from going on for ever may be what is left out.
        bounded(&child, seconds, ADDRESSES);
        let out = child.wait_with_output().map_err(refused)?;
        // A test tells how long it took.
        let report = if self.is_command() { String::from_utf8_lossy(&out.stdout) } else { "".into() };
        Ok(format!("{:?}\n{report}", out.status.code()))
    }
}
