//! The psABI as kernel C uses it, the ftrace conventions, and the frames of profile `linux-6.12`.

use codegen::abi::{Abi, Loc, RegSet, Site};
use codegen::frame::{Back, Content, Field, FrameLayout, Record, field};
use codegen::spec::{Choices, Kind, OptionInfo, Regs};
use codegen::target::{DirectTest, Target};

use crate::FACTS;
use crate::regs::*;

/// System V x86-64 psABI, section 3.2.
pub const ABI: Abi = Abi {
    regs: TABLE,
    args: &[RDI, RSI, RDX, RCX, R8, R9],
    rets: &[RAX, RDX],
    exit_rets: &[RAX, RDX],
    sret: RDI,
    hidden: RegSet::of(&[RAX]),
    // x86-64 psABI, 3.2.3: the static chain is in r10, and al counts the vector arguments of a variadic call.
    live: &[("static-chain", RegSet::of(&[R10])), ("varargs", RegSet::of(&[RAX]))],
    callee_saved: RegSet::of(&[RBX, RBP, R12, R13, R14, R15]),
    caller_saved: RegSet::of(&[RAX, RCX, RDX, RSI, RDI, R8, R9, R10, R11]),
    platform: RegSet::EMPTY,
    sp: RSP,
    fp: RBP,
    link: None,
    sp_align: 16,
};

/// A `call rel32` in place of a 5-byte NOP (kernel arch/x86/kernel/ftrace.c).
pub const SITE: Site = Site {
    pc: Loc::Stack(0),
    parent_ip: Loc::Stack(8),
    pushed: 8,
    ip_offset: 5,
    scratch: RegSet::EMPTY,
    resume: None,
    lost: RegSet::EMPTY,
    direct: None,
    reach: 2 << 30,
    between: "",
};

/// Index of `unwinder` in [`OPTIONS`].
pub const UNWINDER: usize = 0;
/// Index of `endbr` in [`OPTIONS`].
pub const ENDBR: usize = 1;
/// Index of `stack-align` in [`OPTIONS`].
pub const STACK_ALIGN: usize = 2;

/// The options.
pub const OPTIONS: &[OptionInfo] = &[
    OptionInfo {
        name: "unwinder",
        values: &["orc", "fp"],
        about: "frame records for an unwinder that follows frame pointers",
        applies: |kind| matches!(kind, Kind::Entry(_)),
        config: &[("fp", &["FRAME_POINTER"]), ("orc", &[])],
    },
    OptionInfo {
        name: "endbr",
        values: &["on", "off"],
        about: "an ENDBR64 landing pad, as CONFIG_X86_KERNEL_IBT wants it",
        applies: |kind| kind != Kind::Return,
        config: &[("on", &["X86_KERNEL_IBT"]), ("off", &[])],
    },
    OptionInfo {
        name: "stack-align",
        values: &["8", "16"],
        about: "what a callback may rely on: 8 as in kernel C, 16 for SysV code",
        applies: |kind| matches!(kind, Kind::Entry(_) | Kind::Return | Kind::Direct(_)),
        config: &[("8", &[])],
    },
];

/// Bytes of `struct pt_regs` (kernel arch/x86/include/asm/ptrace.h).
const PT_REGS: i32 = 168;
const KERNEL_CS: i32 = 0x10;
const KERNEL_DS: i32 = 0x18;

/// `struct pt_regs`, which is also `struct ftrace_regs`.
fn pt_regs(content: impl Fn(&str) -> (Content, Back)) -> Vec<Field> {
    const MEMBERS: [(&str, &str); 21] = [
        ("PT_R15", "r15"),
        ("PT_R14", "r14"),
        ("PT_R13", "r13"),
        ("PT_R12", "r12"),
        ("PT_BP", "bp"),
        ("PT_BX", "bx"),
        ("PT_R11", "r11"),
        ("PT_R10", "r10"),
        ("PT_R9", "r9"),
        ("PT_R8", "r8"),
        ("PT_AX", "ax"),
        ("PT_CX", "cx"),
        ("PT_DX", "dx"),
        ("PT_SI", "si"),
        ("PT_DI", "di"),
        ("PT_ORIG_AX", "orig_ax"),
        ("PT_IP", "ip"),
        ("PT_CS", "cs"),
        ("PT_FLAGS", "flags"),
        ("PT_SP", "sp"),
        ("PT_SS", "ss"),
    ];
    MEMBERS
        .iter()
        .enumerate()
        .map(|(i, &(symbol, member))| {
            let (content, back) = content(member);
            field(symbol, member, 8 * i as i32, content, back)
        })
        .collect()
}

