//! The shadow stack of functions that are recorded: the registers that sites leave for scratch are all that it needs.

use codegen::arch::facts::NumberOf;
use codegen::listing::Lowering;
use codegen::words::abi::Reg;
use codegen::words::error::Result;
use codegen::words::recorder::Recorder;
use codegen::words::step::{Disp, ExitPath, Local, Step};

use crate::insn::Insn;
use crate::record::thread;
use crate::regs::*;

/// The thread pointer.
const THREAD: Reg = X10;
/// An entry, and a value of it.
const ENTRY: Reg = X11;
const VALUE: Reg = X12;
/// SP where the function has returned.
const RETURNED: Reg = X13;

/// Lower a step of it.
pub(crate) fn lower(step: Step, cx: &mut Lowering<Insn>) -> Result<()> {
    let top = cx.number(NumberOf::RecordShadow)?;
    let (parent_ip, sp) = (Disp::number(0), Disp::number(Recorder::KEPT_SP));
    let kept = Recorder::KEPT;
    match step {
        Step::BranchIfNoRoomToReturn => {
            let limit = cx.number(NumberOf::RecordShadowLimit)?;
            load_top(top, cx)?;
            cx.insn(Insn::LdrReg { dst: VALUE, base: THREAD, at: limit });
            cx.insn(Insn::Cmp { reg: ENTRY, with: VALUE });
            cx.insn(Insn::BHs { to: Local::Path(ExitPath::Function) });
        }
        Step::PushReturn => {
            load_top(top, cx)?;
            // A signal handler's functions go above: the entry is taken before it is written.
            cx.insn(Insn::Add { dst: VALUE, src: ENTRY, imm: Disp::number(kept) });
            cx.insn(Insn::StrReg { src: VALUE, base: THREAD, at: top });
            cx.noted(Insn::StrReg { src: X30, base: ENTRY, at: parent_ip }, "parent_ip");
            cx.insn(Insn::MovFromSp { dst: VALUE });
            cx.noted(Insn::StrReg { src: VALUE, base: ENTRY, at: sp }, "sp when it has returned");
            cx.return_lost();
        }
        Step::FindReturn => {
            load_top(top, cx)?;
            cx.insn(Insn::MovFromSp { dst: RETURNED });
            cx.local(Local::Find);
            cx.insn(Insn::Sub { dst: ENTRY, src: ENTRY, imm: kept as u32 });
            cx.insn(Insn::LdrReg { dst: VALUE, base: ENTRY, at: sp });
            cx.insn(Insn::Cmp { reg: VALUE, with: RETURNED });
            cx.insn(Insn::BNe { to: Local::PassOver });
        }
        Step::PopReturn => {
            cx.noted(Insn::LdrReg { dst: X30, base: ENTRY, at: parent_ip }, "parent_ip");
            cx.return_found();
            cx.insn(Insn::StrReg { src: ENTRY, base: THREAD, at: top });
        }
        Step::PassOver => {
            cx.insn(Insn::Cbnz { reg: VALUE, to: Local::Find });
            cx.noted(Insn::Brk, "the function's entry is lost");
        }
        _ => return Err(cx.unsupported(step)),
    }
    Ok(())
}

/// The word that says where the next entry goes.
fn load_top(at: Disp, cx: &mut Lowering<Insn>) -> Result<()> {
    thread(THREAD, cx)?;
    cx.insn(Insn::LdrReg { dst: ENTRY, base: THREAD, at });
    Ok(())
}
