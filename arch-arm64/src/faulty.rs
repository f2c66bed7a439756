//! The instructions that only mutants have: no lowering can emit them.

use codegen::effect::action::Action;
use codegen::effect::effects::{Effects, Flow, SpEffect};
use codegen::listing::code::Ref;
use codegen::words::abi::Reg;
use codegen::words::step::{Disp, Local};
use dynasm::dynasm;
use dynasmrt::DynasmApi;

use crate::insn::{XZR, name, scaled, x, x_or_zero};
use crate::regs::{SP, X30};
use crate::reloc;

/// An instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are the manual's; the rows below say the rest")]
pub enum Faulty {
    BtiJ,
    Pacibsp,
    Autibsp,
    BGe {
        to: Local,
    },
    StrW {
        src: Reg,
        at: Disp,
    },
    AddRegs {
        dst: Reg,
        src: Reg,
        add: Reg,
    },
    /// The upper half becomes 0.
    MovWsp,
    MsrFpcr,
    /// What is above 128 bits becomes 0.
    MovVector,
    Wrffr,
    SmstartSm,
    MsrFpmr,
    Gcspopm,
    /// The address of the instruction behind the next one. No effect says that: it is said to be that behind this one.
    AdrLink,
}

// One row, one instruction: kept in columns, so rustfmt stays out.
#[rustfmt::skip]
codegen::rows! { Faulty, w names out target;
    BtiJ => w.write_str("hint\t#36"),
        { dynasm!(out ; .arch aarch64 ; hint 36) }, Effects::PLAIN;
    Pacibsp => w.write_str("hint\t#27"),
        { dynasm!(out ; .arch aarch64 ; hint 27) }, Effects::action(Action::Sign { reg: X30 });
    Autibsp => w.write_str("hint\t#31"),
        { dynasm!(out ; .arch aarch64 ; hint 31) }, Effects::action(Action::Authenticate { reg: X30 });
    BGe { to } => write!(w, "b.ge\t{}", names.local(to)),
        { out.push_u32(B_GE); out.fixup(4, reloc::CONDBR19, Ref::Local(to), 0) }, Effects::flow(Flow::Branch(to)).and(Action::BranchIfSigned);
    StrW { src, at } => if src == XZR { write!(w, "str\twzr, [sp, #{}]", names.disp(at)) } else { write!(w, "str\tw{}, [sp, #{}]", src.0, names.disp(at)) },
        { let (r, d) = (x_or_zero(src)?, scaled(at.value, 4, 16380)?); dynasm!(out ; .arch aarch64 ; str W(r), [sp, d]) },
        Effects::store(src, at.value).and(Action::StoreHalf);
    AddRegs { dst, src, add } => write!(w, "add\t{}, {}, {}", name(dst), name(src), name(add)),
        { let (d, a, b) = (x(dst)?, x(src)?, x(add)?); dynasm!(out ; .arch aarch64 ; add X(d), X(a), X(b)) },
        Effects::action(Action::AddRegs { dst, src, add });
    MovWsp => w.write_str("mov\twsp, wsp"),
        { out.push_u32(MOV_WSP_WSP) },
        Effects::sp(SpEffect::Realign).and(Action::LowBits { dst: SP, src: SP, bits: 32 });
    MsrFpcr => w.write_str("msr\tfpcr, xzr"),
        { out.push_u32(MSR_FPCR_XZR) }, Effects::action(Action::Control);
    MovVector => w.write_str("mov\tv31.16b, v31.16b"),
        { dynasm!(out ; .arch aarch64 ; mov v31.b16, v31.b16) }, Effects::action(Action::Control);
    Wrffr => w.write_str("wrffr\tp0.b"),
        { out.push_u32(WRFFR_P0) }, Effects::action(Action::Control);
    SmstartSm => w.write_str("smstart\tsm"),
        { out.push_u32(SMSTART_SM) }, Effects::action(Action::Control);
    MsrFpmr => w.write_str("msr\ts3_3_c4_c4_2, xzr"),
        { out.push_u32(MSR_FPMR_XZR) }, Effects::action(Action::Control);
    Gcspopm => w.write_str("sysl\txzr, #3, c7, c7, #1"),
        { out.push_u32(GCSPOPM_XZR) }, Effects::action(Action::Control);
    AdrLink => w.write_str("adr\tx30, . + 8"),
        { dynasm!(out ; .arch aarch64 ; adr x30, 8) }, Effects::action(Action::LinkNext { dst: X30 });
}

/// B.GE, without its distance.
const B_GE: u32 = 0x5400_000a;

/// MSR (register) of FPCR and xzr.
const MSR_FPCR_XZR: u32 = 0xd51b_441f;

/// WRFFR (Arm ARM, C8.2), MSR (immediate) of SVCRSM and 1, which SMSTART SM stands for (C6.2).
const WRFFR_P0: u32 = 0x2528_9000;
const SMSTART_SM: u32 = 0xd503_437f;

/// MSR (register) of FPMR, the mode of FP8 arithmetic, and xzr; SYSL, which GCSPOPM stands for (Arm ARM, C6.2).
const MSR_FPMR_XZR: u32 = 0xd51b_445f;
const GCSPOPM_XZR: u32 = 0xd52b_773f;

/// ADD (immediate), which MOV to or from SP stands for (Arm ARM, C6.2).
const MOV_WSP_WSP: u32 = 0x1100_03ff;
