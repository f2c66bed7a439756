//! The psABI as C uses it, what the options mean, and the frames that no C code knows.

use codegen::arch::facts::EFlags;
use codegen::arch::harden::{Harden, ReturnGuard, TypeWord};
use codegen::ask::frame::{
    ARG_SLOTS, Content, Field, FrameLayout, LIVE_SLOTS, RESULT_SLOTS, Record, Stores, VECTOR_SLOTS, context, field,
};
use codegen::ask::live::Live;
use codegen::ask::option::Choices;
use codegen::ask::place::{Piece, Placement, Places, Returned};
use codegen::ask::spec::Programs;
use codegen::profile::Convention;
use codegen::profile::target::{Layouts, Own, Target};
use codegen::words::abi::{Abi, Loc, Reg, RegSet, SyscallRegs};
use codegen::words::error::Result;
use codegen::words::proto::{Class, Prototype, Scalar, Type};
use codegen::words::recorder::Recorder;

use crate::option::{CallOps, Cfi, FloatAbi, FrameRecords, GuardReturn, Lpad, Rvc, Vectors};
use crate::regs::*;
use crate::reloc;
use crate::sled;

const ARGS: [Reg; 8] = [A0, A1, A2, A3, A4, A5, A6, A7];

/// A direct trampoline.
pub const DIRECT: Reg = T1;

/// RISC-V psABI, "Integer Register Convention".
pub const ABI: Abi = Abi {
    regs: TABLE,
    args: &ARGS,
    rets: &[A0, A1],
    // syscall(2), "Architecture calling conventions".
    syscall: SyscallRegs { number: A7, args: &[A0, A1, A2, A3, A4, A5] },
    exit_rets: &[A0, A1],
    sret: A0,
    hidden: RegSet::EMPTY,
    // RISC-V psABI: the static chain is in t2. LLVM's RISCVISelLowering: fastcc goes on with t2 to t6.
    live: &[("static-chain", RegSet::of(&[T2])), ("fastcc", RegSet::of(&[T2, T3, T4, T5, T6]))],
    callee_saved: RegSet::of(&[S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11]),
    caller_saved: RegSet::of(&[RA, T0, T1, T2, A0, A1, A2, A3, A4, A5, A6, A7, T3, T4, T5, T6]),
    // The jump of a site goes through it, and so does `tail`.
    linkage: RegSet::of(&[T1]),
    platform: RegSet::of(&[GP, TP]),
    scs: Some(GP),
    zero: Some(ZERO),
    sp: SP,
    fp: S0,
    link: Some(RA),
    vectors: 32,
    vector_bytes: 8,
    // RISC-V psABI, DWARF register numbers.
    vector_column: 32,
    vector_args: &[10, 11, 12, 13, 14, 15, 16, 17],
    vector_rets: &[10, 11],
    vector_callee_saved: &[8, 9, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27],
    vector_function_saved: &[],
    sp_align: 16,
    // DWARF for RISC-V: the alternate frame return column.
    widens: true,
    return_columns: &[64],
};

/// From SP up: copied stack arguments, vector registers, argument registers, pc and parent_ip, or their records.
fn direct_frame(live: &Live, frame_records: bool) -> FrameLayout {
    let vectors = VECTOR_SLOTS.iter().zip(ABI.vector_args).take(live.saved_vectors().into());
    let vectors = vectors.map(|(symbol, &v)| (*symbol, Content::Vector(v)));
    let regs = ARG_SLOTS.iter().zip(&ARGS).filter(|(_, reg)| live.regs.contains(**reg));
    let others = LIVE_SLOTS.iter().zip(live.others(&ABI)).map(|(symbol, reg)| (*symbol, Content::Reg(reg)));
    let regs = regs.map(|(symbol, &reg)| (*symbol, Content::Reg(reg))).chain(others);
    let (stack, site) = (i32::from(live.stack), [("SITE_T0", Content::Pc), ("SITE_RA", Content::ParentIp)]);
    let site = site.into_iter().filter(|_| !frame_records);
    let words = (stack..).zip(vectors.chain(regs).chain(site));
    let fields: Vec<Field> =
        words.map(|(i, (symbol, content))| field(symbol, "", 8 * i, content, Stores::TakeEffect)).collect();
    let end = 8 * (stack + fields.len() as i32);
    if !frame_records {
        return FrameLayout { size_symbol: "FRAME_SIZE", size: (end + 15) & !15, fields, ..FrameLayout::empty() };
    }
    around_frame(end, fields)
}

/// Two frame records above `below` bytes.
fn around_frame(below: i32, fields: Vec<Field>) -> FrameLayout {
    const RECORD: i32 = 16;
    let above = (below + 15) & !15;
    let records = vec![
        Record { symbol: "RECORD_RA", offset: above + RECORD, ret: Content::ParentIp },
        Record { symbol: "RECORD_PC", offset: above, ret: Content::Pc },
    ];
    FrameLayout { size_symbol: "FRAME_SIZE", size: above + 2 * RECORD, fields, records, ..FrameLayout::empty() }
}

