//! The instructions that only mutants have: no lowering can emit them.

use codegen::effect::action::Action;
use codegen::effect::effects::{Effects, Flow};
use codegen::listing::code::Ref;
use codegen::words::abi::Reg;
use codegen::words::step::{Disp, Local};
use dynasm::dynasm;
use dynasmrt::DynasmApi;

use crate::emulated::{SSPOPCHK_T0, SSPUSH_T0};
use crate::insn::{name, simm12, written, x};
use crate::option::Rvc;
use crate::regs::T0;
use crate::reloc;

/// An instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are the manual's; the rows below say the rest")]
pub enum Faulty {
    Sw {
        src: Reg,
        at: Disp,
    },
    Bge {
        reg: Reg,
        with: Reg,
        to: Local,
    },
    AddRegs {
        dst: Reg,
        src: Reg,
        add: Reg,
    },
    /// With another label.
    LpadOther,
    SspushT0,
    SspopchkT0,
    FsrmZero,
    VmvVI,
    VmsetM,
    Vsetivli,
    CsrwiVxrm,
    CsrwiSsp,
}

// One row, one instruction: kept in columns, so rustfmt stays out.
#[rustfmt::skip]
codegen::rows! { Faulty, w names out target rvc = target.option::<Rvc>() == Rvc::On;
    Sw { src, at } => write!(w, "sw\t{}, {}(sp)", name(src), names.disp(at)),
        { let (r, d) = (x(src)?, simm12(at.value)?);
          if rvc && (0..256).contains(&d) && d % 4 == 0 { dynasm!(out ; .arch riscv64 ; .feature i, c ; c.swsp X(r), [sp, d as u32]) }
          else { dynasm!(out ; .arch riscv64 ; .feature i, c ; sw X(r), [sp, d]) } }, Effects::store(src, at.value).and(Action::StoreHalf);
    Bge { reg, with, to } => write!(w, "bge\t{}, {}, {}", name(reg), name(with), names.local(to)),
        { let (a, b) = (x(reg)?, x(with)?); dynasm!(out ; .arch riscv64 ; .feature i, c ; bge X(a), X(b), 0);
          out.fixup(4, reloc::BRANCH, Ref::Local(to), 0) },
        Effects::flow(Flow::Branch(to)).and(Action::BranchIfRegSigned { reg, with });
    AddRegs { dst, src, add } => write!(w, "add\t{}, {}, {}", name(dst), name(src), name(add)),
        { let (d, a, b) = (x(dst)?, x(src)?, x(add)?); dynasm!(out ; .arch riscv64 ; .feature i, c ; add X(d), X(a), X(b)) },
        written(dst, Effects::action(Action::AddRegs { dst, src, add }));
    LpadOther => w.write_str(".insn\t0x1017"),
        { out.push_u32(0x1017) }, Effects::PLAIN;
    SspushT0 => write!(w, ".insn\t{SSPUSH_T0:#x}"),
        { out.push_u32(SSPUSH_T0) }, Effects::action(Action::PushGuard { reg: T0 });
    SspopchkT0 => write!(w, ".insn\t{SSPOPCHK_T0:#x}"),
        { out.push_u32(SSPOPCHK_T0) }, Effects::action(Action::PopGuard { reg: T0 });
    // CSRRW of frm, from zero.
    FsrmZero => w.write_str("fsrm\tzero"),
        { out.push_u32(0x0020_1073) }, Effects::action(Action::Control);
    // "V" extension: VMV.V.I, VMXNOR.MM, VSETIVLI of one element of a byte.
    VmvVI => w.write_str("vmv.v.i\tv31, 0"),
        { out.push_u32(0x5e00_3fd7) }, Effects::action(Action::Control);
    VmsetM => w.write_str("vmset.m\tv0"),
        { out.push_u32(0x7e00_2057) }, Effects::action(Action::Control);
    Vsetivli => w.write_str("vsetivli\tzero, 1, e8, m1, ta, ma"),
        { out.push_u32(0xcc00_f057) }, Effects::action(Action::Control);
    // CSRRWI of vxrm, the rounding of fixed-point numbers, and of ssp ("Zicfiss").
    CsrwiVxrm => w.write_str("csrwi\tvxrm, 1"),
        { out.push_u32(0x00a0_d073) }, Effects::action(Action::Control);
    CsrwiSsp => w.write_str("csrwi\t0x11, 0"),
        { out.push_u32(0x0110_5073) }, Effects::action(Action::Control);
}
