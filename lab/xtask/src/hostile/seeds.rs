// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inputs that are right: what the tool makes, and what is in the tree.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::damage::Rng;
use crate::failure::Failure;
use crate::tools::{call, root};

/// What an input is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// An object with the trampoline `t`.
    Object,
    /// Its contract.
    Contract,
    /// Its bytes.
    Dump,
    /// Objects of a compiler and of ours.
    Fixture,
    /// Functions of a compiler.
    Plain,
    /// A module, compressed.
    Compressed,
    /// An archive of objects.
    Archive,
    /// Probe definitions.
    Events,
    /// Reports of `check`, `mutate` and `cost`.
    Report,
    /// Known failures.
    Expected,
    /// Known differences.
    Accepted,
    /// A profile.
    Profile,
    /// A kernel's configuration and numbers.
    Config,
    /// Arguments of `gen`.
    Words,
    /// The same for templates.
    Template,
    /// A recording.
    Recording,
}

impl Kind {
    /// It is no file, but words on the command line.
    pub fn is_words(self) -> bool {
        matches!(self, Kind::Words | Kind::Template)
    }

    /// How the name of a file ends.
    pub fn ending(self) -> &'static str {
        match self {
            Kind::Object | Kind::Fixture | Kind::Plain => ".o",
            Kind::Contract | Kind::Expected | Kind::Accepted | Kind::Profile => ".toml",
            Kind::Compressed => ".ko.gz",
            Kind::Archive => ".a",
            Kind::Report => ".json",
            _ => ".input",
        }
    }
}

/// Inputs of a kind, each with its architecture, and as texts if all of them are.
#[derive(Default)]
struct Pool {
    arches: Vec<String>,
    seeds: Vec<Vec<u8>>,
    texts: Vec<String>,
}

impl Pool {
    fn add(&mut self, arch: &str, seed: Vec<u8>) {
        self.arches.push(arch.to_owned());
        self.texts.extend(String::from_utf8(seed.clone()));
        self.seeds.push(seed);
    }

    fn damaged(&self, rng: &mut Rng) -> (String, Vec<u8>) {
        let which = rng.below(self.seeds.len());
        let arch = self.arches[which].clone();
        if self.texts.len() == self.seeds.len() && rng.below(3) > 0 {
            let mut text = self.texts[which].clone();
            rng.damage_text(&mut text, &self.texts);
            return (arch, text.into_bytes());
        }
        let mut bytes = self.seeds[which].clone();
        rng.damage(&mut bytes, &self.seeds);
        (arch, bytes)
    }
}

/// Of each kind, what there is.
pub struct Seeds(BTreeMap<Kind, Pool>);

