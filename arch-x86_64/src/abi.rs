//! The psABI as kernel C uses it, the ftrace conventions, and the frames of profile `linux-6.12`.

use codegen::abi::{Abi, Loc, RegSet, Site};
use codegen::error::Result;
use codegen::frame::{
    ARG_SLOTS, Back, Content, Field, FrameLayout, RESULT_SLOTS, Record, VECTOR_SLOTS, context, field, with_results,
};
use codegen::live::Live;
use codegen::option::{Choices, OptionInfo};
use codegen::place::{Piece, Placement, Places, Returned};
use codegen::proto::{Prototype, Type};
use codegen::spec::{Kind, Programs, Regs};
use codegen::target::{DirectTest, Facts, Target};

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
    zero: None,
    sp: RSP,
    fp: RBP,
    link: None,
    vector_bytes: 16,
    vector_args: &[0, 1, 2, 3, 4, 5, 6, 7],
    vector_rets: &[0, 1],
    vector_callee_saved: &[],
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

/// Index of `restore-flags` in [`OPTIONS`].
pub const RESTORE_FLAGS: usize = 3;
/// Index of `direct-way` in [`OPTIONS`].
pub const DIRECT_WAY: usize = 4;
/// Index of `return` in [`OPTIONS`].
pub const RETURN: usize = 5;
/// Index of `call-padding` in [`OPTIONS`].
pub const CALL_PADDING: usize = 6;
/// The value of `return` with INT3 behind RET.
pub const TRAPPED: usize = 1;
/// The value of `return` with no RET.
pub const THUNK: usize = 2;

