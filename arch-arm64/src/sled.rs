//! Trampolines that are called in the middle of a function: every register is live, at its full width.

use codegen::ask::frame::{Content, Field, FrameLayout, Record, Stores, field};
use codegen::ask::option::Choices;

use crate::regs::*;

const SAVED: [(&str, codegen::words::abi::Reg); 19] = [
    ("SAVED_X0", X0),
    ("SAVED_X1", X1),
    ("SAVED_X2", X2),
    ("SAVED_X3", X3),
    ("SAVED_X4", X4),
    ("SAVED_X5", X5),
    ("SAVED_X6", X6),
    ("SAVED_X7", X7),
    ("SAVED_X8", X8),
    ("SAVED_X9", X9),
    ("SAVED_X10", X10),
    ("SAVED_X11", X11),
    ("SAVED_X12", X12),
    ("SAVED_X13", X13),
    ("SAVED_X14", X14),
    ("SAVED_X15", X15),
    ("SAVED_X16", X16),
    ("SAVED_X17", X17),
    ("SAVED_X18", X18),
];

/// Of v8 to v15, C functions keep the lower halves alone.
const VECTORS: [&str; 32] = [
    "SAVED_Q0",
    "SAVED_Q1",
    "SAVED_Q2",
    "SAVED_Q3",
    "SAVED_Q4",
    "SAVED_Q5",
    "SAVED_Q6",
    "SAVED_Q7",
    "SAVED_Q8",
    "SAVED_Q9",
    "SAVED_Q10",
    "SAVED_Q11",
    "SAVED_Q12",
    "SAVED_Q13",
    "SAVED_Q14",
    "SAVED_Q15",
    "SAVED_Q16",
    "SAVED_Q17",
    "SAVED_Q18",
    "SAVED_Q19",
    "SAVED_Q20",
    "SAVED_Q21",
    "SAVED_Q22",
    "SAVED_Q23",
    "SAVED_Q24",
    "SAVED_Q25",
    "SAVED_Q26",
    "SAVED_Q27",
    "SAVED_Q28",
    "SAVED_Q29",
    "SAVED_Q30",
    "SAVED_Q31",
];

/// The frame record, and what C functions may overwrite: vector registers last, which can be reached farther away.
pub(crate) fn frame(_: Choices) -> FrameLayout {
    const RECORD: i32 = 16;
    // Of q0, and so on.
    const VECTOR: i32 = 16;
    let slot = |symbol, at, content| field(symbol, "", at, content, Stores::Hidden);
    let general = |(i, (symbol, reg))| slot(symbol, RECORD + 8 * i, Content::Reg(reg));
    let mut fields: Vec<Field> = (0..).zip(SAVED).map(general).collect();
    let vectors = (RECORD + 8 * fields.len() as i32 + 15) & !15;
    fields.extend(
        (0..).zip(VECTORS).map(|(v, symbol)| slot(symbol, vectors + VECTOR * i32::from(v), Content::Vector(v))),
    );
    let records = vec![Record { symbol: "RECORD", offset: 0, ret: Content::Pc }];
    let size = vectors + VECTOR * VECTORS.len() as i32;
    FrameLayout { size_symbol: "FRAME_SIZE", size, fields, records, ..FrameLayout::empty() }
}
