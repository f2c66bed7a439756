//! What handlers at the entry and at the return, and traced bodies, do that C and C++ let them do: unwind, throw, end the thread,
//! stop for a debugger. Unwinders are those of libgcc, libunwind, gdb, and of the program itself. Then what links make of the
//! trampolines. docs/unwinding.md tells what is to be expected.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use codegen::arch::facts::Promise;
use object::{Object, ObjectSymbol, SymbolKind};

use crate::common::Bench;
use crate::common::expected::{Gdb, words};
use crate::machine::{ARCHES, Arch, for_each, native};

const SOURCE: &str = include_str!("process.cc");
const CHAIN: &str = include_str!("chain.c");
const SITE: &str = include_str!("site.h");

/// A trampoline, and what of it is in a trace.
struct Traced {
    name: &'static str,
    handler: &'static str,
    /// Whether the function's own frame is between it and the caller: where the trampoline calls the function, none is while
    /// its handlers run, but a record is.
    in_function: bool,
    /// What it calls behind the function, if it calls the function.
    leaving: Option<&'static str>,
    /// Whether a frame of it is left while the function runs. Else nobody but its handlers knows the caller then.
    keeps_frame: bool,
}

const TRAMPOLINES: [Traced; 9] = [
    entered("ftrace_caller", "ftrace_stub"),
    entered("ftrace_regs_caller", "ftrace_stub"),
    entered("direct_tramp", "handler"),
    entered("entered_tramp", "program"),
    paired("called_tramp", "program", "silent", true),
    paired("jumped_tramp", "program", "silent", true),
    paired("around_tramp", "handler", "leaving", true),
    paired("fregs_tramp", "handler", "leaving", true),
    paired("shadow_tramp", "shadow_entry", "shadow_exit", false),
];

const fn entered(name: &'static str, handler: &'static str) -> Traced {
    Traced { name, handler, in_function: true, leaving: None, keeps_frame: true }
}

const fn paired(name: &'static str, handler: &'static str, leaving: &'static str, keeps_frame: bool) -> Traced {
    Traced { name, handler, in_function: false, leaving: Some(leaving), keeps_frame }
}

/// Their objects; the first has those of the function graph tracer too.
const OBJECTS: [&str; 8] =
    ["entry.o", "direct.o", "entered.o", "called.o", "jumped.o", "around.o", "fregs.o", "shadow.o"];

/// Generate all of them, each into an object of its own but for those with a name.
fn generate(b: &Bench, arch: &Arch, guarded: Option<&str>) {
    let sig = ["--sig", "long traced(long a)"];
    let function = format!("traced+{}", arch.with.site);
    let function = ["--function", &function];
    let both = ["--fentry", "program", "--fexit", "silent", "--flags", "CALL_ORIG"];
    let generate = |stem: &str, more: &[&[&str]]| {
        // Its handlers are given no variable of the kernel's.
        let bare = stem == "shadow" || stem == "fregs";
        let profile = ["--profile", if bare { "bare" } else { "linux-6.12" }];
        // The form that keeps nothing on the stack takes no realigned one.
        let known = arch.with.set.iter().filter(|s| !(bare && s.starts_with("call-ops")));
        let set = known.map(|s| if stem == "shadow" { s.replace("=16", "=8") } else { s.clone() });
        // Unwinders pass a signed return address too.
        let guarded = guarded.filter(|_| stem == "fregs").map(str::to_owned);
        let set: Vec<String> = set.chain(guarded).flat_map(|s| ["--set".to_owned(), s]).collect();
        let all = ["gen", "--arch", arch.name, "--emit", "obj", "--stem", stem];
        b.ok(&[&all[..], &profile, &set.iter().map(String::as_str).collect::<Vec<_>>(), &more.concat()].concat());
    };
    let records = ["--set", &arch.with.records];
    let recorded = |object: &str| &records[..2 * usize::from(arch.with.records_of == object)];
    generate("entry", &[&["ftrace_caller", "ftrace_regs_caller", "return_to_handler"], recorded("entry")]);
    generate(
        "direct",
        &[&["direct", "--args", "2", "--call", "handler", "--name", "direct_tramp"], recorded("direct")],
    );
    generate("entered", &[&["programs", "--own-form", "--fentry", "program", "--name", "entered_tramp"], &sig]);
    let named = ["programs", "--own-form", "--flags", "SKIP_FRAME", "--name", "called_tramp"];
    generate("called", &[&named, &both, &sig, &function]);
    generate("jumped", &[&["programs", "--own-form", "--name", "jumped_tramp"], &both, &sig, &function]);
    let handlers = ["around", "--call", "handler", "--exit", "leaving"];
    generate("around", &[&handlers, &["--name", "around_tramp"], &sig, &function]);
    generate("fregs", &[&handlers, &["--form", "fregs", "--name", "fregs_tramp"], &sig, &function]);
    let shadow = ["--form", "shadow", "--call", "shadow_entry", "--exit", "shadow_exit", "--name", "shadow_tramp"];
    generate("shadow", &[&["around"], &shadow, &sig, &function]);
    std::fs::write(b.path("process.cc"), SOURCE).unwrap();
    std::fs::write(b.path("site.h"), SITE).unwrap();
}