fn register(member: &str) -> Option<Content> {
    let long = format!("r{member}");
    ABI.find(member).or_else(|| ABI.find(&long)).filter(|&r| r != RSP).map(Content::Reg)
}

fn entry_frame(regs: Regs, frame_pointer: bool) -> FrameLayout {
    let all = regs == Regs::All;
    let mut fields = pt_regs(|member| match member {
        "orig_ax" => (Content::Direct, if all { Back::Written } else { Back::Ignored }),
        "ip" => (Content::Pc, Back::Written),
        "cs" => (Content::Const(if all { KERNEL_CS } else { 0 }), Back::Ignored),
        "flags" if all => (Content::Flags, Back::Written),
        "sp" => (Content::SiteSp, Back::Ignored),
        "ss" if all => (Content::Const(KERNEL_DS), Back::Ignored),
        _ => match register(member) {
            Some(Content::Reg(r)) if all || is_argument(r) || r == RBP => (Content::Reg(r), Back::Written),
            _ => (Content::Unfilled, Back::Ignored),
        },
    });
    let mut records = Vec::new();
    if frame_pointer {
        // The kernel's frame pointer unwinder knows the words above pt_regs by their places: two records, then
        // rbp again, then pc and parent_ip as the calls pushed them (arch/x86/kernel/unwind_frame.c).
        records.push(Record { symbol: "RECORD_PARENT", offset: PT_REGS + 16, ret: Content::ParentIp });
        records.push(Record { symbol: "RECORD_PC", offset: PT_REGS, ret: Content::Pc });
        fields.push(field("SITE_BP", "", PT_REGS + 32, Content::Reg(RBP), Back::Ignored));
    }
    let size = if frame_pointer { PT_REGS + 40 } else { PT_REGS };
    frame(fields, records, size)
}

fn is_argument(reg: codegen::abi::Reg) -> bool {
    ABI.args.contains(&reg) || ABI.hidden.contains(reg)
}

fn frame(fields: Vec<Field>, records: Vec<Record>, size: i32) -> FrameLayout {
    let c_struct = "struct pt_regs";
    FrameLayout { c_struct, c_size: PT_REGS, size_symbol: "FRAME_SIZE", size, fields, records, pushed: false }
}

fn exit_frame(realign: bool) -> FrameLayout {
    let fields = pt_regs(|member| match member {
        // 0 tells arch_ftrace_get_regs() that this is not a full pt_regs.
        "cs" => (Content::Const(0), Back::Ignored),
        "sp" => (Content::ExitSp, Back::Ignored),
        "bp" => (Content::Reg(RBP), if realign { Back::Written } else { Back::Ignored }),
        "ax" => (Content::Reg(RAX), Back::Written),
        "dx" => (Content::Reg(RDX), Back::Written),
        _ => (Content::Unfilled, Back::Ignored),
    });
    // One word above pt_regs: the return slot that the traced function's RET popped.
    frame(fields, Vec::new(), PT_REGS + 8)
}

fn direct_frame(args: usize) -> FrameLayout {
    const SYMBOLS: [&str; 6] = ["ARG0", "ARG1", "ARG2", "ARG3", "ARG4", "ARG5"];
    let argument = |i: usize| field(SYMBOLS[i], "", 8 * i as i32, Content::Reg(ABI.args[i]), Back::Written);
    FrameLayout {
        size: 8 * args as i32 + 8,
        size_symbol: "FRAME_SIZE",
        fields: (0..args).map(argument).collect(),
        records: vec![Record { symbol: "RECORD", offset: 8 * args as i32, ret: Content::Pc }],
        pushed: true,
        ..FrameLayout::empty()
    }
}

/// Resolve the options.
pub fn target(choices: Choices) -> Target {
    let frame_pointer = choices.get(UNWINDER) == 1;
    let align16 = choices.get(STACK_ALIGN) == 1;
    Target {
        facts: &FACTS,
        choices,
        profile: codegen::target::PROFILES[0],
        prologue: Vec::new(),
        e_flags: 0,
        attributes: None,
        landing_pad: choices.get(ENDBR) == 0,
        op_from_site: false,
        pushes_flags: true,
        realign: align16.then_some(16),
        marks_regs: frame_pointer,
        direct_test: DirectTest::BeforeRestore,
        stack_align: if align16 { 16 } else { 8 },
        objtool: false,
        numbers: Vec::new(),
        args_frame: entry_frame(Regs::Args, frame_pointer),
        all_frame: entry_frame(Regs::All, frame_pointer),
        exit_frame: exit_frame(align16),
        direct_frames: (0..=ABI.args.len()).map(direct_frame).collect(),
        no_frame: FrameLayout::empty(),
    }
}
