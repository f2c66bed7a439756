//! Faulty instructions, to judge a checker by.

use codegen::effect::faults::Operator::*;
use codegen::effect::faults::{Either, Faults, Operand, Operator};
use codegen::listing::pattern::{
    Fields, InsnPattern, PatternTable, Place, branch, call, copy, from_sp, jump, leave, load, move_sp, plain, read,
    step, store, to_sp, trap,
};
use codegen::mutate::Mutable;
use codegen::words::abi::Reg;
use codegen::words::step::Disp;

use crate::Riscv64;
use crate::abi::ABI;
use crate::faulty::Faulty;
use crate::insn::Insn;
use crate::regs::*;
use crate::reloc;

impl Mutable for Riscv64 {
    type Faulty = Faulty;

    const PATTERNS: PatternTable = PATTERNS;

    fn with_registers(insn: Insn, r: &mut dyn FnMut(Reg) -> Reg) -> Insn {
        match insn {
            Insn::Sd { src, at } => Insn::Sd { src: r(src), at },
            Insn::Ld { dst, at } => Insn::Ld { dst: r(dst), at },
            Insn::Mv { dst, src } => Insn::Mv { dst: r(dst), src: r(src) },
            Insn::Addi { dst, src, imm } => Insn::Addi { dst: r(dst), src: r(src), imm },
            Insn::AuipcHi { dst, sym } => Insn::AuipcHi { dst: r(dst), sym },
            Insn::LdLo { dst, anchor } => Insn::LdLo { dst: r(dst), anchor },
            Insn::LdReg { dst, base, at } => Insn::LdReg { dst: r(dst), base: r(base), at },
            Insn::Bnez { reg, to } => Insn::Bnez { reg: r(reg), to },
            Insn::Beqz { reg, to } => Insn::Beqz { reg: r(reg), to },
            Insn::Jr { reg } => Insn::Jr { reg: r(reg) },
            Insn::Jalr { reg } => Insn::Jalr { reg: r(reg) },
            other => other,
        }
    }

    fn with_displacement(insn: Insn, d: &mut dyn FnMut(Disp) -> Disp) -> Insn {
        match insn {
            Insn::Sd { src, at } => Insn::Sd { src, at: d(at) },
            Insn::Ld { dst, at } => Insn::Ld { dst, at: d(at) },
            Insn::Addi { dst, src: SP, imm } => Insn::Addi { dst, src: SP, imm: d(imm) },
            other => other,
        }
    }

    fn cut(reg: Reg) -> Option<Either<Insn, Faulty>> {
        Some(Either::Sound(Insn::Addiw { dst: reg, imm: 0 }))
    }

    fn torn(_: Option<Insn>, insn: Insn) -> Vec<Either<Insn, Faulty>> {
        let Insn::AmoaddD { dst, add, base } = insn else { return Vec::new() };
        vec![
            Either::Sound(Insn::LdReg { dst: T6, base, at: Disp::number(0) }),
            Either::Faulty(Faulty::AddRegs { dst: T1, src: add, add: T6 }),
            Either::Sound(Insn::SdReg { src: T1, base, at: Disp::number(0) }),
            Either::Sound(Insn::Mv { dst, src: T6 }),
        ]
    }

    fn rerouted(insn: Insn) -> Vec<(Operator, Vec<Either<Insn, Faulty>>)> {
        match insn {
            Insn::Jr { reg: RA } => {
                vec![(Operator::BrForRet, vec![Insn::Mv { dst: T1, src: RA }.into(), Insn::Jr { reg: T1 }.into()])]
            }
            Insn::Lpad => vec![(Operator::PadShifted, vec![Insn::Nop.into(), insn.into()])],
            _ => Vec::new(),
        }
    }

    const JUMPS_BY: &[(Reg, Reg)] = &[(T2, T1)];

    const STRAYS: &[(Operator, Either<Insn, Faulty>)] = &[
        (Operator::ControlWord, Either::Faulty(Faulty::FsrmZero)),
        (Operator::PlatformReg, Either::Sound(Insn::Addi { dst: GP, src: GP, imm: Disp::number(8) })),
        (Operator::WideUpper, Either::Faulty(Faulty::VmvVI)),
        (Operator::WideMask, Either::Faulty(Faulty::VmsetM)),
        (Operator::VectorLength, Either::Faulty(Faulty::Vsetivli)),
        (Operator::VectorMode, Either::Faulty(Faulty::CsrwiVxrm)),
        (Operator::ShadowPointer, Either::Faulty(Faulty::CsrwiSsp)),
    ];

    fn signed(insn: Insn) -> Option<Either<Insn, Faulty>> {
        let Insn::Bgeu { reg, with, to } = insn else { return None };
        Some(Either::Faulty(Faulty::Bge { reg, with, to }))
    }

