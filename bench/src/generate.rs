//! 10,000 trampolines of about 40 instructions into one object, through spec, plan and listing, against GNU as
//! assembling the same text.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use codegen::isa::Backend;
use codegen::link::{Input, Options, link};
use codegen::obj;
use codegen::proto::Prototype;
use codegen::spec::{Choices, Kind, Regs, Spec};

use crate::table::{Row, print};

const COUNT: usize = 10_000;
const ROUNDS: usize = 7;

static BACKENDS: &[&dyn Backend] = &[&arch_x86_64::X86_64, &arch_arm64::Arm64, &arch_riscv::Riscv64];

fn names() -> Vec<String> {
    (0..COUNT).map(|i| format!("tramp_{i}")).collect()
}

fn specs(names: &[String]) -> Vec<Spec<'_>> {
    names.iter().map(|name| Spec { name, kind: Kind::Entry(Regs::Args), callee: "" }).collect()
}

fn object(backend: &dyn Backend, specs: &[Spec]) -> Result<(Vec<u8>, usize), String> {
    let target = backend.target(Choices::default());
    let assembly = backend.assemble(specs, &target).map_err(|e| e.to_string())?;
    let text = assembly.text().len();
    Ok((obj::write(&assembly, &target).map_err(|e| e.to_string())?, text))
}

/// The best of several rounds.
fn best(mut f: impl FnMut() -> Result<(), String>) -> Result<Duration, String> {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        f()?;
        best = best.min(start.elapsed());
    }
    Ok(best)
}

fn peak_kib(pid: &str) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Generate once for one architecture and print the peak memory of this process in KiB.
pub fn one(arch: &str) -> Result<(), String> {
    let backend = BACKENDS.iter().find(|b| b.facts().name == arch).ok_or("unknown architecture")?;
    let names = names();
    let (bytes, _) = object(*backend, &specs(&names))?;
    println!("{} {}", peak_kib("self").ok_or("no /proc/self/status")?, bytes.len());
    Ok(())
}

