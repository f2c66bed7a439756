//! What the fuzz targets do, without a fuzzer: their seeds, and their seeds damaged, the same on every run.

#[path = "../fuzz/src/lib.rs"]
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use codegen::backend::Backend;
use emu_tests::{Filter, Foreign, Suite};
use link::{Image, Input, Options, link};
use targets::damage::Rng;
use tool::report::{Document, Scope, SuiteName};

/// How many damaged inputs are tried with each target.
const TIMES: usize = 3000;
/// How many of them are run.
const RUNS: usize = 200;
/// The most that one input may take.
const MOST: Duration = Duration::from_secs(20);

/// The files under a directory of the repository.
fn seeds(dir: &str, ending: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(dir);
    let entries = std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut paths: Vec<_> = entries.map(|e| e.unwrap().path()).collect();
    paths.retain(|p| p.to_string_lossy().ends_with(ending));
    paths.sort();
    paths.iter().map(|p| std::fs::read(p).unwrap()).collect()
}

/// How long a target is tried, and from which number: `./x fuzz` says so.
struct Fuzz {
    until: Instant,
    seed: u64,
}

impl Fuzz {
    /// `SECONDS SEED`.
    fn asked() -> Option<Fuzz> {
        let words = std::env::var("TRAMPTOOL_FUZZ").ok()?;
        let (seconds, seed) = words.split_once(' ').unwrap();
        Some(Fuzz {
            until: Instant::now() + Duration::from_secs(seconds.parse().unwrap()),
            seed: seed.parse().unwrap(),
        })
    }
}

/// Try the seeds, and damaged ones: so many, or under `./x fuzz` until the time is up. What fails is kept in a file.
fn try_all(times: usize, seeds: &[Vec<u8>], target: impl Fn(&[u8])) {
    assert!(!seeds.is_empty());
    seeds.iter().for_each(|seed| target(seed));
    let texts: Vec<String> = seeds.iter().filter_map(|seed| String::from_utf8(seed.clone()).ok()).collect();
    let texts = (texts.len() == seeds.len()).then_some(texts);
    let fuzz = Fuzz::asked();
    let mut rng = Rng(fuzz.as_ref().map_or(1, |fuzz| fuzz.seed));
    let mut tried = 0;
    while fuzz.as_ref().map_or(tried < times, |fuzz| Instant::now() < fuzz.until) {
        let (round, seed) = (tried / seeds.len(), tried % seeds.len());
        tried += 1;
        let mut bytes = seeds[seed].clone();
        match &texts {
            Some(texts) if round % 2 == 1 => {
                let mut text = texts[seed].clone();
                rng.damage_text(&mut text, texts);
                bytes = text.into_bytes();
            }
            _ => rng.damage(&mut bytes, seeds),
        }
        let started = Instant::now();
        let ended = catch_unwind(AssertUnwindSafe(|| {
            target(&bytes);
            assert!(started.elapsed() < MOST, "the input takes {:?}", started.elapsed());
        }));
        if let Err(panic) = ended {
            let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hostile-{:016x}", rng.0));
            std::fs::write(&kept, &bytes).unwrap();
            println!("the input is in {}", kept.display());
            resume_unwind(panic);
        }
    }
    if fuzz.is_some() {
        println!("{tried} inputs");
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
fn damaged_reports_are_refused_or_written() {
    let suite = sound(tool::BACKENDS[0]);
    let filter = Filter { function: Some("args3".to_owned()), ..Filter::default() };
    let report = emu_tests::check(std::slice::from_ref(&suite), &filter, 1, &|_, _| {}).unwrap();
    let scope = Scope { suites: vec![SuiteName::of(&suite)], sources: Vec::new() };
    let report = tool::report::json(&Document { report, scope }).unwrap().into_bytes();
    try_all(TIMES / 10, &[seeds("fuzz/seeds/report", ""), vec![report]].concat(), |bytes| {
        targets::report(&String::from_utf8_lossy(bytes));
    });
}

#[test]
fn damaged_configurations_are_refused_or_obeyed() {
    try_all(TIMES, &seeds("fuzz/seeds/config", ""), |bytes| targets::config(&String::from_utf8_lossy(bytes)));
}

#[test]
fn templates_go_anywhere_or_are_refused() {
    let near = [0x40_0000, 1, 0x40_1000, 0x40_2000, 0x40_3000, 0x40_4000_u64].map(u64::to_le_bytes).concat();
    try_all(TIMES, &[near, vec![0xff; 48]], targets::template);
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
