//! Trampolines in real processes: what handlers do there that C and C++ let them do. Natively on x86_64, under qemu's user
//! mode for the others; unwinders are those of libgcc and of the program itself.

use std::path::Path;
use std::process::Command;

use common::Bench;
use object::{Object, ObjectSymbol, SymbolKind};

#[path = "../common/mod.rs"]
mod common;

const SOURCE: &str = include_str!("process.cc");

struct Arch {
    name: &'static str,
    /// Options with which trampolines link with user code, and what frame records take.
    set: &'static [&'static str],
    records: &'static str,
    /// Bytes of the site, at the function's start.
    site: &'static str,
    compilers: [&'static [&'static str]; 2],
    runner: &'static [&'static str],
    /// The trampolines without records of the function and of its caller.
    recordless: &'static [&'static str],
}

const ARCHES: [Arch; 3] = [
    Arch {
        name: "x86_64",
        set: &["stack-align=16"],
        records: "unwinder=fp",
        site: "5",
        compilers: [&["g++", "-fcf-protection=none"], &["clang++-14", "-fcf-protection=none"]],
        runner: &[],
        // The frame pointer of the one is marked as that of pt_regs, the other has a record of the function alone.
        recordless: &["ftrace_regs_caller", "direct_tramp"],
    },
    Arch {
        name: "arm64",
        set: &["call-ops=off"],
        records: "frame-records=on",
        site: "8",
        compilers: [&["aarch64-linux-gnu-g++"], &["clang++-14", "--target=aarch64-linux-gnu"]],
        runner: &["qemu-aarch64"],
        recordless: &[],
    },
    Arch {
        name: "riscv64",
        set: &["abi=lp64d"],
        records: "frame-records=on",
        site: "8",
        compilers: [&["riscv64-linux-gnu-g++"], &["clang++-14", "--target=riscv64-linux-gnu"]],
        runner: &["qemu-riscv64"],
        recordless: &["ftrace_caller", "ftrace_regs_caller"],
    },
];

/// Trampoline, what it calls, and whether the function's own frame is between it and the caller: where the trampoline calls
/// the function, none is while its handlers run, but a record is.
const TRAMPOLINES: [(&str, &str, bool); 7] = [
    ("ftrace_caller", "ftrace_stub", true),
    ("ftrace_regs_caller", "ftrace_stub", true),
    ("direct_tramp", "handler", true),
    ("entered_tramp", "program", true),
    ("called_tramp", "program", false),
    ("jumped_tramp", "program", false),
    ("around_tramp", "handler", false),
];

/// A program with all of them.
struct Program<'a> {
    b: Bench,
    arch: &'a Arch,
    /// Functions by their addresses.
    symbols: Vec<(u64, String)>,
}

