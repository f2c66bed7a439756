//! The x86-64 backend.

pub mod abi;
pub mod emu;
pub mod insn;
pub mod lower;
pub mod mutate;
pub mod regs;
pub mod reloc;
pub mod site;

use codegen::effects::CfiEntry;
use codegen::error::Result;
use codegen::isa::Architecture;
use codegen::machine::Machine;
use codegen::option::Choices;
use codegen::place::Placement;
use codegen::proto::Prototype;
use codegen::spec::Kind;
use codegen::step::Inner;
use codegen::target::{Cie, EFlags, Facts, Kernel, Target};

/// x86-64.
pub struct X86_64;

/// What is true under every choice.
pub const FACTS: Facts = Facts {
    name: "x86_64",
    aliases: &["x86", "x86-64", "amd64"],
    machine: 62,
    e_flags: EFlags::NONE,
    comment: "#",
    function_type: "@function",
    progbits: "@progbits",
    reg_prefix: "%",
    assembler: "x86_64-linux-gnu-as",
    align: 16,
    fill: (&[0xcc], ", 0xcc"),
    fill_end: false,
    options: abi::OPTIONS,
    abi: abi::ABI,
    site: abi::SITE,
    site_text: "Reached from a patched function entry, which executed CALL: (%rsp) = pc, the address after the site; \
                8(%rsp) = parent_ip, the return address of the traced function.",
    exit_text: "Reached by the RET of a traced function whose return address was replaced; its result is in rax, rdx.",
    exit_unpaired: 0,
    exit_mispredicted: 2,
    flags: "rflags",
    inner: &[Inner::OpPtr, Inner::Call, Inner::Jmp, Inner::End, Inner::AfterCall, Inner::Epilogue],
    relocations: ("R_X86_64_", reloc::NAMES),
    dynamic: [1, 8, 6, 7],
    mapping: "",
    lengths: None,
    kernel: Kernel {
        arch: "X86_64",
        needs: &[
            ("FUNCTION_TRACER", "trampolines"),
            ("DYNAMIC_FTRACE_WITH_ARGS", "ftrace_regs"),
            ("DYNAMIC_FTRACE_WITH_DIRECT_CALLS", "ways to direct trampolines"),
        ],
        numbers: false,
        objtool: Some((reloc::ABS32, reloc::PC32)),
        refuses: &[
            ("CFI_CLANG", "its indirect calls want a type before each function, and trampolines have none"),
            ("STACK_VALIDATION", "objtool would look for frames that no trampoline makes"),
        ],
        // arch/x86/lib/retpoline.S, call_depth_return_thunk: it refills when the count of calls comes to an end.
        ignores: &[(
            "MITIGATION_CALL_DEPTH_TRACKING",
            "calls of trampolines are not counted, so that a return refills the return-address stack sooner than it must",
        )],
    },
    cie: Cie {
        version: 1,
        column: RETURN_ADDRESS,
        code_align: 1,
        data_align: -8,
        // DW_CFA_def_cfa rsp, 8; DW_CFA_offset rip at CFA-8
        initial: &[0x0c, 7, 8, 0x90, 1],
        cfa_offset: 8,
        pcrel32: reloc::PC32,
    },
};

/// The DWARF column of the return address (psABI, figure 3.36).
const RETURN_ADDRESS: u16 = 16;

impl Architecture for X86_64 {
    const FACTS: &'static Facts = &FACTS;
    const MACHINE: &'static Machine = &emu::MACHINE;

    fn target(choices: Choices) -> Target {
        abi::target(&FACTS, choices)
    }

    fn place(target: &Target, proto: &Prototype) -> Result<Placement> {
        abi::place(target, proto)
    }

    fn cfi_entry(kind: Kind) -> CfiEntry {
        let undefined = kind == Kind::Return;
        // Where nothing returns to the function from its site, the return address is its caller's.
        let dropped = if kind.calls_body() && !kind.jumped_to() { 8 } else { 0 };
        let cfa_offset = if undefined { 0 } else { 8 + dropped };
        CfiEntry { column: RETURN_ADDRESS, cfa_offset, moved: &[], undefined }
    }
}
