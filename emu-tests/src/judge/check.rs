//! Runs the cases of all suites, on each fixture that fits, near and far.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use codegen::arch::patch::SiteState;
use codegen::contract::Contract;
use codegen::words::error::{Error, Result};
use link::{PAGE, STUBS};
use rayon::prelude::*;

use crate::engine::emulator::Emulator;
use crate::judge::cases::cases;
use crate::judge::checks::compare::{disabled, enabled, reference, sled};
use crate::judge::checks::displaced::judge_copies;
use crate::judge::checks::entered::judge_entered;
use crate::judge::checks::exceptions::judge_thrown;
use crate::judge::checks::guard::judge_guards;
use crate::judge::checks::marks::judge_marks;
use crate::judge::checks::reach::{edge, judge_edges};
use crate::judge::checks::reading::judge_by_reading;
use crate::judge::checks::retire::judge_gap;
use crate::judge::checks::shadow_mismatch::judge_lost;
use crate::judge::checks::signals::judge_signals;
use crate::judge::checks::site::{Layout, code, judge_site, layouts};
use crate::judge::checks::size::{count, judge_sizes};
use crate::judge::explain::explain;
use crate::judge::fixture::{FIXTURES, Fixture, Function, Setup, fixtures, functions};
use crate::judge::rig::{Away, Rig};
use crate::judge::suite::Suite;
use crate::judge::tally::Tally;
use crate::judge::verdict::report;
use crate::report::{Clause, Report};
use crate::run::case::{Case, Distance};
use crate::run::filter::Filter;
use crate::run::situation::Situation;

/// Runs of a trampoline that may go astray on an image. The others would tell no more, and each takes its time.
const MOST_ASTRAY: u32 = 16;

/// Called with the number of finished and of all groups.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// Run all cases of all suites that pass the filter.
///
/// # Errors
/// An object that does not link with the fixtures, or an engine that does not start; never a failed check.
pub fn check(suites: &[Suite], filter: &Filter, seed: u64, progress: Progress) -> Result<Report> {
    validate(suites, filter, functions(suites)?)?;
    let engine = engines(suites)?;
    let merged = tallies(suites, filter, seed, progress)?;
    Ok(Report { engine, ..report(suites, &merged, filter, seed) })
}

/// What the trampolines of a suite leave to those to whom they go on, in all runs: registers, the stack and what they stored to, as
/// numbers; none if no trampoline ran. Where two suites have the same, nobody but who looks into a trampoline can tell them apart.
///
/// # Errors
/// As of [`check`].
pub fn left(suite: &Suite, filter: &Filter, seed: u64) -> Result<Vec<u64>> {
    let merged = tallies(std::slice::from_ref(suite), &Filter { left: true, ..filter.clone() }, seed, &|_, _| {})?;
    Ok(merged.into_iter().flat_map(|tally| tally.left).collect())
}

/// Run all cases of all suites that pass the filter.
fn tallies(suites: &[Suite], filter: &Filter, seed: u64, progress: Progress) -> Result<Vec<Tally>> {
    let groups: Vec<(usize, &'static Fixture)> =
        suites.iter().enumerate().flat_map(|(i, suite)| fixtures(suite, filter).map(move |f| (i, f))).collect();
    if groups.is_empty() {
        return Err(Error::new("no fixture fits these options: see emu-tests/fixtures/fixtures.toml"));
    }
    let run = |i: usize, fixture: &'static Fixture| {
        // One fixture is enough to tell what distance does.
        let once = fixtures(&suites[i], filter).next().is_some_and(|first| std::ptr::eq(first, fixture));
        let moved = once && filter.judges(Clause::P16) && !filter.one_fixture;
        let suite = &suites[i];
        judge(Setup { suite, fixture, functions: functions([suite])?, seed }, filter, moved)
    };
    if filter.first_failure || filter.one_fixture {
        let mut merged: Vec<Tally> = suites.iter().map(Tally::new).collect();
        let enough = |tally: &Tally| filter.first_failure && tally.fails() || filter.one_fixture && tally.scenarios > 0;
        for (i, fixture) in groups {
            if !enough(&merged[i]) {
                merged[i].absorb(run(i, fixture)?);
            }
        }
        return Ok(merged);
    }
    let (done, all) = (AtomicU64::new(0), groups.len() as u64);
    let parts: Vec<Result<(usize, Tally)>> = groups
        .par_iter()
        .map(|&(i, fixture)| {
            let tally = run(i, fixture)?;
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, all);
            Ok((i, tally))
        })
        .collect();
    let mut merged: Vec<Tally> = suites.iter().map(Tally::new).collect();
    for tally in parts {
        let (i, tally) = tally?;
        merged[i].absorb(tally);
    }
    Ok(merged)
}

