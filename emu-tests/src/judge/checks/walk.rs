//! Through a case one instruction after the other.

use crate::engine::cpu::EXIT;
use crate::judge::rig::Rig;
use crate::run::case::Case;

/// Instructions of the longest walk.
const LONGEST: usize = 4000;

/// Is this an address in the trampoline?
pub(crate) fn inside(rig: &Rig, case: &Case, pc: u64) -> bool {
    let (at, size) = rig.ranges[case.attach];
    pc.wrapping_sub(at) < size
}

/// Run from one place to another, with a look before each instruction. Where it ended, if it did.
pub(crate) fn walk(
    rig: &mut Rig,
    from: u64,
    ends: impl Fn(u64) -> bool,
    mut before: impl FnMut(&Rig, u64),
) -> Option<u64> {
    let mut at = from;
    for _ in 0..LONGEST {
        if ends(at) {
            return Some(at);
        }
        before(rig, at);
        rig.trace().step(true);
        let ran = if at == from { rig.uc.run(at, EXIT) } else { rig.uc.go_on(at, EXIT) };
        rig.trace().step(false);
        ran.ok()?;
        at = rig.uc.pc();
    }
    None
}
