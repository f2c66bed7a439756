//! The shadow stack of functions that are recorded: [`ENTRY`] is all that it needs, and the flags.

use codegen::arch::facts::ThreadWord;
use codegen::listing::Lowering;
use codegen::words::abi::Reg;
use codegen::words::error::Result;
use codegen::words::recorder::Recorder;
use codegen::words::step::{Disp, ExitPath, Local, Step};

use crate::insn::Insn;
use crate::record::word;
use crate::regs::*;

/// An entry: free at a function's entry and at its end.
const ENTRY: Reg = R11;
/// A value of it, where the frame has saved both.
const VALUE: Reg = RAX;

/// Lower a step of it.
pub(crate) fn lower(step: Step, cx: &mut Lowering<Insn>) -> Result<()> {
    let (top, kept) = (word(ThreadWord::Shadow, cx)?, Recorder::KEPT as i8);
    let keeps_all = cx.recorder()?.keeps_all;
    match step {
        Step::BranchIfNoRoomToReturn => {
            let limit = word(ThreadWord::ShadowLimit, cx)?;
            cx.insn(Insn::LoadThread { dst: ENTRY, at: top });
            cx.insn(Insn::CmpThread { reg: ENTRY, at: limit });
            cx.insn(Insn::JaeFar { to: Local::Path(ExitPath::Function) });
        }
        Step::PushReturn => {
            cx.insn(Insn::LoadThread { dst: ENTRY, at: top });
            // A signal handler's functions go above: the entry is taken before it is written. What one that came before that has
            // left there is gone.
            cx.insn(Insn::Add { dst: ENTRY, imm: kept });
            cx.insn(Insn::StoreThread { src: ENTRY, at: top });
            let mut sp = RSP;
            if keeps_all {
                sp = VALUE;
                cx.noted(Insn::Load { dst: VALUE, at: cx.frame_size(0) }, "parent_ip");
                cx.insn(Insn::StoreSlot { src: VALUE, at: -Recorder::KEPT });
                cx.insn(Insn::Lea { dst: VALUE, at: behind_return(cx) });
            } else {
                cx.noted(Insn::PopSlot { at: -Recorder::KEPT }, "parent_ip");
            }
            cx.return_lost();
            let at = Recorder::KEPT_SP - Recorder::KEPT;
            cx.noted(Insn::StoreSlot { src: sp, at }, "sp when it has returned");
        }
        Step::FindReturn => {
            cx.insn(Insn::LoadThread { dst: ENTRY, at: top });
            let mut reg = RSP;
            if keeps_all {
                reg = VALUE;
                cx.insn(Insn::Lea { dst: VALUE, at: behind_return(cx) });
            }
            cx.local(Local::Find);
            cx.insn(Insn::Sub { dst: ENTRY, imm: kept });
            cx.insn(Insn::CmpSlot { reg, at: Recorder::KEPT_SP });
            cx.insn(Insn::JnzFar { to: Local::PassOver });
        }
        Step::PopReturn => {
            if keeps_all {
                cx.noted(Insn::LoadSlot { dst: VALUE, at: 0 }, "parent_ip");
                cx.insn(Insn::Store { src: VALUE, at: cx.frame_size(0) });
            } else {
                cx.noted(Insn::PushSlot { at: 0 }, "parent_ip");
            }
            cx.return_found();
            cx.insn(Insn::StoreThread { src: ENTRY, at: top });
        }
        Step::PassOver => {
            cx.insn(Insn::CmpSlotZero { at: Recorder::KEPT_SP });
            cx.insn(Insn::JnzFar { to: Local::Find });
            cx.noted(Insn::Int3, "the function's entry is lost");
        }
        _ => return Err(cx.unsupported(step)),
    }
    Ok(())
}

/// SP as it is when the function has returned: above the frame and parent_ip.
fn behind_return(cx: &Lowering<Insn>) -> Disp {
    cx.frame_size(8)
}
