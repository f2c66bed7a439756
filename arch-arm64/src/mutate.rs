//! Faulty instructions, to judge a checker by.

use codegen::effect::effects::{Effects, SpEffect};
use codegen::effect::faults::Operator::*;
use codegen::effect::faults::{Either, Faults, Operand, Operator};
use codegen::listing::pattern::{
    Fields, InsnPattern, PatternTable, Place, branch, call, copy, from_sp, jump, leave, load, move_sp, plain, read,
    step, store, to_sp, write,
};
use codegen::mutate::Mutable;
use codegen::words::abi::Reg;
use codegen::words::step::{Disp, Name};

use crate::Arm64;
use crate::abi::ABI;
use crate::faulty::Faulty;
use crate::insn::Insn;
use crate::regs::*;
use crate::reloc;

impl Mutable for Arm64 {
    type Faulty = Faulty;

    const PATTERNS: PatternTable = PATTERNS;

    fn with_registers(insn: Insn, r: &mut dyn FnMut(Reg) -> Reg) -> Insn {
        match insn {
            Insn::Str { src, at } => Insn::Str { src: r(src), at },
            Insn::Stp { a, b, at } => Insn::Stp { a: r(a), b: r(b), at },
            Insn::Ldr { dst, at } => Insn::Ldr { dst: r(dst), at },
            Insn::Ldp { a, b, at } => Insn::Ldp { a: r(a), b: r(b), at },
            Insn::LdrReg { dst, base, at } => Insn::LdrReg { dst: r(dst), base: r(base), at },
            Insn::LdurReg { dst, base, at } => Insn::LdurReg { dst: r(dst), base: r(base), at },
            Insn::Mov { dst, src } => Insn::Mov { dst: r(dst), src: r(src) },
            Insn::MovFromSp { dst } => Insn::MovFromSp { dst: r(dst) },
            Insn::AddSp { dst, imm } => Insn::AddSp { dst: r(dst), imm },
            Insn::Sub { dst, src, imm } => Insn::Sub { dst: r(dst), src: r(src), imm },
            Insn::AlignDown { dst, src } => Insn::AlignDown { dst: r(dst), src: r(src) },
            Insn::Adrp { dst, sym } => Insn::Adrp { dst: r(dst), sym },
            Insn::LdrLo12 { dst, base, sym } => Insn::LdrLo12 { dst: r(dst), base: r(base), sym },
            Insn::Cbnz { reg, to } => Insn::Cbnz { reg: r(reg), to },
            Insn::Cbz { reg, to } => Insn::Cbz { reg: r(reg), to },
            Insn::Blr { reg } => Insn::Blr { reg: r(reg) },
            Insn::Br { reg } => Insn::Br { reg: r(reg) },
            Insn::Ret { reg } => Insn::Ret { reg: r(reg) },
            other => other,
        }
    }

    fn with_displacement(insn: Insn, d: &mut dyn FnMut(Disp) -> Disp) -> Insn {
        match insn {
            Insn::Str { src, at } => Insn::Str { src, at: d(at) },
            Insn::Stp { a, b, at } => Insn::Stp { a, b, at: d(at) },
            Insn::Ldr { dst, at } => Insn::Ldr { dst, at: d(at) },
            Insn::Ldp { a, b, at } => Insn::Ldp { a, b, at: d(at) },
            Insn::AddSp { dst, imm } => Insn::AddSp { dst, imm: d(imm) },
            other => other,
        }
    }

    fn cut(reg: Reg) -> Option<Either<Insn, Faulty>> {
        Some(match reg {
            SP => Either::Faulty(Faulty::MovWsp),
            reg => Either::Sound(Insn::AndLow { dst: reg, src: reg, bits: 32 }),
        })
    }

    fn torn(_: Option<Insn>, insn: Insn) -> Vec<Either<Insn, Faulty>> {
        let Insn::Ldadd { add, dst, base } = insn else { return Vec::new() };
        vec![
            Either::Sound(Insn::LdrReg { dst: X13, base, at: Disp::number(0) }),
            Either::Faulty(Faulty::AddRegs { dst: X14, src: add, add: X13 }),
            Either::Sound(Insn::StrReg { src: X14, base, at: Disp::number(0) }),
            Either::Sound(Insn::Mov { dst, src: X13 }),
        ]
    }

