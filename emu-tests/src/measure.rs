//! What one scenario costs, measured.

use std::sync::Arc;
use std::time::{Duration, Instant};

use codegen::error::{Error, Result};
use codegen::patch::SiteState;

use crate::case::Case;
use crate::cases::cases;
use crate::compare::{enabled, reference};
use crate::cpu::{EXIT, put_word};
use crate::filter::Filter;
use crate::fixture::{Setup, fixtures, functions};
use crate::rig::Rig;
use crate::situation::Situation;
use crate::suite::Suite;
use crate::tally::Tally;

/// What one scenario costs.
#[derive(Clone, Copy, Debug)]
pub struct ScenarioCost {
    /// Reset, run with all checks, compare.
    pub scenario: Duration,
    /// The same instructions in the engine without hooks; the callback is the compiled function that does nothing.
    pub bare: Duration,
}

/// Time one scenario of a trampoline on a function, and the engine's share in it.
///
/// # Errors
/// An unknown trampoline or function, or an engine that does not start.
pub fn measure(suite: &Suite, trampoline: &str, function: &str) -> Result<ScenarioCost> {
    const RUNS: u32 = 2000;
    let functions = functions()?;
    let filter = Filter { function: Some(function.into()), situation: Some(Situation::PLAIN), ..Filter::default() };
    let fixture = fixtures(suite, &filter).next().ok_or_else(|| Error::new("no fixture fits these options"))?;
    let attach = suite.contracts.iter().position(|c| c.name == trampoline);
    let attach = attach
        .ok_or_else(|| Error::unknown("trampoline", trampoline, suite.contracts.iter().map(|c| c.name.as_str())))?;
    let mut best = ScenarioCost { scenario: Duration::MAX, bare: Duration::MAX };
    for hooks in [true, false] {
        let mut rig = Rig::new(Setup { suite, fixture, functions: &functions, seed: 1 }, hooks)?;
        let cases = cases(&rig, attach, &filter);
        let case = cases
            .first()
            .ok_or_else(|| Error::unknown("function", function, functions.iter().map(|f| f.name.as_str())))?;
        // As all functions but the first are run.
        let case = &Arc::new(Case { closely: false, ..Case::clone(case) });
        rig.patch_all(SiteState::Disabled, None)?;
        rig.unwatch(RUNS as usize)?;
        let expected = reference(&mut rig, case)?;
        rig.patch_all(rig.on(attach), None)?;
        rig.prepare(case)?;
        let sp = case.initial.sp;
        let start = rig.function(function);
        let mut tally = Tally::new(suite);
        for _ in 0..5 {
            let clock = Instant::now();
            for _ in 0..RUNS {
                if hooks {
                    enabled(&mut rig, case, &expected, &mut tally)?;
                } else {
                    // The least that makes the run come back: SP, and the return address where the psABI has it.
                    rig.registers.set(&mut rig.uc, rig.registers.abi.sp, sp);
                    match rig.registers.abi.link {
                        Some(link) => rig.registers.set(&mut rig.uc, link, EXIT),
                        None => drop(put_word(&mut rig.uc, sp, EXIT)),
                    }
                    let _ = rig.uc.emu_start(start, EXIT, 0, 0);
                }
            }
            let each = clock.elapsed() / RUNS;
            let best = if hooks { &mut best.scenario } else { &mut best.bare };
            *best = each.min(*best);
        }
        if let Some((finding, ..)) = tally.findings.iter().find(|(f, ..)| rig.known(f).is_none()) {
            return Err(Error::new(format!("{trampoline} fails {}: {}", finding.clause.name(), finding.place)));
        }
    }
    Ok(best)
}
