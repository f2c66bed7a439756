//! Faulty instructions, to judge a checker by.

use codegen::effect::effects::{Effects, SpEffect};
use codegen::effect::faults::Operator::*;
use codegen::effect::faults::{Either, Faults, Operand, Operator};
use codegen::listing::pattern::{
    Fields, InsnPattern, PatternTable, Place, branch, call, copy, from_sp, jump, leave, load, move_sp, plain, read,
    step, store, trap, write,
};
use codegen::mutate::Mutable;
use codegen::words::abi::Reg;
use codegen::words::step::{Disp, Name};

use crate::X86_64;
use crate::abi::ABI;
use crate::faulty::Faulty;
use crate::insn::{Insn, mov_sp};
use crate::regs::*;
use crate::reloc;

impl Mutable for X86_64 {
    type Faulty = Faulty;

    const PATTERNS: PatternTable = PATTERNS;

    fn with_registers(insn: Insn, r: &mut dyn FnMut(Reg) -> Reg) -> Insn {
        match insn {
            Insn::Push { reg } => Insn::Push { reg: r(reg) },
            Insn::Pop { reg } => Insn::Pop { reg: r(reg) },
            Insn::Mov { dst, src } => Insn::Mov { dst: r(dst), src: r(src) },
            Insn::Store { src, at } => Insn::Store { src: r(src), at },
            Insn::Load { dst, at } => Insn::Load { dst: r(dst), at },
            Insn::LoadSym { dst, sym } => Insn::LoadSym { dst: r(dst), sym },
            Insn::Lea { dst, at } => Insn::Lea { dst: r(dst), at },
            other => other,
        }
    }

    fn with_displacement(insn: Insn, d: &mut dyn FnMut(Disp) -> Disp) -> Insn {
        match insn {
            Insn::Store { src, at } => Insn::Store { src, at: d(at) },
            Insn::Load { dst, at } => Insn::Load { dst, at: d(at) },
            Insn::Lea { dst, at } => Insn::Lea { dst, at: d(at) },
            // Down from what lies so far above SP.
            Insn::LeaSpFromBp { at } => {
                let above = d(Disp { value: -at.value, ..at });
                Insn::LeaSpFromBp { at: Disp { value: -above.value, ..above } }
            }
            other => other,
        }
    }

    fn cut(reg: Reg) -> Option<Either<Insn, Faulty>> {
        Some(Either::Faulty(Faulty::Mov32 { reg }))
    }

    fn torn(before: Option<Insn>, insn: Insn) -> Vec<Either<Insn, Faulty>> {
        let (reg, at, by) = match (before, insn) {
            (Some(Insn::MovImm { dst, imm }), Insn::XaddThread { reg, at }) if dst == reg => (reg, at, imm as i8),
            (_, Insn::IncThread { at }) => (R11, at, 1),
            _ => return Vec::new(),
        };
        vec![
            Either::Sound(Insn::LoadThread { dst: reg, at }),
            Either::Sound(Insn::Sub { dst: reg, imm: -by }),
            Either::Sound(Insn::StoreThread { src: reg, at }),
            Either::Sound(Insn::Sub { dst: reg, imm: by }),
        ]
    }

    fn rerouted(insn: Insn) -> Vec<(Operator, Vec<Either<Insn, Faulty>>)> {
        match insn {
            Insn::Ret => vec![(Operator::BrForRet, vec![Insn::Pop { reg: R11 }.into(), Insn::JmpR11.into()])],
            Insn::JmpR11 => vec![(Operator::PushRet, vec![Insn::Push { reg: R11 }.into(), Insn::Ret.into()])],
            Insn::JmpBody { sym } => {
                let lea = Insn::LeaSym { dst: R11, sym };
                vec![(Operator::PushRet, vec![lea.into(), Insn::Push { reg: R11 }.into(), Insn::Ret.into()])]
            }
            Insn::Call { sym } | Insn::CallBody { sym } => {
                let link = Either::Faulty(Faulty::LeaBehindJmp);
                vec![(Operator::PushCall, vec![link, Insn::Push { reg: R11 }.into(), Insn::JmpBody { sym }.into()])]
            }
            Insn::JmpReturn { .. } => vec![(Operator::RetForThunk, vec![Insn::Ret.into()])],
            Insn::Endbr64 => vec![(Operator::PadShifted, vec![Insn::Nop5.into(), insn.into()])],
            _ => Vec::new(),
        }
    }

