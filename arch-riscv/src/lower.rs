//! Step to instructions: one arm per step.

use codegen::arch::facts::NumberOf;
use codegen::arch::harden::ReturnGuard;
use codegen::ask::frame::Content;
use codegen::ask::spec::{Kind, Regs};
use codegen::listing::isa::Lower;
use codegen::listing::{Line, Lowering};
use codegen::words::abi::Reg;
use codegen::words::error::{Error, Result};
use codegen::words::step::{Callee, Disp, ExitPath, Local, Step, Sym, Value};

use crate::Riscv64;
use crate::abi::{ABI, DIRECT};
use crate::insn::{Insn, parts};
use crate::option::Rvc;
use crate::regs::*;
use crate::{record, rethook, shadow};

/// The registers in which pc and parent_ip arrive and leave.
const PC: Reg = T0;
const PARENT: Reg = RA;
/// SP of the site on its way to memory. A full save stores it before.
const TEMP: Reg = T1;
/// The parent's address: neither link register, so that the return-address stack is left alone, and x7, for which
/// Zicfilp wants no landing pad.
const PARENT_JUMP: Reg = T2;

impl Lower for Riscv64 {
    type Insn = Insn;

    fn lower(step: Step, cx: &mut Lowering<Insn>) -> Result<()> {
        if cx.spec.kind == Kind::Rethook && rethook::lower(step, cx)? {
            return Ok(());
        }
        match step {
            Step::Block(..) | Step::KernelLabel(_) | Step::Path(_) | Step::Mark(_) | Step::Refused(_) => {}
            // Every register has its slot.
            Step::SaveState | Step::RestoreState => {}
            Step::Record(step) => record::lower(step, cx)?,
            Step::BranchIfNoRoomToReturn | Step::PushReturn | Step::FindReturn => shadow::lower(step, cx)?,
            Step::PopReturn | Step::PassOver => shadow::lower(step, cx)?,
            Step::LoadOp => load_op(DIRECT, cx)?,
            Step::BranchIfEarlyDirect => {
                let at = cx.number(NumberOf::OpDirectCall)?;
                cx.noted(Insn::LdReg { dst: DIRECT, base: DIRECT, at }, "op->direct_call");
                cx.insn(Insn::Bnez { reg: DIRECT, to: Local::Path(ExitPath::EarlyDirect) });
            }
            Step::LandingPad => cx.noted(Insn::Lpad, "lpad 0"),
            Step::ExceptionPad | Step::AllocReturn | Step::PushFlags | Step::PopFlags => {
                return Err(cx.unsupported(step));
            }
            Step::GuardReturn | Step::CheckReturn => guard(step, cx)?,
            Step::Authenticate => return Err(cx.unsupported(step)),
            Step::MarkRegs | Step::Realign | Step::Unalign | Step::BranchIfJump => return Err(cx.unsupported(step)),
            Step::LoadBody => load_body(cx),
            Step::Link(n) => record(n as usize, cx),
            Step::Alloc => {
                alloc(cx);
                cx.depth += cx.frame.size;
            }
            Step::Save => save(cx),
            Step::Arg(n, value) => argument(n as usize, value, cx)?,
            Step::StackArgs => {
                // They lie above the frame, and are wanted at its bottom.
                for word in 0..cx.spec.kind.live().map_or(0, |live| i32::from(live.stack)) {
                    cx.insn(Insn::Ld { dst: TEMP, at: cx.frame_size(8 * word) });
                    cx.insn(Insn::Sd { src: TEMP, at: Disp::number(8 * word) });
                }
            }
            Step::Call(callee) => call(callee, cx)?,
            Step::TakeResult if cx.spec.kind.is_shadow() => {
                cx.noted(Insn::Mv { dst: RA, src: A0 }, "where the function returns to");
            }
            Step::TakeResult => {
                cx.noted(Insn::Mv { dst: PARENT_JUMP, src: A0 }, "where the function returns to");
                cx.noted(Insn::Mv { dst: RA, src: A0 }, "as after an ordinary return");
            }
            Step::SaveResults => cx.results(|src, at| Insn::Sd { src, at }, |src, at| Insn::Fsd { src, at }),
            Step::RestoreResults => cx.results(|dst, at| Insn::Ld { dst, at }, |dst, at| Insn::Fld { dst, at }),
            Step::SaveDecision | Step::ClearResult | Step::Meta(_) | Step::Cookie(_) => of_program(step, cx)?,
            Step::SaveCounted | Step::RestoreCounted => of_program(step, cx)?,
            Step::Detach | Step::BranchIfResult | Step::Gap | Step::KeepStart => of_program(step, cx)?,
            Step::BranchIfRefused(_) | Step::LoadDecision | Step::RestoreOwn => of_program(step, cx)?,
            Step::RestoreSite(way) if !cx.frame.records.is_empty() => {
                if way == ExitPath::Function {
                    cx.noted(Insn::Ld { dst: PC, at: cx.record(1, 8) }, "pc");
                }
                cx.noted(Insn::Ld { dst: PARENT, at: cx.record(0, 8) }, returned_to(0, cx).1);
                cx.insn(Insn::Ld { dst: S0, at: cx.record(0, 0) });
            }
            Step::RestoreSite(_) => {
                load(Content::Pc, PC, "pc", cx);
                load(Content::ParentIp, PARENT, "parent_ip", cx);
            }
            Step::LoadDirect => load(Content::Direct, DIRECT, "direct trampoline, 0 = none", cx),
            Step::Restore => restore(cx),
            Step::BranchIfDirect => cx.insn(Insn::Bnez { reg: DIRECT, to: Local::Path(ExitPath::Direct) }),
            Step::AllocWithReturn => alloc(cx),
            Step::Free(_) | Step::FreeWithReturn => cx.insn(Insn::Addi { dst: SP, src: SP, imm: cx.frame_size(0) }),
            Step::Leave(way) => leave(way, cx)?,
        }
        Ok(())
    }
}

