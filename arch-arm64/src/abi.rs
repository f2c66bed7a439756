//! The psABI as kernel C uses it, the ftrace conventions, and the frames of profile `linux-6.12`.

use codegen::abi::{Abi, Loc, Reg, RegSet, Site};
use codegen::error::Result;
use codegen::frame::{
    ARG_SLOTS, Back, Content, Field, FrameLayout, RESULT_SLOTS, Record, VECTOR_SLOTS, context, field, with_results,
};
use codegen::live::Live;
use codegen::option::{Choices, OptionInfo};
use codegen::place::{Piece, Placement, Places, Returned};
use codegen::proto::{Prototype, Type};
use codegen::spec::{Kind, Programs, Regs};
use codegen::target::{DirectTest, Facts, Number, Target};

use crate::regs::*;

const ARGS: [Reg; 8] = [X0, X1, X2, X3, X4, X5, X6, X7];

/// AAPCS64, section 6.1; x18 is the kernel's shadow call stack.
pub const ABI: Abi = Abi {
    regs: TABLE,
    args: &ARGS,
    rets: &[X0, X1],
    exit_rets: &ARGS,
    sret: X8,
    hidden: RegSet::of(&[X8]),
    // GCC has the static chain in x18, LLVM in x15. AAPCS64 6.9: x8 is the address of a result in memory.
    live: &[("static-chain", RegSet::of(&[X15, X18])), ("sret", RegSet::of(&[X8]))],
    callee_saved: RegSet::of(&[X19, X20, X21, X22, X23, X24, X25, X26, X27, X28, X29]),
    caller_saved: RegSet::of(&[X0, X1, X2, X3, X4, X5, X6, X7, X8, X9, X10, X11, X12, X13, X14, X15, X16, X17, X30]),
    platform: RegSet::of(&[X18]),
    zero: Some(SP),
    sp: SP,
    fp: X29,
    link: Some(X30),
    vector_bytes: 16,
    vector_args: &[0, 1, 2, 3, 4, 5, 6, 7],
    vector_rets: &[0, 1, 2, 3],
    vector_callee_saved: &[8, 9, 10, 11, 12, 13, 14, 15],
    sp_align: 16,
};

/// `MOV x9, x30` and a `BL` in place of two NOPs (kernel arch/arm64/kernel/ftrace.c).
pub const SITE: Site = Site {
    pc: Loc::Reg(X30),
    parent_ip: Loc::Reg(X9),
    pushed: 0,
    ip_offset: 4,
    scratch: RegSet::of(&[X9, X10, X11, X12, X13, X14, X15, X16, X17, X30]),
    resume: Some((X9, X30)),
    lost: RegSet::of(&[X9]),
    direct: Some(X17),
    reach: 128 << 20,
    between: "",
};

/// Index of `call-ops` in [`OPTIONS`].
pub const CALL_OPS: usize = 0;
/// Index of `frame-records` in [`OPTIONS`].
pub const FRAME_RECORDS: usize = 1;

/// The options.
pub const OPTIONS: &[OptionInfo] = &[
    OptionInfo {
        name: "call-ops",
        values: &["on", "off"],
        about: "op comes from the literal before the function, and may name a direct trampoline",
        applies: |kind| kind == Kind::Entry(Regs::Args),
        apart: false,
        config: &[
            // One is not there without the other (arch/arm64/Kconfig).
            ("on", &["DYNAMIC_FTRACE_WITH_CALL_OPS", "DYNAMIC_FTRACE_WITH_DIRECT_CALLS"]),
            ("off", &[]),
        ],
    },
    OptionInfo {
        name: "frame-records",
        values: &["on", "off"],
        about: "two frame records, without which a stack trace loses two callers",
        applies: |kind| matches!(kind, Kind::Direct(_)),
        apart: false,
        config: &[],
    },
];

/// Bytes of `struct __arch_ftrace_regs` (kernel arch/arm64/include/asm/ftrace.h).
const FTRACE_REGS: i32 = 112;
/// Bytes of `struct pt_regs` (kernel arch/arm64/include/asm/ptrace.h).
const PT_REGS: i32 = 336;
/// Offset of `stackframe` in `struct pt_regs`.
const STACKFRAME: i32 = 304;
const RECORD: i32 = 16;