impl Program<'_> {
    fn new<'a>(arch: &'a Arch, compiler: &[&str]) -> Program<'a> {
        let b = Bench::new();
        let set = arch.set.iter().flat_map(|s| ["--set", s]);
        let all: Vec<&str> = ["gen", "--arch", arch.name, "--emit", "obj"].into_iter().chain(set).collect();
        let sig = ["--sig", "long traced(long a)"];
        let function = format!("traced+{}", arch.site);
        let function = ["--function", &function];
        let both = ["--fentry", "program", "--fexit", "silent", "--flags", "CALL_ORIG"];
        let generate = |stem: &str, more: &[&[&str]]| {
            b.ok(&[&all[..], &["--stem", stem], &more.concat()].concat());
        };
        let records = ["--set", arch.records];
        let on_entry = if arch.name == "x86_64" { &records[..] } else { &[] };
        generate("entry", &[&["ftrace_caller", "ftrace_regs_caller", "return_to_handler"], on_entry]);
        let on_direct = if arch.name == "x86_64" { &[] } else { &records[..] };
        generate("direct", &[&["direct", "--args", "2", "--call", "handler", "--name", "direct_tramp"], on_direct]);
        generate("entered", &[&["programs", "--fentry", "program", "--name", "entered_tramp"], &sig]);
        let named = ["programs", "--flags", "SKIP_FRAME", "--name", "called_tramp"];
        generate("called", &[&named, &both, &sig, &function]);
        generate("jumped", &[&["programs", "--name", "jumped_tramp"], &both, &sig, &function]);
        let handlers = ["around", "--call", "handler", "--exit", "nothing", "--name", "around_tramp"];
        generate("around", &[&handlers, &sig, &function]);
        std::fs::write(b.path("process.cc"), SOURCE).unwrap();
        let (tool, flags) = compiler.split_first().unwrap();
        let objects = ["entry.o", "direct.o", "entered.o", "called.o", "jumped.o", "around.o"];
        // clang gives a function that throws nothing no unwind table on riscv64.
        let tables = ["-fno-omit-frame-pointer", "-fasynchronous-unwind-tables"];
        let options = ["-O2", "-static", "-pthread", "-w", "process.cc", "-o", "program"];
        b.tool(tool, &[flags, &tables, &options, &objects].concat());
        let bytes = std::fs::read(b.path("program")).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let named = file.symbols().filter(|s| s.kind() == SymbolKind::Text && s.size() > 0);
        let mut symbols: Vec<(u64, String)> = named.map(|s| (s.address(), s.name().unwrap().to_owned())).collect();
        symbols.sort();
        Program { b, arch, symbols }
    }

    /// The lines that it prints, return addresses as the functions in which their calls are.
    fn run(&self, trampoline: &str, what: &str) -> Vec<String> {
        let program = self.b.path("program");
        // Whatever becomes of it, it ends.
        let mut command = Command::new("timeout");
        command.arg("20").args(self.arch.runner).arg(&program).args([trampoline, what]).current_dir(Path::new("/"));
        let out = command.output().unwrap_or_else(|e| panic!("{e}: install coreutils and qemu-user"));
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let told = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{} {trampoline} {what}: {}: {text}{told}", self.arch.name, out.status);
        text.lines().map(|line| line.strip_prefix("frame ").map_or(line.to_owned(), |at| self.function(at))).collect()
    }

    fn function(&self, address: &str) -> String {
        let at = u64::from_str_radix(address, 16).unwrap().saturating_sub(1);
        let before = self.symbols.partition_point(|(start, _)| *start <= at);
        before.checked_sub(1).map_or(String::new(), |i| self.symbols[i].1.clone())
    }
}

fn handlers_unwind(arch: &Arch, compiler: &[&str]) {
    let program = Program::new(arch, compiler);
    for (trampoline, handler, in_function) in TRAMPOLINES {
        let shows = |what: &str, wanted: &[&str]| {
            let lines = program.run(trampoline, what);
            assert_eq!(lines.last().map(String::as_str), Some("done"), "{lines:?}");
            let found = lines.windows(wanted.len()).any(|w| w == wanted);
            assert!(found, "{} {trampoline} {what}: {wanted:?} not in {lines:?}", arch.name);
        };
        let all = [handler, trampoline, "traced", "caller", "thread", "start_thread"];
        let but_function = [handler, trampoline, "caller", "thread", "start_thread"];
        shows("nothing", &["result 42"]);
        shows("trace", if in_function { &all } else { &but_function });
        shows("throw", &["caught 42", "result 1"]);
        shows("exit", &["done"]);
        if !arch.recordless.contains(&trampoline) {
            shows("records", &all[..5]);
        }
    }
    let lines = program.run("return_to_handler", "trace");
    assert_eq!(lines.first().map(String::as_str), Some("result 8, sp told"), "{} {lines:?}", arch.name);
    let end = ["ftrace_return_to_handler", "return_to_handler", "done"];
    assert!(lines.ends_with(&end.map(str::to_owned)), "{} {lines:?}", arch.name);
}

#[test]
fn handlers_unwind_x86_64_gcc() {
    handlers_unwind(&ARCHES[0], ARCHES[0].compilers[0]);
}

#[test]
fn handlers_unwind_x86_64_clang() {
    handlers_unwind(&ARCHES[0], ARCHES[0].compilers[1]);
}

#[test]
fn handlers_unwind_arm64_gcc() {
    handlers_unwind(&ARCHES[1], ARCHES[1].compilers[0]);
}

#[test]
fn handlers_unwind_arm64_clang() {
    handlers_unwind(&ARCHES[1], ARCHES[1].compilers[1]);
}

#[test]
fn handlers_unwind_riscv64_gcc() {
    handlers_unwind(&ARCHES[2], ARCHES[2].compilers[0]);
}

#[test]
fn handlers_unwind_riscv64_clang() {
    handlers_unwind(&ARCHES[2], ARCHES[2].compilers[1]);
}
