//! What a trampoline costs: counted on the listing, path by path.

use serde::Serialize;

use crate::code::CodeBuf;
use crate::error::Result;
use crate::isa::{Flow, Isa, SpEffect};
use crate::listing::{Line, Listing, Local};
use crate::spec::Spec;
use crate::target::Target;

/// One way through a trampoline. The callback's own instructions are not counted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PathCost {
    /// `plain`, or the suffix of the label that it leaves through.
    pub path: &'static str,
    /// Instructions executed.
    pub executed: u32,
    /// 8-byte slots read, including a return's pop.
    pub loads: u32,
    /// 8-byte slots written, including a call's push.
    pub stores: u32,
}

/// The cost of one trampoline.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Cost {
    /// Bytes of code.
    pub bytes: u32,
    /// Instructions in the code.
    pub instructions: u32,
    /// Most bytes of stack below SP at the trampoline's entry, without what the callback uses.
    pub stack: i32,
    /// The ways through.
    pub paths: Vec<PathCost>,
}

pub(crate) fn cost<I: Isa>(_: &Spec, target: &Target, listing: &Listing<I::Insn>) -> Result<Cost> {
    let mut code = CodeBuf::default();
    let mut total = Cost { bytes: 0, instructions: 0, stack: 0, paths: Vec::new() };
    for line in &listing.lines {
        if let Line::Insn(insn, _) = *line {
            I::encode(insn, target, &mut code)?;
            total.instructions += 1;
        }
    }
    total.bytes = code.bytes.len() as u32;
    let zero = PathCost { path: "plain", executed: 0, loads: 0, stores: 0 };
    walk::<I>(listing, 0, 0, zero, &mut total);
    Ok(total)
}

fn find<I: Isa>(listing: &Listing<I::Insn>, local: Local) -> usize {
    listing.lines.iter().position(|l| matches!(l, Line::Local(x) if *x == local)).unwrap_or(listing.lines.len())
}

/// Labels lie behind the branches to them, so every walk ends.
fn walk<I: Isa>(listing: &Listing<I::Insn>, from: usize, mut depth: i32, mut path: PathCost, total: &mut Cost) {
    let mut at = from;
    while let Some(line) = listing.lines.get(at) {
        at += 1;
        let Line::Insn(insn, _) = *line else { continue };
        let effects = I::effects(insn);
        path.executed += 1;
        path.loads += u32::from(effects.loads);
        path.stores += u32::from(effects.stores);
        if let SpEffect::Move(by) = effects.sp {
            depth -= by;
        }
        let pushed_by_call = if effects.flow == Flow::Call { 8 * i32::from(effects.stores) } else { 0 };
        total.stack = total.stack.max(depth + pushed_by_call);
        match effects.flow {
            Flow::Next | Flow::Call => {}
            Flow::Jump(local) => at = find::<I>(listing, local),
            Flow::Branch(local) => {
                let taken = PathCost { path: local.suffix(), ..path.clone() };
                walk::<I>(listing, find::<I>(listing, local), depth, taken, total);
            }
            Flow::Leave | Flow::Trap => {
                total.paths.push(path);
                // Branches were walked before this; the plain path comes first in reports.
                total.paths.rotate_right(1);
                return;
            }
        }
    }
}
