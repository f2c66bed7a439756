//! Step to instructions: one arm per step.

use codegen::arch::harden::ReturnStyle;
use codegen::ask::frame::Content;
use codegen::ask::spec::Kind;
use codegen::listing::Lowering;
use codegen::listing::isa::Lower;
use codegen::words::abi::Reg;
use codegen::words::error::Result;
use codegen::words::step::{Callee, Disp, ExitPath, KernelLabel, Local, Name, Step, Value};

use crate::X86_64;
use crate::abi::{ABI, AFTER, VECTOR};
use crate::insn::Insn;
use crate::regs::*;
use crate::sled::STATE;
use crate::{record, rethook, shadow};

/// Where the next hop of a return passes.
const NEXT: Reg = RDI;
/// pc or parent_ip on its way to memory, where the arguments of the traced function stay where they are.
const BODY: Reg = R11;

impl Lower for X86_64 {
    type Insn = Insn;

    fn lower(step: Step, cx: &mut Lowering<Insn>) -> Result<()> {
        if cx.spec.kind == Kind::Rethook && rethook::lower(step, cx)? {
            return Ok(());
        }
        match step {
            Step::Block(..) | Step::KernelLabel(_) | Step::Path(_) | Step::Mark(_) | Step::Refused(_) => {}
            Step::LandingPad | Step::ExceptionPad => cx.insn(Insn::Endbr64),
            Step::LoadOp | Step::BranchIfEarlyDirect | Step::AllocReturn => return Err(cx.unsupported(step)),
            Step::Authenticate | Step::GuardReturn | Step::CheckReturn => return Err(cx.unsupported(step)),
            Step::PushFlags => {
                cx.insn(Insn::Pushfq);
                cx.depth += 8;
            }
            Step::Alloc => {
                if !cx.frame.pushed {
                    cx.insn(Insn::SubSp { imm: cx.frame_size(0) });
                    cx.depth += cx.frame.size;
                }
            }
            Step::LoadBody => load_body(cx),
            Step::Link(n) => record(n as usize, cx),
            Step::Save => save(cx),
            Step::MarkRegs => {
                cx.noted(Insn::Lea { dst: RBP, at: Disp::number(1) }, "marks the frame as pt_regs");
                cx.anchor = Some(Disp::number(1));
            }
            Step::Arg(n, value) => argument(n as usize, value, cx)?,
            Step::Realign => {
                if cx.anchor.is_none() {
                    cx.insn(Insn::Mov { dst: RBP, src: RSP });
                    cx.anchor = Some(Disp::number(0));
                }
                cx.insn(Insn::AndSp { imm: -16 });
            }
            Step::Unalign => unalign(cx),
            Step::StackArgs => stack_args(cx),
            Step::Call(Callee::Variable) => return Err(cx.unsupported(step)),
            Step::Call(callee) => call(callee, cx),
            Step::TakeResult => cx.noted(Insn::Mov { dst: NEXT, src: RAX }, "where the function returns to"),
            Step::RestoreSite(way) => restore_site(way, cx),
            Step::Restore => restore(cx),
            Step::SaveResults => {
                cx.results(|src, at| Insn::Store { src, at }, |src, at| Insn::StoreVector { src, at });
            }
            Step::RestoreResults => {
                cx.results(|dst, at| Insn::Load { dst, at }, |dst, at| Insn::LoadVector { dst, at });
            }
            Step::SaveCounted | Step::RestoreCounted | Step::SaveDecision | Step::ClearResult => of_program(step, cx)?,
            Step::Meta(_) | Step::Detach | Step::Cookie(_) | Step::KeepStart => of_program(step, cx)?,
            Step::BranchIfRefused(_) | Step::LoadDecision | Step::RestoreOwn => of_program(step, cx)?,
            Step::Record(step) => record::lower(step, cx)?,
            Step::SaveState => save_state(cx),
            Step::RestoreState => restore_state(cx),
            Step::BranchIfNoRoomToReturn | Step::PushReturn | Step::FindReturn => shadow::lower(step, cx)?,
            Step::PopReturn | Step::PassOver => shadow::lower(step, cx)?,
            Step::BranchIfResult => {
                cx.insn(Insn::TestAx);
                cx.insn(Insn::JnzFar { to: Local::Path(ExitPath::Skipped) });
            }
            Step::Gap => cx.noted(Insn::Nop5, "a jump to the epilogue when this is retired"),
            Step::LoadDirect => load(Content::Direct, AFTER, "direct trampoline, 0 = none", cx),
            Step::BranchIfDirect => {
                cx.insn(Insn::TestAx);
                cx.kernel_label(KernelLabel::Jmp);
                cx.insn(Insn::Jnz { to: Local::Path(ExitPath::Direct) });
            }
            Step::BranchIfJump => {
                cx.insn(Insn::TestAl);
                cx.insn(Insn::JnzFar { to: Local::Path(ExitPath::DirectJump) });
            }
            Step::Free(way) => free(way, cx),
            Step::FreeWithReturn => cx.insn(Insn::AddSp { imm: cx.frame_size(8) }),
            Step::AllocWithReturn => cx.insn(Insn::SubSp { imm: cx.frame_size(8) }),
            Step::PopFlags => cx.insn(Insn::Popfq),
            Step::Leave(way) => leave(way, cx),
        }
        Ok(())
    }
}

