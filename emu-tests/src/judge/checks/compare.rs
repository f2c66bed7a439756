//! What must agree: each function unpatched, enabled and disabled again.

use std::sync::Arc;

use codegen::words::abi::{Loc, RegSet};
use codegen::words::error::{Error, Result};

use crate::engine::cpu::EXIT;
use crate::engine::registers::Snapshot;
use crate::judge::contexts::run_once;
use crate::judge::rig::Rig;
use crate::judge::tally::Tally;
use crate::judge::trace::{At, Culprit, Finding};
use crate::report::Clause;
use crate::report::place::Place;
use crate::run::case::{Case, Initial, Outcome, RESULT, Unpatched};

/// The same function with the arguments that the callback will substitute, or the function that it redirects to.
pub(crate) fn reference(rig: &mut Rig, case: &Arc<Case>) -> Result<Outcome> {
    outcome(rig, case, unpatched)
}

/// Runs the function with this name, which begins here, from these registers.
type Runs = fn(&mut Rig, &Arc<Case>, (&str, u64), &Snapshot) -> Result<Outcome>;

fn outcome(rig: &mut Rig, case: &Arc<Case>, runs: Runs) -> Result<Outcome> {
    let mut initial = case.initial.registers.clone();
    let f = &rig.functions[case.function];
    if case.situation.args() {
        for (reg, value) in case.rewritten(&rig.suite.contracts[case.attach], rig.registers.abi) {
            initial.gpr[reg.0 as usize] = value;
        }
    }
    let name = match (&f.livepatch, case.situation.redirects()) {
        (Some(other), true) => other.clone(),
        _ => f.name.clone(),
    };
    let start = rig.function(&name);
    let is_function = rig.suite.contracts[case.attach].kind.is_function();
    let mut outcome = if case.situation.skips() || is_function {
        // Nothing runs: the call is over.
        let sp = &mut initial.gpr[rig.registers.abi.sp.0 as usize];
        *sp = sp.wrapping_add(rig.registers.abi.return_bytes());
        Outcome { registers: initial, above: case.initial.above.clone(), result: [0; RESULT] }
    } else {
        runs(rig, case, (&name, start), &initial)?
    };
    for &(reg, value) in &case.new_results {
        outcome.registers.gpr[reg.0 as usize] = value;
    }
    Ok(outcome)
}

/// What a function does that nothing was ever attached to: most situations and trampolines ask for what another has asked for.
fn unpatched(rig: &mut Rig, case: &Arc<Case>, (name, start): (&str, u64), registers: &Snapshot) -> Result<Outcome> {
    let Initial { above, thread, .. } = &case.initial;
    let same =
        |u: &&Unpatched| u.start == start && u.registers == *registers && u.above == *above && u.thread == *thread;
    if let Some(known) = rig.unpatched.iter().rev().find(same) {
        return Ok(known.left.clone());
    }
    let (above, thread) = (above.clone(), *thread);
    let left = run_unpatched(rig, case, (name, start), registers)?;
    rig.unpatched.push(Unpatched { start, registers: registers.clone(), above, thread, left: left.clone() });
    Ok(left)
}

/// What it does now.
fn run_unpatched(rig: &mut Rig, case: &Arc<Case>, (name, start): (&str, u64), registers: &Snapshot) -> Result<Outcome> {
    let left = rig.run(case, start, registers, false);
    match rig.trace().checks.findings.pop() {
        None => Ok(left),
        Some(finding) => Err(Error::new(format!(
            "{}: {name} does not run unpatched: {} at {:#x}",
            rig.fixture.variant, finding.place, finding.pc
        ))),
    }
}

/// Run with the site enabled and compare. Returns whether the run came back.
pub(crate) fn enabled(rig: &mut Rig, case: &Arc<Case>, expected: &Outcome, tally: &mut Tally) -> Result<bool> {
    rig.prepare(case)?;
    let start = rig.entry(case);
    let outcome = rig.run(case, start, &case.initial.registers, true);
    let trace = rig.trace();
    let seen = trace.state.sites_seen;
    let entered = trace.state.entered;
    let mut findings = std::mem::take(&mut trace.checks.findings);
    // What was lost on the way shows in the results too: told once is enough.
    let harmless = |f: &Finding| matches!(f.clause, Clause::P2 | Clause::P6 | Clause::P8 | Clause::P10);
    if findings.iter().all(|f| harmless(f) && rig.known(f).is_some()) {
        agree(rig, case, expected, &outcome, entered, &mut findings);
    }
    if seen == 0 {
        let at = At { clause: Clause::P9, trampoline: case.attach, pc: start };
        findings.push(Finding::new(at, Place::SiteUnreached, 1, 0));
    }
    tally.findings.extend(findings.into_iter().map(|f| (f, case.clone())));
    rig.room = outcome.above;
    Ok(rig.came_back)
}

