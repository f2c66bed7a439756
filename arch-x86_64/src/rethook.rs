//! The trampoline of kretprobes: its differences from others, because every register is in use.

use codegen::ask::frame::Content;
use codegen::listing::Lowering;
use codegen::words::error::Result;
use codegen::words::step::{Disp, Step};

use crate::insn::Insn;
use crate::regs::*;

/// What the words of the frame that C does not see pass through, once it is saved.
const TEMP: codegen::words::abi::Reg = RCX;
/// From the frame's end: the return address, where unwinders look for it, and the flags as they are pushed and popped, in the
/// last word of pt_regs.
const RETURN: i32 = -8;
const FLAGS: i32 = -16;

/// Lower a step; false: it is as for others.
pub(crate) fn lower(step: Step, cx: &mut Lowering<Insn>) -> Result<bool> {
    match step {
        Step::AllocReturn => {
            // It leaves the flags alone, which are not saved yet.
            cx.insn(Insn::Lea { dst: RSP, at: Disp::number(-8) });
            cx.depth += 8;
        }
        Step::Alloc => {
            // Without flags in the frame, nothing would give them back.
            if cx.depth != -FLAGS {
                return Err(cx.unsupported(step));
            }
            cx.insn(Insn::SubSp { imm: cx.frame_size(FLAGS) });
            cx.depth = cx.frame.size;
        }
        Step::Save => save(cx)?,
        Step::TakeResult => {
            cx.noted(Insn::Store { src: RAX, at: cx.frame_size(RETURN) }, "where the function returns to");
            let at = cx.slot(Content::Flags)?;
            cx.insn(Insn::Load { dst: RAX, at });
            cx.noted(Insn::Store { src: RAX, at: cx.frame_size(FLAGS) }, "flags");
        }
        Step::Free(_) => cx.insn(Insn::AddSp { imm: cx.frame_size(FLAGS) }),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Registers first: the others pass through one.
fn save(cx: &mut Lowering<Insn>) -> Result<()> {
    for i in 0..cx.frame.fields.len() {
        if let Content::Reg(src) = cx.frame.fields[i].content {
            cx.insn(Insn::Store { src, at: cx.field(i) });
        }
    }
    let sym = cx.symbol(cx.spec.name);
    cx.noted(Insn::LeaSym { dst: TEMP, sym }, "what was returned to: our own address");
    cx.noted(Insn::Store { src: TEMP, at: cx.frame_size(RETURN) }, "where unwinders look for it");
    if let Some(i) = cx.frame.find(Content::Pc) {
        cx.insn(Insn::Store { src: TEMP, at: cx.field(i) });
    }
    for i in 0..cx.frame.fields.len() {
        let at = cx.field(i);
        match cx.frame.fields[i].content {
            Content::Const(imm) => cx.insn(Insn::StoreImm { imm, at }),
            Content::Flags => {
                cx.insn(Insn::Load { dst: TEMP, at: cx.frame_size(FLAGS) });
                cx.insn(Insn::Store { src: TEMP, at });
            }
            Content::ExitSp => {
                cx.insn(Insn::Lea { dst: TEMP, at: cx.frame_size(0) });
                cx.insn(Insn::Store { src: TEMP, at });
            }
            Content::Reg(_) | Content::Unfilled | Content::Pc => {}
            _ => return Err(cx.unsupported(Step::Save)),
        }
    }
    Ok(())
}
