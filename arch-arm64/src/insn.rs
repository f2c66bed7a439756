//! The instructions: one row each, with GNU text, bytes and effects side by side.

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
use codegen::listing::code::Ref;
use codegen::words::abi::Reg;
use codegen::words::error::{Error, Result};
use codegen::words::step::{Disp, Local, Sym};
use dynasm::dynasm;
use dynasmrt::DynasmApi;

use crate::emulated::MRS_CNTVCT_EL0;
use crate::regs::*;
use crate::reloc;

/// An instruction. Offsets are relative to `sp` unless the name says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are the manual's; the rows below say the rest")]
pub enum Insn {
    BtiC,
    BtiJ,
    Paciasp,
    /// x30 as it was before PACIASP, with the same SP.
    Autiasp,
    /// `reg` 31 is xzr.
    Str {
        src: Reg,
        at: Disp,
    },
    Stp {
        a: Reg,
        b: Reg,
        at: Disp,
    },
    Ldr {
        dst: Reg,
        at: Disp,
    },
    Ldp {
        a: Reg,
        b: Reg,
        at: Disp,
    },
    StrQ {
        src: u8,
        at: Disp,
    },
    StpQ {
        a: u8,
        b: u8,
        at: Disp,
    },
    LdrQ {
        dst: u8,
        at: Disp,
    },
    LdpQ {
        a: u8,
        b: u8,
        at: Disp,
    },
    LdrReg {
        dst: Reg,
        base: Reg,
        at: Disp,
    },
    LdurReg {
        dst: Reg,
        base: Reg,
        at: i32,
    },
    Mov {
        dst: Reg,
        src: Reg,
    },
    MovFromSp {
        dst: Reg,
    },
    AddSp {
        dst: Reg,
        imm: Disp,
    },
    SubSp {
        imm: Disp,
    },
    Sub {
        dst: Reg,
        src: Reg,
        imm: u32,
    },
    AlignDown {
        dst: Reg,
        src: Reg,
    },
    Adrp {
        dst: Reg,
        sym: Sym,
    },
    LdrLo12 {
        dst: Reg,
        base: Reg,
        sym: Sym,
    },
    Movz {
        dst: Reg,
        imm: u16,
    },
    /// 16 bits from `shift` on, which is 16, 32 or 48.
    Movk {
        dst: Reg,
        imm: u16,
        shift: u8,
    },
    Nop,
    Cbnz {
        reg: Reg,
        to: Local,
    },
    Cbz {
        reg: Reg,
        to: Local,
    },
    Bl {
        sym: Sym,
    },
    Blr {
        reg: Reg,
    },
    Br {
        reg: Reg,
    },
    Ret {
        reg: Reg,
    },
    AddLo12 {
        dst: Reg,
        base: Reg,
        sym: Sym,
    },
    MrsThread {
        dst: Reg,
        of: Thread,
    },
    /// Bits 12 to 23 of a thread-local variable's offset.
    AddTlsHigh {
        dst: Reg,
        src: Reg,
        sym: Sym,
    },
    /// Bits 0 to 11 of it.
    AddTlsLow {
        dst: Reg,
        src: Reg,
        sym: Sym,
    },
    Add {
        dst: Reg,
        src: Reg,
        imm: Disp,
    },
    /// `dst` = the word at `base`, to which `add` is added.
    Ldadd {
        add: Reg,
        dst: Reg,
        base: Reg,
    },
    Cmp {
        reg: Reg,
        with: Reg,
    },
    BHs {
        to: Local,
    },
    BNe {
        to: Local,
    },
    Brk,
    /// To the shadow call stack.
    StrScs {
        src: Reg,
    },
    /// From the shadow call stack.
    LdrScs {
        dst: Reg,
    },
    BLocal {
        to: Local,
    },
    Tbnz {
        reg: Reg,
        bit: Disp,
        to: Local,
    },
    /// `src` 31 is xzr.
    StrReg {
        src: Reg,
        base: Reg,
        at: Disp,
    },
    B {
        sym: Sym,
    },
    MrsClock {
        dst: Reg,
    },
    /// So many of the lowest bits.
    AndLow {
        dst: Reg,
        src: Reg,
        bits: u8,
    },
}

