//! The instructions: one row each, with GNU text, bytes and effects side by side.
//!
//! Rows name their registers statically: dynasm with run-time x86 registers emits a redundant REX prefix and always a
//! 32-bit displacement, which is not what GNU as emits.

#![allow(
    clippy::unnecessary_cast,
    clippy::identity_op,
    clippy::useless_conversion,
    clippy::precedence,
    clippy::erasing_op,
    reason = "what the dynasm macro expands to"
)]

use std::fmt;

use codegen::effect::action::{Action, Cell, Stored};
use codegen::effect::effects::{Effects, Flow, SpEffect};
use codegen::listing::code::{CodeBuf, Ref};
use codegen::listing::names::Names;
use codegen::words::abi::Reg;
use codegen::words::error::{Error, Result};
use codegen::words::step::{Disp, Local, Sym};
use dynasm::dynasm;
use dynasmrt::DynasmApi;

use crate::regs::*;
use crate::reloc;
use crate::sled::STATE;

/// An instruction. Displacements are relative to `rsp` unless the name says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are the manual's; the rows below say the rest")]
pub enum Insn {
    Endbr64,
    Pushfq,
    Popfq,
    Ret,
    /// A return as code that must not return by itself has it.
    JmpReturn {
        sym: Sym,
    },
    Int3,
    Push {
        reg: Reg,
    },
    Pop {
        reg: Reg,
    },
    /// Push the word so far above rbp.
    PushBp {
        at: i32,
    },
    /// `movups`: the stack need not be aligned.
    StoreVector {
        src: u8,
        at: Disp,
    },
    LoadVector {
        dst: u8,
        at: Disp,
    },
    Mov {
        dst: Reg,
        src: Reg,
    },
    Store {
        src: Reg,
        at: Disp,
    },
    StoreImm {
        imm: i32,
        at: Disp,
    },
    MovAbs {
        dst: Reg,
        imm: i64,
    },
    Load {
        dst: Reg,
        at: Disp,
    },
    LoadSym {
        dst: Reg,
        sym: Sym,
    },
    Lea {
        dst: Reg,
        at: Disp,
    },
    LeaSpFromBp {
        at: Disp,
    },
    SubSp {
        imm: Disp,
    },
    AddSp {
        imm: Disp,
    },
    AndSp {
        imm: i8,
    },
    Sub {
        dst: Reg,
        imm: i8,
    },
    Add {
        dst: Reg,
        imm: i8,
    },
    TestAx,
    /// Of rax, the lowest bit.
    TestAl,
    /// Pop a word and store it at the new top of the stack.
    PopOver,
    Jnz {
        to: Local,
    },
    Jz {
        to: Local,
    },
    /// Five bytes.
    Nop5,
    /// With a displacement of 32 bits.
    JnzFar {
        to: Local,
    },
    JmpR11,
    /// A call behind a symbol: GNU as has no PLT entry made for that.
    CallBody {
        sym: Sym,
    },
    /// A jump there.
    JmpBody {
        sym: Sym,
    },
    LeaSym {
        dst: Reg,
        sym: Sym,
    },
    Call {
        sym: Sym,
    },
    CallLocal {
        to: Local,
    },
    /// In 32 bits: the upper half becomes 0.
    MovImm {
        dst: Reg,
        imm: i32,
    },
    /// Offsets of the five that follow are from the base of fs.
    XaddThread {
        reg: Reg,
        at: Disp,
    },
    CmpThread {
        reg: Reg,
        at: Disp,
    },
    IncThread {
        at: Disp,
    },
    LoadThread {
        dst: Reg,
        at: Disp,
    },
    StoreThread {
        src: Reg,
        at: Disp,
    },
    Jae {
        to: Local,
    },
    /// With a displacement of 32 bits.
    JaeFar {
        to: Local,
    },
    /// The bit into the carry flag.
    Bt {
        reg: Reg,
        bit: Disp,
    },
    /// With a displacement of 32 bits.
    JcFar {
        to: Local,
    },
    /// With a displacement of 32 bits.
    JmpFar {
        to: Local,
    },
    /// To (%rsp).
    Xsavec,
    /// From (%rsp).
    Xrstor,
    /// With what lies so far above r11, as the three that follow.
    CmpSlot {
        reg: Reg,
        at: i32,
    },
    CmpSlotZero {
        at: i32,
    },
    PushSlot {
        at: i32,
    },
    LoadSlot {
        dst: Reg,
        at: i32,
    },
    /// To so far above r11, as the two that follow.
    StoreSlotImm {
        imm: i32,
        at: i32,
    },
    PopSlot {
        at: i32,
    },
    PushSym {
        sym: Sym,
    },
    /// To eax and edx.
    Rdtsc,
    /// To so far above r11, as the one that follows.
    StoreSlot {
        src: Reg,
        at: i32,
    },
    /// Of the register, the lower half.
    StoreSlotHalf {
        src: Reg,
        at: i32,
    },
    /// In 32 bits: so many of the lowest bits are left.
    AndLow {
        dst: Reg,
        bits: u8,
    },
    /// In 32 bits.
    CmpImm {
        reg: Reg,
        imm: i8,
    },
}

