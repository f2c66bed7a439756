//! What one scenario costs, measured.

use std::sync::Arc;
use std::time::{Duration, Instant};

use codegen::arch::patch::SiteState;
use codegen::words::error::{Error, Result};

use crate::engine::cpu::{EXIT, put_word};
use crate::judge::cases::cases;
use crate::judge::checks::compare::{enabled, reference};
use crate::judge::fixture::{Setup, fixtures, functions};
use crate::judge::rig::Rig;
use crate::judge::suite::Suite;
use crate::judge::tally::Tally;
use crate::run::case::Case;
use crate::run::filter::Filter;
use crate::run::situation::Situation;

/// What one scenario costs.
#[derive(Clone, Copy, Debug)]
pub struct ScenarioCost {
    /// Reset, run with all checks, compare.
    pub scenario: Duration,
    /// The same instructions in the engine without hooks; the callback is the compiled function that does nothing.
    pub bare: Duration,
}

/// Runs of one kind in a row: so few that a scheduler seldom takes the processor away in between.
const RUNS: u32 = 100;
/// How often they are timed, in turns with those of the other kind. The least time of each counts.
const ROUNDS: u32 = 100;

/// Time one scenario of a trampoline on a function, and the engine's share in it, in `times` as many rounds as are enough.
///
/// # Errors
/// An unknown trampoline or function, or an engine that does not start.
pub fn measure(suite: &Suite, trampoline: &str, function: &str, times: u32) -> Result<ScenarioCost> {
    let functions = functions([suite])?;
    let filter = Filter { function: Some(function.into()), situation: Some(Situation::PLAIN), ..Filter::default() };
    let fixture = fixtures(suite, &filter).next().ok_or_else(|| Error::new("no fixture fits these options"))?;
    let attach = suite.contracts.iter().position(|c| c.name == trampoline);
    let attach = attach
        .ok_or_else(|| Error::unknown("trampoline", trampoline, suite.contracts.iter().map(|c| c.name.as_str())))?;
    let ready = |hooks: bool| {
        let mut rig = Rig::new(Setup { suite, fixture, functions, seed: 1 }, hooks)?;
        let cases = cases(&rig, attach, &filter);
        let case = cases
            .first()
            .ok_or_else(|| Error::unknown("function", function, functions.iter().map(|f| f.name.as_str())))?;
        // As all functions but the first are run.
        let case = Arc::new(Case { closely: false, wide: false, ..Case::clone(case) });
        rig.patch_all(SiteState::Disabled, None)?;
        rig.unwatch(RUNS as usize * ROUNDS as usize)?;
        let expected = reference(&mut rig, &case)?;
        rig.attach(attach, None)?;
        rig.prepare(&case)?;
        Ok::<_, Error>((rig, case, expected))
    };
    let ((mut rig, case, expected), (mut bare, ..)) = (ready(true)?, ready(false)?);
    let (start, sp) = (bare.function(function), case.initial.sp);
    let mut tally = Tally::new(suite);
    let mut best = ScenarioCost { scenario: Duration::MAX, bare: Duration::MAX };
    for _ in 0..ROUNDS * times {
        let clock = Instant::now();
        for _ in 0..RUNS {
            enabled(&mut rig, &case, &expected, &mut tally)?;
        }
        best.scenario = best.scenario.min(clock.elapsed() / RUNS);
        let clock = Instant::now();
        for _ in 0..RUNS {
            // The least that makes the run come back: SP, and the return address where the psABI has it.
            bare.registers.set(&mut *bare.uc, bare.registers.abi.sp, sp);
            match bare.registers.abi.link {
                Some(link) => bare.registers.set(&mut *bare.uc, link, EXIT),
                None => drop(put_word(&mut *bare.uc, sp, EXIT)),
            }
            let _ = bare.uc.run(start, EXIT);
        }
        best.bare = best.bare.min(clock.elapsed() / RUNS);
    }
    match tally.findings.iter().find(|(f, ..)| rig.known(f).is_none()) {
        Some((finding, ..)) => {
            Err(Error::new(format!("{trampoline} fails {}: {}", finding.clause.name(), finding.place)))
        }
        None => Ok(best),
    }
}