/// A program with all of them.
struct Program<'a> {
    b: Bench,
    arch: &'a Arch,
    /// Functions by their addresses.
    symbols: Vec<(u64, String)>,
}

impl Program<'_> {
    /// By an unwinder that knows of signed return addresses, so that a trampoline has one.
    fn with_guards<'a>(arch: &'a Arch, compiler: &[String], more: &[&str]) -> Program<'a> {
        let guarded = arch.with.guarded.as_deref().filter(|_| arch.with.runs_guards);
        Program::of(arch, compiler, more, guarded)
    }

    fn new<'a>(arch: &'a Arch, compiler: &[String], more: &[&str]) -> Program<'a> {
        Program::of(arch, compiler, more, None)
    }

    fn of<'a>(arch: &'a Arch, compiler: &[String], more: &[&str], guarded: Option<&str>) -> Program<'a> {
        let b = Bench::new();
        generate(&b, arch, guarded);
        let (tool, flags) = compiler.split_first().unwrap();
        // clang gives a function that throws nothing no unwind table on riscv64.
        let tables = ["-fno-omit-frame-pointer", "-fasynchronous-unwind-tables"];
        let options = ["-O2", "-pthread", "-w", "process.cc", "-o", "program"];
        b.tool(tool, &[&words(flags)[..], &tables, &options, &OBJECTS, more].concat());
        let bytes = std::fs::read(b.path("program")).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let named = file.symbols().filter(|s| s.kind() == SymbolKind::Text && s.size() > 0);
        let mut symbols: Vec<(u64, String)> = named.map(|s| (s.address(), s.name().unwrap().to_owned())).collect();
        symbols.sort();
        Program { b, arch, symbols }
    }

    /// The lines that it prints, return addresses as the functions in which their calls are.
    fn run(&self, trampoline: &str, what: &str, place: &str) -> Vec<String> {
        let text = run(self.arch, &self.b, &[trampoline, what, place]);
        text.lines().map(|line| line.strip_prefix("frame ").map_or(line.to_owned(), |at| self.function(at))).collect()
    }

    /// The same, and these lines must be in it, one behind the other.
    fn shows(&self, trampoline: &str, [what, place]: [&str; 2], wanted: &[&str]) {
        let lines = self.run(trampoline, what, place);
        assert_eq!(lines.last().map(String::as_str), Some("done"), "{lines:?}");
        let found = lines.windows(wanted.len()).any(|w| w == wanted);
        assert!(found, "{} {trampoline} {what} {place}: {wanted:?} not in {lines:?}", self.arch.name);
    }

    fn function(&self, address: &str) -> String {
        let at = u64::from_str_radix(address, 16).unwrap().saturating_sub(1);
        let before = self.symbols.partition_point(|(start, _)| *start <= at);
        before.checked_sub(1).map_or(String::new(), |i| self.symbols[i].1.clone())
    }
}

fn output(arch: &Arch, b: &Bench, args: &[&str]) -> Output {
    // Whatever becomes of it, it ends.
    let mut command = Command::new("timeout");
    command.arg("20").args(&arch.with.runner).arg(b.path("program")).args(args).current_dir(b.path(""));
    command.output().unwrap_or_else(|e| panic!("{e}: install coreutils and qemu-user"))
}

