//! The shadow stack of functions that are recorded: t1 and t3 to t5 are free at a function's entry and at its end, and are all
//! that it needs.

use codegen::arch::facts::ThreadWord;
use codegen::listing::Lowering;
use codegen::words::abi::Reg;
use codegen::words::error::Result;
use codegen::words::recorder::Recorder;
use codegen::words::step::{Disp, ExitPath, Local, Step};

use crate::insn::Insn;
use crate::record::thread;
use crate::regs::*;

/// An entry, and the one above it or SP where the function has returned.
const ENTRY: Reg = T3;
const ABOVE: Reg = T4;

/// Lower a step of it.
pub(crate) fn lower(step: Step, cx: &mut Lowering<Insn>) -> Result<()> {
    let top = cx.word(ThreadWord::Shadow)?;
    let (parent_ip, sp) = (Disp::number(0), Disp::number(Recorder::KEPT_SP));
    let keeps_all = cx.recorder()?.keeps_all;
    // Of an entry.
    let value = if keeps_all { T1 } else { T5 };
    let moved = |dst: Reg, by: i32| Insn::Addi { dst, src: ENTRY, imm: Disp::number(by) };
    match step {
        Step::BranchIfNoRoomToReturn => {
            let limit = cx.word(ThreadWord::ShadowLimit)?;
            let base = thread(ABOVE, cx)?;
            cx.insn(Insn::LdReg { dst: ENTRY, base, at: top });
            cx.insn(Insn::LdReg { dst: value, base, at: limit });
            cx.insn(Insn::Bgeu { reg: ENTRY, with: value, to: Local::Path(ExitPath::Function) });
        }
        Step::PushReturn => {
            let base = thread(value, cx)?;
            cx.insn(Insn::LdReg { dst: ENTRY, base, at: top });
            // A signal handler's functions go above: the entry is taken before it is written.
            cx.insn(moved(ABOVE, Recorder::KEPT));
            cx.insn(Insn::SdReg { src: ABOVE, base, at: top });
            cx.noted(Insn::SdReg { src: RA, base: ENTRY, at: parent_ip }, "parent_ip");
            let src = returned(cx);
            cx.noted(Insn::SdReg { src, base: ENTRY, at: sp }, "sp when it has returned");
            cx.return_lost();
        }
        Step::FindReturn => {
            let base = thread(ENTRY, cx)?;
            cx.insn(Insn::LdReg { dst: ENTRY, base, at: top });
            let with = returned(cx);
            cx.local(Local::Find);
            cx.insn(moved(ENTRY, -Recorder::KEPT));
            cx.insn(Insn::LdReg { dst: value, base: ENTRY, at: sp });
            cx.insn(Insn::Bne { reg: value, with, to: Local::PassOver });
        }
        Step::PopReturn => {
            cx.noted(Insn::LdReg { dst: RA, base: ENTRY, at: parent_ip }, "parent_ip");
            cx.return_found();
            let base = thread(value, cx)?;
            cx.insn(Insn::SdReg { src: ENTRY, base, at: top });
        }
        Step::PassOver => {
            cx.insn(Insn::Bnez { reg: value, to: Local::Find });
            cx.noted(Insn::Ebreak, "the function's entry is lost");
        }
        _ => return Err(cx.unsupported(step)),
    }
    Ok(())
}

/// The register with SP as it is when the function has returned.
fn returned(cx: &mut Lowering<Insn>) -> Reg {
    if cx.frame.size == 0 {
        return SP;
    }
    cx.insn(Insn::Addi { dst: ABOVE, src: SP, imm: cx.frame_size(0) });
    ABOVE
}
