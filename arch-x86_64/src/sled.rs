//! Trampolines that are called in the middle of a function: every register is live, at its full width.

use codegen::error::Result;
use codegen::frame::{Content, Field, FrameLayout, Record, Stores, field};
use codegen::listing::Lowering;
use codegen::option::Choices;
use codegen::step::{Disp, Name, Step};

use crate::insn::{Insn, STATE};
use crate::regs::*;

/// Of an XSAVE area, whose size is a multiple of it.
const ALIGN: i8 = 64;

/// What C functions may overwrite, and above that the caller's rbp, below the return address.
pub(crate) fn frame(_: Choices) -> FrameLayout {
    let slots = [
        ("SAVED_RAX", RAX),
        ("SAVED_RCX", RCX),
        ("SAVED_RDX", RDX),
        ("SAVED_RSI", RSI),
        ("SAVED_RDI", RDI),
        ("SAVED_R8", R8),
        ("SAVED_R9", R9),
        ("SAVED_R10", R10),
        ("SAVED_R11", R11),
    ];
    let slot =
        |(i, (symbol, reg)): (i32, (&'static str, _))| field(symbol, "", 8 * i, Content::Reg(reg), Stores::Hidden);
    let fields: Vec<Field> = (0..).zip(slots).map(slot).collect();
    let above = 8 * fields.len() as i32;
    let records = vec![Record { symbol: "RECORD", offset: above, ret: Content::Pc }];
    FrameLayout { size_symbol: "FRAME_SIZE", size: above + 8, fields, records, ..FrameLayout::empty() }
}

/// Lower a step; false: it is as for others.
pub(crate) fn lower(step: Step, cx: &mut Lowering<Insn>) -> Result<bool> {
    match step {
        Step::SaveState => save(cx),
        Step::RestoreState => {
            mask(cx);
            cx.noted(Insn::Xrstor, "x87, SSE, AVX and AVX-512 state");
            let back = Disp { value: -cx.record(0, 0).value, name: Name::Record(0) };
            cx.insn(Insn::LeaSpFromBp { at: back });
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// XSAVEC leaves alone what XRSTOR wants to be 0 in the header (Intel SDM volume 1, 13.4.2 and 13.8).
fn save(cx: &mut Lowering<Insn>) {
    cx.insn(Insn::AndSp { imm: -ALIGN });
    cx.noted(Insn::SubSp { imm: Disp::number(STATE.bytes) }, "XSAVE area");
    let (from, to) = STATE.reserved;
    for at in (from..to).step_by(8) {
        cx.insn(Insn::StoreImm { imm: 0, at: Disp::number(at) });
    }
    mask(cx);
    cx.noted(Insn::Xsavec, "x87, SSE, AVX and AVX-512 state");
}

/// Which components.
fn mask(cx: &mut Lowering<Insn>) {
    cx.insn(Insn::MovImm { dst: RAX, imm: STATE.components });
    cx.insn(Insn::MovImm { dst: RDX, imm: 0 });
}
