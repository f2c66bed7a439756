//! Random cases, a program for each two dozen of them. `./x process N --seed S` runs so many on each architecture,
//! `./x process --case NAME --seed S` one.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::case::Case;
use crate::chance::Chance;
use crate::common::Bench;
use crate::common::expected::words;
use crate::flags::Flags;
use crate::machine::{ARCHES, Arch, for_each, native};
use crate::place::Isa;

/// Cases of one program, whose functions are compiled alike.
const CASES: usize = 24;
/// Cases of each architecture in a run of the tests.
const USUAL: usize = 144;
const C_FILES: [&str; 6] = ["harness", "events", "run", "handled", "layouts", "proven"];
/// What handlers run. They are one object, as is wanted where something is proven of them.
const HANDLERS: [&str; 3] = ["handled", "layouts", "proven"];

/// Which batch, and of it one case or all.
struct Chosen {
    seed: u64,
    batch: u64,
    only: Option<usize>,
    cases: usize,
    /// Every trampoline has a fault.
    faulty: bool,
    under: Option<&'static Under>,
    /// The functions have the fault that what watches must find.
    seeded: bool,
}

/// What watches a batch while it runs.
struct Under {
    /// Given to gcc for the functions and for the program.
    options: &'static [&'static str],
    runner: &'static [&'static str],
    /// Microseconds between signals. Where it delivers them late or asks what is written below SP, there are none.
    tick: &'static str,
    /// C with a fault that it must find.
    fault: &'static str,
    /// What it says then.
    finds: &'static str,
}

impl Chosen {
    fn batch(seed: u64, batch: usize, cases: usize) -> Chosen {
        Chosen { seed, batch: batch as u64, only: None, cases, faulty: false, under: None, seeded: false }
    }
}

/// Build and run a batch. Returns how many cases there were, and what failed.
fn run_batch(arch: &Arch, chosen: &Chosen) -> (usize, Vec<String>) {
    let (b, gcc) = (Bench::new(), arch.tool("gcc"));
    let mut chance = Chance::of(chosen.seed, &[arch.isa as u64, chosen.batch]);
    let mut flags = Flags::random(arch.isa, chosen.batch, &mut chance);
    if let Some(under) = chosen.under {
        flags.clang = false;
        flags.options.extend(under.options.iter().map(|o| (*o).to_owned()));
    }
    let case = |i: usize| {
        let mut chance = Chance::of(chosen.seed, &[arch.isa as u64, chosen.batch, i as u64 + 1]);
        let name = format!("{}-{}-{i}", arch.name, chosen.batch);
        Case::random(arch.isa, &flags, name, format!("c{i}"), &mut chance)
    };
    let mut cases: Vec<Case> = (0..chosen.cases).filter(|i| chosen.only.is_none_or(|o| o == *i)).map(case).collect();
    if chosen.faulty {
        cases.retain_mut(|case| case.break_by(arch.name, flags.behind, |args| refusal(&b, args)));
    }
    let fault = chosen.under.map_or("", |under| under.fault);
    let mut objects = write_sources(&b, arch, &flags, &cases, if chosen.seeded { fault } else { "" });
    for case in &cases {
        // A probe's site is as it is written there.
        let behind = if case.probe { flags.probe_behind(arch.isa) } else { flags.behind };
        let (args, renamed) = case.generate(arch.name, behind);
        b.ok(&args.iter().map(String::as_str).collect::<Vec<_>>());
        let object = format!("{}.o", args[6]);
        if !renamed.is_empty() {
            let all = renamed.iter().flat_map(|(from, to)| ["--redefine-sym".to_owned(), format!("{from}={to}")]);
            let kept = ["_tramp", "_back"].map(|s| format!("--keep-global-symbol={}{s}", args[6]));
            let all: Vec<String> = all.chain(kept).chain([object.clone()]).collect();
            b.tool(&arch.tool("objcopy"), &all.iter().map(String::as_str).collect::<Vec<_>>());
        }
        objects.push(object);
        if let Some(args) = case.generate_next(arch.name) {
            b.ok(&args.iter().map(String::as_str).collect::<Vec<_>>());
            objects.push(format!("{}.o", args[6]));
        }
    }
    for (name, tool) in [("ld.lld", "ld.lld-14"), ("ld.mold", "mold")] {
        symlink(Path::new("/usr/bin").join(tool), b.path(name)).unwrap();
    }
    let (watched, runner, tick) = chosen
        .under
        .map_or((&[][..], words(&arch.with.runner), &*arch.with.time[1]), |u| (u.options, u.runner.to_vec(), u.tick));
    objects.extend(flags.linking().into_iter().chain(["-o".into(), "batch".into()]));
    b.tool(&gcc, &objects.iter().map(String::as_str).chain(watched.iter().copied()).collect::<Vec<_>>());
    let mut command = Command::new("timeout");
    command.arg("120").args(runner).arg(b.path("batch")).args([&*arch.with.time[0], tick]);
    let out = command.output().unwrap_or_else(|e| panic!("{e}: install coreutils and qemu-user"));
    let text = String::from_utf8_lossy(&out.stdout);
    let mut failed: Vec<String> = text.lines().filter(|l| l.starts_with("FAIL ")).map(String::from).collect();
    if failed.is_empty() && !out.status.success() {
        failed.push(format!("FAIL {}: {} {}", last_case(&text), out.status, String::from_utf8_lossy(&out.stderr)));
    }
    let mut told: Vec<String> = Vec::new();
    for line in failed {
        let name = line.split([' ', ':']).nth(1).unwrap_or_default().to_owned();
        if !told.iter().any(|t| t.contains(&format!("--case {name} "))) {
            let case = cases.iter().find(|c| c.name == name).map(Case::told).unwrap_or_default();
            told.push(format!(
                "./x process --case {name} --seed {} repeats this: {:?} {case}",
                chosen.seed, flags.options
            ));
        }
        told.push(line);
    }
    if std::env::var_os("TRAMPTOOL_PROCESS").is_some() {
        let linker = flags.linker.unwrap_or("static");
        println!("{} {} {linker}", text.lines().last().unwrap_or_default(), flags.options.join(" "));
    }
    (cases.len(), told)
}

