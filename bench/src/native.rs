//! What a traced call costs on this machine, in one process: generated trampolines beside the kernel's own
//! `ftrace_64.S` and beside the least that could be done.
//!
//! Objects come from the generator, the rest from `bench/native`, built by gcc; each layout is a program of its own, in
//! which all variants take turns.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use codegen::isa::Backend;
use codegen::obj;
use codegen::option::Choices;
use codegen::proto::Prototype;
use codegen::spec::{Around, Attach, Body, Direct, Form, Kind, Program, Programs, Regs, Spec};
use serde::Serialize;

const LAYOUTS: usize = 16;
/// Runs of each layout, of which the least disturbed counts.
const TRIES: usize = 4;
const DRIVER: &str = include_str!("../native/driver.c");
const SHAPES_S: &str = include_str!("../native/shapes.S");
const TRACED: &str = include_str!("../native/traced.h");
const SHIM: &str = include_str!("../native/kernel.h");
const XRAY: &str = include_str!("../native/xray.c");
/// The loops over one function, then over so many.
const SHAPES: [&str; 5] = ["flat", "recursion", "nested", "work", "stores"];
const MANY: [&str; 4] = ["16", "256", "4096", "16384"];
const MOST: usize = 16384;
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

/// One way to trace.
struct Variant {
    name: &'static str,
    about: &'static str,
    /// Opcode at the site and where it goes, for the leaf and for the recursion; or nothing.
    goes: Option<(u8, &'static str, &'static str)>,
    /// A call slot, and what it calls.
    slot: Option<(&'static str, &'static str)>,
    /// Handlers that count: at entry and at exit.
    runs: (u8, u8),
    needs: Needs,
    /// Measured on many functions too, each with a trampoline of its own if the site jumps.
    many: bool,
}

/// What is not everywhere.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    Kernel,
    Xray,
    Retour,
}

impl Needs {
    fn remedy(self) -> &'static str {
        match self {
            Needs::Nothing => "",
            Needs::Kernel => "`cargo xtask kernel-objects` unpacks the kernel's source",
            Needs::Xray => "apt-get install clang libclang-rt-dev",
            Needs::Retour => "cargo cannot build it: see cargo build --manifest-path bench/native/retour/Cargo.toml",
        }
    }
}

const CALL: u8 = 0xe8;
const JMP: u8 = 0xe9;

const fn variant(name: &'static str, about: &'static str) -> Variant {
    Variant { name, about, goes: None, slot: None, runs: (0, 0), needs: Needs::Nothing, many: false }
}

const fn called(name: &'static str, about: &'static str, to: &'static str) -> Variant {
    Variant { goes: Some((CALL, to, to)), ..variant(name, about) }
}

