//! One check scenario (reset, run, compare), and the judging of somebody else's object, against the bare emulator running
//! the same instructions without hooks.

use std::process::Command;
use std::time::{Duration, Instant};

use codegen::ask::spec::{Direct, Spec};
use codegen::backend::Backend;
use emu_tests::{Filter, Foreign, Suite};

use crate::kernel::{default_target, profile};
use crate::table::{Demand, Row, print};
use crate::took::{Took, took};

/// Measure and print.
pub fn run(json: bool) -> Result<(), String> {
    let mut rows = Vec::new();
    for backend in tool::BACKENDS {
        rows.push(scenario(*backend, 1)?);
    }
    for backend in tool::BACKENDS {
        rows.push(judging(*backend)?.demanded(Demand::AtMost(30.0)));
    }
    rows.push(everything()?);
    print(&rows, json)
}

/// Only what one scenario costs, so many times as long, for a profiler.
pub fn scenarios(times: &str, json: bool) -> Result<(), String> {
    let times = times.parse().map_err(|_| format!("{times} is no number of times"))?;
    print(&tool::BACKENDS.iter().map(|b| scenario(*b, times)).collect::<Result<Vec<_>, _>>()?, json)
}

fn scenario(backend: &'static dyn Backend, times: u32) -> Result<Row, String> {
    let target = default_target(backend)?;
    let suite = tool::suite::suite(backend, &target).map_err(|e| e.to_string())?;
    let cost = emu_tests::measure(&suite, "ftrace_caller", "args6", times).map_err(|e| e.to_string())?;
    let row = Row::new(
        format!("{} bare emulator, us", backend.facts().name),
        cost.bare.as_secs_f64() * 1e6,
        "scenario with all checks, us",
        cost.scenario.as_secs_f64() * 1e6,
    );
    Ok(row.demanded(Demand::AtMost(5.0)))
}

/// All clauses of an object that others wrote, once the tool has started, beside as many bare runs of one function.
fn judging(backend: &'static dyn Backend) -> Result<Row, String> {
    let (what, suites, trampoline, function) = match kernels(backend)? {
        Some((name, suites)) => (name, suites, "ftrace_caller", "args6"),
        None => ("a trampoline of GNU as".to_owned(), assembled(backend)?, "my_tramp", "args2"),
    };
    let suite = suites.first().ok_or("a contract without trampolines")?;
    let bare = emu_tests::measure(suite, trampoline, function, 1).map_err(|e| e.to_string())?.bare;
    let (mut best, mut scenarios) = (Duration::MAX, 0);
    for _ in 0..5 {
        let clock = Instant::now();
        let report = emu_tests::check(&suites, &Filter::default(), 1, &|_, _| {}).map_err(|e| e.to_string())?;
        best = best.min(clock.elapsed());
        scenarios = report.scenarios;
    }
    Ok(Row::new(
        format!("{} bare emulator, {scenarios} runs, ms", backend.facts().name),
        bare.as_secs_f64() * 1e3 * scenarios as f64,
        format!("{what}, all clauses, ms"),
        best.as_secs_f64() * 1e3,
    ))
}

/// All architectures, trampolines and options, as `tramptool check` does it.
pub fn all() -> Result<(), String> {
    let profile = profile()?;
    let mut suites = Vec::new();
    for &backend in tool::BACKENDS {
        let convention = profile.convention(backend.facts().name).map_err(|e| e.to_string())?;
        for choices in convention.combinations(|_| true) {
            let target = backend.target(convention, choices).map_err(|e| e.to_string())?;
            let trampolines = tool::suite::trampolines_affected_by(&target, |_| false).map_err(|e| e.to_string())?;
            suites.push(tool::suite::suite_of(backend, &target, &trampolines).map_err(|e| e.to_string())?);
        }
    }
    let report = emu_tests::check(&suites, &Filter::default(), 1, &|_, _| {}).map_err(|e| e.to_string())?;
    println!("{} scenarios", report.scenarios);
    Ok(())
}

/// How long that takes with two threads.
fn everything() -> Result<Row, String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let Took { clock, cpu } = took(&own, &["check-all".to_owned()], 2)?;
    let name = format!("check of everything, 2 threads, s (CPU {:.1})", cpu / 1e3);
    Ok(Row::new(name, clock / 1e3, "demanded, s", 10.0).demanded(Demand::AtLeast(1.0)))
}

/// The kernel's own objects, where `cargo xtask kernel-objects` has built them: those of the first contract.
fn kernels(backend: &dyn Backend) -> Result<Option<(String, Vec<Suite>)>, String> {
    for (name, contract) in tool::contracts::CONTRACTS.iter().filter(|(n, _)| n.contains(backend.facts().name)) {
        if let Some(objects) = kernel_cache::objects(name).map_err(|e| e.to_string())? {
            return Ok(Some(((*name).to_owned(), foreign(name, contract, objects)?)));
        }
    }
    Ok(None)
}

/// A direct-call trampoline, assembled by GNU as.
fn assembled(backend: &dyn Backend) -> Result<Vec<Suite>, String> {
    let target = default_target(backend)?;
    let spec = Spec::direct("my_tramp", Direct { args: 2, ..Direct::default() }, "direct_func");
    let listing = backend.text(&spec, &target).map_err(|e| e.to_string())?;
    let text = templates::asm(&[listing], &target, "t").map_err(|e| e.to_string())?;
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let (source, object) = (dir.path().join("t.S"), dir.path().join("t.o"));
    std::fs::write(&source, text).map_err(|e| e.to_string())?;
    let gas = Command::new(target.facts.assembler).arg(&source).arg("-o").arg(&object).status();
    let bytes = std::fs::read(&object).map_err(|e| format!("{}: {gas:?}: {e}", target.facts.assembler))?;
    let contract = for_arch(include_str!("../../../emu-tests/tests/direct.toml"), target.facts.name);
    foreign("direct.toml", &contract, vec![("t.o".to_owned(), bytes)])
}

fn foreign(contract_name: &str, contract: &str, objects: Vec<(String, Vec<u8>)>) -> Result<Vec<Suite>, String> {
    let profile = profile()?;
    let foreign = Foreign::new(contract_name, contract, objects, profile);
    emu_tests::foreign_suites(&foreign, tool::BACKENDS).map_err(|e| e.to_string())
}

/// A contract, made one for another architecture.
fn for_arch(contract: &str, arch: &str) -> String {
    let line =
        |line: &str| if line.starts_with("arch = ") { format!("arch = \"{arch}\"\n") } else { format!("{line}\n") };
    contract.lines().map(line).collect()
}