fn call(callee: Callee, cx: &mut Lowering<Insn>) {
    let sym = cx.callee(callee);
    match callee {
        Callee::Body => cx.insn(Insn::CallBody { sym }),
        Callee::Patchable | Callee::OpFunc => {
            cx.noted(Insn::Call { sym }, "func: these 5 bytes are patched at run time");
        }
        _ => cx.insn(Insn::Call { sym }),
    }
}

/// XSAVEC leaves alone what XRSTOR wants to be 0 in the header (Intel SDM volume 1, 13.4.2 and 13.8). The area is as large as a
/// multiple of its alignment.
fn save_state(cx: &mut Lowering<Insn>) {
    const ALIGN: i8 = 64;
    cx.insn(Insn::AndSp { imm: -ALIGN });
    cx.noted(Insn::SubSp { imm: Disp::number(STATE.bytes) }, "XSAVE area");
    let (from, to) = STATE.reserved;
    for at in (from..to).step_by(8) {
        cx.insn(Insn::StoreImm { imm: 0, at: Disp::number(at) });
    }
    components(cx);
    cx.noted(Insn::Xsavec, "x87, SSE, AVX and AVX-512 state");
}

fn restore_state(cx: &mut Lowering<Insn>) {
    components(cx);
    cx.noted(Insn::Xrstor, "x87, SSE, AVX and AVX-512 state");
    unalign(cx);
}

/// Which components.
fn components(cx: &mut Lowering<Insn>) {
    cx.insn(Insn::MovImm { dst: RAX, imm: STATE.components });
    cx.insn(Insn::MovImm { dst: RDX, imm: 0 });
}

/// SP as it was, from what rbp was made.
fn unalign(cx: &mut Lowering<Insn>) {
    match cx.anchor {
        Some(Disp { value: 0, .. }) | None => cx.insn(Insn::Mov { dst: RSP, src: RBP }),
        Some(Disp { value, name: Name::None }) => cx.insn(Insn::LeaSpFromBp { at: Disp::number(-value) }),
        Some(Disp { value, name }) => cx.insn(Insn::LeaSpFromBp { at: Disp { value: -value, name } }),
    }
}

fn free(way: ExitPath, cx: &mut Lowering<Insn>) {
    if cx.frame.pushed {
        if cx.recorder().is_ok_and(|recorder| recorder.pair) {
            cx.noted(Insn::Pop { reg: RCX }, "the slot, once more");
        }
        cx.insn(Insn::Pop { reg: RBP });
    } else {
        // What lies above the frame now: the flags, to be popped or dropped. On the way to a direct trampoline by
        // RET they were moved down into the frame's last word.
        let moved = way == ExitPath::DirectJump || way == ExitPath::Direct && cx.target.direct_jump.is_none();
        let flags = cx.frame.find(Content::Flags).is_some() && !cx.target.restores_flags;
        // Or what the site's call pushed, if nothing returns there.
        let pc = cx.spec.kind.calls_body() && !cx.spec.kind.jumped_to();
        let above = i32::from(flags) + i32::from(pc) - i32::from(moved);
        cx.insn(Insn::AddSp { imm: cx.frame_size(8 * above) });
    }
}

/// The offset from the current SP of the words that the calls of site and caller pushed.
fn pushed(offset: i32, cx: &Lowering<Insn>) -> Disp {
    cx.frame_size(cx.depth - cx.frame.size + offset)
}

/// pc minus ip: a few bytes ([`Lowering::ip_offset`] bounds it).
fn ip_offset(cx: &Lowering<Insn>) -> i8 {
    cx.ip_offset() as i8
}

