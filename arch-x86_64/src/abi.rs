//! The psABI as C uses it, what the options mean, and the frames that no C code knows.

use codegen::arch::harden::{Harden, ReturnStyle, TypeWord};
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
use codegen::words::error::{Error, Result};
use codegen::words::proto::{Prototype, Type};
use codegen::words::recorder::{Events, Recorder};

use crate::emu::MACHINE;
use crate::option::{CallPadding, Cfi, DirectWay, Endbr, RestoreFlags, Return, StackAlign, Unwinder, Vectors};
use crate::regs::*;
use crate::reloc;
use crate::sled;

/// Free after the callback until it is restored, which is last; and where a prototype says that it carries nothing.
pub const AFTER: Reg = RAX;

/// System V x86-64 psABI, section 3.2.
pub const ABI: Abi = Abi {
    regs: TABLE,
    args: &[RDI, RSI, RDX, RCX, R8, R9],
    rets: &[RAX, RDX],
    // syscall(2), "Architecture calling conventions".
    syscall: SyscallRegs { number: RAX, args: &[RDI, RSI, RDX, R10, R8, R9] },
    exit_rets: &[RAX, RDX],
    sret: RDI,
    hidden: RegSet::of(&[RAX]),
    // x86-64 psABI, 3.2.3: the static chain is in r10, and al counts the vector arguments of a variadic call.
    live: &[("static-chain", RegSet::of(&[R10])), ("varargs", RegSet::of(&[RAX]))],
    callee_saved: RegSet::of(&[RBX, RBP, R12, R13, R14, R15]),
    caller_saved: RegSet::of(&[RAX, RCX, RDX, RSI, RDI, R8, R9, R10, R11]),
    linkage: RegSet::EMPTY,
    platform: RegSet::EMPTY,
    scs: None,
    zero: None,
    sp: RSP,
    fp: RBP,
    link: None,
    vectors: 16,
    vector_bytes: 16,
    // System V psABI, figure 3.36.
    vector_column: 17,
    vector_args: &[0, 1, 2, 3, 4, 5, 6, 7],
    vector_rets: &[0, 1],
    vector_callee_saved: &[],
    vector_function_saved: &[],
    sp_align: 16,
    widens: false,
    return_columns: &[16],
};

