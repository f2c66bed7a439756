//! Step to instructions: one arm per step.

use codegen::arch::facts::NumberOf;
use codegen::arch::harden::ReturnGuard;
use codegen::ask::frame::Content;
use codegen::ask::kind::Gives;
use codegen::ask::spec::Kind;
use codegen::listing::Lowering;
use codegen::listing::isa::Lower;
use codegen::words::abi::Reg;
use codegen::words::error::Result;
use codegen::words::step::{Callee, Disp, ExitPath, Local, Name, Step, Sym, Value};

use crate::Arm64;
use crate::abi::{ABI, DIRECT};
use crate::insn::{Insn, XZR};
use crate::regs::*;
use crate::{record, rethook, shadow};

/// The registers in which pc and parent_ip arrive when the site called.
const PC: Reg = X30;
const PARENT: Reg = X9;
/// The registers with pc and parent_ip when the traced function goes on.
const RESUME: Reg = X9;
const LINK: Reg = X30;
/// SP of the site on its way to memory.
const TEMP: Reg = X10;
/// Free beside it.
const TEMP2: Reg = X11;
/// parent_ip as handlers see it, where x30 is signed.
const PLAIN: Reg = X12;
/// The op, once loaded from the site's literal.
const OP: Reg = X11;

impl Lower for Arm64 {
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
            Step::LandingPad | Step::ExceptionPad => harden(step, cx)?,
            Step::Authenticate | Step::GuardReturn | Step::CheckReturn => harden(step, cx)?,
            Step::LoadOp => {
                cx.insn(Insn::AlignDown { dst: OP, src: PC });
                cx.noted(Insn::LdurReg { dst: OP, base: OP, at: -16 }, "op, from before the function");
            }
            Step::BranchIfEarlyDirect => {
                let at = cx.number(NumberOf::OpDirectCall)?;
                cx.noted(Insn::LdrReg { dst: DIRECT, base: OP, at }, "op->direct_call");
                cx.insn(Insn::Cbnz { reg: DIRECT, to: Local::Path(ExitPath::EarlyDirect) });
            }
            Step::PushFlags | Step::PopFlags | Step::MarkRegs | Step::Realign | Step::Unalign | Step::BranchIfJump => {
                return Err(cx.unsupported(step));
            }
            Step::Alloc => {
                cx.insn(Insn::SubSp { imm: cx.frame_size(0) });
                cx.depth += cx.frame.size;
            }
            Step::LoadBody => load_body(cx),
            Step::Link(n) => record(n as usize, cx),
            Step::Save => save(cx),
            Step::Arg(n, value) => argument(n as usize, value, cx)?,
            Step::StackArgs => stack_args(cx),
            Step::Call(Callee::Variable) | Step::AllocReturn => return Err(cx.unsupported(step)),
            Step::Call(callee) => call(callee, cx)?,
            Step::TakeResult => cx.noted(Insn::Mov { dst: LINK, src: X0 }, "where the function returns to"),
            Step::RestoreSite(way) => restore_site(way, cx),
            Step::Restore => {
                pairs(vector, cx, |a, b, at| Insn::LdpQ { a, b, at }, |dst, at| Insn::LdrQ { dst, at });
                let written = |field: &codegen::ask::frame::Field| match field.content {
                    Content::Reg(reg) if field.reloaded() && !field.in_record => Some(reg),
                    _ => None,
                };
                pairs(written, cx, |a, b, at| Insn::Ldp { a, b, at }, |dst, at| Insn::Ldr { dst, at });
            }
            Step::SaveResults => {
                pairs(vector_result, cx, |a, b, at| Insn::StpQ { a, b, at }, |src, at| Insn::StrQ { src, at });
                pairs(result, cx, |a, b, at| Insn::Stp { a, b, at }, |src, at| Insn::Str { src, at });
            }
            Step::RestoreResults => {
                pairs(vector_result, cx, |a, b, at| Insn::LdpQ { a, b, at }, |dst, at| Insn::LdrQ { dst, at });
                pairs(result, cx, |a, b, at| Insn::Ldp { a, b, at }, |dst, at| Insn::Ldr { dst, at });
            }
            Step::SaveCounted => {
                let (src, at) = cx.counted()?;
                cx.insn(Insn::Str { src, at });
            }
            Step::RestoreCounted => {
                let (dst, at) = cx.counted()?;
                cx.insn(Insn::Ldr { dst, at });
            }
            Step::SaveDecision => cx.insn(Insn::Str { src: X0, at: cx.slot(Content::Result(X0))? }),
            Step::ClearResult => cx.shown_results().for_each(|(_, at)| cx.insn(Insn::Str { src: XZR, at })),
            Step::Meta(word) => meta(word, cx)?,
            Step::Detach => cx.noted(Insn::Nop, "a branch past the program when it is detached"),
            Step::Cookie(cookie) => constant(cookie, cx.slot(Content::Cookie)?, "cookie", cx),
            Step::KeepStart | Step::BranchIfRefused(_) => around_program(step, cx)?,
            Step::LoadDecision | Step::RestoreOwn => around_program(step, cx)?,
            Step::BranchIfResult => cx.insn(Insn::Cbnz { reg: X0, to: Local::Path(ExitPath::Skipped) }),
            Step::Gap => cx.noted(Insn::Nop, "a branch to the epilogue when this is retired"),
            Step::LoadDirect => load(Content::Direct, DIRECT, "direct trampoline, 0 = none", cx),
            Step::BranchIfDirect => cx.insn(Insn::Cbnz { reg: DIRECT, to: Local::Path(ExitPath::Direct) }),
            Step::AllocWithReturn => cx.insn(Insn::SubSp { imm: cx.frame_size(0) }),
            Step::Free(_) | Step::FreeWithReturn => cx.insn(Insn::AddSp { dst: SP, imm: cx.frame_size(0) }),
            Step::Leave(way) => leave(way, cx),
        }
        Ok(())
    }
}