// One row, one instruction: kept in columns, so rustfmt stays out.
#[rustfmt::skip]
codegen::rows! { Insn, w names out target;
    Endbr64 => w.write_str("endbr64"),
        { dynasm!(out ; .arch x64 ; .bytes [0xf3, 0x0f, 0x1e, 0xfa]) }, Effects::action(Action::LandingPad);
    Pushfq => w.write_str("pushfq"),
        { dynasm!(out ; .arch x64 ; pushfq) }, Effects { sp: SpEffect::Move(-8), stores: 1, ..Effects::action(Action::PushFlags) };
    Popfq => w.write_str("popfq"),
        { dynasm!(out ; .arch x64 ; popfq) }, Effects { sp: SpEffect::Move(8), loads: 1, ..Effects::action(Action::PopFlags) };
    Ret => w.write_str("ret"),
        { dynasm!(out ; .arch x64 ; ret) }, Effects { loads: 1, ..Effects::flow(Flow::Leave).and(Action::Return { thunk: None }) };
    JmpReturn { sym } => write!(w, "jmp\t{}", names.sym(sym)),
        { dynasm!(out ; .arch x64 ; jmp DWORD 0); out.fixup(4, reloc::PLT32, Ref::Symbol(sym), -4) },
        Effects::flow(Flow::Leave).and(Action::Return { thunk: Some(sym) });
    Int3 => w.write_str("int3"),
        { dynasm!(out ; .arch x64 ; int3) }, Effects::flow(Flow::Trap);
    Push { reg } => write!(w, "push\t%{}", name(reg)),
        { short(out, 0x50, reg)? }, Effects { sp: SpEffect::Move(-8), ..Effects::store(reg, 0) };
    Pop { reg } => write!(w, "pop\t%{}", name(reg)),
        { short(out, 0x58, reg)? }, written(reg, Effects { sp: SpEffect::Move(8), ..Effects::load(reg, 0) });
    PushBp { at } => write!(w, "push\t{at}(%rbp)"),
        { push_bp(out, at) }, Effects { sp: SpEffect::Move(-8), loads: 1, stores: 1, ..Effects::action(Action::PushAt { base: RBP, at }) };
    StoreVector { src, at } => write!(w, "movups\t%xmm{src}, {}(%rsp)", names.disp(at)),
        { at_rsp(out, NARROW, &[0x0f, 0x11], vector(src)?, at.value) },
        Effects { stores: 2, ..Effects::action(Action::StoreVectors { first: src, second: None, at: at.value }) };
    LoadVector { dst, at } => write!(w, "movups\t{}(%rsp), %xmm{dst}", names.disp(at)),
        { at_rsp(out, NARROW, &[0x0f, 0x10], vector(dst)?, at.value) },
        Effects { loads: 2, ..Effects::action(Action::LoadVectors { first: dst, second: None, at: at.value }) };
    Mov { dst, src } => write!(w, "mov\t%{}, %{}", name(src), name(dst)),
        { mov(out, dst, src)? }, Effects { sp: mov_sp(dst, src), ..Effects::copy(dst, src) };
    Store { src, at } => write!(w, "mov\t%{}, {}(%rsp)", name(src), names.disp(at)),
        { at_rsp(out, WIDE, &[0x89], general(src)?, at.value) }, Effects::store(src, at.value);
    StoreImm { imm, at } => write!(w, "movq\t${imm}, {}(%rsp)", names.disp(at)),
        { store_imm(out, at.value, imm) }, Effects { stores: 1, ..Effects::action(Action::StoreNumber { number: imm, at: at.value }) };
    MovAbs { dst, imm } => write!(w, "movabs\t${imm:#x}, %{}", name(dst)),
        { let r = general(dst)?; out.bytes.extend_from_slice(&[WIDE | r >> 3, 0xb8 | r & 7]); out.bytes.extend_from_slice(&imm.to_le_bytes()) },
        written(dst, Effects::action(Action::SetWide { dst, number: imm }));
    Load { dst, at } => write!(w, "mov\t{}(%rsp), %{}", names.disp(at), name(dst)),
        { at_rsp(out, WIDE, &[0x8b], general(dst)?, at.value) }, written(dst, Effects::load(dst, at.value));
    LoadSym { dst, sym } => write!(w, "mov\t{}(%rip), %{}", names.sym(sym), name(dst)),
        { at_rip(out, 0x8b, dst, sym)? }, written(dst, Effects { loads: 1, ..Effects::action(Action::LoadSymbol { dst, sym }) });
    Lea { dst, at } => write!(w, "lea\t{}(%rsp), %{}", names.disp(at), name(dst)),
        { at_rsp(out, WIDE, &[0x8d], general(dst)?, at.value) }, Effects::sp(lea_sp(dst, at.value));
    LeaSpFromBp { at } => write!(w, "lea\t{}(%rbp), %rsp", names.disp(at)),
        { lea_sp_from_bp(out, at.value) }, Effects::sp(SpEffect::CopyFrom(RBP, at.value));
    SubSp { imm } => write!(w, "sub\t${}, %rsp", names.disp(imm)),
        { arithmetic_sp(out, imm.value, Arithmetic::Sub) }, Effects::sp(SpEffect::Move(-imm.value)).changing_flags();
    AddSp { imm } => write!(w, "add\t${}, %rsp", names.disp(imm)),
        { arithmetic_sp(out, imm.value, Arithmetic::Add) }, Effects::sp(SpEffect::Move(imm.value)).changing_flags();
    AndSp { imm } => write!(w, "and\t${imm}, %rsp"),
        { multiple(imm)?; dynasm!(out ; .arch x64 ; and rsp, BYTE imm) },
        Effects::sp(SpEffect::Realign).and(Action::RoundDown { dst: RSP, src: RSP, to: imm.unsigned_abs() }).changing_flags();
    Sub { dst, imm } => write!(w, "sub\t${imm}, %{}", name(dst)),
        { short_arithmetic(out, 0xe8, dst, imm)? }, sub_effects(dst, -i32::from(imm)).changing_flags();
    Add { dst, imm } => write!(w, "add\t${imm}, %{}", name(dst)),
        { short_arithmetic(out, 0xc0, dst, imm)? }, sub_effects(dst, imm.into()).changing_flags();
    TestAx => w.write_str("test\t%rax, %rax"),
        { dynasm!(out ; .arch x64 ; test rax, rax) }, Effects::action(Action::Test { reg: RAX });
    TestAl => w.write_str("test\t$1, %al"),
        { dynasm!(out ; .arch x64 ; test al, 1) }, Effects::action(Action::TestLowBit { reg: RAX });
    PopOver => w.write_str("popq\t(%rsp)"),
        { dynasm!(out ; .arch x64 ; .bytes [0x8f, 0x04, 0x24]) },
        Effects { sp: SpEffect::Move(8), loads: 1, stores: 1, ..Effects::action(Action::PopOver) };
    Jnz { to } => write!(w, "jnz\t{}", names.local(to)),
        { dynasm!(out ; .arch x64 ; jnz BYTE 0); out.fixup(1, reloc::PC8, Ref::Local(to), 0) },
        Effects::flow(Flow::Branch(to)).and(Action::BranchIfFlags { zero: false });
    Jz { to } => write!(w, "jz\t{}", names.local(to)),
        { dynasm!(out ; .arch x64 ; jz BYTE 0); out.fixup(1, reloc::PC8, Ref::Local(to), 0) },
        Effects::flow(Flow::Branch(to)).and(Action::BranchIfFlags { zero: true });
    Nop5 => w.write_str("{disp8} nopl\t0(%rax, %rax)"),
        { dynasm!(out ; .arch x64 ; .bytes [0x0f, 0x1f, 0x44, 0, 0]) }, Effects::PLAIN;
    JnzFar { to } => write!(w, "{{disp32}} jnz\t{}", names.local(to)),
        { dynasm!(out ; .arch x64 ; jnz DWORD 0); out.fixup(4, reloc::PC32, Ref::Local(to), 0) },
        Effects::flow(Flow::Branch(to)).and(Action::BranchIfFlags { zero: false });
    CallBody { sym } => write!(w, "call\t{}", names.sym(sym)),
        { dynasm!(out ; .arch x64 ; call DWORD 0); out.fixup(4, reloc::PC32, Ref::Symbol(sym), -4) },
        Effects { stores: 1, ..Effects::flow(Flow::Call).and(Action::CallSymbol { sym }) };
    JmpBody { sym } => write!(w, "jmp\t{}", names.sym(sym)),
        { dynasm!(out ; .arch x64 ; jmp DWORD 0); out.fixup(4, reloc::PC32, Ref::Symbol(sym), -4) },
        Effects::flow(Flow::Leave).and(Action::LeaveFor { sym, through: None });
    LeaSym { dst, sym } => write!(w, "lea\t{}(%rip), %{}", names.sym(sym), name(dst)),
        { at_rip(out, 0x8d, dst, sym)? }, written(dst, Effects::action(Action::Address { dst, sym }));
    JmpR11 => w.write_str("jmp\t*%r11"),
        { dynasm!(out ; .arch x64 ; jmp r11) }, Effects::flow(Flow::Leave).and(Action::LeaveBy { reg: R11 });
    Call { sym } => write!(w, "call\t{}", names.sym(sym)),
        { dynasm!(out ; .arch x64 ; call DWORD 0); out.fixup(4, reloc::PLT32, Ref::Symbol(sym), -4) },
        Effects { stores: 1, ..Effects::flow(Flow::Call).and(Action::CallSymbol { sym }) };
    CallLocal { to } => write!(w, "call\t{}", names.local(to)),
        { dynasm!(out ; .arch x64 ; call DWORD 0); out.fixup(4, reloc::PC32, Ref::Local(to), 0) },
        Effects { sp: SpEffect::Move(-8), stores: 1, ..Effects::flow(Flow::Jump(to)).and(Action::PushNext) };
    MovImm { dst, imm } => write!(w, "mov\t${imm}, %{}", half(dst)),
        { let r = general(dst)?; positive(imm)?; short(out, 0xb8, Reg(r))?; out.bytes.extend_from_slice(&imm.to_le_bytes()) },
        written(dst, Effects::action(Action::Set { dst, number: imm }));
    XaddThread { reg, at } => write!(w, "xadd\t%{}, {}", name(reg), fs(names, at)),
        { at_fs(out, &[0x0f, 0xc1], general(reg)?, at) },
        written(reg, Effects { loads: 1, stores: 1, ..Effects::action(Action::AtomicAdd { dst: reg, add: reg, cell: Cell::Thread(at) }) }.changing_flags());
    CmpThread { reg, at } => write!(w, "cmp\t{}, %{}", fs(names, at), name(reg)),
        { at_fs(out, &[0x3b], general(reg)?, at) },
        Effects { loads: 1, ..Effects::action(Action::CompareCell { reg, cell: Cell::Thread(at) }) };
    IncThread { at } => write!(w, "incq\t{}", fs(names, at)),
        { at_fs(out, &[0xff], 0, at) },
        Effects { loads: 1, stores: 1, ..Effects::action(Action::AddToMemory { cell: Cell::Thread(at), add: 1 }) }.changing_flags();
    LoadThread { dst, at } => write!(w, "mov\t{}, %{}", fs(names, at), name(dst)),
        { at_fs(out, &[0x8b], general(dst)?, at) },
        written(dst, Effects { loads: 1, ..Effects::action(Action::LoadThread { dst, at }) });
    StoreThread { src, at } => write!(w, "mov\t%{}, {}", name(src), fs(names, at)),
        { at_fs(out, &[0x89], general(src)?, at) },
        Effects { stores: 1, ..Effects::action(Action::StoreThread { src, at }) };
    Jae { to } => write!(w, "jae\t{}", names.local(to)),
        { dynasm!(out ; .arch x64 ; jae BYTE 0); out.fixup(1, reloc::PC8, Ref::Local(to), 0) },
        Effects::flow(Flow::Branch(to)).and(Action::BranchIfNotBelow);
    JaeFar { to } => write!(w, "{{disp32}} jae\t{}", names.local(to)),
        { dynasm!(out ; .arch x64 ; jae DWORD 0); out.fixup(4, reloc::PC32, Ref::Local(to), 0) },
        Effects::flow(Flow::Branch(to)).and(Action::BranchIfNotBelow);
    Bt { reg, bit } => write!(w, "bt\t${}, %{}", names.disp(bit), name(reg)),
        { let (r, n) = (general(reg)?, bit_number(bit.value)?); out.bytes.extend_from_slice(&[WIDE | r >> 3, 0x0f, 0xba, 0xe0 | r & 7, n]) },
        Effects::action(Action::TestBit { reg, bit: bit.value });
    JcFar { to } => write!(w, "{{disp32}} jc\t{}", names.local(to)),
        { dynasm!(out ; .arch x64 ; jc DWORD 0); out.fixup(4, reloc::PC32, Ref::Local(to), 0) },
        Effects::flow(Flow::Branch(to)).and(Action::BranchIfFlags { zero: false });
    JmpFar { to } => write!(w, "{{disp32}} jmp\t{}", names.local(to)),
        { dynasm!(out ; .arch x64 ; jmp DWORD 0); out.fixup(4, reloc::PC32, Ref::Local(to), 0) },
        Effects::flow(Flow::Jump(to));
    Xsavec => w.write_str("xsavec64\t(%rsp)"),
        { dynasm!(out ; .arch x64 ; .bytes [0x48, 0x0f, 0xc7, 0x24, 0x24]) },
        Effects { stores: (STATE.bytes / 8) as u16, ..Effects::action(Action::StoreState(STATE)) };
    Xrstor => w.write_str("xrstor64\t(%rsp)"),
        { dynasm!(out ; .arch x64 ; .bytes [0x48, 0x0f, 0xae, 0x2c, 0x24]) },
        Effects { loads: (STATE.bytes / 8) as u16, ..Effects::action(Action::LoadState(STATE)) };
    CmpSlot { reg, at } => write!(w, "cmp\t{at}(%r11), %{}", name(reg)),
        { let r = general(reg)?; at_slot(out, &[0x49 | r >> 3 << 2, 0x3b], r, at) },
        Effects { loads: 1, ..Effects::action(Action::CompareAt { reg, base: R11, at }) };
    CmpSlotZero { at } => write!(w, "cmpq\t$0, {at}(%r11)"),
        { at_slot(out, &[0x49, 0x83], 7, at); out.bytes.push(0) }, Effects { loads: 1, ..Effects::action(Action::TestAt { base: R11, at }) };
    PushSlot { at } => write!(w, "pushq\t{at}(%r11)"),
        { at_slot(out, &[0x41, 0xff], 6, at) },
        Effects { sp: SpEffect::Move(-8), loads: 1, stores: 1, ..Effects::action(Action::PushAt { base: R11, at }) };
    LoadSlot { dst, at } => write!(w, "mov\t{at}(%r11), %{}", name(dst)),
        { let r = general(dst)?; at_slot(out, &[0x49 | r >> 3 << 2, 0x8b], r, at) },
        written(dst, Effects { loads: 1, ..Effects::action(Action::LoadAt { dst, base: R11, at }) });
    StoreSlotImm { imm, at } => write!(w, "movq\t${imm}, {at}(%r11)"),
        { at_slot(out, &[0x49, 0xc7], 0, at); out.bytes.extend_from_slice(&imm.to_le_bytes()) },
        Effects { stores: 1, ..Effects::action(Action::StoreAt { base: R11, at, stored: Stored::Number(imm) }) };
    PopSlot { at } => write!(w, "popq\t{at}(%r11)"),
        { at_slot(out, &[0x41, 0x8f], 0, at) },
        Effects { sp: SpEffect::Move(8), loads: 1, stores: 1, ..Effects::action(Action::StoreAt { base: R11, at, stored: Stored::Popped }) };
    PushSym { sym } => write!(w, "push\t{}(%rip)", names.sym(sym)),
        { out.bytes.extend_from_slice(&[0xff, 0x35, 0, 0, 0, 0]); out.fixup(4, reloc::PC32, Ref::Symbol(sym), -4) },
        Effects { sp: SpEffect::Move(-8), loads: 1, stores: 1, ..Effects::action(Action::PushSymbol { sym }) };
    Rdtsc => w.write_str("rdtsc"),
        { out.bytes.extend_from_slice(&[0x0f, 0x31]) }, Effects::action(Action::ReadClock { low: RAX, high: Some(RDX) });
    StoreSlot { src, at } => write!(w, "mov\t%{}, {at}(%r11)", name(src)),
        { let r = general(src)?; at_slot(out, &[0x49 | r >> 3 << 2, 0x89], r, at) },
        Effects { stores: 1, ..Effects::action(Action::StoreAt { base: R11, at, stored: Stored::Reg(src) }) };
    StoreSlotHalf { src, at } => write!(w, "mov\t%{}, {at}(%r11)", half(src)),
        { let r = general(src)?; at_slot(out, &[0x41 | r >> 3 << 2, 0x89], r, at) },
        Effects { stores: 1, ..Effects::action(Action::StoreHalfAt { base: R11, at, src }) };
    AndLow { dst, bits } => write!(w, "and\t${}, %{}", low(bits), half(dst)),
        { let r = general(dst)?; short_immediate(out, 0xe0, r, low_bits(bits)?) },
        written(dst, Effects::action(Action::LowBits { dst, src: dst, bits }).changing_flags());
    CmpImm { reg, imm } => write!(w, "cmp\t${imm}, %{}", half(reg)),
        { let r = general(reg)?; positive(imm.into())?; short_immediate(out, 0xf8, r, imm) }, Effects::action(Action::CompareNumber { reg, number: imm.into() });
}

