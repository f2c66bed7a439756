//! The verdicts that follow from what was counted.

use std::collections::{BTreeMap, BTreeSet};

use codegen::contract::Contract;
use codegen::spec::{Kind, Programs};

use crate::filter::Filter;
use crate::report::{Clause, RegisterFate, Report, Row, Survival, Verdict};
use crate::suite::Suite;
use crate::tally::Tally;

pub(crate) fn report(suites: &[Suite], parts: &[Tally], filter: &Filter, seed: u64) -> Report {
    let mut results = Vec::new();
    // Suites need not have the same trampolines.
    let mut registers: Vec<Survival> = Vec::new();
    for (suite, tally) in suites.iter().zip(parts) {
        for (i, contract) in suite.contracts.iter().enumerate() {
            let shown = filter.trampolines.is_empty() || filter.trampolines.contains(&contract.name);
            if !shown {
                continue;
            }
            for clause in Clause::ALL {
                results.push(row(suite, tally, contract, i, clause, filter));
            }
            let abi = &suite.backend.facts().abi;
            let arch = suite.backend.facts().name;
            let known = registers.iter().position(|s| s.arch == arch && s.trampoline == contract.name);
            if known.is_none() {
                let (arch, trampoline) = (arch.to_owned(), contract.name.clone());
                registers.push(Survival { arch, trampoline, registers: BTreeMap::new() });
            }
            let last = registers.len() - 1;
            let survival = &mut registers[known.unwrap_or(last)];
            for reg in abi.callee_saved.union(abi.caller_saved).union(abi.platform).iter() {
                let (kept, changed) = tally.fates[i][reg.0 as usize];
                let fate: &mut RegisterFate = survival.registers.entry(abi.name(reg).to_owned()).or_default();
                fate.kept += kept;
                fate.changed += changed;
                fate.promised |= contract.kept.contains(reg);
            }
        }
    }
    let mut report = Report {
        scenarios: parts.iter().map(|p| p.scenarios).sum(),
        stubs: parts.iter().flat_map(|p| p.stubs.iter().cloned()).collect::<BTreeSet<_>>().into_iter().collect(),
        warnings: {
            let all = suites.iter().zip(parts).flat_map(|(suite, tally)| warnings(suite, tally));
            all.collect::<BTreeSet<_>>().into_iter().collect()
        },
        alternatives: suites.iter().flat_map(|s| s.alternatives.iter().cloned()).collect(),
        results,
        registers,
        ..Report::empty(seed)
    };
    report.recount();
    report
}

/// Deviations that name a place by its sentence, which the next release does not understand.
fn warnings(suite: &Suite, tally: &Tally) -> Vec<String> {
    let renamed = suite.deviations.iter().zip(&tally.renamed).filter(|(_, ids)| !ids.is_empty());
    let told = renamed.map(|(deviation, ids)| {
        let ids = ids.iter().map(|id| format!("\"{id}\"")).collect::<Vec<_>>().join(", ");
        let (of, clause, place) = (&suite.options, deviation.clause, &deviation.place);
        format!("{of}: {clause}: place = \"{place}\" is a sentence, which the next release will not know; write {ids}")
    });
    told.collect()
}