const FREGS: [&str; 9] =
    ["FREGS_X0", "FREGS_X1", "FREGS_X2", "FREGS_X3", "FREGS_X4", "FREGS_X5", "FREGS_X6", "FREGS_X7", "FREGS_X8"];
const MEMBERS: [&str; 31] = [
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17",
    "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30",
];
const S: [&str; 31] = [
    "S_X0", "S_X1", "S_X2", "S_X3", "S_X4", "S_X5", "S_X6", "S_X7", "S_X8", "S_X9", "S_X10", "S_X11", "S_X12", "S_X13",
    "S_X14", "S_X15", "S_X16", "S_X17", "S_X18", "S_X19", "S_X20", "S_X21", "S_X22", "S_X23", "S_X24", "S_X25",
    "S_X26", "S_X27", "S_X28", "S_FP", "S_LR",
];

/// `struct __arch_ftrace_regs`; what does not apply is not filled.
fn ftrace_regs(content: impl Fn(&str) -> (Content, Back)) -> Vec<Field> {
    let tail = [
        ("FREGS_DIRECT_TRAMP", "direct_tramp", 72),
        ("FREGS_FP", "fp", 80),
        ("FREGS_LR", "lr", 88),
        ("FREGS_SP", "sp", 96),
        ("FREGS_PC", "pc", 104),
    ];
    let registers = FREGS.iter().zip(MEMBERS).enumerate().map(|(i, (&symbol, member))| (symbol, member, 8 * i as i32));
    registers
        .chain(tail)
        .map(|(symbol, member, offset)| {
            let (content, back) = content(member);
            field(symbol, member, offset, content, back)
        })
        .collect()
}

fn args_frame(call_ops: bool) -> FrameLayout {
    let fields = ftrace_regs(|member| match member {
        "direct_tramp" if call_ops => (Content::Direct, Back::Written),
        "direct_tramp" => (Content::Unfilled, Back::Ignored),
        "fp" => (Content::Reg(X29), Back::Written),
        "lr" => (Content::ParentIp, Back::Written),
        "sp" => (Content::SiteSp, Back::Ignored),
        "pc" => (Content::Pc, Back::Written),
        x => (ABI.find(x).map_or(Content::Unfilled, Content::Reg), Back::Written),
    });
    let records = records(FTRACE_REGS + RECORD, FTRACE_REGS);
    frame("struct ftrace_regs", FTRACE_REGS, FTRACE_REGS + 2 * RECORD, fields, records)
}

fn all_frame() -> FrameLayout {
    let mut fields: Vec<Field> = S
        .iter()
        .zip(MEMBERS)
        .enumerate()
        .map(|(i, (&symbol, member))| {
            let reg = Reg(i as u8);
            let (content, back) = match reg {
                X30 => (Content::ParentIp, Back::Written),
                // The site put parent_ip there, and pc leaves through it; x18 is not ours to load.
                X9 | X18 => (Content::Reg(reg), Back::Ignored),
                _ => (Content::Reg(reg), Back::Written),
            };
            field(symbol, member, 8 * i as i32, content, back)
        })
        .collect();
    // There is no reading PSTATE outside an exception: what cannot be known is not made up.
    let unfilled = |symbol, member, offset| field(symbol, member, offset, Content::Unfilled, Back::Ignored);
    fields.extend([
        field("S_SP", "sp", 248, Content::SiteSp, Back::Ignored),
        field("S_PC", "pc", 256, Content::Pc, Back::Written),
        unfilled("S_PSTATE", "pstate", 264),
        unfilled("S_ORIG_X0", "orig_x0", 272),
        unfilled("S_SYSCALLNO", "syscallno", 280),
        unfilled("S_SDEI_TTBR1", "sdei_ttbr1", 288),
        unfilled("S_PMR", "pmr_save", 296),
        unfilled("S_LOCKDEP_HARDIRQS", "lockdep_hardirqs", 320),
        unfilled("S_EXIT_RCU", "exit_rcu", 328),
    ]);
    frame("struct pt_regs", PT_REGS, PT_REGS + RECORD, fields, records(PT_REGS, STACKFRAME))
}

