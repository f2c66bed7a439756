//! P26 of entries that may be reached by an indirect branch, by an engine that enforces: sites reach most of them by direct branches.

use std::sync::Arc;

use codegen::arch::pads::{IndirectBranch, Pad};
use codegen::words::error::Result;

use crate::judge::rig::Rig;
use crate::judge::tally::Tally;
use crate::judge::trace::{At, Finding};
use crate::report::Clause;
use crate::report::place::Place;
use crate::run::case::Case;

/// Enter the trampoline of this case by each indirect branch. Who calls it by a register must come in; any other branch is stopped
/// unless what stands there lets it.
pub(crate) fn judge_entered(rig: &mut Rig, case: &Arc<Case>, tally: &mut Tally) -> Result<()> {
    let contract = &rig.suite.contracts[case.attach];
    let (asked, entry_pad) = (contract.landing_pad, contract.entry_pad);
    let (entry, size) = rig.ranges[case.attach];
    for way in rig.uc.entered().iter().filter(|_| asked) {
        rig.load_case(case, &case.initial.registers, false);
        let stopped = rig.uc.is_stopped_at(entry, *way)?;
        let code = rig.image.bytes(entry, size as usize).unwrap_or_default();
        let lets = |pad: &Pad| code.starts_with(pad.bytes) && pad.lets.contains(&way.by);
        let called = entry_pad && way.by == IndirectBranch::Call;
        let comes_in = called || rig.registers.machine.pads.iter().any(lets);
        let at = At { clause: Clause::P26, trampoline: case.attach, pc: entry };
        tally.judged(case, Finding::new(at, Place::StoppedAtEntry, u64::from(!comes_in), u64::from(stopped)));
        rig.dirty = true;
    }
    Ok(())
}