/// What the program prints, which must end well.
fn run(arch: &Arch, b: &Bench, args: &[&str]) -> String {
    let out = output(arch, b, args);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{} {args:?}: {}: {text}{told}", arch.name, out.status);
    text
}

/// From where something is done, and the frames from there on.
fn traces(t: &Traced) -> Vec<(&'static str, Vec<&'static str>)> {
    const CALLERS: [&str; 3] = ["caller", "thread", "start_thread"];
    let with = |first: &[&'static str], callers: bool| {
        first.iter().chain(CALLERS.iter().filter(|_| callers)).copied().collect::<Vec<_>>()
    };
    let function = &["traced"][..usize::from(t.in_function)];
    let mut all = vec![("entry", with(&[&[t.handler, t.name], function].concat(), true))];
    match t.leaving {
        None => all.push(("body", with(&["traced"], true))),
        Some(leaving) => {
            all.push(("body", with(&["traced", t.name], t.keeps_frame)));
            all.push(("exit", with(&[leaving, t.name], t.keeps_frame)));
        }
    }
    all
}

fn everything_unwinds(arch: &Arch, compiler: &[String]) {
    let program = Program::with_guards(arch, compiler, &["-static"]);
    for t in &TRAMPOLINES {
        program.shows(t.name, ["nothing", "entry"], &["result 42"]);
        for (place, frames) in traces(t) {
            let known = t.keeps_frame || place == "entry";
            // A trace that ends, ends there.
            let end = &["done"][..usize::from(!known)];
            program.shows(t.name, ["trace", place], &[&frames[..], end].concat());
            if known {
                program.shows(t.name, ["throw", place], &["caught 42", "result 1"]);
                program.shows(t.name, ["exit", place], &["done"]);
            }
        }
        let records = [t.handler, t.name, "traced", "caller", "thread"];
        if t.keeps_frame && !arch.with.recordless.iter().any(|name| name == t.name) {
            program.shows(t.name, ["records", "entry"], &records);
        }
    }
    let lines = program.run("return_to_handler", "trace", "exit");
    assert_eq!(lines.first().map(String::as_str), Some("result 8, sp told"), "{} {lines:?}", arch.name);
    let end = ["ftrace_return_to_handler", "return_to_handler", "done"];
    assert!(lines.ends_with(&end.map(str::to_owned)), "{} {lines:?}", arch.name);
    let lines = program.run("return_to_handler", "trace", "body");
    // One frame more: the trampoline's first instruction, before which is another.
    let hooked = lines.iter().position(|f| f == "hooked");
    assert!(hooked.is_some_and(|i| i + 3 == lines.len()), "{} {lines:?}", arch.name);
}

/// The personality routine of C++ finds no row for a function's entry in its table of cleanups, and ends the program: a handler
/// that is called from there cannot throw through the function. One that is called in its place can, and so can its body.
#[test]
fn cleanups_of_a_traced_function_run() {
    for_each(|arch| {
        for compiler in arch.compilers() {
            let program = Program::with_guards(arch, &compiler, &["-static", "-DCLEANUP"]);
            for t in TRAMPOLINES.iter().filter(|t| t.keeps_frame) {
                program.shows(t.name, ["throw", "body"], &["cleaned", "caught 42", "result 1"]);
                if t.in_function {
                    let out = output(arch, &program.b, &[t.name, "throw", "entry"]);
                    let told = String::from_utf8_lossy(&out.stderr).into_owned();
                    assert!(told.contains("terminate called"), "{} {}: {out:?}", arch.name, t.name);
                } else {
                    program.shows(t.name, ["throw", "entry"], &["caught 42", "result 1"]);
                }
            }
        }
    });
}

/// gdb's frames where the program stops for it.
fn debugger_unwinds(arch: &Arch, compiler: &[String]) {
    let program = Program::new(arch, compiler, &["-static"]);
    for t in &TRAMPOLINES {
        for (place, mut frames) in traces(t) {
            let text = debugged(&program, t.name, place);
            // "#3  0x0000000000401c8a in direct_tramp ()"
            let named = |line: &str| {
                let line = line.strip_prefix('#')?.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
                let line = line.split_once(" in ").filter(|_| line.starts_with("0x")).map_or(line, |(_, name)| name);
                line.split([' ', '(']).next().map(str::to_owned)
            };
            let lines: Vec<String> = text.lines().filter_map(named).collect();
            frames.retain(|f| *f != "start_thread");
            for otherwise in arch.with.gdb.iter().filter(|_| t.in_function && place == "entry") {
                match otherwise {
                    Gdb::SignalFrame => frames[1] = "<signal",
                    Gdb::NoFunction => drop(frames.remove(2)),
                }
            }
            let found = lines.windows(frames.len()).any(|w| w == frames);
            assert!(found, "{} {} {place}: {frames:?} not in {lines:?}: {text}", arch.name, t.name);
        }
    }
}

