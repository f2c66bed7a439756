//! The objects that are the same in every layout, and what of the machine goes into them.

use std::borrow::Cow;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use codegen::ask::spec::{
    Around, Attach, Body, Clock, Direct, Events, Form, Kind, Program, Programs, Recorder, Regs, Spec,
};
use codegen::out::obj;
use codegen::words::proto::Prototype;

use crate::kernel::{KERNEL, convention};

use super::variants::{JMP, MOST, Needs, Records, Variant};

const DRIVER: &str = include_str!("../../native/driver.c");
const SHAPES_S: &str = include_str!("../../native/shapes.S");
const TRACED: &str = include_str!("../../native/traced.h");
const SHIM: &str = include_str!("../../native/kernel.h");
const XRAY: &str = include_str!("../../native/xray.c");
const GRAPH: &str = include_str!("../../native/graph.c");
const GRAPH_H: &str = include_str!("../../native/graph.h");
/// The headers that `ftrace_64.S` includes; the shim stands in for all of them.
const HEADERS: [&str; 9] = [
    "linux/export.h",
    "linux/cfi_types.h",
    "linux/linkage.h",
    "asm/asm-offsets.h",
    "asm/ptrace.h",
    "asm/ftrace.h",
    "asm/nospec-branch.h",
    "asm/unwind_hints.h",
    "asm/frame.h",
];

/// What is here.
pub struct Tools {
    pub kernel: Option<PathBuf>,
    pub clang: Option<&'static str>,
    pub retour: Option<PathBuf>,
    /// The runtime core, for C.
    pub core: PathBuf,
    pub uftrace: bool,
}

impl Tools {
    pub fn find(dir: &Path) -> Result<Tools, String> {
        let empty = dir.join("empty.c");
        let linked = |clang: &&&str| {
            std::fs::write(&empty, "int main(void) { return 0; }\n").is_ok()
                && command(dir, clang, &["-fxray-instrument", "-no-pie", "empty.c", "-o", "empty"]).is_ok()
        };
        Ok(Tools {
            kernel: kernel_source(),
            clang: CLANGS.iter().find(linked).copied(),
            retour: library(dir, "retour", "libdetour.a").ok(),
            core: library(dir, "core", "libgraph.a")?,
            uftrace: command(dir, "uftrace", &["--version"]).is_ok(),
        })
    }

    pub fn have(&self, needs: Needs) -> bool {
        match needs {
            Needs::Nothing => true,
            Needs::Kernel => self.kernel.is_some(),
            Needs::Xray => self.clang.is_some(),
            Needs::Uftrace => self.uftrace,
            Needs::Retour => self.retour.is_some(),
        }
    }
}

const CLANGS: &[&str] = &["clang", "clang-19", "clang-16", "clang-14"];

/// A crate of `lab/bench/native`, in a library for C.
fn library(dir: &Path, name: &str, file: &str) -> Result<PathBuf, String> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (manifest, target) = (home.join(format!("native/{name}/Cargo.toml")), home.join("../../target").join(name));
    let [manifest, out] = [&manifest, &target].map(|path| path.to_string_lossy());
    command(
        dir,
        "cargo",
        &["build", "--quiet", "--locked", "--release", "--manifest-path", &manifest, "--target-dir", &out],
    )?;
    target.join("release").join(file).canonicalize().map_err(|e| e.to_string())
}

/// Debian's source as `cargo xtask kernel-objects` unpacks it.
fn kernel_source() -> Option<PathBuf> {
    let file = kernel_cache::directory()?.join(format!("linux-source-{KERNEL}/arch/x86/kernel/ftrace_64.S"));
    file.exists().then_some(file)
}