/// What runs these, by name and version.
fn engines(suites: &[Suite]) -> Result<String> {
    let mut all: Vec<(Emulator, String)> = Vec::new();
    for Suite { engine, backend, .. } in suites {
        if !all.iter().any(|(known, _)| known == engine) {
            all.push((*engine, engine.version(*backend)?));
        }
    }
    Ok(all.into_iter().map(|(_, version)| version).collect::<Vec<_>>().join(", "))
}

/// Run a suite on the functions of a fixture; and, if it is to be `moved`, once more from as far away as its sites reach.
fn judge(setup: Setup, filter: &Filter, moved: bool) -> Result<Tally> {
    let rig = Rig::new(setup, true)?;
    let image = rig.image.clone();
    let start = image.segments.first().map_or(0, |s| s.address);
    let end = image.segments.last().map_or(0, |s| s.address + s.mem_size);
    let size = (end - start).next_multiple_of(PAGE) as i64;
    if let Some(Distance::Far { bytes, copied }) = filter.distance {
        if bytes.unsigned_abs() < size.unsigned_abs() {
            let message = format!("{bytes} bytes from the sites the trampolines would lie in each other's way");
            return Err(Error::new(format!("{message}; valid: 0, or {size} and more either way")));
        }
        let mut tally = Tally::new(setup.suite);
        let Some(rig) = Rig::moved(setup, Away { functions: image, bytes, copied, code_align: None, beside: &tally })?
        else {
            return Err(Error::new(format!("the objects cannot be linked {bytes:+} bytes from the sites")));
        };
        let there = judge_image(rig, filter)?;
        tally.scenarios = there.scenarios;
        tally.absorb_moved(there);
        return Ok(tally);
    }
    let moved = moved && filter.distance.is_none();
    let edge = if moved { edge(&rig, filter) } else { None };
    let mut tally = judge_image(rig, filter)?;
    let reach = setup.suite.convention.site.reach;
    for direction in [1, -1].into_iter().filter(|_| moved) {
        // Code with addresses of 32 bits cannot be everywhere.
        for distance in [reach - 2 * size, reach / 2] {
            let bytes = direction * distance;
            let away = |copied| Away { functions: image.clone(), bytes, copied, code_align: None, beside: &tally };
            let rigs = [false, true].map(|copied| Rig::moved(setup, away(copied)));
            let mut found = Vec::new();
            for rig in rigs {
                found.extend(rig?.map(|rig| judge_image(rig, filter)).transpose()?);
            }
            let done = !found.is_empty();
            found.into_iter().for_each(|there| tally.absorb_moved(there));
            if done {
                break;
            }
        }
    }
    if let Some(edge) = edge {
        judge_edges(setup, &edge, &image, &mut tally)?;
    }
    Ok(tally)
}

