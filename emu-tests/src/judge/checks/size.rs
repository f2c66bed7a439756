//! P19, and which instructions were executed.

use std::sync::Arc;

use codegen::contract::stated::Next;
use codegen::words::error::Result;
use link::mark;

use crate::engine::disasm::{Decoded, parts};
use crate::engine::lent::is_lent;
use crate::judge::rig::Rig;
use crate::judge::tally::Tally;
use crate::judge::trace::{At, Finding};
use crate::report::Clause;
use crate::report::place::Place;
use crate::run::case::Case;

/// Counters and coverage.
pub(crate) fn count(rig: &mut Rig, tally: &mut Tally) -> Result<()> {
    let trace = rig.trace();
    let cells = trace.cells.clone();
    for (sum, checks) in tally.checks.iter_mut().zip(&trace.checks.made) {
        sum.iter_mut().zip(checks).for_each(|(n, m)| *n += m);
    }
    tally.decided.clone_from(&trace.checks.decided);
    tally.fates.clone_from(&trace.checks.fates);
    tally.promised.clone_from(&trace.checks.promised);
    tally.vectors_lost.clone_from(&trace.checks.vectors_lost);
    let table = trace.table.clone().unwrap_or_default();
    tally.unwinding = rig.ranges.iter().map(|range| table.says(*range)).collect();
    for i in 0..rig.suite.contracts.len() {
        // What has copies alone begins with any instruction.
        let any = rig.suite.contracts[i].stated.next == Next::Copies(0);
        let own = rig.decode(i)?.into_iter().filter(|d| any || !d.filler);
        let decoded: Vec<Decoded> = own.chain(rig.tails[i].iter().cloned()).collect();
        let start = rig.ranges[i].0;
        tally.elsewhere[i] = rig.tails[i].iter().map(|d| (d.at.wrapping_sub(start), named(rig, d.at))).collect();
        let missed: Vec<u64> = decoded
            .iter()
            .filter(|d| !cells.get(d.at).is_some_and(|c| c.visited))
            .map(|d| d.at.wrapping_sub(start))
            .collect();
        tally.instructions[i] = decoded.len();
        let lent = decoded.iter().filter(|d| {
            let code = rig.image.bytes(d.at, d.size.into()).unwrap_or_default();
            is_lent(rig.registers.machine.lent, rig.uc.has_all_instructions(), code)
        });
        tally.lent.extend(lent.filter_map(|d| d.text.split(' ').next()).map(str::to_owned));
        if missed.len() < decoded.len() {
            tally.missed[i] = Some(missed);
        }
    }
    Ok(())
}

/// An address by the name of the object's symbol that it is in, whether that says its size or not.
fn named(rig: &Rig, at: u64) -> String {
    let symbols = rig.image.symbols.iter().filter(|s| mark(&s.name).is_none() && s.address <= at);
    let nearest = symbols.max_by_key(|s| (s.address, s.size));
    nearest.map_or(format!("{at:#x}"), |s| format!("{}+{:#x}", s.name, at - s.address))
}

/// P19: a trampoline has the bytes that its symbol says.
pub(crate) fn judge_sizes(rig: &Rig, case: &Arc<Case>, tally: &mut Tally) -> Result<()> {
    for (trampoline, &(start, size)) in rig.ranges.iter().enumerate() {
        // Not every symbol says how many.
        let says = rig.image.symbol(&rig.suite.contracts[trampoline].name).is_some_and(|s| s.size > 0);
        let end = rig.decode(trampoline)?.last().map_or(start, |last| last.at + u64::from(last.size));
        // What is behind the last instruction and said to be data is its own.
        let data = start + size
            - parts(rig.suite.backend.machine(), &rig.image, (start, size))?.last().map_or(start, |part| part.end);
        let decoded = if says { end - start + data } else { size };
        let at = At { clause: Clause::P19, trampoline, pc: start };
        tally.judged(case, Finding::new(at, Place::SizeOfSymbol, size, decoded));
    }
    Ok(())
}