/// Objects that are the same in every layout.
pub fn build_parts(dir: &Path, tools: &Tools, variants: &[&Variant]) -> Result<(), String> {
    let file = |name: &str, text: &str| std::fs::write(dir.join(name), text).map_err(|e| format!("{name}: {e}"));
    file("driver.c", DRIVER)?;
    file("traced.h", TRACED)?;
    file("shapes.S", SHAPES_S)?;
    file("graph.c", GRAPH)?;
    file("graph.h", GRAPH_H)?;
    file("kernel.h", SHIM)?;
    let mut list = String::new();
    let mut table = String::new();
    for v in variants {
        let (declared, what) = match v.own_functions {
            true => (format!("long f_{0}(long), g_{0}(long);\n", v.name), "LOOPS"),
            false => (String::new(), "VARIANT"),
        };
        let _ = writeln!(list, "{declared}{what}({})", v.name);
    }
    table.push_str("#ifdef DECLARE\n");
    for v in variants {
        for symbol in v.goes.iter().flat_map(|(_, f, g)| [f, g]).chain(v.slot.iter().map(|(slot, _)| slot)) {
            let _ = writeln!(table, "extern char {symbol}[];");
        }
        if v.many {
            let _ = writeln!(table, "extern char many_{0}[], many_{0}_end[];\nextern void *many_{0}_to[];", v.name);
        }
    }
    table.push_str("#else\n");
    for v in variants {
        let (opcode, f, g) = v.goes.unwrap_or((0, "0", "0"));
        let (slot, callee) = v.slot.unwrap_or(("0", "0"));
        let many =
            ["", "_to", "_end"].map(|part| if v.many { format!("many_{}{part}", v.name) } else { "0".to_owned() });
        let (name, (entries, exits), many) = (v.name, v.runs, many.join(", "));
        let records = match v.records {
            Records::Nothing => "NOTHING",
            Records::Count => "COUNTER",
            Records::Both => "BOTH",
        };
        let _ = writeln!(
            table,
            "GOES({name}, {opcode}, {f}, {g}, {slot}, {callee}, {entries}, {exits}, {records}, {many})"
        );
    }
    table.push_str("#endif\n");
    file("variants.h", &list)?;
    file("variants_table.h", &table)?;
    generated(dir)?;
    recorders(dir, 0)?;
    file("many.S", &many(variants))?;
    for part in ["shapes", "many"] {
        command(dir, "gcc", &["-c", &format!("{part}.S"), "-o", &format!("{part}.o")])?;
    }
    if let Some(clang) = tools.clang {
        file("xray.c", XRAY)?;
        let flags = ["-O2", "-fxray-instrument", "-fxray-instruction-threshold=1", "-fno-pie", "-w"];
        command(dir, clang, &[&flags[..], &["-c", "xray.c", "-o", "xray.o"]].concat())?;
    }
    kernel(dir, tools)
}

/// The kernel's trampolines, if its source is here.
fn kernel(dir: &Path, tools: &Tools) -> Result<(), String> {
    let Some(kernel) = &tools.kernel else {
        let none = ".globl return_to_handler, k5_return_to_handler\nreturn_to_handler:\nk5_return_to_handler:\n\
                    .section .note.GNU-stack\n";
        std::fs::write(dir.join("return.S"), none).map_err(|e| format!("return.S: {e}"))?;
        return command(dir, "gcc", &["-c", "return.S", "-o", "k3.o"]).map(drop);
    };
    for header in HEADERS {
        let path = dir.join("include").join(header);
        let parent = path.parent().unwrap_or(dir);
        std::fs::create_dir_all(parent).and_then(|()| std::fs::write(&path, "")).map_err(|e| e.to_string())?;
    }
    let source = kernel.to_string_lossy();
    command(dir, "gcc", &["-c", "-Iinclude", "-include", "kernel.h", &source, "-o", "k.o"])?;
    // A trampoline has one call slot: each variant wants a copy.
    for n in 1..=5 {
        let copy = format!("k{n}.o");
        command(dir, "objcopy", &[&format!("--prefix-symbols=k{n}_"), "k.o", &copy])?;
        let named = |symbol: &str, name: &str| format!("--redefine-sym=k{n}_{symbol}={name}");
        let back = |symbol: &str| named(symbol, symbol);
        let exit = if n == 5 { "kernel_graph_exit" } else { "ftrace_return_to_handler" };
        let mut shared = vec![back("function_trace_op"), named("ftrace_return_to_handler", exit)];
        if n == 3 {
            shared.push(back("return_to_handler"));
        }
        let shared: Vec<&str> = shared.iter().map(String::as_str).chain([copy.as_str()]).collect();
        command(dir, "objcopy", &shared)?;
    }
    Ok(())
}

/// Many functions for each variant that wants them: what gcc makes of the leaf, the calls of all of them in turn, and where
/// their sites go to.
fn many(variants: &[&Variant]) -> String {
    let mut text = String::from("\t.section .note.GNU-stack, \"\", @progbits\n");
    for v in variants.iter().filter(|v| v.many) {
        let name = v.name;
        let _ = writeln!(
            text,
            "\t.text\n\t.balign 64\n\t.globl many_{name}, many_{name}_end, many_{name}_to\nmany_{name}:"
        );
        for i in 0..MOST {
            let function = of_many(name, i);
            let _ = writeln!(text, "\t.balign 16\n\t.globl {function}\n{function}: nopl 0(%rax,%rax,1)");
            text.push_str("\tlea 1(%rdi), %rax\n\tret\n");
        }
        for i in 0..MOST {
            let _ = writeln!(text, "\tcall {}\n\tmov %rax, %rdi", of_many(name, i));
        }
        let _ = writeln!(text, "many_{name}_end: ret\n\t.data\nmany_{name}_to:");
        for i in 0..MOST {
            let _ = match v.goes {
                Some((JMP, ..)) => writeln!(text, "\t.quad {}_tramp", of_many(name, i)),
                Some((_, to, _)) => writeln!(text, "\t.quad {to}"),
                None => writeln!(text, "\t.quad 0"),
            };
        }
    }
    text
}

