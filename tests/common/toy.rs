//! What both toy backends have: five instructions, but for their bytes, and trampolines for direct calls made of them.

use std::fmt;

use codegen::ask::frame::{ARG_SLOTS, Content, FrameLayout, Stores, field};
use codegen::ask::live::Live;
use codegen::effect::action::Action;
use codegen::effect::effects::{Effects, Flow, SpEffect};
use codegen::listing::Lowering;
use codegen::listing::names::Names;
use codegen::words::abi::{Abi, Reg};
use codegen::words::error::Result;
use codegen::words::step::{Disp, Step, Sym};

/// An instruction.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    AddSp(i32),
    Store(Reg, Disp),
    Load(Reg, Disp),
    Call(Sym),
    Jump(Reg),
}

impl Op {
    pub fn text(self, abi: &Abi, names: &Names, out: &mut dyn fmt::Write) -> fmt::Result {
        match self {
            Op::AddSp(by) => write!(out, "addsp\t{by}"),
            Op::Store(reg, at) => write!(out, "store\t{}, {}", abi.name(reg), names.disp(at)),
            Op::Load(reg, at) => write!(out, "load\t{}, {}", abi.name(reg), names.disp(at)),
            Op::Call(sym) => write!(out, "call\t{}", names.sym(sym)),
            Op::Jump(reg) => write!(out, "jump\t{}", abi.name(reg)),
        }
    }

    pub fn effects(self) -> Effects {
        match self {
            Op::AddSp(by) => Effects::sp(SpEffect::Move(by)),
            Op::Store(reg, at) => Effects::store(reg, at.value),
            Op::Load(reg, at) => Effects::load(reg, at.value),
            Op::Call(sym) => Effects::flow(Flow::Call).and(Action::CallSymbol { sym }),
            Op::Jump(reg) => Effects::flow(Flow::Leave).and(Action::LeaveBy { reg }),
        }
    }
}

/// The frame of a direct-call trampoline: arguments, pc, and where the traced function returns to.
pub fn frame(live: &Live, abi: &Abi) -> FrameLayout {
    let args = ARG_SLOTS.iter().zip(abi.args).filter(|(_, reg)| live.regs.contains(**reg));
    let args = args.map(|(name, &reg)| (*name, Content::Reg(reg)));
    let slots = args.chain([("PC", Content::Pc), ("LR", Content::ParentIp)]);
    let fields: Vec<_> =
        (0..).zip(slots).map(|(i, (name, held))| field(name, "", 8 * i, held, Stores::TakeEffect)).collect();
    let size = (8 * fields.len() as u32).next_multiple_of(abi.sp_align) as i32;
    FrameLayout { size, size_symbol: "FRAME", fields, ..FrameLayout::empty() }
}

/// A step, where pc and where the traced function returns to come in registers.
pub fn lower<I: From<Op>>(step: Step, cx: &mut Lowering<I>, pc: Reg, parent_ip: Reg) -> Result<()> {
    let source = |content| match content {
        Content::Reg(reg) => Some(reg),
        Content::Pc => Some(pc),
        Content::ParentIp => Some(parent_ip),
        _ => None,
    };
    match step {
        Step::Alloc => cx.insn(Op::AddSp(-cx.frame.size).into()),
        Step::Free(_) => cx.insn(Op::AddSp(cx.frame.size).into()),
        Step::Save | Step::Restore => {
            for i in 0..cx.frame.fields.len() {
                if let Some(reg) = source(cx.frame.fields[i].content) {
                    let at = cx.field(i);
                    cx.insn(if step == Step::Save { Op::Store(reg, at) } else { Op::Load(reg, at) }.into());
                }
            }
        }
        Step::Call(_) => {
            let sym = cx.symbol(cx.spec.callee);
            cx.noted(Op::Call(sym).into(), "the callback");
        }
        Step::Leave(_) => cx.insn(Op::Jump(pc).into()),
        Step::RestoreSite(_) => {}
        _ => return Err(cx.unsupported(step)),
    }
    Ok(())
}