// One row, one instruction: kept in columns, so rustfmt stays out.
#[rustfmt::skip]
codegen::rows! { Insn, w names out target;
    // Not `bti c`: GNU as takes that only for ARMv8.5 and later, while the hint is a NOP before.
    BtiC => w.write_str("hint\t#34"),
        { dynasm!(out ; .arch aarch64 ; hint 34) }, Effects::action(Action::LandingPad);
    BtiJ => w.write_str("hint\t#36"),
        { dynasm!(out ; .arch aarch64 ; hint 36) }, Effects::action(Action::LandingPad);
    Paciasp => w.write_str("hint\t#25"),
        { dynasm!(out ; .arch aarch64 ; hint 25) }, Effects::action(Action::Sign { reg: X30 });
    Autiasp => w.write_str("hint\t#29"),
        { dynasm!(out ; .arch aarch64 ; hint 29) }, Effects::action(Action::Authenticate { reg: X30 });
    Str { src, at } => write!(w, "str\t{}, [sp, #{}]", name(src), names.disp(at)),
        { let (r, d) = (x_or_zero(src)?, scaled(at.value, 8, 32760)?); dynasm!(out ; .arch aarch64 ; str X(r), [sp, d]) }, Effects::store(src, at.value);
    Stp { a, b, at } => write!(w, "stp\t{}, {}, [sp, #{}]", name(a), name(b), names.disp(at)),
        { let (a, b, d) = (x_or_zero(a)?, x_or_zero(b)?, scaled(at.value, 8, 504)? as i32); dynasm!(out ; .arch aarch64 ; stp X(a), X(b), [sp, d]) }, Effects::store2(a, b, at.value);
    Ldr { dst, at } => write!(w, "ldr\t{}, [sp, #{}]", name(dst), names.disp(at)),
        { let (r, d) = (x(dst)?, scaled(at.value, 8, 32760)?); dynasm!(out ; .arch aarch64 ; ldr X(r), [sp, d]) }, Effects::load(dst, at.value);
    Ldp { a, b, at } => write!(w, "ldp\t{}, {}, [sp, #{}]", name(a), name(b), names.disp(at)),
        { let (a, b, d) = (x(a)?, x(b)?, scaled(at.value, 8, 504)? as i32); different(a, b)?; dynasm!(out ; .arch aarch64 ; ldp X(a), X(b), [sp, d]) }, Effects::load2(a, b, at.value);
    StrQ { src, at } => write!(w, "str\tq{src}, [sp, #{}]", names.disp(at)),
        { let (q, d) = (q(src)?, scaled(at.value, 16, 65520)?); dynasm!(out ; .arch aarch64 ; str Q(q), [sp, d]) },
        Effects { stores: 2, ..stores(src, None, at) };
    StpQ { a, b, at } => write!(w, "stp\tq{a}, q{b}, [sp, #{}]", names.disp(at)),
        { let (a, b, d) = (q(a)?, q(b)?, scaled(at.value, 16, 1008)? as i32); dynasm!(out ; .arch aarch64 ; stp Q(a), Q(b), [sp, d]) },
        Effects { stores: 4, ..stores(a, Some(b), at) };
    LdrQ { dst, at } => write!(w, "ldr\tq{dst}, [sp, #{}]", names.disp(at)),
        { let (q, d) = (q(dst)?, scaled(at.value, 16, 65520)?); dynasm!(out ; .arch aarch64 ; ldr Q(q), [sp, d]) },
        Effects { loads: 2, ..loads(dst, None, at) };
    LdpQ { a, b, at } => write!(w, "ldp\tq{a}, q{b}, [sp, #{}]", names.disp(at)),
        { let (a, b, d) = (q(a)?, q(b)?, scaled(at.value, 16, 1008)? as i32); different(a, b)?; dynasm!(out ; .arch aarch64 ; ldp Q(a), Q(b), [sp, d]) },
        Effects { loads: 4, ..loads(a, Some(b), at) };
    LdrReg { dst, base, at } => write!(w, "ldr\t{}, [{}, #{}]", name(dst), name(base), names.disp(at)),
        { let (r, b, d) = (x(dst)?, x(base)?, scaled(at.value, 8, 32760)?); dynasm!(out ; .arch aarch64 ; ldr X(r), [XSP(b), d]) },
        Effects { loads: 1, ..Effects::action(Action::LoadAt { dst, base, at: at.value }) };
    LdurReg { dst, base, at } => write!(w, "ldur\t{}, [{}, #{at}]", name(dst), name(base)),
        { let (r, b, d) = (x(dst)?, x(base)?, ranged(at, -256, 255)?); dynasm!(out ; .arch aarch64 ; ldur X(r), [XSP(b), d]) },
        Effects { loads: 1, ..Effects::action(Action::LoadAt { dst, base, at }) };
    Mov { dst, src } => write!(w, "mov\t{}, {}", name(dst), name(src)),
        { let (d, s) = (x(dst)?, x(src)?); dynasm!(out ; .arch aarch64 ; mov X(d), X(s)) }, Effects::copy(dst, src);
    MovFromSp { dst } => write!(w, "mov\t{}, sp", name(dst)),
        { let d = x(dst)?; dynasm!(out ; .arch aarch64 ; mov XSP(d), sp) }, Effects::sp(SpEffect::CopyTo(dst, 0));
    AddSp { dst, imm } => write!(w, "add\t{}, sp, #{}", name_or_sp(dst), names.disp(imm)),
        { let (d, i) = (x_or_sp(dst)?, ranged(imm.value, 0, 4095)? as u32); dynasm!(out ; .arch aarch64 ; add XSP(d), sp, i) }, Effects::sp(add_sp(dst, imm.value));
    SubSp { imm } => write!(w, "sub\tsp, sp, #{}", names.disp(imm)),
        { let i = ranged(imm.value, 0, 4095)? as u32; dynasm!(out ; .arch aarch64 ; sub sp, sp, i) }, Effects::sp(SpEffect::Move(-imm.value));
    Sub { dst, src, imm } => write!(w, "sub\t{}, {}, #{imm}", name(dst), name(src)),
        { let (d, s, i) = (x(dst)?, x(src)?, ranged(imm.cast_signed(), 0, 4095)? as u32); dynasm!(out ; .arch aarch64 ; sub XSP(d), XSP(s), i) },
        Effects::action(Action::Add { dst, src, add: imm.cast_signed().wrapping_neg() });
    AlignDown { dst, src } => write!(w, "and\t{}, {}, #-8", name(dst), name(src)),
        { let (d, s) = (x(dst)?, x(src)?); dynasm!(out ; .arch aarch64 ; and XSP(d), X(s), 0xffff_ffff_ffff_fff8) },
        Effects::action(Action::RoundDown { dst, src, to: 8 });
    Adrp { dst, sym } => write!(w, "adrp\t{}, {}", name(dst), names.sym(sym)),
        { out.push_u32(ADRP | u32::from(x(dst)?)); out.fixup(4, reloc::ADR_PREL_PG_HI21, Ref::Symbol(sym), 0) }, Effects::action(Action::High { dst, sym });
    LdrLo12 { dst, base, sym } => write!(w, "ldr\t{}, [{}, :lo12:{}]", name(dst), name(base), names.sym(sym)),
        { let (r, b) = (x(dst)?, x(base)?); dynasm!(out ; .arch aarch64 ; ldr X(r), [XSP(b)]); out.fixup(4, reloc::LDST64_ABS_LO12_NC, Ref::Symbol(sym), 0) },
        Effects { loads: 1, ..Effects::action(Action::LoadLow { dst, base, of: Part::Symbol(sym) }) };
    Movz { dst, imm } => write!(w, "movz\t{}, #{}", name(dst), half(imm)),
        { let (d, i) = (x(dst)?, u32::from(imm)); dynasm!(out ; .arch aarch64 ; movz X(d), i) }, Effects::action(Action::Set { dst, number: i32::from(imm) });
    Movk { dst, imm, shift } => write!(w, "movk\t{}, #{}, lsl #{shift}", name(dst), half(imm)),
        { let (d, i, s) = (x(dst)?, u32::from(imm), ranged(shift.into(), 16, 48)? as u32); dynasm!(out ; .arch aarch64 ; movk X(d), i, lsl s) },
        Effects::action(Action::SetBits { dst, bits: imm, from: shift });
    Nop => w.write_str("nop"),
        { dynasm!(out ; .arch aarch64 ; nop) }, Effects::PLAIN;
    Cbnz { reg, to } => write!(w, "cbnz\t{}, {}", name(reg), names.local(to)),
        { let r = x(reg)?; dynasm!(out ; .arch aarch64 ; cbnz X(r), 0); out.fixup(4, reloc::CONDBR19, Ref::Local(to), 0) },
        Effects::flow(Flow::Branch(to)).and(Action::BranchIf { reg, zero: false });
    Cbz { reg, to } => write!(w, "cbz\t{}, {}", name(reg), names.local(to)),
        { let r = x(reg)?; dynasm!(out ; .arch aarch64 ; cbz X(r), 0); out.fixup(4, reloc::CONDBR19, Ref::Local(to), 0) },
        Effects::flow(Flow::Branch(to)).and(Action::BranchIf { reg, zero: true });
    Bl { sym } => write!(w, "bl\t{}", names.sym(sym)),
        { dynasm!(out ; .arch aarch64 ; bl 0); out.fixup(4, reloc::CALL26, Ref::Symbol(sym), 0) }, Effects::flow(Flow::Call).and(Action::CallSymbol { sym });
    Blr { reg } => write!(w, "blr\t{}", name(reg)),
        { let r = x(reg)?; dynasm!(out ; .arch aarch64 ; blr X(r)) }, Effects::flow(Flow::Call).and(Action::CallRegister { reg });
    Br { reg } => write!(w, "br\t{}", name(reg)),
        { let r = x(reg)?; dynasm!(out ; .arch aarch64 ; br X(r)) }, Effects::flow(Flow::Leave).and(Action::LeaveBy { reg });
    Ret { reg } => if reg == X30 { w.write_str("ret") } else { write!(w, "ret\t{}", name(reg)) },
        { let r = x(reg)?; dynasm!(out ; .arch aarch64 ; ret X(r)) }, Effects::flow(Flow::Leave).and(Action::LeaveBy { reg });
    AddLo12 { dst, base, sym } => write!(w, "add\t{}, {}, :lo12:{}", name(dst), name(base), names.sym(sym)),
        { let (r, b) = (x(dst)?, x(base)?); dynasm!(out ; .arch aarch64 ; add XSP(r), XSP(b), 0); out.fixup(4, reloc::ADD_ABS_LO12_NC, Ref::Symbol(sym), 0) },
        Effects::action(Action::Low { dst, base, of: Part::Symbol(sym) });
    MrsThread { dst, of } => write!(w, "mrs\t{}, {}", name(dst), of.name()),
        { out.push_u32(of.mrs() | u32::from(x(dst)?)) }, Effects::action(Action::ThreadPointer { dst, of: of.name() });
    AddTlsHigh { dst, src, sym } => write!(w, "add\t{}, {}, #:tprel_hi12:{}, lsl #12", name(dst), name(src), names.sym(sym)),
        { let (d, s) = (x(dst)?, x(src)?); out.push_u32(ADD_SHIFTED | u32::from(s) << 5 | u32::from(d)); out.fixup(4, reloc::TLSLE_ADD_TPREL_HI12, Ref::Symbol(sym), 0) },
        Effects::action(Action::OffsetHigh { dst, src, sym });
    AddTlsLow { dst, src, sym } => write!(w, "add\t{}, {}, #:tprel_lo12_nc:{}", name(dst), name(src), names.sym(sym)),
        { let (d, s) = (x(dst)?, x(src)?); dynasm!(out ; .arch aarch64 ; add XSP(d), XSP(s), 0); out.fixup(4, reloc::TLSLE_ADD_TPREL_LO12_NC, Ref::Symbol(sym), 0) },
        Effects::action(Action::OffsetLow { dst, src, sym });
    Add { dst, src, imm } => write!(w, "add\t{}, {}, #{}", name(dst), name(src), names.disp(imm)),
        { let (d, s, i) = (x(dst)?, x(src)?, ranged(imm.value, 0, 4095)? as u32); dynasm!(out ; .arch aarch64 ; add XSP(d), XSP(s), i) },
        Effects::action(Action::Add { dst, src, add: imm.value });
    // As a number: GNU as takes the mnemonic only for ARMv8.1 and later.
    Ldadd { add, dst, base } => write!(w, ".inst\t{:#010x}", ldadd(add.0, dst.0, base.0)),
        { out.push_u32(ldadd(x(add)?, x(dst)?, x(base)?)) },
        Effects { loads: 1, stores: 1, ..Effects::action(Action::AtomicAdd { dst, add, cell: Cell::At(base) }) };
    Cmp { reg, with } => write!(w, "cmp\t{}, {}", name(reg), name(with)),
        { let (a, b) = (x(reg)?, x(with)?); dynasm!(out ; .arch aarch64 ; cmp X(a), X(b)) }, Effects::action(Action::Compare { reg, with });
    BHs { to } => write!(w, "b.hs\t{}", names.local(to)),
        { out.push_u32(B_HS); out.fixup(4, reloc::CONDBR19, Ref::Local(to), 0) }, Effects::flow(Flow::Branch(to)).and(Action::BranchIfNotBelow);
    BNe { to } => write!(w, "b.ne\t{}", names.local(to)),
        { out.push_u32(B_NE); out.fixup(4, reloc::CONDBR19, Ref::Local(to), 0) }, Effects::flow(Flow::Branch(to)).and(Action::BranchIfFlags { zero: false });
    Brk => w.write_str("brk\t#0"),
        { dynasm!(out ; .arch aarch64 ; brk 0) }, Effects::flow(Flow::Trap);
    BLocal { to } => write!(w, "b\t{}", names.local(to)),
        { dynasm!(out ; .arch aarch64 ; b 0); out.fixup(4, reloc::JUMP26, Ref::Local(to), 0) },
        Effects::flow(Flow::Jump(to));
    Tbnz { reg, bit, to } => write!(w, "tbnz\t{}{}, #{}, {}", if bit.value < 32 { "w" } else { "x" }, reg.0, names.disp(bit), names.local(to)),
        { let (r, b) = (x(reg)?, ranged(bit.value, 0, 63)? as u32); out.push_u32(TBNZ | b >> 5 << 31 | (b & 31) << 19 | u32::from(r));
          out.fixup(4, reloc::TSTBR14, Ref::Local(to), 0) },
        Effects::flow(Flow::Branch(to)).and(Action::BranchIfBit { reg, bit: bit.value });
    StrScs { src } => write!(w, "str\t{}, [x18], #8", name(src)),
        { let r = x_but_18(src)?; dynasm!(out ; .arch aarch64 ; str X(r), [x18], 8) }, Effects { stores: 1, ..Effects::action(Action::PushScs { reg: src, by: 8 }) };
    LdrScs { dst } => write!(w, "ldr\t{}, [x18, #-8]!", name(dst)),
        { let r = x_but_18(dst)?; dynasm!(out ; .arch aarch64 ; ldr X(r), [x18, -8]!) }, Effects { loads: 1, ..Effects::action(Action::PopScs { reg: dst, by: -8 }) };
    StrReg { src, base, at } => write!(w, "str\t{}, [{}, #{}]", name(src), name(base), names.disp(at)),
        { let (r, b, d) = (x_or_zero(src)?, x(base)?, scaled(at.value, 8, 32760)?); dynasm!(out ; .arch aarch64 ; str X(r), [XSP(b), d]) },
        Effects { stores: 1, ..Effects::action(Action::StoreAt { base, at: at.value, stored: Stored::Reg(src) }) };
    B { sym } => write!(w, "b\t{}", names.sym(sym)),
        { dynasm!(out ; .arch aarch64 ; b 0); out.fixup(4, reloc::JUMP26, Ref::Symbol(sym), 0) },
        Effects::flow(Flow::Leave).and(Action::LeaveFor { sym, through: None });
    MrsClock { dst } => write!(w, "mrs\t{}, cntvct_el0", name(dst)),
        { out.push_u32(MRS_CNTVCT_EL0 | u32::from(x(dst)?)) }, Effects::action(Action::ReadClock { low: dst, high: None });
    AndLow { dst, src, bits } => write!(w, "and\t{}, {}, #{}", name(dst), name(src), 1_u64.checked_shl(bits.into()).unwrap_or_default().wrapping_sub(1)),
        { let (d, s, b) = (x(dst)?, x(src)?, ranged(bits.into(), 1, 63)? as u32); out.push_u32(0x9240_0000 | (b - 1) << 10 | u32::from(s) << 5 | u32::from(d)) },
        Effects::action(Action::LowBits { dst, src, bits });
}

