// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writers that a program of ours judges: linked with the kernel's object, it calls the writer, and runs or follows what it wrote.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::link::{Program, command};
use super::machine::Machine;
use super::memory;
use crate::failure::Failure;

/// A writer of one object of the kernel.
#[derive(Deserialize)]
pub struct Native {
    /// What it writes.
    pub name: String,
    /// The machines in whose trees the object is.
    pub machines: Vec<String>,
    pub object: String,
    /// Others of the kernel that it needs.
    #[serde(default)]
    others: Vec<String>,
    /// The program, beside the other halves, and what of it wants the kernel's headers.
    source: String,
    kernel: Option<String>,
    /// It prints symbols and memory, in which the tool finds what it judges.
    #[serde(default)]
    judged: bool,
    #[serde(default)]
    known: Vec<Told>,
}

/// A line of a program that is known.
#[derive(Deserialize)]
struct Told {
    version: String,
    /// What it begins with.
    says: String,
    reason: String,
}

/// Where it is made.
pub struct Place<'m> {
    /// The kernel's objects.
    pub dir: &'m Path,
    pub machine: &'m Machine,
    pub version: &'m str,
}

/// What a program says.
pub struct Ran {
    /// Its last line.
    pub said: String,
    /// What does something else than was asked for.
    pub wrong: Vec<String>,
    /// The same, where the reason is known, with it.
    pub known: Vec<String>,
}

impl Native {
    /// Is the object of this source in it, in the tree of this machine?
    pub fn has(&self, source: &str, machine: &str) -> bool {
        let object = Path::new(source).with_extension("o");
        self.of(machine) && self.objects().any(|one| Path::new(one) == object)
    }

    fn objects(&self) -> impl Iterator<Item = &String> {
        [&self.object].into_iter().chain(&self.others)
    }

    pub fn of(&self, machine: &str) -> bool {
        self.machines.iter().any(|name| name == machine)
    }

    /// Run it with the kernel's objects, or with one that was made otherwise from its source.
    pub fn run(&self, place: &Place, other: Option<(&str, &Path)>) -> Result<Ran, Failure> {
        let program = self.linked(place, other)?;
        let run = command(place.machine, &program).output().map_err(|e| Failure::at(&program, e, "remove it"))?;
        let out = String::from_utf8_lossy(&run.stdout).into_owned();
        let mut lines: Vec<String> = out.lines().map(str::to_owned).collect();
        let (code, said) = (run.status.code(), lines.pop().unwrap_or_default());
        match (self.judged, code) {
            (true, Some(0)) => lines = memory::judged(place.version, &lines, &said)?,
            (false, Some(0)) if lines.is_empty() => {}
            (false, Some(1)) if !lines.is_empty() => {}
            _ => lines = vec![format!("{}: {said}", run.status)],
        }
        if said.split(' ').next().and_then(|count| count.parse().ok()).is_none_or(|count: u64| count == 0) {
            lines.push(format!("nothing is run: {said}"));
        }
        let known = || self.known.iter().filter(|told| told.version == place.version);
        let of = |line: &str| known().find(|told| line.starts_with(&told.says));
        let gone = known().filter(|told| !lines.iter().any(|line| line.starts_with(&told.says)));
        let gone: Vec<String> = gone.map(|told| format!("no more, and known: {}", told.says)).collect();
        let (known, mut wrong): (Vec<String>, Vec<String>) = lines.into_iter().partition(|line| of(line).is_some());
        wrong.extend(gone);
        let told = |line: String| of(&line).map_or(line.clone(), |told| format!("{line}: {}", told.reason));
        Ok(Ran { said, wrong, known: known.into_iter().map(told).collect() })
    }

    fn linked(&self, place: &Place, other: Option<(&str, &Path)>) -> Result<PathBuf, Failure> {
        // With another object it is another program.
        let kind = if other.is_some() { "without" } else { "native" };
        let name = format!("{kind}-{}", self.source.trim_end_matches(".c"));
        let made =
            |object: &str| other.filter(|(source, _)| Path::new(source).with_extension("o") == Path::new(object));
        let theirs =
            self.objects().map(|one| made(one).map_or_else(|| place.dir.join(one), |(_, made)| made.to_path_buf()));
        let theirs: Vec<PathBuf> = theirs.collect();
        let rethunk = format!("-DRETHUNK={}", u8::from(place.machine.thunk.is_some()));
        let red = (place.machine.arch == "x86_64").then_some("-mno-red-zone");
        let flags: Vec<&str> = red.into_iter().chain([rethunk.as_str()]).collect();
        let kernel = self.kernel.as_deref().map(|source| (source, self.object.as_str()));
        let (machine, dir) = (place.machine, place.dir);
        Program { machine, dir, name: &name, kernel, user: &self.source, theirs: &theirs, flags: &flags, link: &[] }
            .linked()
    }
}