fn exit_frame() -> FrameLayout {
    let fields = ftrace_regs(|member| match (member, ABI.find(member)) {
        ("fp", _) => (Content::Reg(X29), Back::Ignored),
        (_, Some(reg)) if ARGS.contains(&reg) => (Content::Reg(reg), Back::Written),
        _ => (Content::Unfilled, Back::Ignored),
    });
    frame("struct ftrace_regs", FTRACE_REGS, FTRACE_REGS, fields, Vec::new())
}

/// From SP up: copied stack arguments, vector registers, argument registers and the result's address, and the records of
/// the function and of its caller, or pc and parent_ip without them.
fn direct_frame(live: &Live, frame_records: bool) -> FrameLayout {
    const VECTOR: i32 = ABI.vector_bytes as i32;
    let mut at = 8 * i32::from(live.stack);
    let mut fields = Vec::new();
    for (symbol, &vector) in VECTOR_SLOTS.iter().zip(ABI.vector_args).take(live.saved_vectors().into()) {
        at = (at + VECTOR - 1) & -VECTOR;
        fields.push(field(symbol, "", at, Content::Vector(vector), Back::Written));
        at += VECTOR;
    }
    let regs = ARG_SLOTS.iter().zip(ARGS.iter()).chain([(&"SRET", &X8)]);
    for (symbol, &reg) in regs.filter(|(_, reg)| live.regs.contains(**reg)) {
        fields.push(field(symbol, "", at, Content::Reg(reg), Back::Written));
        at += 8;
    }
    if frame_records {
        return recorded(fields, at);
    }
    let above = (at + 15) & !15;
    fields.push(field("SITE_LR", "", above, Content::ParentIp, Back::Written));
    fields.push(field("SITE_PC", "", above + 8, Content::Pc, Back::Written));
    frame("", 0, above + RECORD, fields, Vec::new())
}

/// Slots of so many bytes, and above them the records of the function and of its caller.
fn recorded(mut fields: Vec<Field>, below: i32) -> FrameLayout {
    let above = (below + 15) & !15;
    let parent = above + RECORD;
    let slot = |symbol, offset, content| Field { in_record: true, ..field(symbol, "", offset, content, Back::Written) };
    fields.push(slot("SITE_PC", above + 8, Content::Pc));
    fields.push(slot("SITE_FP", parent, Content::Reg(X29)));
    fields.push(slot("SITE_LR", parent + 8, Content::ParentIp));
    frame("", 0, above + 2 * RECORD, fields, records(parent, above))
}

fn programs_frame(programs: &Programs) -> FrameLayout {
    let (fields, below) = context(programs, &ABI);
    recorded(fields, below)
}

fn around_args(args: usize) -> FrameLayout {
    let FrameLayout { mut fields, records, size, .. } =
        direct_frame(&Live::first(args.max(ABI.rets.len()), &ABI), true);
    fields.retain(|f| !matches!(f.content, Content::Reg(r) if ARGS[args..].contains(&r)));
    let result = |(i, &reg)| field(RESULT_SLOTS[i], "", 8 * i as i32, Content::Result(reg), Back::Written);
    fields.extend(ABI.rets.iter().enumerate().map(result));
    frame("", 0, size, fields, records)
}

fn around_fregs() -> FrameLayout {
    let records = records(FTRACE_REGS + RECORD, FTRACE_REGS);
    frame("struct ftrace_regs", FTRACE_REGS, FTRACE_REGS + 2 * RECORD, around_fields(), records)
}

fn around_fields() -> Vec<Field> {
    let fields = ftrace_regs(|member| match member {
        "direct_tramp" => (Content::Unfilled, Back::Ignored),
        "fp" => (Content::Reg(X29), Back::Ignored),
        "lr" => (Content::ParentIp, Back::Ignored),
        "sp" => (Content::SiteSp, Back::Ignored),
        "pc" => (Content::Pc, Back::Ignored),
        x => (ABI.find(x).map_or(Content::Unfilled, Content::Reg), Back::Written),
    });
    with_results(fields, |member| ABI.find(member).filter(|r| ABI.rets.contains(r)))
}