/// B.HS, without its distance.
const B_HS: u32 = 0x5400_0002;
/// B.NE, without its distance.
const B_NE: u32 = 0x5400_0001;
const TBNZ: u32 = 0x3700_0000;

/// LDADD (Arm ARM, C6.2): a load and a store in one instruction.
fn ldadd(add: u8, dst: u8, base: u8) -> u32 {
    let at = |reg: u8, bit: u32| u32::from(reg & 31) << bit;
    0xf820_0000 | at(add, 16) | at(base, 5) | at(dst, 0)
}

/// ADD of 0, shifted left by 12 bits, which dynasm leaves out.
const ADD_SHIFTED: u32 = 0x9140_0000;

/// dynasm has no relocation for ADRP, and its label form is off by a page.
const ADRP: u32 = 0x9000_0000;

/// Register 31 is xzr where a value is stored or loaded.
pub const XZR: Reg = SP;

pub(crate) fn name(reg: Reg) -> &'static str {
    if reg == XZR { "xzr" } else { TABLE.get(reg.0 as usize).map_or("?", |r| r.name) }
}

/// 16 bits: a number that a person counts in, or a part of a larger one.
fn half(imm: u16) -> String {
    if imm < 0x1000 { imm.to_string() } else { format!("{imm:#x}") }
}

