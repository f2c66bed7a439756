//! The whole matrix: every trampoline, architecture and option is run, every clause holds, and which of them were checked
//! is what tests/matrix says.

use std::collections::BTreeSet;
use std::fmt::Write;

use codegen::backend::Backend;
use common::blessed;
use emu_tests::{Clause, Filter, Report, Row, Verdict};

mod common;

/// What stands for a reason not to check a clause, by the reason's first words.
const MARKS: [(&str, &str); 14] = [
    ("-c", "runs as the callback"),
    ("-s", "no site goes to it"),
    ("-a", "runs after the function"),
    ("-r", "runs before the function"),
    ("-k", "its contract lets scratch registers go"),
    ("-u", "neither .eh_frame nor ORC describes it"),
    ("-l", "its contract asks for no landing pads"),
    ("-t", "no unpaired return"),
    ("-n", "calls nothing"),
    ("-x", "it has no landing pad for exceptions"),
    ("-d", "its callee decides nothing"),
    ("-e", "engine lacks "),
    ("-w", "not decided on the way"),
    ("-0", "nothing of this kind in the cases run"),
];

fn cell(row: &Row) -> &'static str {
    match row.verdict {
        Verdict::Pass => "ok",
        Verdict::Deviates => "dev",
        Verdict::Fail => "fail",
        Verdict::Skip => {
            let mark = MARKS.iter().find(|(_, reason)| row.reason.starts_with(reason));
            mark.unwrap_or_else(|| panic!("give the reason a mark in tests/matrix.rs: {}", row.reason)).0
        }
    }
}

/// The profile, if it is not the default one, and those options that have not their default in it.
fn set(backend: &dyn Backend, options: &str) -> String {
    let (profile, _) = tool::settings::of_options(options).unwrap();
    let convention = profile.convention(backend.facts().name).unwrap();
    let default = convention.describe(convention.defaults());
    let default: BTreeSet<&str> = default.split(' ').collect();
    let mut others: Vec<&str> = options.split(' ').filter(|o| !default.contains(o)).collect();
    if others.iter().all(|o| o.starts_with("profile=")) {
        others.push("default");
    }
    others.join(" ")
}

/// A row a trampoline and set of options, a column a clause.
fn table(backend: &dyn Backend, report: &Report) -> String {
    let arch = backend.facts().name;
    let rows: Vec<&Row> = report.results.iter().filter(|r| r.arch == arch).collect();
    let mut out = format!(
        "{arch}: the verdict of each clause on each trampoline, under each set of options; those that are not named have\n\
         their default. Written by `cargo xtask bless matrix`.\n\n\
         ok   it held, and was checked at least once\n\
         dev  it does not hold, as the contract says with a reason\n"
    );
    for (mark, _) in MARKS {
        let reasons = rows.iter().filter(|r| r.verdict == Verdict::Skip && cell(r) == mark);
        // What the engine lacks comes with the instruction that would need it.
        let reasons = reasons.map(|r| r.reason.split(", and ").next().filter(|_| mark == "-e").unwrap_or(&r.reason));
        for reason in reasons.collect::<BTreeSet<_>>() {
            writeln!(out, "{mark}   {reason}").unwrap();
        }
    }
    out.push('\n');
    for clause in Clause::ALL {
        let name = match clause {
            Clause::Wide => "wide",
            Clause::Coverage => "cov",
            clause => clause.name(),
        };
        write!(out, "{name:>5}").unwrap();
    }
    out.push('\n');
    let trampolines = rows.iter().filter(|r| r.clause == Clause::ALL[0]).map(|r| r.trampoline.as_str());
    let mut seen = BTreeSet::new();
    for trampoline in trampolines.filter(|t| seen.insert(*t)) {
        writeln!(out, "\n{trampoline}").unwrap();
        for row in rows.iter().filter(|r| r.trampoline == trampoline) {
            write!(out, "{:>5}", cell(row)).unwrap();
            if Some(&row.clause) == Clause::ALL.last() {
                writeln!(out, "   {}", set(backend, &row.options)).unwrap();
            }
        }
    }
    out
}

#[test]
fn every_clause_holds_for_every_trampoline() {
    let mut suites = Vec::new();
    for backend in tool::BACKENDS {
        for target in common::targets(*backend) {
            let trampolines = tool::suite::trampolines_affected_by(&target, |_| false).unwrap();
            suites.push(tool::suite::suite_of(*backend, &target, &trampolines).unwrap());
        }
    }
    let report = emu_tests::check(&suites, &Filter::default(), 1, &|_, _| {}).unwrap();
    eprintln!("{:?} {} scenarios", report.summary, report.scenarios);
    let failed: Vec<_> = report.results.iter().filter(|r| r.verdict == Verdict::Fail).collect();
    let mut seen = BTreeSet::new();
    for row in failed.iter().filter(|r| seen.insert((r.arch.clone(), r.trampoline.clone(), r.clause))) {
        eprintln!("{} {} [{}] {}: {}", row.arch, row.trampoline, row.options, row.clause, row.reason);
        for f in row.failures.iter().take(1) {
            eprintln!("    {}: expected {}, found {} at {}; {}", f.place, f.expected, f.found, f.at, f.last_writer);
            eprintln!("    {}", f.replay);
        }
    }
    assert!(failed.is_empty(), "{} rows fail", failed.len());
    let unfounded = report.results.iter().find(|r| r.verdict != Verdict::Skip && r.checks == 0);
    assert!(unfounded.is_none(), "a verdict that no check led to: {unfounded:#?}");
    for backend in tool::BACKENDS {
        blessed(&format!("tests/matrix/{}.expected", backend.facts().name), &table(*backend, &report));
    }
}