/// Lower a step around the functions that are called around programs.
fn around_program(step: Step, cx: &mut Lowering<Insn>) -> Result<()> {
    match step {
        Step::KeepStart => cx.noted(Insn::Mov { dst: cx.start()?, src: X0 }, "start"),
        Step::BranchIfRefused(n) => cx.insn(Insn::Cbz { reg: X0, to: Local::Refused(n) }),
        Step::LoadDecision => cx.insn(Insn::Ldr { dst: X0, at: cx.slot(Content::Result(X0))? }),
        Step::RestoreOwn => pairs(own, cx, |a, b, at| Insn::Ldp { a, b, at }, |dst, at| Insn::Ldr { dst, at }),
        _ => return Err(cx.unsupported(step)),
    }
    Ok(())
}

/// Landing pads, and signatures of return addresses.
fn harden(step: Step, cx: &mut Lowering<Insn>) -> Result<()> {
    match step {
        // PACIASP is a landing pad for the same branches.
        Step::LandingPad if signs_first(cx) => {}
        Step::LandingPad => cx.noted(Insn::BtiC, "BTI c"),
        Step::ExceptionPad => cx.noted(Insn::BtiJ, "BTI j"),
        Step::Authenticate => cx.noted(Insn::Autiasp, "AUTIASP: parent_ip, which PACIASP has signed"),
        Step::GuardReturn if !signs(cx) => {
            cx.noted(Insn::StrScs { src: LINK }, "the return address, to the shadow call stack");
        }
        Step::CheckReturn if !signs(cx) => cx.noted(Insn::LdrScs { dst: LINK }, "what the shadow call stack has"),
        Step::GuardReturn => {
            if shows_parent(cx) {
                cx.noted(Insn::Mov { dst: PLAIN, src: LINK }, "parent_ip, for the handlers");
            }
            cx.noted(Insn::Paciasp, if signs_first(cx) { "PACIASP, a landing pad too" } else { "PACIASP" });
        }
        Step::CheckReturn => cx.noted(Insn::Autiasp, "AUTIASP"),
        _ => return Err(cx.unsupported(step)),
    }
    Ok(())
}

/// The word that describes the function to its programs.
fn meta(word: i64, cx: &mut Lowering<Insn>) -> Result<()> {
    let at = cx.count()?;
    number(TEMP, word, cx);
    cx.insn(Insn::Str { src: TEMP, at });
    Ok(())
}

/// The register that has pc: where the site jumped, none has, so it is put where nothing is.
fn pc(cx: &Lowering<Insn>) -> Reg {
    if cx.spec.kind.jumped_to() { PARENT } else { PC }
}

/// The register that has parent_ip.
fn parent(cx: &Lowering<Insn>) -> Reg {
    if signs(cx) && shows_parent(cx) { PLAIN } else { stored_parent(cx) }
}

/// Is its return address signed while it is in the frame?
fn signs(cx: &Lowering<Insn>) -> bool {
    cx.target.guards(cx.spec.kind) == Some(ReturnGuard::Signed)
}

/// The register with the address that the trampoline stores in order to return there: parent_ip, or what signing has made of it.
fn stored_parent(cx: &Lowering<Insn>) -> Reg {
    if cx.spec.kind.jumped_to() { LINK } else { PARENT }
}

