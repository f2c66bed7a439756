//! The psABI as C uses it, what the options mean, and the frames that no C code knows.

use codegen::arch::harden::{Harden, ReturnGuard, TypeWord};
use codegen::ask::frame::{
    ARG_SLOTS, Content, Field, FrameLayout, LIVE_SLOTS, RESULT_SLOTS, Record, Stores, VECTOR_SLOTS, context, field,
};
use codegen::ask::live::Live;
use codegen::ask::option::Choices;
use codegen::ask::place::{Piece, Placement, Places, Returned};
use codegen::ask::spec::{Kind, Programs};
use codegen::profile::Convention;
use codegen::profile::target::{Layouts, Own, Target};
use codegen::words::abi::{Abi, Loc, Reg, RegSet, SyscallRegs};
use codegen::words::error::{Error, Result};
use codegen::words::proto::{Prototype, Type};
use codegen::words::recorder::Recorder;

use crate::option::{CallOps, Cfi, FrameRecords, GuardReturn, Vectors};
use crate::regs::*;
use crate::reloc;
use crate::sled;

const ARGS: [Reg; 8] = [X0, X1, X2, X3, X4, X5, X6, X7];

/// A direct trampoline: BTI c accepts BR through x16 or x17 only.
pub const DIRECT: Reg = X17;

/// AAPCS64, section 6.1; x18 is the kernel's shadow call stack.
pub const ABI: Abi = Abi {
    regs: TABLE,
    args: &ARGS,
    rets: &[X0, X1],
    // syscall(2), "Architecture calling conventions".
    syscall: SyscallRegs { number: X8, args: &[X0, X1, X2, X3, X4, X5] },
    exit_rets: &ARGS,
    sret: X8,
    hidden: RegSet::of(&[X8]),
    // GCC has the static chain in x18, LLVM in x15. AAPCS64 6.9: x8 is the address of a result in memory.
    live: &[("static-chain", RegSet::of(&[X15, X18])), ("sret", RegSet::of(&[X8]))],
    callee_saved: RegSet::of(&[X19, X20, X21, X22, X23, X24, X25, X26, X27, X28, X29]),
    caller_saved: RegSet::of(&[X0, X1, X2, X3, X4, X5, X6, X7, X8, X9, X10, X11, X12, X13, X14, X15, X16, X17, X30]),
    // AAPCS64, 6.1.1: veneers may use IP0 and IP1.
    linkage: RegSet::of(&[X16, X17]),
    platform: RegSet::of(&[X18]),
    scs: Some(X18),
    zero: Some(SP),
    sp: SP,
    fp: X29,
    link: Some(X30),
    vectors: 32,
    vector_bytes: 16,
    // DWARF for the Arm 64-bit Architecture, 4.1.
    vector_column: 64,
    vector_args: &[0, 1, 2, 3, 4, 5, 6, 7],
    vector_rets: &[0, 1, 2, 3],
    vector_callee_saved: &[8, 9, 10, 11, 12, 13, 14, 15],
    vector_function_saved: &[8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23],
    sp_align: 16,
    widens: false,
    return_columns: &[],
};

const RECORD: i32 = 16;

/// From SP up: copied stack arguments, vector registers, argument registers and the result's address, and the records of
/// the function and of its caller, or pc and parent_ip without them.
fn direct_frame(live: &Live, frame_records: bool) -> FrameLayout {
    const VECTOR: i32 = ABI.vector_bytes as i32;
    let mut at = 8 * i32::from(live.stack);
    let mut fields = Vec::new();
    for (symbol, &vector) in VECTOR_SLOTS.iter().zip(ABI.vector_args).take(live.saved_vectors().into()) {
        at = (at + VECTOR - 1) & -VECTOR;
        fields.push(field(symbol, "", at, Content::Vector(vector), Stores::TakeEffect));
        at += VECTOR;
    }
    let regs = ARG_SLOTS.iter().copied().zip(ARGS).chain([("SRET", X8)]).filter(|(_, reg)| live.regs.contains(*reg));
    for (symbol, reg) in regs.chain(LIVE_SLOTS.iter().copied().zip(live.others(&ABI))) {
        fields.push(field(symbol, "", at, Content::Reg(reg), Stores::TakeEffect));
        at += 8;
    }
    if frame_records {
        return recorded(fields, at);
    }
    let above = (at + 15) & !15;
    fields.push(field("SITE_LR", "", above, Content::ParentIp, Stores::TakeEffect));
    fields.push(field("SITE_PC", "", above + 8, Content::Pc, Stores::TakeEffect));
    frame(above + RECORD, fields, Vec::new())
}

