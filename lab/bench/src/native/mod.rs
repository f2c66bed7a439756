//! What a traced call costs on this machine, in one process: generated trampolines beside the kernel's own
//! `ftrace_64.S` and beside the least that could be done.
//!
//! Objects come from the generator, the rest from `lab/bench/native`, built by gcc; each layout is a program of its own, in
//! which all variants take turns.

mod parts;
mod peers;
mod report;
mod variants;

use std::path::Path;

use parts::{Tools, build_parts, command, recorders};
use report::{Figures, report};
use variants::{LAYOUTS, TRIES, VARIANTS, Variant};

type Run = Vec<((String, String), (f64, f64))>;

/// Build, verify, measure, print.
pub fn run(json: bool) -> Result<(), String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("native figures are of x86_64 programs; this machine runs none".into());
    }
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let tools = Tools::find(dir.path())?;
    let variants: Vec<&Variant> = VARIANTS.iter().filter(|v| tools.have(v.needs)).collect();
    build_parts(dir.path(), &tools, &variants)?;
    // Where the linker puts the thread's words is known when there is a program.
    program(dir.path(), &tools, &variants, 0, &["-DCOUNT"])?;
    let place = command(dir.path(), "./program", &["place"])?;
    let place = place.trim().parse().map_err(|_| format!("the program says '{place}'"))?;
    recorders(dir.path(), place)?;
    peers::build(dir.path(), &tools)?;
    program(dir.path(), &tools, &variants, 0, &["-DCOUNT"])?;
    measure(dir.path())?;
    let mut figures = Figures::default();
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
            figures.add(key, value);
        }
        for (name, least, median) in peers::measure(dir.path(), &tools)? {
            figures.add((name.to_owned(), "flat".to_owned()), (least, median));
        }
    }
    report(&variants, &figures, json)
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
    let graph = ["-O2", "-fno-pie", "-fcf-protection=none", "-w", "-c", "graph.c", "-o", "graph.o"];
    command(dir, "gcc", &[&graph, flags].concat())?;
    let ours = ["shapes", "plain", "noflags", "jump", "core", "graph", "many"];
    let paired = ["many_graph", "many_graph_two", "many_fexit", "many_around_frame"];
    let recorders = ["record", "many_record", "many_record_pair", "many_record_tsc", "many_count"];
    let objects = ours.iter().chain(&paired).chain(&recorders).chain(&["xray", "k1", "k2", "k3", "k4", "k5"]);
    let mut objects: Vec<String> = objects.map(|o| format!("{o}.o")).collect();
    objects.retain(|o| dir.join(o).exists());
    let n = objects.len();
    objects.rotate_left(layout % n);
    let mut args = vec!["-no-pie", "driver.o", "pads.o"];
    args.extend(objects.iter().map(String::as_str));
    let libraries: Vec<_> = tools.retour.iter().chain([&tools.core]).map(|path| path.to_string_lossy()).collect();
    // Each has Rust's own library in it.
    args.extend(["-z", "muldefs"].iter().filter(|_| libraries.len() > 1));
    args.extend(libraries.iter().map(|path| &**path));
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
