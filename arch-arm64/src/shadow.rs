//! The shadow stack of functions that are recorded, in the registers of their records.

use codegen::arch::facts::ThreadWord;
use codegen::listing::Lowering;
use codegen::words::abi::Reg;
use codegen::words::error::Result;
use codegen::words::recorder::Recorder;
use codegen::words::step::{Disp, ExitPath, Local, Step};

use crate::insn::Insn;
use crate::record::{self, Scratch};
use crate::regs::*;

/// Lower a step of it.
pub(crate) fn lower(step: Step, cx: &mut Lowering<Insn>) -> Result<()> {
    let top = cx.word(ThreadWord::Shadow)?;
    let Scratch { thread, slot: entry, value, returned, .. } = Scratch::of(cx.recorder()?);
    let (parent_ip, sp) = (Disp::number(0), Disp::number(Recorder::KEPT_SP));
    let kept = Recorder::KEPT;
    match step {
        Step::BranchIfNoRoomToReturn => {
            let limit = cx.word(ThreadWord::ShadowLimit)?;
            load_top(top, cx)?;
            cx.insn(Insn::LdrReg { dst: value, base: thread, at: limit });
            cx.insn(Insn::Cmp { reg: entry, with: value });
            cx.insn(Insn::BHs { to: Local::Path(ExitPath::Function) });
        }
        Step::PushReturn => {
            load_top(top, cx)?;
            // A signal handler's functions go above: the entry is taken before it is written.
            cx.insn(Insn::Add { dst: value, src: entry, imm: Disp::number(kept) });
            cx.insn(Insn::StrReg { src: value, base: thread, at: top });
            cx.noted(Insn::StrReg { src: X30, base: entry, at: parent_ip }, "parent_ip");
            behind_frame(value, cx);
            cx.noted(Insn::StrReg { src: value, base: entry, at: sp }, "sp when it has returned");
            cx.return_lost();
        }
        Step::FindReturn => {
            load_top(top, cx)?;
            behind_frame(returned, cx);
            cx.local(Local::Find);
            cx.insn(Insn::Sub { dst: entry, src: entry, imm: kept as u32 });
            cx.insn(Insn::LdrReg { dst: value, base: entry, at: sp });
            cx.insn(Insn::Cmp { reg: value, with: returned });
            cx.insn(Insn::BNe { to: Local::PassOver });
        }
        Step::PopReturn => {
            cx.noted(Insn::LdrReg { dst: X30, base: entry, at: parent_ip }, "parent_ip");
            cx.return_found();
            if returned == thread {
                record::thread(thread, cx)?;
            }
            cx.insn(Insn::StrReg { src: entry, base: thread, at: top });
        }
        Step::PassOver => {
            cx.insn(Insn::Cbnz { reg: value, to: Local::Find });
            cx.noted(Insn::Brk, "the function's entry is lost");
        }
        _ => return Err(cx.unsupported(step)),
    }
    Ok(())
}

/// The word that says where the next entry goes.
fn load_top(at: Disp, cx: &mut Lowering<Insn>) -> Result<()> {
    let Scratch { thread, slot: entry, .. } = Scratch::of(cx.recorder()?);
    record::thread(thread, cx)?;
    cx.insn(Insn::LdrReg { dst: entry, base: thread, at });
    Ok(())
}

/// SP as it is when the function has returned.
fn behind_frame(dst: Reg, cx: &mut Lowering<Insn>) {
    cx.insn(if cx.frame.size == 0 { Insn::MovFromSp { dst } } else { Insn::AddSp { dst, imm: cx.frame_size(0) } });
}