    fn faults(insn: Insn, out: &mut Faults<Either<Insn, Faulty>>) {
        match insn {
            Insn::Lpad | Insn::SspushRa | Insn::SspopchkRa => hardening_faults(insn, out),
            Insn::SdScs { .. } | Insn::LdScs { .. } => scs_faults(insn, out),
            Insn::Addi { dst: GP, src: GP, .. } => out.drop(Operator::ScsPointer),
            Insn::Sd { src, at } => {
                out.off_by(Operator::SlotOffset, 8, |by| Insn::Sd { src, at: at.moved(by) });
                out.put_faulty(Operator::NarrowSave, Operand::Reg(src), Faulty::Sw { src, at });
            }
            Insn::Ld { dst, at } => out.off_by(Operator::SlotOffset, 8, |by| Insn::Ld { dst, at: at.moved(by) }),
            Insn::Fsd { src, at } => out.off_by(Operator::SlotOffset, 8, |by| Insn::Fsd { src, at: at.moved(by) }),
            Insn::Fld { dst, at } => out.off_by(Operator::SlotOffset, 8, |by| Insn::Fld { dst, at: at.moved(by) }),
            Insn::Mv { dst: RA, .. } => out.drop(Operator::DropLrFix),
            Insn::Mv { dst, src } if ABI.args.contains(&dst) => {
                out.drop(Operator::DropArg);
                if src == SP {
                    out.off_by(Operator::ArgPtrOffset, 8, |by| Insn::Addi { dst, src, imm: Disp::number(by) });
                }
            }
            Insn::Addi { dst: SP, src: SP, imm } => {
                // Downwards the frame is allocated, upwards released.
                out.off_by(Operator::FrameSize, 8, |by| {
                    let value = imm.value + by * imm.value.signum();
                    Insn::Addi { dst: SP, src: SP, imm: Disp::number(value) }
                });
            }
            Insn::Addi { dst, src: SP, imm } => {
                out.off_by(Operator::RegsSpOff, 8, |by| Insn::Addi { dst, src: SP, imm: imm.moved(by) });
            }
            Insn::Addi { dst, src: ZERO, imm } => {
                out.off_by(Operator::WrongConst, 1, |by| Insn::Addi { dst, src: ZERO, imm: imm.moved(by) });
            }
            Insn::Lui { dst, imm } => {
                out.off_by(Operator::WrongConst, 1, |by| Insn::Lui { dst, imm: (imm + by) & 0xf_ffff })
            }
            Insn::Addiw { dst, imm } => out.off_by(Operator::WrongConst, 1, |by| Insn::Addiw { dst, imm: imm + by }),
            Insn::LuiWide { dst, imm } => {
                out.off_by(Operator::WrongConst, 1, |by| Insn::LuiWide { dst, imm: (imm + by) & 0xf_ffff })
            }
            Insn::AddiwWide { dst, imm } => {
                out.off_by(Operator::WrongConst, 1, |by| Insn::AddiwWide { dst, imm: imm + by })
            }
            Insn::Slli { dst, by } => {
                out.off_by(Operator::WrongConst, 1, |n| Insn::Slli { dst, by: by.wrapping_add_signed(n as i8) })
            }
            Insn::Addi { dst, src, imm } => {
                out.drop(Operator::DropArg);
                out.off_by(Operator::IpOffset, 4, |by| Insn::Addi { dst, src, imm: imm.moved(by) });
            }
            Insn::AuipcHi { dst, sym } => {
                out.drop(Operator::DropArg);
                out.put(Operator::StalePcrel, Operand::None, Insn::AuipcHi { dst, sym: sym.other() });
            }
            Insn::AddiTls { dst, sym } => {
                out.put(Operator::StalePcrel, Operand::None, Insn::AddiTls { dst, sym: sym.other() });
            }
            Insn::LdLo { dst, anchor } => {
                out.put(Operator::AddrForValue, Operand::Reg(dst), Insn::AddiLo { dst, anchor });
            }
            Insn::LdReg { dst, base, at } => {
                out.off_by(Operator::SlotOffset, 8, |by| Insn::LdReg { dst, base, at: at.moved(by) });
                out.put(Operator::AddrForValue, Operand::Reg(dst), Insn::Addi { dst, src: base, imm: at });
            }
            Insn::Jalr { reg } => out.put(Operator::CallAsJmp, Operand::None, Insn::Jr { reg }),
            Insn::Bnez { reg, to } => out.put(Operator::InvertCond, Operand::None, Insn::Beqz { reg, to }),
            Insn::Beqz { reg, to } => out.put(Operator::InvertCond, Operand::None, Insn::Bnez { reg, to }),
            Insn::Call { sym } => out.put(Operator::StalePcrel, Operand::None, Insn::Call { sym: sym.other() }),
            Insn::Jr { reg } => {
                out.put(Operator::WrongLink, Operand::Reg(RA), Insn::Jr { reg: RA });
                out.put(Operator::JalrRa, Operand::Reg(reg), Insn::Jalr { reg });
            }
            _ => {}
        }
    }
}

