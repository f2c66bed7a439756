//! The instructions: one row each, with GNU text, bytes and effects side by side.
//!
//! With the C extension an instruction is encoded in two bytes wherever GNU as does so; the text stays the same.

#![allow(
    clippy::unnecessary_cast,
    clippy::identity_op,
    clippy::useless_conversion,
    clippy::precedence,
    clippy::erasing_op,
    reason = "what the dynasm macro expands to"
)]

use std::fmt;

use codegen::abi::Reg;
use codegen::code::{CodeBuf, Ref};
use codegen::effects::{Effects, Flow, SpEffect};
use codegen::error::{Error, Result};
use codegen::names::Names;
use codegen::step::{Local, Off, Sym};
use dynasm::dynasm;
use dynasmrt::DynasmApi;

use crate::regs::*;
use crate::reloc;

/// An instruction. Offsets are relative to `sp` unless the name says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are the manual's; the rows below say the rest")]
pub enum Insn {
    Sd { src: Reg, at: Off },
    Ld { dst: Reg, at: Off },
    Fsd { src: u8, at: Off },
    Fld { dst: u8, at: Off },
    Mv { dst: Reg, src: Reg },
    Addi { dst: Reg, src: Reg, imm: Off },
    AuipcHi { dst: Reg, sym: Sym },
    LdLo { dst: Reg },
    AddiLo { dst: Reg, anchor: Local },
    Bnez { reg: Reg, to: Local },
    Call { sym: Sym },
    Jr { reg: Reg },
    Lui { dst: Reg, imm: i32 },
    Addiw { dst: Reg, imm: i32 },
    Nop,
    // What only a faulty trampoline has: see `mutate.rs`.
    Sw { src: Reg, at: Off },
    Beqz { reg: Reg, to: Local },
    Jalr { reg: Reg },
}

macro_rules! rows {
    ($w:ident $names:ident $out:ident $rvc:ident; $($pattern:pat => $text:expr, $encode:block, $effects:expr;)*) => {
        /// The instruction as GNU as reads it.
        #[allow(unused_variables, reason = "a row's pattern binds what any of its three columns needs")]
        pub fn text(insn: Insn, $names: &Names, $w: &mut dyn fmt::Write) -> fmt::Result {
            use Insn::*;
            match insn { $($pattern => $text,)* }
        }

        /// The instruction's bytes.
        #[allow(unused_variables, reason = "a row's pattern binds what any of its three columns needs")]
        pub fn encode(insn: Insn, $rvc: bool, $out: &mut CodeBuf) -> Result<()> {
            use Insn::*;
            match insn { $($pattern => $encode,)* }
            Ok(())
        }

        /// What the instruction does.
        #[allow(unused_variables, reason = "a row's pattern binds what any of its three columns needs")]
        pub fn effects(insn: Insn) -> Effects {
            use Insn::*;
            match insn { $($pattern => $effects,)* }
        }
    };
}

