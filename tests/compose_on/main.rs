//! `compose --arch`: the runtime core, compiled for machines without an operating system, in the emulator. A machine of which
//! the compilers are not installed is skipped, and counted: `cargo test` has no word for that, so this file has its own `main`.

#[path = "../common/mod.rs"]
mod common;
mod mutants;
mod on;

use std::fs;
use std::path::Path;

use common::Bench;
use compose::cross::{CROSS, Cross, Failed};
use compose::{Event, Failure, OURS, Seen, USERS, random};
use emu_tests::Composed;
use object::{Object, ObjectSection, ObjectSymbol};
use on::{On, SIGNATURES, WITHOUT_KRETPROBES, copy, directory, root};

/// What functions, handlers and registers do is what the model says, for subsets of users and for random cases.
fn agrees(on: &On) {
    let b = Bench::new();
    for (profile, signatures) in [(profiles::DEFAULT, on.signatures()), (on.jumps(), SIGNATURES)] {
        let random = b.ok(&on.compose(&["--profile", profile, "--users", on.users(), "--random", "300"]));
        for signature in signatures {
            let counts = format!("runtime on {}, {signature}: ", on.cross.arch);
            assert!(random.contains(&counts), "{random}");
        }
        assert_eq!(random.matches(", 0 differ from the model").count(), signatures.len(), "{random}");
        // Functions with results in memory do not call others as jumps: those cases are counted as what they are.
        let others = signatures.iter().filter(|signature| !signature.starts_with("big")).count();
        assert_eq!(random.matches(": 300 cases").count(), others, "{random}");
        if on.jumps() == profile {
            break;
        }
    }
    let all = b.ok(&on.compose(&["--users", on.users(), "--all", "--sample", "400", "--signature", "stack"]));
    assert_eq!(all, format!("runtime on {}, stack: 400 cases, 0 differ from the model\n", on.cross.arch));
}

/// Handlers of kernels may not touch vector registers: nothing that the core runs does.
fn touches_no_vector_register(on: &On) {
    let object = format!("{}/{}-alone.o", on.dir, on.cross.arch);
    let b = Bench::new();
    for handler in ["core_enter", "core_return_to_handler", "core_rethook_return", "core_register", "core_unregister"] {
        // What is not proven of a handler is told on stderr, and `ok` wants nothing there.
        let sig = ["--sig", "void h(long a, double x)", "--call", handler, "--handler", &object];
        b.ok(&[&["show", "direct", "--arch", on.cross.arch][..], &sig].concat());
    }
    fs::write(b.path("v.c"), "volatile double n; void h(long a, double x) { n += x; }").unwrap();
    let arch_abi: &[&str] = if on.cross.arch == "riscv64" { &["-mabi=lp64d"] } else { &[] };
    let gcc = format!("{}gcc", common::tools_of(on.cross.arch));
    b.tool(&gcc, &[&["-O1", "-fno-pic", "-ffreestanding", "-c", "v.c"], arch_abi].concat());
    let abi: &[&str] = if arch_abi.is_empty() { &[] } else { &["--profile", "linux-6.12", "--set", "abi=lp64d"] };
    let sig = ["--sig", "void f(long a, double x)", "--call", "h", "--handler", "v.o"];
    let out = b.run(&[&["show", "direct", "--arch", on.cross.arch][..], abi, &sig].concat());
    assert!(String::from_utf8(out.stderr).unwrap().contains("v.o: "), "a vector register goes unnoticed");
}

/// What differs when this stands in a file of the layer instead of that: the tool's report.
fn faulty(on: &On, from: &str, to: &str, args: &[&str]) -> String {
    let b = Bench::new();
    let copied = b.path("root");
    for dir in ["runtime/src", "lab/compose/guest"] {
        copy(&root().join(dir), &copied.join(dir));
    }
    let file = copied.join("lab/compose/guest/layer.c");
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text.matches(from).count(), 1, "{} has it so often: {from}", file.display());
    fs::write(&file, text.replace(from, to)).unwrap();
    let dir = directory("core-objects-faulty");
    on.cross.objects(&copied, &dir).unwrap();
    let of = On { cross: on.cross, dir: dir.display().to_string() };
    let out =
        b.run(&of.compose(&[&["--users", WITHOUT_KRETPROBES, "--signature", "word", "--minimise"], args].concat()));
    assert_ne!(out.status.code(), Some(2), "{}", String::from_utf8_lossy(&out.stderr));
    let report = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.success(), !report.contains("again: "), "{report}");
    report
}

/// Reports name what a machine alone can lose.
fn faults_are_named(on: &On) {
    let random = ["--random", "300"];
    let lost = faulty(on, "\tFIELD(fregs, layout->pc) = pc;", "\tFIELD(fregs, layout->args[2]) = pc;", &random);
    assert!(lost.contains(" is lost in f"), "{lost}");
    let good = faulty(on, "\tword answer = 0;\n", "\tword answer = 0 ;\n", &random);
    assert_eq!(good.lines().count(), 1, "nothing is wrong: {good}");
}