/// What `gen` says instead of generating this.
fn refusal(b: &Bench, args: &[String]) -> String {
    let out = b.run(&args.iter().map(String::as_str).collect::<Vec<_>>());
    String::from_utf8_lossy(&out.stderr).into_owned()
}

fn last_case(text: &str) -> &str {
    text.lines().filter_map(|l| l.strip_prefix("case ")).next_back().unwrap_or("before any case")
}

/// All of a batch but the trampolines. Returns its objects.
fn write_sources(b: &Bench, arch: &Arch, flags: &Flags, cases: &[Case], more: &str) -> Vec<String> {
    let tidy = |name: &str, text: &str| fs::write(b.path(name), text).unwrap();
    for (name, text) in [
        ("harness.h", include_str!("harness.h")),
        ("harness.c", include_str!("harness.c")),
        ("events.c", include_str!("events.c")),
        ("run.c", include_str!("run.c")),
        ("handled.c", include_str!("handled.c")),
        ("proven.c", include_str!("proven.c")),
        ("layouts.c", include_str!("layouts.c")),
        ("handlers.S", include_str!("handlers.S")),
        ("functions.h", include_str!("functions.h")),
        ("measure.S", measure(arch.isa)),
    ] {
        tidy(name, text);
    }
    let probes = cases.iter().filter(|c| c.probe);
    let pad = u8::from(flags.pad);
    tidy("probes.S", &probes.map(|c| format!("    PROBE {}, {pad}\n", c.symbol())).collect::<String>());
    let mut table = "#include \"harness.h\"\n".to_owned();
    let mut rows = String::new();
    let mut functions = "#include \"functions.h\"\n".to_owned();
    for case in cases {
        let behind = if case.probe { flags.probe_behind(arch.isa) } else { flags.behind };
        let (before, row) = case.row(behind);
        table += &before;
        rows += &row;
        functions += &case.function();
    }
    tidy(
        "table.c",
        &format!("{table}const struct test tests[] = {{\n{rows}}};\nconst int test_count = {};\n", cases.len()),
    );
    tidy("functions.c", &(functions + more));
    let gcc = arch.tool("gcc");
    let mut compiler = vec![&*gcc];
    if flags.clang {
        compiler = [&["clang-14"], &words(&arch.with.clang)[..]].concat();
    }
    let options: Vec<&str> = flags.options.iter().map(String::as_str).collect();
    let compile = [&compiler[1..], &["-c", "-w", "functions.c", "-o", "functions.o"], &options].concat();
    b.tool(compiler[0], &compile);
    let mut objects = vec!["functions.o".to_owned(), "measure.o".to_owned(), "table.o".to_owned()];
    let pie = if flags.linker.is_some() { "-fPIE" } else { "-fno-pie" };
    b.tool(&gcc, &["-c", pie, "measure.S", "table.c"]);
    // In what handlers run is no vector register, and nothing that calls the library's memcpy.
    let general = match arch.isa {
        Isa::X86 => &["-mgeneral-regs-only", "-fvisibility=hidden"][..],
        Isa::Arm => &["-mgeneral-regs-only", "-fvisibility=hidden", "-ffixed-x18"],
        Isa::Riscv => &["-fvisibility=hidden"],
    };
    for file in C_FILES {
        let (more, object) = match HANDLERS.contains(&file) {
            true => (general, format!("{file}.part.o")),
            false => (&[][..], format!("{file}.o")),
        };
        b.tool(&gcc, &[&["-c", "-O1", pie, "-fno-builtin", &format!("{file}.c"), "-o", &object], more].concat());
        objects.extend((!HANDLERS.contains(&file)).then_some(object));
    }
    let parts = HANDLERS.map(|file| format!("{file}.part.o"));
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    b.tool(&arch.tool("ld"), &[&["-r", "-o", "proven.o"], &parts[..]].concat());
    objects.push("proven.o".to_owned());
    objects
}

