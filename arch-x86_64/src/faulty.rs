//! The instructions that only mutants have: no lowering can emit them.

use codegen::effect::action::Action;
use codegen::effect::effects::{Effects, Flow};
use codegen::listing::code::Ref;
use codegen::words::abi::Reg;
use codegen::words::step::{Disp, Local};
use dynasm::dynasm;
use dynasmrt::DynasmApi;

use crate::insn::{NARROW, at_rsp, general, half, written};
use crate::regs::R11;
use crate::reloc;

/// An instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are the manual's; the rows below say the rest")]
pub enum Faulty {
    Endbr32,
    Store32 {
        src: Reg,
        at: Disp,
    },
    JzFar {
        to: Local,
    },
    JgeFar {
        to: Local,
    },
    /// The upper half becomes 0.
    Mov32 {
        reg: Reg,
    },
    Fninit,
    Std,
    Vzeroupper,
    Kxnorw,
    Incsspq,
    /// The address behind the jump that follows the next instruction. No effect says that: it is said to be that behind this one.
    LeaBehindJmp,
}

// One row, one instruction: kept in columns, so rustfmt stays out.
#[rustfmt::skip]
codegen::rows! { Faulty, w names out target;
    Endbr32 => w.write_str("endbr32"),
        { dynasm!(out ; .arch x64 ; .bytes [0xf3, 0x0f, 0x1e, 0xfb]) }, Effects::PLAIN;
    Store32 { src, at } => write!(w, "movl\t%{}, {}(%rsp)", half(src), names.disp(at)),
        { at_rsp(out, NARROW, &[0x89], general(src)?, at.value) }, Effects::store(src, at.value).and(Action::StoreHalf);
    JzFar { to } => write!(w, "{{disp32}} jz\t{}", names.local(to)),
        { dynasm!(out ; .arch x64 ; jz DWORD 0); out.fixup(4, reloc::PC32, Ref::Local(to), 0) },
        Effects::flow(Flow::Branch(to)).and(Action::BranchIfFlags { zero: true });
    JgeFar { to } => write!(w, "{{disp32}} jge\t{}", names.local(to)),
        { dynasm!(out ; .arch x64 ; jge DWORD 0); out.fixup(4, reloc::PC32, Ref::Local(to), 0) },
        Effects::flow(Flow::Branch(to)).and(Action::BranchIfSigned);
    Fninit => w.write_str("fninit"),
        { dynasm!(out ; .arch x64 ; fninit) }, Effects::action(Action::Control);
    Std => w.write_str("std"),
        { dynasm!(out ; .arch x64 ; std) }, Effects { changes_flags: true, ..Effects::action(Action::Control) };
    Vzeroupper => w.write_str("vzeroupper"),
        { dynasm!(out ; .arch x64 ; vzeroupper) }, Effects::action(Action::Control);
    Kxnorw => w.write_str("kxnorw\t%k1, %k1, %k1"),
        { dynasm!(out ; .arch x64 ; .bytes [0xc5, 0xf4, 0x46, 0xc9]) }, Effects::action(Action::Control);
    Incsspq => w.write_str("incsspq\t%rax"),
        { dynasm!(out ; .arch x64 ; .bytes [0xf3, 0x48, 0x0f, 0xae, 0xe8]) }, Effects::action(Action::Control);
    LeaBehindJmp => w.write_str("lea\t7(%rip), %r11"),
        { dynasm!(out ; .arch x64 ; .bytes [0x4c, 0x8d, 0x1d, 7, 0, 0, 0]) }, Effects::action(Action::LinkNext { dst: R11 });
    Mov32 { reg } => write!(w, "mov\t%{0}, %{0}", half(reg)),
        { let r = general(reg)?; if r >= 8 { out.bytes.push(0x45); } out.bytes.extend_from_slice(&[0x89, 0xc0 | (r & 7) << 3 | r & 7]) },
        written(reg, Effects::action(Action::LowBits { dst: reg, src: reg, bits: 32 }));
}