/// The guard of the return address.
fn guard(step: Step, cx: &mut Lowering<Insn>) -> Result<()> {
    let by = |by| Insn::Addi { dst: GP, src: GP, imm: Disp::number(by) };
    match (step, cx.target.guards(cx.spec.kind)) {
        (Step::GuardReturn, Some(ReturnGuard::Pushed)) => cx.noted(Insn::SspushRa, "sspush ra"),
        (Step::CheckReturn, Some(ReturnGuard::Pushed)) => cx.noted(Insn::SspopchkRa, "sspopchk ra"),
        // In this order: a signal's handler uses what lies behind the pointer.
        (Step::GuardReturn, Some(ReturnGuard::Scs)) => {
            cx.insn(by(8));
            cx.noted(Insn::SdScs { src: RA }, "the return address, to the shadow call stack");
        }
        (Step::CheckReturn, Some(ReturnGuard::Scs)) => {
            cx.noted(Insn::LdScs { dst: RA }, "what the shadow call stack has");
            cx.insn(by(-8));
        }
        _ => return Err(cx.unsupported(step)),
    }
    Ok(())
}

/// The register with the return address of a frame record, and what that is called.
fn returned_to(n: usize, cx: &Lowering<Insn>) -> (Reg, &'static str) {
    match cx.frame.records[n].ret {
        Content::ParentIp => (PARENT, "parent_ip"),
        _ if cx.spec.kind.is_in_the_middle() => (RA, "pc"),
        _ => (PC, "pc"),
    }
}

fn record(n: usize, cx: &mut Lowering<Insn>) {
    let (src, note) = returned_to(n, cx);
    cx.noted(Insn::Sd { src, at: cx.record(n, 8) }, note);
    cx.insn(Insn::Sd { src: S0, at: cx.record(n, 0) });
    cx.insn(Insn::Addi { dst: S0, src: SP, imm: cx.record(n, 16) });
}

fn alloc(cx: &mut Lowering<Insn>) {
    let imm = Disp { value: -cx.frame.size, ..cx.frame_size(0) };
    cx.insn(Insn::Addi { dst: SP, src: SP, imm });
}

