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

use codegen::effect::action::{Action, Cell, Part, Stored};
use codegen::effect::effects::{Effects, Flow, SpEffect};
use codegen::listing::code::{CodeBuf, Ref};
use codegen::words::abi::Reg;
use codegen::words::error::{Error, Result};
use codegen::words::step::{Disp, Local, Sym};
use dynasm::dynasm;
use dynasmrt::DynasmApi;

use crate::emulated::{RDTIME, SSPOPCHK_RA, SSPUSH_RA};
use crate::option::Rvc;
use crate::regs::*;
use crate::reloc;

/// An instruction. Offsets are relative to `sp` unless the name says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are the manual's; the rows below say the rest")]
pub enum Insn {
    Sd {
        src: Reg,
        at: Disp,
    },
    Ld {
        dst: Reg,
        at: Disp,
    },
    Fsd {
        src: u8,
        at: Disp,
    },
    Fld {
        dst: u8,
        at: Disp,
    },
    Mv {
        dst: Reg,
        src: Reg,
    },
    Addi {
        dst: Reg,
        src: Reg,
        imm: Disp,
    },
    AuipcHi {
        dst: Reg,
        sym: Sym,
    },
    /// Bits 12 to 31 of a thread-local variable's offset.
    LuiTls {
        dst: Reg,
        sym: Sym,
    },
    /// Bits 0 to 11 of it, as a number with a sign.
    AddiTls {
        dst: Reg,
        sym: Sym,
    },
    /// `dst` += `add`.
    AddTo {
        dst: Reg,
        add: Reg,
    },
    LdLo {
        dst: Reg,
        anchor: Local,
    },
    LdReg {
        dst: Reg,
        base: Reg,
        at: Disp,
    },
    AddiLo {
        dst: Reg,
        anchor: Local,
    },
    Bnez {
        reg: Reg,
        to: Local,
    },
    Beqz {
        reg: Reg,
        to: Local,
    },
    Call {
        sym: Sym,
    },
    Jr {
        reg: Reg,
    },
    Jalr {
        reg: Reg,
    },
    JalLocal {
        to: Local,
    },
    /// Four bytes, wherever it leads.
    J {
        to: Local,
    },
    Ebreak,
    Lui {
        dst: Reg,
        imm: i32,
    },
    Addiw {
        dst: Reg,
        imm: i32,
    },
    /// In four bytes, whatever others are encoded in.
    LuiWide {
        dst: Reg,
        imm: i32,
    },
    /// The same.
    AddiwWide {
        dst: Reg,
        imm: i32,
    },
    Slli {
        dst: Reg,
        by: u8,
    },
    /// That bit of `src` becomes the sign.
    SlliUp {
        dst: Reg,
        src: Reg,
        bit: Disp,
    },
    Bltz {
        reg: Reg,
        to: Local,
    },
    /// `lpad 0`, a landing pad.
    Lpad,
    /// `sspush ra`.
    SspushRa,
    /// `sspopchk ra`.
    SspopchkRa,
    /// To the shadow call stack, whose pointer was moved.
    SdScs {
        src: Reg,
    },
    /// From the shadow call stack, before its pointer is moved.
    LdScs {
        dst: Reg,
    },
    Nop,
    /// In four bytes, whatever others are encoded in.
    Nop4,
    /// `dst` = the word at `base`, to which `add` is added.
    AmoaddD {
        dst: Reg,
        add: Reg,
        base: Reg,
    },
    Bgeu {
        reg: Reg,
        with: Reg,
        to: Local,
    },
    SdReg {
        src: Reg,
        base: Reg,
        at: Disp,
    },
    Bne {
        reg: Reg,
        with: Reg,
        to: Local,
    },
    /// By way of t1.
    Tail {
        sym: Sym,
    },
    Rdtime {
        dst: Reg,
    },
    /// So many of the lowest bits; never compressed.
    AndLow {
        dst: Reg,
        src: Reg,
        bits: u8,
    },
}

