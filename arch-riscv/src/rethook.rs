//! The trampoline of kretprobes: its differences from others, because every register is in use.

use codegen::ask::frame::Content;
use codegen::listing::Lowering;
use codegen::words::error::Result;
use codegen::words::step::{Disp, Local, Step};

use crate::insn::Insn;
use crate::regs::*;

/// What all but registers passes through, once it is saved.
const TEMP: codegen::words::abi::Reg = T1;

/// Lower a step; false: it is as for others.
pub(crate) fn lower(step: Step, cx: &mut Lowering<Insn>) -> Result<bool> {
    match step {
        Step::Save => save(cx)?,
        Step::TakeResult => {
            let at = cx.slot(Content::Reg(RA))?;
            cx.noted(Insn::Sd { src: A0, at }, "where the function returns to");
        }
        Step::Free(_) => {
            // RET needs a call to pair with.
            cx.insn(Insn::JalLocal { to: Local::Rebalance });
            cx.insn(Insn::Ebreak);
            cx.local(Local::Rebalance);
            let at = cx.slot(Content::Reg(RA))?;
            cx.noted(Insn::Ld { dst: RA, at }, "as after an ordinary return");
            cx.insn(Insn::Addi { dst: SP, src: SP, imm: cx.frame_size(0) });
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Registers first: the others pass through one.
fn save(cx: &mut Lowering<Insn>) -> Result<()> {
    for i in 0..cx.frame.fields.len() {
        if let Content::Reg(src) = cx.frame.fields[i].content {
            cx.insn(Insn::Sd { src, at: cx.field(i) });
        }
    }
    for i in 0..cx.frame.fields.len() {
        let at = cx.field(i);
        match cx.frame.fields[i].content {
            Content::Pc => cx.noted(Insn::Sd { src: RA, at }, "what was returned to: our own address"),
            Content::ExitSp => {
                cx.insn(Insn::Addi { dst: TEMP, src: SP, imm: cx.frame_size(0) });
                cx.noted(Insn::Sd { src: TEMP, at }, "sp when the return arrived");
            }
            Content::Const(n) if (-2048..2048).contains(&n) => {
                cx.insn(Insn::Addi { dst: TEMP, src: ZERO, imm: Disp::number(n) });
                cx.insn(Insn::Sd { src: TEMP, at });
            }
            Content::Reg(_) | Content::Unfilled => {}
            _ => return Err(cx.unsupported(Step::Save)),
        }
    }
    Ok(())
}