/// From SP up: copied stack arguments, vector registers, argument registers, and the record that rbp completes.
fn direct_frame(live: &Live) -> FrameLayout {
    let mut at = 8 * i32::from(live.stack);
    let mut fields = Vec::new();
    let mut slot = |symbol, content, bytes| {
        fields.push(field(symbol, "", at, content, Stores::TakeEffect));
        at += bytes;
    };
    for (symbol, &vector) in VECTOR_SLOTS.iter().zip(ABI.vector_args).take(live.saved_vectors().into()) {
        slot(symbol, Content::Vector(vector), VECTOR);
    }
    for (symbol, &reg) in ARG_SLOTS.iter().zip(ABI.args).filter(|(_, reg)| live.regs.contains(**reg)) {
        slot(symbol, Content::Reg(reg), 8);
    }
    for (symbol, reg) in LIVE_SLOTS.iter().zip(live.others(&ABI)) {
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
fn around_frame(below: i32, fields: Vec<Field>) -> FrameLayout {
    let above = (below + 15) & !15;
    let records = vec![
        Record { symbol: "RECORD_PARENT", offset: above + 16, ret: Content::ParentIp },
        Record { symbol: "RECORD_PC", offset: above, ret: Content::Pc },
    ];
    FrameLayout { size_symbol: "FRAME_SIZE", size: above + 24, fields, records, ..FrameLayout::empty() }
}

/// The caller's rbp below the return address that the caller's call pushed; or what is needed where every register is kept.
fn record_frame(recorder: &Recorder) -> FrameLayout {
    if recorder.keeps_all {
        let slot = |symbol, offset, reg| field(symbol, "", offset, Content::Reg(reg), Stores::Hidden);
        let mut fields = vec![slot("SAVED_R11", 0, R11)];
        if recorder.events == Events::Both || recorder.clock.of_cpu() {
            fields.push(slot("SAVED_RAX", 8, RAX));
        }
        let size = 8 * fields.len() as i32;
        return FrameLayout { size_symbol: "FRAME_SIZE", size, fields, ..FrameLayout::empty() };
    }
    // The slot of both records below it, twice: SP is aligned.
    let offset = if recorder.pair { 16 } else { 0 };
    let records = vec![Record { symbol: "RECORD_PARENT", offset, ret: Content::ParentIp }];
    FrameLayout { size_symbol: "FRAME_SIZE", size: offset + 8, records, pushed: true, ..FrameLayout::empty() }
}

fn around_args(args: usize, others: RegSet) -> FrameLayout {
    let slot = |symbol, i: usize, content| field(symbol, "", 8 * i as i32, content, Stores::TakeEffect);
    let mut fields: Vec<Field> = (0..args).map(|i| slot(ARG_SLOTS[i], i, Content::Reg(ABI.args[i]))).collect();
    let live = (args..).zip(LIVE_SLOTS.iter().zip(others.iter()));
    fields.extend(live.map(|(i, (symbol, reg))| slot(symbol, i, Content::Reg(reg))));
    let slots = fields.len().max(2);
    fields.extend((0..2).map(|i| slot(RESULT_SLOTS[i], i, Content::Result(ABI.rets[i]))));
    around_frame(8 * slots as i32, fields)
}

/// The record of the traced function's caller above that of the function. Where the site jumped, one of the return addresses
/// is where the caller's call pushed it, and rbp below it completes the record.
fn programs_frame(programs: &Programs) -> FrameLayout {
    let (fields, below) = context(programs, &ABI);
    if programs.call_orig && !programs.skip_frame {
        return around_frame(below, fields);
    }
    let above = (below + 15) & !15;
    // Unwinders only go up. pc lies below parent_ip as the calls pushed them, so both records have copies.
    let records = vec![
        Record { symbol: "RECORD_PARENT", offset: above + 16, ret: Content::ParentIp },
        Record { symbol: "RECORD_PC", offset: above, ret: Content::Pc },
    ];
    FrameLayout { size_symbol: "FRAME_SIZE", size: above + 32, fields, records, ..FrameLayout::empty() }
}

/// Bytes of a vector register.
pub const VECTOR: i32 = ABI.vector_bytes as i32;

/// The instructions that are written at sites and into copies of trampolines. `jnz` is without its distance.
pub const PATCHED: &[(&str, &[u8])] = &[
    ("nop", &[0x0f, 0x1f, 0x44, 0x00, 0x00]),
    ("short nop", &[0x66, 0x90]),
    ("jnz", &[0x75]),
    ("ret", &[0xc3]),
    ("int3", &[0xcc]),
];

/// Resolve the options.
///
/// # Errors
/// A profile whose sites arrive as no trampoline here expects.
pub fn target(convention: &'static Convention, choices: Choices) -> Result<Target> {
    arrives(convention)?;
    let harden = harden(choices);
    let frame_pointer = choices.option::<Unwinder>() == Unwinder::Fp;
    let align16 = choices.option::<StackAlign>() == StackAlign::Sixteen;
    let restores_flags = choices.option::<RestoreFlags>() == RestoreFlags::On;
    let jump = choices.option::<DirectWay>() == DirectWay::Jmp;
    if jump && convention.site.direct_jumps {
        let profile = convention.profile;
        return Err(Error::new(format!(
            "direct-way=jmp on x86_64: profile {profile} has `direct-jumps`, and no register is left for the bit; valid: \
             direct-way=ret"
        )));
    }
    let layouts = Layouts {
        direct: |live, _| direct_frame(live),
        around: Some(around_args),
        programs: Some(programs_frame),
        record: Some(record_frame),
        sled: Some(sled::frame),
        vectors: |_| u32::MAX,
    };
    let own = Own {
        e_flags: 0,
        harden,
        direct_test: AFTER,
        stack_align: if align16 { 16 } else { 8 },
        resume: if harden.landing.is_some() { 9 } else { 5 },
        pad: 0,
        lead: (&[0x90; 16], &[".skip\t16, 0x90"]),
        layouts,
        places: Some(place),
    };
    Ok(Target {
        pushes_flags: true,
        restores_flags,
        realign: align16.then_some(16),
        saves_vectors: choices.option::<Vectors>() == Vectors::Save,
        marks_regs: frame_pointer && convention.marks_regs,
        direct_jump: jump.then_some(R11),
        ..Target::plain(convention, choices, own)
    })
}

fn harden(choices: Choices) -> Harden {
    let padded = choices.option::<CallPadding>() == CallPadding::On;
    Harden {
        landing: match choices.option() {
            Endbr::On => Some("ENDBR64"),
            Endbr::Off => None,
        },
        returns: match choices.option() {
            Return::Ret => ReturnStyle::Plain,
            Return::Int3 => ReturnStyle::Trapped,
            Return::Thunk => ReturnStyle::Thunk(MACHINE.return_thunk),
        },
        padding: if padded { &[0x90; 16] } else { &[] },
        typed: match choices.option() {
            Cfi::Kcfi => Some(type_word(padded)),
            Cfi::Off => None,
        },
        guard: None,
    }
}

/// The word is the operand of a MOV to eax, so that objtool can decode it, and both with the NOPs are as long as functions are
/// aligned. With room for code that counts calls, that room is directly before the function; without, nothing is
/// (arch/x86/include/asm/linkage.h).
fn type_word(padded: bool) -> TypeWord {
    const MOV: u8 = 0xb8;
    const NOPS: [u8; 11] = [0x90; 11];
    const NOPS_AND_MOV: [u8; 12] = [0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, MOV];
    let (before, after): (&[u8], &[u8]) = if padded { (&[MOV], &NOPS) } else { (&NOPS_AND_MOV, &[]) };
    TypeWord { before, after, r_type: reloc::ABS32, labelled: true }
}

/// A call pushed pc, below parent_ip.
fn arrives(convention: &Convention) -> Result<()> {
    let site = &convention.site;
    if (site.pc, site.parent_ip, site.pushed) == (Loc::Stack(0), Loc::Stack(8), 8) {
        return Ok(());
    }
    Err(convention.refuse_site("pc = \"sp+0\", parent-ip = \"sp+8\", pushed = 8"))
}

/// The places of a call's arguments and result: psABI, section 3.2.3.
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