/// The command of a failure shows it again, with the smallest case.
fn what_fails_is_repeated(on: &On) {
    let args = ["--users", "graph", "--random", "50"];
    let out = faulty(on, "regs.retval = FIELD(fregs, layout->retval);", "regs.retval = 7;", &args[2..]);
    let (shown, again) = out.split_once("  again: ").unwrap();
    assert!(shown.contains("value 0x7, "), "{out}");
    let again = again.lines().next().unwrap();
    let once = Bench::new().shell(1, again);
    assert!(once.starts_with(shown), "{again}: {once}");
}

/// How the machine fails with trampolines that are changed, and the first of its functions or those that are paired.
fn with_changed(on: &On, (users, paired): (u64, bool), change: impl Fn(&mut [(String, Vec<u8>)])) -> Option<Failure> {
    let profile = if paired { on.jumps() } else { profiles::DEFAULT };
    let mut suite = on.suite(profile);
    change(&mut suite.objects);
    let composed = Composed::new(suite, &on.objects(profile, Path::new(&on.dir))).unwrap();
    let family =
        composed.functions().iter().position(|functions| functions.name.ends_with("-paired") == paired).unwrap();
    let run = |case: &_| composed.run(case, family);
    let subject = OURS.elsewhere("", &run);
    (0..9).find_map(|seed| subject.judge(&random(seed, users)))
}

/// Whom handlers find up the stack is what trampolines' unwind tables say: where one of them is wrong, they find somebody else.
fn unwind_tables_are_read(on: &On) {
    assert_eq!(with_changed(on, (1, false), |_| ()), None);
    let failure = with_changed(on, (1, false), |objects| {
        let object = &mut objects[0].1;
        let read = object::File::parse(&**object).unwrap();
        let (start, size) = read.section_by_name(".eh_frame").and_then(|s| s.file_range()).unwrap();
        let table = &mut object[start as usize..(start + size) as usize];
        // The first frame with more than the return address in it: DW_CFA_def_cfa_offset.
        let at = table.windows(2).position(|bytes| bytes[0] == 0x0e && bytes[1] > 0x10).unwrap();
        table[at + 1] -= 0x10;
    });
    let failure = failure.expect("the table is wrong");
    let (expected, seen) = (failure.expected.unwrap(), failure.seen.unwrap());
    assert_ne!(expected.callers, seen.callers, "{failure}");
    assert_eq!(expected, Event { callers: expected.callers, ..seen }, "{failure}");
}

/// Put two symbols of an object where the other one is.
fn exchange(object: &mut [u8], names: [&str; 2]) {
    let read = object::File::parse(&*object).unwrap();
    let (table, _) = read.section_by_name(".symtab").and_then(|s| s.file_range()).unwrap();
    // Symbols have 24 bytes, and their values are behind the first eight.
    let [one, other] = names.map(|name| table as usize + 24 * read.symbol_by_name(name).unwrap().index().0 + 8);
    (0..8).for_each(|byte| object.swap(one + byte, other + byte));
}

/// What recorders write is read: where two of them are each in the other's place, their records have the wrong number.
fn records_are_read(on: &On) {
    let only = 1 << USERS.iter().position(|user| *user == "recorder").unwrap();
    assert_eq!(with_changed(on, (only, false), |_| ()), None);
    let failure = with_changed(on, (only, false), |objects| {
        exchange(&mut objects.last_mut().unwrap().1, ["composed_recorder_0", "composed_recorder_1"]);
    });
    let failure = failure.expect("the records are wrong");
    assert_eq!(failure.expected.unwrap().seen, Seen::Recorded, "{failure}");
    assert_eq!(failure.seen.unwrap().seen, Seen::Lost("a record"), "{failure}");
}

/// Functions run within their paired trampolines: where two of these are each in the other's place, another function runs.
fn paired_trampolines_are_entered(on: &On) {
    assert_eq!(with_changed(on, (1, true), |_| ()), None);
    let failure = with_changed(on, (1, true), |objects| {
        exchange(&mut objects[0].1, ["composed_around_word_0", "composed_around_word_1"]);
    });
    let failure = failure.expect("another function runs");
    assert_eq!([failure.expected, failure.seen].map(|event| event.unwrap().f), [0, 1], "{failure}");
}

