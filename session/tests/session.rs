//! A real program, which counts its calls itself: what is recorded is what it has counted.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::AtomicBool;

use session::agent::Agent;
use session::forms::{How, What};
use session::maps::Mapping;
use session::object::Object;
use session::objects::{Choice, Numbered};
use session::pool::{Mode, Owner, Pool};
use session::program::{Program, code};
use session::protocol::Moment;
use session::run::{Options, Outcome, Subject, run};
use session::sink::{Begun, Sink};
use tramptool::Clock;

/// All that has a site, of the program and, if it loads some, of libraries; or of all functions those that the program counts.
struct Chosen {
    any: bool,
    plugins: bool,
}

/// `FUNCTIONS` of program.c, throws.cc and coroutines.c.
const COUNTED: [&str; 26] = [
    "leaf",
    "recurse",
    "ninth",
    "variadic",
    "jumps",
    "worker",
    "handler",
    "tail",
    "in_child",
    "few",
    "destroyed",
    "deep",
    "thrower",
    "jumps_to_it",
    "passes",
    "catches",
    "again",
    "leaves",
    "waits",
    "thread",
    "looks",
    "often",
    "jumps_to_often",
    "body",
    "yields",
    "resumes",
];

impl Choice for Chosen {
    fn object(&self, path: &Path, program: bool) -> bool {
        let loaders = |name: &OsStr| ["libc.so", "ld-linux"].iter().any(|own| name.to_string_lossy().starts_with(own));
        program || self.plugins && !path.file_name().is_some_and(loaders)
    }

    fn function(&self, _: &Path, name: &str, _: u64) -> bool {
        !self.any || COUNTED.contains(&name)
    }

    fn any(&self) -> bool {
        self.any
    }

    fn later(&self) -> bool {
        self.plugins
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
    /// Threads that ended in the middle of calls.
    ended: usize,
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
        // The same number once more is another thread. A flight recorder begins later.
        let follows = owner.serial == 0 || *serial == 0 || *serial == owner.serial;
        assert!(follows, "buffers come in order, and none is missing");
        *serial = owner.serial + 1;
        for record in words.chunks_exact(2).filter(|record| record[1] != 0) {
            assert!(record[0] >= *last, "times ascend in a thread");
            *last = record[0];
            if record[1] == 4 {
                self.ended += 1;
                continue;
            }
            let name = self.names[&(record[1] >> 8)].clone();
            self.of.entry(name).or_default()[(record[1] & 15) as usize - 1] += 1;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn end(&mut self, _: u32, _: Option<ExitStatus>, _: u64, _: Option<Moment>) -> io::Result<()> {
        Ok(())
    }
}

/// An architecture: its compiler, the sites, and what runs programs of it.
struct Arch {
    name: &'static str,
    /// Before the names of compilers.
    prefix: &'static str,
    site: &'static str,
    emulator: &'static [&'static str],
    /// Calls of the function that is called most, in thousands: emulators are slow.
    turns: u32,
}

const ARCHS: [Arch; 3] = [
    Arch {
        name: "x86_64",
        prefix: "x86_64-linux-gnu-",
        site: "-fpatchable-function-entry=5",
        emulator: &[],
        turns: 20_000,
    },
    Arch {
        name: "arm64",
        prefix: "aarch64-linux-gnu-",
        site: "-fpatchable-function-entry=2",
        emulator: &["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"],
        turns: 1000,
    },
    Arch {
        name: "riscv64",
        prefix: "riscv64-linux-gnu-",
        site: "-fpatchable-function-entry=4",
        emulator: &["qemu-riscv64", "-L", "/usr/riscv64-linux-gnu"],
        turns: 1000,
    },
];

/// How the program ended.
fn exit(outcome: &Outcome) -> Result<u8, i32> {
    code(outcome.status.unwrap())
}

/// A compiled program, and where it says what it has counted.
struct Bench {
    arch: &'static Arch,
    directory: tempfile::TempDir,
    /// It has no sites.
    any: bool,
}

impl Bench {
    fn new(arch: &'static Arch, source: &str) -> Bench {
        // With jumps at the end of functions.
        Bench::of(arch, source, &["-O1", "-foptimize-sibling-calls", arch.site])
    }

    /// For the program of this file, in C or C++, compiled with these options.
    fn of(arch: &'static Arch, source: &str, options: &[&str]) -> Bench {
        let any = !options.contains(&arch.site);
        let bench = Bench { arch, directory: tempfile::tempdir().unwrap(), any };
        let root = env!("CARGO_MANIFEST_DIR");
        let compiler = if source.ends_with(".cc") { "g++" } else { "gcc" };
        let source = format!("{root}/tests/{source}");
        bench.compile(compiler, &[options, &["-pthread", &source, "-o"]].concat(), "program");
        bench.compile("gcc", &["-O2", "-fPIC", "-shared", &format!("{root}/preload/preload.c"), "-o"], "library.so");
        bench
    }