    const JUMPS_BY: &[(Reg, Reg)] = &[(X17, X13)];

    const STRAYS: &[(Operator, Either<Insn, Faulty>)] = &[
        (Operator::ControlWord, Either::Faulty(Faulty::MsrFpcr)),
        (Operator::PlatformReg, Either::Sound(Insn::Add { dst: X18, src: X18, imm: Disp::number(8) })),
        (Operator::WideUpper, Either::Faulty(Faulty::MovVector)),
        (Operator::WideMask, Either::Faulty(Faulty::Wrffr)),
        (Operator::VectorLength, Either::Faulty(Faulty::SmstartSm)),
        (Operator::VectorMode, Either::Faulty(Faulty::MsrFpmr)),
        (Operator::ShadowPointer, Either::Faulty(Faulty::Gcspopm)),
    ];

    fn rerouted(insn: Insn) -> Vec<(Operator, Vec<Either<Insn, Faulty>>)> {
        let link = Either::Faulty(Faulty::AdrLink);
        match insn {
            Insn::Bl { sym } => vec![(Operator::PushCall, vec![link, Insn::B { sym }.into()])],
            Insn::Blr { reg } => vec![(Operator::PushCall, vec![link, Insn::Br { reg }.into()])],
            Insn::BtiC | Insn::BtiJ => vec![(Operator::PadShifted, vec![Insn::Nop.into(), insn.into()])],
            _ => Vec::new(),
        }
    }

    fn signed(insn: Insn) -> Option<Either<Insn, Faulty>> {
        if let Insn::BHs { to } = insn { Some(Either::Faulty(Faulty::BGe { to })) } else { None }
    }