const VARIANTS: &[Variant] = &[
    Variant { many: true, ..variant("plain", "the site does nothing") },
    Variant { many: true, ..called("call_ret", "patched call -> ret", "only_return") },
    Variant { runs: (1, 0), ..called("call_only", "trampoline that only calls", "only_call") },
    Variant { runs: (1, 0), many: true, ..called("tailored_1", "direct --args 1", "direct_1") },
    Variant {
        slot: Some(("k1_ftrace_call", "on_entry")),
        runs: (1, 0),
        needs: Needs::Kernel,
        many: true,
        ..called("kernel_args", "kernel's ftrace_caller", "k1_ftrace_caller")
    },
    Variant {
        slot: Some(("args_call", "on_entry")),
        runs: (1, 0),
        many: true,
        ..called("args", "ftrace_caller", "args")
    },
    Variant {
        slot: Some(("k2_ftrace_regs_call", "on_entry")),
        runs: (1, 0),
        needs: Needs::Kernel,
        ..called("kernel_regs", "kernel's ftrace_regs_caller", "k2_ftrace_regs_caller")
    },
    Variant { slot: Some(("regs_call", "on_entry")), runs: (1, 0), ..called("regs", "ftrace_regs_caller", "regs") },
    Variant {
        slot: Some(("regs_noflags_call", "on_entry")),
        runs: (1, 0),
        ..called("regs_noflags", "ftrace_regs_caller, restore-flags=off", "regs_noflags")
    },
    Variant {
        slot: Some(("k4_ftrace_regs_call", "ops_of_kernel")),
        runs: (1, 0),
        needs: Needs::Kernel,
        ..called("kernel_ops_direct", "kernel's ftrace_regs_caller, then a direct trampoline", "k4_ftrace_regs_caller")
    },
    Variant {
        slot: Some(("ops_direct_call", "ops_of_ours")),
        runs: (1, 0),
        ..called("ops_direct", "ftrace_caller, direct-way=jmp, then a direct trampoline", "ops_direct")
    },
    Variant {
        slot: Some(("k3_ftrace_call", "graph_entry")),
        runs: (1, 1),
        needs: Needs::Kernel,
        many: true,
        ..called("kernel_graph", "kernel's ftrace_caller + return_to_handler", "k3_ftrace_caller")
    },
    Variant {
        goes: Some((JMP, "graph_f", "graph_g")),
        runs: (1, 1),
        many: true,
        ..variant("graph", "around --form fregs")
    },
    Variant {
        goes: Some((CALL, "fexit_6_12_f", "fexit_6_12_g")),
        runs: (0, 1),
        ..variant("fexit_6_12", "shape of 6.12's BPF trampoline: one fexit program, six arguments")
    },
    Variant {
        goes: Some((JMP, "fexit_f", "fexit_g")),
        runs: (0, 1),
        many: true,
        ..variant("fexit", "programs --fexit, six arguments")
    },
    Variant {
        goes: Some((CALL, "fexit_skip_f", "fexit_skip_g")),
        runs: (0, 1),
        ..variant("fexit_skip", "the same with --flags SKIP_FRAME")
    },
    Variant {
        goes: Some((CALL, "both_6_12_f", "both_6_12_g")),
        runs: (1, 1),
        ..variant("both_6_12", "shape of 6.12's BPF trampoline: an fentry and an fexit program, six arguments")
    },
    Variant {
        goes: Some((JMP, "around_frame_f", "around_frame_g")),
        runs: (1, 1),
        many: true,
        ..variant("around_frame", "around --form frame --args 6")
    },
    Variant { runs: (1, 1), needs: Needs::Xray, ..variant("xray", "LLVM XRay's sleds, and a handler that calls") },
    Variant {
        runs: (1, 0),
        needs: Needs::Retour,
        ..variant("retour", "the crate retour: a hook that calls the original")
    },
];

/// What is claimed: row, kind of loop, of which variant, against which.
const ROWS: &[(&str, &str, &str, &str)] = &[
    ("graph-flat", "flat", "graph", "kernel_graph"),
    ("graph-nested", "nested", "graph", "kernel_graph"),
    ("fexit-flat", "flat", "fexit", "fexit_6_12"),
    ("fexit-nested", "nested", "fexit", "fexit_6_12"),
    ("fexit-skip-nested", "nested", "fexit_skip", "fexit_6_12"),
    ("around-frame-flat", "flat", "around_frame", "both_6_12"),
    ("around-frame-nested", "nested", "around_frame", "both_6_12"),
    ("regs", "flat", "regs", "kernel_regs"),
    ("regs-noflags", "flat", "regs_noflags", "kernel_regs"),
    ("ops-direct", "flat", "ops_direct", "kernel_ops_direct"),
    ("args-frame", "flat", "args", "kernel_args"),
    ("tailored-1", "flat", "tailored_1", "call_only"),
];

/// A row of the report.
#[derive(Serialize)]
struct Row {
    name: String,
    /// The median; nothing where `to` says what is not installed.
    ns: Option<f64>,
    /// The least of all.
    min: Option<f64>,
    ratio: Option<f64>,
    to: String,
}

/// What is here.
struct Tools {
    kernel: Option<PathBuf>,
    clang: Option<&'static str>,
    retour: Option<PathBuf>,
}