/// The address of parent_ip, which is SP at the site: behind what a site's call pushed.
fn parent_slot(cx: &Lowering<Insn>) -> Disp {
    pushed(if cx.spec.kind.jumped_to() { 0 } else { cx.target.convention.site.pushed }, cx)
}

/// The argument register in which the callback gets `value`: it is saved before the value passes through it to memory. Four
/// values have at most four registers, so what the callback does not get passes through one of the others.
fn register(value: Value, other: Reg, cx: &Lowering<Insn>) -> Reg {
    let position = cx.target.convention.callback.position(value);
    position.and_then(|n| ABI.args.get(n).copied()).unwrap_or(other)
}

/// The register that pc passes through.
fn pc(cx: &Lowering<Insn>) -> Reg {
    match cx.spec.kind {
        Kind::Direct(_) => RDI,
        kind if kind.jumped_to() && cx.frame.c_struct.is_empty() => BODY,
        Kind::Programs(_) => RDI,
        _ => register(Value::Ip, R9, cx),
    }
}

/// The register that parent_ip passes through.
fn parent(cx: &Lowering<Insn>) -> Reg {
    register(Value::ParentIp, R8, cx)
}

/// The register that everything else passes through.
fn temp(cx: &Lowering<Insn>) -> Reg {
    // Without the frame's address there are at most three.
    register(Value::Fregs, RCX, cx)
}

/// The address that a site's call would have pushed. Nothing is done if it was loaded before.
fn load_body(cx: &mut Lowering<Insn>) {
    if !cx.pc_loaded {
        let (dst, sym) = (pc(cx), cx.body());
        cx.noted(Insn::LeaSym { dst, sym }, "pc");
        cx.pc_loaded = true;
    }
}

fn record(n: usize, cx: &mut Lowering<Insn>) {
    if cx.frame.pushed {
        // pc lies where the site's call pushed it: the record is complete with rbp below it.
        cx.insn(Insn::Push { reg: RBP });
        cx.insn(Insn::Mov { dst: RBP, src: RSP });
        cx.depth += 8;
        cx.anchor = Some(Disp { value: cx.frame.records[n].offset, name: Name::Record(n as u8) });
        return;
    }
    let is_parent = cx.frame.records[n].ret == Content::ParentIp;
    let (loaded, source, note) = match is_parent {
        true if cx.frame.c_struct.is_empty() => (Some(parent_slot(cx)), BODY, "parent_ip"),
        true => (Some(parent_slot(cx)), parent(cx), "parent_ip"),
        false if cx.frame.c_struct.is_empty() && !cx.spec.kind.jumped_to() => (Some(pushed(0, cx)), BODY, "pc"),
        false => (None, pc(cx), "pc"),
    };
    // Where a call pushed it, the record needs no copy of it.
    let copied = cx.frame.records[n].offset + 8 != cx.frame.size;
    if let (Some(at), true) = (loaded, copied) {
        cx.noted(Insn::Load { dst: source, at }, note);
    }
    cx.insn(Insn::Store { src: RBP, at: cx.record(n, 0) });
    if copied {
        cx.noted(Insn::Store { src: source, at: cx.record(n, 8) }, note);
    }
    cx.insn(Insn::Lea { dst: RBP, at: cx.record(n, 0) });
    cx.anchor = Some(cx.record(n, 0));
}