// One row, one instruction: kept in columns, so rustfmt stays out.
#[rustfmt::skip]
codegen::rows! { Insn, w names out target rvc = target.option::<Rvc>() == Rvc::On;
    Sd { src, at } => write!(w, "sd\t{}, {}(sp)", name(src), names.disp(at)),
        { let (r, d) = (x(src)?, simm12(at.value)?);
          if rvc && sp_slot(d) { dynasm!(out ; .arch riscv64 ; .feature i, c ; c.sdsp X(r), [sp, d as u32]) }
          else { dynasm!(out ; .arch riscv64 ; .feature i, c ; sd X(r), [sp, d]) } }, Effects::store(src, at.value);
    Ld { dst, at } => write!(w, "ld\t{}, {}(sp)", name(dst), names.disp(at)),
        { let (r, d) = (x(dst)?, simm12(at.value)?);
          if rvc && sp_slot(d) && dst != ZERO { dynasm!(out ; .arch riscv64 ; .feature i, c ; c.ldsp X(r), [sp, d as u32]) }
          else { dynasm!(out ; .arch riscv64 ; .feature i, c ; ld X(r), [sp, d]) } }, written(dst, Effects::load(dst, at.value));
    Fsd { src, at } => write!(w, "fsd\t{}, {}(sp)", float(src), names.disp(at)),
        { let (f, d) = (f(src)?, simm12(at.value)?);
          if rvc && sp_slot(d) { dynasm!(out ; .arch riscv64 ; .feature d, c ; c.fsdsp F(f), [sp, d as u32]) }
          else { dynasm!(out ; .arch riscv64 ; .feature d, c ; fsd F(f), [sp, d]) } },
        Effects { stores: 1, ..Effects::action(Action::StoreVectors { first: src, second: None, at: at.value }) };
    Fld { dst, at } => write!(w, "fld\t{}, {}(sp)", float(dst), names.disp(at)),
        { let (f, d) = (f(dst)?, simm12(at.value)?);
          if rvc && sp_slot(d) { dynasm!(out ; .arch riscv64 ; .feature d, c ; c.fldsp F(f), [sp, d as u32]) }
          else { dynasm!(out ; .arch riscv64 ; .feature d, c ; fld F(f), [sp, d]) } },
        Effects { loads: 1, ..Effects::action(Action::LoadVectors { first: dst, second: None, at: at.value }) };
    Mv { dst, src } => write!(w, "mv\t{}, {}", name(dst), name(src)),
        { let (d, s) = (x(dst)?, x(src)?);
          if rvc && dst != ZERO && src != ZERO { dynasm!(out ; .arch riscv64 ; .feature i, c ; c.mv X(d), X(s)) }
          else { dynasm!(out ; .arch riscv64 ; .feature i, c ; addi X(d), X(s), 0) } }, Effects { sp: addi_sp(dst, src, 0), ..Effects::copy(dst, src) };
    Addi { dst, src, imm } => write!(w, "addi\t{}, {}, {}", name(dst), name(src), names.disp(imm)),
        { addi(dst, src, imm.value, rvc, out)? }, addi_effects(dst, src, imm.value);
    AuipcHi { dst, sym } => write!(w, "auipc\t{}, %pcrel_hi({})", name(dst), names.sym(sym)),
        { let r = x(dst)?; dynasm!(out ; .arch riscv64 ; .feature i, c ; auipc X(r), 0);
          out.fixup(4, reloc::PCREL_HI20, Ref::Symbol(sym), 0) }, written(dst, Effects::action(Action::High { dst, sym }));
    LuiTls { dst, sym } => write!(w, "lui\t{}, %tprel_hi({})", name(dst), names.sym(sym)),
        { let r = x(dst)?; dynasm!(out ; .arch riscv64 ; .feature i, c ; lui X(r), 0);
          out.fixup(4, reloc::TPREL_HI20, Ref::Symbol(sym), 0) }, written(dst, Effects::action(Action::OffsetHigh { dst, src: ZERO, sym }));
    AddiTls { dst, sym } => write!(w, "addi\t{}, {}, %tprel_lo({})", name(dst), name(dst), names.sym(sym)),
        { let r = x(dst)?; dynasm!(out ; .arch riscv64 ; .feature i, c ; addi X(r), X(r), 0);
          out.fixup(4, reloc::TPREL_LO12_I, Ref::Symbol(sym), 0) }, written(dst, Effects::action(Action::OffsetLow { dst, src: dst, sym }));
    // Without %tprel_add, which is for linkers that leave instructions out.
    AddTo { dst, add } => write!(w, "add\t{}, {}, {}", name(dst), name(dst), name(add)),
        { let (d, a) = (x(dst)?, x(add)?);
          if rvc && dst != ZERO && add != ZERO { dynasm!(out ; .arch riscv64 ; .feature i, c ; c.add X(d), X(a)) }
          else { dynasm!(out ; .arch riscv64 ; .feature i, c ; add X(d), X(d), X(a)) } },
        written(dst, Effects::action(Action::AddRegs { dst, src: dst, add }));
    LdLo { dst, anchor } => write!(w, "ld\t{}, %pcrel_lo({})({})", name(dst), names.local(anchor), name(dst)),
        { let r = x(dst)?; dynasm!(out ; .arch riscv64 ; .feature i, c ; ld X(r), [X(r), 0]);
          out.fixup(4, reloc::PCREL_LO12_I, Ref::Local(anchor), 0) },
        written(dst, Effects { loads: 1, ..Effects::action(Action::LoadLow { dst, base: dst, of: Part::Anchor(anchor) }) });
    LdReg { dst, base, at } => write!(w, "ld\t{}, {}({})", name(dst), names.disp(at), name(base)),
        { let (r, b, d) = (x(dst)?, x(base)?, simm12(at.value)?);
          if rvc && base == SP && sp_slot(d) && dst != ZERO { dynasm!(out ; .arch riscv64 ; .feature i, c ; c.ldsp X(r), [sp, d as u32]) }
          else if rvc && compact(dst) && compact(base) && (0..256).contains(&d) && d % 8 == 0 { dynasm!(out ; .arch riscv64 ; .feature i, c ; c.ld X(r), [X(b), d as u32]) }
          else { dynasm!(out ; .arch riscv64 ; .feature i, c ; ld X(r), [X(b), d]) } },
        written(dst, Effects { loads: 1, ..Effects::action(Action::LoadAt { dst, base, at: at.value }) });
    Bnez { reg, to } => if compact(reg) { write!(w, "bne\tzero, {}, {}", name(reg), names.local(to)) } else { write!(w, "bnez\t{}, {}", name(reg), names.local(to)) },
        { let [a, b] = zero_first(reg)?; dynasm!(out ; .arch riscv64 ; .feature i, c ; bne X(a), X(b), 0);
          out.fixup(4, reloc::BRANCH, Ref::Local(to), 0) }, Effects::flow(Flow::Branch(to)).and(Action::BranchIf { reg, zero: false });
    Beqz { reg, to } => if compact(reg) { write!(w, "beq\tzero, {}, {}", name(reg), names.local(to)) } else { write!(w, "beqz\t{}, {}", name(reg), names.local(to)) },
        { let [a, b] = zero_first(reg)?; dynasm!(out ; .arch riscv64 ; .feature i, c ; beq X(a), X(b), 0);
          out.fixup(4, reloc::BRANCH, Ref::Local(to), 0) }, Effects::flow(Flow::Branch(to)).and(Action::BranchIf { reg, zero: true });
    Call { sym } => write!(w, "call\t{}", names.sym(sym)),
        { dynasm!(out ; .arch riscv64 ; .feature i, c ; auipc ra, 0 ; jalr ra, ra, 0);
          out.fixup(8, reloc::CALL_PLT, Ref::Symbol(sym), 0) }, Effects { executed: 2, ..Effects::flow(Flow::Call).and(Action::CallSymbol { sym }) };
    Jr { reg } => if reg == RA { w.write_str("ret") } else { write!(w, "jr\t{}", name(reg)) },
        { let r = x(reg)?;
          if rvc && reg != ZERO { dynasm!(out ; .arch riscv64 ; .feature i, c ; c.jr X(r)) }
          else { dynasm!(out ; .arch riscv64 ; .feature i, c ; jalr zero, X(r), 0) } }, Effects::flow(Flow::Leave).and(Action::LeaveBy { reg });
    Jalr { reg } => write!(w, "jalr\t{}", name(reg)),
        { let r = x(reg)?;
          if rvc && reg != ZERO { dynasm!(out ; .arch riscv64 ; .feature i, c ; c.jalr X(r)) }
          else { dynasm!(out ; .arch riscv64 ; .feature i, c ; jalr ra, X(r), 0) } }, Effects::flow(Flow::Call).and(Action::CallRegister { reg });
    JalLocal { to } => write!(w, "jal\t{}", names.local(to)),
        { dynasm!(out ; .arch riscv64 ; .feature i, c ; jal ra, 0); out.fixup(4, reloc::JAL, Ref::Local(to), 0) },
        written(RA, Effects::flow(Flow::Jump(to)).and(Action::LinkNext { dst: RA }));
    J { to } => write!(w, ".insn\tj 0x6f, zero, {}", names.local(to)),
        { dynasm!(out ; .arch riscv64 ; .feature i, c ; jal zero, 0); out.fixup(4, reloc::JAL, Ref::Local(to), 0) },
        Effects::flow(Flow::Jump(to));
    Ebreak => w.write_str("ebreak"),
        { if rvc { dynasm!(out ; .arch riscv64 ; .feature i, c ; c.ebreak) }
          else { dynasm!(out ; .arch riscv64 ; .feature i, c ; ebreak) } }, Effects::flow(Flow::Trap);
    // Bits 12 to 31.
    Lui { dst, imm } => write!(w, "lui\t{}, {:#x}", name(dst), imm & 0xf_ffff),
        { let (r, i) = (x(dst)?, upper(imm)?);
          if rvc && dst != ZERO && dst != SP && i != 0 && (-32..32).contains(&(i >> 12)) { dynasm!(out ; .arch riscv64 ; .feature i, c ; c.lui X(r), i) }
          else { dynasm!(out ; .arch riscv64 ; .feature i, c ; lui X(r), i) } }, written(dst, Effects::action(Action::Set { dst, number: imm << 12 }));
    Addiw { dst, imm } => write!(w, "addiw\t{}, {}, {imm}", name(dst), name(dst)),
        { let (r, i) = (x(dst)?, simm12(imm)?);
          if rvc && dst != ZERO && (-32..32).contains(&i) { dynasm!(out ; .arch riscv64 ; .feature i, c ; c.addiw X(r), i) }
          else { dynasm!(out ; .arch riscv64 ; .feature i, c ; addiw X(r), X(r), i) } }, written(dst, Effects::action(Action::AddWord { dst, add: imm }));
    LuiWide { dst, imm } => write!(w, ".insn\tu 0x37, {}, {:#x}", name(dst), imm & 0xf_ffff),
        { let (r, i) = (x(dst)?, upper(imm)?); dynasm!(out ; .arch riscv64 ; .feature i, c ; lui X(r), i) },
        written(dst, Effects::action(Action::Set { dst, number: imm << 12 }));
    AddiwWide { dst, imm } => write!(w, ".insn\ti 0x1b, 0, {}, {}, {imm}", name(dst), name(dst)),
        { let (r, i) = (x(dst)?, simm12(imm)?); dynasm!(out ; .arch riscv64 ; .feature i, c ; addiw X(r), X(r), i) },
        written(dst, Effects::action(Action::AddWord { dst, add: imm }));
    Slli { dst, by } => write!(w, "slli\t{}, {}, {by}", name(dst), name(dst)),
        { let (r, n) = (x(dst)?, shift(by)?);
          if rvc && dst != ZERO && by != 0 { dynasm!(out ; .arch riscv64 ; .feature i, c ; c.slli X(r), n) }
          else { dynasm!(out ; .arch riscv64 ; .feature i, c ; slli X(r), X(r), n) } }, written(dst, Effects::action(Action::ShiftLeft { dst, by }));
    SlliUp { dst, src, bit } => write!(w, "slli\t{}, {}, 63 - {}", name(dst), name(src), names.disp(bit)),
        { let (d, s, n) = (x(dst)?, x(src)?, sign_from(bit.value)?);
          if rvc && dst == src && dst != ZERO && n != 0 { dynasm!(out ; .arch riscv64 ; .feature i, c ; c.slli X(d), n) }
          else { dynasm!(out ; .arch riscv64 ; .feature i, c ; slli X(d), X(s), n) } }, written(dst, Effects::action(Action::BitToSign { dst, src, bit: bit.value }));
    Bltz { reg, to } => write!(w, "bltz\t{}, {}", name(reg), names.local(to)),
        { let r = x(reg)?; dynasm!(out ; .arch riscv64 ; .feature i, c ; blt X(r), zero, 0); out.fixup(4, reloc::BRANCH, Ref::Local(to), 0) },
        Effects::flow(Flow::Branch(to)).and(Action::BranchIfNegative { reg });
    // Not `lpad 0`, which GNU as takes only with Zicfilp, nor `auipc zero, 0`, for which it lets the linker know distances.
    Lpad => w.write_str(".insn\t0x17"),
        { dynasm!(out ; .arch riscv64 ; .feature i, c ; auipc zero, 0) }, Effects::action(Action::LandingPad);
    // As numbers: GNU as takes the mnemonics only with Zicfiss.
    SspushRa => write!(w, ".insn\t{SSPUSH_RA:#x}"),
        { out.push_u32(SSPUSH_RA) }, Effects::action(Action::PushGuard { reg: RA });
    SdScs { src } => write!(w, "sd\t{}, -8(gp)", name(src)),
        { let r = x(src)?; dynasm!(out ; .arch riscv64 ; .feature i, c ; sd X(r), [gp, -8]) },
        Effects { stores: 1, ..Effects::action(Action::PushScs { reg: src, by: 0 }) };
    LdScs { dst } => write!(w, "ld\t{}, -8(gp)", name(dst)),
        { let r = x(dst)?; dynasm!(out ; .arch riscv64 ; .feature i, c ; ld X(r), [gp, -8]) },
        written(dst, Effects { loads: 1, ..Effects::action(Action::PopScs { reg: dst, by: 0 }) });
    SspopchkRa => write!(w, ".insn\t{SSPOPCHK_RA:#x}"),
        { out.push_u32(SSPOPCHK_RA) }, Effects::action(Action::PopGuard { reg: RA });
    Nop4 => w.write_str(".insn\ti 0x13, 0, zero, zero, 0"),
        { dynasm!(out ; .arch riscv64 ; .feature i, c ; addi zero, zero, 0) }, Effects::PLAIN;
    Nop => w.write_str("nop"),
        { if rvc { dynasm!(out ; .arch riscv64 ; .feature i, c ; c.nop) }
          else { dynasm!(out ; .arch riscv64 ; .feature i, c ; addi zero, zero, 0) } }, Effects::PLAIN;
    // As a number: the architecture string need not have the A extension.
    AmoaddD { dst, add, base } => write!(w, ".insn\tr 0x2f, 3, 0, {}, {}, {}", name(dst), name(base), name(add)),
        { let (d, a, b) = (x(dst)?, x(add)?, x(base)?); out.push_u32(0x302f | u32::from(d) << 7 | u32::from(b) << 15 | u32::from(a) << 20) },
        written(dst, Effects { loads: 1, stores: 1, ..Effects::action(Action::AtomicAdd { dst, add, cell: Cell::At(base) }) });
    Bgeu { reg, with, to } => write!(w, "bgeu\t{}, {}, {}", name(reg), name(with), names.local(to)),
        { let (a, b) = (x(reg)?, x(with)?); dynasm!(out ; .arch riscv64 ; .feature i, c ; bgeu X(a), X(b), 0);
          out.fixup(4, reloc::BRANCH, Ref::Local(to), 0) }, Effects::flow(Flow::Branch(to)).and(Action::BranchIfRegNotBelow { reg, with });
    SdReg { src, base, at } => write!(w, "sd\t{}, {}({})", name(src), names.disp(at), name(base)),
        { let (r, b, d) = (x(src)?, x(base)?, simm12(at.value)?);
          if rvc && base == SP && sp_slot(d) { dynasm!(out ; .arch riscv64 ; .feature i, c ; c.sdsp X(r), [sp, d as u32]) }
          else if rvc && compact(src) && compact(base) && (0..256).contains(&d) && d % 8 == 0 { dynasm!(out ; .arch riscv64 ; .feature i, c ; c.sd X(r), [X(b), d as u32]) }
          else { dynasm!(out ; .arch riscv64 ; .feature i, c ; sd X(r), [X(b), d]) } },
        Effects { stores: 1, ..Effects::action(Action::StoreAt { base, at: at.value, stored: Stored::Reg(src) }) };
    Bne { reg, with, to } => write!(w, "bne\t{}, {}, {}", name(reg), name(with), names.local(to)),
        { let (a, b) = (x(reg)?, x(with)?); dynasm!(out ; .arch riscv64 ; .feature i, c ; bne X(a), X(b), 0);
          out.fixup(4, reloc::BRANCH, Ref::Local(to), 0) }, Effects::flow(Flow::Branch(to)).and(Action::BranchIfRegsDiffer { reg, with });
    Tail { sym } => write!(w, "tail\t{}", names.sym(sym)),
        { dynasm!(out ; .arch riscv64 ; .feature i, c ; auipc t1, 0 ; jalr zero, t1, 0);
          out.fixup(8, reloc::CALL_PLT, Ref::Symbol(sym), 0) },
        Effects { executed: 2, ..Effects::flow(Flow::Leave).and(Action::LeaveFor { sym, through: Some(T1) }) };
    // As a number: assemblers have the mnemonic only with Zicsr. TIME is 0xc01.
    Rdtime { dst } => write!(w, ".insn\ti 0x73, 2, {}, zero, -1023", name(dst)),
        { out.push_u32(RDTIME | u32::from(x(dst)?) << 7) }, written(dst, Effects::action(Action::ReadClock { low: dst, high: None }));
    AndLow { dst, src, bits } => write!(w, "andi\t{}, {}, {}", name(dst), name(src), 1_u64.checked_shl(bits.into()).unwrap_or_default().wrapping_sub(1)),
        { let (d, s) = (x(dst)?, x(src)?); out.push_u32(0x7013 | u32::from(d) << 7 | u32::from(s) << 15 | ones(bits)? << 20) },
        written(dst, Effects::action(Action::LowBits { dst, src, bits }));
    AddiLo { dst, anchor } => write!(w, "addi\t{}, {}, %pcrel_lo({})", name(dst), name(dst), names.local(anchor)),
        { let r = x(dst)?; dynasm!(out ; .arch riscv64 ; .feature i, c ; addi X(r), X(r), 0);
          out.fixup(4, reloc::PCREL_LO12_I, Ref::Local(anchor), 0) },
        written(dst, Effects::action(Action::Low { dst, base: dst, of: Part::Anchor(anchor) }));
}