/// An operation of a register in 32 bits and a number of 8.
fn short_immediate(out: &mut CodeBuf, modrm: u8, reg: u8, imm: i8) {
    if reg >= 8 {
        out.bytes.push(0x41);
    }
    out.bytes.extend_from_slice(&[0x83, modrm | reg & 7, imm.cast_unsigned()]);
}

/// A number with so many ones.
fn low(bits: u8) -> u64 {
    1_u64.checked_shl(bits.into()).unwrap_or_default().wrapping_sub(1)
}

/// A number with `bits` ones, as a signed 8-bit operand.
fn low_bits(bits: u8) -> Result<i8> {
    let valid = || Error::unencodable(format_args!("{bits} bits; valid: 1 to 7"));
    if (1..=7).contains(&bits) { Ok(low(bits) as i8) } else { Err(valid()) }
}

/// REX.W: operands of 64 bits.
const WIDE: u8 = 0x48;
/// REX with no bit set, which is left out where it stays so.
pub(crate) const NARROW: u8 = 0x40;

pub(crate) fn general(reg: Reg) -> Result<u8> {
    if reg.0 < 16 {
        Ok(reg.0)
    } else {
        Err(Error::unencodable(format_args!("general register {}; valid: 0 to 15", reg.0)))
    }
}

fn vector(number: u8) -> Result<u8> {
    if number < 16 { Ok(number) } else { Err(Error::unencodable(format_args!("%xmm{number}; valid: %xmm0 to %xmm15"))) }
}

