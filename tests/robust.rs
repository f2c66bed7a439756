//! What the fuzz targets do, without a fuzzer: their seeds, and their seeds damaged, the same on every run.

#[path = "../fuzz/src/lib.rs"]
mod targets;

use std::path::Path;

use codegen::backend::Backend;
use emu_tests::{Filter, Foreign, Suite};
use link::{Image, Input, Options, link};

/// How many damaged inputs are tried with each target.
const TIMES: usize = 3000;
/// How many of them are run.
const RUNS: usize = 200;

/// The files under a directory of the repository.
fn seeds(dir: &str, ending: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(dir);
    let entries = std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut paths: Vec<_> = entries.map(|e| e.unwrap().path()).collect();
    paths.retain(|p| p.to_string_lossy().ends_with(ending));
    paths.sort();
    paths.iter().map(|p| std::fs::read(p).unwrap()).collect()
}

/// Choices that are the same on every run (SplitMix64).
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }

    /// One to four times: cut off, flip a bit, put a number at an edge of its range, put in a part of another seed.
    fn damage(&mut self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            match self.below(8) {
                0 => bytes.truncate(at),
                1..4 => bytes.iter_mut().skip(at).take(1).for_each(|b| *b ^= 1 << self.below(8)),
                4..7 => {
                    let edge = [0, 1, 0x7fff_ffff, 0xffff_ffff, u64::MAX >> 1, u64::MAX - 7, u64::MAX][self.below(7)];
                    let field = bytes.iter_mut().skip(at & !7).take([1, 2, 4, 8][self.below(4)]);
                    field.zip(edge.to_le_bytes()).for_each(|(b, new)| *b = new);
                }
                _ => {
                    let other = &seeds[self.below(seeds.len())];
                    let from = self.below(other.len());
                    let part = &other[from..from + self.below(other.len() - from)];
                    let over = if self.below(2) == 0 { part.len().min(bytes.len() - at) } else { 0 };
                    bytes.splice(at..at + over, part.iter().copied());
                }
            }
        }
    }
}

fn try_all(times: usize, seeds: &[Vec<u8>], target: impl Fn(&[u8])) {
    assert!(!seeds.is_empty());
    seeds.iter().for_each(|seed| target(seed));
    let mut rng = Rng(1);
    for i in 0..times {
        let mut bytes = seeds[i % seeds.len()].clone();
        rng.damage(&mut bytes, seeds);
        target(&bytes);
    }
}

#[test]
fn damaged_objects_are_refused_or_linked() {
    let of = |backend: &&dyn Backend| seeds(&format!("emu-tests/fixtures/{}", backend.facts().name), ".o");
    try_all(TIMES, &tool::BACKENDS.iter().flat_map(of).collect::<Vec<_>>(), targets::link);
}

/// Images whose unwind tables are there to be read.
#[test]
fn damaged_unwind_tables_are_skipped_or_read() {
    let image = |backend: &&'static dyn Backend| {
        let (stub, suite) = (Some(backend.machine().ret), sound(*backend));
        let inputs = suite.objects.iter().map(|(name, bytes)| Input { name, bytes });
        let options = Options { stub, ..Options::default() };
        link(*backend, &inputs.collect::<Vec<_>>(), &options).unwrap().to_elf().unwrap()
    };
    let seeds: Vec<Vec<u8>> = tool::BACKENDS.iter().map(image).collect();
    assert!(seeds.iter().all(|seed| targets::cfi(seed) > 100));
    // Damage to the table itself; elsewhere it is that of objects.
    let table = |seed: &[u8]| {
        let image = Image::from_elf(seed).unwrap();
        let section = image.sections.iter().find(|s| s.name == ".eh_frame").unwrap();
        let bytes = image.bytes(section.address, section.size as usize).unwrap();
        let at = seed.windows(bytes.len()).position(|w| w == bytes).unwrap();
        at..at + bytes.len()
    };
    let tables: Vec<Vec<u8>> = seeds.iter().map(|seed| seed[table(seed)].to_vec()).collect();
    let places: Vec<_> = seeds.iter().map(|seed| table(seed)).collect();
    // A table takes as long as ten objects, and each is put into every image.
    try_all(TIMES / 10, &tables, |bytes| {
        for (seed, place) in seeds.iter().zip(&places) {
            let mut image = seed.clone();
            image[place.clone()].iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            targets::cfi(&image);
        }
    });
}

#[test]
fn damaged_contracts_are_refused_or_read() {
    try_all(TIMES, &seeds("contracts", ".toml"), |bytes| targets::contract(&String::from_utf8_lossy(bytes)));
}

#[test]
fn damaged_recordings_are_refused_or_shown() {
    let seeds = seeds("fuzz/seeds/trace", "");
    assert!(seeds.iter().all(|seed| targets::trace(seed)));
    try_all(TIMES, &seeds, |bytes| {
        targets::trace(bytes);
    });
}

#[test]
fn odd_arguments_are_refused_or_obeyed() {
    try_all(TIMES, &seeds("fuzz/seeds/spec", ""), |bytes| targets::spec(&String::from_utf8_lossy(bytes)));
}

/// Generated trampolines.
fn sound(backend: &'static dyn Backend) -> Suite {
    tool::suite::suite(backend, &tool::default_target(backend).unwrap()).unwrap()
}

fn judge(suite: Suite) {
    let filter = Filter { function: Some("args3".to_owned()), ..Filter::default() };
    let _ = emu_tests::check(&[suite], &filter, 1, &|_, _| {});
}

#[test]
fn damaged_trampolines_are_refused_or_judged() {
    for &backend in tool::BACKENDS {
        let objects: Vec<Vec<u8>> = sound(backend).objects.into_iter().map(|(_, bytes)| bytes).collect();
        try_all(RUNS, &objects, |bytes| {
            judge(Suite { objects: vec![("damaged".to_owned(), bytes.to_vec())], stubs: true, ..sound(backend) });
        });
    }
}

#[test]
fn damaged_contracts_are_refused_or_held_against_trampolines() {
    // Other kernels' layouts than those of the contracts may do: it is the judge that is tried.
    try_all(RUNS, &seeds("contracts", ".toml"), |bytes| {
        let contract = &String::from_utf8_lossy(bytes);
        let foreign = Foreign::new("contract", contract, Vec::new(), tool::profile(profiles::DEFAULT).unwrap());
        for suite in emu_tests::foreign_suites(&foreign, tool::BACKENDS).into_iter().flatten() {
            judge(Suite { objects: sound(suite.backend).objects, ..suite });
        }
    });
}
