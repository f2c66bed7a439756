//! What handlers do that C and C++ let them do: unwind, throw, end the thread. Unwinders are those of libgcc and of the
//! program itself. Then what links make of the trampolines.

use std::process::Command;

use object::{Object, ObjectSymbol, SymbolKind};

use crate::common::Bench;

const SOURCE: &str = include_str!("process.cc");
const CHAIN: &str = include_str!("chain.c");

struct Arch {
    name: &'static str,
    /// Options with which trampolines link with user code, and what frame records take.
    set: &'static [&'static str],
    records: &'static str,
    /// Bytes of the site, at the function's start.
    site: &'static str,
    compilers: [&'static [&'static str]; 2],
    runner: &'static [&'static str],
    /// The prefix of its binutils, and linkers for shared objects: GNU's by gcc, the others by clang.
    prefix: &'static str,
    linkers: &'static [&'static str],
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
        prefix: "x86_64-linux-gnu-",
        linkers: &["bfd", "gold", "lld", "mold"],
        // The frame pointer of the one is marked as that of pt_regs, the other has a record of the function alone.
        recordless: &["ftrace_regs_caller", "direct_tramp"],
    },
    Arch {
        name: "arm64",
        set: &["call-ops=off"],
        records: "frame-records=on",
        site: "8",
        compilers: [&["aarch64-linux-gnu-g++"], &["clang++-14", "--target=aarch64-linux-gnu"]],
        runner: &["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"],
        prefix: "aarch64-linux-gnu-",
        linkers: &["bfd", "gold", "lld", "mold"],
        recordless: &[],
    },
    Arch {
        name: "riscv64",
        set: &["abi=lp64d"],
        records: "frame-records=on",
        site: "8",
        compilers: [&["riscv64-linux-gnu-g++"], &["clang++-14", "--target=riscv64-linux-gnu"]],
        runner: &["qemu-riscv64", "-L", "/usr/riscv64-linux-gnu"],
        prefix: "riscv64-linux-gnu-",
        linkers: &["bfd", "lld", "mold"],
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

/// Generate all of them, each into an object of its own but for those with a name.
fn generate(b: &Bench, arch: &Arch) {
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
}

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
        generate(&b, arch);
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
        let text = run(self.arch, &self.b, &[trampoline, what]);
        text.lines().map(|line| line.strip_prefix("frame ").map_or(line.to_owned(), |at| self.function(at))).collect()
    }

    fn function(&self, address: &str) -> String {
        let at = u64::from_str_radix(address, 16).unwrap().saturating_sub(1);
        let before = self.symbols.partition_point(|(start, _)| *start <= at);
        before.checked_sub(1).map_or(String::new(), |i| self.symbols[i].1.clone())
    }
}