    fn faults(insn: Insn, out: &mut Faults<Either<Insn, Faulty>>) {
        match insn {
            Insn::BtiC | Insn::Paciasp | Insn::Autiasp => hardening_faults(insn, out),
            Insn::StrScs { .. } | Insn::LdrScs { .. } => scs_faults(insn, out),
            Insn::Str { src, at } => {
                out.off_by(Operator::SlotOffset, 8, |by| Insn::Str { src, at: at.moved(by) });
                out.put_faulty(Operator::NarrowSave, Operand::Reg(src), Faulty::StrW { src, at });
            }
            Insn::Stp { a, b, at } => {
                if matches!(at.name, Name::Record(_)) {
                    out.drop(Operator::FrameRecordOmit);
                }
                out.off_by(Operator::SlotOffset, 8, |by| Insn::Stp { a, b, at: at.moved(by) });
                out.put(Operator::SwapSave, Operand::Regs(a, b), Insn::Stp { a: b, b: a, at });
                out.put(Operator::DropSave, Operand::Reg(a), Insn::Str { src: b, at: at.moved(8) });
                out.put(Operator::DropSave, Operand::Reg(b), Insn::Str { src: a, at });
            }
            Insn::Ldr { dst, at } => out.off_by(Operator::SlotOffset, 8, |by| Insn::Ldr { dst, at: at.moved(by) }),
            Insn::Ldp { a, b, at } => {
                out.off_by(Operator::SlotOffset, 8, |by| Insn::Ldp { a, b, at: at.moved(by) });
                out.put(Operator::SwapRestore, Operand::Regs(a, b), Insn::Ldp { a: b, b: a, at });
                out.put(Operator::DropRestore, Operand::Reg(a), Insn::Ldr { dst: b, at: at.moved(8) });
                out.put(Operator::DropRestore, Operand::Reg(b), Insn::Ldr { dst: a, at });
            }
            Insn::StrQ { .. } | Insn::LdrQ { .. } | Insn::StpQ { .. } | Insn::LdpQ { .. } => vector_faults(insn, out),
            Insn::LdrReg { dst, base, at } => {
                out.off_by(Operator::SlotOffset, 8, |by| Insn::LdrReg { dst, base, at: at.moved(by) });
            }
            Insn::LdurReg { dst, base, at } => {
                out.off_by(Operator::SlotOffset, 8, |by| Insn::LdurReg { dst, base, at: at + by });
            }
            Insn::Movz { dst, imm } => {
                out.off_by(Operator::WrongConst, 1, |by| Insn::Movz { dst, imm: imm.wrapping_add(by as u16) });
            }
            Insn::Movk { dst, imm, shift: shift @ 32.. } => {
                out.off_by(Operator::WrongConst, 1, |by| Insn::Movk { dst, imm: imm.wrapping_add(by as u16), shift });
            }
            Insn::Mov { dst: X30, .. } => out.drop(Operator::DropLrFix),
            Insn::Mov { dst, .. } if ABI.args.contains(&dst) => out.drop(Operator::DropArg),
            Insn::MovFromSp { dst } => {
                out.drop(Operator::DropArg);
                out.off_by(Operator::ArgPtrOffset, 8, |by| Insn::AddSp { dst, imm: Disp::number(by) });
            }
            Insn::SubSp { imm } => out.off_by(Operator::FrameSize, 8, |by| Insn::SubSp { imm: imm.moved(by) }),
            Insn::AddSp { dst: SP, imm } => {
                out.off_by(Operator::FrameSize, 8, |by| Insn::AddSp { dst: SP, imm: imm.moved(by) });
            }
            Insn::AddSp { dst: X29, .. } => out.drop(Operator::FrameRecordOmit),
            Insn::AddSp { dst, imm } => {
                out.off_by(Operator::RegsSpOff, 8, |by| Insn::AddSp { dst, imm: imm.moved(by) });
            }
            Insn::Sub { dst, src, imm } => {
                out.drop(Operator::DropArg);
                out.off_by(Operator::IpOffset, 4, |by| Insn::Sub { dst, src, imm: imm.wrapping_add_signed(-by) });
            }
            Insn::Adrp { dst, sym } => {
                out.drop(Operator::DropArg);
                out.put(Operator::StalePcrel, Operand::None, Insn::Adrp { dst, sym: sym.other() });
            }
            Insn::LdrLo12 { dst, base, sym } => {
                out.put(Operator::AddrForValue, Operand::Reg(dst), Insn::AddLo12 { dst, base, sym });
                out.put(Operator::StalePcrel, Operand::None, Insn::LdrLo12 { dst, base, sym: sym.other() });
            }
            Insn::AddTlsLow { dst, src, sym } => {
                out.put(Operator::StalePcrel, Operand::None, Insn::AddTlsLow { dst, src, sym: sym.other() });
            }
            Insn::Cbnz { reg, to } => out.put(Operator::InvertCond, Operand::None, Insn::Cbz { reg, to }),
            Insn::Cbz { reg, to } => out.put(Operator::InvertCond, Operand::None, Insn::Cbnz { reg, to }),
            Insn::Bl { sym } => out.put(Operator::StalePcrel, Operand::None, Insn::Bl { sym: sym.other() }),
            Insn::Blr { reg } => out.put(Operator::CallAsJmp, Operand::None, Insn::Br { reg }),
            Insn::Br { reg } => out.put(Operator::JalrRa, Operand::None, Insn::Blr { reg }),
            Insn::Ret { reg } => {
                out.put(Operator::BrForRet, Operand::Reg(reg), Insn::Br { reg });
                out.put(Operator::WrongLink, Operand::Reg(X30), Insn::Ret { reg: X30 });
            }
            _ => {}
        }
    }
}

fn hardening_faults(insn: Insn, out: &mut Faults<Either<Insn, Faulty>>) {
    let (missing, other, by) = match insn {
        Insn::BtiC => (Operator::DropPad, Operator::PadKind, Faulty::BtiJ),
        Insn::Paciasp => (Operator::GuardMissing, Operator::GuardOther, Faulty::Pacibsp),
        Insn::Autiasp => (Operator::CheckMissing, Operator::CheckOther, Faulty::Autibsp),
        _ => return,
    };
    out.drop(missing);
    out.put_faulty(other, Operand::None, by);
}