fn of_many(variant: &str, i: usize) -> String {
    format!("{variant}_{i}")
}

/// The trampolines of this project.
fn generated(dir: &Path) -> Result<(), String> {
    let backend = arch::backend("x86_64").map_err(|e| e.to_string())?;
    let options = backend.facts().options;
    let convention = convention(backend)?;
    let write = |name: &str, settings: &[(&str, &str)], specs: &[Spec]| -> Result<(), String> {
        let mut choices = convention.defaults();
        // The kernel's code has no landing pads here either.
        for (option, value) in settings.iter().chain(&[("endbr", "off")]) {
            choices.set("x86_64", options, option, value).map_err(|e| e.to_string())?;
        }
        let target = backend.target(convention, choices).map_err(|e| e.to_string())?;
        let assembly = backend.assemble(specs, &target).map_err(|e| e.to_string())?;
        let object = obj::write(&assembly, &target).map_err(|e| e.to_string())?;
        std::fs::write(dir.join(name), object).map_err(|e| e.to_string())
    };
    let entry = |name, regs| Spec { name, ..Spec::of(name, Kind::Entry(regs)) };
    let direct = |name, args| Spec::direct(name, Direct { args, ..Direct::default() }, "on_entry");
    let proto =
        Prototype::parse("long f(long a, long b, long c, long d, long e, long f)").map_err(|e| e.to_string())?;
    let defaults = backend.target(convention, convention.defaults()).map_err(|e| e.to_string())?;
    let shown =
        defaults.place(&proto).and_then(|p| p.programs(&proto, &backend.facts().abi, convention.site.live, false));
    let fexit = Programs { call_orig: true, ..shown.map_err(|e| e.to_string())? };
    let program = [Program { attach: Attach::Fexit, symbol: Cow::Borrowed("on_exit_"), cookie: 1 }];
    let fexit_skip = Kind::Programs(Programs { skip_frame: true, ..fexit });
    let fexit = Kind::Programs(fexit);
    let [frame, fregs] =
        [Form::Frame, Form::Fregs].map(|form| Kind::Around(Around { form, args: 6, general_handlers: false }));
    fn on<'a>(name: &'a str, function: &'a str, kind: Kind, programs: &'a [Program]) -> Spec<'a> {
        let body = Body { function, resume: 5, exit: "on_exit_", signed: false };
        Spec { name, callee: "on_entry", body, programs, ..Spec::of(name, kind) }
    }
    fn through_core<'a>(name: &'a str, function: &'a str, kind: Kind) -> Spec<'a> {
        let body = Body { function, resume: 5, exit: "core_exit", signed: false };
        Spec { name, callee: "core_entry", body, ..Spec::of(name, kind) }
    }
    write(
        "plain.o",
        &[],
        &[
            entry("args", Regs::Args),
            entry("regs", Regs::All),
            direct("direct_1", 1),
            direct("direct_of_kernel", 1),
            direct("direct_of_ours", 1),
            on("graph_f", "f_graph", fregs, &program),
            on("graph_g", "g_graph", fregs, &program),
            on("fexit_f", "f_fexit", fexit, &program),
            on("fexit_g", "g_fexit", fexit, &program),
            on("fexit_skip_f", "f_fexit_skip", fexit_skip, &program),
            on("fexit_skip_g", "g_fexit_skip", fexit_skip, &program),
            on("around_frame_f", "f_around_frame", frame, &program),
            on("around_frame_g", "g_around_frame", frame, &program),
        ],
    )?;
    for (variant, kind) in [("graph", fregs), ("fexit", fexit), ("around_frame", frame)] {
        let functions: Vec<String> = (0..MOST).map(|i| of_many(variant, i)).collect();
        let names: Vec<String> = functions.iter().map(|f| format!("{f}_tramp")).collect();
        let specs: Vec<Spec> = functions.iter().zip(&names).map(|(f, name)| on(name, f, kind, &program)).collect();
        write(&format!("many_{variant}.o"), &[], &specs)?;
    }
    // What Rust makes of the core may want the psABI's alignment.
    let aligned = [("stack-align", "16")];
    write(
        "core.o",
        &aligned,
        &[through_core("core_f", "f_graph_two", fregs), through_core("core_g", "g_graph_two", fregs)],
    )?;
    let functions: Vec<String> = (0..MOST).map(|i| of_many("graph_two", i)).collect();
    let names: Vec<String> = functions.iter().map(|f| format!("{f}_tramp")).collect();
    let specs: Vec<Spec> = functions.iter().zip(&names).map(|(f, name)| through_core(name, f, fregs)).collect();
    write("many_graph_two.o", &aligned, &specs)?;
    write("noflags.o", &[("restore-flags", "off")], &[entry("regs_noflags", Regs::All)])?;
    write("jump.o", &[("direct-way", "jmp")], &[entry("ops_direct", Regs::Args)])
}

