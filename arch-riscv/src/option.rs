//! The options.

use codegen::ask::option::Pad;
use codegen::ask::spec::{Around, Form, Kind, Regs};

codegen::options! {
    FpTest = "fp-test" { Off = "off", On = "on" }
        "save and restore s0, for HAVE_FUNCTION_GRAPH_FP_TEST",
        applies: |kind, _| {
            kind == Kind::Entry(Regs::Args)
                || matches!(kind, Kind::Around(Around { form: Form::Fregs | Form::Shadow, .. }))
        }, apart: false;
    CallOps = "call-ops" { Off = "off", On = "on" }
        "take op from the literal before the function; op can name a direct trampoline",
        applies: |kind, _| has_fregs(kind), apart: false;
    Compiler = "compiler" { Gcc = "gcc", Clang = "clang" }
        "who built the kernel; clang passes arguments of local functions in t2 to t6 too, so they are preserved",
        applies: |kind, _| has_fregs(kind), apart: false;
    Rvc = "rvc" { On = "on", Off = "off" }
        "use compressed instructions; call slots stay 8 bytes",
        applies: |_, _| true, apart: false;
    FloatAbi = "abi" { Soft = "lp64", Double = "lp64d" }
        "float ABI in e_flags: soft for kernels, double for user code",
        applies: |_, _| true, apart: false;
    Vectors = "vectors" { None = "none", Save = "save" }
        "save fa0 to fa7, and fa0 and fa1 at returns, of the ABI lp64d, so that handlers may use vector registers",
        applies: |kind, _| kind.may_lose_vectors(), apart: true;
    Lpad = "lpad" { Off = "off", On = "on" }
        "an LPAD landing pad, for Zicfilp, and the property note; older linkers warn of the note",
        applies: |_, pad| pad == Pad::First, apart: true;
    FrameRecords = "frame-records" { Off = "off", On = "on" }
        "store two frame records; without them an unwinder by frame pointers misses two callers",
        applies: |kind, _| matches!(kind, Kind::Direct(_)), apart: false;
    GuardReturn = "guard-return" { Off = "off", Zicfiss = "zicfiss", Scs = "scs" }
        "guard the return address that is in the frame: zicfiss pushes it onto the CPU's shadow stack too, SSPUSH before and SSPOPCHK after; scs returns by the shadow call stack, whose pointer is gp",
        applies: |kind, _| kind.stores_return(), apart: true;
    Cfi = "cfi" { Off = "off", Kcfi = "kcfi" }
        "the type of functions that are called through pointers, before them, for CONFIG_CFI: of kernels without CALL_OPS",
        applies: |kind, _| kind.is_callback(), apart: true;
}

/// Its frame is `struct ftrace_regs`.
fn has_fregs(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Entry(Regs::Args) | Kind::Return | Kind::Around(Around { form: Form::Fregs | Form::Shadow, .. })
    )
}
