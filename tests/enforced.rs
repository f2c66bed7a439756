//! QEMU and Bochs as further engines, which enforce. What needs their programs runs where `cargo xtask engines` has fetched those.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use codegen::arch::bare::{Bare, Code, Program};
use common::Bench;
use common::expected::{contract, expected, my_tramp};
use emu_tests::{Access, Accesses, Cpu, EVERYWHERE, Holds};
use serde_json::Value;

/// Each of them, with GNU as for its architecture.
fn machines() -> impl Iterator<Item = (&'static Bare, &'static str)> {
    let bare = |b: &&'static dyn codegen::backend::Backend| Some((b.machine().bare?, b.facts().assembler));
    arch::BACKENDS.iter().filter_map(bare)
}

#[test]
fn code_of_bare_machines_is_what_gnu_as_makes_of_its_text() {
    let mut seen = 0;
    for (bare, assembler) in machines() {
        let rom = match &bare.program {
            Program::Qemu(_) => &[],
            Program::Bochs(bochs) => bochs.rom,
        };
        for (_, code) in [bare.boot, bare.around, rom].concat() {
            assert_eq!(assembled(assembler, code), code.bytes(), "{code:x?}");
            seen += code.text().len();
        }
    }
    assert!(seen > 200, "{seen}");
}

/// The bytes of this text. What the assembler has by names of extensions, it is told.
fn assembled(assembler: &str, code: Code) -> Vec<u8> {
    let text: String = code.text().iter().map(|text| format!("\t{text}\n")).collect();
    let march: &[&str] = match code {
        Code::Words(_) if assembler.starts_with("riscv64") => &["-march=rv64gv_zicsr"],
        Code::Words(_) => &["-march=armv8.5-a"],
        Code::Bytes(_) => &[],
    };
    by_gnu_as(assembler, march, &text)
}

fn by_gnu_as(assembler: &str, flags: &[&str], text: &str) -> Vec<u8> {
    let b = Bench::new();
    std::fs::write(b.path("a.s"), text).unwrap();
    b.tool(assembler, &[flags, &["a.s", "-o", "a.o"]].concat());
    let bytes = std::fs::read(b.path("a.o")).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let section = object::Object::section_by_name(&file, ".text").unwrap();
    object::ObjectSection::data(&section).unwrap().to_vec()
}

/// By Unicorn: bytes of memory, and whether they are stored.
type Touched = BTreeSet<(u64, bool)>;

/// What stands for an instruction's bytes, its data, and its stack.
const CODE: u64 = 0x10_0000;
const HELD: u64 = 0x61_8000_0000;

#[test]
fn instructions_load_and_store_what_is_told_of_them() {
    let touched = |at: u64, bytes: usize, is_write| (at..at + bytes as u64).map(move |at| (at, is_write));
    for backend in arch::BACKENDS {
        let (wanted, abi) = (expected(*backend).accesses, &backend.facts().abi);
        let decode = backend.machine().bare.unwrap().decode;
        let flags: Vec<&str> = wanted.flags.iter().map(String::as_str).collect();
        let code = by_gnu_as(backend.facts().assembler, &flags, &wanted.text);
        let mut uc = emu_tests::engine(*backend, Touched::new()).unwrap();
        uc.map(CODE, 0x1000, Holds::Code).unwrap();
        uc.map(HELD, 0x4000, Holds::Data).unwrap();
        assert!(uc.store(CODE, &code));
        let heard = move |uc: &mut Cpu<'_, Touched>, access: Access| {
            uc.data_mut().extend(touched(access.at, access.bytes, access.is_write));
        };
        uc.on_accesses(Accesses::All, EVERYWHERE, Box::new(heard)).unwrap();
        let values: BTreeMap<&str, u64> = (0..)
            .zip(abi.regs)
            .map(|(n, reg)| {
                let small = wanted.small.iter().find(|(name, _)| name == reg.name);
                (reg.name, small.map_or(HELD + 0x2000 + 16 * n, |(_, value)| value.cast_unsigned()))
            })
            .collect();
        // The program calls it otherwise.
        let value = |name: &str| values.get(if name == "fp" { "s0" } else { name }).copied().unwrap_or(0);
        let mut at = 0;
        for text in wanted.text.lines().filter(|line| !line.is_empty()) {
            abi.regs.iter().for_each(|reg| uc.write(reg.emu, values[reg.name]).unwrap());
            let told = decode(&code[at..], CODE + at as u64, &value).unwrap();
            let end = at + told.bytes;
            *uc.data_mut() = Touched::new();
            uc.run_at_most(CODE + at as u64, CODE + end as u64, 1).unwrap_or_else(|e| panic!("{text}: {e}"));
            let told: Touched =
                told.accesses.iter().flat_map(|(at, bytes, is_write)| touched(*at, *bytes, *is_write)).collect();
            assert_eq!(&told, uc.data(), "{}: {text}", backend.facts().name);
            at = end;
        }
        assert_eq!(at, code.len(), "{}", backend.facts().name);
        for (bytes, base, told) in wanted.by_manual {
            let is: Vec<(u64, usize, bool)> =
                told.iter().map(|(at, bytes, is_write)| (value(&base) + at, *bytes, *is_write)).collect();
            assert_eq!(decode(&bytes.to_le_bytes(), CODE, &value).unwrap().accesses, is, "{bytes:#x}");
        }
        for word in wanted.unknown {
            assert!(decode(&word.to_le_bytes(), CODE, &value).is_err(), "{word:#x}");
        }
    }
}

