//! Code that is retired: the jump past the programs that come after the traced function, and its gap (P9).

use std::sync::Arc;

use codegen::error::Result;
use codegen::patch::{Branch, Write};
use codegen::step::KernelLabel;
use link::Image;

use crate::case::Case;
use crate::disasm::decode;
use crate::place::Place;
use crate::report::Clause;
use crate::suite::Suite;
use crate::tally::Tally;
use crate::trace::{At, Finding};

/// The jump past the programs that come after the function, from the gap behind its call; nothing if the trampoline at the
/// site has no such gap.
fn retirement(suite: &Suite, image: &Image, trampoline: usize) -> Result<Vec<Write>> {
    let contract = &suite.contracts[trampoline];
    let place =
        |label: KernelLabel| image.symbol(&contract.convention.label(label, &contract.name, contract.kind).concat());
    let (Some(_), Some(gap), Some(to)) =
        (contract.kind.programs(), place(KernelLabel::AfterCall), place(KernelLabel::Epilogue))
    else {
        return Ok(Vec::new());
    };
    let bytes = suite.backend.branch(Branch::SiteJump, gap.address, to.address)?;
    Ok(vec![Write { at: gap.address, bytes }])
}

/// What puts that jump into its gap for a case that wants it, or what was there before.
pub(crate) fn gap(suite: &Suite, image: &Image, case: &Case) -> Result<Vec<Write>> {
    let mut writes = retirement(suite, image, case.attach)?;
    if !case.situation.retired() {
        for write in &mut writes {
            write.bytes = image.bytes(write.at, write.bytes.len()).unwrap_or_default().to_vec();
        }
    }
    Ok(writes)
}

/// P9: where the function is called, there is a gap behind it and a place to go on, and nothing is in the gap that the
/// jump would overwrite.
pub(crate) fn judge_gap(suite: &Suite, image: &Image, case: &Arc<Case>, tally: &mut Tally) -> Result<()> {
    let trampoline = case.attach;
    let contract = &suite.contracts[trampoline];
    let writes = retirement(suite, image, trampoline)?;
    let ends = || writes.iter().map(|w| w.at + w.bytes.len() as u64);
    let at = |pc| At { clause: Clause::P9, trampoline, pc };
    let (Some(start), Some(end)) = (writes.iter().map(|w| w.at).min(), ends().max()) else {
        if contract.kind.programs().is_some_and(|p| p.call_orig) {
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