/// Load `op` from before the function. Functions are as aligned as that word, and begin with their sites.
fn load_op(dst: Reg, cx: &mut Lowering<Insn>) -> Result<()> {
    let convention = cx.target.convention;
    let at = convention.site.literal().and_then(|at| i32::try_from(at).ok()).ok_or_else(|| Error::Absent {
        profile: convention.profile.to_owned(),
        what: format!("`op-literal` for {}", convention.facts.name),
        valid: format!("one with it in [arch.{}.site]", convention.facts.name),
    })?;
    cx.noted(Insn::LdReg { dst, base: PC, at: Disp::number(at) }, "op, from before the function");
    Ok(())
}

fn call(callee: Callee, cx: &mut Lowering<Insn>) -> Result<()> {
    match callee {
        Callee::OpFunc => {
            let at = cx.number(NumberOf::OpFunc)?;
            let mut op = TEMP;
            match cx.target.convention.callback.position(Value::Op) {
                Some(n) => op = ABI.args[n],
                None => load_op(op, cx)?,
            }
            cx.noted(Insn::LdReg { dst: TEMP, base: op, at }, "op->func");
            cx.noted(Insn::Jalr { reg: TEMP }, "func");
        }
        Callee::Variable => {
            let sym = cx.callee(callee);
            cx.local(Local::CalleeAnchor);
            cx.insn(Insn::AuipcHi { dst: TEMP, sym });
            cx.noted(Insn::LdLo { dst: TEMP, anchor: Local::CalleeAnchor }, "func");
            cx.insn(Insn::Jalr { reg: TEMP });
        }
        Callee::Patchable => {
            let sym = cx.callee(callee);
            cx.noted(Insn::Call { sym }, "func: these 8 bytes are patched at run time");
        }
        _ => {
            let sym = cx.callee(callee);
            cx.insn(Insn::Call { sym });
        }
    }
    Ok(())
}

/// From pc to ip, and what that is.
fn ip(cx: &Lowering<Insn>) -> (Disp, &'static str) {
    let offset = cx.ip_offset();
    let note = match offset == cx.target.resume {
        _ if !cx.spec.brackets.is_empty() => "ip: the function",
        true => "ip: first word of the site",
        false => "ip: second word of the site",
    };
    (Disp::number(-offset), note)
}

fn restore(cx: &mut Lowering<Insn>) {
    for i in 0..cx.frame.fields.len() {
        let field = cx.frame.fields[i];
        match (field.content, field.reloaded()) {
            (Content::Reg(dst), true) => cx.insn(Insn::Ld { dst, at: cx.field(i) }),
            (Content::Vector(dst), _) => cx.insn(Insn::Fld { dst, at: cx.field(i) }),
            _ => {}
        }
    }
}

/// # Errors
/// A jump into a function would have to reach a landing pad: none of the registers whose jumps need none is free.
fn leave(way: ExitPath, cx: &mut Lowering<Insn>) -> Result<()> {
    if let (ExitPath::Function, Kind::Record(_)) = (way, cx.spec.kind) {
        if cx.target.harden.landing.is_some() {
            return Err(Error::Absent {
                profile: cx.target.convention.profile.to_owned(),
                what: "way back into a function behind its landing pad, which Zicfilp lets pass and `record` needs"
                    .to_owned(),
                valid: "lpad=off, or a form that calls the function: --events both with a frame".to_owned(),
            });
        }
        let sym = cx.body();
        cx.noted(Insn::Tail { sym }, "into the traced function");
        return Ok(());
    }
    let (reg, note) = match way {
        ExitPath::Function => (PC, "into the traced function"),
        ExitPath::Direct | ExitPath::DirectJump | ExitPath::EarlyDirect => {
            (DIRECT, "to the direct trampoline; it returns through t0")
        }
        ExitPath::Parent if cx.spec.kind.is_shadow() || cx.spec.kind == Kind::Rethook => (RA, "to the parent"),
        ExitPath::Parent => (PARENT_JUMP, "to the parent"),
        ExitPath::Caller | ExitPath::Skipped => (RA, ""),
    };
    cx.noted(Insn::Jr { reg }, note);
    Ok(())
}

/// Have pc at hand, where the site jumped and so left none. Nothing is done if it was loaded before.
fn load_body(cx: &mut Lowering<Insn>) {
    if !cx.pc_loaded {
        let sym = cx.body();
        address(PC, sym, (Local::BodyAnchor, "pc"), cx);
        cx.pc_loaded = true;
    }
}