/// Is signing the first that it does?
fn signs_first(cx: &Lowering<Insn>) -> bool {
    signs(cx) && !cx.spec.body.signed && !shows_parent(cx)
}

/// Do handlers see parent_ip, as an argument or in the frame?
fn shows_parent(cx: &Lowering<Insn>) -> bool {
    let in_frame = cx.frame.fields.iter().any(|field| field.content == Content::ParentIp && !field.in_record);
    let gives_frame = cx.spec.kind.traits().gives == Gives::Frame;
    in_frame || gives_frame && cx.target.convention.callback.position(Value::ParentIp).is_some()
}

fn load_body(cx: &mut Lowering<Insn>) {
    if !cx.pc_loaded {
        let (dst, sym) = (pc(cx), cx.body());
        address(dst, sym, "pc", cx);
        cx.pc_loaded = true;
    }
}

/// Have a symbol's address at hand.
fn address(dst: Reg, sym: Sym, note: &'static str, cx: &mut Lowering<Insn>) {
    cx.insn(Insn::Adrp { dst, sym });
    cx.noted(Insn::AddLo12 { dst, base: dst, sym }, note);
}

fn result(field: &codegen::ask::frame::Field) -> Option<Reg> {
    match field.content {
        Content::Result(reg) => Some(reg),
        _ => None,
    }
}

fn record(n: usize, cx: &mut Lowering<Insn>) {
    let (ret, plain, signed) = match cx.frame.records[n].ret {
        Content::ParentIp => (stored_parent(cx), "parent_ip", "parent_ip, signed"),
        _ => (pc(cx), "pc", "pc, signed"),
    };
    let note = if signs(cx) && ret == LINK { signed } else { plain };
    cx.noted(Insn::Stp { a: X29, b: ret, at: cx.record(n, 0) }, note);
    cx.insn(Insn::AddSp { dst: X29, imm: cx.record(n, 0) });
}

/// The register in a slot that the trampoline uses for itself.
fn own(field: &codegen::ask::frame::Field) -> Option<Reg> {
    if let Content::Own(reg) = field.content { Some(reg) } else { None }
}

/// The vector register in a slot.
fn vector(field: &codegen::ask::frame::Field) -> Option<u8> {
    if let Content::Vector(v) = field.content { Some(v) } else { None }
}

fn vector_result(field: &codegen::ask::frame::Field) -> Option<u8> {
    if let Content::VectorResult(v) = field.content { Some(v) } else { None }
}

/// Store a constant.
fn constant(value: i64, at: Disp, note: &'static str, cx: &mut Lowering<Insn>) {
    let mut src = XZR;
    if value != 0 {
        src = TEMP;
        number(src, value, cx);
    }
    cx.noted(Insn::Str { src, at }, note);
}

/// Have a constant at hand.
fn number(dst: Reg, value: i64, cx: &mut Lowering<Insn>) {
    cx.insn(Insn::Movz { dst, imm: value as u16 });
    for shift in [16, 32, 48] {
        let imm = (value >> shift) as u16;
        if imm != 0 {
            cx.insn(Insn::Movk { dst, imm, shift });
        }
    }
}

/// They lie above the frame, and are wanted at its bottom.
fn stack_args(cx: &mut Lowering<Insn>) {
    let words = cx.spec.kind.live().map_or(0, |live| i32::from(live.stack));
    let mut word = 0;
    while word < words {
        let (from, to) = (cx.frame_size(8 * word), Disp::number(8 * word));
        if word + 1 < words && from.value <= 504 {
            cx.insn(Insn::Ldp { a: TEMP, b: TEMP2, at: from });
            cx.insn(Insn::Stp { a: TEMP, b: TEMP2, at: to });
            word += 2;
        } else {
            cx.insn(Insn::Ldr { dst: TEMP, at: from });
            cx.insn(Insn::Str { src: TEMP, at: to });
            word += 1;
        }
    }
}