/// Run a trampoline as it is called in the middle of a function: there is nothing to patch, and nothing to compare
/// with but what was there before.
pub(crate) fn sled(rig: &mut Rig, case: &Arc<Case>, tally: &mut Tally) -> Result<()> {
    rig.prepare(case)?;
    run_once(rig, case)?;
    let findings = std::mem::take(&mut rig.trace().checks.findings);
    tally.findings.extend(findings.into_iter().map(|f| (f, case.clone())));
    if !rig.came_back {
        rig.reload()?;
    }
    Ok(())
}

/// The numbers of the bits that are set.
fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let next = (set != 0).then_some(set.trailing_zeros() as usize);
        set &= set.wrapping_sub(1);
        next
    })
}

/// Enabled against unpatched: everything but what a contract declares clobbered.
pub(crate) fn agree(
    rig: &Rig,
    case: &Case,
    expected: &Outcome,
    found: &Outcome,
    entered: u64,
    findings: &mut Vec<Finding>,
) {
    let (abi, site) = (rig.registers.abi, &rig.suite.convention.site);
    let registers = &rig.expected(&expected.registers);
    let mut free = RegSet::EMPTY;
    for contract in bits(entered).filter_map(|i| rig.suite.contracts.get(i)) {
        free = free.union(contract.clobbered);
        if case.situation.sends() {
            free = free.union(contract.direct_lost);
        }
        if contract.kind.calls_body() || contract.kind.is_function() {
            // The exit handler was the last to run.
            free = free.union(abi.caller_saved);
        }
    }
    for loc in [site.pc, site.parent_ip] {
        if let Loc::Reg(reg) = loc {
            free = free.union(RegSet::of(&[reg]));
        }
    }
    // A result register that the function did not write carries no result.
    let mut results = RegSet::of(abi.rets).minus(case.initial.registers.same(registers));
    if let Some(programs) = rig.suite.contracts[case.attach].kind.programs().filter(|p| p.call_orig || p.indirect) {
        results = results.intersection(programs.result.regs);
    }
    let always = results.union(rig.suite.contracts[case.attach].c_keeps());
    let free = free.minus(always).union(site.lost);
    let at = |clause| At { clause, trampoline: case.attach, pc: EXIT };
    let compared = always.union(abi.caller_saved).minus(free).union(RegSet::of(&[abi.sp]));
    for reg in compared.minus(registers.same(&found.registers)).iter() {
        let (want, have) = (registers[reg], found.registers[reg]);
        let clause = if abi.rets.contains(&reg) { Clause::P11 } else { Clause::P5 };
        let finding = Finding::new(at(clause), Place::After { name: abi.name(reg) }, want, have);
        findings.push(Finding { by: Culprit::Register(reg), ..finding });
    }
    let stack: fn(usize) -> Place = |offset| Place::AfterStack { offset };
    let result: fn(usize) -> Place = |offset| Place::AfterResult { offset };
    let pairs = [(&expected.above[..], &found.above[..], stack), (&expected.result[..], &found.result[..], result)];
    for (want, have, place) in pairs {
        if want != have
            && let Some(i) = want.iter().zip(have.iter()).position(|(a, b)| a != b)
        {
            findings.push(Finding::new(at(Clause::P7), place(i), u64::from(want[i]), u64::from(have[i])));
        }
    }
}

pub(crate) fn disabled(rig: &mut Rig, case: &Arc<Case>, expected: &Outcome, tally: &mut Tally) {
    let outcome = outcome(rig, case, run_unpatched);
    if outcome.as_ref().ok() != Some(expected) {
        let result = |o: &Outcome| o.registers.gpr[rig.registers.abi.rets[0].0 as usize];
        let at = At { clause: Clause::P9, trampoline: case.attach, pc: EXIT };
        let found = outcome.as_ref().map_or(0, result);
        let finding = Finding::new(at, Place::AfterDisabled, result(expected), found);
        tally.findings.push((finding, case.clone()));
    }
}