#[test]
fn nothing_is_asked_of_an_engine_that_is_not_there() {
    let b = Bench::new();
    let refused = |args: &[&str], said: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tramptool"));
        command.args(args).env("TRAMPTOOL_QEMU", b.path("")).env("TRAMPTOOL_BOCHS", b.path(""));
        let run = command.output().unwrap();
        let words = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(2), "{words}");
        said.iter().for_each(|part| assert!(words.contains(part), "{part}: {words}"));
    };
    refused(
        &["check", "--enforce", "--arch", "arm64"],
        &["qemu-system-aarch64", "cargo xtask engines", "TRAMPTOOL_QEMU"],
    );
    refused(&["mutate", "--engine", "qemu", "--arch", "riscv64"], &["qemu-system-riscv64"]);
    refused(&["check", "--enforce", "--arch", "x86_64"], &["bochs: ", "cargo xtask engines", "TRAMPTOOL_BOCHS"]);
    refused(&["check", "--engine", "qemu", "--arch", "x86_64"], &["qemu does not run x86_64", "unicorn, bochs"]);
    refused(&["check", "--engine", "bochs", "--arch", "arm64"], &["bochs does not run arm64", "unicorn, qemu, gdb"]);
    refused(&["check", "--engine", "gdb", "--arch", "x86_64"], &["gdb does not run x86_64", "unicorn, bochs"]);
    refused(&["mutate", "--engine", "unicorn,qemu"], &["several engines", "--engine qemu"]);
    refused(&["check", "--engine", "kvm"], &["unknown engine 'kvm'", "unicorn, qemu, bochs, gdb"]);
}

/// One at a time: its CPU and the judge wait for each other, and each wants a CPU of its own meanwhile.
static ALONE: Mutex<()> = Mutex::new(());

/// Run the tool with the engines that are fetched.
fn with_engines(args: &[&str]) -> Output {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let programs = kernel_cache::directory().unwrap().join("engines/bin");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tramptool"));
    command.args(args).env("TRAMPTOOL_QEMU", &programs).env("TRAMPTOOL_BOCHS", &programs).output().unwrap()
}

fn report(args: &[&str]) -> Value {
    let run = with_engines(&[args, &["--format", "json"]].concat());
    assert!(run.status.code().is_some_and(|code| code < 2), "{}", String::from_utf8_lossy(&run.stderr));
    serde_json::from_slice(&run.stdout).unwrap()
}

