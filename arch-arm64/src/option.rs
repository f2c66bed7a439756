//! The options.

use codegen::ask::spec::{Kind, Regs};

codegen::options! {
    CallOps = "call-ops" { On = "on", Off = "off" }
        "take op from the literal before the function; op can name a direct trampoline",
        applies: |kind, _| kind == Kind::Entry(Regs::Args), apart: false;
    Vectors = "vectors" { None = "none", Save = "save" }
        "save q0 to q7, and q0 to q3 at returns, so that handlers may use vector registers",
        applies: |kind, _| kind.may_lose_vectors(), apart: true;
    FrameRecords = "frame-records" { On = "on", Off = "off" }
        "store two frame records; without them a stack trace misses two callers",
        applies: |kind, _| matches!(kind, Kind::Direct(_)), apart: false;
    GuardReturn = "guard-return" { Off = "off", Pac = "pac", Scs = "scs" }
        "guard the return address that is in the frame: pac signs it, PACIASP before and AUTIASP after, with the key of the thread; scs returns by the shadow call stack, whose pointer is x18",
        applies: |kind, _| kind.stores_return(), apart: true;
    Cfi = "cfi" { Off = "off", Kcfi = "kcfi" }
        "the type of functions that are called through pointers, before them, for CONFIG_CFI: of kernels without CALL_OPS",
        applies: |kind, _| kind.is_callback(), apart: true;
}