fn hardening_faults(insn: Insn, out: &mut Faults<Either<Insn, Faulty>>) {
    let (missing, other, operand, by) = match insn {
        Insn::Lpad => (Operator::DropPad, Operator::PadKind, Operand::None, Faulty::LpadOther),
        Insn::SspushRa => (Operator::GuardMissing, Operator::GuardOther, Operand::Reg(T0), Faulty::SspushT0),
        Insn::SspopchkRa => (Operator::CheckMissing, Operator::CheckOther, Operand::Reg(T0), Faulty::SspopchkT0),
        _ => return,
    };
    out.drop(missing);
    out.put_faulty(other, operand, by);
}

fn scs_faults(insn: Insn, out: &mut Faults<Either<Insn, Faulty>>) {
    let (missing, other, by, above) = match insn {
        Insn::SdScs { src } => {
            let above = Insn::SdReg { src, base: GP, at: Disp::number(0) };
            (Operator::GuardMissing, Operator::GuardOther, Insn::SdScs { src: T0 }, above)
        }
        Insn::LdScs { dst } => {
            let above = Insn::LdReg { dst, base: GP, at: Disp::number(0) };
            (Operator::CheckMissing, Operator::CheckOther, Insn::LdScs { dst: T0 }, above)
        }
        _ => return,
    };
    out.drop(missing);
    out.put(other, Operand::Reg(T0), by);
    out.put(Operator::ScsEntry, Operand::None, above);
}