    fn compile(&self, compiler: &str, args: &[&str], to: &str) {
        let compiler = format!("{}{compiler}", self.arch.prefix);
        let done = Command::new(&compiler).args(args).arg(self.path(to)).status();
        assert!(done.is_ok_and(|status| status.success()), "{compiler} is not installed, or does not compile");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Run it. `how` is its exit code, or `killed`.
    fn run(&self, mode: Mode, buffers: usize, how: &str) -> (Outcome, Counts) {
        let (outcome, counts) = self.run_all(mode, buffers, how, false);
        assert!(outcome.complaints.is_empty(), "{:?}", outcome.complaints);
        (outcome, counts)
    }

    fn run_all(&self, mode: Mode, buffers: usize, how: &str, plugins: bool) -> (Outcome, Counts) {
        let turns = self.arch.turns.to_string();
        let command: Vec<OsString> =
            vec![self.path("program").into(), self.path("counts").into(), turns.into(), how.into()];
        let backend = arch::backend(self.arch.name).unwrap();
        let program = Program::find(&command, &|machine| machine == backend.facts().machine).ok().unwrap();
        let what = What { returns: true, clock: Clock::Tsc, args: false, result: false };
        let emulator: Vec<OsString> = self.arch.emulator.iter().map(OsString::from).collect();
        let library = self.path("library.so");
        let agent = if emulator.is_empty() { Agent::new() } else { Agent::of(library) }.unwrap();
        let options = Options {
            what,
            mode,
            buffers,
            follow: true,
            stop: &AtomicBool::new(false),
            started: &|_| (),
            choice: &Chosen { any: self.any, plugins },
            backend,
            emulator: &emulator,
            same_clocks: emulator.is_empty(),
            agent: &agent,
        };
        let mut counts = Counts::default();
        let outcome = run(Subject::Program(&program), &options, &mut counts).unwrap();
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

/// Threads, signals on a stack of their own, longjmp, tail calls, arguments on the stack, children of all kinds, an end by SIGKILL.
#[test]
fn what_is_recorded_is_what_the_program_has_counted() {
    for arch in &ARCHS {
        let bench = Bench::new(arch, "program.c");
        for (how, wanted) in [("0", Ok(0)), ("3", Ok(3)), ("killed", Err(9))] {
            let (outcome, counts) = bench.run(Mode::Block, 64, how);
            assert_eq!(exit(&outcome), wanted, "{}", arch.name);
            assert_eq!(outcome.lost, (0, 0));
            assert_eq!(counts.of, bench.counted(), "{}", arch.name);
            // The program; three by each of fork, clone and _Fork.
            assert_eq!((counts.processes, counts.ended), (10, 0), "{}", arch.name);
            assert_eq!(outcome.seen.entries, counts.of.values().map(|[entries, _]| entries).sum::<u64>());
            assert!(outcome.seen.entries > 50 * u64::from(arch.turns));
        }
    }
}

/// A child by a system call of the program's own is noticed where it needs another buffer, and its parent keeps the one that it has. The
/// kernel says so by a page that it clears, which qemu's user mode does not do.
#[test]
fn children_that_nobody_reports_are_noticed() {
    let bench = Bench::new(&ARCHS[0], "program.c");
    let (outcome, counts) = bench.run(Mode::Block, 64, "raw");
    assert_eq!((exit(&outcome), outcome.lost, counts.processes), (Ok(0), (0, 0), 11));
    for name in ["in_child", "recurse", "tail"] {
        assert_eq!(counts.of[name], bench.counted()[name], "{name}");
    }
}

/// Exceptions, also while others are on their way and from behind a tail call; threads that exit or are cancelled; a backtrace. With
/// sites and without.
#[test]
fn unwinding_passes_the_functions_that_are_recorded() {
    let benches = |arch| [Bench::new(arch, "throws.cc"), Bench::of(arch, "throws.cc", &["-O2"])];
    for (arch, bench) in ARCHS.iter().flat_map(|arch| benches(arch).map(|bench| (arch, bench))) {
        let (outcome, counts) = bench.run(Mode::Block, 64, "3");
        assert_eq!(exit(&outcome), Ok(3), "{}", arch.name);
        assert_eq!((outcome.lost, outcome.how), ((0, 0), Some(How::Shadow)));
        // Those that exit or are cancelled.
        assert_eq!(counts.ended, 20, "{}", arch.name);
        assert_eq!(counts.of, bench.counted(), "{}", arch.name);
        assert!(outcome.seen.entries > 10 * u64::from(arch.turns));
    }
}

/// Each coroutine has a shadow stack and buffers of its own, whichever thread it goes on in. With sites and without.
#[test]
fn coroutines_are_recorded_as_threads_are() {
    let benches = |arch| [Bench::new(arch, "coroutines.c"), Bench::of(arch, "coroutines.c", &["-O2"])];
    for (arch, bench) in ARCHS.iter().flat_map(|arch| benches(arch).map(|bench| (arch, bench))) {
        // Too few buffers for each to keep one, and enough.
        for buffers in [64, 512] {
            let (outcome, counts) = bench.run(Mode::Block, buffers, "3");
            assert_eq!(
                (exit(&outcome), outcome.lost, outcome.how),
                (Ok(3), (0, 0), Some(How::Shadow)),
                "{}",
                arch.name
            );
            assert_eq!(counts.of, bench.counted(), "{}", arch.name);
            assert!(counts.of["body"][0] == 100 && counts.of["body"][1] < 100, "some never end");
            // Those of threads, and one for each coroutine.
            assert_eq!(counts.last.len(), 104, "{}", arch.name);
        }
    }
}

/// The loader says what it has loaded, before that runs. What is no object is in nobody's way, nor are our own mappings. Where its function for debuggers is too short for a jump, we say so.
#[test]
fn what_is_loaded_later_is_recorded() {
    for arch in &ARCHS {
        let bench = Bench::new(arch, "loads.c");
        let source = format!("{}/tests/plugin.c", env!("CARGO_MANIFEST_DIR"));
        bench.compile("gcc", &["-O1", arch.site, "-fPIC", "-shared", &source, "-o"], "plugin.so");
        let (outcome, counts) = bench.run_all(Mode::Block, 64, "3", true);
        assert_eq!(exit(&outcome), Ok(3), "{}", arch.name);
        if arch.name == "riscv64" {
            let [complaint] = &*outcome.complaints else { panic!("one complaint: {:?}", outcome.complaints) };
            assert!(complaint.to_string().starts_with("what is loaded by dlopen is not recorded: "), "{complaint}");
            continue;
        }
        let [complaint] = &*outcome.complaints else { panic!("one complaint: {:?}", outcome.complaints) };
        assert!(complaint.to_string().contains("/counts: damaged: "), "{complaint}");
        assert_eq!(outcome.lost, (0, 0));
        let of = |name: &str| counts.of[name];
        assert_eq!([of("begins"), of("plug"), of("inner")], [[21; 2], [21; 2], [226; 2]], "{}", arch.name);
    }
}

/// A library as large as rustc's, and the most buffers: what the process maps first takes no place of trampolines.
#[test]
fn large_libraries_and_many_buffers_have_room() {
    let bench = Bench::new(&ARCHS[0], "loads.c");
    let function = "1: .byte 0x0f, 0x1f, 0x44, 0, 0\nret\n\
                    .pushsection __patchable_function_entries, \"awo\", @progbits, .text\n.quad 1b\n.popsection\n";
    let source = format!(".text\n.global plug\nplug:\n.rept 250000\n{function}.endr\n.section .note.GNU-stack\n");
    fs::write(bench.path("large.s"), source).unwrap();
    let [large, library, program] = ["large.s", "liblarge.so", "loads.c"].map(|name| bench.path(name));
    bench.compile("gcc", &["-shared", large.to_str().unwrap(), "-o"], "liblarge.so");
    fs::write(&program, "extern void plug(void);\nint main(void) { plug(); return 3; }\n").unwrap();
    let library = library.to_str().unwrap();
    bench.compile("gcc", &["-O1", ARCHS[0].site, program.to_str().unwrap(), library, "-o"], "program");
    for buffers in [512, Pool::MOST] {
        let (outcome, counts) = bench.run_all(Mode::Block, buffers, "3", true);
        assert_eq!((exit(&outcome), outcome.functions), (Ok(3), (250_001, 250_001)), "{:?}", outcome.complaints);
        assert!(outcome.complaints.is_empty(), "{:?}", outcome.complaints);
        assert_eq!(outcome.seen.entries, 2, "{:?}", counts.of);
    }
}

/// The same without sites. GCC keeps values in registers that a local function leaves alone: so do trampolines.
#[test]
fn functions_without_sites_are_recorded() {
    for arch in &ARCHS {
        for options in
            [&["-O1"][..], &["-O2"], &["-O2", "-fcf-protection"], &["-O0"], &["-O2", "-mbranch-protection=standard"]]
        {
            let only = |option: &str, name: &str| options.contains(&option) && arch.name != name;
            if only("-fcf-protection", "x86_64") || only("-mbranch-protection=standard", "arm64") {
                continue;
            }
            let bench = Bench::of(arch, "program.c", options);
            let (outcome, counts) = bench.run(Mode::Block, 64, "0");
            assert_eq!((exit(&outcome), outcome.lost), (Ok(0), (0, 0)), "{} {options:?}", arch.name);
            assert_eq!(counts.of, bench.counted(), "{} {options:?}", arch.name);
        }
    }
}

/// A program of arm64 in which the processor looks for landing pads, of which half are PACIASP.
fn hardened(source: &str, how: &[&str]) -> Bench {
    let start = format!("{}/tests/start.S", env!("CARGO_MANIFEST_DIR"));
    let pads = [&start, "-nostartfiles", "-Wl,-z,force-bti", "-mno-outline-atomics", "-O2"];
    let bench = Bench::of(&ARCHS[1], source, &[&pads, how].concat());
    let bytes = fs::read(bench.path("program")).unwrap();
    assert!(Object::is_guarded(&bytes, arch::backend("arm64").unwrap()));
    bench
}

/// With keys A and B, with returns that authenticate, with signatures in all functions, and with sites. The processor goes on to look.
#[test]
fn hardened_programs_are_recorded_and_stay_so() {
    let kinds: [&[&str]; 4] = [
        &["-mbranch-protection=standard"],
        &["-mbranch-protection=standard", "-march=armv8.3-a"],
        &["-mbranch-protection=pac-ret+leaf+b-key+bti"],
        &["-mbranch-protection=standard", ARCHS[1].site],
    ];
    for how in kinds {
        let bench = hardened("program.c", how);
        let (outcome, counts) = bench.run(Mode::Block, 64, "3");
        assert_eq!((exit(&outcome), outcome.lost), (Ok(3), (0, 0)), "{how:?}");
        assert_eq!(counts.of, bench.counted(), "{how:?}");
        // An indirect call to where is no landing pad: SIGILL.
        assert_eq!(exit(&bench.run(Mode::Block, 64, "wrong").0), Err(4), "{how:?}");
    }
    for how in [kinds[0], kinds[2]] {
        let bench = hardened("throws.cc", how);
        let (outcome, counts) = bench.run(Mode::Block, 64, "3");
        assert_eq!((exit(&outcome), outcome.lost, outcome.how), (Ok(3), (0, 0), Some(How::Shadow)), "{how:?}");
        assert_eq!(counts.of, bench.counted(), "{how:?}");
    }
    let bench = Bench::of(&ARCHS[1], "program.c", &["-O2"]);
    assert_eq!(exit(&bench.run(Mode::Block, 64, "wrong").0), Ok(0), "without landing pads, nobody looks");
}

/// With fewer buffers than threads, the program waits and nothing is lost. If it may not wait, what is lost is counted.
#[test]
fn what_finds_no_room_waits_or_is_counted() {
    let bench = Bench::new(&ARCHS[0], "program.c");
    let (waited, counts) = bench.run(Mode::Block, 2, "0");
    assert_eq!((waited.lost, counts.of), ((0, 0), bench.counted()));
    let (dropped, counts) = bench.run(Mode::Drop, 2, "0");
    let counted: u64 = bench.counted().values().flatten().sum();
    let recorded: u64 = counts.of.values().flatten().sum();
    assert!(dropped.lost.0 > 0, "two buffers are not enough for four threads");
    assert_eq!(recorded + dropped.lost.0, counted);
}

/// Of each thread, a flight recorder has the last records: those of its last buffers.
#[test]
fn a_flight_recorder_has_the_end() {
    let bench = Bench::new(&ARCHS[0], "program.c");
    let (outcome, counts) = bench.run(Mode::Flight(2), 64, "killed");
    assert_eq!(outcome.lost, (0, 0));
    let counted = bench.counted();
    // The main thread's are last, and few.
    for name in ["ninth", "variadic", "tail", "jumps"] {
        assert_eq!(counts.of[name], counted[name], "{name}");
    }
    assert!(counts.of["recurse"][0] < counted["recurse"][0], "older records were overwritten");
}

/// Buffers of threads that have ended are used again, the oldest first.
#[test]
fn a_flight_recorder_has_the_last_of_many_threads() {
    for arch in &ARCHS {
        let bench = Bench::new(arch, "program.c");
        let (outcome, counts) = bench.run(Mode::Flight(2), 64, "many");
        assert_eq!((exit(&outcome), outcome.lost), (Ok(0), (0, 0)), "{}", arch.name);
        let [counted, seen] = [&bench.counted(), &counts.of].map(|of| of["variadic"]);
        // The main thread's call is there too.
        assert_eq!((counted, seen), ([2001; 2], [2001; 2]), "{}", arch.name);
        let [counted, seen] = [&bench.counted(), &counts.of].map(|of| of["worker"]);
        assert!(seen[0] > 20 && seen[0] < counted[0], "{} {seen:?}: of ended threads, the last are there", arch.name);
    }
}