impl Seeds {
    /// Make them; what commands need beside the damaged input lies in `dir`.
    pub fn made(tool: &Path, dir: &Path) -> Result<Seeds, Failure> {
        let mut seeds = Seeds(BTreeMap::new());
        // Of faults that survive it says so by 1.
        let run = |words: &str| {
            let run = Command::new(tool).args(words.split(' ')).current_dir(dir).output();
            let out = run.map_err(|e| Failure::at(tool, e, "build it"))?;
            match out.status.code() {
                Some(0 | 1) => Ok(()),
                _ => Err(Failure::new(words, String::from_utf8_lossy(&out.stderr).trim(), "mend that")),
            }
        };
        for backend in arch::BACKENDS {
            let arch = backend.facts().name;
            let direct = format!("gen direct --args 2 --call f --name t --arch {arch}");
            run(&format!("{direct} --emit obj,contract,bin --stem {arch}"))?;
            run(&format!("{direct} --ip --emit obj --stem {arch}-ip"))?;
            run(&format!("gen --all --arch {arch} --emit obj --stem {arch}-all"))?;
            run(&format!("check ftrace_stub --arch {arch} --function args2 --views --format json -o {arch}.json"))?;
            run(&format!("mutate ftrace_stub --arch {arch} --by verify --format json -o {arch}-mutants.json"))?;
            run(&format!("cost ftrace_stub --arch {arch} --format json -o {arch}-cost.json"))?;
            let fixtures = root().join("emu-tests/fixtures").join(arch);
            // Without anything that an option asks for.
            let functions =
                ["plain.o", "rvc.o"].map(|name| fixtures.join(name)).into_iter().find(|path| path.is_file());
            let functions = functions.unwrap_or_default();
            for (kind, path) in [
                (Kind::Object, dir.join(format!("{arch}.o"))),
                (Kind::Contract, dir.join(format!("{arch}.toml"))),
                (Kind::Dump, dir.join(format!("{arch}.bin"))),
                (Kind::Fixture, dir.join(format!("{arch}-all.o"))),
                (Kind::Plain, functions.clone()),
                (Kind::Report, dir.join(format!("{arch}.json"))),
                (Kind::Report, dir.join(format!("{arch}-mutants.json"))),
                (Kind::Report, dir.join(format!("{arch}-cost.json"))),
            ] {
                seeds.add(kind, arch, &path)?;
            }
            seeds.all(Kind::Fixture, arch, &fixtures)?;
            let plain = dir.join(format!("{arch}-plain.o"));
            fs::copy(&functions, &plain).map_err(|e| Failure::at(&plain, e, "make room"))?;
            call(Command::new("gzip").args(["-kf"]).arg(&plain))?;
            seeds.add(Kind::Compressed, arch, &dir.join(format!("{arch}-plain.o.gz")))?;
            let archive = dir.join(format!("{arch}.a"));
            call(Command::new("ar").arg("rcs").arg(&archive).arg(&plain).arg(dir.join(format!("{arch}.o"))))?;
            seeds.add(Kind::Archive, arch, &archive)?;
            let events = dir.join(format!("{arch}.events"));
            let text =
                "p:one args2 $arg1 $stack1:x8\nr:two args2 $retval:s32\nf args2\np args2+0 @args2 +8($arg1):u64\n";
            fs::write(&events, text).map_err(|e| Failure::at(&events, e, "make room"))?;
            seeds.add(Kind::Events, arch, &events)?;
            seeds.all(Kind::Contract, arch, &root().join("contracts"))?;
            seeds.all(Kind::Profile, arch, &root().join("profiles"))?;
            seeds.add(Kind::Expected, arch, &root().join("fuzz/seeds/report/expected"))?;
            seeds.add(Kind::Accepted, arch, &root().join("fuzz/seeds/report/accepted"))?;
            seeds.add(Kind::Config, arch, &root().join("fuzz/seeds/config").join(arch))?;
            seeds.all(Kind::Recording, arch, &root().join("fuzz/seeds/trace"))?;
            seeds.all(Kind::Words, arch, &root().join("fuzz/seeds/spec"))?;
            for words in [
                "record --function f+5 --events both --clock word --refill refill --form shadow",
                "record --function f --events entry --clock word",
                "sled --call f",
            ] {
                let words = format!("{words} --arch {arch} --profile bare").into_bytes();
                seeds.0.entry(Kind::Template).or_default().add(arch, words);
            }
        }
        Ok(seeds)
    }

    fn add(&mut self, kind: Kind, arch: &str, path: &Path) -> Result<(), Failure> {
        let bytes = fs::read(path).map_err(|e| Failure::at(path, e, "restore it from git"))?;
        self.0.entry(kind).or_default().add(arch, bytes);
        Ok(())
    }

    /// Every file of a directory.
    fn all(&mut self, kind: Kind, arch: &str, dir: &Path) -> Result<(), Failure> {
        let refused = |e: std::io::Error| Failure::at(dir, e, "restore it from git");
        let paths = dir.read_dir().map_err(refused)?.filter_map(|entry| Some(entry.ok()?.path()));
        let mut paths: Vec<PathBuf> = paths.filter(|path| path.is_file()).collect();
        paths.sort();
        paths.iter().try_for_each(|path| self.add(kind, arch, path))
    }

    /// One of a kind, damaged, with its architecture.
    pub fn damaged(&self, kind: Kind, rng: &mut Rng) -> (String, Vec<u8>) {
        self.0.get(&kind).map_or_else(Default::default, |pool| pool.damaged(rng))
    }
}