    const STRAYS: &[(Operator, Either<Insn, Faulty>)] = &[
        (Operator::ControlWord, Either::Faulty(Faulty::Fninit)),
        (Operator::Direction, Either::Faulty(Faulty::Std)),
        (Operator::WideUpper, Either::Faulty(Faulty::Vzeroupper)),
        (Operator::WideMask, Either::Faulty(Faulty::Kxnorw)),
        (Operator::ShadowPointer, Either::Faulty(Faulty::Incsspq)),
    ];

    fn signed(insn: Insn) -> Option<Either<Insn, Faulty>> {
        if let Insn::JaeFar { to } = insn { Some(Either::Faulty(Faulty::JgeFar { to })) } else { None }
    }

    fn faults(insn: Insn, out: &mut Faults<Either<Insn, Faulty>>) {
        match insn {
            Insn::Endbr64 => {
                out.drop(Operator::DropPad);
                out.put_faulty(Operator::PadKind, Operand::None, Faulty::Endbr32);
            }
            Insn::Pushfq => out.drop(Operator::DropPushf),
            Insn::Store { src, at } => {
                if matches!(at.name, Name::Record(_)) {
                    out.drop(Operator::FrameRecordOmit);
                }
                out.off_by(Operator::SlotOffset, 8, |by| Insn::Store { src, at: at.moved(by) });
                out.put_faulty(Operator::NarrowSave, Operand::Reg(src), Faulty::Store32 { src, at });
            }
            Insn::StoreImm { imm, at } => {
                out.off_by(Operator::SlotOffset, 8, |by| Insn::StoreImm { imm, at: at.moved(by) });
                out.off_by(Operator::WrongConst, 1, |by| Insn::StoreImm { imm: imm.wrapping_add(by), at });
            }
            Insn::MovAbs { dst, imm } => {
                out.off_by(Operator::WrongConst, 1, |by| Insn::MovAbs { dst, imm: imm.wrapping_add(by.into()) });
            }
            Insn::Load { dst, at } => {
                out.off_by(Operator::SlotOffset, 8, |by| Insn::Load { dst, at: at.moved(by) });
            }
            Insn::StoreVector { src, at } => {
                out.off_by(Operator::SlotOffset, 8, |by| Insn::StoreVector { src, at: at.moved(by) });
            }
            Insn::LoadVector { dst, at } => {
                out.off_by(Operator::SlotOffset, 8, |by| Insn::LoadVector { dst, at: at.moved(by) });
            }
            Insn::PushBp { at } => out.off_by(Operator::SlotOffset, 8, |by| Insn::PushBp { at: at + by }),
            Insn::PushSlot { at } => out.off_by(Operator::SlotOffset, 8, |by| Insn::PushSlot { at: at + by }),
            Insn::LoadSlot { dst, at } => out.off_by(Operator::SlotOffset, 8, |by| Insn::LoadSlot { dst, at: at + by }),
            Insn::PopSlot { at } => out.off_by(Operator::SlotOffset, 8, |by| Insn::PopSlot { at: at + by }),
            Insn::CmpSlot { reg, at } => out.off_by(Operator::SlotOffset, 8, |by| Insn::CmpSlot { reg, at: at + by }),
            Insn::LoadSym { dst, sym } => {
                out.drop(Operator::DropArg);
                out.put(Operator::AddrForValue, Operand::Reg(dst), Insn::LeaSym { dst, sym });
                out.put(Operator::StalePcrel, Operand::None, Insn::LoadSym { dst, sym: sym.other() });
            }
            Insn::Lea { dst: RSP, at } => {
                out.put(Operator::AddForLea, Operand::None, Insn::AddSp { imm: at });
                out.off_by(Operator::TeardownMismatch, 8, |by| Insn::Lea { dst: RSP, at: at.moved(by) });
            }
            Insn::Lea { dst: RBP, at } => {
                out.drop(Operator::FrameRecordOmit);
                out.off_by(Operator::ArgPtrOffset, 8, |by| Insn::Lea { dst: RBP, at: at.moved(by) });
            }
            Insn::Lea { dst, at } => out.off_by(Operator::RegsSpOff, 8, |by| Insn::Lea { dst, at: at.moved(by) }),
            Insn::LeaSpFromBp { at } => {
                out.off_by(Operator::TeardownMismatch, 8, |by| Insn::LeaSpFromBp { at: at.moved(by) });
            }
            Insn::SubSp { imm } => out.off_by(Operator::FrameSize, 8, |by| Insn::SubSp { imm: imm.moved(by) }),
            Insn::AddSp { imm } => out.off_by(Operator::FrameSize, 8, |by| Insn::AddSp { imm: imm.moved(by) }),
            Insn::Sub { dst, imm } => out.off_by(Operator::IpOffset, 1, |by| Insn::Sub { dst, imm: imm - by as i8 }),
            Insn::Mov { dst: RBP, src: RSP } => out.drop(Operator::FrameRecordOmit),
            Insn::Mov { dst, src } if ABI.args.contains(&dst) => {
                out.drop(Operator::DropArg);
                if src == RSP {
                    out.off_by(Operator::ArgPtrOffset, 8, |by| Insn::Lea { dst, at: Disp::number(by) });
                }
            }
            Insn::Call { sym } | Insn::CallBody { sym } => {
                out.put(Operator::StalePcrel, Operand::None, Insn::Call { sym: sym.other() });
            }
            Insn::JmpBody { sym } => {
                out.put(Operator::StalePcrel, Operand::None, Insn::JmpBody { sym: sym.other() });
                out.put(Operator::JalrRa, Operand::None, Insn::CallBody { sym });
            }
            Insn::JnzFar { to } => out.put_faulty(Operator::InvertCond, Operand::None, Faulty::JzFar { to }),
            Insn::Jnz { to } => out.put(Operator::InvertCond, Operand::None, Insn::Jz { to }),
            Insn::Jz { to } => out.put(Operator::InvertCond, Operand::None, Insn::Jnz { to }),
            _ => thread_faults(insn, out),
        }
    }
}