/// Trampolines of each kind that has a way of its own through the judge.
const KINDS: [&[&str]; 10] = [
    // One set of options for the engine that takes longest.
    &[
        "ftrace_regs_caller",
        "return_to_handler",
        "--arch",
        "x86_64",
        "--function",
        "args2",
        "--fixture",
        "plain",
        "--set",
        "unwinder=orc",
        "--set",
        "return=thunk",
        "--set",
        "endbr=on",
        "--set",
        "call-padding=off",
        "--set",
        "cfi=off",
    ],
    &[
        "direct_2",
        "around_fregs",
        "sled",
        "--profile",
        "bare",
        "--arch",
        "x86_64",
        "--function",
        "args2",
        "--set",
        "unwinder=fp",
        "--set",
        "endbr=on",
        "--set",
        "vectors=save",
        "--set",
        "return=ret",
        "--set",
        "call-padding=off",
        "--set",
        "stack-align=16",
    ],
    &["ftrace_caller", "return_to_handler", "--arch", "arm64"],
    &["ftrace_regs_caller", "--arch", "riscv64", "--set", "fp-test=off"],
    &["around_*", "record_*", "programs_*", "--profile", "bare", "--arch", "arm64", "--set", "vectors=save"],
    &["direct", "around_*", "--profile", "bare", "--arch", "riscv64", "--set", "rvc=on", "--set", "lpad=on"],
    &["around_*", "record_both*", "sled", "--profile", "bare", "--arch", "arm64", "--set", "guard-return=pac"],
    &["around_*", "record_both*", "--profile", "bare", "--arch", "riscv64", "--set", "guard-return=zicfiss"],
    &["around_fregs", "sled", "--profile", "bare", "--arch", "arm64", "--set", "guard-return=scs"],
    &["around_fregs", "sled", "--profile", "bare", "--arch", "riscv64", "--set", "guard-return=scs"],
];

/// Take the rows of a clause out of a report; returns how many of them passed, and how many failed.
fn take(report: &mut Value, clause: &str) -> [u64; 2] {
    let rows = report["results"].as_array_mut().unwrap();
    let taken: Vec<Value> = rows.extract_if(.., |row| row["clause"] == clause).collect();
    let of = |verdict: &str| taken.iter().filter(|row| row["verdict"] == verdict).count() as u64;
    for (verdict, count) in report["summary"].as_object_mut().unwrap() {
        *count = Value::from(count.as_u64().unwrap() - of(verdict));
    }
    [of("pass"), of("fail")]
}

/// A report without the engine's name and places where that lacks an instruction; and those places. What one reads and the other
/// executes fails in neither.
fn apart_from_engine(mut report: Value) -> (Value, Vec<Value>) {
    assert_eq!(take(&mut report, "P2-wide")[1], 0);
    let of = report.as_object_mut().unwrap();
    of.remove("engine");
    let places = of.remove("in_place_of_engine");
    (report, places.map_or(Vec::new(), |places| places.as_array().unwrap().clone()))
}

/// By the other engine these come out as by Unicorn.
fn assert_the_same(kinds: &[&str], unicorn: &Value, other: Value) {
    let engine = other["engine"].as_str().unwrap();
    assert!(["QEMU 1", "Bochs 2"].iter().any(|name| engine.starts_with(name)), "{engine}");
    let ((unicorn, mut lent), (other, others)) = (apart_from_engine(unicorn.clone()), apart_from_engine(other));
    // Of these, the one engine has what the other lacks.
    let both = |name: &Value| {
        !["sspush", "sspopchk", "xsavec64", "xrstor64"].iter().any(|of| name.as_str().unwrap().ends_with(of))
    };
    lent.retain(both);
    assert_eq!(lent, others, "{kinds:?}");
    assert!(unicorn["summary"]["pass"].as_u64() > Some(5), "{kinds:?}: {}", unicorn["summary"]);
    assert!(unicorn == other, "{kinds:?}: the reports differ");
}

/// Take the rows of P26 out of a report, and the numbers of checks, as an engine that enforces makes more; returns how many passed.
fn without_p26(report: &mut Value) -> u64 {
    let [passed, _] = take(report, "P26");
    let rows = report["results"].as_array_mut().unwrap();
    rows.iter_mut().for_each(|row| drop(row.as_object_mut().unwrap().remove("checks")));
    passed
}

#[test]
#[ignore = "needs QEMU and Bochs: cargo xtask engines"]
fn by_another_engine_everything_comes_out_as_by_unicorn() {
    // One of each architecture. The next test runs all of them.
    let by_steps: [&[&str]; 2] = [
        &["return_to_handler", "--arch", "arm64", "--function", "args2"],
        &["return_to_handler", "--arch", "riscv64", "--function", "args2", "--set", "rvc=on"],
    ];
    let all = [(KINDS[1], "bochs"), (KINDS[2], "qemu"), (KINDS[5], "qemu"), (by_steps[0], "gdb"), (by_steps[1], "gdb")];
    for (kinds, engine) in all {
        let check = [&["check"], kinds].concat();
        let unicorn = report(&check);
        assert_the_same(kinds, &unicorn, report(&[&check[..], &["--engine", engine]].concat()));
    }
    let both = report(&["check", "ftrace_stub", "--arch", "arm64", "--engine", "unicorn,qemu"]);
    let engine = both["engine"].as_str().unwrap();
    assert!(engine.starts_with("Unicorn 2.1 and QEMU 1"), "{engine}");
    assert_eq!(both["summary"]["fail"], 0);
}