/// The record of the traced function's caller.
fn record_frame(recorder: &Recorder) -> FrameLayout {
    if recorder.keeps_all {
        // What it needs besides t1.
        let slot = |symbol, offset, reg| field(symbol, "", offset, Content::Reg(reg), Stores::Hidden);
        let fields = vec![slot("SAVED_T3", 0, T3), slot("SAVED_T4", 8, T4)];
        return FrameLayout { size_symbol: "FRAME_SIZE", size: 16, fields, ..FrameLayout::empty() };
    }
    // The slot of both records below it, and nothing beside that.
    let offset = if recorder.pair { 16 } else { 0 };
    let records = vec![Record { symbol: "RECORD_PARENT", offset, ret: Content::ParentIp }];
    FrameLayout { size_symbol: "FRAME_SIZE", size: offset + 16, records, ..FrameLayout::empty() }
}

fn around_args(args: usize, others: RegSet) -> FrameLayout {
    let slot = |symbol, i: usize, content| field(symbol, "", 8 * i as i32, content, Stores::TakeEffect);
    let mut fields: Vec<Field> = (0..args).map(|i| slot(ARG_SLOTS[i], i, Content::Reg(ARGS[i]))).collect();
    let live = (args..).zip(LIVE_SLOTS.iter().zip(others.iter()));
    fields.extend(live.map(|(i, (symbol, reg))| slot(symbol, i, Content::Reg(reg))));
    let slots = fields.len().max(ABI.rets.len());
    fields.extend(ABI.rets.iter().enumerate().map(|(i, &reg)| slot(RESULT_SLOTS[i], i, Content::Result(reg))));
    around_frame(8 * slots as i32, fields)
}

fn programs_frame(programs: &Programs) -> FrameLayout {
    let (fields, below) = context(programs, &ABI);
    around_frame(below, fields)
}

// RISC-V psABI, "File Header".
const EF_RISCV_RVC: u32 = 1;
const EF_RISCV_FLOAT_ABI: u32 = 6;
const EF_RISCV_FLOAT_ABI_SINGLE: u32 = 2;
const EF_RISCV_FLOAT_ABI_DOUBLE: u32 = 4;
const EF_RISCV_FLOAT_ABI_QUAD: u32 = 6;
const EF_RISCV_TSO: u32 = 0x10;

/// Compressed instructions and a stronger memory model are what code uses; the float ABI is what callers rely on.
pub const E_FLAGS: EFlags = EFlags {
    adds_up: EF_RISCV_RVC | EF_RISCV_TSO,
    words: |e_flags| {
        let float = match e_flags & EF_RISCV_FLOAT_ABI {
            EF_RISCV_FLOAT_ABI_SINGLE => "single",
            EF_RISCV_FLOAT_ABI_DOUBLE => "double",
            EF_RISCV_FLOAT_ABI_QUAD => "quad",
            _ => "soft",
        };
        format!("the {float}-float ABI (e_flags {e_flags:#x})")
    },
    gcc: |e_flags| if e_flags & EF_RISCV_FLOAT_ABI == 0 { "-mabi=lp64" } else { "" },
    remedy: "compile both with the same -mabi, and set `abi` alike when generating",
};

const SHT_RISCV_ATTRIBUTES: u32 = 0x7000_0003;

/// The `.riscv.attributes` section with nothing but the architecture string (RISC-V psABI, "Attributes").
fn attributes(arch: &str) -> Vec<u8> {
    const TAG_FILE: u8 = 1;
    const TAG_ARCH: u8 = 5;
    let mut file = vec![TAG_ARCH];
    file.extend_from_slice(arch.as_bytes());
    file.push(0);
    let file_bytes = file.len() as u32 + 5;
    let vendor = b"riscv\0";
    let mut section = vec![b'A'];
    section.extend_from_slice(&(file_bytes + 4 + vendor.len() as u32).to_le_bytes());
    section.extend_from_slice(vendor);
    section.push(TAG_FILE);
    section.extend_from_slice(&file_bytes.to_le_bytes());
    section.extend_from_slice(&file);
    section
}

/// The instructions that are written at sites.
pub const PATCHED: &[(&str, &[u8])] = &[("nop", &[0x13, 0x00, 0x00, 0x00])];