/// Run a command and watch its memory; returns time and peak KiB.
fn watched(command: &mut Command) -> Result<(Duration, f64), String> {
    let start = Instant::now();
    let mut child = command.stdout(Stdio::null()).spawn().map_err(|e| format!("{command:?}: {e}"))?;
    let (pid, mut peak) = (child.id().to_string(), 0.0_f64);
    loop {
        peak = peak.max(peak_kib(&pid).unwrap_or(0.0));
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            let time = start.elapsed();
            return if status.success() { Ok((time, peak)) } else { Err(format!("{command:?}: {status}")) };
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// A directory in memory where there is one, for both sides: no disk is measured here.
fn scratch() -> Result<tempfile::TempDir, String> {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).map_err(|e| e.to_string())
}

/// A prototype for each number: they differ in their arguments, some of which are on the stack.
fn prototype(n: usize) -> String {
    const TYPES: [&str; 6] = ["int", "u64", "struct s *", "__int128", "unsigned char", "struct p { long a; int b; }"];
    let (mut digits, mut args) = (n, Vec::new());
    // Bijective numeration, so that no two numbers have the same digits.
    while digits > 0 {
        digits -= 1;
        args.push(format!("{} a{}", TYPES[digits % TYPES.len()], args.len()));
        digits /= TYPES.len();
    }
    if n % 2 == 1 {
        args.extend((0..5).map(|i| format!("long b{i}")));
    }
    format!("void f{n}({})", if args.is_empty() { "void".to_owned() } else { args.join(", ") })
}

/// From prototypes to a linked image.
fn tailored(backend: &dyn Backend, prototypes: &[String]) -> Result<usize, String> {
    let target = backend.target(Choices::default());
    let direct = |text: &String| {
        let proto = Prototype::parse(text)?;
        let direct = backend.place(&target, &proto)?.direct(backend.facts(), backend.machine(), false);
        Ok((format!("{}_tramp", proto.name), Kind::Direct(direct)))
    };
    let all = prototypes.iter().map(direct).collect::<Result<Vec<_>, codegen::error::Error>>();
    let all = all.map_err(|e| e.to_string())?;
    let specs: Vec<Spec> = all.iter().map(|(name, kind)| Spec { name, kind: *kind, callee: "handler" }).collect();
    let (bytes, _) = object(backend, &specs)?;
    let options = Options { stub: Some(backend.machine().ret), ..Options::default() };
    let image = link(backend, &[Input { name: "tailored.o", bytes: &bytes }], &options).map_err(|e| e.to_string())?;
    Ok(image.symbols.len())
}

/// As [`one`], for so many prototypes.
pub fn tailored_one(arch: &str, count: &str) -> Result<(), String> {
    let backend = BACKENDS.iter().find(|b| b.facts().name == arch).ok_or("unknown architecture")?;
    let prototypes: Vec<String> = (0..count.parse().map_err(|_| "no number")?).map(prototype).collect();
    let symbols = tailored(*backend, &prototypes)?;
    println!("{} {symbols}", peak_kib("self").ok_or("no /proc/self/status")?);
    Ok(())
}

/// Peak memory of a process of this program, in KiB.
fn peak_of(args: &[&str]) -> Result<f64, String> {
    let exe = std::env::current_exe().map_err(|e| e.to_string())?;
    let child = Command::new(exe).args(args).output().map_err(|e| e.to_string())?;
    let peak = String::from_utf8_lossy(&child.stdout);
    peak.split_whitespace().next().and_then(|n| n.parse().ok()).ok_or("no memory figure".to_owned())
}

fn tailored_rows(backend: &dyn Backend, rows: &mut Vec<Row>) -> Result<(), String> {
    const MANY: usize = 50_000;
    const FEW: usize = MANY / 10;
    let arch = backend.facts().name;
    let prototypes: Vec<String> = (0..MANY).map(prototype).collect();
    let timed = |count: usize| {
        let time = best(|| tailored(backend, &prototypes[..count]).map(drop))?;
        Ok::<_, String>((time, peak_of(&["tailored-one", arch, &count.to_string()])?))
    };
    let ((many, many_peak), (few, few_peak)) = (timed(MANY)?, timed(FEW)?);
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    let rate = MANY as f64 / many.as_secs_f64() / 1e6;
    let name = format!("{arch} {MANY} prototypes, ms ({rate:.2} M/s)");
    rows.push(Row::new(name, ms(many), format!("10 times those for {FEW}, ms"), 10.0 * ms(few)));
    let name = format!("{arch} {MANY} prototypes, peak MiB");
    rows.push(Row::new(name, many_peak / 1024.0, format!("10 times that of {FEW}, MiB"), 10.0 * few_peak / 1024.0));
    Ok(())
}

/// Measure and print.
pub fn run(json: bool) -> Result<(), String> {
    let names = names();
    let specs = specs(&names);
    let dir = scratch()?;
    let mut rows = Vec::new();
    for backend in BACKENDS {
        let target = backend.target(Choices::default());
        let arch = target.facts.name;
        let instructions =
            COUNT as f64 * f64::from(backend.cost(&specs[0], &target).map_err(|e| e.to_string())?.instructions);

        let listings = specs.iter().map(|s| backend.text(s, &target)).collect::<Result<Vec<_>, _>>();
        let text = templates::asm(&listings.map_err(|e| e.to_string())?, &target, arch).map_err(|e| e.to_string())?;
        let (source, out) = (dir.path().join("t.S"), dir.path().join("t.o"));
        std::fs::write(&source, text).map_err(|e| e.to_string())?;
        let gas = || watched(Command::new(target.facts.assembler).arg(&source).arg("-o").arg(&out));
        let (mut gas_time, mut gas_peak) = (Duration::MAX, 0.0_f64);
        for _ in 0..3 {
            let (time, peak) = gas()?;
            (gas_time, gas_peak) = (gas_time.min(time), gas_peak.max(peak));
        }

        let mut bytes = Vec::new();
        let mut text_bytes = 0;
        let ours = best(|| {
            (bytes, text_bytes) = object(*backend, &specs)?;
            std::fs::write(&out, &bytes).map_err(|e| e.to_string())
        })?;
        let mut copy = vec![0_u8; bytes.len()];
        let floor = best(|| {
            copy.copy_from_slice(std::hint::black_box(&bytes));
            std::hint::black_box(&copy);
            Ok(())
        })?;
        let peak = peak_of(&["generate-one", arch])?;

        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        rows.push(Row::new(format!("{arch} generate, ms"), ms(ours), "GNU as on the same text, ms", ms(gas_time)));
        rows.push(Row::new(format!("{arch} generate, peak MiB"), peak / 1024.0, "GNU as, peak MiB", gas_peak / 1024.0));
        let rate = instructions / ours.as_secs_f64() / 1e6;
        rows.push(Row::new(
            format!("{arch} ms for {instructions:.0} instructions ({rate:.1} M/s)"),
            ms(ours),
            format!("memcpy of the same {} bytes, ms", bytes.len()),
            ms(floor),
        ));
        tailored_rows(*backend, &mut rows)?;
    }
    print(&rows, json)
}