// One row, one instruction: kept in columns, so rustfmt stays out.
#[rustfmt::skip]
rows! { w names out rvc;
    Sd { src, at } => write!(w, "sd\t{}, {}(sp)", name(src), names.off(at)),
        { let (r, d) = (src.0, simm12(at.value)?);
          if rvc && sp_slot(d) { dynasm!(out ; .arch riscv64 ; .feature i, c ; c.sdsp X(r), [sp, d as u32]) }
          else { dynasm!(out ; .arch riscv64 ; .feature i, c ; sd X(r), [sp, d]) } }, Effects::store(src, at.value);
    Ld { dst, at } => write!(w, "ld\t{}, {}(sp)", name(dst), names.off(at)),
        { let (r, d) = (dst.0, simm12(at.value)?);
          if rvc && sp_slot(d) && dst != ZERO { dynasm!(out ; .arch riscv64 ; .feature i, c ; c.ldsp X(r), [sp, d as u32]) }
          else { dynasm!(out ; .arch riscv64 ; .feature i, c ; ld X(r), [sp, d]) } }, Effects::load(dst, at.value);
    Fsd { src, at } => write!(w, "fsd\t{}, {}(sp)", float(src), names.off(at)),
        { let d = simm12(at.value)?;
          if rvc && sp_slot(d) { dynasm!(out ; .arch riscv64 ; .feature d, c ; c.fsdsp F(src), [sp, d as u32]) }
          else { dynasm!(out ; .arch riscv64 ; .feature d, c ; fsd F(src), [sp, d]) } }, Effects { stores: 1, ..Effects::PLAIN };
    Fld { dst, at } => write!(w, "fld\t{}, {}(sp)", float(dst), names.off(at)),
        { let d = simm12(at.value)?;
          if rvc && sp_slot(d) { dynasm!(out ; .arch riscv64 ; .feature d, c ; c.fldsp F(dst), [sp, d as u32]) }
          else { dynasm!(out ; .arch riscv64 ; .feature d, c ; fld F(dst), [sp, d]) } }, Effects { loads: 1, ..Effects::PLAIN };
    Mv { dst, src } => write!(w, "mv\t{}, {}", name(dst), name(src)),
        { let (d, s) = (dst.0, src.0);
          if rvc && dst != ZERO && src != ZERO { dynasm!(out ; .arch riscv64 ; .feature i, c ; c.mv X(d), X(s)) }
          else { dynasm!(out ; .arch riscv64 ; .feature i, c ; addi X(d), X(s), 0) } }, Effects { sp: mv_sp(dst, src), ..Effects::copy(dst, src) };
    Addi { dst, src, imm } => write!(w, "addi\t{}, {}, {}", name(dst), name(src), names.off(imm)),
        { addi(dst, src, imm.value, rvc, out)? }, Effects::sp(addi_sp(dst, src, imm.value));
    AuipcHi { dst, sym } => write!(w, "auipc\t{}, %pcrel_hi({})", name(dst), names.sym(sym)),
        { let r = dst.0; dynasm!(out ; .arch riscv64 ; .feature i, c ; auipc X(r), 0);
          out.fixup(4, reloc::PCREL_HI20, Ref::Symbol(sym), 0) }, Effects::PLAIN;
    LdLo { dst } => write!(w, "ld\t{}, %pcrel_lo({})({})", name(dst), names.local(Local::Anchor), name(dst)),
        { let r = dst.0; dynasm!(out ; .arch riscv64 ; .feature i, c ; ld X(r), [X(r), 0]);
          out.fixup(4, reloc::PCREL_LO12_I, Ref::Local(Local::Anchor), 0) }, Effects { loads: 1, ..Effects::PLAIN };
    Bnez { reg, to } => if compact(reg) { write!(w, "bne\tzero, {}, {}", name(reg), names.local(to)) } else { write!(w, "bnez\t{}, {}", name(reg), names.local(to)) },
        { let [a, b] = zero_first(reg); dynasm!(out ; .arch riscv64 ; .feature i, c ; bne X(a), X(b), 0);
          out.fixup(4, reloc::BRANCH, Ref::Local(to), 0) }, Effects::flow(Flow::Branch(to));
    Call { sym } => write!(w, "call\t{}", names.sym(sym)),
        { dynasm!(out ; .arch riscv64 ; .feature i, c ; auipc ra, 0 ; jalr ra, ra, 0);
          out.fixup(8, reloc::CALL_PLT, Ref::Symbol(sym), 0) }, Effects { executed: 2, ..Effects::flow(Flow::Call) };
    Jr { reg } => if reg == RA { w.write_str("ret") } else { write!(w, "jr\t{}", name(reg)) },
        { let r = reg.0;
          if rvc { dynasm!(out ; .arch riscv64 ; .feature i, c ; c.jr X(r)) }
          else { dynasm!(out ; .arch riscv64 ; .feature i, c ; jalr zero, X(r), 0) } }, Effects::flow(Flow::Leave);
    // Bits 12 to 31.
    Lui { dst, imm } => write!(w, "lui\t{}, {:#x}", name(dst), imm & 0xf_ffff),
        { let (r, i) = (dst.0, imm << 12);
          if rvc && dst != ZERO && dst != SP && imm != 0 && (-32..32).contains(&imm) { dynasm!(out ; .arch riscv64 ; .feature i, c ; c.lui X(r), i) }
          else { dynasm!(out ; .arch riscv64 ; .feature i, c ; lui X(r), i) } }, Effects::PLAIN;
    Addiw { dst, imm } => write!(w, "addiw\t{}, {}, {imm}", name(dst), name(dst)),
        { let (r, i) = (dst.0, simm12(imm)?);
          if rvc && dst != ZERO && (-32..32).contains(&i) { dynasm!(out ; .arch riscv64 ; .feature i, c ; c.addiw X(r), i) }
          else { dynasm!(out ; .arch riscv64 ; .feature i, c ; addiw X(r), X(r), i) } }, Effects::PLAIN;
    Nop => w.write_str("nop"),
        { if rvc { dynasm!(out ; .arch riscv64 ; .feature i, c ; c.nop) }
          else { dynasm!(out ; .arch riscv64 ; .feature i, c ; addi zero, zero, 0) } }, Effects::PLAIN;
    Sw { src, at } => write!(w, "sw\t{}, {}(sp)", name(src), names.off(at)),
        { let (r, d) = (src.0, simm12(at.value)?); dynasm!(out ; .arch riscv64 ; .feature i, c ; sw X(r), [sp, d]) }, Effects::store(src, at.value);
    AddiLo { dst, anchor } => write!(w, "addi\t{}, {}, %pcrel_lo({})", name(dst), name(dst), names.local(anchor)),
        { let r = dst.0; dynasm!(out ; .arch riscv64 ; .feature i, c ; addi X(r), X(r), 0);
          out.fixup(4, reloc::PCREL_LO12_I, Ref::Local(anchor), 0) }, Effects::PLAIN;
    Beqz { reg, to } => write!(w, "beqz\t{}, {}", name(reg), names.local(to)),
        { let [a, b] = zero_first(reg); dynasm!(out ; .arch riscv64 ; .feature i, c ; beq X(a), X(b), 0);
          out.fixup(4, reloc::BRANCH, Ref::Local(to), 0) }, Effects::flow(Flow::Branch(to));
    Jalr { reg } => write!(w, "jalr\t{}", name(reg)),
        { let r = reg.0; dynasm!(out ; .arch riscv64 ; .feature i, c ; jalr ra, X(r), 0) }, Effects::flow(Flow::Leave);
}

