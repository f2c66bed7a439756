//! What is judged by reading instructions: P2-wide, P14 where the CPU's shadow stack is moved, and P15 of how returns are made.

use std::sync::Arc;

use codegen::arch::harden::ReturnStyle;
use codegen::arch::machine::Goes;
use codegen::arch::moves::Move;
use codegen::words::error::Result;

use crate::engine::disasm::Decoded;
use crate::judge::rig::Rig;
use crate::judge::tally::Tally;
use crate::judge::trace::{At, Finding};
use crate::report::Clause;
use crate::report::place::Place;
use crate::run::case::Case;
use crate::run::filter::Filter;

/// Judge the code of each trampoline.
pub(crate) fn judge_by_reading(rig: &Rig, case: &Arc<Case>, filter: &Filter, tally: &mut Tally) -> Result<()> {
    if filter.judges(Clause::Wide) {
        judge_wide(rig, case, tally)?;
    }
    if filter.judges(Clause::P14) {
        judge_shadow_pointer(rig, case, tally)?;
    }
    if filter.judges(Clause::P15) {
        judge_return_style(rig, case, tally)?;
    }
    Ok(())
}

/// P2-wide: what may change vector state that not every engine has. Where handlers leave vectors alone, and where all of them are kept,
/// none may before some of it is stored: by then it is lost.
fn judge_wide(rig: &Rig, case: &Arc<Case>, tally: &mut Tally) -> Result<()> {
    let wide = &rig.registers.machine.wide;
    for trampoline in 0..rig.ranges.len() {
        let own = rig.decode(trampoline)?.into_iter().filter(|d| !d.filler);
        let decoded: Vec<Decoded> = own.chain(rig.tails[trampoline].iter().cloned()).collect();
        let is = |of: fn(&str, &str) -> bool| move |insn: &Decoded| of(insn.parts().0, insn.parts().1);
        let Some(first) = decoded.iter().position(is(wide.changes)) else { continue };
        let (changes, start) = (&decoded[first], rig.ranges[trampoline].0);
        tally.wide[trampoline] = Some(format!("{} at +{:#x}", changes.text, changes.at.wrapping_sub(start)));
        let contract = &rig.suite.contracts[trampoline];
        let lost = !decoded[..=first].iter().any(is(wide.stores));
        if lost && (contract.leaves_vectors() || contract.kind.is_in_the_middle()) {
            let at = At { clause: Clause::Wide, trampoline, pc: changes.at };
            // Not counted: what is counted was executed.
            tally.findings.push((Finding::new(at, Place::WideLost, 0, 1), case.clone()));
        }
    }
    Ok(())
}

/// P14: no engine but one with that stack shows where returns go when its pointer is moved.
fn judge_shadow_pointer(rig: &Rig, case: &Arc<Case>, tally: &mut Tally) -> Result<()> {
    let moves = rig.registers.machine.moves;
    for trampoline in 0..rig.ranges.len() {
        let own = rig.decode(trampoline)?.into_iter().filter(|insn| !insn.filler);
        for insn in own.filter(|insn| moves(insn.parts().0, insn.parts().1).contains(&Move::ShadowPointer)) {
            let at = At { clause: Clause::P14, trampoline, pc: insn.at };
            tally.judged(case, Finding::new(at, Place::ShadowMoved, 0, 1));
        }
    }
    Ok(())
}

/// P15: each return is made as the configuration asks for, where it asks for more than the instruction.
fn judge_return_style(rig: &Rig, case: &Arc<Case>, tally: &mut Tally) -> Result<()> {
    let machine = rig.registers.machine;
    let traps = [machine.trap, machine.short_trap].into_iter().filter(|trap| !trap.is_empty());
    for (trampoline, contract) in rig.suite.contracts.iter().enumerate() {
        let Some(style) = contract.returns.filter(|style| *style != ReturnStyle::Plain) else { continue };
        let (start, size) = rig.ranges[trampoline];
        let end = start.saturating_add(size);
        for insn in rig.decode(trampoline)?.iter().filter(|insn| insn.goes == Goes::Back) {
            let behind = insn.at.wrapping_add(insn.size.into());
            // What lies between functions is there by chance.
            let trapped = traps.clone().any(|trap| {
                behind.saturating_add(trap.len() as u64) <= end && rig.image.bytes(behind, trap.len()) == Some(trap)
            });
            let at = At { clause: Clause::P15, trampoline, pc: insn.at };
            tally.judged(case, Finding::new(at, Place::ReturnMade, true, trapped && style == ReturnStyle::Trapped));
        }
    }
    Ok(())
}