/// A number with so many ones: so large that no compressed instruction has it.
fn ones(bits: u8) -> Result<u32> {
    let valid = || Error::unencodable(format_args!("{bits} bits; valid: 6 to 11"));
    if (6..=11).contains(&bits) { Ok((1 << bits) - 1) } else { Err(valid()) }
}

pub(crate) fn name(reg: Reg) -> &'static str {
    TABLE.get(reg.0 as usize).map_or("?", |r| r.name)
}

fn float(vector: u8) -> &'static str {
    VECTORS.get(vector as usize).map_or("?", |r| r.name)
}

fn addi_sp(dst: Reg, src: Reg, imm: i32) -> SpEffect {
    match (dst, src) {
        (SP, SP) => SpEffect::Move(imm),
        (_, SP) => SpEffect::CopyTo(dst, imm),
        (SP, _) => SpEffect::CopyFrom(src, imm),
        _ => SpEffect::None,
    }
}

fn addi_effects(dst: Reg, src: Reg, imm: i32) -> Effects {
    match addi_sp(dst, src, imm) {
        SpEffect::None if src == ZERO => Effects::action(Action::Set { dst, number: imm }),
        SpEffect::None => Effects::action(Action::Add { dst, src, add: imm }),
        moved => Effects::sp(moved),
    }
}