fn save(cx: &mut Lowering<Insn>) {
    pairs(vector, cx, |a, b, at| Insn::StpQ { a, b, at }, |src, at| Insn::StrQ { src, at });
    let exit_sp = cx.frame.find(Content::ExitSp);
    let site_sp = cx.frame.find(Content::SiteSp).or(exit_sp);
    let sp = if exit_sp.is_some() { "sp when the return arrived" } else { "sp at the site" };
    // A full save wants TEMP's own value in memory before SP's passes through it.
    let temp_is_free = cx.frame.find(Content::Reg(TEMP)).is_none();
    if site_sp.is_some() && temp_is_free {
        cx.noted(Insn::AddSp { dst: TEMP, imm: cx.frame_size(0) }, sp);
    }
    let tells_pc =
        |f: &codegen::ask::frame::Field| f.content == Content::Ip || (f.content == Content::Pc && !f.in_record);
    if cx.spec.kind.jumped_to() && cx.frame.fields.iter().any(tells_pc) {
        load_body(cx);
    }
    let (pc, parent) = (pc(cx), parent(cx));
    let saved = |field: &codegen::ask::frame::Field| {
        if field.in_record {
            return None;
        }
        match field.content {
            Content::Reg(reg) | Content::Own(reg) => Some(reg),
            Content::Pc => Some(pc),
            Content::ParentIp => Some(parent),
            Content::SiteSp | Content::ExitSp => temp_is_free.then_some(TEMP),
            Content::Direct | Content::Session(_) => Some(XZR),
            Content::Result(_)
            | Content::Vector(_)
            | Content::VectorResult(_)
            | Content::StackWord(_)
            | Content::Cookie
            | Content::Ip
            | Content::Const(_)
            | Content::Flags
            | Content::Unfilled => None,
        }
    };
    pairs(saved, cx, |a, b, at| Insn::Stp { a, b, at }, |src, at| Insn::Str { src, at });
    if let (Some(i), false) = (site_sp, temp_is_free) {
        cx.noted(Insn::AddSp { dst: TEMP, imm: cx.frame_size(0) }, sp);
        cx.insn(Insn::Str { src: TEMP, at: cx.field(i) });
    }
    for i in 0..cx.frame.fields.len() {
        let at = cx.field(i);
        match cx.frame.fields[i].content {
            Content::StackWord(n) => {
                cx.insn(Insn::Ldr { dst: TEMP, at: cx.frame_size(8 * i32::from(n)) });
                cx.insn(Insn::Str { src: TEMP, at });
            }
            Content::Ip => {
                cx.insn(Insn::Sub { dst: TEMP, src: pc, imm: ip_offset(cx) });
                let note = if cx.spec.brackets.is_empty() { "ip: the site's BL" } else { "ip: the function" };
                cx.noted(Insn::Str { src: TEMP, at }, note);
            }
            Content::Const(n) => constant(n.into(), at, "", cx),
            _ => {}
        }
    }
}

/// Emit `two` for neighbouring slots and `one` for the others.
fn pairs<R: Copy>(
    register: impl Fn(&codegen::ask::frame::Field) -> Option<R>,
    cx: &mut Lowering<Insn>,
    two: impl Fn(R, R, Disp) -> Insn,
    one: impl Fn(R, Disp) -> Insn,
) {
    let mut i = 0;
    while let Some(field) = cx.frame.fields.get(i) {
        // Slots without a hole between them, and as large as what is in them.
        let bytes = if vector(field).or(vector_result(field)).is_some() { 16 } else { 8 };
        let next = cx.frame.fields.get(i + 1).filter(|n| n.offset == field.offset + bytes);
        match (register(field), next.and_then(&register)) {
            (Some(a), Some(b)) if field.offset <= 504 => {
                cx.insn(two(a, b, cx.field(i)));
                i += 1;
            }
            (Some(a), _) => cx.insn(one(a, cx.field(i))),
            (None, _) => {}
        }
        i += 1;
    }
}

/// pc minus ip: a few bytes ([`Lowering::ip_offset`] bounds it).
fn ip_offset(cx: &Lowering<Insn>) -> u32 {
    cx.ip_offset() as u32
}

/// The register that keeps what the functions around a program are given, from the first to the second.
fn kept_argument(n: u8, cx: &Lowering<Insn>) -> Option<Reg> {
    cx.own().next().map(|(reg, _)| reg).filter(|_| usize::from(n) < cx.spec.programs.len())
}