impl Tools {
    fn find(dir: &Path) -> Tools {
        let empty = dir.join("empty.c");
        let linked = |clang: &&&str| {
            std::fs::write(&empty, "int main(void) { return 0; }\n").is_ok()
                && command(dir, clang, &["-fxray-instrument", "-no-pie", "empty.c", "-o", "empty"]).is_ok()
        };
        Tools { kernel: kernel_source(), clang: CLANGS.iter().find(linked).copied(), retour: retour(dir).ok() }
    }

    fn have(&self, needs: Needs) -> bool {
        match needs {
            Needs::Nothing => true,
            Needs::Kernel => self.kernel.is_some(),
            Needs::Xray => self.clang.is_some(),
            Needs::Retour => self.retour.is_some(),
        }
    }
}

const CLANGS: &[&str] = &["clang", "clang-19", "clang-16", "clang-14"];

/// The crate, in a library for C.
fn retour(dir: &Path) -> Result<PathBuf, String> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (manifest, target) = (home.join("native/retour/Cargo.toml"), home.join("../target/retour"));
    let [manifest, out] = [&manifest, &target].map(|path| path.to_string_lossy());
    command(
        dir,
        "cargo",
        &["build", "--quiet", "--locked", "--release", "--manifest-path", &manifest, "--target-dir", &out],
    )?;
    target.join("release/libdetour.a").canonicalize().map_err(|e| e.to_string())
}

type Run = Vec<((String, String), (f64, f64))>;
type Figures = BTreeMap<(String, String), Vec<(f64, f64)>>;

/// Build, verify, measure, print.
pub fn run(json: bool) -> Result<(), String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("native figures are of x86_64 programs; this machine runs none".into());
    }
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let tools = Tools::find(dir.path());
    let variants: Vec<&Variant> = VARIANTS.iter().filter(|v| tools.have(v.needs)).collect();
    build_parts(dir.path(), &tools, &variants)?;
    program(dir.path(), &tools, &variants, 0, &["-DCOUNT"])?;
    measure(dir.path())?;
    let mut figures = Figures::new();
    for layout in 0..LAYOUTS {
        program(dir.path(), &tools, &variants, layout, &[])?;
        // Other work on the processor slows a run down as a whole: that is kept in which plain dependent work took least.
        let runs = (0..TRIES).map(|_| measure(dir.path())).collect::<Result<Vec<_>, _>>()?;
        let undisturbed = |run: &Run| {
            let work = run.iter().find(|((name, kind), _)| name == "plain" && kind == "work");
            work.map_or(f64::INFINITY, |(_, (_, median))| *median)
        };
        let best = runs.into_iter().min_by(|a, b| undisturbed(a).total_cmp(&undisturbed(b)));
        for (key, value) in best.unwrap_or_default() {
            figures.entry(key).or_default().push(value);
        }
    }
    report(&variants, &figures, json)
}

/// Debian's source as `cargo xtask kernel-objects` unpacks it.
fn kernel_source() -> Option<PathBuf> {
    let file = kernel_cache::directory()?.join("linux-source-6.12/arch/x86/kernel/ftrace_64.S");
    file.exists().then_some(file)
}