/// Run all cases on one image, and put what fails into words.
fn judge_image(mut rig: Rig, filter: &Filter) -> Result<Tally> {
    let mut tally = Tally::new(rig.suite);
    if filter.left {
        rig.note_left()?;
    }
    rig.patch_all(SiteState::Disabled, None)?;
    let layouts = if !filter.judges(Clause::P17) || rig.away.is_some() { Vec::new() } else { layouts(&rig)? };
    let attached = |(_, contract): &(usize, &Contract)| filter.attaches(&rig.suite.contracts, contract);
    let attached = rig.suite.contracts.iter().enumerate().filter(attached);
    let all: Vec<Vec<Arc<Case>>> = attached.map(|(attach, _)| cases(&rig, attach, filter)).collect();
    let example = all.iter().flatten().next().cloned();
    for first in all.iter().filter_map(|cases| cases.first()) {
        judge_gap(rig.suite, &rig.image, first, &mut tally)?;
    }
    // Those whose accesses to the stack are looked at come first: the others run without hooks on them, four times as fast.
    let (watched, others): (Vec<_>, Vec<_>) =
        all.into_iter().map(|cases| cases.into_iter().partition(|case| case.watched)).unzip();
    if judge_cases(&mut rig, &watched, &layouts, filter, &mut tally)?.is_continue() {
        rig.unwatch(others.iter().map(Vec::len).sum())?;
        // What failed may have left functions and sites other than it found them.
        if tally.findings.iter().any(|(finding, _)| rig.known(finding).is_none()) {
            rig.reload()?;
        }
        let _ = judge_cases(&mut rig, &others, &[], filter, &mut tally)?;
    }
    tally.left.extend(rig.trace().left.take().and_then(|left| left.number()));
    let stubs = rig.image.sections.iter().find(|s| s.name == STUBS);
    let inside = |a: u64| stubs.is_some_and(|s| (s.address..s.address + s.size).contains(&a));
    tally.stubs = rig.image.symbols.iter().filter(|s| inside(s.address)).map(|s| s.name.clone()).collect();
    if let Some(case) = example.as_ref().filter(|_| filter.judges(Clause::P27) && rig.away.is_none()) {
        judge_marks(&rig, case, &mut tally)?;
    }
    if let Some(case) = example.as_ref().filter(|_| filter.judges(Clause::P28) && rig.away.is_none()) {
        judge_guards(&rig, case, &mut tally)?;
    }
    if let Some(case) = example.as_ref().filter(|_| rig.away.is_none()) {
        judge_by_reading(&rig, case, filter, &mut tally)?;
    }
    let first = fixtures(rig.suite, filter).next().is_some_and(|first| std::ptr::eq(first, rig.fixture));
    if let Some(case) = example.as_ref().filter(|_| first && filter.judges(Clause::P16) && rig.away.is_none()) {
        judge_copies(&rig, case, &mut tally)?;
    }
    if let Some(case) = example.filter(|_| filter.judges(Clause::Coverage)) {
        count(&mut rig, &mut tally)?;
        judge_sizes(&rig, &case, &mut tally)?;
    }
    explain(&mut rig, &mut tally, filter)?;
    Ok(tally)
}

/// The cases of each trampoline. Ends with the first failure, if no more are asked for.
fn judge_cases(
    rig: &mut Rig,
    all: &[Vec<Arc<Case>>],
    layouts: &[Option<Layout>],
    filter: &Filter,
    tally: &mut Tally,
) -> Result<ControlFlow<()>> {
    for cases in all {
        let Some(first) = cases.first() else { continue };
        judge_entered(rig, first, tally)?;
        let judged = match rig.suite.contracts[first.attach].kind.is_called() {
            true => judge_sled(rig, cases, filter, tally)?,
            false => judge_patched(rig, cases, layouts, filter, tally)?,
        };
        if judged.is_break() {
            return Ok(judged);
        }
        tally.scenarios += cases.len() as u64;
    }
    Ok(ControlFlow::Continue(()))
}