/// Have a symbol's address in a register.
fn address(dst: Reg, sym: Sym, (anchor, note): (Local, &'static str), cx: &mut Lowering<Insn>) {
    cx.local(anchor);
    cx.insn(Insn::AuipcHi { dst, sym });
    cx.noted(Insn::AddiLo { dst, anchor }, note);
}

/// A label for the address of something that functions around programs are given.
fn next_anchor(cx: &Lowering<Insn>) -> Local {
    let is_one = |line: &&Line<Insn>| matches!(line, Line::Local(Local::BracketAnchor(_)));
    Local::BracketAnchor(cx.listing.lines.iter().filter(is_one).count() as u8)
}

/// Have a constant in a register.
fn constant(value: i64, cx: &mut Lowering<Insn>) -> Reg {
    if value == 0 {
        return ZERO;
    }
    let Ok(word) = i32::try_from(value) else {
        // What is added last is a number with a sign.
        let low = (value << 52 >> 52) as i32;
        constant(value.wrapping_sub(low.into()) >> 12, cx);
        cx.insn(Insn::Slli { dst: TEMP, by: 12 });
        if low != 0 {
            cx.insn(Insn::Addi { dst: TEMP, src: TEMP, imm: Disp::number(low) });
        }
        return TEMP;
    };
    let (high, low) = parts(word);
    if high == 0 {
        cx.insn(Insn::Addi { dst: TEMP, src: ZERO, imm: Disp::number(low) });
        return TEMP;
    }
    cx.insn(Insn::Lui { dst: TEMP, imm: high });
    if low != 0 {
        cx.insn(Insn::Addiw { dst: TEMP, imm: low });
    }
    TEMP
}

/// Lower a step around the calls of programs.
fn of_program(step: Step, cx: &mut Lowering<Insn>) -> Result<()> {
    match step {
        Step::SaveCounted => {
            let (src, at) = cx.counted()?;
            cx.insn(Insn::Sd { src, at });
        }
        Step::RestoreCounted => {
            let (dst, at) = cx.counted()?;
            cx.insn(Insn::Ld { dst, at });
        }
        Step::SaveDecision => cx.insn(Insn::Sd { src: A0, at: cx.slot(Content::Result(A0))? }),
        Step::ClearResult => cx.shown_results().for_each(|(_, at)| cx.insn(Insn::Sd { src: ZERO, at })),
        Step::Meta(word) => {
            let at = cx.count()?;
            let src = meta(word, cx);
            cx.insn(Insn::Sd { src, at });
        }
        Step::Detach => cx.noted(Insn::Nop4, "nop, or a jump past the program when it is detached"),
        Step::Cookie(cookie) => {
            let src = constant(cookie, cx);
            cx.noted(Insn::Sd { src, at: cx.slot(Content::Cookie)? }, "cookie");
        }
        Step::KeepStart => cx.noted(Insn::Mv { dst: cx.start()?, src: A0 }, "start"),
        Step::BranchIfRefused(n) => cx.insn(Insn::Beqz { reg: A0, to: Local::Refused(n) }),
        Step::LoadDecision => cx.insn(Insn::Ld { dst: A0, at: cx.slot(Content::Result(A0))? }),
        Step::RestoreOwn => cx.own().for_each(|(dst, at)| cx.insn(Insn::Ld { dst, at })),
        Step::BranchIfResult => cx.insn(Insn::Bnez { reg: A0, to: Local::Path(ExitPath::Skipped) }),
        Step::Gap => {
            // Eight bytes, as AUIPC and JALR have.
            cx.noted(Insn::Nop, "a jump to the epilogue when this is retired");
            let more = if cx.target.option::<Rvc>() == Rvc::On { 3 } else { 1 };
            (0..more).for_each(|_| cx.insn(Insn::Nop));
        }
        _ => return Err(cx.unsupported(step)),
    }
    Ok(())
}

/// Have in a register what a context says of itself: 16 bits, and bit 63.
fn meta(word: i64, cx: &mut Lowering<Insn>) -> Reg {
    if word >= 0 {
        return constant(word, cx);
    }
    cx.insn(Insn::Addi { dst: TEMP, src: ZERO, imm: Disp::number(-1) });
    cx.insn(Insn::Slli { dst: TEMP, by: 63 });
    let mut rest = word as i32;
    while rest > 0 {
        let step = rest.min(2047);
        cx.insn(Insn::Addi { dst: TEMP, src: TEMP, imm: Disp::number(step) });
        rest -= step;
    }
    TEMP
}

fn save(cx: &mut Lowering<Insn>) {
    for i in 0..cx.frame.fields.len() {
        let at = cx.field(i);
        let (src, note) = match cx.frame.fields[i].content {
            Content::Reg(reg) | Content::Own(reg) => (reg, ""),
            Content::Vector(src) => {
                cx.insn(Insn::Fsd { src, at });
                continue;
            }
            Content::Pc => {
                if cx.spec.kind.jumped_to() {
                    load_body(cx);
                }
                (PC, "pc")
            }
            Content::ParentIp => (PARENT, "parent_ip"),
            Content::Direct => (ZERO, "no direct trampoline yet"),
            Content::Session(_) => (ZERO, ""),
            content @ (Content::SiteSp | Content::ExitSp) => {
                cx.insn(Insn::Addi { dst: TEMP, src: SP, imm: cx.frame_size(0) });
                (TEMP, if content == Content::SiteSp { "sp at the site" } else { "sp when the return arrived" })
            }
            Content::StackWord(n) => {
                cx.insn(Insn::Ld { dst: TEMP, at: cx.frame_size(8 * i32::from(n)) });
                (TEMP, "")
            }
            Content::Ip => {
                if cx.spec.kind.jumped_to() {
                    load_body(cx);
                }
                let (imm, note) = ip(cx);
                cx.insn(Insn::Addi { dst: TEMP, src: PC, imm });
                (TEMP, note)
            }
            Content::Const(n) => (constant(n.into(), cx), ""),
            Content::Result(_) | Content::VectorResult(_) | Content::Cookie | Content::Flags | Content::Unfilled => {
                continue;
            }
        };
        cx.noted(Insn::Sd { src, at }, note);
    }
}

fn argument(n: usize, value: Value, cx: &mut Lowering<Insn>) -> Result<()> {
    let dst = ABI.args[n];
    match value {
        Value::Ip => {
            let (imm, note) = ip(cx);
            cx.noted(Insn::Addi { dst, src: PC, imm }, note);
        }
        Value::ParentIp => cx.noted(Insn::Mv { dst, src: PARENT }, "parent_ip"),
        Value::Op if cx.target.op_from_site && cx.spec.kind == Kind::Entry(Regs::Args) => load_op(dst, cx)?,
        Value::Op => {
            let sym = cx.op()?;
            cx.local(Local::Anchor);
            cx.insn(Insn::AuipcHi { dst, sym });
            cx.noted(Insn::LdLo { dst, anchor: Local::Anchor }, "op");
        }
        Value::Fregs => cx.noted(Insn::Mv { dst, src: SP }, "fregs"),
        Value::Context => {
            cx.noted(Insn::Addi { dst, src: SP, imm: cx.context()? }, "context: the first word");
        }
        Value::Cookie => {
            let imm = cx.slot(Content::Cookie)?;
            cx.noted(Insn::Addi { dst, src: SP, imm }, "address of the cookie");
        }
        Value::Argument(i) => cx.insn(Insn::Mv { dst, src: ABI.args[i as usize] }),
        // Results are where arguments are.
        Value::Result(_) => {}
        Value::Bracket(n) | Value::BracketAgain(n) => {
            let (sym, anchor) = (cx.bracketed(n), next_anchor(cx));
            address(dst, sym, (anchor, ""), cx);
        }
        Value::Start => cx.noted(Insn::Mv { dst, src: cx.start()? }, "start"),
    }
    Ok(())
}

fn load(content: Content, dst: Reg, note: &'static str, cx: &mut Lowering<Insn>) {
    if let Some(i) = cx.frame.find(content) {
        cx.noted(Insn::Ld { dst, at: cx.field(i) }, note);
    }
}