fn debugged(program: &Program, trampoline: &str, place: &str) -> String {
    let (b, arch) = (&program.b, program.arch);
    let mut command = Command::new("timeout");
    command.args(["60", "gdb-multiarch", "-nx", "-batch", "-ex", "set debuginfod enabled off"]).current_dir(b.path(""));
    let mut emulated = None;
    if arch.with.runner.is_empty() {
        command.args(["-ex", "set startup-with-shell off", "-ex", "break stop_here"]);
        command.args(["-ex", &format!("run {trampoline} stop {place}")]);
    } else {
        let mut qemu = Command::new("timeout");
        qemu.arg("60").args(&arch.with.runner).args(["-g", "socket", "program", trampoline, "stop", place]);
        emulated = Some(
            qemu.current_dir(b.path(""))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("install qemu-user"),
        );
        let _ = std::fs::remove_file(b.path("socket"));
        while !b.path("socket").exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
        command.args(["-ex", "target remote socket", "-ex", "break stop_here", "-ex", "continue"]);
    }
    let out = command.args(["-ex", "backtrace", "-ex", "kill", "program"]).output().expect("install gdb-multiarch");
    if let Some(mut qemu) = emulated {
        let _ = qemu.wait();
    }
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn everything_of_gcc_unwinds() {
    for_each(|arch| everything_unwinds(arch, &arch.compilers()[0]));
}

#[test]
fn everything_of_clang_unwinds() {
    for_each(|arch| everything_unwinds(arch, &arch.compilers()[1]));
}

#[test]
fn gdb_unwinds_what_gcc_built() {
    for_each(|arch| debugger_unwinds(arch, &arch.compilers()[0]));
}

#[test]
fn gdb_unwinds_what_clang_built() {
    for_each(|arch| debugger_unwinds(arch, &arch.compilers()[1]));
}

/// libunwind reads the same tables with code of its own.
fn follows_by_libunwind(arch: &Arch, linked: &[&str]) {
    for compiler in arch.compilers() {
        let program = Program::new(arch, &compiler, &[&["-DLIBUNWIND", "-no-pie"], linked].concat());
        for t in &TRAMPOLINES {
            for (place, mut frames) in traces(t) {
                // It is in the library.
                frames.retain(|f| *f != "start_thread");
                program.shows(t.name, ["libunwind", place], &frames);
            }
        }
    }
}

#[test]
fn libunwind_unwinds() {
    follows_by_libunwind(native(), &["-lunwind"]);
}

#[test]
#[ignore = "needs libunwind of other architectures: cargo xtask package-objects"]
fn libunwind_unwinds_elsewhere() {
    let cache = kernel_cache::directory().unwrap();
    for arch in ARCHES.iter().filter(|arch| !arch.with.runner.is_empty()) {
        let dir = cache.join(format!("libunwind-{}", arch.name)).display().to_string();
        let [library, headers] = [format!("{dir}/libunwind.so.8"), format!("-I{dir}")];
        // What it needs itself is beside it.
        let found = format!("-Wl,--disable-new-dtags,-rpath,{dir},-rpath-link,{dir},--allow-shlib-undefined");
        follows_by_libunwind(arch, &[&headers, &library, &found]);
    }
}

/// The same functions and trampolines in a shared object, where another one might define what has default visibility: what is
/// called behind its site must be the function of the same object, and is exported all the same.
#[test]
fn shared_objects_call_their_own_functions() {
    for_each(|arch| {
        let [gcc, clang] = arch.compilers();
        for linker in &arch.with.linkers {
            let b = Bench::new();
            generate(&b, arch, None);
            let (tool, flags) = if ["lld", "mold"].contains(&&**linker) { &clang } else { &gcc }.split_first().unwrap();
            let library = ["-shared", "-fPIC", "-DLIBRARY", "-Dmain=library_main", "process.cc", "-o", "libprocess.so"];
            let linked = match &**linker {
                "lld" => "--ld-path=/usr/bin/ld.lld-14".to_owned(),
                "mold" => "--ld-path=/usr/bin/mold".to_owned(),
                gnu => format!("-fuse-ld={gnu}"),
            };
            let options = ["-O1", "-pthread", "-w", &linked];
            b.tool(tool, &[&words(flags)[..], &options, &library, &OBJECTS[1..]].concat());
            let main = "int library_main(int, char **);\nint main(int n, char **v) { return library_main(n, v); }\n";
            std::fs::write(b.path("main.cc"), main).unwrap();
            let (tool, flags) = gcc.split_first().unwrap();
            let program = ["main.cc", "-L.", "-lprocess", "-Wl,-rpath,$ORIGIN", "-o", "program"];
            b.tool(tool, &[&words(flags)[..], &program].concat());
            for t in &TRAMPOLINES[2..] {
                let text = run(arch, &b, &[t.name, "nothing", "entry"]);
                assert_eq!(text, "result 42\ndone\n", "{} {linker} {}", arch.name, t.name);
            }
            let exported = b.tool(&arch.tool("nm"), &["-D", "--defined-only", "libprocess.so"]);
            assert!(exported.lines().any(|line| line.ends_with(" T traced")), "{} {linker}: {exported}", arch.name);
        }
    });
}

/// Code without a note of its landing pads takes the protection from all that it is linked with.
#[test]
fn landing_pads_are_noted() {
    for (arch, pads) in ARCHES.iter().filter_map(|arch| Some((arch, arch.with.landing_pads.as_ref()?))) {
        let b = Bench::new();
        generate(&b, arch, None);
        std::fs::write(b.path("f.c"), "long traced(long a) { return a + 1; }\n").unwrap();
        let gcc = arch.tool("gcc");
        b.tool(&gcc, &["-fPIC", &pads.flag, "-c", "f.c"]);
        let note = |objects: &[&str]| {
            b.tool(&gcc, &[&["-shared", "-nostdlib", "-o", "all.so"], objects].concat());
            b.tool(&arch.tool("readelf"), &["--notes", "all.so"]).contains(&pads.property)
        };
        let all = [&["f.o"], &OBJECTS[1..]].concat();
        assert!(note(&all[..1]) && note(&all), "{}", arch.name);
        if let Some(without) = &pads.without {
            let without = ["--set", without, "--emit", "obj", "--stem", "bare"];
            b.ok(&[&["gen", "ftrace_stub_direct_tramp", "--arch", arch.name], &without[..]].concat());
            assert!(!note(&["f.o", "bare.o"]), "code without landing pads says that it has some");
        }
    }
}

/// Which trampolines a shadow stack lets pass, as Bochs (SHSTK) and QEMU (GCS) have it, which enforce it: a redirected return and one
/// that nothing returns to are stopped. A shadow stack that checks only what code pushes stops none of these.
const PASS: [(&[&str], bool); 6] = [
    (&["direct", "--args", "1", "--call", "handler"], true),
    (&["around", "--args", "1", "--call", "enter", "--exit", "leave", "--function", "traced+16"], true),
    (&["programs", "--sig", SIG, "--fentry", "handler"], true),
    (&["programs", "--sig", SIG, "--fexit", "handler", "--flags", "CALL_ORIG", "--function", "traced+16"], true),
    (
        &["programs", "--sig", SIG, "--fexit", "handler", "--flags", "CALL_ORIG,SKIP_FRAME", "--function", "traced+16"],
        false,
    ),
    (&["trace_return"], false),
];
const SIG: &str = "long traced(long a)";
const BARE: &[&str] = &["--profile", "bare", "--emit", "obj", "--stem", "t"];

/// An object says that it goes with a shadow stack if that is true, and only then: code that does not say so takes the protection
/// from all that it is linked with.
#[test]
fn what_a_shadow_stack_lets_pass_is_noted() {
    for arch in ARCHES.iter() {
        let Some(marks) = &tool::backend(arch.name).unwrap().facts().marks else { continue };
        let set: Vec<&str> = arch.with.protected.iter().flat_map(|set| ["--set", set]).collect();
        for (kind, passes) in PASS {
            let b = Bench::new();
            b.ok(&[&["gen"], kind, BARE, &set, &["--arch", arch.name]].concat());
            let notes = b.tool(&arch.tool("readelf"), &["-x", ".note.gnu.property", "t.o"]);
            // The fifth group of the dump has the bits, in the byte order of the file.
            let words: Vec<&str> = notes.split_whitespace().skip_while(|word| !word.starts_with("0x")).collect();
            let bits =
                words.iter().filter(|word| word.len() == 8 && word.chars().all(|c| c.is_ascii_hexdigit())).nth(6);
            let bits = bits.map_or(0, |word| u32::from_str_radix(word, 16).unwrap().swap_bytes());
            // Where only code that asks for it is checked, any passes.
            let guarded = marks.bits(Promise::Guarded);
            let wanted = passes || guarded != 0;
            assert_eq!(bits & (marks.bits(Promise::Paired) | guarded) != 0, wanted, "{} {kind:?}: {notes}", arch.name);
        }
    }
}

/// A linker keeps a program's shadow stack, if all its objects go with one.
#[test]
fn a_linker_keeps_the_shadow_stack() {
    for (arch, pads) in ARCHES.iter().filter_map(|arch| Some((arch, arch.with.landing_pads.as_ref()?))) {
        let Some(full) = &pads.full else { continue };
        let b = Bench::new();
        std::fs::write(b.path("f.c"), "long traced(long a) { return a + 1; }\n").unwrap();
        b.tool(&arch.tool("gcc"), &["-fPIC", &full.flag, "-c", "f.c"]);
        for (kind, passes) in PASS {
            b.ok(&[&["gen"], kind, BARE, &["--arch", arch.name]].concat());
            b.tool(&arch.tool("gcc"), &["-shared", "-nostdlib", "-o", "all.so", "f.o", "t.o"]);
            let notes = b.tool(&arch.tool("readelf"), &["--notes", "all.so"]);
            assert_eq!(notes.contains(&full.property), passes, "{} {kind:?}: {notes}", arch.name);
        }
    }
}

/// A nested function of gcc finds its caller's variables by the static chain, which a handler overwrites.
#[test]
fn the_static_chain_is_kept() {
    for arch in ARCHES.iter() {
        let b = Bench::new();
        std::fs::write(b.path("site.h"), SITE).unwrap();
        std::fs::write(b.path("chain.c"), CHAIN.replace("CHAIN", &arch.with.static_chain)).unwrap();
        let set = arch.with.set.iter().flat_map(|s| ["--set", s.as_str()]);
        let gen_ = ["gen", "direct", "--profile", "linux-6.12", "--arch", arch.name, "--emit", "obj"];
        let gen_: Vec<&str> = gen_.into_iter().chain(set).collect();
        let sig = ["--sig", "long inner(long a)", "--call", "handler", "--name", "tramp", "--stem", "tramp"];
        let bare = ["gen", "direct", "--arch", arch.name, "--emit", "obj", "--profile", "bare"];
        let counted = ["--args", "1", "--call", "handler", "--name", "tramp", "--stem", "tramp"];
        let programs = gen_.iter().map(|word| if *word == "direct" { "programs" } else { word });
        let programs: Vec<&str> = programs.chain(["--own-form"]).collect();
        let before = ["--sig", "long inner(long a)", "--fentry", "handler", "--name", "tramp", "--stem", "tramp"];
        let live = &["--live", "static-chain"][..];
        let kept = [[&gen_[..], &sig, live], [&programs, &before, live], [&bare, &sig, &[]], [&bare, &counted, &[]]];
        for (what, result) in kept.map(|what| (what, "42\n")).into_iter().chain([([&gen_[..], &sig, &[]], "")]) {
            b.ok(&what.concat());
            let options = ["-O1", "-static", "-w", "chain.c", "tramp.o", "-o", "program"];
            b.tool(&arch.tool("gcc"), &[&words(&arch.with.flags)[..], &options].concat());
            if result.is_empty() {
                let mut command = Command::new("timeout");
                let out = command.arg("20").args(&arch.with.runner).arg(b.path("program")).output().unwrap();
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
