//! The options.

use codegen::spec::{Kind, Regs};

codegen::options! {
    CallOps = "call-ops" { On = "on", Off = "off" }
        "op comes from the literal before the function, and may name a direct trampoline",
        applies: |kind| kind == Kind::Entry(Regs::Args), apart: false;
    FrameRecords = "frame-records" { On = "on", Off = "off" }
        "two frame records, without which a stack trace loses two callers",
        applies: |kind| matches!(kind, Kind::Direct(_)), apart: false;
}
