//! Findings in words: with the instruction that wrote the register last, and the command that runs the case again.

use std::collections::BTreeMap;
use std::sync::Arc;

use codegen::arch::patch::SiteState;
use codegen::words::error::Result;

use crate::engine::cpu::EXIT;
use crate::engine::disasm::Decoded;
use crate::engine::registers::Snapshot;
use crate::judge::contexts::run_once;
use crate::judge::rig::Rig;
use crate::judge::suite::Naming;
use crate::judge::tally::Tally;
use crate::judge::trace::{Culprit, Finding, Step, Value};
use crate::report::place::Place;
use crate::report::{Clause, Failure};
use crate::run::case::Case;
use crate::run::filter::Filter;
use crate::run::replay::Source;

/// Put findings into words: for the first of each kind, run it again and see who wrote the register last.
pub(crate) fn explain(rig: &mut Rig, tally: &mut Tally, filter: &Filter) -> Result<()> {
    let findings = std::mem::take(&mut tally.findings);
    for (finding, case) in findings {
        let t = finding.trampoline;
        if is_expected(rig, tally, &finding) {
            continue;
        }
        let Some(finding) = told_here(rig, finding) else { continue };
        tally.failed[t][finding.clause as usize] += 1;
        let (at, place) = (rig.symbolic(finding.pc), finding.place.to_string());
        tally.places[t].insert((finding.clause, format!("{}@{at}", finding.place.id())));
        let same = tally.failures[t].iter().filter(|f| f.clause == finding.clause);
        if same.clone().count() >= filter.kept_failures() || same.clone().any(|f| (&f.place, &f.at) == (&place, &at)) {
            continue;
        }
        let failure = failure(rig, &finding, &case, (place, at), !filter.first_failure)?;
        tally.failures[t].push(failure);
    }
    Ok(())
}

/// Count a finding that the contract expects. Returns whether it is one.
fn is_expected(rig: &Rig, tally: &mut Tally, finding: &Finding) -> bool {
    let Some(known) = rig.known(finding) else { return false };
    tally.deviated[known] += 1;
    if let Some(Naming::BySentence { id }) = rig.suite.deviations[known].names(finding, &rig.symbolic(finding.pc)) {
        tally.renamed[known].insert(id);
    }
    true
}

/// With a distance between trampolines and functions, a finding is one of that distance; none if it fails without it.
fn told_here(rig: &Rig, finding: Finding) -> Option<Finding> {
    let Some(away) = &rig.away else { return Some(finding) };
    let Finding { clause, trampoline, .. } = finding;
    let copy = if away.copied { "copy, " } else { "" };
    let place = Place::Away { copy, mib: away.bytes >> 20, clause, place: Box::new(finding.place) };
    let told = away.beside.failed[trampoline][clause as usize] > 0;
    (!told).then_some(Finding { clause: Clause::P16, place, ..finding })
}

/// One finding in words; with the instruction that wrote the register last, if that is `asked`.
fn failure(
    rig: &mut Rig,
    finding: &Finding,
    case: &Arc<Case>,
    (place, at): (String, String),
    asked: bool,
) -> Result<Failure> {
    let writer = if asked { culprit(rig, case, finding)? } else { None };
    let around = writer.unwrap_or(finding.pc);
    let shared = rig.tails.iter().position(|tail| tail.iter().any(|d| d.at == around));
    let owner = rig.ranges.iter().position(|(a, n)| (*a..a + n).contains(&around));
    let lines = match (owner, shared) {
        (None, Some(shared)) => rig.tails[shared].clone(),
        _ => rig.decode(owner.unwrap_or(finding.trampoline))?,
    };
    let owner = owner.or(shared).unwrap_or(finding.trampoline);
    let line = lines.iter().position(|d| d.at == around);
    let text = |d: &Decoded| {
        let (start, size) = rig.ranges[owner];
        let offset = d.at.wrapping_sub(start);
        let note = rig.suite.notes.get(&(rig.suite.contracts[owner].name.clone(), offset));
        let note = note.map_or(String::new(), |n| format!("  {} {n}", rig.suite.backend.facts().comment));
        let marker = if d.at == around { "=>" } else { "  " };
        let place = if offset < size { format!("{offset:4x}") } else { rig.symbolic(d.at) };
        format!("{marker} {place}  {}{note}", d.text)
    };
    let context = match line {
        Some(i) => lines[i.saturating_sub(3)..(i + 3).min(lines.len())].iter().map(text).collect(),
        None => Vec::new(),
    };
    let last_writer = match (writer, line) {
        (Some(pc), Some(i)) => format!("{}: {}", rig.symbolic(pc), lines[i].text),
        _ => String::new(),
    };
    let (expected, found) = finding.values();
    let dump = matches!(rig.suite.chosen.source, Source::Dump { .. } | Source::Kernel { .. })
        && finding.place == Place::UnmappedBranch;
    let place = if dump { format!("{place}; give the dump that has it") } else { place };
    Ok(Failure {
        clause: finding.clause,
        place,
        place_id: finding.place.id(),
        expected,
        found,
        at,
        last_writer,
        context,
        replay: rig.replay(case, finding.trampoline).to_string(),
    })
}