#[test]
#[ignore = "needs QEMU and Bochs: cargo xtask engines"]
fn by_another_engine_that_enforces_nothing_is_stopped_but_what_contracts_say() {
    for kinds in KINDS {
        let check = [&["check"], kinds].concat();
        let (mut unicorn, mut found) = (report(&check), report(&[&check[..], &["--enforce"]].concat()));
        assert_eq!(found["summary"]["fail"], 0, "{kinds:?}");
        // All that P26 does not ask comes out as where nothing is enforced.
        let decided = without_p26(&mut found);
        without_p26(&mut unicorn);
        // Kernels for riscv64 ask for no pads.
        let asks = !(kinds.contains(&"ftrace_regs_caller") && kinds.contains(&"riscv64"));
        assert_eq!(decided > 0, asks, "{kinds:?}");
        assert_the_same(kinds, &unicorn, found);
    }
}

/// The stub for GDB says nothing of accesses: each run ends at an instruction of which nobody knows them.
#[test]
#[ignore = "needs QEMU and Bochs: cargo xtask engines"]
fn where_nobody_knows_what_is_loaded_a_run_ends_and_says_so() {
    let mut seen = 0;
    for backend in arch::BACKENDS {
        let expected = expected(*backend);
        let Some(unheard) = expected.accesses.unheard else { continue };
        let b = Bench::new();
        std::fs::write(b.path("t.toml"), contract(*backend)).unwrap();
        std::fs::write(b.path("t.S"), my_tramp(&expected.by_hand.around(&unheard, ""))).unwrap();
        b.tool(backend.facts().assembler, &["t.S", "-o", "t.o"]);
        let [object, contract] = ["t.o", "t.toml"].map(|file| b.path(file).display().to_string());
        let args = ["check", "--object", &object, "--contract", &contract, "--function", "args2", "--engine", "gdb"];
        let found = report(&args);
        let rows = found["results"].as_array().unwrap().iter();
        let failures: Vec<&Value> = rows.filter_map(|row| row["failures"].as_array()).flatten().collect();
        let told = failures.iter().filter(|failure| failure.to_string().contains("--engine qemu hears of it")).count();
        seen += told;
    }
    assert_eq!(seen, 2);
}

#[test]
#[ignore = "needs QEMU and Bochs: cargo xtask engines"]
fn a_second_run_says_the_same_to_the_last_byte() {
    for arch in ["x86_64", "arm64", "riscv64"] {
        let words = ["check", "ftrace_caller", "--arch", arch, "--function", "args2"];
        let once = || with_engines(&[&words[..], &["--enforce", "--format", "json"]].concat()).stdout;
        let first = once();
        assert!(first.len() > 1000 && first == once(), "{arch}");
    }
}

/// A process of an engine, as /proc has it.
#[derive(Debug)]
struct Guest {
    pid: String,
    files: Vec<String>,
    /// Filters of system calls.
    filters: u32,
    /// Inodes of the memory that it shares.
    shares: BTreeSet<String>,
}

/// Is a process still there, whose command says this?
fn runs(pid: &str, said: &str) -> bool {
    let command = std::fs::read_to_string(Path::new("/proc").join(pid).join("cmdline"));
    command.is_ok_and(|command| command.contains(said))
}

/// Those that this process has started, of commands that say this.
fn guests(parent: u32, said: &str) -> Vec<Guest> {
    let filters = |status: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"));
        line.map_or(0, |count| count.trim().parse().unwrap())
    };
    // A container may have its own, which all inherit.
    let own: u32 = filters(&std::fs::read_to_string("/proc/self/status").unwrap());
    let about = |pid: String| {
        let dir = Path::new("/proc").join(&pid);
        let status = std::fs::read_to_string(dir.join("status")).ok()?;
        let of =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned());
        let command = std::fs::read_to_string(dir.join("cmdline")).ok()?;
        if !command.contains(said) || of("PPid:")? != parent.to_string() {
            return None;
        }
        let files = std::fs::read_dir(dir.join("fd")).ok()?;
        let files = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        let maps = std::fs::read_to_string(dir.join("maps")).ok()?;
        let shared = maps.lines().filter(|line| line.contains("memfd:tramptool-"));
        let shares = shared.filter(|line| line.contains("rw-s")).filter_map(|line| line.split_whitespace().nth(4));
        Some(Guest { pid, files, filters: filters(&status) - own, shares: shares.map(str::to_owned).collect() })
    };
    let all = std::fs::read_dir("/proc").unwrap();
    all.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).filter_map(about).collect()
}