fn save(cx: &mut Lowering<Insn>) {
    if cx.frame.pushed {
        for i in (0..cx.frame.fields.len()).rev() {
            if let Content::Reg(reg) = cx.frame.fields[i].content {
                cx.insn(Insn::Push { reg });
                cx.depth += 8;
            }
        }
        let Dropped { stack_args, vectors } = dropped(cx);
        if vectors > 0 {
            cx.insn(Insn::SubSp { imm: Disp::number(vectors) });
            cx.depth += vectors;
        }
        for i in 0..cx.frame.fields.len() {
            if let Content::Vector(src) = cx.frame.fields[i].content {
                let at = cx.field(i);
                cx.insn(Insn::StoreVector { src, at: Disp { value: at.value - stack_args, ..at } });
            }
        }
        return;
    }
    // Registers first: the others pass through registers that must be safe by then.
    for i in 0..cx.frame.fields.len() {
        if let Content::Reg(src) | Content::Own(src) = cx.frame.fields[i].content {
            cx.insn(Insn::Store { src, at: cx.field(i) });
        }
    }
    for i in 0..cx.frame.fields.len() {
        let at = cx.field(i);
        match cx.frame.fields[i].content {
            Content::Vector(src) => cx.insn(Insn::StoreVector { src, at }),
            Content::StackWord(n) => {
                cx.insn(Insn::Load { dst: AFTER, at: stack_arg(n, cx) });
                cx.insn(Insn::Store { src: AFTER, at });
            }
            Content::Ip => {
                if cx.spec.kind.jumped_to() {
                    let sym = cx.body();
                    cx.noted(Insn::LeaSym { dst: BODY, sym }, "pc");
                } else {
                    cx.noted(Insn::Load { dst: BODY, at: pushed(0, cx) }, "pc");
                }
                let note = if cx.spec.brackets.is_empty() { "ip: first byte of the site" } else { "ip: the function" };
                cx.noted(Insn::Sub { dst: BODY, imm: ip_offset(cx) }, note);
                cx.insn(Insn::Store { src: BODY, at });
            }
            Content::Reg(_)
            | Content::Own(_)
            | Content::Result(_)
            | Content::VectorResult(_)
            | Content::Cookie
            | Content::ParentIp
            | Content::Unfilled => {}
            Content::Direct => cx.noted(Insn::StoreImm { imm: 0, at }, "no direct trampoline yet"),
            Content::Session(_) => cx.insn(Insn::StoreImm { imm: 0, at }),
            Content::Const(imm) => cx.insn(Insn::StoreImm { imm, at }),
            Content::Pc => {
                load_pc(cx);
                cx.insn(Insn::Store { src: pc(cx), at });
            }
            Content::Flags => {
                cx.insn(Insn::Load { dst: temp(cx), at: cx.frame_size(0) });
                cx.insn(Insn::Store { src: temp(cx), at });
            }
            Content::SiteSp => {
                cx.noted(Insn::Lea { dst: temp(cx), at: parent_slot(cx) }, "sp at the site: address of parent_ip");
                cx.insn(Insn::Store { src: temp(cx), at });
            }
            Content::ExitSp => {
                cx.insn(Insn::Lea { dst: temp(cx), at: pushed(0, cx) });
                cx.insn(Insn::Store { src: temp(cx), at });
            }
        }
    }
}

/// Lower a step around the calls of programs.
fn of_program(step: Step, cx: &mut Lowering<Insn>) -> Result<()> {
    match step {
        Step::SaveCounted => {
            let (src, at) = cx.counted()?;
            cx.insn(Insn::Store { src, at });
        }
        Step::RestoreCounted => {
            let (dst, at) = cx.counted()?;
            cx.insn(Insn::Load { dst, at });
        }
        Step::SaveDecision => cx.insn(Insn::Store { src: RAX, at: cx.slot(Content::Result(RAX))? }),
        Step::ClearResult => cx.shown_results().for_each(|(_, at)| cx.insn(Insn::StoreImm { imm: 0, at })),
        Step::LoadDecision => cx.insn(Insn::Load { dst: RAX, at: cx.slot(Content::Result(RAX))? }),
        Step::KeepStart => cx.noted(Insn::Mov { dst: cx.start()?, src: RAX }, "start"),
        Step::BranchIfRefused(n) => {
            cx.insn(Insn::TestAx);
            cx.insn(Insn::Jz { to: Local::Refused(n) });
        }
        Step::RestoreOwn => cx.own().for_each(|(dst, at)| cx.insn(Insn::Load { dst, at })),
        Step::Meta(word) => store(word, cx.count()?, "", cx),
        Step::Detach => cx.noted(Insn::Nop5, "a jump past the program when it is detached"),
        Step::Cookie(cookie) => store(cookie, cx.slot(Content::Cookie)?, "cookie", cx),
        _ => return Err(cx.unsupported(step)),
    }
    Ok(())
}

/// Store a number.
fn store(number: i64, at: Disp, note: &'static str, cx: &mut Lowering<Insn>) {
    match i32::try_from(number) {
        Ok(imm) => cx.noted(Insn::StoreImm { imm, at }, note),
        Err(_) => {
            cx.insn(Insn::MovAbs { dst: AFTER, imm: number });
            cx.noted(Insn::Store { src: AFTER, at }, note);
        }
    }
}

/// Bytes of a pushed frame that no pop gives back.
struct Dropped {
    stack_args: i32,
    vectors: i32,
}

