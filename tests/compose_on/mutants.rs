//! Faults on the machines, one at a time: in the core, as `lab/compose/tests/mutants.rs` has them, and in the layer between
//! trampolines and core. On each machine the cases must notice each. What they cannot notice there is in a table, with the
//! reason.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use compose::cross::CROSS;
use compose::{Case, OURS, SUBSETS, random, rare, subset};
use emu_tests::Composed;

use crate::common::{Bench, blessed_block};
use crate::on::{On, copy, directory, root};

/// What it is, the file, what stands there, and what a mutant has instead.
type Mutant = (&'static str, &'static str, &'static str, &'static str);

include!("../../lab/compose/tests/mutants/list.rs");
include!("mutants/layer.rs");
include!("mutants/paired.rs");
include!("mutants/unnoticed.rs");

/// Cases that a machine runs at most: those of subsets in an order that has all shapes and moments early, and random ones.
const CASES: usize = 20_000;
/// Coprime to the number of subsets.
const STRIDE: u64 = 7919;

/// The cases, with functions each: rare ones with all, others in turn.
fn cases(composed: &Composed) -> impl Iterator<Item = (Case, usize)> {
    let all = composed.functions().len();
    let rare = rare().into_iter().flat_map(move |case| (0..all).map(move |family| (case.clone(), family)));
    let subsets = (0..).filter_map(|i: u64| subset(i * STRIDE % SUBSETS, u64::MAX));
    let both = subsets.zip((0..).map(|seed| random(seed, u64::MAX))).flat_map(|(subset, random)| [subset, random]);
    let each = rare.chain(both.enumerate().map(move |(index, case)| (case, index / 2 % all)));
    each.filter(|(case, family)| composed.supports(case, *family))
}

/// Where a fault is put, compiled and judged. Its object stays there: all others come from where nothing is faulty, so that no
/// fault is noticed for the one before it.
struct Ground<'o> {
    on: &'o On,
    root: PathBuf,
    dir: PathBuf,
}

impl<'o> Ground<'o> {
    fn new(on: &'o On, bench: &Bench) -> Self {
        let copied = bench.path("root");
        for dir in ["runtime/src", "lab/compose/guest"] {
            copy(&root().join(dir), &copied.join(dir));
        }
        let dir = directory("core-objects-faulty");
        on.cross.objects(&copied, &dir).unwrap();
        Ground { on, root: copied, dir }
    }

    /// Which case notices, with the trampolines of a profile and maybe another object? None: none does.
    fn noticed(&self, profile: &str, other: Option<(String, Vec<u8>)>, most: usize) -> Option<usize> {
        let mut objects = self.on.objects(profile, Path::new(&self.on.dir));
        if let Some((path, bytes)) = other {
            let same = |good: &str| Path::new(good).file_name() == Path::new(&path).file_name();
            let good = objects.iter_mut().find(|(good, _)| same(good)).unwrap();
            good.1 = bytes;
        }
        let composed = Composed::new(self.on.suite(profile), &objects).unwrap();
        let noticed = |(case, family): (Case, usize)| {
            let run = |case: &_| composed.run(case, family);
            OURS.elsewhere("", &run).judge(&case).is_some()
        };
        cases(&composed).take(most).position(noticed)
    }

    /// The same with a fault. Err: it is no program.
    fn judge(&self, &(name, file, from, to): &Mutant, most: usize) -> Result<Option<usize>, String> {
        let (object, file) = match file {
            "layer.c" => ("layer", Path::new("lab/compose/guest").join(file)),
            _ => ("core", Path::new("runtime/src").join(file)),
        };
        let path = self.root.join(&file);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.matches(from).count(), 1, "{name}: {} has it so often: {from}", file.display());
        fs::write(&path, text.replace(from, to)).unwrap();
        let made = self.on.cross.object(object, &self.root, &self.dir);
        fs::write(&path, text).unwrap();
        let faulty = made.map_err(|why| format!("{name}: {why}"))?;
        // What is wrong with trampolines that are paired shows where there are some.
        let profile = if PAIRED.iter().any(|m| m.0 == name) { self.on.jumps() } else { profiles::DEFAULT };
        Ok(self.noticed(profile, Some(faulty), most))
    }
}

