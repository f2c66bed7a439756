//! P28: whether the return address is guarded while it is in memory. All paths are followed, without a run: an engine that enforces
//! shows the same in runs (P26), and only there does a signature differ from none. A shadow call stack is memory as any other, and
//! each run shows what is on it.

use std::sync::Arc;

use codegen::words::error::Result;
use link::Input;

use crate::judge::rig::Rig;
use crate::judge::tally::Tally;
use crate::judge::trace::{At, Finding};
use crate::marks::{Guarding, guarding};
use crate::report::Clause;
use crate::report::place::Place;
use crate::run::case::Case;

/// Judge the trampolines whose contracts say that they guard it.
pub(crate) fn judge_guards(rig: &Rig, case: &Arc<Case>, tally: &mut Tally) -> Result<()> {
    let suite = rig.suite;
    if suite.contracts.iter().all(|contract| contract.guard.is_none()) {
        return Ok(());
    }
    for (name, bytes) in &suite.objects {
        let functions = guarding(&Input { name, bytes }, suite.backend)?;
        for (trampoline, contract) in suite.contracts.iter().enumerate().filter(|(_, c)| c.guard.is_some()) {
            if let Some(found) = functions.get(&contract.name) {
                judge(found, At { clause: Clause::P28, trampoline, pc: rig.ranges[trampoline].0 }, case, tally);
            }
        }
    }
    Ok(())
}

fn judge(found: &Guarding, at: At, case: &Arc<Case>, tally: &mut Tally) {
    let mut hold = |place: Place, offset: u64, holds: bool| {
        let at = At { pc: at.pc.wrapping_add(offset), ..at };
        tally.judged(case, Finding::new(at, place, 1, u64::from(holds)));
    };
    for (offset, _) in found.problems.iter().filter(|(_, certain)| *certain) {
        hold(Place::Guarded, *offset, false);
    }
    for offset in &found.misstated {
        hold(Place::GuardTold, *offset, false);
    }
    // What is open is decided in no way.
    if !found.guards || found.problems.is_empty() {
        hold(Place::Guarded, 0, found.guards);
    }
}
