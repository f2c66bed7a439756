//! 10,000 trampolines of about 40 instructions into one object, through spec, plan and listing, against GNU as
//! assembling the same text.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use codegen::isa::Backend;
use codegen::obj;
use codegen::spec::{Choices, Kind, Regs, Spec};

use crate::table::{Row, print};

const COUNT: usize = 10_000;
const ROUNDS: usize = 7;

static BACKENDS: &[&dyn Backend] = &[&arch_x86_64::X86_64, &arch_arm64::Arm64, &arch_riscv::Riscv64];

fn names() -> Vec<String> {
    (0..COUNT).map(|i| format!("tramp_{i}")).collect()
}

fn specs(names: &[String]) -> Vec<Spec<'_>> {
    names.iter().map(|name| Spec { name, kind: Kind::Entry(Regs::Args), callee: "", export: "" }).collect()
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
        let exe = std::env::current_exe().map_err(|e| e.to_string())?;
        let child = Command::new(exe).args(["generate-one", arch]).output().map_err(|e| e.to_string())?;
        let peak = String::from_utf8_lossy(&child.stdout);
        let peak: f64 = peak.split_whitespace().next().and_then(|n| n.parse().ok()).ok_or("no memory figure")?;

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
    }
    print(&rows, json)
}
