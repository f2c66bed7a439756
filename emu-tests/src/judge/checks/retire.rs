//! Code that is retired: the jump past the programs that come after the traced function, and its gap; and programs that are
//! detached: the jump past each (P9).

use std::sync::Arc;

use codegen::arch::patch::{Branch, Write};
use codegen::contract::Contract;
use codegen::words::error::Result;
use codegen::words::program::{Attach, called};
use codegen::words::step::KernelLabel;
use link::Image;

use crate::engine::disasm::{Decoded, decode};
use crate::judge::suite::Suite;
use crate::judge::tally::Tally;
use crate::judge::trace::{At, Finding};
use crate::report::Clause;
use crate::report::place::Place;
use crate::run::case::Case;

/// The jump past the programs that come after the function, from the gap behind its call; nothing if the trampoline at the
/// site has no such gap.
fn retirement(suite: &Suite, image: &Image, trampoline: usize) -> Result<Vec<Write>> {
    let contract = &suite.contracts[trampoline];
    let place =
        |label: KernelLabel| image.symbol(&contract.convention.label(label, &contract.name, contract.kind).concat());
    if contract.kind.programs().is_none() {
        return Ok(Vec::new());
    }
    let (Some(gap), Some(to)) = (place(KernelLabel::AfterCall), place(KernelLabel::Epilogue)) else {
        return Ok(Vec::new());
    };
    let bytes = suite.backend.branch(Branch::SiteJump, gap.address, to.address)?;
    Ok(vec![Write { at: gap.address, bytes }])
}

/// How many calls of programs the trampoline makes that can be jumped past.
fn places(contract: &Contract) -> u8 {
    let calls = |at| called(&contract.programs, at).count() as u8;
    // Nobody detaches the program that is a function.
    let detaches = contract.kind.programs().is_some_and(|programs| !programs.indirect);
    let detaches = detaches && contract.convention.has_label(KernelLabel::Skip(0));
    if detaches { calls(Attach::BEFORE) + calls(Attach::AFTER) } else { 0 }
}

/// The jumps past calls of programs, by the number of the call; nothing where there is no label.
fn detachments(suite: &Suite, image: &Image, trampoline: usize) -> Result<Vec<(u8, Write)>> {
    let contract = &suite.contracts[trampoline];
    let place = |label| image.symbol(&contract.convention.label(label, &contract.name, contract.kind).concat());
    let mut all = Vec::new();
    for n in 0..places(contract) {
        if let (Some(at), Some(to)) = (place(KernelLabel::Skip(n)), place(KernelLabel::Skipped(n))) {
            let bytes = suite.backend.branch(Branch::Past, at.address, to.address)?;
            all.push((n, Write { at: at.address, bytes }));
        }
    }
    Ok(all)
}

/// What puts the jumps where they belong that a case wants, and what was there before where it wants none.
pub(crate) fn jumps(suite: &Suite, image: &Image, case: &Case) -> Result<Vec<Write>> {
    let retired = retirement(suite, image, case.attach)?.into_iter().map(|write| (case.situation.retired(), write));
    let detached = detachments(suite, image, case.attach)?;
    let detached = detached.into_iter().map(|(n, write)| (case.situation.detached(n), write));
    let mut writes = Vec::new();
    for (wanted, mut write) in retired.chain(detached) {
        if !wanted {
            write.bytes = image.bytes(write.at, write.bytes.len()).unwrap_or_default().to_vec();
        }
        writes.push(write);
    }
    Ok(writes)
}

/// P9: there is one instruction before each call of a program that does nothing and is as large as the jump past the call,
/// which takes its place: a CPU that is stopped anywhere goes on at an instruction.
fn judge_detachments(suite: &Suite, image: &Image, case: &Arc<Case>, tally: &mut Tally) -> Result<()> {
    let trampoline = case.attach;
    let contract = &suite.contracts[trampoline];
    let at = |pc| At { clause: Clause::P9, trampoline, pc };
    let found = detachments(suite, image, trampoline)?;
    let wanted = places(contract);
    if found.len() != usize::from(wanted) {
        let pc = image.symbol(&contract.name).map_or(0, |s| s.address);
        tally.judged(case, Finding::new(at(pc), Place::DetachLabels, u64::from(wanted), found.len() as u64));
    }
    for (_, Write { at: start, bytes }) in found {
        let code = decode(suite.backend.machine(), image.bytes(start, 16).unwrap_or_default(), start)?;
        let nothing = |d: &&Decoded| d.text.split(' ').next().is_some_and(|mnemonic| mnemonic.ends_with("nop"));
        let size = code.first().filter(nothing).map_or(0, |d| u64::from(d.size));
        tally.judged(case, Finding::new(at(start), Place::DetachSlot, bytes.len() as u64, size));
    }
    Ok(())
}

/// P9: where the function is called, there is a gap behind it and a place to go on, and nothing is in the gap that the
/// jump would overwrite.
pub(crate) fn judge_gap(suite: &Suite, image: &Image, case: &Arc<Case>, tally: &mut Tally) -> Result<()> {
    judge_detachments(suite, image, case, tally)?;
    let trampoline = case.attach;
    let contract = &suite.contracts[trampoline];
    let writes = retirement(suite, image, trampoline)?;
    let ends = || writes.iter().map(|w| w.at + w.bytes.len() as u64);
    let at = |pc| At { clause: Clause::P9, trampoline, pc };
    let (Some(start), Some(end)) = (writes.iter().map(|w| w.at).min(), ends().max()) else {
        let retires = contract.convention.has_label(KernelLabel::AfterCall);
        if retires && contract.kind.programs().is_some_and(|p| p.call_orig) {
            let pc = image.symbol(&contract.name).map_or(0, |s| s.address);
            tally.judged(case, Finding::new(at(pc), Place::RetiredLabels, 2, 0));
        }
        return Ok(());
    };
    let code = decode(suite.backend.machine(), image.bytes(start, 16).unwrap_or_default(), start)?;
    let nothing =
        code.iter().take_while(|d| d.text.split(' ').next().is_some_and(|mnemonic| mnemonic.ends_with("nop")));
    let found = nothing.map(|d| d.at + u64::from(d.size)).last().unwrap_or(start).min(end);
    tally.judged(case, Finding::new(at(start), Place::RetiredGap, end, found));
    Ok(())
}