/// What the program prints, which must end well.
fn run(arch: &Arch, b: &Bench, args: &[&str]) -> String {
    // Whatever becomes of it, it ends.
    let mut command = Command::new("timeout");
    command.arg("20").args(arch.runner).arg(b.path("program")).args(args).current_dir(b.path(""));
    let out = command.output().unwrap_or_else(|e| panic!("{e}: install coreutils and qemu-user"));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{} {args:?}: {}: {text}{told}", arch.name, out.status);
    text
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

/// The same functions and trampolines in a shared object, where another one might define what has default visibility: what is
/// called behind its site must be the function of the same object, and is exported all the same.
#[test]
fn shared_objects_call_their_own_functions() {
    for arch in &ARCHES {
        for linker in arch.linkers {
            let b = Bench::new();
            generate(&b, arch);
            let (tool, flags) = arch.compilers[usize::from(["lld", "mold"].contains(linker))].split_first().unwrap();
            let objects = ["direct.o", "entered.o", "called.o", "jumped.o", "around.o"];
            let library = ["-shared", "-fPIC", "-DLIBRARY", "-Dmain=library_main", "process.cc", "-o", "libprocess.so"];
            let linked = match *linker {
                "lld" => "--ld-path=/usr/bin/ld.lld-14".to_owned(),
                "mold" => "--ld-path=/usr/bin/mold".to_owned(),
                gnu => format!("-fuse-ld={gnu}"),
            };
            let options = ["-O1", "-pthread", "-w", &linked];
            b.tool(tool, &[flags, &options, &library, &objects].concat());
            let main = "int library_main(int, char **);\nint main(int n, char **v) { return library_main(n, v); }\n";
            std::fs::write(b.path("main.cc"), main).unwrap();
            let (tool, flags) = arch.compilers[0].split_first().unwrap();
            let program = ["main.cc", "-L.", "-lprocess", "-Wl,-rpath,$ORIGIN", "-o", "program"];
            b.tool(tool, &[flags, &program].concat());
            for trampoline in ["direct_tramp", "entered_tramp", "called_tramp", "jumped_tramp", "around_tramp"] {
                let text = run(arch, &b, &[trampoline, "nothing"]);
                assert_eq!(text, "result 42\ndone\n", "{} {linker} {trampoline}", arch.name);
            }
            let exported = b.tool(&format!("{}nm", arch.prefix), &["-D", "--defined-only", "libprocess.so"]);
            assert!(exported.lines().any(|line| line.ends_with(" T traced")), "{} {linker}: {exported}", arch.name);
        }
    }
}

/// Code without a note of its landing pads takes the protection from all that it is linked with.
#[test]
fn landing_pads_are_noted() {
    for (arch, flag, property) in
        [(&ARCHES[0], "-fcf-protection=branch", "IBT"), (&ARCHES[1], "-mbranch-protection=bti", "BTI")]
    {
        let b = Bench::new();
        generate(&b, arch);
        std::fs::write(b.path("f.c"), "long traced(long a) { return a + 1; }\n").unwrap();
        let gcc = format!("{}gcc", arch.prefix);
        b.tool(&gcc, &["-fPIC", flag, "-c", "f.c"]);
        let note = |objects: &[&str]| {
            b.tool(&gcc, &[&["-shared", "-nostdlib", "-o", "all.so"], objects].concat());
            b.tool(&format!("{}readelf", arch.prefix), &["--notes", "all.so"]).contains(property)
        };
        let all = ["f.o", "direct.o", "entered.o", "called.o", "jumped.o", "around.o"];
        assert!(note(&all[..1]) && note(&all), "{}", arch.name);
        if arch.name == "x86_64" {
            let without = ["--set", "endbr=off", "--emit", "obj", "--stem", "bare"];
            b.ok(&[&["gen", "ftrace_stub_direct_tramp", "--arch", arch.name], &without[..]].concat());
            assert!(!note(&["f.o", "bare.o"]), "code without landing pads says that it has some");
        }
    }
}

/// A nested function of gcc finds its caller's variables by the static chain, which a handler overwrites.
#[test]
fn the_static_chain_is_kept() {
    for (arch, chain) in ARCHES.iter().zip(["r10", "x18", "t2"]) {
        let b = Bench::new();
        std::fs::write(b.path("chain.c"), CHAIN.replace("CHAIN", chain)).unwrap();
        let set = arch.set.iter().flat_map(|s| ["--set", s]);
        let gen_: Vec<&str> = ["gen", "direct", "--arch", arch.name, "--emit", "obj"].into_iter().chain(set).collect();
        let sig = ["--sig", "long inner(long a)", "--call", "handler", "--name", "tramp", "--stem", "tramp"];
        let bare = ["gen", "direct", "--arch", arch.name, "--emit", "obj", "--profile", "bare"];
        let counted = ["--args", "1", "--call", "handler", "--name", "tramp", "--stem", "tramp"];
        let kept = [[&gen_[..], &sig, &["--live", "static-chain"]], [&bare, &sig, &[]], [&bare, &counted, &[]]];
        for (what, result) in kept.map(|what| (what, "42\n")).into_iter().chain([([&gen_[..], &sig, &[]], "")]) {
            b.ok(&what.concat());
            let flags = if arch.name == "x86_64" { &["-fcf-protection=none"][..] } else { &[] };
            let options = ["-O1", "-static", "-w", "chain.c", "tramp.o", "-o", "program"];
            b.tool(&format!("{}gcc", arch.prefix), &[flags, &options].concat());
            if result.is_empty() {
                let mut command = Command::new("timeout");
                let out = command.arg("20").args(arch.runner).arg(b.path("program")).output().unwrap();
                assert_ne!(String::from_utf8_lossy(&out.stdout), "42\n", "{}: the handler loses nothing", arch.name);
            } else {
                assert_eq!(run(arch, &b, &[]), result, "{}", arch.name);
            }
        }
        b.refuses(&[&gen_[..], &sig, &["--live", "nothing"]].concat(), &["--live", "'nothing'", "static-chain"]);
        b.refuses(
            &["gen", "direct", "--args", "1", "--call", "h", "--live", "static-chain", "--arch", arch.name],
            &["--sig"],
        );
    }
}
