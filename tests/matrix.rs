//! The whole matrix: every trampoline, architecture and option is run, and every clause holds.

use codegen::option::Choices;
use emu_tests::{Filter, Verdict};

#[test]
fn every_clause_holds_for_every_trampoline() {
    let mut suites = Vec::new();
    for backend in tramptool::BACKENDS {
        for choices in Choices::all(backend.facts().options, |_| true) {
            let target = backend.target(choices);
            let trampolines = tramptool::suite::trampolines_affected_by(&target, |_| false).unwrap();
            suites.push(tramptool::suite::suite_of(*backend, &target, &trampolines).unwrap());
        }
    }
    let report = emu_tests::check(&suites, &Filter::default(), 1, &|_, _| {}).unwrap();
    eprintln!("{:?} {} scenarios", report.summary, report.scenarios);
    let failed: Vec<_> = report.results.iter().filter(|r| r.verdict == Verdict::Fail).collect();
    let mut seen = std::collections::BTreeSet::new();
    for row in failed.iter().filter(|r| seen.insert((r.arch.clone(), r.trampoline.clone(), r.clause))) {
        eprintln!("{} {} [{}] {}: {}", row.arch, row.trampoline, row.options, row.clause, row.reason);
        for f in row.failures.iter().take(1) {
            eprintln!("    {}: expected {}, found {} at {}; {}", f.place, f.expected, f.found, f.at, f.last_writer);
            eprintln!("    {}", f.replay);
        }
    }
    assert!(failed.is_empty(), "{} rows fail", failed.len());
    assert!(report.summary.pass > 0);
}
