//! Trampolines that are called in the middle of a function: every register is live, at its full width.

use codegen::ask::frame::{Content, Field, FrameLayout, Record, Stores, field};
use codegen::ask::option::Choices;
use codegen::effect::action::StateArea;

use crate::regs::*;

/// x87, SSE, AVX, and of AVX-512 the mask registers, the upper halves of zmm0 to zmm15, and zmm16 to zmm31 (Intel SDM volume 1,
/// 13.1): these C functions may overwrite, and AMX's they may not leave in use. Behind the legacy region and the header, a
/// compacted area has them one behind the other (13.4).
pub(crate) const STATE: StateArea =
    StateArea { mask: [RAX, RDX], components: 0xe7, bytes: 512 + 64 + 256 + 64 + 512 + 1024, reserved: (528, 576) };

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