#[test]
#[ignore = "needs QEMU and Bochs: cargo xtask engines"]
fn code_runs_where_nothing_but_its_own_memory_is_open() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let programs = kernel_cache::directory().unwrap().join("engines/bin");
    let mut tool = Command::new(env!("CARGO_BIN_EXE_tramptool"));
    tool.args(["check", "sled", "--profile", "bare", "--arch", "x86_64", "--engine", "bochs"]);
    tool.env("TRAMPTOOL_BOCHS", &programs).stdout(Stdio::null());
    let mut judge = tool.spawn().unwrap();
    // One for each thread of the judge waits, with no wall; code runs in those that are forked from it.
    let begun = Instant::now();
    let all = loop {
        let all = guests(judge.id(), "bochs");
        if all.iter().any(|guest| guest.filters == 1) && all.iter().any(|guest| guest.filters == 0) {
            break all;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{all:?}");
        std::thread::sleep(Duration::from_millis(1));
    };
    for (n, guest) in all.iter().enumerate().filter(|(_, guest)| guest.filters == 1) {
        let streams = |file: &String| ["0", "1", "2"].contains(&file.as_str());
        assert!(guest.files.iter().all(streams), "{guest:?}");
        assert_eq!(guest.shares.len(), 2, "messages and memory: {guest:?}");
        for (_, other) in all.iter().enumerate().filter(|(other, _)| *other != n) {
            assert!(guest.shares.is_disjoint(&other.shares), "{guest:?} {other:?}");
        }
    }
    // They end with the judge.
    judge.kill().unwrap();
    judge.wait().unwrap();
    let begun = Instant::now();
    while all.iter().any(|guest| runs(&guest.pid, "bochs")) {
        assert!(begun.elapsed() < Duration::from_secs(20), "{all:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Its one filter from the start on leaves no io_uring; the second is the wall.
#[test]
#[ignore = "needs QEMU and Bochs: cargo xtask engines"]
fn code_is_stepped_behind_a_wall() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let programs = kernel_cache::directory().unwrap().join("engines/bin");
    let mut tool = Command::new(env!("CARGO_BIN_EXE_tramptool"));
    tool.args(["check", "return_to_handler", "--arch", "arm64", "--function", "args2", "--engine", "gdb"]);
    let mut judge = tool.env("TRAMPTOOL_QEMU", &programs).stdout(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    let mut seen: Vec<String> = Vec::new();
    while seen.len() < 2 {
        let all = guests(judge.id(), "stdio");
        seen = all.iter().filter(|guest| guest.filters == 2).map(|guest| guest.pid.clone()).collect();
        assert!(begun.elapsed() < Duration::from_secs(60), "{all:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    judge.kill().unwrap();
    judge.wait().unwrap();
    // They end with the judge.
    let begun = Instant::now();
    while let Some(pid) = seen.iter().find(|pid| runs(pid, "stdio")) {
        assert!(begun.elapsed() < Duration::from_secs(20), "{pid}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[ignore = "needs QEMU and Bochs: cargo xtask engines"]
fn vectors_are_executed_at_full_width() {
    let ways = [
        ("arm64", "qemu", &[][..], [("WIDE_UPPER", "z31"), ("WIDE_MASK", "ffr")]),
        ("riscv64", "qemu", &[][..], [("WIDE_UPPER", "v31"), ("VECTOR_LENGTH", "vl")]),
        ("x86_64", "bochs", &["--fixture", "plain"][..], [("WIDE_UPPER", "zmm0"), ("WIDE_MASK", "k1")]),
    ];
    let all = ["ftrace_caller", "ftrace_regs_caller", "return_to_handler"];
    for (arch, engine, fewer, faults) in ways {
        let on = ["--arch", arch, "--engine", engine];
        let sound = report(&[&["check"], &all[..], &on, fewer].concat());
        // Not every option has cases with that fixture.
        let wide = |row: &&Value| row["clause"] == "P2-wide" && row["reason_id"] != "not-looked-at";
        let rows: Vec<&Value> = sound["results"].as_array().unwrap().iter().filter(wide).collect();
        assert!(rows.len() > 1, "{arch}: {rows:?}");
        for row in rows {
            let reason = row["reason"].as_str().unwrap();
            assert!(row["verdict"] == "pass" && reason == "executed at full width", "{arch}: {row}");
        }
        for (operator, lost) in faults {
            let found = report(&[&["mutate"], &all[..], &on, &["--only", operator, "--sample", "3"]].concat());
            let results = found["results"].as_array().unwrap();
            assert_eq!(results.len(), 3, "{arch} {operator}");
            for mutant in results {
                let lost = format!("vectors:wide:{lost}");
                let places = mutant["places"].as_array().unwrap();
                assert!(places.iter().any(|place| place["place"] == *lost), "{arch} {operator}: {mutant}");
            }
        }
    }
}

#[test]
#[ignore = "needs QEMU and Bochs: cargo xtask engines"]
fn by_another_engine_that_enforces_faults_of_pads_and_returns_are_stopped() {
    let bare =
        |arch: &'static str, operator| ["mutate", "--enforce", "--profile", "bare", "--arch", arch, "--only", operator];
    let lpad = ["--set", "lpad=on"];
    let (pac, pushed) = (["--set", "guard-return=pac"], ["--set", "guard-return=zicfiss"]);
    for (words, more) in [
        (bare("x86_64", "DROP_PAD"), &[][..]),
        (bare("x86_64", "PAD_KIND"), &[][..]),
        (bare("x86_64", "PAD_LATE"), &[][..]),
        (bare("x86_64", "PUSH_RET"), &[][..]),
        (bare("x86_64", "PAD_SHIFTED"), &[][..]),
        (bare("x86_64", "PUSH_CALL"), &[][..]),
        (bare("arm64", "DROP_PAD"), &[][..]),
        (bare("arm64", "PAD_KIND"), &[][..]),
        (bare("arm64", "WRONG_LINK"), &[][..]),
        (bare("arm64", "PUSH_CALL"), &[][..]),
        (bare("arm64", "PAD_SHIFTED"), &["programs_*"][..]),
        (bare("riscv64", "DROP_PAD"), &lpad[..]),
        (bare("riscv64", "PAD_LATE"), &lpad[..]),
        (bare("riscv64", "PAD_SHIFTED"), &lpad[..]),
        (bare("riscv64", "PAD_KIND"), &lpad[..]),
        (bare("arm64", "GUARD_MISSING"), &pac[..]),
        (bare("arm64", "GUARD_OTHER"), &pac[..]),
        (bare("arm64", "CHECK_OTHER"), &pac[..]),
        (bare("arm64", "CHECK_SP"), &pac[..]),
        (bare("arm64", "CHECK_EARLY"), &pac[..]),
        (bare("arm64", "GUARD_LATE"), &pac[..]),
        (bare("riscv64", "GUARD_MISSING"), &pushed[..]),
        (bare("riscv64", "CHECK_MISSING"), &pushed[..]),
        (bare("riscv64", "GUARD_OTHER"), &pushed[..]),
        (bare("riscv64", "CHECK_OTHER"), &pushed[..]),
        (bare("riscv64", "CHECK_EARLY"), &pushed[..]),
    ] {
        let found = report(&[&words[..], &["--sample", "6"], more].concat());
        let results = found["results"].as_array().unwrap();
        assert_eq!(results.len(), 6, "{words:?}");
        let stopped = |judged: &&Value| judged["clauses"].as_array().unwrap().contains(&Value::from("P26"));
        assert_eq!(results.iter().filter(stopped).count(), 6, "{words:?}: {results:#?}");
    }
}

/// Functions that check their return addresses: one finds another, one takes it from memory that it is given, and one is good.
const CHECKED: [(&str, &str, &str); 2] = [
    (
        "aarch64-linux-gnu-",
        "signature",
        "
        paciasp
        sub sp, sp, #16
        autiasp
        add sp, sp, #16
        ret
    given:
        paciasp
        ldr x30, [x0]
        autiasp
        ret
    good:
        paciasp
        autiasp
        ret",
    ),
    (
        "riscv64-linux-gnu-",
        "checked return",
        "
        .4byte 0xce104073   # sspush ra
        addi ra, ra, 4
        .4byte 0xcdc0c073   # sspopchk ra
        addi ra, ra, -4
        ret
    given:
        .4byte 0xce104073
        ld ra, 0(a0)
        .4byte 0xcdc0c073
        ret
    good:
        .4byte 0xce104073
        .4byte 0xcdc0c073
        ret",
    ),
];

/// Functions that C may call: one returns to where no call came from, one branches to where no landing pad is, and two do neither.
const AUDITED: [(&str, &str); 2] = [
    (
        "x86_64-linux-gnu-",
        "
        lea 1f(%rip), %rax
        push %rax
        ret
    1:  xor %eax, %eax
        ret
    by_table:
        lea 2f(%rip), %rax
        jmp *%rax
    2:  mov $1, %eax
        ret
    plain:
        lea (%rdi, %rsi), %rax
        ret
    calls:
        push %rbx
        mov %rdi, %rbx
        call outside
        add %rbx, %rax
        pop %rbx
        ret",
    ),
    (
        "aarch64-linux-gnu-",
        "
        mov x9, x30
        adr x30, 1f
        ret
    1:  mov x30, x9
        ret
    by_table:
        adr x9, 2f
        br x9
    2:  mov x0, #1
        ret
    plain:
        add x0, x0, x1
        ret
    calls:
        stp x29, x30, [sp, #-16]!
        bl outside
        ldp x29, x30, [sp], #16
        ret",
    ),
];

/// An object with these functions, of which the code has all names but the first.
fn object(b: &Bench, prefix: &str, names: &[&str], code: &str) -> String {
    let typed: String = names.iter().map(|n| format!(".globl {n}\n.type {n}, @function\n")).collect();
    let mut text = format!("{typed}{}:{code}\n", names[0]);
    for (name, next) in names.iter().zip(names.iter().skip(1)) {
        text = text.replace(&format!("    {next}:"), &format!(".size {name}, . - {name}\n{next}:"));
    }
    let last = names.last().unwrap();
    std::fs::write(b.path("t.s"), format!("{text}\n.size {last}, . - {last}\n")).unwrap();
    b.tool(&format!("{prefix}as"), &["t.s", "-o", "t.o"]);
    b.path("t.o").display().to_string()
}

/// The function, the place and the tier of each stop.
fn stops(found: &Value) -> Vec<[&str; 3]> {
    let stopped = found["findings"].as_array().unwrap().iter().filter(|f| f["kind"] == "C11");
    stopped.map(|f| ["function", "place", "tier"].map(|of| f[of].as_str().unwrap())).collect()
}

#[test]
#[ignore = "needs QEMU and Bochs: cargo xtask engines"]
fn by_another_engine_that_enforces_an_audit_goes_no_further_than_a_check_that_fails() {
    for (prefix, place, code) in CHECKED {
        let b = Bench::new();
        let path = object(&b, prefix, &["bad", "given", "good"], code);
        let found = report(&["audit", &path, "--enforce"]);
        assert_eq!(stops(&found), [["bad", place, "note"]], "{prefix}");
        let functions = found["units"][0]["functions"].as_array().unwrap();
        let returned: Vec<_> = functions.iter().map(|f| (f["returned"] == 0, f["not_judged"].as_str())).collect();
        let bad = "the check of its return address stops it";
        let given = "it checks a return address out of memory, which nobody had signed or pushed";
        assert_eq!(returned, [(true, Some(bad)), (true, Some(given)), (false, None)], "{found}");
    }
}

#[test]
#[ignore = "needs QEMU and Bochs: cargo xtask engines"]
fn by_another_engine_that_enforces_an_audit_tells_what_is_stopped() {
    for (prefix, code) in AUDITED {
        let b = Bench::new();
        let path = object(&b, prefix, &["elsewhere", "by_table", "plain", "calls"], code);
        let found = report(&["audit", &path, "--enforce"]);
        let stops = stops(&found);
        assert_eq!(stops, [["by_table", "landing pad", "note"], ["elsewhere", "shadow stack", "note"]], "{prefix}");
        let functions = found["units"][0]["functions"].as_array().unwrap();
        assert!(functions.iter().all(|f| f["not_judged"].is_null() && f["returned"].as_u64() > Some(3)), "{found}");
        assert!(found["units"][0]["engine"].as_str().unwrap().ends_with("which enforces"));
        // Where nothing stops them, nothing is claimed.
        let free = report(&["audit", &path]);
        assert!(free["findings"].as_array().unwrap().iter().all(|f| f["kind"] != "C11"));
    }
}