/// Why a machine cannot notice a fault.
fn excused(name: &str, arch: &str) -> Option<&'static str> {
    let of = |(faults, arches, _): &&Unnoticed| faults.contains(&name) && arches.contains(&arch);
    UNNOTICED.iter().find(of).map(|(.., why)| *why)
}

/// A machine without a fault notices none in so many cases, and each of these is noticed, or excused.
fn judge(on: &On, faults: &[&Mutant], good: usize) {
    let bench = Bench::new();
    let ground = Ground::new(on, &bench);
    let arch = on.cross.arch;
    assert_eq!(ground.noticed(on.jumps(), None, good), None, "{arch}: what has no fault is noticed");
    let wrong = faults.iter().filter_map(|fault| {
        let excused = excused(fault.0, arch);
        // What a machine cannot notice at all is not looked for as long.
        let judged = ground.judge(fault, if excused.is_some() { CASES / 8 } else { CASES });
        match (judged, excused) {
            (Ok(Some(at)), None) => println!("{arch}: case {at} notices: {}", fault.0),
            (Ok(None), Some(why)) => println!("{arch}: no case notices, for {why}: {}", fault.0),
            (Ok(Some(at)), Some(_)) => return Some(format!("case {at} notices, and UNNOTICED has it: {}", fault.0)),
            (Ok(None), None) => return Some(format!("survives: {}", fault.0)),
            (Err(why), _) => return Some(format!("does not compile: {why}")),
        }
        None
    });
    let wrong: Vec<String> = wrong.inspect(|why| println!("{arch}: {why}")).collect();
    assert!(wrong.is_empty(), "{arch}:\n{}", wrong.join("\n"));
}

fn all() -> impl Iterator<Item = &'static Mutant> {
    MUTANTS.iter().chain(LAYER).chain(PAIRED)
}

/// All of them, or those with `$TRAMPTOOL_FAULT` in their names: what was interrupted goes on there.
pub fn every_mutant_is_noticed(on: &On) {
    let named = std::env::var("TRAMPTOOL_FAULT").unwrap_or_default();
    judge(on, &all().filter(|m| m.0.contains(&named)).collect::<Vec<_>>(), CASES);
}

/// Of each machine others, on every run.
pub fn a_sample_is_noticed(on: &On) {
    let sample = all().skip(on.cross.arch.len()).step_by(16);
    judge(on, &sample.filter(|m| excused(m.0, on.cross.arch).is_none()).collect::<Vec<_>>(), CASES / 20);
}

/// The page has how many must be noticed, and why others are not.
pub fn the_page_has_the_faults() {
    for name in UNNOTICED.iter().flat_map(|(names, ..)| *names) {
        assert!(all().any(|m| m.0 == *name), "no such fault: {name}");
    }
    let arches = CROSS.map(|cross| cross.arch);
    let mut page = format!("| faults of | {} |\n|---|{}\n", arches.join(" | "), "--:|".repeat(arches.len()));
    for (what, faults) in [("the core", MUTANTS), ("the layer", LAYER), ("what knows paired trampolines", PAIRED)] {
        let cells = arches.map(|arch| {
            let judged = faults.iter().filter(|m| excused(m.0, arch).is_none()).count();
            format!(" {judged} |")
        });
        writeln!(page, "| {what} |{}", cells.concat()).unwrap();
    }
    page += "\n| not noticed | on | why |\n|---|---|---|\n";
    for (names, on, why) in UNNOTICED {
        writeln!(page, "| {} | {} | {why} |", names.join("<br>"), on.join(", ")).unwrap();
    }
    blessed_block("docs/mutants.md", "<!-- begin runtime mutants -->", &page);
}