/// `effects` of an instruction that writes `dst`: if that is SP, SP is no longer known.
pub(crate) fn written(dst: Reg, effects: Effects) -> Effects {
    if dst == SP { Effects { sp: SpEffect::Realign, ..effects } } else { effects }
}

pub(crate) fn x(reg: Reg) -> Result<u8> {
    if reg.0 < 32 { Ok(reg.0) } else { Err(Error::unencodable(format_args!("register {}; valid: x0 to x31", reg.0))) }
}

fn f(number: u8) -> Result<u8> {
    if number < 32 { Ok(number) } else { Err(Error::unencodable(format_args!("f{number}; valid: f0 to f31"))) }
}

/// The operand of LUI, where it goes: 20 bits, with or without a sign.
fn upper(imm: i32) -> Result<i32> {
    if (-0x8_0000..0x10_0000).contains(&imm) {
        return Ok(imm << 12);
    }
    Err(Error::unencodable(format_args!("{imm} does not fit LUI; valid: -524288 to 1048575")))
}

/// The parts of a constant for LUI and ADDIW. ADDIW adds twelve signed bits.
pub(crate) fn parts(value: i32) -> (i32, i32) {
    (value.wrapping_add(0x800) >> 12, value << 20 >> 20)
}

/// How far a bit is from the sign.
fn sign_from(bit: i32) -> Result<u32> {
    let distance = u32::try_from(bit).ok().and_then(|bit| 63_u32.checked_sub(bit));
    distance.ok_or_else(|| Error::unencodable(format_args!("bit {bit}; valid: 0 to 63")))
}