/// The options.
pub const OPTIONS: &[OptionInfo] = &[
    OptionInfo {
        name: "unwinder",
        values: &["orc", "fp"],
        about: "frame records for an unwinder that follows frame pointers",
        applies: |kind| matches!(kind, Kind::Entry(_)),
        apart: false,
        config: &[("fp", &["FRAME_POINTER"]), ("orc", &[])],
    },
    OptionInfo {
        name: "endbr",
        values: &["on", "off"],
        about: "an ENDBR64 landing pad, as CONFIG_X86_KERNEL_IBT wants it",
        applies: |kind| kind != Kind::Return,
        apart: false,
        config: &[("on", &["X86_KERNEL_IBT"]), ("off", &[])],
    },
    OptionInfo {
        name: "stack-align",
        values: &["8", "16"],
        about: "what a callback may rely on: 8 as in kernel C, 16 for SysV code",
        applies: |kind| kind == Kind::Return || (kind.attaches() && kind != Kind::StubDirect),
        apart: false,
        config: &[("8", &[])],
    },
    OptionInfo {
        name: "restore-flags",
        values: &["on", "off"],
        about: "RFLAGS as func left them: no C function needs them at its entry, and POPF costs more than all saves",
        applies: |kind| kind == Kind::Entry(Regs::All),
        apart: false,
        config: &[],
    },
    OptionInfo {
        name: "direct-way",
        values: &["ret", "jmp"],
        about: "to a direct trampoline by RET, or at the price of r11 by JMP, which ftrace_caller has then too",
        applies: |kind| matches!(kind, Kind::Entry(_)),
        apart: false,
        config: &[],
    },
    OptionInfo {
        name: "return",
        values: &["ret", "int3", "thunk"],
        about: "RET, RET and INT3 as CONFIG_MITIGATION_SLS wants it, or JMP __x86_return_thunk",
        applies: |_| true,
        apart: true,
        config: &[("thunk", &["MITIGATION_RETHUNK"]), ("int3", &["MITIGATION_SLS"]), ("ret", &[])],
    },
    OptionInfo {
        name: "call-padding",
        values: &["off", "on"],
        about: "16 bytes of NOP before each function, where CONFIG_CALL_PADDING leaves room for code that counts calls",
        applies: |_| true,
        apart: true,
        config: &[("on", &["CALL_PADDING"]), ("off", &[])],
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

fn entry_frame(regs: Regs, frame_pointer: bool, restores_flags: bool, jump: bool) -> FrameLayout {
    let all = regs == Regs::All;
    let mut fields = pt_regs(|member| match member {
        "orig_ax" => (Content::Direct, if all || jump { Back::Written } else { Back::Ignored }),
        "ip" => (Content::Pc, Back::Written),
        "cs" => (Content::Const(if all { KERNEL_CS } else { 0 }), Back::Ignored),
        "flags" if all => (Content::Flags, if restores_flags { Back::Written } else { Back::Ignored }),
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

/// From SP up: copied stack arguments, vector registers, argument registers, and the record that rbp completes.
fn direct_frame(live: &Live) -> FrameLayout {
    let mut at = 8 * i32::from(live.stack);
    let mut fields = Vec::new();
    let mut slot = |symbol, content, bytes| {
        fields.push(field(symbol, "", at, content, Back::Written));
        at += bytes;
    };
    for (symbol, &vector) in VECTOR_SLOTS.iter().zip(ABI.vector_args).take(live.saved_vectors().into()) {
        slot(symbol, Content::Vector(vector), VECTOR);
    }
    for (symbol, &reg) in ARG_SLOTS.iter().zip(ABI.args).filter(|(_, reg)| live.regs.contains(**reg)) {
        slot(symbol, Content::Reg(reg), 8);
    }
    FrameLayout {
        size: at + 8,
        size_symbol: "FRAME_SIZE",
        fields,
        records: vec![Record { symbol: "RECORD", offset: at, ret: Content::Pc }],
        pushed: true,
        ..FrameLayout::empty()
    }
}

/// Room for `below` bytes, and a record of the traced function; then the caller's rbp below the return address, which
/// makes the other record. SP is aligned as at any call.
fn around_frame(c_struct: &'static str, c_size: i32, below: i32, fields: Vec<Field>) -> FrameLayout {
    let above = (below + 15) & !15;
    let records = vec![
        Record { symbol: "RECORD_PARENT", offset: above + 16, ret: Content::ParentIp },
        Record { symbol: "RECORD_PC", offset: above, ret: Content::Pc },
    ];
    FrameLayout { c_struct, c_size, size_symbol: "FRAME_SIZE", size: above + 24, fields, records, pushed: false }
}

fn around_args(args: usize) -> FrameLayout {
    let slot = |symbol, i: usize, content| field(symbol, "", 8 * i as i32, content, Back::Written);
    let mut fields: Vec<Field> = (0..args).map(|i| slot(ARG_SLOTS[i], i, Content::Reg(ABI.args[i]))).collect();
    fields.extend((0..2).map(|i| slot(RESULT_SLOTS[i], i, Content::Result(ABI.rets[i]))));
    around_frame("", 0, 8 * args.max(2) as i32, fields)
}

/// The record of the traced function's caller and that of the function; one of the return addresses is where a call pushed
/// it, and rbp below it completes the record.
fn programs_frame(programs: &Programs) -> FrameLayout {
    let (fields, below) = context(programs, &ABI);
    if programs.call_orig && !programs.skip_frame {
        return around_frame("", 0, below, fields);
    }
    let above = (below + 15) & !15;
    let records = vec![
        Record { symbol: "RECORD_PARENT", offset: above + 8, ret: Content::ParentIp },
        Record { symbol: "RECORD_PC", offset: above + 24, ret: Content::Pc },
    ];
    FrameLayout { size_symbol: "FRAME_SIZE", size: above + 32, fields, records, ..FrameLayout::empty() }
}

fn around_fregs() -> FrameLayout {
    around_frame("struct pt_regs", PT_REGS, PT_REGS, around_fields())
}

fn around_fields() -> Vec<Field> {
    let fields = pt_regs(|member| match member {
        "ip" => (Content::Pc, Back::Ignored),
        // 0 tells arch_ftrace_get_regs() that this is not a full pt_regs.
        "cs" => (Content::Const(0), Back::Ignored),
        "sp" => (Content::SiteSp, Back::Ignored),
        "bp" => (Content::Reg(RBP), Back::Ignored),
        _ => match register(member) {
            Some(Content::Reg(r)) if is_argument(r) => (Content::Reg(r), Back::Written),
            _ => (Content::Unfilled, Back::Ignored),
        },
    });
    with_results(fields, |member| match member {
        "ax" => Some(RAX),
        "dx" => Some(RDX),
        _ => None,
    })
}

/// Bytes of a vector register.
pub const VECTOR: i32 = ABI.vector_bytes as i32;

/// Resolve the options.
pub fn target(facts: &'static Facts, choices: Choices) -> Target {
    let frame_pointer = choices.get(UNWINDER) == 1;
    let align16 = choices.get(STACK_ALIGN) == 1;
    let restores_flags = choices.get(RESTORE_FLAGS) == 0;
    let jump = choices.get(DIRECT_WAY) == 1;
    Target {
        facts,
        choices,
        profile: codegen::target::PROFILES[0],
        prologue: Vec::new(),
        e_flags: 0,
        attributes: None,
        landing_pad: choices.get(ENDBR) == 0,
        op_from_site: false,
        pushes_flags: true,
        restores_flags,
        realign: align16.then_some(16),
        marks_regs: frame_pointer,
        direct_test: DirectTest::BeforeRestore,
        direct_jump: jump.then_some(R11),
        stack_align: if align16 { 16 } else { 8 },
        resume: if choices.get(ENDBR) == 0 { 9 } else { 5 },
        objtool: false,
        padding: if choices.get(CALL_PADDING) == 1 { &[0x90; 16] } else { &[] },
        unwind_tables: true,
        numbers: Vec::new(),
        args_frame: entry_frame(Regs::Args, frame_pointer, restores_flags, jump),
        all_frame: entry_frame(Regs::All, frame_pointer, restores_flags, jump),
        exit_frame: exit_frame(align16),
        around_frames: (0..=ABI.args.len()).map(around_args).collect(),
        around_fregs: around_fregs(),
        around_shadow: (!align16).then(|| frame(around_fields(), Vec::new(), PT_REGS)),
        direct_frames: (0..=ABI.args.len()).map(|n| direct_frame(&Live::first(n, &ABI))).collect(),
        tailored_frame: |live, _| direct_frame(live),
        programs_frame,
        no_frame: FrameLayout::empty(),
    }
}

/// Where a call has its arguments and its result: psABI, section 3.2.3.
///
/// # Errors
/// A `long double`, which is not in a vector register.
pub fn place(_: &Target, proto: &Prototype) -> Result<Placement> {
    let mut places = Places::args(&ABI);
    let returned = match &proto.result {
        None => Returned::Nothing,
        Some(t) if t.size() > 16 => {
            places.skip_regs(1);
            Returned::Memory
        }
        Some(t) => {
            let classes = classes(t).ok_or_else(|| proto.refuse(None, LONG_DOUBLE))?;
            Returned::Registers(in_registers(t, &classes, &mut Places::results(&ABI)).unwrap_or_default())
        }
    };
    let mut args = Vec::with_capacity(proto.args.len());
    for (i, t) in proto.args.iter().enumerate() {
        let classes = classes(t).ok_or_else(|| proto.refuse(Some(i), LONG_DOUBLE))?;
        let pieces = in_registers(t, &classes, &mut places);
        args.push(pieces.unwrap_or_else(|| vec![places.slot(0, t.size(), t.align())]));
    }
    Ok(Placement { args, returned, stack: places.stack })
}

const LONG_DOUBLE: &str = "a long double is passed in memory and returned by the x87; valid: double";

/// For each eight bytes, whether a vector register carries them: if nothing but floating-point numbers is in them.
fn classes(t: &Type) -> Option<Vec<bool>> {
    let members = t.members();
    if members.iter().any(|(_, m)| m.is_float() && m.size > 8) {
        return None;
    }
    let vector = |word: u32| {
        let mut inside = members.iter().filter(|(at, m)| *at < word + 8 && at + m.size > word).peekable();
        inside.peek().is_some() && inside.all(|(_, m)| m.is_float())
    };
    Some((0..t.size()).step_by(8).map(vector).collect())
}

/// A value is in registers as a whole or not at all.
fn in_registers(t: &Type, classes: &[bool], places: &mut Places) -> Option<Vec<Piece>> {
    let vectors = classes.iter().filter(|vector| **vector).count();
    if vectors > places.vectors() || classes.len() - vectors > places.regs() {
        return None;
    }
    let words = (0..t.size()).step_by(8).zip(classes);
    words
        .map(|(offset, vector)| {
            let size = (t.size() - offset).min(8);
            if *vector { places.vector(offset, size) } else { places.reg(offset, size) }
        })
        .collect()
}