fn scs_faults(insn: Insn, out: &mut Faults<Either<Insn, Faulty>>) {
    let (missing, other, by, entry, at) = match insn {
        Insn::StrScs { src } => {
            let unmoved = Insn::StrReg { src, base: X18, at: Disp::number(0) };
            (Operator::GuardMissing, Operator::GuardOther, Insn::StrScs { src: X9 }, Operator::ScsPointer, unmoved)
        }
        Insn::LdrScs { dst } => {
            let above = Insn::LdrReg { dst, base: X18, at: Disp::number(0) };
            (Operator::CheckMissing, Operator::CheckOther, Insn::LdrScs { dst: X9 }, Operator::ScsEntry, above)
        }
        _ => return,
    };
    out.drop(missing);
    out.put(other, Operand::Reg(X9), by);
    out.put(entry, Operand::None, at);
}

fn vector_faults(insn: Insn, out: &mut Faults<Either<Insn, Faulty>>) {
    match insn {
        Insn::StrQ { src, at } => out.off_by(Operator::SlotOffset, 16, |by| Insn::StrQ { src, at: at.moved(by) }),
        Insn::LdrQ { dst, at } => out.off_by(Operator::SlotOffset, 16, |by| Insn::LdrQ { dst, at: at.moved(by) }),
        Insn::StpQ { a, b, at } => {
            out.off_by(Operator::SlotOffset, 16, |by| Insn::StpQ { a, b, at: at.moved(by) });
            out.put(Operator::SwapSave, Operand::None, Insn::StpQ { a: b, b: a, at });
        }
        Insn::LdpQ { a, b, at } => {
            out.off_by(Operator::SlotOffset, 16, |by| Insn::LdpQ { a, b, at: at.moved(by) });
            out.put(Operator::SwapRestore, Operand::None, Insn::LdpQ { a: b, b: a, at });
        }
        _ => {}
    }
}