fn row(suite: &Suite, tally: &Tally, contract: &Contract, i: usize, clause: Clause, filter: &Filter) -> Row {
    let c = clause as usize;
    let failed = tally.failed[i][c];
    let checks = match clause {
        // They look at each instruction.
        Clause::Wide | Clause::Coverage => tally.instructions[i] as u64,
        _ => tally.checks[i][c],
    };
    let row = |verdict, reason: String| Row {
        arch: suite.backend.facts().name.to_owned(),
        trampoline: contract.name.clone(),
        options: suite.options.clone(),
        clause,
        verdict,
        reason,
        checks,
        failures: tally.failures[i]
            .iter()
            .filter(|f| f.clause == clause)
            .take(filter.kept_failures())
            .cloned()
            .collect(),
        missed: tally.missed[i].clone().filter(|_| clause == Clause::Coverage).unwrap_or_default(),
    };
    if clause == Clause::Wide {
        let lacks = suite.backend.machine().wide.0;
        return match (&tally.wide[i], tally.instructions[i]) {
            (_, 0) => row(Verdict::Skip, "its instructions were not looked at".into()),
            (Some(at), _) => row(Verdict::Skip, format!("engine lacks {lacks}, and {at} may change them")),
            (None, n) => row(Verdict::Pass, format!("engine lacks {lacks}, but none of {n} instructions changes them")),
        };
    }
    if clause == Clause::Coverage {
        let total = tally.instructions[i];
        return match &tally.missed[i] {
            _ if !filter.judges(clause) => row(Verdict::Skip, "ended with the first failure".into()),
            None => row(Verdict::Fail, "never executed".into()),
            Some(missed) if missed.is_empty() => row(Verdict::Pass, format!("{total} of {total} instructions")),
            Some(_) if filter.function.is_some() || filter.situation.is_some() || filter.concerning.is_some() => {
                row(Verdict::Skip, "not all cases were run".into())
            }
            Some(missed) => {
                let at: Vec<String> = missed.iter().map(|o| format!("{o:#x}")).collect();
                let n = total - missed.len();
                row(Verdict::Fail, format!("{n} of {total} instructions; not executed: {}", at.join(" ")))
            }
        };
    }
    if failed > 0 {
        return row(Verdict::Fail, format!("{failed} failures"));
    }
    let expected =
        suite.deviations.iter().zip(&tally.deviated).filter(|(d, _)| (d.trampoline, d.clause) == (i, clause));
    let (found, lost): (Vec<_>, Vec<_>) = expected.partition(|(_, n)| **n > 0);
    let selected = [&filter.function, &filter.situation, &filter.fixture, &filter.concerning];
    let ended = filter.first_failure && tally.fails();
    let complete = selected.iter().all(|s| s.is_none()) && filter.judges(clause) && !ended;
    if let Some((d, _)) = lost.first().filter(|_| complete) {
        return row(Verdict::Fail, format!("{} was expected to deviate and does not: {}", d.place, d.reason));
    }
    if !found.is_empty() {
        // Places with the same reason are told together.
        let mut reasons: Vec<(String, &str)> = Vec::new();
        for (d, _) in found {
            match reasons.last_mut().filter(|(_, reason)| *reason == d.reason) {
                Some((places, _)) => *places = format!("{places}, {}", d.place),
                None => reasons.push((d.place.clone(), &d.reason)),
            }
        }
        let reasons = reasons.iter().map(|(places, reason)| format!("{places}: {reason}"));
        let reasons: Vec<String> = reasons.collect();
        return row(Verdict::Deviates, reasons.join("; "));
    }
    if clause == Clause::P2 && tally.vectors_lost[i] > 0 && checks > 0 {
        return row(
            Verdict::Deviates,
            "holds for handlers that use general registers only, as the contract says; others lose vector registers"
                .into(),
        );
    }
    if clause == Clause::P3 && tally.vectors_lost[i] > 0 && contract.kind == Kind::Return {
        return row(
            Verdict::Deviates,
            "integer results hold; vector results hold for handlers that use general registers only".into(),
        );
    }
    if checks == 0 {
        return row(Verdict::Skip, not_applicable(contract, clause).into());
    }
    row(Verdict::Pass, String::new())
}

fn not_applicable(contract: &Contract, clause: Clause) -> &'static str {
    match (contract.kind, clause) {
        (Kind::Stub | Kind::StubGraph, _) => "runs as the callback of the entry trampolines, and is judged with them",
        (Kind::Return, Clause::P17 | Clause::P18) => "no site goes to it",
        (Kind::Return, Clause::P1 | Clause::P2) => "runs after the function: no arguments are live",
        (
            Kind::Entry(_) | Kind::Direct(_) | Kind::StubDirect | Kind::Programs(Programs { call_orig: false, .. }),
            Clause::P3,
        ) => "runs before the function: no results yet",
        (Kind::StubDirect, Clause::P8 | Clause::P10 | Clause::P11) => "calls nothing",
        (Kind::Direct(_), Clause::P11) => "its callee decides nothing",
        (_, clause) => clause.unchecked(),
    }
}