/// Objects that are the same in every layout.
fn build_parts(dir: &Path, tools: &Tools, variants: &[&Variant]) -> Result<(), String> {
    let file = |name: &str, text: &str| std::fs::write(dir.join(name), text).map_err(|e| format!("{name}: {e}"));
    file("driver.c", DRIVER)?;
    file("traced.h", TRACED)?;
    file("shapes.S", SHAPES_S)?;
    file("kernel.h", SHIM)?;
    let mut list = String::new();
    let mut table = String::new();
    for v in variants {
        // Those of XRay are compiled by another compiler.
        let (declared, what) = match v.needs {
            Needs::Xray => (format!("long f_{0}(long), g_{0}(long);\n", v.name), "LOOPS"),
            _ => (String::new(), "VARIANT"),
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
        let _ = writeln!(table, "GOES({name}, {opcode}, {f}, {g}, {slot}, {callee}, {entries}, {exits}, {many})");
    }
    table.push_str("#endif\n");
    file("variants.h", &list)?;
    file("variants_table.h", &table)?;
    generated(dir)?;
    file("many.S", &many(variants))?;
    for part in ["shapes", "many"] {
        command(dir, "gcc", &["-c", &format!("{part}.S"), "-o", &format!("{part}.o")])?;
    }
    if let Some(clang) = tools.clang {
        file("xray.c", XRAY)?;
        let flags = ["-O2", "-fxray-instrument", "-fxray-instruction-threshold=1", "-fno-pie", "-w"];
        command(dir, clang, &[&flags[..], &["-c", "xray.c", "-o", "xray.o"]].concat())?;
    }
    let Some(kernel) = &tools.kernel else {
        return file("return.S", ".globl return_to_handler\nreturn_to_handler:\n.section .note.GNU-stack\n")
            .and_then(|()| command(dir, "gcc", &["-c", "return.S", "-o", "k3.o"]).map(drop));
    };
    for header in HEADERS {
        let path = dir.join("include").join(header);
        let parent = path.parent().unwrap_or(dir);
        std::fs::create_dir_all(parent).and_then(|()| std::fs::write(&path, "")).map_err(|e| e.to_string())?;
    }
    let source = kernel.to_string_lossy();
    command(dir, "gcc", &["-c", "-Iinclude", "-include", "kernel.h", &source, "-o", "k.o"])?;
    // A trampoline has one call slot: each variant wants a copy.
    for n in 1..=4 {
        let copy = format!("k{n}.o");
        command(dir, "objcopy", &[&format!("--prefix-symbols=k{n}_"), "k.o", &copy])?;
        let back = |symbol: &str| format!("--redefine-sym=k{n}_{symbol}={symbol}");
        let mut shared = vec![back("function_trace_op"), back("ftrace_return_to_handler")];
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
    let backend: &dyn Backend = &arch_x86_64::X86_64;
    let options = backend.facts().options;
    let write = |name: &str, settings: &[(&str, &str)], specs: &[Spec]| -> Result<(), String> {
        let mut choices = Choices::default();
        // The kernel's code has no landing pads here either.
        for (option, value) in settings.iter().chain(&[("endbr", "off")]) {
            choices.set("x86_64", options, option, value).map_err(|e| e.to_string())?;
        }
        let target = backend.target(choices);
        let assembly = backend.assemble(specs, &target).map_err(|e| e.to_string())?;
        let object = obj::write(&assembly, &target).map_err(|e| e.to_string())?;
        std::fs::write(dir.join(name), object).map_err(|e| e.to_string())
    };
    let entry = |name, regs| Spec { name, ..Spec::named(Kind::Entry(regs)) };
    let direct = |name, args| Spec::direct(name, Direct { args, ..Direct::default() }, "on_entry");
    let proto =
        Prototype::parse("long f(long a, long b, long c, long d, long e, long f)").map_err(|e| e.to_string())?;
    let shown = backend
        .place(&backend.target(Choices::default()), &proto)
        .and_then(|placement| placement.programs(&proto, backend.facts(), backend.machine(), false));
    let fexit = Programs { call_orig: true, ..shown.map_err(|e| e.to_string())? };
    let program = [Program { attach: Attach::Fexit, symbol: Cow::Borrowed("on_exit_"), cookie: 1 }];
    let fexit_skip = Kind::Programs(Programs { skip_frame: true, ..fexit });
    let fexit = Kind::Programs(fexit);
    let [frame, fregs] = [Form::Frame, Form::Fregs].map(|form| Kind::Around(Around { form, args: 6 }));
    fn on<'a>(name: &'a str, function: &'a str, kind: Kind, programs: &'a [Program]) -> Spec<'a> {
        let body = Body { function, resume: 5, exit: "on_exit_" };
        Spec { name, callee: "on_entry", body, programs, ..Spec::named(kind) }
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
    write("noflags.o", &[("restore-flags", "off")], &[entry("regs_noflags", Regs::All)])?;
    write("jump.o", &[("direct-way", "jmp")], &[entry("ops_direct", Regs::Args)])
}

/// One layout: other paddings before the functions, and between the objects.
fn program(dir: &Path, tools: &Tools, variants: &[&Variant], layout: usize, flags: &[&str]) -> Result<(), String> {
    // Any sequence that spreads: multiples of an odd number, in 16-byte steps of a page.
    let pad = |n: usize| (layout * (2 * n + 1) * 37 % 64) * 16;
    let pads = format!("\t.text\n\t.skip {}, 0x90\n\t.section .note.GNU-stack\n", pad(40));
    std::fs::write(dir.join("pads.S"), pads).map_err(|e| e.to_string())?;
    let defines: Vec<String> =
        variants.iter().enumerate().map(|(i, v)| format!("-Wa,--defsym,{}_pad={}", v.name, pad(i))).collect();
    let mut args = vec!["-O2", "-pg", "-mfentry", "-mnop-mcount", "-fno-pie", "-no-pie", "-fcf-protection=none"];
    args.extend(["-fno-toplevel-reorder", "-fno-optimize-sibling-calls", "-w", "driver.c"]);
    args.extend(flags);
    args.extend(tools.clang.map(|_| "-DXRAY"));
    args.extend(tools.retour.iter().map(|_| "-DRETOUR"));
    args.extend(defines.iter().map(String::as_str));
    args.extend(["-c", "-o", "driver.o"]);
    command(dir, "gcc", &args)?;
    command(dir, "gcc", &["-c", "pads.S", "-o", "pads.o"])?;
    let ours = ["shapes", "plain", "noflags", "jump", "many", "many_graph", "many_fexit", "many_around_frame"];
    let objects = ours.iter().chain(&["xray", "k1", "k2", "k3", "k4"]);
    let mut objects: Vec<String> = objects.map(|o| format!("{o}.o")).collect();
    objects.retain(|o| dir.join(o).exists());
    let n = objects.len();
    objects.rotate_left(layout % n);
    let mut args = vec!["-no-pie", "driver.o", "pads.o"];
    args.extend(objects.iter().map(String::as_str));
    let library = tools.retour.as_ref().map(|path| path.to_string_lossy());
    args.extend(library.as_deref());
    args.extend(["-o", "program", "-z", "noexecstack"]);
    // Its own compiler knows where XRay's runtime is, and what that needs.
    args.extend(tools.clang.map(|_| "-fxray-instrument"));
    command(dir, tools.clang.unwrap_or("gcc"), &args).map(drop)
}

/// Run it: (variant, kind of loop) to (least, median) ns a call.
fn measure(dir: &Path) -> Result<Run, String> {
    let out = command(dir, "./program", &[])?;
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, kind) = (words.next()?.to_owned(), words.next()?.to_owned());
        Some(((name, kind), (words.next()?.parse().ok()?, words.next()?.parse().ok()?)))
    };
    out.lines().map(|line| row(line).ok_or_else(|| format!("the program says '{line}'"))).collect()
}