fn dropped(cx: &Lowering<Insn>) -> Dropped {
    let live = cx.spec.kind.live().unwrap_or_default();
    let vectors = cx.frame.fields.iter().filter(|f| matches!(f.content, Content::Vector(_))).count();
    Dropped { stack_args: 8 * i32::from(live.stack), vectors: VECTOR * vectors as i32 }
}

/// The offset of a word of the function's stack arguments: above the return address.
fn stack_arg(n: u8, cx: &Lowering<Insn>) -> Disp {
    let parent = parent_slot(cx);
    Disp { value: parent.value + 8 * (i32::from(n) + 1), ..parent }
}

/// The last one first. Above rbp are its own word, pc if the site called, and parent_ip, then the function's arguments.
fn stack_args(cx: &mut Lowering<Insn>) {
    let words = dropped(cx).stack_args / 8;
    if !cx.frame.pushed {
        let live = cx.spec.kind.live().is_some_and(|live| live.regs.contains(AFTER));
        let through = if live { BODY } else { AFTER };
        for word in 0..words {
            cx.insn(Insn::Load { dst: through, at: stack_arg(word as u8, cx) });
            cx.insn(Insn::Store { src: through, at: Disp::number(8 * word) });
        }
        return;
    }
    if cx.target.realign.is_some() && words % 2 != 0 {
        cx.insn(Insn::SubSp { imm: Disp::number(8) });
    }
    let first = if cx.spec.kind.jumped_to() { 16 } else { 24 };
    for word in (0..words).rev() {
        cx.insn(Insn::PushBp { at: first + 8 * word });
    }
    cx.depth += 8 * words;
}

fn argument(n: usize, value: Value, cx: &mut Lowering<Insn>) -> Result<()> {
    let dst = ABI.args[n];
    match value {
        Value::Ip => {
            load_pc(cx);
            cx.noted(Insn::Sub { dst: pc(cx), imm: ip_offset(cx) }, "ip: first byte of the site");
        }
        Value::ParentIp => {
            let loaded = !cx.spec.kind.jumped_to() && cx.frame.records.iter().any(|r| r.ret == Content::ParentIp);
            if !loaded {
                cx.noted(Insn::Load { dst, at: parent_slot(cx) }, "parent_ip");
            }
        }
        Value::Op => {
            let sym = cx.op()?;
            cx.noted(Insn::LoadSym { dst, sym }, "op");
        }
        Value::Fregs => cx.noted(Insn::Mov { dst, src: RSP }, "fregs"),
        Value::Argument(i) => cx.insn(Insn::Mov { dst, src: ABI.args[i as usize] }),
        Value::Context => cx.noted(Insn::Lea { dst, at: cx.context()? }, "context: the first word"),
        Value::Cookie => cx.noted(Insn::Lea { dst, at: cx.slot(Content::Cookie)? }, "address of the cookie"),
        Value::Result(i) => cx.insn(Insn::Mov { dst, src: ABI.rets[i as usize] }),
        Value::Bracket(n) | Value::BracketAgain(n) => {
            let sym = cx.bracketed(n);
            cx.insn(Insn::LeaSym { dst, sym });
        }
        Value::Start => cx.noted(Insn::Mov { dst, src: cx.start()? }, "start"),
    }
    Ok(())
}

/// Have pc at hand, from where the site's call pushed it or as it is known.
fn load_pc(cx: &mut Lowering<Insn>) {
    if cx.spec.kind.jumped_to() {
        load_body(cx);
    } else if !cx.pc_loaded {
        let at = if cx.frame.pushed { Disp::number(cx.depth) } else { pushed(0, cx) };
        cx.noted(Insn::Load { dst: pc(cx), at }, "pc");
        cx.pc_loaded = true;
    }
}

fn load(content: Content, dst: Reg, note: &'static str, cx: &mut Lowering<Insn>) {
    if let Some(i) = cx.frame.find(content) {
        cx.noted(Insn::Load { dst, at: cx.field(i) }, note);
    }
}