fn shift(by: u8) -> Result<u32> {
    if by < 64 { Ok(by.into()) } else { Err(Error::unencodable(format_args!("a shift by {by}; valid: 0 to 63"))) }
}

/// C.LDSP and C.SDSP hold multiples of 8 below 512.
fn sp_slot(at: i32) -> bool {
    (0..512).contains(&at) && at % 8 == 0
}

/// x8 to x15, which most compressed instructions can name.
pub(crate) fn compact(reg: Reg) -> bool {
    (8..16).contains(&reg.0)
}

/// The operands of a comparison with zero. With a register that C.BNEZ can name, GNU as would choose that by the distance,
/// unless zero comes first.
pub(crate) fn zero_first(reg: Reg) -> Result<[u8; 2]> {
    let other = x(reg)?;
    Ok(if compact(reg) { [ZERO.0, other] } else { [other, ZERO.0] })
}

pub(crate) fn simm12(value: i32) -> Result<i32> {
    if (-2048..2048).contains(&value) {
        return Ok(value);
    }
    Err(Error::unencodable(format_args!("offset {value} does not fit its instruction; valid: -2048 to 2047")))
}

/// C.MV for nothing added, C.LI from zero, C.ADDI for a register itself, C.ADDI16SP for SP, C.ADDI4SPN for x8 to x15 from
/// SP: GNU as tries them in this order.
fn addi(dst: Reg, src: Reg, imm: i32, rvc: bool, out: &mut CodeBuf) -> Result<()> {
    let (d, s, imm) = (x(dst)?, x(src)?, simm12(imm)?);
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