/// An opcode that a register's number is part of.
fn short(out: &mut CodeBuf, opcode: u8, reg: Reg) -> Result<()> {
    let reg = general(reg)?;
    if reg >= 8 {
        out.bytes.push(0x41);
    }
    out.bytes.push(opcode | reg & 7);
    Ok(())
}

fn mov(out: &mut CodeBuf, dst: Reg, src: Reg) -> Result<()> {
    let (dst, src) = (general(dst)?, general(src)?);
    out.bytes.extend_from_slice(&[WIDE | src >> 3 << 2 | dst >> 3, 0x89, 0xc0 | (src & 7) << 3 | dst & 7]);
    Ok(())
}

/// An operation of a register in 64 bits and a number of 8.
fn short_arithmetic(out: &mut CodeBuf, modrm: u8, dst: Reg, imm: i8) -> Result<()> {
    let dst = general(dst)?;
    out.bytes.extend_from_slice(&[WIDE | dst >> 3, 0x83, modrm | dst & 7, imm.cast_unsigned()]);
    Ok(())
}

/// A register and `at(%rsp)`, in the shortest of the three forms of the displacement, as GNU as chooses it.
pub(crate) fn at_rsp(out: &mut CodeBuf, rex: u8, opcode: &[u8], reg: u8, at: i32) {
    let rex = rex | reg >> 3 << 2;
    // In one piece: most instructions of a trampoline are these.
    let (mut bytes, mut len) = ([0; 12], 0);
    let mut put = |part: &[u8]| {
        bytes[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    };
    if rex != NARROW {
        put(&[rex]);
    }
    put(opcode);
    let modrm = |form: u8| [form | (reg & 7) << 3, 0x24];
    match i8::try_from(at) {
        Ok(0) => put(&modrm(0x04)),
        Ok(at) => {
            put(&modrm(0x44));
            put(&at.to_le_bytes());
        }
        Err(_) => {
            put(&modrm(0x84));
            put(&at.to_le_bytes());
        }
    }
    out.bytes.extend_from_slice(&bytes[..len]);
}

/// A register and `sym(%rip)`.
fn at_rip(out: &mut CodeBuf, opcode: u8, reg: Reg, sym: Sym) -> Result<()> {
    let reg = general(reg)?;
    out.bytes.extend_from_slice(&[WIDE | reg >> 3 << 2, opcode, 0x05 | (reg & 7) << 3, 0, 0, 0, 0]);
    out.fixup(4, reloc::PC32, Ref::Symbol(sym), -4);
    Ok(())
}

/// A register, or what belongs to the opcode, and an address relative to fs.
pub(crate) fn at_fs(out: &mut CodeBuf, opcode: &[u8], reg: u8, at: Disp) {
    out.bytes.extend_from_slice(&[0x64, WIDE | reg >> 3 << 2]);
    out.bytes.extend_from_slice(opcode);
    out.bytes.extend_from_slice(&[0x04 | (reg & 7) << 3, 0x25]);
    let field = if at.variable().is_some() { 0 } else { at.value };
    out.bytes.extend_from_slice(&field.to_le_bytes());
    if let Some(sym) = at.variable() {
        out.fixup(4, reloc::TPOFF32, Ref::Symbol(sym), at.value.into());
    }
}

/// A word of the thread as an operand.
pub(crate) fn fs(names: &Names, at: Disp) -> impl fmt::Display {
    let variable = at.variable().map(|sym| format!("{}@tpoff+", names.sym(sym)));
    format!("%fs:{}{}", variable.unwrap_or_default(), names.disp(at))
}

/// A register, or what belongs to the opcode, and `at(%r11)`.
fn at_slot(out: &mut CodeBuf, opcode: &[u8], reg: u8, at: i32) {
    out.bytes.extend_from_slice(opcode);
    let modrm = |form: u8| form | (reg & 7) << 3 | 3;
    match i8::try_from(at) {
        Ok(0) => out.bytes.push(modrm(0x00)),
        Ok(at) => out.bytes.extend_from_slice(&[modrm(0x40), at.cast_unsigned()]),
        Err(_) => {
            out.bytes.push(modrm(0x80));
            out.bytes.extend_from_slice(&at.to_le_bytes());
        }
    }
}

/// What fits 32 bits with and without a sign.
fn positive(imm: i32) -> Result<()> {
    if imm >= 0 { Ok(()) } else { Err(Error::unencodable(format_args!("{imm}; valid: 0 to {}", i32::MAX))) }
}

/// The lower half of a register.
pub(crate) fn half(reg: Reg) -> &'static str {
    HALVES.get(usize::from(reg.0)).unwrap_or(&"?")
}