/// The record of the traced function's caller, then that of the traced function.
fn records(parent: i32, pc: i32) -> Vec<Record> {
    vec![
        Record { symbol: "RECORD_LR", offset: parent, ret: Content::ParentIp },
        Record { symbol: "RECORD_PC", offset: pc, ret: Content::Pc },
    ]
}

fn frame(c_struct: &'static str, c_size: i32, size: i32, fields: Vec<Field>, records: Vec<Record>) -> FrameLayout {
    FrameLayout { c_struct, c_size, size_symbol: "FRAME_SIZE", size, fields, records, pushed: false }
}

/// Resolve the options.
pub fn target(facts: &'static Facts, choices: Choices) -> Target {
    let call_ops = choices.get(CALL_OPS) == 0;
    let frame_records = choices.get(FRAME_RECORDS) == 0;
    Target {
        facts,
        choices,
        profile: codegen::target::PROFILES[0],
        prologue: Vec::new(),
        e_flags: 0,
        attributes: None,
        landing_pad: true,
        op_from_site: call_ops,
        pushes_flags: false,
        restores_flags: false,
        realign: None,
        marks_regs: false,
        direct_test: DirectTest::BeforeSite,
        direct_jump: None,
        stack_align: 16,
        resume: 8,
        objtool: false,
        padding: &[],
        unwind_tables: true,
        numbers: vec![
            Number { symbol: "FTRACE_OPS_FUNC", value: 0 },
            Number { symbol: "FTRACE_OPS_DIRECT_CALL", value: 208 },
        ],
        args_frame: args_frame(call_ops),
        all_frame: all_frame(),
        exit_frame: exit_frame(),
        around_frames: (0..=ARGS.len()).map(around_args).collect(),
        around_fregs: around_fregs(),
        around_shadow: Some(frame("struct ftrace_regs", FTRACE_REGS, FTRACE_REGS, around_fields(), Vec::new())),
        direct_frames: (0..=ARGS.len()).map(|n| direct_frame(&Live::first(n, &ABI), frame_records)).collect(),
        tailored_frame: |live, choices| direct_frame(live, choices.get(FRAME_RECORDS) == 0),
        programs_frame,
        no_frame: FrameLayout::empty(),
    }
}

/// Where a call has its arguments and its result: AAPCS64, sections 6.8 and 6.9.
///
/// # Errors
/// None: every type of a prototype has its place.
pub fn place(_: &Target, proto: &Prototype) -> Result<Placement> {
    let returned = match &proto.result {
        None => Returned::Nothing,
        Some(t) => match in_vectors(t, &mut Places::results(&ABI)) {
            Some(pieces) => Returned::Registers(pieces),
            None if t.size() > 16 => Returned::Memory,
            None => Returned::Registers(Places::results(&ABI).words(t)),
        },
    };
    let mut places = Places::args(&ABI);
    let args = proto.args.iter().map(|t| argument(t, &mut places)).collect();
    Ok(Placement { args, returned, stack: places.stack })
}

/// Stages B and C. A value is in registers as a whole; after the first that is not, none of its kind is.
fn argument(t: &Type, places: &mut Places) -> Vec<Piece> {
    if homogeneous(t).is_some() {
        return in_vectors(t, places).unwrap_or_else(|| {
            places.skip_vectors(places.vectors());
            vec![places.slot(0, t.size(), t.align())]
        });
    }
    if t.align() == 16 {
        // An even register.
        places.skip_regs((ARGS.len() - places.regs()) % 2);
    }
    if places.regs() < t.size().div_ceil(8) as usize {
        places.skip_regs(places.regs());
    }
    places.words(t)
}

/// The size of the floating-point numbers, one to four and all the same, of which it is made.
fn homogeneous(t: &Type) -> Option<(u32, usize)> {
    let members = t.members();
    let size = members.first()?.1.size;
    let same = members.iter().all(|(_, m)| m.is_float() && m.size == size);
    (same && members.len() <= 4).then_some((size, members.len()))
}

fn in_vectors(t: &Type, places: &mut Places) -> Option<Vec<Piece>> {
    let (size, count) = homogeneous(t)?;
    if count > places.vectors() {
        return None;
    }
    (0..count as u32).map(|i| places.vector(i * size, size)).collect()
}