/// The trampoline instruction that did it, if one did.
fn culprit(rig: &mut Rig, case: &Arc<Case>, finding: &Finding) -> Result<Option<u64>> {
    let before = |rig: &Rig, end: u64| {
        let inside = |(start, size): &(u64, u64)| (start + 1..=start + size).contains(&end);
        let ends = |d: &&Decoded| d.at + u64::from(d.size) == end;
        if let Some(shared) = rig.tails.iter().flatten().find(ends) {
            return Ok(Some(shared.at));
        }
        let owner = rig.ranges.iter().position(inside);
        let lines = owner.map_or(Ok(Vec::new()), |owner| rig.decode(owner))?;
        Ok(lines.iter().find(ends).map(|d| d.at))
    };
    let held: &dyn Fn(&Snapshot) -> Value = match finding.by {
        Culprit::Unknown => return Ok(None),
        Culprit::At(pc) => return Ok(Some(pc)),
        Culprit::Before(end) => return before(rig, end),
        Culprit::Register(reg) => &move |s| s[reg].into(),
        Culprit::Vector(i) => &move |s| s.vectors[i].into(),
        Culprit::Memory(_) => {
            let again = recorded(rig, case)?.1;
            let same = |f: &&Finding| (f.clause, &f.place, f.pc) == (finding.clause, &finding.place, finding.pc);
            return Ok(again.iter().find(same).and_then(|f| if let Culprit::At(pc) = f.by { Some(pc) } else { None }));
        }
    };
    let (steps, _) = recorded(rig, case)?;
    let steps: Vec<&Step> = steps.iter().filter(|s| s.inside).collect();
    let held = |step: &Step| held(&step.registers);
    let wrote = |w: &&[&Step]| held(w[0]) != held(w[1]) && held(w[1]) == finding.found;
    let changed = steps.windows(2).rev().find(wrote).map(|w| w[0].pc);
    Ok(changed.or_else(|| steps.last().filter(|s| held(s) != finding.found).map(|s| s.pc)))
}

/// The case again: the CPU before each instruction of a trampoline, and what failed.
pub(crate) fn recorded(rig: &mut Rig, case: &Arc<Case>) -> Result<(Vec<Step>, Vec<Finding>)> {
    let kind = rig.suite.contracts[case.attach].kind;
    let only = kind.for_one_function().then_some(case.function);
    rig.aim(case.attach, case.function)?;
    rig.attach(case.attach, only)?;
    rig.prepare(case)?;
    rig.watch()?;
    let trace = rig.trace();
    (trace.recording, trace.checks.writers) = (Some(Vec::new()), Some(BTreeMap::new()));
    run_once(rig, case)?;
    if rig.uc.pc() != EXIT {
        rig.reload()?;
    }
    let trace = rig.trace();
    let (steps, findings) = (trace.recording.take().unwrap_or_default(), std::mem::take(&mut trace.checks.findings));
    trace.checks.writers = None;
    rig.patch_all(SiteState::Disabled, None)?;
    Ok((steps, findings))
}