/// What cannot be run is refused by name.
fn is_refused(on: &On) {
    let b = Bench::new();
    b.refuses(&on.compose(&["--core", "kernel-7.3"]), &["kernel-7.3 does not run on", "--core runtime"]);
    b.refuses(&on.compose(&["--signature", "float"]), &["signature 'float'", &on.signatures().join(", ")]);
    if let Some(paired) = SIGNATURES.iter().find(|signature| !on.signatures().contains(signature)) {
        b.refuses(&on.compose(&["--signature", paired]), &[paired, "do not jump", "--profile with one of linux-6.12"]);
    }
    b.refuses(&["compose", "--arch", "sparc"], &["'sparc'"]);
    b.refuses(&on.compose(&["--profile", "bare"]), &["bare", "trace_exit", "valid: linux-6.12, linux-7.2, linux-7.3"]);
    b.refuses(&on.compose(&["--profile", "linux-1.0"]), &["profile 'linux-1.0'", "linux-6.12"]);
    b.refuses(&["compose", "--objects", "."], &["--arch"]);
    let nothing = ["compose", "--arch", on.cross.arch, "--objects", "nowhere"];
    b.refuses(&nothing, &["no core for", "'nowhere'", "cargo xtask core-objects nowhere"]);
}

type Test = (&'static str, fn(&On));

const TESTS: [Test; 9] = [
    ("agrees", agrees),
    ("touches_no_vector_register", touches_no_vector_register),
    ("faults_are_named", faults_are_named),
    ("what_fails_is_repeated", what_fails_is_repeated),
    ("unwind_tables_are_read", unwind_tables_are_read),
    ("records_are_read", records_are_read),
    ("paired_trampolines_are_entered", paired_trampolines_are_entered),
    ("is_refused", is_refused),
    ("a_sample_of_the_mutants_is_noticed", mutants::a_sample_is_noticed),
];

/// Those that want `--ignored`: some minutes.
const LONG: [Test; 1] = [("every_mutant_is_noticed", mutants::every_mutant_is_noticed)];

/// The test that wants no machine.
const PAGE: &str = "the_page_has_the_faults";

/// What the command line says: which of the tests that take long, and of which names.
struct Asked {
    short: bool,
    long: bool,
    filter: Option<String>,
    skipped: Vec<String>,
}

impl Asked {
    fn new(mut args: impl Iterator<Item = String>) -> Asked {
        let mut asked = Asked { short: true, long: false, filter: None, skipped: vec![] };
        while let Some(arg) = args.next() {
            match &*arg {
                "--ignored" => (asked.short, asked.long) = (false, true),
                "--include-ignored" => asked.long = true,
                "--list" => (asked.short, asked.long) = (false, false),
                "--skip" => asked.skipped.extend(args.next()),
                _ if arg.starts_with('-') => {}
                _ => asked.filter = Some(arg),
            }
        }
        asked
    }

    fn names(&self, test: &str) -> bool {
        let is = |part: &String| test.contains(part);
        self.filter.as_ref().is_none_or(is) && !self.skipped.iter().any(is)
    }

    /// The tests of an architecture, and how many others want `--ignored`.
    fn tests(&self, arch: &str) -> (Vec<&'static Test>, usize) {
        let named = |(name, _): &&Test| self.names(&format!("{arch}_{name}"));
        let of = |tests: &'static [Test], wanted: bool| tests.iter().filter(named).filter(move |_| wanted);
        let tests = of(&TESTS, self.short).chain(of(&LONG, self.long)).collect();
        (tests, of(&LONG, self.short && !self.long).count())
    }
}

fn main() {
    let asked = Asked::new(std::env::args().skip(1));
    let asked = &asked;
    // Each architecture's files have its name.
    let each = std::thread::scope(|scope| {
        CROSS.map(|cross| scope.spawn(move || on(cross, asked))).map(|thread| thread.join().expect("a test failed"))
    });
    let once = usize::from(asked.short && asked.names(PAGE));
    if once > 0 {
        println!("test {PAGE} ...");
        mutants::the_page_has_the_faults();
    }
    let [passed, skipped] = each.into_iter().fold([0, 0], |[p, s], [passed, skipped]| [p + passed, s + skipped]);
    let passed = passed + once;
    println!("test result: ok. {passed} passed; 0 failed; {skipped} ignored; 0 measured; 0 filtered out");
}

/// The tests on an architecture: how many passed, and how many are skipped.
fn on(cross: Cross, asked: &Asked) -> [usize; 2] {
    let (wanted, left) = asked.tests(cross.arch);
    if wanted.is_empty() {
        return [0, left];
    }
    let dir = directory("core-objects");
    match cross.objects(&root(), &dir) {
        Ok(_) => {}
        Err(Failed::Missing(why)) => {
            println!("{}: {} tests skipped: {why}", cross.arch, wanted.len());
            return [0, left + wanted.len()];
        }
        Err(why) => panic!("{}: {why}", cross.arch),
    }
    let on = On { cross, dir: dir.display().to_string() };
    for (name, test) in &wanted {
        println!("test {}_{name} ...", cross.arch);
        test(&on);
    }
    [wanted.len(), left]
}