/// Instructions of others. Arm ARM C6.2; register 31 is sp where it is the base of an address, xzr elsewhere.
#[rustfmt::skip]
const PATTERNS: PatternTable = PatternTable {
    nops: &[&[0x1f, 0x20, 0x03, 0xd5]],
    // MOVZ, MOVN, MOVK; ADR; ADRP, ADD.
    steps: &[
        step(Place::First, InsnPattern::word("110100101 xx i{16} aaaaa", plain), |_, f, _| (f.imm as u64) << (16 * f.rest)),
        step(Place::First, InsnPattern::word("100100101 xx i{16} aaaaa", plain), |_, f, _| !((f.imm as u64) << (16 * f.rest))),
        step(Place::Next, InsnPattern::word("111100101 xx i{16} aaaaa", plain), |before, f, _| {
            before & !(0xffff << (16 * f.rest)) | (f.imm as u64) << (16 * f.rest)
        }),
        step(Place::First, InsnPattern::word("0xx10000 i{19} aaaaa", plain).signed(SlotOffset), |_, f, at| {
            at.wrapping_add_signed(i64::from(f.imm) * 4 + f.rest as i64)
        }),
        step(Place::First, InsnPattern::word("1xx10000 i{19} aaaaa", plain).signed(SlotOffset), |_, f, at| {
            (at & !0xfff).wrapping_add_signed((i64::from(f.imm) * 4 + f.rest as i64) * 4096)
        }),
        step(Place::Next, InsnPattern::word("1001000100 i{12} bbbbb aaaaa", plain), |before, f, _| {
            before.wrapping_add_signed(f.imm.into())
        }),
    ],
    load: &[
        (InsnPattern::word("10010000 x{19} aaaaa", plain), (reloc::ADR_PREL_PG_HI21, 0, 0)),
        (InsnPattern::word("1001000100 i{12} bbbbb aaaaa", plain), (reloc::ADD_ABS_LO12_NC, 0, 0)),
    ],
    list: &[
        // BTI c; in its place, BTI j.
        InsnPattern::word("11010101 00000011 00100100 01011111", plain).missing(DropPad)
            .wrong(PadKind, "11010101 00000011 00100100 10011111"),
        // STR, LDR, STP, LDP at an offset from sp.
        InsnPattern::word("1111100100 i{12} 11111 aaaaa *8", store).unsigned(SlotOffset)
            .wrong(NarrowSave, "1011100100 i{12} 11111 aaaaa *4"),
        InsnPattern::word("1111100101 i{12} 11111 aaaaa *8", load).unsigned(SlotOffset),
        InsnPattern::word("1010100100 iiiiiii bbbbb 11111 aaaaa *8", |f| Effects::store2(f.a, f.b, f.imm)).signed(SlotOffset),
        InsnPattern::word("1010100101 iiiiiii bbbbb 11111 aaaaa *8", |f| Effects::load2(f.a, f.b, f.imm)).signed(SlotOffset),
        // The same, moving sp before a store and after a load.
        InsnPattern::word("11111000000 iiiiiiiii 11 11111 aaaaa", |f| moving(f, Effects::store(f.a, 0))).signed(FrameSize),
        InsnPattern::word("11111000010 iiiiiiiii 01 11111 aaaaa", |f| moving(f, Effects::load(f.a, 0))).signed(FrameSize),
        InsnPattern::word("1010100110 iiiiiii bbbbb 11111 aaaaa *8", |f| moving(f, Effects::store2(f.a, f.b, 0)))
            .signed(FrameSize),
        InsnPattern::word("1010100011 iiiiiii bbbbb 11111 aaaaa *8", |f| moving(f, Effects::load2(f.a, f.b, 0)))
            .signed(FrameSize),
        // STR, LDR, LDUR through another register.
        InsnPattern::word("1111100100 i{12} bbbbb aaaaa *8", write).unsigned(SlotOffset),
        InsnPattern::word("1111100101 i{12} bbbbb aaaaa *8", read).unsigned(SlotOffset),
        InsnPattern::word("11111000010 iiiiiiiii 00 bbbbb aaaaa", read).signed(SlotOffset),
        // ADD and SUB of an immediate: sp, from sp, to sp, any other.
        InsnPattern::word("1001000100 i{12} 11111 11111", move_sp).unsigned(FrameSize),
        InsnPattern::word("1101000100 i{12} 11111 11111", |f| Effects::sp(SpEffect::Move(-f.imm))).unsigned(FrameSize),
        InsnPattern::word("1001000100 i{12} 11111 aaaaa", from_sp).unsigned(ArgPtrOffset),
        InsnPattern::word("1001000100 i{12} bbbbb 11111", to_sp).unsigned(TeardownMismatch),
        InsnPattern::word("1001000100 i{12} bbbbb aaaaa", plain).unsigned(IpOffset),
        InsnPattern::word("1101000100 i{12} bbbbb aaaaa", plain).unsigned(IpOffset),
        // MOV, ADRP.
        InsnPattern::word("10101010000 bbbbb 000000 11111 aaaaa", copy),
        InsnPattern::word("1xx10000 x{19} aaaaa", plain),
        // CBZ and CBNZ, TBZ and TBNZ, B.cond.
        InsnPattern::word("x011010x x{19} aaaaa", branch).wrong(InvertCond, "x011010^ x{19} aaaaa"),
        InsnPattern::word("x011011x x{19} aaaaa", branch).wrong(InvertCond, "x011011^ x{19} aaaaa"),
        InsnPattern::word("01010100 x{19} 0 xxxx", branch).wrong(InvertCond, "01010100 x{19} 0 xxx^"),
        // BL and B, BLR and BR, RET.
        InsnPattern::word("100101 x{26}", call).wrong(CallAsJmp, "000101 x{26}"),
        InsnPattern::word("000101 x{26}", jump).wrong(JalrRa, "100101 x{26}"),
        InsnPattern::word("1101011000111111000000 aaaaa 00000", call).wrong(CallAsJmp, "1101011000011111000000 aaaaa 00000"),
        InsnPattern::word("1101011000011111000000 aaaaa 00000", leave).wrong(JalrRa, "1101011000111111000000 aaaaa 00000"),
        InsnPattern::word("1101011001011111000000 aaaaa 00000", leave).wrong(BrForRet, "1101011000011111000000 aaaaa 00000"),
    ],
};

/// With the immediate as what sp is moved by.
fn moving(fields: &Fields, effects: Effects) -> Effects {
    Effects { sp: SpEffect::Move(fields.imm), ..effects }
}
