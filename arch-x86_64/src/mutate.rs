//! Faulty instructions, to judge a checker by.

use codegen::abi::Reg;
use codegen::listing::{Name, Off, Sym};
use codegen::mutate::{Faults, Operand, Operator};

use crate::abi::ABI;
use crate::insn::Insn;
use crate::regs::*;

/// The instruction with other registers.
pub fn with_registers(insn: Insn, r: &mut dyn FnMut(Reg) -> Reg) -> Insn {
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

/// Faulty forms of an instruction.
pub fn faults(insn: Insn, out: &mut Faults<Insn>) {
    let moved = |at: Off, by: i32| Off { value: at.value + by, ..at };
    match insn {
        Insn::Endbr64 => {
            out.drop(Operator::DropPad);
            out.put(Operator::PadKind, Operand::None, Insn::Endbr32);
        }
        Insn::Pushfq => out.drop(Operator::DropPushf),
        Insn::Store { src, at } => {
            if matches!(at.name, Name::Record(_)) {
                out.drop(Operator::FrameRecordOmit);
            }
            out.off_by(Operator::SlotOffset, 8, |by| Insn::Store { src, at: moved(at, by) });
            out.put(Operator::NarrowSave, Operand::Reg(src), Insn::Store32 { src, at });
        }
        Insn::StoreImm { imm, at } => {
            out.off_by(Operator::SlotOffset, 8, |by| Insn::StoreImm { imm, at: moved(at, by) });
        }
        Insn::Load { dst, at } => {
            out.off_by(Operator::SlotOffset, 8, |by| Insn::Load { dst, at: moved(at, by) });
        }
        Insn::LoadSym { dst, sym } => {
            out.drop(Operator::DropArg);
            out.put(Operator::AddrForValue, Operand::Reg(dst), Insn::LeaSym { dst, sym });
            out.put(Operator::StalePcrel, Operand::None, Insn::LoadSym { dst, sym: other(sym) });
        }
        Insn::Lea { dst: RSP, at } => {
            out.put(Operator::AddForLea, Operand::None, Insn::AddSp { imm: at });
            out.off_by(Operator::TeardownMismatch, 8, |by| Insn::Lea { dst: RSP, at: moved(at, by) });
        }
        Insn::Lea { dst: RBP, at } => {
            out.drop(Operator::FrameRecordOmit);
            out.off_by(Operator::ArgPtrOffset, 8, |by| Insn::Lea { dst: RBP, at: moved(at, by) });
        }
        Insn::Lea { dst, at } => out.off_by(Operator::RegsSpOff, 8, |by| Insn::Lea { dst, at: moved(at, by) }),
        Insn::LeaSpFromBp { at } => {
            out.off_by(Operator::TeardownMismatch, 8, |by| Insn::LeaSpFromBp { at: moved(at, by) });
        }
        Insn::SubSp { imm } => out.off_by(Operator::FrameSize, 8, |by| Insn::SubSp { imm: moved(imm, by) }),
        Insn::AddSp { imm } => out.off_by(Operator::FrameSize, 8, |by| Insn::AddSp { imm: moved(imm, by) }),
        Insn::SubDi { imm } => out.off_by(Operator::IpOffset, 1, |by| Insn::SubDi { imm: imm - by as i8 }),
        Insn::Mov { dst: RBP, src: RSP } => out.drop(Operator::FrameRecordOmit),
        Insn::Mov { dst, src } if ABI.args.contains(&dst) => {
            out.drop(Operator::DropArg);
            if src == RSP {
                out.off_by(Operator::ArgPtrOffset, 8, |by| Insn::Lea { dst, at: Off::bare(by) });
            }
        }
        Insn::Call { sym } => out.put(Operator::StalePcrel, Operand::None, Insn::Call { sym: other(sym) }),
        Insn::Jnz { to } => out.put(Operator::InvertCond, Operand::None, Insn::Jz { to }),
        _ => {}
    }
}

/// Another symbol, if the listing has one.
fn other(sym: Sym) -> Sym {
    Sym(sym.0 ^ 1)
}
