//! A function that is recorded in place returns, and the shadow stack has no entry of its own any more: nobody knows where to go
//! on, so the trampoline must stop there.

use std::sync::Arc;

use crate::engine::cpu::{EXIT, word};
use crate::engine::interface::Why;
use crate::judge::checks::walk::{inside, walk};
use crate::judge::rig::Rig;
use crate::judge::tally::Tally;
use crate::judge::trace::{At, Finding};
use crate::report::Clause;
use crate::report::place::Place;
use crate::run::case::Case;
use crate::run::thread::Words;

/// Let the traced function of this case return with its entry changed into that of another function.
pub(crate) fn judge_lost(rig: &mut Rig, case: &Arc<Case>, tally: &mut Tally) {
    let kept = Words::of(&rig.suite.contracts[case.attach]).and_then(|words| words.kept);
    let Some(kept) = kept.filter(|_| !case.situation.untraced()) else { return };
    rig.load_case(case, &case.initial.registers, false);
    let name = &rig.functions[case.function].name;
    let (start, body) = (rig.function(name), rig.body(name));
    if walk(rig, start, |at| at == body, |_, _| {}) == Some(body) {
        kept.lose(&mut *rig.uc);
        let abi = rig.registers.abi;
        let sp = rig.registers.sp(&*rig.uc);
        let back = abi.link.map_or_else(|| word(&*rig.uc, sp), |link| rig.registers.get(&*rig.uc, link));
        rig.registers.set(&mut *rig.uc, abi.sp, sp.wrapping_add(abi.return_bytes()));
        let ended = rig.uc.run(back, EXIT);
        // Where the CPU goes with an exception is another question.
        let last = rig.trace().last();
        let trapped = ended.is_err_and(|trap| trap.why == Why::Breakpoint);
        let stopped = trapped && inside(rig, case, last);
        let at = At { clause: Clause::P24, trampoline: case.attach, pc: back };
        tally.judged(case, Finding::new(at, Place::EntryLost, 1, u64::from(stopped)));
    }
    rig.dirty = true;
}