fn argument(n: usize, value: Value, cx: &mut Lowering<Insn>) -> Result<()> {
    let dst = ABI.args[n];
    match value {
        Value::Ip => {
            cx.noted(Insn::Sub { dst, src: pc(cx), imm: ip_offset(cx) }, "ip: the site's BL");
        }
        Value::ParentIp => cx.noted(Insn::Mov { dst, src: parent(cx) }, "parent_ip"),
        Value::Op if cx.target.op_from_site && cx.spec.kind == Kind::Entry(codegen::ask::spec::Regs::Args) => {
            cx.noted(Insn::Mov { dst, src: OP }, "op");
        }
        Value::Op => {
            let sym = cx.op()?;
            cx.insn(Insn::Adrp { dst, sym });
            cx.noted(Insn::LdrLo12 { dst, base: dst, sym }, "op");
        }
        Value::Fregs => cx.noted(Insn::MovFromSp { dst }, "fregs"),
        Value::Context => cx.noted(Insn::AddSp { dst, imm: cx.context()? }, "context: the first word"),
        Value::Cookie => cx.noted(Insn::AddSp { dst, imm: cx.slot(Content::Cookie)? }, "address of the cookie"),
        Value::Argument(i) => cx.insn(Insn::Mov { dst, src: ABI.args[i as usize] }),
        // Results are where arguments are.
        Value::Result(_) => {}
        Value::Bracket(n) => {
            let kept = kept_argument(n, cx);
            let sym = cx.bracketed(n);
            address(kept.unwrap_or(dst), sym, "", cx);
            kept.into_iter().for_each(|src| cx.insn(Insn::Mov { dst, src }));
        }
        Value::BracketAgain(n) => kept_argument(n, cx).into_iter().for_each(|src| cx.insn(Insn::Mov { dst, src })),
        Value::Start => cx.noted(Insn::Mov { dst, src: cx.start()? }, "start"),
    }
    Ok(())
}

fn call(callee: Callee, cx: &mut Lowering<Insn>) -> Result<()> {
    if callee == Callee::OpFunc {
        let at = cx.number(NumberOf::OpFunc)?;
        cx.noted(Insn::LdrReg { dst: X4, base: X2, at }, "op->func");
        cx.noted(Insn::Blr { reg: X4 }, "func");
        return Ok(());
    }
    let sym = cx.callee(callee);
    let note = if callee == Callee::Patchable { "func: this word is patched at run time" } else { "" };
    cx.noted(Insn::Bl { sym }, note);
    Ok(())
}

fn load(content: Content, dst: Reg, note: &'static str, cx: &mut Lowering<Insn>) {
    if let Some(i) = cx.frame.find(content) {
        cx.noted(Insn::Ldr { dst, at: cx.field(i) }, note);
    }
}

fn restore_site(way: ExitPath, cx: &mut Lowering<Insn>) {
    if way == ExitPath::Parent {
        let note = if signs(cx) { "parent_ip, signed" } else { "parent_ip" };
        cx.noted(Insn::Ldp { a: X29, b: LINK, at: cx.record(0, 0) }, note);
        return;
    }
    if way == ExitPath::Direct {
        load(Content::ParentIp, PARENT, "parent_ip, as func left it", cx);
        load(Content::Pc, PC, "pc, as func left it", cx);
        return;
    }
    let slot = |content| cx.frame.find(content).map(|i| cx.field(i));
    if let (Some(lr), Some(pc), true) = (slot(Content::ParentIp), slot(Content::Pc), cx.frame.records.is_empty())
        && lr.value + 8 == pc.value
    {
        cx.noted(Insn::Ldp { a: LINK, b: RESUME, at: lr }, "parent_ip and pc");
        return;
    }
    load(Content::Pc, RESUME, "pc", cx);
    match cx.frame.records.first() {
        // {x29, parent_ip} lie side by side in the caller's record.
        Some(_) if cx.frame.fields.iter().any(|f| f.in_record) => {
            let at = Disp { value: cx.frame.records[0].offset, name: Name::Record(0) };
            cx.noted(Insn::Ldp { a: X29, b: LINK, at }, "parent_ip");
        }
        _ => load(Content::ParentIp, LINK, "parent_ip", cx),
    }
}

fn leave(way: ExitPath, cx: &mut Lowering<Insn>) {
    match (way, cx.spec.kind) {
        (ExitPath::Function, Kind::StubDirect) => {
            cx.noted(Insn::Mov { dst: TEMP, src: PC }, "pc");
            cx.noted(Insn::Mov { dst: LINK, src: PARENT }, "parent_ip");
            cx.insn(Insn::Ret { reg: TEMP });
        }
        (ExitPath::Function, Kind::Record(_)) => {
            let sym = cx.body();
            cx.noted(Insn::B { sym }, "into the traced function");
        }
        (ExitPath::Function, _) => cx.noted(Insn::Ret { reg: RESUME }, "into the traced function"),
        (ExitPath::Direct | ExitPath::DirectJump | ExitPath::EarlyDirect, _) => {
            cx.noted(Insn::Br { reg: DIRECT }, "to the direct trampoline")
        }
        (ExitPath::Parent, _) => cx.noted(Insn::Ret { reg: LINK }, "to the parent"),
        (ExitPath::Caller | ExitPath::Skipped, _) => cx.insn(Insn::Ret { reg: LINK }),
    }
}