/// Instructions of others. RISC-V unprivileged manual, chapters "RV32I", "RV64I" and "C".
#[rustfmt::skip]
const PATTERNS: PatternTable = PatternTable {
    nops: &[&[0x13, 0, 0, 0], &[1, 0]],
    // LUI, AUIPC, ADDI and ADDIW from zero; ADDI, ADDIW and SLLI of the register itself; their short forms. JALR and
    // loads through it.
    steps: &[
        step(Place::First, InsnPattern::word("i{20} aaaaa 0110111 *4096", plain).signed(SlotOffset), |_, f, _| add(0, f)),
        step(Place::First, InsnPattern::word("011 i aaaaa iiiii 01 *4096", plain).signed(SlotOffset), |_, f, _| add(0, f)),
        step(Place::First, InsnPattern::word("i{20} aaaaa 0010111 *4096", plain).signed(SlotOffset), |_, f, at| add(at, f)),
        step(Place::First, InsnPattern::word("i{12} 00000 000 aaaaa 0010011", plain).signed(SlotOffset), |_, f, _| add(0, f)),
        step(Place::First, InsnPattern::word("i{12} 00000 000 aaaaa 0011011", plain).signed(SlotOffset), |_, f, _| add(0, f)),
        step(Place::First, InsnPattern::word("010 i aaaaa iiiii 01", plain).signed(SlotOffset), |_, f, _| add(0, f)),
        step(Place::Next, InsnPattern::word("i{12} bbbbb 000 aaaaa 0010011", plain).signed(SlotOffset), |x, f, _| add(x, f)),
        step(Place::Next, InsnPattern::word("000 i aaaaa iiiii 01", plain).signed(SlotOffset), |x, f, _| add(x, f)),
        step(Place::Next, InsnPattern::word("i{12} bbbbb 000 aaaaa 0011011", plain).signed(SlotOffset), |x, f, _| {
            word(add(x, f))
        }),
        step(Place::Next, InsnPattern::word("001 i aaaaa iiiii 01", plain).signed(SlotOffset), |x, f, _| word(add(x, f))),
        step(Place::Next, InsnPattern::word("000000 i{6} bbbbb 001 aaaaa 0010011", plain), |x, f, _| x << f.imm),
        step(Place::Next, InsnPattern::word("000 i aaaaa iiiii 10", plain), |x, f, _| x << f.imm),
        step(Place::Last, InsnPattern::word("i{12} aaaaa 000 xxxxx 1100111", plain).signed(SlotOffset), |x, f, _| add(x, f)),
        step(Place::Last, InsnPattern::word("i{12} aaaaa xxx xxxxx 0000011", plain).signed(SlotOffset), |x, f, _| add(x, f)),
    ],
    load: &[
        (InsnPattern::word("x{20} aaaaa 0010111", plain), (reloc::PCREL_HI20, 0, 0)),
        (InsnPattern::word("i{12} bbbbb 000 aaaaa 0010011", plain), (reloc::PCREL_LO12_I, 0, 0)),
    ],
    list: &[
        // SD and LD from sp, from s0 as a frame pointer; LD through another register.
        InsnPattern::word("iiiiiii aaaaa 00010 011 iiiii 0100011", store).signed(SlotOffset)
            .wrong(NarrowSave, "iiiiiii aaaaa 00010 010 iiiii 0100011"),
        InsnPattern::word("i{12} 00010 011 aaaaa 0000011", load).signed(SlotOffset),
        InsnPattern::word("iiiiiii aaaaa 01000 011 iiiii 0100011", store).signed(SlotOffset)
            .wrong(NarrowSave, "iiiiiii aaaaa 01000 010 iiiii 0100011"),
        InsnPattern::word("i{12} 01000 011 aaaaa 0000011", load).signed(SlotOffset),
        InsnPattern::word("i{12} bbbbb 011 aaaaa 0000011", read).signed(SlotOffset)
            .wrong(AddrForValue, "i{12} bbbbb 000 aaaaa 0010011"),
        // C.SDSP with C.SWSP in its place, C.LDSP.
        InsnPattern::word("111 543876 aaaaa 10", store).unsigned(SlotOffset).wrong(NarrowSave, "110 543276 aaaaa 10"),
        InsnPattern::word("011 5 aaaaa 43876 10", load).unsigned(SlotOffset),
        // ADDI: sp, to sp, from sp, MV, any other. C.ADDI16SP, C.ADDI4SPN and C.ADDI among them.
        InsnPattern::word("i{12} 00010 000 00010 0010011", move_sp).signed(FrameSize),
        InsnPattern::word("011 9 00010 46875 01", move_sp).signed(FrameSize),
        InsnPattern::word("000 i 00010 iiiii 01", move_sp).signed(FrameSize),
        InsnPattern::word("i{12} bbbbb 000 00010 0010011", to_sp).signed(TeardownMismatch),
        InsnPattern::word("i{12} 00010 000 aaaaa 0010011", from_sp).signed(ArgPtrOffset),
        InsnPattern::word("000 54987623 ppp 00", from_sp).unsigned(ArgPtrOffset),
        InsnPattern::word("000000000000 bbbbb 000 aaaaa 0010011", copy),
        InsnPattern::word("i{12} bbbbb 000 aaaaa 0010011", plain).signed(IpOffset),
        InsnPattern::word("000 i aaaaa iiiii 01", plain).signed(IpOffset),
        // C.JR, C.EBREAK, C.JALR and C.MV have bits in common: those with the fewest fields come first.
        InsnPattern::word("100 0 aaaaa 00000 10", leave).wrong(JalrRa, "100 1 aaaaa 00000 10"),
        InsnPattern::word("100 1 00000 00000 10", trap),
        InsnPattern::word("100 1 aaaaa 00000 10", call).wrong(CallAsJmp, "100 0 aaaaa 00000 10"),
        InsnPattern::word("100 0 aaaaa 00010 10", from_sp),
        InsnPattern::word("100 0 aaaaa bbbbb 10", copy),
        // JALR and JAL, with ra and without; AUIPC.
        InsnPattern::word("x{12} aaaaa 000 00001 1100111", call).wrong(CallAsJmp, "x{12} aaaaa 000 00000 1100111"),
        InsnPattern::word("x{12} aaaaa 000 00000 1100111", leave).wrong(JalrRa, "x{12} aaaaa 000 00001 1100111"),
        InsnPattern::word("x{20} 00001 1101111", call).wrong(CallAsJmp, "x{20} 00000 1101111"),
        InsnPattern::word("x{20} 00000 1101111", jump).wrong(JalrRa, "x{20} 00001 1101111"),
        InsnPattern::word("101 x{11} 01", jump),
        InsnPattern::word("x{20} aaaaa 0010111", plain),
        // BEQ to BGEU, C.BEQZ and C.BNEZ: one bit inverts the condition. EBREAK.
        InsnPattern::word("xxxxxxx bbbbb aaaaa xxx xxxxx 1100011", branch)
            .wrong(InvertCond, "xxxxxxx bbbbb aaaaa xx^ xxxxx 1100011"),
        InsnPattern::word("11x xxx ppp xxxxx 01", branch).wrong(InvertCond, "11^ xxx ppp xxxxx 01"),
        InsnPattern::word("000000000001 00000 000 00000 1110011", trap),
    ],
};

fn add(before: u64, fields: &Fields) -> u64 {
    before.wrapping_add_signed(fields.imm.into())
}

/// The lower half, sign-extended.
fn word(value: u64) -> u64 {
    i64::from(value as i32).cast_unsigned()
}