fn restore_site(way: ExitPath, cx: &mut Lowering<Insn>) {
    if cx.frame.pushed {
        return;
    }
    if way == ExitPath::Parent || cx.frame.c_struct.is_empty() {
        cx.insn(Insn::Load { dst: RBP, at: cx.record(0, 0) });
        return;
    }
    if let (ExitPath::Direct, Some(dst)) = (way, cx.target.direct_jump) {
        load(Content::Direct, dst, "direct trampoline", cx);
        return;
    }
    if way == ExitPath::DirectJump {
        cx.noted(Insn::Sub { dst: AFTER, imm: 1 }, "bit 0 says that the site jumps there");
    }
    if matches!(way, ExitPath::Direct | ExitPath::DirectJump) {
        // The target takes the place of the flags, to be reached by RET; the flags go one word down.
        cx.noted(Insn::Store { src: AFTER, at: cx.frame_size(0) }, "direct trampoline");
        if cx.target.restores_flags {
            load(Content::Flags, AFTER, "", cx);
            cx.noted(Insn::Store { src: AFTER, at: cx.frame_size(-8) }, "flags");
        }
        return;
    }
    if cx.frame.find(Content::Flags).is_some() && cx.target.restores_flags {
        load(Content::Flags, AFTER, "flags", cx);
        cx.insn(Insn::Store { src: AFTER, at: cx.frame_size(0) });
    }
    load(Content::Pc, AFTER, "pc, as func left it", cx);
    cx.insn(Insn::Store { src: AFTER, at: pushed(0, cx) });
}

fn restore(cx: &mut Lowering<Insn>) {
    if cx.frame.pushed {
        for i in 0..cx.frame.fields.len() {
            if let Content::Vector(dst) = cx.frame.fields[i].content {
                cx.insn(Insn::LoadVector { dst, at: cx.field(i) });
            }
        }
        let Dropped { stack_args, vectors } = dropped(cx);
        if stack_args + vectors > 0 {
            cx.insn(Insn::AddSp { imm: Disp::number(stack_args + vectors) });
        }
    }
    for i in 0..cx.frame.fields.len() {
        let field = cx.frame.fields[i];
        if let (Content::Vector(dst), false) = (field.content, cx.frame.pushed) {
            cx.insn(Insn::LoadVector { dst, at: cx.field(i) });
        }
        if let (Content::Reg(dst), true) = (field.content, field.reloaded()) {
            cx.insn(if cx.frame.pushed { Insn::Pop { reg: dst } } else { Insn::Load { dst, at: cx.field(i) } });
        }
    }
}

fn leave(way: ExitPath, cx: &mut Lowering<Insn>) {
    match (way, cx.spec.kind) {
        (ExitPath::Direct, _) if cx.target.direct_jump.is_some() => cx.noted(Insn::JmpR11, "to the direct trampoline"),
        (ExitPath::Direct, _) | (ExitPath::Parent, Kind::Rethook) => {
            // RET needs a call to pair with; LEA drops that call's slot without touching the flags.
            cx.insn(Insn::CallLocal { to: Local::Rebalance });
            cx.insn(Insn::Int3);
            cx.local(Local::Rebalance);
            cx.insn(Insn::Lea { dst: RSP, at: Disp::number(8) });
            ret(if way == ExitPath::Direct { "to the direct trampoline" } else { "to the parent" }, cx);
        }
        (ExitPath::DirectJump, _) => {
            // The site's call is the pair of RET. Only now does pc give way, so that unwinders know it until here.
            cx.noted(Insn::PopOver, "the direct trampoline in place of pc");
            cx.return_lost();
            ret("to the direct trampoline", cx);
        }
        (ExitPath::Parent, Kind::Around(_)) => {
            // The parent's call is its pair.
            cx.insn(Insn::Store { src: NEXT, at: Disp::number(0) });
            ret("to the parent", cx);
        }
        (ExitPath::Parent, _) => {
            // A return, not an indirect jump: the parent has no landing pad. The call is its pair.
            cx.insn(Insn::CallLocal { to: Local::Rebalance });
            cx.insn(Insn::Int3);
            cx.local(Local::Rebalance);
            cx.insn(Insn::Store { src: NEXT, at: Disp::number(0) });
            ret("to the parent", cx);
        }
        (ExitPath::Function, kind) if kind.jumped_to() => {
            let sym = cx.body();
            cx.noted(Insn::JmpBody { sym }, "into the traced function");
        }
        (ExitPath::Function, Kind::Entry(_)) => ret("into the traced function", cx),
        _ => ret("", cx),
    }
}

/// Return in the way that was chosen.
fn ret(note: &'static str, cx: &mut Lowering<Insn>) {
    match cx.target.harden.returns {
        ReturnStyle::Plain => cx.noted(Insn::Ret, note),
        ReturnStyle::Trapped => {
            cx.noted(Insn::Ret, note);
            cx.insn(Insn::Int3);
        }
        ReturnStyle::Thunk(name) => {
            let sym = cx.symbol(name);
            cx.noted(Insn::JmpReturn { sym }, note);
        }
    }
}
