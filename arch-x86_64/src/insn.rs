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
        at: Off,
    },
    LoadVector {
        dst: u8,
        at: Off,
    },
    Mov {
        dst: Reg,
        src: Reg,
    },
    Store {
        src: Reg,
        at: Off,
    },
    StoreImm {
        imm: i32,
        at: Off,
    },
    Load {
        dst: Reg,
        at: Off,
    },
    LoadSym {
        dst: Reg,
        sym: Sym,
    },
    Lea {
        dst: Reg,
        at: Off,
    },
    LeaSpFromBp {
        at: Off,
    },
    SubSp {
        imm: Off,
    },
    AddSp {
        imm: Off,
    },
    AndSp {
        imm: i8,
    },
    /// From rdi or r11.
    Sub {
        dst: Reg,
        imm: i8,
    },
    TestAx,
    Jnz {
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
    LeaBody {
        dst: Reg,
        sym: Sym,
    },
    Call {
        sym: Sym,
    },
    CallLocal {
        to: Local,
    },
    // What only a faulty trampoline has: see `mutate.rs`.
    Endbr32,
    Store32 {
        src: Reg,
        at: Off,
    },
    LeaSym {
        dst: Reg,
        sym: Sym,
    },
    Jz {
        to: Local,
    },
    JzFar {
        to: Local,
    },
}

/// One dynasm row for each of the sixteen registers.
macro_rules! each {
    ($reg:expr, $out:ident, |$r:ident| $($row:tt)*) => {
        each!(@ $reg, $out, $r, { $($row)* }
            0 rax, 1 rcx, 2 rdx, 3 rbx, 4 rsp, 5 rbp, 6 rsi, 7 rdi,
            8 r8, 9 r9, 10 r10, 11 r11, 12 r12, 13 r13, 14 r14, 15 r15)
    };
    (@ $reg:expr, $out:ident, $r:ident, $row:tt $($n:literal $name:ident),*) => {
        match $reg.0 { $($n => each!(! $out, $r, $name, $row),)* _ => {} }
    };
    (! $out:ident, $r:ident, $name:ident, { push }) => { dynasm!($out ; .arch x64 ; push $name) };
    (! $out:ident, $r:ident, $name:ident, { pop }) => { dynasm!($out ; .arch x64 ; pop $name) };
    (! $out:ident, $r:ident, $name:ident, { store }) => { dynasm!($out ; .arch x64 ; mov [rsp], $name) };
    (! $out:ident, $r:ident, $name:ident, { store8 $d:ident }) => { dynasm!($out ; .arch x64 ; mov [BYTE rsp + $d], $name) };
    (! $out:ident, $r:ident, $name:ident, { store32 $d:ident }) => { dynasm!($out ; .arch x64 ; mov [DWORD rsp + $d], $name) };
    (! $out:ident, $r:ident, $name:ident, { load }) => { dynasm!($out ; .arch x64 ; mov $name, [rsp]) };
    (! $out:ident, $r:ident, $name:ident, { load8 $d:ident }) => { dynasm!($out ; .arch x64 ; mov $name, [BYTE rsp + $d]) };
    (! $out:ident, $r:ident, $name:ident, { load32 $d:ident }) => { dynasm!($out ; .arch x64 ; mov $name, [DWORD rsp + $d]) };
    (! $out:ident, $r:ident, $name:ident, { lea }) => { dynasm!($out ; .arch x64 ; lea $name, [rsp]) };
    (! $out:ident, $r:ident, $name:ident, { lea8 $d:ident }) => { dynasm!($out ; .arch x64 ; lea $name, [BYTE rsp + $d]) };
    (! $out:ident, $r:ident, $name:ident, { lea32 $d:ident }) => { dynasm!($out ; .arch x64 ; lea $name, [DWORD rsp + $d]) };
    (! $out:ident, $r:ident, $name:ident, { mov $src:ident }) => {
        match $src.0 {
            0 => dynasm!($out ; .arch x64 ; mov $name, rax),
            1 => dynasm!($out ; .arch x64 ; mov $name, rcx),
            2 => dynasm!($out ; .arch x64 ; mov $name, rdx),
            3 => dynasm!($out ; .arch x64 ; mov $name, rbx),
            4 => dynasm!($out ; .arch x64 ; mov $name, rsp),
            5 => dynasm!($out ; .arch x64 ; mov $name, rbp),
            6 => dynasm!($out ; .arch x64 ; mov $name, rsi),
            7 => dynasm!($out ; .arch x64 ; mov $name, rdi),
            8 => dynasm!($out ; .arch x64 ; mov $name, r8),
            9 => dynasm!($out ; .arch x64 ; mov $name, r9),
            10 => dynasm!($out ; .arch x64 ; mov $name, r10),
            11 => dynasm!($out ; .arch x64 ; mov $name, r11),
            12 => dynasm!($out ; .arch x64 ; mov $name, r12),
            13 => dynasm!($out ; .arch x64 ; mov $name, r13),
            14 => dynasm!($out ; .arch x64 ; mov $name, r14),
            15 => dynasm!($out ; .arch x64 ; mov $name, r15),
            _ => {}
        }
    };
}