fn measure(isa: Isa) -> &'static str {
    match isa {
        Isa::X86 => include_str!("x86_64.S"),
        Isa::Arm => include_str!("arm64.S"),
        Isa::Riscv => include_str!("riscv64.S"),
    }
}

/// What `./x process` was asked for: words as it got them.
fn asked() -> (usize, u64, Option<String>) {
    let words = std::env::var("TRAMPTOOL_PROCESS").unwrap_or_default();
    let words: Vec<&str> = words.split_whitespace().collect();
    let behind = |name: &str| words.iter().position(|w| *w == name).and_then(|i| words.get(i + 1));
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("'{text}' is no number"));
    let seed = behind("--seed").map_or(1, |s| number(s));
    let cases = words.first().filter(|w| !w.starts_with('-')).map_or(USUAL, |n| number(n) as usize);
    (cases, seed, behind("--case").map(|s| (*s).to_string()))
}

fn random(arch: &Arch) {
    let (cases, seed, case) = asked();
    let mut failed = Vec::new();
    if let Some(name) = case {
        let mut parts = name.split('-');
        if parts.next() != Some(arch.name) {
            return;
        }
        let [batch, only] =
            [parts.next(), parts.next()].map(|p| p.and_then(|p| p.parse().ok()).expect("ARCH-BATCH-CASE"));
        failed = run_batch(arch, &Chosen { only: Some(only), ..Chosen::batch(seed, batch, CASES) }).1;
    } else {
        for batch in 0..cases.div_ceil(CASES) {
            let left = (cases - batch * CASES).min(CASES);
            let (ran, told) = run_batch(arch, &Chosen::batch(seed, batch, left));
            assert_eq!(ran, left, "cases of a batch");
            failed.extend(told);
        }
    }
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
}

#[test]
fn random_cases() {
    for_each(random);
}

