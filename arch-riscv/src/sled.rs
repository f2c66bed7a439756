//! Trampolines that are called in the middle of a function: every register is live, at its full width.

use codegen::ask::frame::{Content, Field, FrameLayout, Record, Stores, field};
use codegen::ask::option::Choices;

use crate::option::FloatAbi;
use crate::regs::*;

const SAVED: [(&str, codegen::words::abi::Reg); 15] = [
    ("SAVED_T0", T0),
    ("SAVED_T1", T1),
    ("SAVED_T2", T2),
    ("SAVED_A0", A0),
    ("SAVED_A1", A1),
    ("SAVED_A2", A2),
    ("SAVED_A3", A3),
    ("SAVED_A4", A4),
    ("SAVED_A5", A5),
    ("SAVED_A6", A6),
    ("SAVED_A7", A7),
    ("SAVED_T3", T3),
    ("SAVED_T4", T4),
    ("SAVED_T5", T5),
    ("SAVED_T6", T6),
];

/// ft0 to ft7, fa0 to fa7, ft8 to ft11.
const VECTORS: [(&str, u8); 20] = [
    ("SAVED_FT0", 0),
    ("SAVED_FT1", 1),
    ("SAVED_FT2", 2),
    ("SAVED_FT3", 3),
    ("SAVED_FT4", 4),
    ("SAVED_FT5", 5),
    ("SAVED_FT6", 6),
    ("SAVED_FT7", 7),
    ("SAVED_FA0", 10),
    ("SAVED_FA1", 11),
    ("SAVED_FA2", 12),
    ("SAVED_FA3", 13),
    ("SAVED_FA4", 14),
    ("SAVED_FA5", 15),
    ("SAVED_FA6", 16),
    ("SAVED_FA7", 17),
    ("SAVED_FT8", 28),
    ("SAVED_FT9", 29),
    ("SAVED_FT10", 30),
    ("SAVED_FT11", 31),
];

/// What C functions may overwrite, and above that the frame record.
pub(crate) fn frame(choices: Choices) -> FrameLayout {
    const RECORD: i32 = 16;
    let double = choices.option::<FloatAbi>() == FloatAbi::Double;
    let general = SAVED.iter().map(|(symbol, reg)| (*symbol, Content::Reg(*reg)));
    let vectors = VECTORS.iter().filter(|_| double).map(|(symbol, v)| (*symbol, Content::Vector(*v)));
    let slot = |(i, (symbol, content))| field(symbol, "", 8 * i, content, Stores::Hidden);
    let fields: Vec<Field> = (0..).zip(general.chain(vectors)).map(slot).collect();
    let above = (8 * fields.len() as i32 + 15) & !15;
    let records = vec![Record { symbol: "RECORD", offset: above, ret: Content::Pc }];
    FrameLayout { size_symbol: "FRAME_SIZE", size: above + RECORD, fields, records, ..FrameLayout::empty() }
}