fn name(reg: Reg) -> &'static str {
    TABLE.get(reg.0 as usize).map_or("?", |r| r.name)
}

fn float(vector: u8) -> &'static str {
    VECTORS.get(vector as usize).map_or("?", |r| r.name)
}

fn mv_sp(dst: Reg, src: Reg) -> SpEffect {
    if src == SP { SpEffect::CopyTo(dst, 0) } else { SpEffect::None }
}

fn addi_sp(dst: Reg, src: Reg, imm: i32) -> SpEffect {
    match (dst, src) {
        (SP, SP) => SpEffect::Move(imm),
        (_, SP) => SpEffect::CopyTo(dst, imm),
        _ => SpEffect::None,
    }
}

/// C.LDSP and C.SDSP hold multiples of 8 below 512.
fn sp_slot(at: i32) -> bool {
    (0..512).contains(&at) && at % 8 == 0
}

/// x8 to x15, which most compressed instructions can name.
fn compact(reg: Reg) -> bool {
    (8..16).contains(&reg.0)
}

/// The operands of a comparison with zero. With a register that C.BNEZ can name, GNU as would choose that by the distance,
/// unless zero comes first.
fn zero_first(reg: Reg) -> [u8; 2] {
    if compact(reg) { [ZERO.0, reg.0] } else { [reg.0, ZERO.0] }
}

fn simm12(value: i32) -> Result<i32> {
    if (-2048..2048).contains(&value) {
        return Ok(value);
    }
    Err(Error::new(format!("offset {value} does not fit its instruction; valid: -2048 to 2047")))
}

/// C.MV for nothing added, C.LI from zero, C.ADDI for a register itself, C.ADDI16SP for SP, C.ADDI4SPN for x8 to x15 from
/// SP: GNU as tries them in this order.
fn addi(dst: Reg, src: Reg, imm: i32, rvc: bool, out: &mut CodeBuf) -> Result<()> {
    let (d, s, imm) = (dst.0, src.0, simm12(imm)?);
    if rvc && imm == 0 && dst != ZERO && src != ZERO {
        dynasm!(out ; .arch riscv64 ; .feature i, c ; c.mv X(d), X(s));
    } else if rvc && src == ZERO && dst != ZERO && (-32..32).contains(&imm) {
        dynasm!(out ; .arch riscv64 ; .feature i, c ; c.li X(d), imm);
    } else if rvc && compact(dst) && src == SP && imm % 4 == 0 && (4..1024).contains(&imm) {
        dynasm!(out ; .arch riscv64 ; .feature i, c ; c.addi4spn X(d), sp, imm as u32);
    } else if rvc && dst == src && dst != ZERO && imm != 0 && (-32..32).contains(&imm) {
        dynasm!(out ; .arch riscv64 ; .feature i, c ; c.addi X(d), imm);
    } else if rvc && dst == SP && src == SP && imm != 0 && imm % 16 == 0 && (-512..512).contains(&imm) {
        dynasm!(out ; .arch riscv64 ; .feature i, c ; c.addi16sp sp, imm);
    } else {
        dynasm!(out ; .arch riscv64 ; .feature i, c ; addi X(d), X(s), imm);
    }
    Ok(())
}