fn bit_number(value: i32) -> Result<u8> {
    let fits = u8::try_from(value).ok().filter(|n| *n < 64);
    fits.ok_or_else(|| Error::unencodable(format_args!("bit {value}; valid: 0 to 63")))
}

/// The lower halves of the registers.
const HALVES: [&str; 16] = [
    "eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi", "r8d", "r9d", "r10d", "r11d", "r12d", "r13d", "r14d",
    "r15d",
];

/// `effects` of an instruction that writes `dst`: if that is SP, SP is no longer known.
pub(crate) fn written(dst: Reg, effects: Effects) -> Effects {
    if dst == RSP { Effects { sp: SpEffect::Realign, ..effects } } else { effects }
}

/// What AND leaves is a multiple of a power of two.
fn multiple(imm: i8) -> Result<()> {
    if imm < 0 && imm.unsigned_abs().is_power_of_two() {
        return Ok(());
    }
    Err(Error::unencodable(format_args!("and ${imm}, %rsp rounds to no multiple; valid: a negative power of two")))
}

fn sub_effects(dst: Reg, add: i32) -> Effects {
    if dst == RSP { Effects::sp(SpEffect::Move(add)) } else { Effects::action(Action::Add { dst, src: dst, add }) }
}

fn push_bp(out: &mut CodeBuf, at: i32) {
    match i8::try_from(at) {
        Ok(at) => dynasm!(out ; .arch x64 ; push QWORD [BYTE rbp + at]),
        Err(_) => dynasm!(out ; .arch x64 ; push QWORD [DWORD rbp + at]),
    }
}

