//! What a traced call costs on this machine, in one process: generated trampolines beside the kernel's own
//! `ftrace_64.S` and beside the least that could be done.
//!
//! Objects come from the generator, the rest from `bench/native`, built by gcc; each layout is a program of its own, in
//! which all variants take turns.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use codegen::isa::Backend;
use codegen::obj;
use codegen::spec::{Around, Body, Choices, Direct, Form, Kind, Regs, Spec};
use serde::Serialize;

const LAYOUTS: usize = 16;
/// Runs of each layout, of which the least disturbed counts.
const TRIES: usize = 4;
const DRIVER: &str = include_str!("../native/driver.c");
const SHAPES: &str = include_str!("../native/shapes.S");
const SHIM: &str = include_str!("../native/kernel.h");
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
    /// Needs the kernel's source.
    kernel: bool,
}

const CALL: u8 = 0xe8;
const JMP: u8 = 0xe9;

const fn variant(name: &'static str, about: &'static str) -> Variant {
    Variant { name, about, goes: None, slot: None, runs: (0, 0), kernel: false }
}

const fn called(name: &'static str, about: &'static str, to: &'static str) -> Variant {
    Variant { goes: Some((CALL, to, to)), ..variant(name, about) }
}

const VARIANTS: &[Variant] = &[
    variant("plain", "the site does nothing"),
    called("call_ret", "patched call -> ret", "only_return"),
    Variant { runs: (1, 0), ..called("call_only", "trampoline that only calls", "only_call") },
    Variant { runs: (1, 0), ..called("tailored_1", "direct --args 1", "direct_1") },
    Variant {
        slot: Some(("k1_ftrace_call", "on_entry")),
        runs: (1, 0),
        kernel: true,
        ..called("kernel_args", "kernel's ftrace_caller", "k1_ftrace_caller")
    },
    Variant { slot: Some(("args_call", "on_entry")), runs: (1, 0), ..called("args", "ftrace_caller", "args") },
    Variant {
        slot: Some(("k2_ftrace_regs_call", "on_entry")),
        runs: (1, 0),
        kernel: true,
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
        kernel: true,
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
        kernel: true,
        ..called("kernel_graph", "kernel's ftrace_caller + return_to_handler", "k3_ftrace_caller")
    },
    Variant { goes: Some((JMP, "graph_f", "graph_g")), runs: (1, 1), ..variant("graph", "around --form fregs") },
    Variant {
        goes: Some((CALL, "fexit_6_12_f", "fexit_6_12_g")),
        runs: (1, 1),
        ..variant("fexit_6_12", "shape of 6.12's BPF fexit, six arguments")
    },
    Variant {
        goes: Some((JMP, "fexit_f", "fexit_g")),
        runs: (1, 1),
        ..variant("fexit", "around --form frame --args 6")
    },
];

/// What is claimed: row, kind of loop, of which variant, against which.
const ROWS: &[(&str, &str, &str, &str)] = &[
    ("graph-flat", "flat", "graph", "kernel_graph"),
    ("graph-nested", "nested", "graph", "kernel_graph"),
    ("fexit-flat", "flat", "fexit", "fexit_6_12"),
    ("fexit-nested", "nested", "fexit", "fexit_6_12"),
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
    ns: f64,
    ratio: f64,
    to: String,
}

type Run = Vec<((String, String), (f64, f64))>;
type Figures = BTreeMap<(String, String), Vec<(f64, f64)>>;

/// Build, verify, measure, print.
pub fn run(json: bool) -> Result<(), String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("native figures are of x86_64 programs; this machine runs none".into());
    }
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let kernel = kernel_source();
    let variants: Vec<&Variant> = VARIANTS.iter().filter(|v| kernel.is_some() || !v.kernel).collect();
    build_parts(dir.path(), kernel.as_deref(), &variants)?;
    program(dir.path(), &variants, 0, &["-DCOUNT"])?;
    measure(dir.path())?;
    let mut figures = Figures::new();
    for layout in 0..LAYOUTS {
        program(dir.path(), &variants, layout, &[])?;
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
    report(&variants, &figures, kernel.is_some(), json)
}