/// The trampolines that record, with the thread's words so many bytes from the thread pointer.
pub fn recorders(dir: &Path, place: i32) -> Result<(), String> {
    let backend = arch::backend("x86_64").map_err(|e| e.to_string())?;
    let facts: Vec<_> = arch::BACKENDS.iter().map(|backend| backend.facts()).collect();
    let found = profiles::BUILT_IN.iter().filter_map(|(name, _)| profiles::find(name, &facts).ok());
    let mut conventions = found.filter_map(|profile| profile.convention(backend.facts().name).ok());
    let convention = conventions.find(|c| c.thread.is_some()).ok_or("no profile has a thread pointer")?;
    let mut choices = convention.defaults();
    choices.set("x86_64", backend.facts().options, "endbr", "off").map_err(|e| e.to_string())?;
    let mut target = backend.target(convention, choices).map_err(|e| e.to_string())?;
    for (number, at) in [("RECORD_CURSOR", 0), ("RECORD_LIMIT", 8), ("RECORD_COUNT", 16)] {
        target.set_number(number, place + at).map_err(|e| e.to_string())?;
    }
    let write = |name: &str, specs: &[Spec]| -> Result<(), String> {
        let assembly = backend.assemble(specs, &target).map_err(|e| e.to_string())?;
        let object = obj::write(&assembly, &target).map_err(|e| e.to_string())?;
        std::fs::write(dir.join(name), object).map_err(|e| e.to_string())
    };
    let recorder = |events, clock, pair, id| Kind::Record(Recorder { pair, ..Recorder::new(events, clock, id) });
    fn of<'a>(name: &'a str, function: &'a str, kind: Kind) -> Spec<'a> {
        Spec { name, body: Body { function, resume: 5, ..Body::default() }, ..Spec::of(name, kind) }
    }
    let kinds = [
        ("count", Events::Count, Clock::None, false),
        ("record", Events::Both, Clock::None, false),
        ("record_pair", Events::Both, Clock::None, true),
        ("record_pair_tsc", Events::Both, Clock::Tsc, true),
        ("record_stamp8", Events::Both, Clock::Stamp8, false),
        ("record_tsc", Events::Both, Clock::Tsc, false),
    ];
    let both = kinds.iter().flat_map(|(variant, events, clock, pair)| {
        ["f", "g"].map(|of| (format!("{variant}_{of}"), format!("{of}_{variant}"), recorder(*events, *clock, *pair, 1)))
    });
    let both: Vec<_> = both.collect();
    let specs: Vec<Spec> = both.iter().map(|(name, function, kind)| of(name, function, *kind)).collect();
    write("record.o", &specs)?;
    for (variant, events, clock, pair) in
        kinds.iter().filter(|(variant, ..)| !["record_stamp8", "record_pair_tsc"].contains(variant))
    {
        let functions: Vec<String> = (0..MOST).map(|i| of_many(variant, i)).collect();
        let names: Vec<String> = functions.iter().map(|f| format!("{f}_tramp")).collect();
        let named = functions.iter().zip(&names).enumerate();
        let specs: Vec<Spec> =
            named.map(|(i, (f, name))| of(name, f, recorder(*events, *clock, *pair, i as u32))).collect();
        write(&format!("many_{variant}.o"), &specs)?;
    }
    Ok(())
}

pub fn command(dir: &Path, program: &str, args: &[&str]) -> Result<String, String> {
    let out = Command::new(program).args(args).current_dir(dir).output().map_err(|e| format!("{program}: {e}"))?;
    if !out.status.success() {
        let text = String::from_utf8_lossy(&out.stderr);
        return Err(format!("{program} {}: {}\n{text}", args.join(" "), out.status));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
