//! Faulty instructions, to judge a checker by.

use codegen::abi::Reg;
use codegen::listing::{Off, Sym};
use codegen::mutate::{Faults, Operand, Operator};

use crate::abi::ABI;
use crate::insn::Insn;
use crate::regs::*;

/// The instruction with other registers.
pub fn with_registers(insn: Insn, r: &mut dyn FnMut(Reg) -> Reg) -> Insn {
    match insn {
        Insn::Sd { src, at } => Insn::Sd { src: r(src), at },
        Insn::Ld { dst, at } => Insn::Ld { dst: r(dst), at },
        Insn::Mv { dst, src } => Insn::Mv { dst: r(dst), src: r(src) },
        Insn::Addi { dst, src, imm } => Insn::Addi { dst: r(dst), src: r(src), imm },
        Insn::AuipcHi { dst, sym } => Insn::AuipcHi { dst: r(dst), sym },
        Insn::LdLo { dst } => Insn::LdLo { dst: r(dst) },
        Insn::Bnez { reg, to } => Insn::Bnez { reg: r(reg), to },
        Insn::Jr { reg } => Insn::Jr { reg: r(reg) },
        other => other,
    }
}

/// Faulty forms of an instruction.
pub fn faults(insn: Insn, out: &mut Faults<Insn>) {
    let moved = |at: Off, by: i32| Off { value: at.value + by, ..at };
    match insn {
        Insn::Sd { src, at } => {
            out.off_by(Operator::SlotOffset, 8, |by| Insn::Sd { src, at: moved(at, by) });
            out.put(Operator::NarrowSave, Operand::Reg(src), Insn::Sw { src, at });
        }
        Insn::Ld { dst, at } => out.off_by(Operator::SlotOffset, 8, |by| Insn::Ld { dst, at: moved(at, by) }),
        Insn::Mv { dst: RA, .. } => out.drop(Operator::DropLrFix),
        Insn::Mv { dst, src } if ABI.args.contains(&dst) => {
            out.drop(Operator::DropArg);
            if src == SP {
                out.off_by(Operator::ArgPtrOffset, 8, |by| Insn::Addi { dst, src, imm: Off::bare(by) });
            }
        }
        Insn::Addi { dst: SP, src: SP, imm } => {
            // Downwards the frame is allocated, upwards released.
            out.off_by(Operator::FrameSize, 8, |by| {
                let value = imm.value + by * imm.value.signum();
                Insn::Addi { dst: SP, src: SP, imm: Off::bare(value) }
            });
        }
        Insn::Addi { dst, src: SP, imm } => {
            out.off_by(Operator::RegsSpOff, 8, |by| Insn::Addi { dst, src: SP, imm: moved(imm, by) });
        }
        Insn::Addi { dst, src, imm } => {
            out.drop(Operator::DropArg);
            out.off_by(Operator::IpOffset, 4, |by| Insn::Addi { dst, src, imm: moved(imm, by) });
        }
        Insn::AuipcHi { dst, sym } => {
            out.drop(Operator::DropArg);
            out.put(Operator::StalePcrel, Operand::None, Insn::AuipcHi { dst, sym: other(sym) });
        }
        Insn::LdLo { dst } => out.put(Operator::AddrForValue, Operand::Reg(dst), Insn::AddiLo { dst }),
        Insn::Bnez { reg, to } => out.put(Operator::InvertCond, Operand::None, Insn::Beqz { reg, to }),
        Insn::Call { sym } => out.put(Operator::StalePcrel, Operand::None, Insn::Call { sym: other(sym) }),
        Insn::Jr { reg } => {
            out.put(Operator::WrongLink, Operand::Reg(RA), Insn::Jr { reg: RA });
            out.put(Operator::JalrRa, Operand::Reg(reg), Insn::Jalr { reg });
        }
        _ => {}
    }
}

/// Another symbol, if the listing has one.
fn other(sym: Sym) -> Sym {
    Sym(sym.0 ^ 1)
}