/// The shortest of the three forms of `disp(%rsp)`, as GNU as chooses it.
macro_rules! by_size {
    ($reg:expr, $out:ident, $disp:expr, $none:ident $byte:ident $dword:ident) => {{
        let disp: i32 = $disp;
        if disp == 0 {
            each!($reg, $out, |r| $none)
        } else if let Ok(disp) = i8::try_from(disp) {
            each!($reg, $out, |r| $byte disp)
        } else {
            each!($reg, $out, |r| $dword disp)
        }
    }};
}

macro_rules! rows {
    ($w:ident $names:ident $out:ident; $($pattern:pat => $text:expr, $encode:block, $effects:expr;)*) => {
        /// The instruction as GNU as reads it.
        #[allow(unused_variables, reason = "a row's pattern binds what any of its three columns needs")]
        pub fn text(insn: Insn, $names: &Names, $w: &mut dyn fmt::Write) -> fmt::Result {
            use Insn::*;
            match insn { $($pattern => $text,)* }
        }

        /// The instruction's bytes.
        #[allow(unused_variables, reason = "a row's pattern binds what any of its three columns needs")]
        pub fn encode(insn: Insn, $out: &mut CodeBuf) -> Result<()> {
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
rows! { w names out;
    Endbr64 => w.write_str("endbr64"),
        { dynasm!(out ; .arch x64 ; .bytes [0xf3, 0x0f, 0x1e, 0xfa]) }, Effects::PLAIN;
    Pushfq => w.write_str("pushfq"),
        { dynasm!(out ; .arch x64 ; pushfq) }, Effects { sp: SpEffect::Move(-8), stores: 1, ..Effects::PLAIN };
    Popfq => w.write_str("popfq"),
        { dynasm!(out ; .arch x64 ; popfq) }, Effects { sp: SpEffect::Move(8), loads: 1, ..Effects::PLAIN };
    Ret => w.write_str("ret"),
        { dynasm!(out ; .arch x64 ; ret) }, Effects { loads: 1, ..Effects::flow(Flow::Leave) };
    JmpReturn { sym } => write!(w, "jmp\t{}", names.sym(sym)),
        { dynasm!(out ; .arch x64 ; jmp DWORD 0); out.fixup(4, reloc::PLT32, Ref::Symbol(sym), -4) }, Effects::flow(Flow::Leave);
    Int3 => w.write_str("int3"),
        { dynasm!(out ; .arch x64 ; int3) }, Effects::flow(Flow::Trap);
    Push { reg } => write!(w, "push\t%{}", name(reg)),
        { each!(reg, out, |r| push) }, Effects { sp: SpEffect::Move(-8), ..Effects::store(reg, 0) };
    Pop { reg } => write!(w, "pop\t%{}", name(reg)),
        { each!(reg, out, |r| pop) }, Effects { sp: SpEffect::Move(8), ..Effects::load(reg, 0) };
    PushBp { at } => write!(w, "push\t{at}(%rbp)"),
        { push_bp(out, at) }, Effects { sp: SpEffect::Move(-8), loads: 1, stores: 1, ..Effects::PLAIN };
    StoreVector { src, at } => write!(w, "movups\t%xmm{src}, {}(%rsp)", names.off(at)),
        { movups(out, 0x11, src, at.value)? }, Effects { stores: 2, ..Effects::PLAIN };
    LoadVector { dst, at } => write!(w, "movups\t{}(%rsp), %xmm{dst}", names.off(at)),
        { movups(out, 0x10, dst, at.value)? }, Effects { loads: 2, ..Effects::PLAIN };
    Mov { dst, src } => write!(w, "mov\t%{}, %{}", name(src), name(dst)),
        { each!(dst, out, |r| mov src) }, Effects { sp: mov_sp(dst, src), ..Effects::copy(dst, src) };
    Store { src, at } => write!(w, "mov\t%{}, {}(%rsp)", name(src), names.off(at)),
        { by_size!(src, out, at.value, store store8 store32) }, Effects::store(src, at.value);
    StoreImm { imm, at } => write!(w, "movq\t${imm}, {}(%rsp)", names.off(at)),
        { store_imm(out, at.value, imm) }, Effects { stores: 1, ..Effects::PLAIN };
    Load { dst, at } => write!(w, "mov\t{}(%rsp), %{}", names.off(at), name(dst)),
        { by_size!(dst, out, at.value, load load8 load32) }, Effects::load(dst, at.value);
    LoadSym { dst, sym } => write!(w, "mov\t{}(%rip), %{}", names.sym(sym), name(dst)),
        { load_sym(out, dst)?; out.fixup(4, reloc::PC32, Ref::Symbol(sym), -4) }, Effects { loads: 1, ..Effects::PLAIN };
    Lea { dst, at } => write!(w, "lea\t{}(%rsp), %{}", names.off(at), name(dst)),
        { by_size!(dst, out, at.value, lea lea8 lea32) }, Effects::sp(lea_sp(dst, at.value));
    LeaSpFromBp { at } => write!(w, "lea\t{}(%rbp), %rsp", names.off(at)),
        { lea_sp_from_bp(out, at.value) }, Effects::sp(SpEffect::CopyFrom(RBP, at.value));
    SubSp { imm } => write!(w, "sub\t${}, %rsp", names.off(imm)),
        { arithmetic_sp(out, imm.value, Arithmetic::Sub) }, Effects::sp(SpEffect::Move(-imm.value));
    AddSp { imm } => write!(w, "add\t${}, %rsp", names.off(imm)),
        { arithmetic_sp(out, imm.value, Arithmetic::Add) }, Effects::sp(SpEffect::Move(imm.value));
    AndSp { imm } => write!(w, "and\t${imm}, %rsp"),
        { dynasm!(out ; .arch x64 ; and rsp, BYTE imm) }, Effects::sp(SpEffect::Realign);
    Sub { dst, imm } => write!(w, "sub\t${imm}, %{}", name(dst)),
        { sub(out, dst, imm)? }, Effects::PLAIN;
    TestAx => w.write_str("test\t%rax, %rax"),
        { dynasm!(out ; .arch x64 ; test rax, rax) }, Effects::PLAIN;
    Jnz { to } => write!(w, "jnz\t{}", names.local(to)),
        { dynasm!(out ; .arch x64 ; jnz BYTE 0); out.fixup(1, REL8, Ref::Local(to), 0) }, Effects::flow(Flow::Branch(to));
    Nop5 => w.write_str("{disp8} nopl\t0(%rax, %rax)"),
        { dynasm!(out ; .arch x64 ; .bytes [0x0f, 0x1f, 0x44, 0, 0]) }, Effects::PLAIN;
    JnzFar { to } => write!(w, "{{disp32}} jnz\t{}", names.local(to)),
        { dynasm!(out ; .arch x64 ; jnz DWORD 0); out.fixup(4, REL32, Ref::Local(to), 0) }, Effects::flow(Flow::Branch(to));
    CallBody { sym } => write!(w, "call\t{}", names.sym(sym)),
        { dynasm!(out ; .arch x64 ; call DWORD 0); out.fixup(4, reloc::PC32, Ref::Symbol(sym), -4) }, Effects { stores: 1, ..Effects::flow(Flow::Call) };
    LeaBody { dst, sym } => write!(w, "lea\t{}(%rip), %{}", names.sym(sym), name(dst)),
        { lea_body(out, dst)?; out.fixup(4, reloc::PC32, Ref::Symbol(sym), -4) }, Effects::PLAIN;
    JmpR11 => w.write_str("jmp\t*%r11"),
        { dynasm!(out ; .arch x64 ; jmp r11) }, Effects::flow(Flow::Leave);
    Call { sym } => write!(w, "call\t{}", names.sym(sym)),
        { dynasm!(out ; .arch x64 ; call DWORD 0); out.fixup(4, reloc::PLT32, Ref::Symbol(sym), -4) }, Effects { stores: 1, ..Effects::flow(Flow::Call) };
    CallLocal { to } => write!(w, "call\t{}", names.local(to)),
        { dynasm!(out ; .arch x64 ; call DWORD 0); out.fixup(4, REL32, Ref::Local(to), 0) }, Effects { sp: SpEffect::Move(-8), stores: 1, ..Effects::flow(Flow::Jump(to)) };
    Endbr32 => w.write_str("endbr32"),
        { dynasm!(out ; .arch x64 ; .bytes [0xf3, 0x0f, 0x1e, 0xfb]) }, Effects::PLAIN;
    // The 64-bit form without REX.W.
    Store32 { src, at } => write!(w, "movl\t%{}, {}(%rsp)", name(src), names.off(at)),
        { let rex = out.bytes.len(); by_size!(src, out, at.value, store store8 store32); out.bytes[rex] &= !8 }, Effects::store(src, at.value);
    // The load with the opcode of LEA.
    LeaSym { dst, sym } => write!(w, "lea\t{}(%rip), %{}", names.sym(sym), name(dst)),
        { let rex = out.bytes.len(); load_sym(out, dst)?; out.bytes[rex + 1] = 0x8d; out.fixup(4, reloc::PC32, Ref::Symbol(sym), -4) }, Effects::PLAIN;
    Jz { to } => write!(w, "jz\t{}", names.local(to)),
        { dynasm!(out ; .arch x64 ; jz BYTE 0); out.fixup(1, REL8, Ref::Local(to), 0) }, Effects::flow(Flow::Branch(to));
    JzFar { to } => write!(w, "{{disp32}} jz\t{}", names.local(to)),
        { dynasm!(out ; .arch x64 ; jz DWORD 0); out.fixup(4, REL32, Ref::Local(to), 0) }, Effects::flow(Flow::Branch(to));
}

/// A local 8-bit displacement; never leaves the assembler.
pub const REL8: u32 = u32::MAX;
/// A local 32-bit displacement; never leaves the assembler.
pub const REL32: u32 = u32::MAX - 1;

fn push_bp(out: &mut CodeBuf, at: i32) {
    match i8::try_from(at) {
        Ok(at) => dynasm!(out ; .arch x64 ; push QWORD [BYTE rbp + at]),
        Err(_) => dynasm!(out ; .arch x64 ; push QWORD [DWORD rbp + at]),
    }
}

/// Those of the first eight, which need no prefix; dynasm's run-time registers would have one.
fn movups(out: &mut CodeBuf, opcode: u8, vector: u8, at: i32) -> Result<()> {
    if vector > 7 {
        return Err(Error::new(format!("movups of %xmm{vector}; valid: %xmm0 to %xmm7")));
    }
    let (form, disp) = match i8::try_from(at) {
        Ok(0) => (0x04, &[][..]),
        Ok(at) => (0x44, &at.to_le_bytes()[..]),
        Err(_) => (0x84, &at.to_le_bytes()[..]),
    };
    out.bytes.extend_from_slice(&[0x0f, opcode, form | vector << 3, 0x24]);
    out.bytes.extend_from_slice(disp);
    Ok(())
}

enum Arithmetic {
    Add,
    Sub,
}

fn name(reg: Reg) -> &'static str {
    TABLE.get(reg.0 as usize).map_or("?", |r| r.name)
}

/// What a copy does to SP.
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

fn lea_body(out: &mut CodeBuf, dst: Reg) -> Result<()> {
    match dst {
        RDI => dynasm!(out ; .arch x64 ; .bytes [0x48, 0x8d, 0x3d, 0, 0, 0, 0]),
        R11 => dynasm!(out ; .arch x64 ; .bytes [0x4c, 0x8d, 0x1d, 0, 0, 0, 0]),
        _ => return Err(Error::new(format!("lea sym(%rip), %{}: only %rdi and %r11 have a row", name(dst)))),
    }
    Ok(())
}

fn sub(out: &mut CodeBuf, dst: Reg, imm: i8) -> Result<()> {
    match dst {
        RDI => dynasm!(out ; .arch x64 ; sub rdi, BYTE imm),
        R11 => dynasm!(out ; .arch x64 ; sub r11, BYTE imm),
        _ => return Err(Error::new(format!("sub ${imm}, %{}: only %rdi and %r11 have a row", name(dst)))),
    }
    Ok(())
}

fn load_sym(out: &mut CodeBuf, dst: Reg) -> Result<()> {
    match dst {
        RDX => dynasm!(out ; .arch x64 ; .bytes [0x48, 0x8b, 0x15, 0, 0, 0, 0]),
        _ => return Err(Error::new(format!("mov sym(%rip), %{}: only %rdx has a row", name(dst)))),
    }
    Ok(())
}