fn command(dir: &Path, program: &str, args: &[&str]) -> Result<String, String> {
    let out = Command::new(program).args(args).current_dir(dir).output().map_err(|e| format!("{program}: {e}"))?;
    if !out.status.success() {
        let text = String::from_utf8_lossy(&out.stderr);
        return Err(format!("{program} {}: {}\n{text}", args.join(" "), out.status));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn report(variants: &[&Variant], figures: &Figures, json: bool) -> Result<(), String> {
    let all = |variant: &str, kind: &str| figures.get(&(variant.to_owned(), kind.to_owned()));
    let of = |variant: &str, kind: &str| all(variant, kind).map(|all| median(all.iter().map(|(_, m)| *m).collect()));
    let least = |variant: &str, kind: &str| {
        all(variant, kind).map(|all| all.iter().map(|(min, _)| *min).fold(f64::INFINITY, f64::min))
    };
    let mut rows = Vec::new();
    let row = |name: String, (variant, reference): (&str, &str), kind: &str, less: Option<f64>, to: String| {
        let needs = |name: &str| VARIANTS.iter().find(|v| v.name == name).map_or(Needs::Nothing, |v| v.needs);
        let missing = [variant, reference].map(needs).into_iter().find(|n| *n != Needs::Nothing);
        match (of(variant, kind), of(reference, kind), less) {
            (Some(ns), Some(reference), Some(less)) => {
                let (ns, reference) = (ns - less, reference - less);
                let min = least(variant, kind).map(|min| min - less);
                Row { name, ns: Some(ns), min, ratio: Some(ns / reference), to }
            }
            _ => {
                let remedy = missing.map_or("", Needs::remedy);
                Row { name, ns: None, min: None, ratio: None, to: format!("not installed: {remedy}") }
            }
        }
    };
    for &(name, kind, variant, to) in ROWS {
        // Below eight frames, what the frames cost is no part of it.
        let (less, what) =
            if kind == "nested" { (of("plain", kind), "nested, above plain") } else { (Some(0.0), kind) };
        rows.push(row(name.to_owned(), (variant, to), kind, less, format!("{to}, {what}")));
    }
    let claims = rows.len();
    for v in VARIANTS {
        let kinds = SHAPES.iter().chain(if v.many { &MANY[..] } else { &[] });
        for kind in kinds {
            let what = if MANY.contains(kind) { format!("{kind} functions") } else { (*kind).to_owned() };
            let (name, to) = (format!("{}, {what}", v.name), format!("call_ret, {what}"));
            rows.push(row(name, (v.name, "call_ret"), kind, Some(0.0), to));
        }
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&rows).map_err(|e| e.to_string())?);
        return Ok(());
    }
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|l| l.strip_prefix("model name")?.split_once(':')).map_or("?", |(_, m)| m.trim());
    println!(
        "ns a call, median over {LAYOUTS} layouts of the median of the least disturbed of {TRIES} runs each; {model}"
    );
    println!(
        "\n{:<18} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7}",
        "", "flat", "min", "/ c", "recurs.", "nested", "work", "stores"
    );
    for v in VARIANTS {
        if !variants.iter().any(|here| here.name == v.name) {
            println!("{:<18} not installed: {}", v.name, v.needs.remedy());
            continue;
        }
        let cell = |kind: &str, less: f64| of(v.name, kind).map_or(f64::NAN, |ns| ns - less);
        let extra = |kind: &str| cell(kind, of("plain", kind).unwrap_or(0.0));
        println!(
            "{:<18} {:>7.1} {:>7.1} {:>7.2} {:>7.1} {:>7.1} {:>7.1} {:>7.1}  {}",
            v.name,
            cell("flat", 0.0),
            least(v.name, "flat").unwrap_or(f64::NAN),
            cell("flat", 0.0) / of("call_ret", "flat").unwrap_or(f64::NAN),
            cell("recursion", 0.0),
            extra("nested"),
            extra("work"),
            extra("stores"),
            v.about
        );
    }
    println!("\nnested, work, stores: above plain. / c: against call_ret.\n");
    println!(
        "{:<18} {:>7} {:>7} {:>7} {:>7}  different functions, called in turn",
        "", MANY[0], MANY[1], MANY[2], MANY[3]
    );
    for v in variants.iter().filter(|v| v.many) {
        let [a, b, c, d] = MANY.map(|kind| of(v.name, kind).unwrap_or(f64::NAN));
        let own = if matches!(v.goes, Some((JMP, ..))) { ", a trampoline for each" } else { "" };
        println!("{:<18} {a:>7.1} {b:>7.1} {c:>7.1} {d:>7.1}  {}{own}", v.name, v.about);
    }
    println!();
    for row in rows.iter().take(claims) {
        match (row.ns, row.ratio) {
            (Some(ns), Some(ratio)) => println!("{:<19} {ns:>7.2} ns   {ratio:>5.2} of {}", row.name, row.to),
            _ => println!("{:<19} {}", row.name, row.to),
        }
    }
    Ok(())
}