/// Debian's source as `cargo xtask kernel-objects` unpacks it.
fn kernel_source() -> Option<PathBuf> {
    let cache = std::env::var_os("TRAMPTOOL_KERNEL_CACHE").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/tramptool/kernel-objects"));
    let file = cache.or_else(home)?.join("linux-source-6.12/arch/x86/kernel/ftrace_64.S");
    file.exists().then_some(file)
}

/// Objects that are the same in every layout.
fn build_parts(dir: &Path, kernel: Option<&Path>, variants: &[&Variant]) -> Result<(), String> {
    let file = |name: &str, text: &str| std::fs::write(dir.join(name), text).map_err(|e| format!("{name}: {e}"));
    file("driver.c", DRIVER)?;
    file("shapes.S", SHAPES)?;
    file("kernel.h", SHIM)?;
    let mut list = String::new();
    let mut table = String::new();
    for v in variants {
        let _ = writeln!(list, "VARIANT({})", v.name);
    }
    table.push_str("#ifdef DECLARE\n");
    for v in variants {
        for symbol in v.goes.iter().flat_map(|(_, f, g)| [f, g]).chain(v.slot.iter().map(|(slot, _)| slot)) {
            let _ = writeln!(table, "extern char {symbol}[];");
        }
    }
    table.push_str("#else\n");
    for v in variants {
        let (opcode, f, g) = v.goes.unwrap_or((0, "0", "0"));
        let (slot, callee) = v.slot.unwrap_or(("0", "0"));
        let _ = writeln!(table, "GOES({}, {opcode}, {f}, {g}, {slot}, {callee}, {}, {})", v.name, v.runs.0, v.runs.1);
    }
    table.push_str("#endif\n");
    file("variants.h", &list)?;
    file("variants_table.h", &table)?;
    generated(dir)?;
    command(dir, "gcc", &["-c", "shapes.S", "-o", "shapes.o"])?;
    let Some(kernel) = kernel else {
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
    let around = |name, function, form| {
        let body = Body { function, resume: 5, exit: "on_exit_" };
        Spec { name, callee: "on_entry", body, ..Spec::named(Kind::Around(Around { form, args: 6 })) }
    };
    write(
        "plain.o",
        &[],
        &[
            entry("args", Regs::Args),
            entry("regs", Regs::All),
            direct("direct_1", 1),
            direct("direct_of_kernel", 1),
            direct("direct_of_ours", 1),
            around("graph_f", "f_graph", Form::Fregs),
            around("graph_g", "g_graph", Form::Fregs),
            around("fexit_f", "f_fexit", Form::Frame),
            around("fexit_g", "g_fexit", Form::Frame),
        ],
    )?;
    write("noflags.o", &[("restore-flags", "off")], &[entry("regs_noflags", Regs::All)])?;
    write("jump.o", &[("direct-way", "jmp")], &[entry("ops_direct", Regs::Args)])
}

/// One layout: other paddings before the functions, and between the objects.
fn program(dir: &Path, variants: &[&Variant], layout: usize, flags: &[&str]) -> Result<(), String> {
    // Any sequence that spreads: multiples of an odd number, in 16-byte steps of a page.
    let pad = |n: usize| (layout * (2 * n + 1) * 37 % 64) * 16;
    let pads = format!("\t.text\n\t.skip {}, 0x90\n\t.section .note.GNU-stack\n", pad(40));
    std::fs::write(dir.join("pads.S"), pads).map_err(|e| e.to_string())?;
    let defines: Vec<String> =
        variants.iter().enumerate().map(|(i, v)| format!("-Wa,--defsym,{}_pad={}", v.name, pad(i))).collect();
    let mut args = vec!["-O2", "-pg", "-mfentry", "-mnop-mcount", "-fno-pie", "-no-pie", "-fcf-protection=none"];
    args.extend(["-fno-toplevel-reorder", "-fno-optimize-sibling-calls", "-Wall", "-w", "driver.c"]);
    args.extend(flags);
    args.extend(defines.iter().map(String::as_str));
    args.extend(["-c", "-o", "driver.o"]);
    command(dir, "gcc", &args)?;
    command(dir, "gcc", &["-c", "pads.S", "-o", "pads.o"])?;
    let mut objects: Vec<String> =
        ["shapes", "plain", "noflags", "jump", "k1", "k2", "k3", "k4"].map(|o| format!("{o}.o")).into();
    objects.retain(|o| dir.join(o).exists());
    let n = objects.len();
    objects.rotate_left(layout % n);
    let mut args = vec!["-no-pie", "driver.o", "pads.o"];
    args.extend(objects.iter().map(String::as_str));
    args.extend(["-o", "program", "-z", "noexecstack"]);
    command(dir, "gcc", &args).map(drop)
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

fn report(variants: &[&Variant], figures: &Figures, kernel: bool, json: bool) -> Result<(), String> {
    let of = |variant: &str, kind: &str| {
        figures
            .get(&(variant.to_owned(), kind.to_owned()))
            .map(|all| median(all.iter().map(|(_, median)| *median).collect()))
    };
    let mut rows = Vec::new();
    let mut claims = 0;
    for &(name, kind, variant, to) in ROWS {
        // Below eight frames, what the frames cost is no part of it.
        let (less, what) =
            if kind == "nested" { (of("plain", kind), "nested, above plain") } else { (Some(0.0), kind) };
        if let (Some(ns), Some(reference), Some(less)) = (of(variant, kind), of(to, kind), less) {
            let (ns, reference) = (ns - less, reference - less);
            rows.push(Row { name: name.to_owned(), ns, ratio: ns / reference, to: format!("{to}, {what}") });
            claims += 1;
        }
    }
    for v in variants {
        for kind in ["flat", "recursion", "nested", "work", "stores"] {
            if let (Some(ns), Some(reference)) = (of(v.name, kind), of("call_ret", kind)) {
                rows.push(Row {
                    name: format!("{}, {kind}", v.name),
                    ns,
                    ratio: ns / reference,
                    to: format!("call_ret, {kind}"),
                });
            }
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
    if !kernel {
        println!("without the kernel's own code: `cargo xtask kernel-objects` unpacks its source");
    }
    println!(
        "\n{:<18} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7}",
        "", "flat", "min", "/ c", "recurs.", "nested", "work", "stores"
    );
    for v in variants {
        let cell = |kind: &str, less: f64| of(v.name, kind).map_or(f64::NAN, |ns| ns - less);
        let least = figures.get(&(v.name.to_owned(), "flat".to_owned()));
        let least = least.map_or(f64::NAN, |all| all.iter().map(|(min, _)| *min).fold(f64::INFINITY, f64::min));
        let extra = |kind: &str| cell(kind, of("plain", kind).unwrap_or(0.0));
        println!(
            "{:<18} {:>7.1} {:>7.1} {:>7.2} {:>7.1} {:>7.1} {:>7.1} {:>7.1}  {}",
            v.name,
            cell("flat", 0.0),
            least,
            cell("flat", 0.0) / of("call_ret", "flat").unwrap_or(f64::NAN),
            cell("recursion", 0.0),
            extra("nested"),
            extra("work"),
            extra("stores"),
            v.about
        );
    }
    println!("\nnested, work, stores: above plain. / c: against call_ret.\n");
    for row in rows.iter().take(claims) {
        println!("{:<14} {:>7.2} ns   {:>5.2} of {}", row.name, row.ns, row.ratio, row.to);
    }
    Ok(())
}
