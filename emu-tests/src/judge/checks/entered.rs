//! P26 of entries that may be reached by an indirect call, by an engine that enforces: sites reach most of them by direct branches.

use std::sync::Arc;

use codegen::arch::bare::Guard;
use codegen::words::error::Result;

use crate::judge::rig::Rig;
use crate::judge::tally::Tally;
use crate::judge::trace::{At, Finding};
use crate::report::Clause;
use crate::report::place::Place;
use crate::run::case::Case;

/// Call the trampoline of this case by a register.
pub(crate) fn judge_entered(rig: &mut Rig, case: &Arc<Case>, tally: &mut Tally) -> Result<()> {
    if !rig.suite.contracts[case.attach].entry_pad || !rig.uc.enforces().contains(&Guard::LandingPad) {
        return Ok(());
    }
    rig.load_case(case, &case.initial.registers, false);
    let (entry, _) = rig.ranges[case.attach];
    let stopped = rig.uc.is_stopped_at(entry)?;
    let at = At { clause: Clause::P26, trampoline: case.attach, pc: entry };
    tally.judged(case, Finding::new(at, Place::StoppedAtEntry, 0, u64::from(stopped)));
    rig.dirty = true;
    Ok(())
}