enum Arithmetic {
    Add,
    Sub,
}

pub(crate) fn name(reg: Reg) -> &'static str {
    TABLE.get(reg.0 as usize).map_or("?", |r| r.name)
}

/// The effect of a copy on SP.
pub fn mov_sp(dst: Reg, src: Reg) -> SpEffect {
    match (dst, src) {
        (RSP, from) => SpEffect::CopyFrom(from, 0),
        (to, RSP) => SpEffect::CopyTo(to, 0),
        _ => SpEffect::None,
    }
}

fn lea_sp(dst: Reg, at: i32) -> SpEffect {
    if dst == RSP { SpEffect::Move(at) } else { SpEffect::CopyTo(dst, at) }
}

fn store_imm(out: &mut CodeBuf, at: i32, imm: i32) {
    match i8::try_from(at) {
        Ok(0) => dynasm!(out ; .arch x64 ; mov QWORD [rsp], imm),
        Ok(at) => dynasm!(out ; .arch x64 ; mov QWORD [BYTE rsp + at], imm),
        Err(_) => dynasm!(out ; .arch x64 ; mov QWORD [DWORD rsp + at], imm),
    }
}

fn lea_sp_from_bp(out: &mut CodeBuf, at: i32) {
    match i8::try_from(at) {
        Ok(at) => dynasm!(out ; .arch x64 ; lea rsp, [BYTE rbp + at]),
        Err(_) => dynasm!(out ; .arch x64 ; lea rsp, [DWORD rbp + at]),
    }
}

fn arithmetic_sp(out: &mut CodeBuf, imm: i32, what: Arithmetic) {
    match (what, i8::try_from(imm)) {
        (Arithmetic::Add, Ok(imm)) => dynasm!(out ; .arch x64 ; add rsp, BYTE imm),
        (Arithmetic::Add, Err(_)) => dynasm!(out ; .arch x64 ; add rsp, DWORD imm),
        (Arithmetic::Sub, Ok(imm)) => dynasm!(out ; .arch x64 ; sub rsp, BYTE imm),
        (Arithmetic::Sub, Err(_)) => dynasm!(out ; .arch x64 ; sub rsp, DWORD imm),
    }
}