static UNDER: [(&str, Under); 4] = [
    (
        "AddressSanitizer",
        Under {
            options: &["-fsanitize=address"],
            runner: &[],
            tick: "50",
            fault: "__attribute__((constructor)) static void fault(void) { volatile int i = 4; volatile char a[4]; a[i] = 1; }",
            finds: "stack-buffer-overflow",
        },
    ),
    (
        "UndefinedBehaviorSanitizer",
        Under {
            options: &["-fsanitize=undefined", "-fno-sanitize-recover"],
            runner: &[],
            tick: "50",
            fault: "__attribute__((constructor)) static void fault(void) { volatile int i = 0x7fffffff; i = i + 1; }",
            finds: "signed integer overflow",
        },
    ),
    (
        "ThreadSanitizer",
        Under {
            options: &["-fsanitize=thread"],
            runner: &[],
            tick: "0",
            fault: "#include <pthread.h>\nstatic int shared;\nstatic void *other(void *p) { shared++; return p; }\n\
                    __attribute__((constructor)) static void fault(void) { pthread_t t; \
                    pthread_create(&t, 0, other, 0); shared++; pthread_join(t, 0); }",
            finds: "data race",
        },
    ),
    (
        "valgrind",
        Under {
            options: &[],
            runner: &["valgrind", "-q", "--smc-check=all", "--error-exitcode=9"],
            tick: "0",
            fault: "#include <stdlib.h>\n__attribute__((constructor)) static void fault(void) { volatile char *p = malloc(4); \
                    p[4] = 1; free((void *)p); }",
            finds: "Invalid write",
        },
    ),
];

fn watched(n: usize) {
    let (name, under) = &UNDER[n];
    // Those of programs at any address.
    for batch in 1..4 {
        let (ran, told) = run_batch(native(), &Chosen { under: Some(under), ..Chosen::batch(1, batch, CASES) });
        assert!(ran == CASES && told.is_empty(), "under {name}:\n{}", told.join("\n"));
    }
    // That nothing is found says something only where a fault is.
    let seeded = Chosen { under: Some(under), seeded: true, ..Chosen::batch(1, 1, 2) };
    let told = run_batch(native(), &seeded).1.join("\n");
    assert!(told.contains("FAIL ") && told.contains(under.finds), "{name} is silent: {told}");
}

/// Every way to a direct trampoline is among the usual cases.
#[test]
fn direct_trampolines_are_gone_to_in_every_way() {
    for arch in ARCHES.iter() {
        let mut met = Vec::new();
        for batch in 0..USUAL.div_ceil(CASES) as u64 {
            let mut chance = Chance::of(1, &[arch.isa as u64, batch]);
            let flags = Flags::random(arch.isa, batch, &mut chance);
            for i in 1..=CASES as u64 {
                let mut chance = Chance::of(1, &[arch.isa as u64, batch, i]);
                met.push(Case::random(arch.isa, &flags, String::new(), "f".to_owned(), &mut chance).act());
            }
        }
        assert!(arch.with.ways.iter().all(|way| met.contains(&&**way)), "{}: {met:?}", arch.name);
    }
}

#[test]
fn cases_run_under_address_sanitizer() {
    watched(0);
}

#[test]
fn cases_run_under_undefined_behaviour_sanitizer() {
    watched(1);
}

#[test]
fn cases_run_under_thread_sanitizer() {
    watched(2);
}

/// `./x test` runs it where valgrind is installed.
#[test]
#[ignore = "wants valgrind"]
fn cases_run_under_valgrind() {
    watched(3);
}

/// The checks can fail: in each case a register that is not restored, or a frame that is eight bytes off, is seen.
#[test]
fn faults_of_random_trampolines_are_noticed() {
    for arch in ARCHES.iter() {
        let (ran, told) = run_batch(arch, &Chosen { faulty: true, ..Chosen::batch(1, 0, CASES) });
        let noticed = told.iter().filter(|line| line.starts_with("./x")).count();
        assert!(ran > 4 && noticed == ran, "{}: {noticed} of {ran}: {told:?}", arch.name);
        assert!(told.iter().all(|l| l.starts_with("./x") || l.contains(": traced: ")), "{told:?}");
    }
}
