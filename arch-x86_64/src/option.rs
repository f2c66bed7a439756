//! The options.

use codegen::spec::{Kind, Regs};

codegen::options! {
    Unwinder = "unwinder" { Orc = "orc", Fp = "fp" }
        "frame records for an unwinder that follows frame pointers",
        applies: |kind| matches!(kind, Kind::Entry(_)), apart: false;
    Endbr = "endbr" { On = "on", Off = "off" }
        "an ENDBR64 landing pad, as CONFIG_X86_KERNEL_IBT wants it",
        applies: |kind| kind != Kind::Return, apart: false;
    StackAlign = "stack-align" { Eight = "8", Sixteen = "16" }
        "what a callback may rely on: 8 as in kernel C, 16 for SysV code",
        applies: |kind| kind == Kind::Return || (kind.attaches() && kind != Kind::StubDirect), apart: false;
    RestoreFlags = "restore-flags" { On = "on", Off = "off" }
        "RFLAGS as func left them: no C function needs them at its entry, and POPF costs more than all saves",
        applies: |kind| kind == Kind::Entry(Regs::All), apart: false;
    DirectWay = "direct-way" { Ret = "ret", Jmp = "jmp" }
        "to a direct trampoline by RET, or at the price of r11 by JMP, which ftrace_caller has then too",
        applies: |kind| matches!(kind, Kind::Entry(_)), apart: false;
    Return = "return" { Ret = "ret", Int3 = "int3", Thunk = "thunk" }
        "RET, RET and INT3 as CONFIG_MITIGATION_SLS wants it, or JMP __x86_return_thunk",
        applies: |_| true, apart: true;
    CallPadding = "call-padding" { Off = "off", On = "on" }
        "16 bytes of NOP before each function, where CONFIG_CALL_PADDING leaves room for code that counts calls",
        applies: |_| true, apart: true;
}