/// Ends with the first failure, if no more are asked for.
fn judge_sled(rig: &mut Rig, cases: &[Arc<Case>], filter: &Filter, tally: &mut Tally) -> Result<ControlFlow<()>> {
    for case in cases {
        let so_far = tally.findings.len();
        sled(rig, case, tally)?;
        let mut new = tally.findings.iter().skip(so_far);
        if filter.first_failure && new.any(|(f, _)| rig.known(f).is_none()) {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// The cases of one trampoline. Unpatched: what must come out. Enabled. Disabled again: as if nothing had been. Ends with
/// the first failure, if no more are asked for.
fn judge_patched(
    rig: &mut Rig,
    cases: &[Arc<Case>],
    layouts: &[Option<Layout>],
    filter: &Filter,
    tally: &mut Tally,
) -> Result<ControlFlow<()>> {
    let Some(attach) = cases.first().map(|c| c.attach) else { return Ok(ControlFlow::Continue(())) };
    rig.lay_out(attach)?;
    let expected = cases.iter().map(|case| reference(rig, case)).collect::<Result<Vec<_>>>()?;
    let one = rig.suite.contracts[attach].kind.for_one_function();
    let before = code(rig, layouts);
    let whole = bodies(rig);
    if !one {
        rig.attach(attach, None)?;
    }
    let (mut patched, mut astray) = (None, 0);
    for (case, expected) in cases.iter().zip(&expected) {
        if one && patched != Some(case.function) {
            rig.patch_all(SiteState::Disabled, patched)?;
            patched = Some(case.function);
            rig.aim(attach, case.function)?;
            rig.attach(attach, patched)?;
        }
        let so_far = tally.findings.len();
        let came_back = enabled(rig, case, expected, tally)?;
        if came_back && tally.findings.len() == so_far {
            judge_thrown(rig, case, tally)?;
            judge_lost(rig, case, tally);
        }
        if came_back && case.signals && tally.findings.len() == so_far {
            judge_signals(rig, case, expected, tally)?;
        }
        let mut new = tally.findings.iter().skip(so_far);
        if filter.first_failure && new.any(|(f, _)| rig.known(f).is_none()) {
            return Ok(ControlFlow::Break(()));
        }
        if !came_back {
            // A run that went astray may have written anywhere.
            rig.reload()?;
            rig.attach(attach, patched)?;
            astray += 1;
            if astray == MOST_ASTRAY {
                tally.cut_off[attach] = true;
                break;
            }
        }
    }
    let during = code(rig, layouts);
    rig.patch_all(SiteState::Disabled, None)?;
    judge_site(rig, cases, &expected, layouts, [&before, &during], patched, tally)?;
    // A function that is not traced knows of no handler: once is enough.
    let mut done = BTreeSet::new();
    for (case, expected) in cases.iter().zip(&expected) {
        if case.is_plain() && done.insert(case.function) {
            disabled(rig, case, expected, tally);
        }
    }
    // Who writes to the code of functions is judged for it, and not whoever comes next.
    if bodies(rig) != whole {
        rig.reload()?;
    }
    Ok(ControlFlow::Continue(()))
}

/// The code of all functions as it is in memory.
fn bodies(rig: &Rig) -> Vec<u8> {
    let symbols = rig.functions.iter().filter_map(|f| rig.traced().symbol(&f.name));
    let bytes = |s: &link::Symbol| {
        let mut bytes = vec![0; s.size as usize];
        rig.uc.load(s.address, &mut bytes);
        bytes
    };
    symbols.flat_map(bytes).collect()
}

fn validate(suites: &[Suite], filter: &Filter, functions: &[Function]) -> Result<()> {
    if let Some(wanted) = &filter.function
        && !functions.iter().any(|f| f.name == *wanted)
    {
        return Err(Error::unknown("function", wanted, functions.iter().map(|f| f.name.as_str())));
    }
    if let Some(wanted) = &filter.situation {
        let known = situations(suites);
        if !known.contains(wanted) {
            let known: Vec<String> = known.iter().map(Situation::to_string).collect();
            return Err(Error::unknown("situation", &wanted.to_string(), known.iter().map(String::as_str)));
        }
    }
    if let Some(wanted) = &filter.attached {
        let known = suites.iter().flat_map(|s| &s.contracts).filter(|c| c.kind.attaches()).map(|c| c.name.as_str());
        if !known.clone().any(|name| name == wanted) {
            return Err(Error::unknown("trampoline at a site", wanted, known));
        }
    }
    if let Some(wanted) = filter.entry_sp {
        let known: BTreeSet<u64> = suites.iter().flat_map(|s| s.backend.machine().entry_sp).copied().collect();
        if !known.contains(&wanted) {
            let known: Vec<String> = known.iter().map(u64::to_string).collect();
            return Err(Error::unknown("entry SP", &wanted.to_string(), known.iter().map(String::as_str)));
        }
    }
    if let Some(wanted) = &filter.fixture
        && !FIXTURES.iter().any(|f| f.variant == wanted)
    {
        return Err(Error::unknown("fixture", wanted, FIXTURES.iter().map(|f| f.variant)));
    }
    Ok(())
}

/// The situations that the trampolines can be in.
pub fn situations(suites: &[Suite]) -> Vec<Situation> {
    let mut known = Vec::new();
    for situation in suites.iter().flat_map(|s| &s.contracts).flat_map(Situation::all) {
        if !known.contains(&situation) {
            known.push(situation);
        }
    }
    known
}
