//! The options.

use codegen::spec::{Around, Form, Kind, Regs};

codegen::options! {
    FpTest = "fp-test" { Off = "off", On = "on" }
        "save and restore s0, as HAVE_FUNCTION_GRAPH_FP_TEST wants it",
        applies: |kind| {
            kind == Kind::Entry(Regs::Args)
                || matches!(kind, Kind::Around(Around { form: Form::Fregs | Form::Shadow, .. }))
        }, apart: false;
    CallOps = "call-ops" { Off = "off", On = "on" }
        "op comes from the literal before the function, and may name a direct trampoline",
        applies: has_fregs, apart: false;
    Compiler = "compiler" { Gcc = "gcc", Clang = "clang" }
        "who built the kernel: clang's local functions may have arguments in t2 to t6, which are kept then",
        applies: has_fregs, apart: false;
    Rvc = "rvc" { On = "on", Off = "off" }
        "compressed instructions; the 8-byte call slot stays 8 bytes",
        applies: |_| true, apart: false;
    FloatAbi = "abi" { Soft = "lp64", Double = "lp64d" }
        "float ABI in e_flags: soft for kernels, double for user code",
        applies: |_| true, apart: false;
    FrameRecords = "frame-records" { Off = "off", On = "on" }
        "two frame records, without which an unwinder that follows frame pointers loses two callers",
        applies: |kind| matches!(kind, Kind::Direct(_)), apart: false;
}

/// Its frame is `struct ftrace_regs`.
fn has_fregs(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Entry(Regs::Args) | Kind::Return | Kind::Around(Around { form: Form::Fregs | Form::Shadow, .. })
    )
}
