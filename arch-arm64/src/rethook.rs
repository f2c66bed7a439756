//! The trampoline of kretprobes: none of these steps has instructions here. The kernel's has a name and a frame of its own,
//! `__kretprobe_trampoline` (arch/arm64/kernel/probes/kprobes_trampoline.S).

use codegen::listing::Lowering;
use codegen::words::error::Result;
use codegen::words::step::Step;

use crate::insn::Insn;

/// Lower a step; false: it is as for others.
pub(crate) fn lower(step: Step, cx: &mut Lowering<Insn>) -> Result<bool> {
    match step {
        Step::Save | Step::TakeResult | Step::Free(_) => Err(cx.unsupported(step)),
        _ => Ok(false),
    }
}
