//! Runs the cases of all suites, on each fixture that fits, near and far.

use std::sync::atomic::{AtomicU64, Ordering};

use codegen::error::{Error, Result};
use codegen::patch::SiteState;
use codegen::spec::Kind;
use link::STUBS;
use rayon::prelude::*;

use crate::case::Situation;
use crate::cpu::PAGE;
use crate::filter::Filter;
use crate::fixture::{FIXTURES, Fixture, Function, fixtures, functions};
use crate::report::{Clause, Report};
use crate::rig::{Away, Rig};
use crate::suite::Suite;
use crate::tally::Tally;
use crate::trace::{self};
use crate::verdict::report;

/// Called with the number of finished and of all groups.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// Run all cases of all suites that pass the filter.
///
/// # Errors
/// An object that does not link with the fixtures, or an engine that does not start; never a failed check.
pub fn check(suites: &[Suite], filter: &Filter, seed: u64, progress: Progress) -> Result<Report> {
    let functions = functions()?;
    validate(suites, filter, &functions)?;
    let groups: Vec<(usize, &'static Fixture)> =
        suites.iter().enumerate().flat_map(|(i, suite)| fixtures(suite, filter).map(move |f| (i, f))).collect();
    if groups.is_empty() {
        return Err(Error::new("no fixture fits these options: see emu-tests/fixtures/fixtures.toml"));
    }
    let run = |i: usize, fixture: &'static Fixture| {
        // One fixture is enough to tell what distance does.
        let once = fixtures(&suites[i], filter).next().is_some_and(|first| std::ptr::eq(first, fixture));
        judge(&suites[i], fixture, &functions, seed, filter, once && filter.judges(Clause::P16))
    };
    if filter.first_failure {
        let mut merged: Vec<Tally> = suites.iter().map(Tally::new).collect();
        for (i, fixture) in groups {
            if !merged[i].fails() {
                merged[i].absorb(run(i, fixture)?);
            }
        }
        return Ok(report(suites, &merged, filter, seed));
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
    Ok(report(suites, &merged, filter, seed))
}

/// Run a suite on the functions of a fixture; and, if it is to be `moved`, once more from as far away as its sites reach.
fn judge(
    suite: &Suite,
    fixture: &'static Fixture,
    functions: &[Function],
    seed: u64,
    filter: &Filter,
    moved: bool,
) -> Result<Tally> {
    let rig = Rig::new(suite, fixture, functions, seed)?;
    let image = rig.image.clone();
    let mut tally = rig.run(filter)?;
    let start = image.segments.first().map_or(0, |s| s.address);
    let end = image.segments.last().map_or(0, |s| s.address + s.mem_size);
    let size = (end - start).next_multiple_of(PAGE) as i64;
    let reach = suite.backend.facts().site.reach;
    for direction in [1, -1].into_iter().filter(|_| moved) {
        // Code with addresses of 32 bits cannot be everywhere.
        for distance in [reach - 2 * size, reach / 2] {
            let distance = direction * distance;
            let away = |copied| Away { functions: image.clone(), distance, copied, beside: &tally };
            let rigs = [false, true].map(|copied| Rig::moved(suite, fixture, functions, seed, away(copied)));
            let mut found = Vec::new();
            for rig in rigs {
                found.extend(rig?.map(|rig| rig.run(filter)).transpose()?);
            }
            let done = !found.is_empty();
            found.into_iter().for_each(|there| tally.absorb_moved(there));
            if done {
                break;
            }
        }
    }
    Ok(tally)
}

fn validate(suites: &[Suite], filter: &Filter, functions: &[Function]) -> Result<()> {
    if let Some(suite) = suites.iter().find(|s| s.contracts.len() > trace::MOST) {
        let (what, n) = (&suite.options, suite.contracts.len());
        return Err(Error::new(format!("{what}: {n} trampolines; valid: at most {}", trace::MOST)));
    }
    if let Some(wanted) = &filter.function
        && !functions.iter().any(|f| f.name == *wanted)
    {
        return Err(Error::unknown("function", wanted, functions.iter().map(|f| f.name.as_str())));
    }
    if let Some(wanted) = &filter.situation {
        let known = situations(suites);
        if !known.contains(wanted) {
            return Err(Error::unknown("situation", wanted, known.iter().map(String::as_str)));
        }
    }
    if let Some(wanted) = &filter.fixture
        && !FIXTURES.iter().any(|f| f.variant == wanted)
    {
        return Err(Error::unknown("fixture", wanted, FIXTURES.iter().map(|f| f.variant)));
    }
    Ok(())
}

/// The names of the situations that the trampolines can be in.
pub fn situations(suites: &[Suite]) -> Vec<String> {
    let mut known = Vec::new();
    for name in suites.iter().flat_map(|s| &s.contracts).flat_map(Situation::all).map(Situation::name) {
        if !known.contains(&name) {
            known.push(name);
        }
    }
    known
}

impl Rig<'_> {
    pub(crate) fn run(mut self, filter: &Filter) -> Result<Tally> {
        let mut tally = Tally::new(self.suite);
        self.patch_all(SiteState::Disabled, None)?;
        let mut example = None;
        let layouts = if !filter.judges(Clause::P17) || self.away.is_some() { Vec::new() } else { self.layouts()? };
        'all: for attach in 0..self.suite.contracts.len() {
            let mut contract = self.suite.contracts[attach].clone();
            if self.copied() {
                // Who has a copy to itself has no use for other handlers, so it has no way to a direct trampoline.
                contract.direct = false;
            }
            let wanted = filter.trampolines.is_empty()
                || filter.trampolines.contains(&contract.name)
                || matches!(contract.kind, Kind::Entry(_));
            if !contract.kind.attaches() || !wanted {
                continue;
            }
            let cases = self.cases(attach, &contract, filter);
            let Some(first) = cases.first() else { continue };
            example.get_or_insert_with(|| first.clone());
            self.judge_gap(first, attach, &mut tally)?;
            if contract.sled {
                for case in &cases {
                    self.sled(case, &mut tally)?;
                    if filter.first_failure && !tally.findings.is_empty() {
                        break 'all;
                    }
                }
                tally.scenarios += cases.len() as u64;
                continue;
            }
            // Unpatched: what must come out. Enabled. Disabled again: as if nothing had been.
            let mut expected = Vec::with_capacity(cases.len());
            for case in &cases {
                expected.push(self.reference(case)?);
            }
            let one = contract.kind.for_one_function();
            let before = self.code(&layouts);
            if !one {
                self.patch_all(self.on(attach), None)?;
            }
            let mut patched = None;
            for (case, expected) in cases.iter().zip(&expected) {
                if one && patched != Some(case.function) {
                    self.patch_all(SiteState::Disabled, patched)?;
                    patched = Some(case.function);
                    self.aim(attach, case.function)?;
                    self.patch_all(self.on(attach), patched)?;
                }
                let before = tally.findings.len();
                let came_back = self.enabled(case, expected, &mut tally)?;
                let mut new = tally.findings.iter().skip(before);
                if filter.first_failure && new.any(|(f, ..)| self.known(f).is_none()) {
                    break 'all;
                }
                if !came_back {
                    // A run that went astray may have written anywhere.
                    self.reload()?;
                    self.patch_all(self.on(attach), patched)?;
                }
            }
            let during = self.code(&layouts);
            self.patch_all(SiteState::Disabled, None)?;
            self.judge_site(&cases, &expected, &layouts, [&before, &during], patched, &mut tally)?;
            for (case, expected) in cases.iter().zip(&expected) {
                if case.is_plain() {
                    self.disabled(case, expected, &mut tally);
                }
            }
            tally.scenarios += cases.len() as u64;
        }
        let stubs = self.image.sections.iter().find(|s| s.name == STUBS);
        let inside = |a: u64| stubs.is_some_and(|s| (s.address..s.address + s.size).contains(&a));
        tally.stubs = self.image.symbols.iter().filter(|s| inside(s.address)).map(|s| s.name.clone()).collect();
        if let Some(case) = example.filter(|_| filter.judges(Clause::Coverage)) {
            self.count(&mut tally)?;
            self.judge_sizes(&case, &mut tally)?;
        }
        self.explain(&mut tally, filter)?;
        Ok(tally)
    }
}
