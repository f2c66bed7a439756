//! A real program, which counts its calls itself: what is recorded is what it has counted.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use live::attached::{Choice, Numbered};
use live::forms::{How, What};
use live::maps::Mapping;
use live::pool::{Mode, Owner};
use live::program::{Program, code};
use live::protocol::Moment;
use live::session::{Options, Outcome, run};
use live::sink::{Begun, Sink};
use tramptool::Clock;

/// The program alone, all that has a site.
struct All;

impl Choice for All {
    fn object(&self, _: &Path, program: bool) -> bool {
        program
    }

    fn function(&self, _: &Path, _: &str, _: u64) -> bool {
        true
    }
}

/// Counts records by function: entries and returns.
#[derive(Default)]
struct Counts {
    names: BTreeMap<u64, String>,
    of: BTreeMap<String, [u64; 2]>,
    /// Of each thread, the serial of its next buffer and the last time in the one before.
    last: BTreeMap<(u32, u32), (u32, u64)>,
    processes: usize,
}

impl Sink for Counts {
    fn process(&mut self, _: &Begun) -> io::Result<()> {
        self.processes += 1;
        Ok(())
    }

    fn object(&mut self, object: &Numbered, _: How) -> io::Result<()> {
        let functions = object.object.functions.iter().map(|f| f.name.clone());
        self.names.extend((u64::from(object.first)..).zip(functions));
        Ok(())
    }

    fn loaded(&mut self, _: u32, _: &Numbered, _: u64, _: &[Mapping]) -> io::Result<()> {
        Ok(())
    }

    fn records(&mut self, owner: Owner, _: Moment, words: &[u64]) -> io::Result<()> {
        let (serial, last) = self.last.entry((owner.pid, owner.tid)).or_default();
        if owner.serial == 0 {
            *serial = 0;
        }
        assert_eq!(*serial, owner.serial, "buffers come in order, and none is missing");
        *serial += 1;
        for record in words.chunks_exact(2).filter(|record| record[1] != 0) {
            assert!(record[0] >= *last, "times ascend in a thread");
            *last = record[0];
            let name = self.names[&(record[1] >> 8)].clone();
            self.of.entry(name).or_default()[(record[1] & 15) as usize - 1] += 1;
        }
        Ok(())
    }

    fn end(&mut self, _: u32, _: ExitStatus, _: u64, _: Moment) -> io::Result<()> {
        Ok(())
    }
}

/// A compiled program, and where it says what it has counted.
struct Bench {
    directory: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let bench = Bench { directory: tempfile::tempdir().unwrap() };
        let source = format!("{}/tests/program.c", env!("CARGO_MANIFEST_DIR"));
        let sites = "-fpatchable-function-entry=5";
        let done = Command::new("gcc")
            .args(["-O1", "-g0", "-pthread", sites, "-o"])
            .args([bench.path("program"), source.into()])
            .status();
        assert!(done.unwrap().success());
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Run it, so many turns, in so many buffers.
    fn run(&self, mode: Mode, buffers: usize, turns: u32, how: &str) -> (Outcome, Counts) {
        let command: Vec<OsString> =
            vec![self.path("program").into(), self.path("counts").into(), turns.to_string().into(), how.into()];
        let backend = arch::backend("x86_64").unwrap();
        let program = Program::find(&command, &|machine| machine == backend.facts().machine).ok().unwrap();
        let what = What { returns: true, clock: Clock::Tsc };
        let options =
            Options { what, mode, buffers, follow: true, started: &|_| (), choice: &All, backend, emulator: &[] };
        let mut counts = Counts::default();
        let outcome = run(&program, &options, &mut counts).unwrap();
        assert!(outcome.complaints.is_empty(), "{:?}", outcome.complaints);
        (outcome, counts)
    }

    /// What the program has counted.
    fn counted(&self) -> BTreeMap<String, [u64; 2]> {
        let text = fs::read_to_string(self.path("counts")).unwrap();
        let line = |line: &str| {
            let mut words = line.split_whitespace();
            let name = words.next().unwrap().to_owned();
            let mut number = || words.next().unwrap().parse().unwrap();
            (name, [number(), number()])
        };
        text.lines().map(line).collect()
    }
}

#[test]
fn what_is_recorded_is_what_the_program_has_counted() {
    let bench = Bench::new();
    for (how, wanted) in [("0", Ok(0)), ("3", Ok(3)), ("killed", Err(9))] {
        let (outcome, counts) = bench.run(Mode::Block, 64, 20_000, how);
        assert_eq!(code(outcome.status), wanted);
        assert_eq!(outcome.lost, (0, 0));
        assert_eq!(counts.of, bench.counted());
        assert_eq!(counts.processes, 4);
        assert_eq!(outcome.seen.entries, counts.of.values().map(|[entries, _]| entries).sum::<u64>());
        assert!(outcome.seen.entries > 500_000);
    }
}
