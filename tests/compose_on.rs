//! `compose --arch`: the runtime core, compiled for machines without an operating system, in the emulator. A machine of which
//! the compilers are not installed is skipped, and counted: `cargo test` has no word for that, so this file has its own `main`.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::Bench;
use compose::cross::{CROSS, Cross, Failed};
use compose::{Event, OURS, random};
use emu_tests::Composed;
use object::{Object, ObjectSection};
use tool::suite::suite_of_composed;

type Mutant = (&'static str, &'static str, &'static str, &'static str);

include!("../compose/tests/mutants/list.rs");

/// All users but kretprobes.
const USERS: &str = "args,args2,regs,direct,hijack,graph,graph2,fprobe-entry,fprobe-exit,fprobe";
/// Kretprobes too, for which arm64 has no trampoline.
const WITH_KRETPROBES: &str = "args,args2,regs,direct,hijack,graph,graph2,fprobe-entry,fprobe-exit,fprobe,kretprobe";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Rust's library is compiled once; the rest takes a second.
fn directory(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&dir).unwrap();
    dir
}

struct On {
    cross: Cross,
    dir: String,
}

impl On {
    fn users(&self) -> &'static str {
        if self.cross.arch == "arm64" { USERS } else { WITH_KRETPROBES }
    }

    fn compose<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        [&["compose", "--arch", self.cross.arch, "--objects", &self.dir][..], more].concat()
    }
}

/// What functions, handlers and registers do is what the model says, for subsets of users and for random cases.
fn agrees(on: &On) {
    let b = Bench::new();
    let random = b.ok(&on.compose(&["--users", on.users(), "--random", "300"]));
    for signature in ["word", "stack", "pair", "big"] {
        let counts = format!("runtime on {}, {signature}: ", on.cross.arch);
        assert!(random.contains(&counts), "{random}");
    }
    assert_eq!(random.matches(", 0 differ from the model").count(), 4, "{random}");
    // Functions with results in memory do not call others as jumps: those cases are counted as what they are.
    assert_eq!(random.matches(": 300 cases").count(), 3, "{random}");
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
    let sig = ["--sig", "void h(long a, double x)", "--call", "h", "--handler", "v.o"];
    let out = b.run(&[&["show", "direct", "--arch", on.cross.arch][..], abi, &sig].concat());
    assert!(String::from_utf8(out.stderr).unwrap().contains("v.o: "), "a vector register goes unnoticed");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// What differs when this stands in a file instead of that: the tool's report. None: it is no program.
fn faulty(on: &On, file: &str, from: &str, to: &str, args: &[&str]) -> Option<String> {
    let b = Bench::new();
    let copied = b.path("root");
    for dir in ["runtime/src", "compose/guest"] {
        copy(&root().join(dir), &copied.join(dir));
    }
    let file = copied.join(file);
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text.matches(from).count(), 1, "{} has it so often: {from}", file.display());
    fs::write(&file, text.replace(from, to)).unwrap();
    let dir = directory("core-objects-faulty");
    on.cross.objects(&copied, &dir).ok()?;
    let of = On { cross: on.cross, dir: dir.display().to_string() };
    let out = b.run(&of.compose(&[&["--users", USERS, "--signature", "word", "--minimise"], args].concat()));
    assert_ne!(out.status.code(), Some(2), "{}", String::from_utf8_lossy(&out.stderr));
    (out.status.code() == Some(1)).then(|| String::from_utf8(out.stdout).unwrap()).or_else(|| Some(String::new()))
}

/// Faults of the layer, which only a machine can have, and bugs that kernels had.
fn faults_are_noticed(on: &On) {
    let layer = "compose/guest/layer.c";
    let (in_layer, random) =
        (|from, to| faulty(on, layer, from, to, &["--random", "300"]).unwrap(), ["--random", "300"]);
    let lost = in_layer("\tFIELD(fregs, layout->pc) = pc;", "\tFIELD(fregs, layout->args[2]) = pc;");
    assert!(lost.contains(" is lost in f"), "{lost}");
    let vanished = in_layer("\t\telse\n\t\t\tFIELD(fregs, layout->parent) = regs.parent;", "");
    let vanished = if on.cross.arch == "x86_64" { in_layer("*(word *)at = regs.parent;", ";") } else { vanished };
    assert!(vanished.contains("expected return handler"), "{vanished}");
    let trace = MUTANTS.iter().find(|m| m.0.starts_with("stack traces: of functions in each other")).unwrap();
    for (name, file, from, to) in MUTANTS[..2].iter().chain([trace]) {
        let out = faulty(on, &format!("runtime/src/{file}"), from, to, &["--all", "--sample", "3000"]).unwrap();
        assert!(out.contains("differ from the model"), "{name}");
    }
    let good = faulty(on, layer, "\tint i;\n", "\tint i ;\n", &random).unwrap();
    assert_eq!(good, "", "nothing is wrong");
}

