//! P27: what the objects' notes promise of each trampoline.

use std::sync::Arc;

use codegen::arch::facts::Promise;
use codegen::contract::Contract;
use codegen::words::error::Result;
use link::Input;
use link::origin::origin;

use crate::judge::rig::Rig;
use crate::judge::tally::Tally;
use crate::judge::trace::{At, Finding};
use crate::marks::{Holds, Mark, MarkVerdict, Reason, marks};
use crate::report::Clause;
use crate::report::place::{MarkOf, Place};
use crate::run::case::Case;

/// Hold the notes against the trampolines. Of a kernel's objects nobody reads them, and where no object has one, nobody promises
/// anything.
pub(crate) fn judge_marks(rig: &Rig, case: &Arc<Case>, tally: &mut Tally) -> Result<()> {
    let suite = rig.suite;
    let Some(features) = suite.backend.facts().marks.as_ref().map(|marks| marks.features) else { return Ok(()) };
    if suite.convention.kernel.is_some() {
        return Ok(());
    }
    let inputs: Vec<Input> = suite.objects.iter().map(|(name, bytes)| Input { name, bytes }).collect();
    let objects = marks(&inputs, suite.backend)?;
    if objects.iter().all(|object| object.noted.is_none()) {
        return Ok(());
    }
    let contract_of = |name: &str| suite.contracts.iter().find(|contract| contract.name == name);
    for (input, object) in inputs.iter().zip(&objects) {
        let defines = origin(suite.backend, input)?.functions;
        let here = suite.contracts.iter().enumerate().filter(|(_, contract)| defines.contains(&contract.name));
        for (trampoline, contract) in here {
            let at = At { clause: Clause::P27, trampoline, pc: rig.ranges[trampoline].0 };
            for (mark, feature) in object.marks.iter().zip(features) {
                let Some(wanted) = wanted(&contract.name, mark, feature.promise, &contract_of) else { continue };
                let place = Place::Mark { what: MarkOf(feature.promise) };
                tally.judged(case, Finding::new(at, place, u64::from(wanted), u64::from(mark.noted)));
            }
        }
    }
    Ok(())
}

/// Must the note have the mark, as far as this trampoline is concerned? `None` if that was not decided.
fn wanted<'c>(
    trampoline: &str,
    mark: &Mark,
    promise: Promise,
    contract_of: &dyn Fn(&str) -> Option<&'c Contract>,
) -> Option<bool> {
    if mark.holds == Holds::Idly {
        return Some(mark.noted || mark.verdict == MarkVerdict::Missing);
    }
    // Who reaches a trampoline by a register is known to its contract; how its returns are paired is too, and P14 sees them.
    let open = |reason: &&Reason| match (contract_of(&reason.function), promise) {
        (Some(contract), Promise::Pads) => contract.entry_pad || !contract.landing_pad || reason.offset != 0,
        (Some(contract), Promise::Paired) if !reason.certain => !paired(contract),
        _ => true,
    };
    // What the note has breaks in its own code; what it lacks, in any of the object.
    let mine =
        |reason: &&Reason| !mark.noted || reason.function == trampoline || contract_of(&reason.function).is_none();
    let reasons: Vec<&Reason> = mark.reasons.iter().filter(mine).filter(open).collect();
    let unpaired = |reason: &Reason| {
        promise == Promise::Paired && contract_of(&reason.function).is_some_and(|contract| !paired(contract))
    };
    match (reasons.iter().any(|reason| reason.certain || unpaired(reason)), reasons.is_empty()) {
        (true, _) => Some(false),
        (false, true) => Some(true),
        (false, false) => None,
    }
}

/// Does each return go where its call came from? What is returned to has no call, whatever else its contract says.
fn paired(contract: &Contract) -> bool {
    contract.is_paired() && !contract.kind.returned_to()
}
