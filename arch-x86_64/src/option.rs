//! The options.

use codegen::ask::option::Pad;
use codegen::ask::spec::{Direct, Kind, Regs};

codegen::options! {
    Unwinder = "unwinder" { Orc = "orc", Fp = "fp" }
        "the kernel's unwinder; fp stores frame records",
        applies: |kind, _| matches!(kind, Kind::Entry(_) | Kind::Rethook), apart: false;
    Endbr = "endbr" { On = "on", Off = "off" }
        "an ENDBR64 landing pad, for CONFIG_X86_KERNEL_IBT",
        applies: |_, pad| pad == Pad::First, apart: false;
    StackAlign = "stack-align" { Eight = "8", Sixteen = "16" }
        "stack alignment that callbacks get: 8 for kernel C, 16 for SysV code",
        applies: |kind, _| kind.returned_to() || (kind.attaches() && kind != Kind::StubDirect), apart: false;
    Vectors = "vectors" { None = "none", Save = "save" }
        "save xmm0 to xmm7, and xmm0 and xmm1 at returns, so that handlers may use vector registers",
        applies: |kind, _| kind.may_lose_vectors(), apart: true;
    RestoreFlags = "restore-flags" { On = "on", Off = "off" }
        "restore RFLAGS as func left them; C functions do not need them at their entry, and POPF costs more than all saves",
        applies: |kind, _| kind == Kind::Entry(Regs::All), apart: false;
    DirectWay = "direct-way" { Ret = "ret", Jmp = "jmp" }
        "how to reach a direct trampoline: ret, or jmp, which clobbers r11 and gives ftrace_caller a direct path too",
        applies: |kind, _| matches!(kind, Kind::Entry(_)), apart: false;
    Return = "return" { Ret = "ret", Int3 = "int3", Thunk = "thunk" }
        "RET; RET and INT3, for CONFIG_MITIGATION_SLS; or JMP __x86_return_thunk",
        applies: |kind, _| !matches!(kind, Kind::Direct(Direct { jumped: true, .. })), apart: true;
    CallPadding = "call-padding" { Off = "off", On = "on" }
        "16 bytes of NOP before each function: CONFIG_CALL_PADDING's room for code that counts calls",
        applies: |_, _| true, apart: true;
    Cfi = "cfi" { Off = "off", Kcfi = "kcfi" }
        "the type of functions that are called through pointers, before them: kCFI, of which FineIBT makes its own at boot",
        applies: |kind, _| kind.is_callback(), apart: true;
}