/// Slots of so many bytes, and above them the records of the function and of its caller.
fn recorded(mut fields: Vec<Field>, below: i32) -> FrameLayout {
    let above = (below + 15) & !15;
    let parent = above + RECORD;
    let slot =
        |symbol, offset, content| Field { in_record: true, ..field(symbol, "", offset, content, Stores::TakeEffect) };
    fields.push(slot("SITE_PC", above + 8, Content::Pc));
    fields.push(slot("SITE_FP", parent, Content::Reg(X29)));
    fields.push(slot("SITE_LR", parent + 8, Content::ParentIp));
    frame(above + 2 * RECORD, fields, records(parent, above))
}

fn programs_frame(programs: &Programs) -> FrameLayout {
    let (fields, below) = context(programs, &ABI);
    recorded(fields, below)
}

/// The record of the traced function's caller.
fn record_frame(recorder: &Recorder) -> FrameLayout {
    if recorder.keeps_all {
        // What it needs besides x16 and x17.
        return frame(16, vec![field("SAVED_X10", "", 0, Content::Reg(X10), Stores::Hidden)], Vec::new());
    }
    // The slot of both records below it, and nothing beside that.
    let offset = if recorder.pair { 16 } else { 0 };
    frame(offset + RECORD, Vec::new(), vec![Record { symbol: "RECORD_LR", offset, ret: Content::ParentIp }])
}

fn around_args(args: usize, others: RegSet) -> FrameLayout {
    let FrameLayout { mut fields, records, size, .. } =
        direct_frame(&Live::first(args.max(ABI.rets.len()), &ABI, others), true);
    fields.retain(|f| !matches!(f.content, Content::Reg(r) if ARGS[args..].contains(&r)));
    let result = |(i, &reg)| field(RESULT_SLOTS[i], "", 8 * i as i32, Content::Result(reg), Stores::TakeEffect);
    fields.extend(ABI.rets.iter().enumerate().map(result));
    frame(size, fields, records)
}

/// The record of the traced function's caller, then that of the traced function.
fn records(parent: i32, pc: i32) -> Vec<Record> {
    vec![
        Record { symbol: "RECORD_LR", offset: parent, ret: Content::ParentIp },
        Record { symbol: "RECORD_PC", offset: pc, ret: Content::Pc },
    ]
}

fn frame(size: i32, fields: Vec<Field>, records: Vec<Record>) -> FrameLayout {
    FrameLayout { size_symbol: "FRAME_SIZE", size, fields, records, ..FrameLayout::empty() }
}

/// The instructions that are written at sites.
pub const PATCHED: &[(&str, &[u8])] =
    &[("nop", &0xd503_201f_u32.to_le_bytes()), ("mov x9, x30", &0xaa1e_03e9_u32.to_le_bytes())];

/// Resolve the options.
///
/// # Errors
/// A profile whose sites arrive as no trampoline here expects.
pub fn target(convention: &'static Convention, choices: Choices) -> Result<Target> {
    arrives(convention)?;
    if convention.symbol(Kind::Rethook).is_some() {
        let what = "a trampoline of kretprobes, which would go back by a register: all are in use".to_owned();
        return Err(Error::Unsupported { arch: convention.facts.name, profile: convention.profile.to_owned(), what });
    }
    let layouts = Layouts {
        direct: |live, choices| direct_frame(live, choices.option::<FrameRecords>() == FrameRecords::On),
        around: Some(around_args),
        programs: Some(programs_frame),
        record: Some(record_frame),
        sled: Some(sled::frame),
        vectors: |_| u32::MAX,
    };
    let typed = match choices.option() {
        Cfi::Kcfi => Some(TypeWord::alone(reloc::ABS32)),
        Cfi::Off => None,
    };
    let guard = match choices.option() {
        GuardReturn::Pac => Some(ReturnGuard::Signed),
        GuardReturn::Scs => Some(ReturnGuard::Scs),
        GuardReturn::Off => None,
    };
    let own = Own {
        e_flags: 0,
        harden: Harden { landing: Some("BTI c"), typed, guard, ..Harden::NONE },
        direct_test: DIRECT,
        stack_align: 16,
        resume: 8,
        pad: 4,
        lead: (&[0x1f, 0x20, 0x03, 0xd5, 0x1f, 0x20, 0x03, 0xd5], &["nop", "nop"]),
        layouts,
        places: Some(place),
    };
    Ok(Target {
        op_from_site: choices.option::<CallOps>() == CallOps::On,
        saves_vectors: choices.option::<Vectors>() == Vectors::Save,
        ..Target::plain(convention, choices, own)
    })
}

/// BL put pc into x30, after x30 was copied to x9.
fn arrives(convention: &Convention) -> Result<()> {
    let site = &convention.site;
    if (site.pc, site.parent_ip, site.pushed) == (Loc::Reg(X30), Loc::Reg(X9), 0) {
        return Ok(());
    }
    Err(convention.refuse_site("pc = \"x30\", parent-ip = \"x9\""))
}

/// The places of a call's arguments and result: AAPCS64, sections 6.8 and 6.9.
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