/// Another word of the thread, where a linker says where they are.
fn thread_faults(insn: Insn, out: &mut Faults<Either<Insn, Faulty>>) {
    let mut moved = |at: Disp, form: &dyn Fn(Disp) -> Insn| {
        if at.variable().is_some() {
            out.off_by(Operator::SlotOffset, 8, |by| form(at.moved(by)));
        }
    };
    match insn {
        Insn::XaddThread { reg, at } => moved(at, &|at| Insn::XaddThread { reg, at }),
        Insn::CmpThread { reg, at } => moved(at, &|at| Insn::CmpThread { reg, at }),
        Insn::IncThread { at } => moved(at, &|at| Insn::IncThread { at }),
        Insn::LoadThread { dst, at } => moved(at, &|at| Insn::LoadThread { dst, at }),
        Insn::StoreThread { src, at } => moved(at, &|at| Insn::StoreThread { src, at }),
        _ => {}
    }
}

/// Instructions of others. Intel SDM volume 2; the fields of REX and ModRM are those of tables 2-4 and 2-2.
#[rustfmt::skip]
const PATTERNS: PatternTable = PatternTable {
    nops: &[&[0x90]],
    // MOVABS, LEA from rip.
    steps: &[
        step(Place::First, InsnPattern::bytes("0100100A 10111aaa x{64}", plain), |_, f, _| f.rest),
        step(Place::First, InsnPattern::bytes("01001A00 10001101 00aaa101 i{32}", plain).signed(SlotOffset),
            |_, f, at| at.wrapping_add(7).wrapping_add_signed(f.imm.into())),
    ],
    load: &[(InsnPattern::bytes("01001A00 10001101 00aaa101 i{32}", plain), (reloc::PC32, 3, -4))],
    list: &[
        // ENDBR64; in its place, ENDBR32.
        InsnPattern::bytes("11110011 00001111 00011110 11111010", plain).missing(DropPad)
            .wrong(PadKind, "11110011 00001111 00011110 11111011"),
        // PUSH and POP of a register, PUSHFQ and POPFQ, LEAVE.
        InsnPattern::bytes("01010aaa", |f| moving(-8, Effects::store(f.a, 0))),
        InsnPattern::bytes("01011aaa", |f| moving(8, Effects::load(f.a, 0))),
        InsnPattern::bytes("0100000A 01010aaa", |f| moving(-8, Effects::store(f.a, 0))),
        InsnPattern::bytes("0100000A 01011aaa", |f| moving(8, Effects::load(f.a, 0))),
        InsnPattern::bytes("10011100", |f| moving(-8, write(f))).missing(DropPushf),
        InsnPattern::bytes("10011101", |f| moving(8, read(f))),
        InsnPattern::bytes("11001001", |_| Effects::sp(SpEffect::CopyFrom(RBP, 8))),
        // PUSH, MOV and LEA at (%rsp), disp8(%rsp), disp32(%rsp).
        InsnPattern::bytes("11111111 00110100 00100100", |f| moving(-8, read(f))),
        InsnPattern::bytes("11111111 01110100 00100100 iiiiiiii", |f| moving(-8, read(f))).signed(SlotOffset),
        InsnPattern::bytes("11111111 10110100 00100100 i{32}", |f| moving(-8, read(f))).signed(SlotOffset),
        InsnPattern::bytes("01001A00 10001001 00aaa100 00100100", store)
            .wrong(NarrowSave, "01000A00 10001001 00aaa100 00100100"),
        InsnPattern::bytes("01001A00 10001011 00aaa100 00100100", load),
        InsnPattern::bytes("01001A00 10001001 01aaa100 00100100 iiiiiiii", store).signed(SlotOffset)
            .wrong(NarrowSave, "01000A00 10001001 01aaa100 00100100 iiiiiiii"),
        InsnPattern::bytes("01001A00 10001011 01aaa100 00100100 iiiiiiii", load).signed(SlotOffset),
        InsnPattern::bytes("01001A00 10001001 10aaa100 00100100 i{32}", store).signed(SlotOffset)
            .wrong(NarrowSave, "01000A00 10001001 10aaa100 00100100 i{32}"),
        InsnPattern::bytes("01001A00 10001011 10aaa100 00100100 i{32}", load).signed(SlotOffset),
        InsnPattern::bytes("01001000 10001101 01100100 00100100 iiiiiiii", move_sp).signed(FrameSize)
            .wrong(AddForLea, "01001000 10000011 11000100 iiiiiiii"),
        InsnPattern::bytes("01001000 10001101 10100100 00100100 i{32}", move_sp).signed(FrameSize)
            .wrong(AddForLea, "01001000 10000001 11000100 i{32}"),
        InsnPattern::bytes("01001A00 10001101 00aaa100 00100100", from_sp),
        InsnPattern::bytes("01001A00 10001101 01aaa100 00100100 iiiiiiii", from_sp).signed(ArgPtrOffset),
        InsnPattern::bytes("01001A00 10001101 10aaa100 00100100 i{32}", from_sp).signed(ArgPtrOffset),
        // MOV and LEA at disp8(%rbp), disp32(%rbp).
        InsnPattern::bytes("01001A00 10001001 01aaa101 iiiiiiii", store).signed(SlotOffset)
            .wrong(NarrowSave, "01000A00 10001001 01aaa101 iiiiiiii"),
        InsnPattern::bytes("01001A00 10001011 01aaa101 iiiiiiii", load).signed(SlotOffset),
        InsnPattern::bytes("01001000 10001101 01100101 iiiiiiii", |f| Effects::sp(SpEffect::CopyFrom(RBP, f.imm)))
            .signed(TeardownMismatch),
        InsnPattern::bytes("01001A00 10001101 01aaa101 iiiiiiii", plain).signed(ArgPtrOffset),
        InsnPattern::bytes("01001A00 10001001 10aaa101 i{32}", store).signed(SlotOffset)
            .wrong(NarrowSave, "01000A00 10001001 10aaa101 i{32}"),
        InsnPattern::bytes("01001A00 10001011 10aaa101 i{32}", load).signed(SlotOffset),
        InsnPattern::bytes("01001000 10001101 10100101 i{32}", |f| Effects::sp(SpEffect::CopyFrom(RBP, f.imm)))
            .signed(TeardownMismatch),
        InsnPattern::bytes("01001A00 10001101 10aaa101 i{32}", plain).signed(ArgPtrOffset),
        // MOV of an immediate to the stack; between registers, encoded either way; from a variable. TEST.
        InsnPattern::bytes("01001000 11000111 00000100 00100100 x{32}", write),
        InsnPattern::bytes("01001000 11000111 01000100 00100100 iiiiiiii x{32}", write).signed(SlotOffset),
        InsnPattern::bytes("01001000 11000111 10000100 00100100 i{32} x{32}", write).signed(SlotOffset),
        InsnPattern::bytes("01001B0A 10001001 11bbbaaa", mov),
        InsnPattern::bytes("01001A0B 10001011 11aaabbb", mov),
        InsnPattern::bytes("01001A00 10001011 00aaa101 x{32}", read).wrong(AddrForValue, "01001A00 10001101 00aaa101 x{32}"),
        InsnPattern::bytes("01001B0A 10000101 11bbbaaa", plain),
        InsnPattern::bytes("10101000 xxxxxxxx", plain),
        // ADD, SUB and AND of an immediate: rsp; ADD, SUB and AND, any other.
        InsnPattern::bytes("01001000 10000011 11000100 iiiiiiii", move_sp).signed(FrameSize),
        InsnPattern::bytes("01001000 10000011 11101100 iiiiiiii", |f| moving(-f.imm, Effects::PLAIN)).signed(FrameSize),
        InsnPattern::bytes("01001000 10000011 11100100 xxxxxxxx", |_| Effects::sp(SpEffect::Realign)),
        InsnPattern::bytes("0100100A 10000011 11000aaa iiiiiiii", plain).signed(IpOffset),
        InsnPattern::bytes("0100100A 10000011 11101aaa iiiiiiii", plain).signed(IpOffset),
        InsnPattern::bytes("0100100A 10000011 11100aaa xxxxxxxx", plain),
        InsnPattern::bytes("01001000 10000001 11000100 i{32}", move_sp).signed(FrameSize),
        InsnPattern::bytes("01001000 10000001 11101100 i{32}", |f| moving(-f.imm, Effects::PLAIN)).signed(FrameSize),
        InsnPattern::bytes("01001000 10000001 11100100 x{32}", |_| Effects::sp(SpEffect::Realign)),
        InsnPattern::bytes("0100100A 10000001 11000aaa i{32}", plain).signed(IpOffset),
        InsnPattern::bytes("0100100A 10000001 11101aaa i{32}", plain).signed(IpOffset),
        // CALL and JMP, direct and through a register; Jcc, of which the lowest bit inverts the condition.
        InsnPattern::bytes("11101000 x{32}", call).wrong(CallAsJmp, "11101001 x{32}"),
        InsnPattern::bytes("11101001 x{32}", jump).wrong(JalrRa, "11101000 x{32}"),
        InsnPattern::bytes("11101011 xxxxxxxx", jump),
        InsnPattern::bytes("11111111 11010aaa", call).wrong(CallAsJmp, "11111111 11100aaa"),
        InsnPattern::bytes("11111111 11100aaa", leave).wrong(JalrRa, "11111111 11010aaa"),
        InsnPattern::bytes("0100000A 11111111 11010aaa", call).wrong(CallAsJmp, "0100000A 11111111 11100aaa"),
        InsnPattern::bytes("0100000A 11111111 11100aaa", leave).wrong(JalrRa, "0100000A 11111111 11010aaa"),
        InsnPattern::bytes("0111xxxx xxxxxxxx", branch).wrong(InvertCond, "0111xxx^ xxxxxxxx"),
        InsnPattern::bytes("00001111 1000xxxx x{32}", branch).wrong(InvertCond, "00001111 1000xxx^ x{32}"),
        // RET, INT3.
        InsnPattern::bytes("11000011", leave),
        InsnPattern::bytes("11001100", trap),
    ],
};

/// And moves SP.
fn moving(by: i32, effects: Effects) -> Effects {
    Effects { sp: SpEffect::Move(by), ..effects }
}

fn mov(fields: &Fields) -> Effects {
    Effects { sp: mov_sp(fields.a, fields.b), ..copy(fields) }
}