/// The command of a failure shows it again, with the smallest case.
fn what_fails_is_repeated(on: &On) {
    let args = ["--users", "graph", "--random", "50"];
    let layer = "compose/guest/layer.c";
    let out = faulty(on, layer, "regs.retval = FIELD(fregs, layout->retval);", "regs.retval = 7;", &args[2..]).unwrap();
    let (shown, again) = out.split_once("  again: ").unwrap();
    assert!(shown.contains("value 0x7, "), "{out}");
    let again = again.lines().next().unwrap();
    let once = Bench::new().shell(1, again);
    assert!(once.starts_with(shown), "{again}: {once}");
}

/// Whom handlers find up the stack is what trampolines' unwind tables say: where one of them is wrong, they find somebody else.
fn unwind_tables_are_read(on: &On) {
    let backend = tool::backend(on.cross.arch).unwrap();
    let judged = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut suite = suite_of_composed(backend, &tool::default_target(backend).unwrap()).unwrap();
        suite.objects.iter_mut().for_each(|(_, object)| change(object));
        let composed = Composed::new(suite, &on.cross.read(Path::new(&on.dir)).unwrap()).unwrap();
        let run = |case: &_| composed.run(case, 0);
        let subject = OURS.elsewhere("", &run);
        (0..9).find_map(|seed| subject.judge(&random(seed, 1)))
    };
    assert_eq!(judged(&|_| ()), None);
    let failure = judged(&|object| {
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

/// What cannot be run is refused by name.
fn is_refused(on: &On) {
    let b = Bench::new();
    b.refuses(&on.compose(&["--core", "kernel-7.3"]), &["kernel-7.3 does not run on", "--core runtime"]);
    b.refuses(&on.compose(&["--signature", "float"]), &["signature 'float'", "word", "big"]);
    b.refuses(&["compose", "--arch", "sparc"], &["'sparc'"]);
    b.refuses(&["compose", "--objects", "."], &["--arch"]);
    let nothing = ["compose", "--arch", on.cross.arch, "--objects", "nowhere"];
    b.refuses(&nothing, &["no core for", "'nowhere'", "cargo xtask core-objects nowhere"]);
}

type Test = (&'static str, fn(&On));

const TESTS: [Test; 6] = [
    ("agrees", agrees),
    ("touches_no_vector_register", touches_no_vector_register),
    ("faults_are_noticed", faults_are_noticed),
    ("what_fails_is_repeated", what_fails_is_repeated),
    ("unwind_tables_are_read", unwind_tables_are_read),
    ("is_refused", is_refused),
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // Nothing here takes so long that it is not run at first.
    if args.iter().any(|arg| matches!(arg.as_str(), "--ignored" | "--list")) {
        return;
    }
    let filter = args.iter().find(|arg| !arg.starts_with('-')).map(String::as_str);
    // Each architecture's files have its name.
    let each = std::thread::scope(|scope| {
        CROSS.map(|cross| scope.spawn(move || on(cross, filter))).map(|thread| thread.join().expect("a test failed"))
    });
    let [passed, skipped] = each.into_iter().fold([0, 0], |[p, s], [passed, skipped]| [p + passed, s + skipped]);
    println!("test result: ok. {passed} passed; 0 failed; {skipped} ignored; 0 measured; 0 filtered out");
}

/// The tests on an architecture: how many passed, and how many are skipped.
fn on(cross: Cross, filter: Option<&str>) -> [usize; 2] {
    let wanted = TESTS.iter().filter(|(name, _)| filter.is_none_or(|f| format!("{}_{name}", cross.arch).contains(f)));
    let wanted: Vec<&Test> = wanted.collect();
    if wanted.is_empty() {
        return [0, 0];
    }
    let dir = directory("core-objects");
    match cross.objects(&root(), &dir) {
        Ok(_) => {}
        Err(Failed::Missing(why)) => {
            println!("{}: {} tests skipped: {why}", cross.arch, wanted.len());
            return [0, wanted.len()];
        }
        Err(why) => panic!("{}: {why}", cross.arch),
    }
    let on = On { cross, dir: dir.display().to_string() };
    for (name, test) in &wanted {
        println!("test {}_{name} ...", cross.arch);
        test(&on);
    }
    [wanted.len(), 0]
}