/// Register 31 is sp where an address is computed.
fn name_or_sp(reg: Reg) -> &'static str {
    if reg == SP { "sp" } else { name(reg) }
}

fn add_sp(dst: Reg, imm: i32) -> SpEffect {
    if dst == SP { SpEffect::Move(imm) } else { SpEffect::CopyTo(dst, imm) }
}

fn ranged(value: i32, least: i32, most: i32) -> Result<i32> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(Error::unencodable(format_args!("offset {value} does not fit its instruction; valid: {least} to {most}")))
}

pub(crate) fn scaled(value: i32, unit: i32, most: i32) -> Result<u32> {
    if value % unit != 0 {
        return Err(Error::unencodable(format_args!("offset {value} is not a multiple of {unit}")));
    }
    ranged(value, 0, most).map(|v| v as u32)
}

/// A register whose number is not 31, which means one thing here and another there.
pub(crate) fn x(reg: Reg) -> Result<u8> {
    if reg.0 < 31 { Ok(reg.0) } else { Err(Error::unencodable(format_args!("register {}; valid: x0 to x30", reg.0))) }
}

pub(crate) fn x_or_zero(reg: Reg) -> Result<u8> {
    if reg == XZR { Ok(reg.0) } else { x(reg) }
}

fn x_or_sp(reg: Reg) -> Result<u8> {
    if reg == SP { Ok(reg.0) } else { x(reg) }
}

fn q(number: u8) -> Result<u8> {
    if number < 32 { Ok(number) } else { Err(Error::unencodable(format_args!("q{number}; valid: q0 to q31"))) }
}

/// Not the base of an address that the instruction writes back.
fn x_but_18(reg: Reg) -> Result<u8> {
    if reg == X18 {
        Err(Error::unencodable("x18, which the instruction moves; valid: another register"))
    } else {
        x(reg)
    }
}

/// Refuse two loads into one register: the manual leaves the result undefined.
fn different(a: u8, b: u8) -> Result<()> {
    if a == b { Err(Error::unencodable(format_args!("a pair is loaded into register {a} twice"))) } else { Ok(()) }
}

fn stores(first: u8, second: Option<u8>, at: Disp) -> Effects {
    Effects::action(Action::StoreVectors { first, second, at: at.value })
}

fn loads(first: u8, second: Option<u8>, at: Disp) -> Effects {
    Effects::action(Action::LoadVectors { first, second, at: at.value })
}