/// Resolve the options.
///
/// # Errors
/// A profile whose sites arrive as no trampoline here expects.
pub fn target(convention: &'static Convention, choices: Choices) -> Result<Target> {
    arrives(convention)?;
    let rvc = choices.option::<Rvc>() == Rvc::On;
    let double = choices.option::<FloatAbi>() == FloatAbi::Double;
    let mut arch = "rv64i2p0".to_owned();
    let mut e_flags = 0;
    if double {
        arch.push_str("_f2p0_d2p0");
        e_flags |= EF_RISCV_FLOAT_ABI_DOUBLE;
    }
    if rvc {
        arch.push_str("_c2p0");
        e_flags |= EF_RISCV_RVC;
    }
    let lead: (&[u8], &[&str]) =
        if rvc { (&[0x01, 0x00, 0x01, 0x00], &["nop", "nop"]) } else { (&[0x13, 0x00, 0x00, 0x00], &["nop"]) };
    let option = if rvc { "rvc" } else { "norvc" };
    let layouts = Layouts {
        direct: |live, choices| direct_frame(live, choices.option::<FrameRecords>() == FrameRecords::On),
        around: Some(around_args),
        programs: Some(programs_frame),
        record: Some(record_frame),
        sled: Some(sled::frame),
        vectors: |choices| if choices.option::<FloatAbi>() == FloatAbi::Double { u32::MAX } else { 0 },
    };
    let typed = match choices.option() {
        Cfi::Kcfi => Some(TypeWord::alone(reloc::ABS32)),
        Cfi::Off => None,
    };
    let landing = match choices.option() {
        Lpad::On => Some("LPAD"),
        Lpad::Off => None,
    };
    let guard = match choices.option() {
        GuardReturn::Zicfiss => Some(ReturnGuard::Pushed),
        GuardReturn::Scs => Some(ReturnGuard::Scs),
        GuardReturn::Off => None,
    };
    let harden = Harden { landing, typed, guard, ..Harden::NONE };
    let own = Own {
        e_flags,
        harden,
        direct_test: DIRECT,
        stack_align: 16,
        resume: 8,
        pad: if landing.is_some() { 4 } else { 0 },
        lead,
        layouts,
        places: Some(place),
    };
    Ok(Target {
        prologue: vec![
            format!(".attribute arch, \"{arch}\""),
            format!(".option {option}"),
            ".option norelax".to_owned(),
        ],
        attributes: Some((".riscv.attributes", SHT_RISCV_ATTRIBUTES, attributes(&arch))),
        op_from_site: choices.option::<CallOps>() == CallOps::On,
        // Under the soft ABI, no floating-point register carries anything.
        saves_vectors: choices.option::<Vectors>() == Vectors::Save && (layouts.vectors)(choices) != 0,
        ..Target::plain(convention, choices, own)
    })
}

/// JALR put pc into t0.
fn arrives(convention: &Convention) -> Result<()> {
    let site = &convention.site;
    if (site.pc, site.parent_ip, site.pushed) == (Loc::Reg(T0), Loc::Reg(RA), 0) {
        return Ok(());
    }
    Err(convention.refuse_site("pc = \"t0\", parent-ip = \"ra\""))
}

/// The places of a call's arguments and result: RISC-V psABI, "Integer Calling Convention" and "Hardware Floating-point
/// Calling Convention".
///
/// # Errors
/// A `long double`, which is not in a vector register.
pub fn place(target: &Target, proto: &Prototype) -> Result<Placement> {
    let double = target.option::<FloatAbi>() == FloatAbi::Double;
    let long_double = |t: &Type| t.members().iter().any(|(_, m)| m.is_float() && m.size > 8);
    let every = proto.args.iter().enumerate().map(|(i, t)| (Some(i), t)).chain(proto.result.iter().map(|t| (None, t)));
    if let Some((which, _)) = every.into_iter().find(|(_, t)| long_double(t)) {
        return Err(proto.refuse(which, "a long double is passed as two integers; valid: double"));
    }
    let mut places = Places::args(&ABI);
    let returned = match &proto.result {
        None => Returned::Nothing,
        Some(t) if t.size() > 16 => {
            places.skip_regs(1);
            Returned::Memory
        }
        // As a first argument is.
        Some(t) => Returned::Registers(value(t, double, &mut Places::results(&ABI))),
    };
    let args = proto.args.iter().map(|t| value(t, double, &mut places)).collect();
    Ok(Placement { args, returned, stack: places.stack })
}

/// One floating-point number, two, or one with an integer, are in vector registers, if there are enough for all.
fn value(t: &Type, double: bool, places: &mut Places) -> Vec<Piece> {
    let members = t.members();
    let vectors = members.iter().filter(|(_, m)| m.is_float()).count();
    let integers = members.len() - vectors;
    let other = members.iter().any(|(_, m)| m.size > 8 || m.class == Class::Pointer);
    let fits = vectors <= places.vectors() && integers <= places.regs();
    if !double || vectors == 0 || members.len() > 2 || other || !fits {
        return places.words(t);
    }
    let piece =
        |(at, m): &(u32, Scalar)| if m.is_float() { places.vector(*at, m.size) } else { places.reg(*at, m.size) };
    members.iter().filter_map(piece).collect()
}
