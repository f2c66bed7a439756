//! The cost of a trampoline, counted on the listing, path by path.

use serde::Serialize;

use crate::ask::frame::{Content, Field, FrameLayout, Stores};
use crate::ask::live::Live;
use crate::ask::spec::{Attach, Clock, Events, Programs, Recorder, Spec};
use crate::contract::Contract;
use crate::effect::action::Action;
use crate::effect::effects::{Flow, SpEffect};
use crate::listing::code::CodeBuf;
use crate::listing::isa::Instruction;
use crate::listing::{Line, Listing};
use crate::profile::target::Target;
use crate::words::abi::{Abi, Loc, Reg, RegSet};
use crate::words::error::Result;
use crate::words::step::{Local, Mark};

/// One way through a trampoline. The callback's own instructions are not counted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PathCost {
    /// `plain`, or the suffix of the label that it leaves through.
    pub path: &'static str,
    /// Instructions executed.
    pub executed: u32,
    /// 8-byte slots read, including a return's pop.
    pub loads: u32,
    /// 8-byte slots written, including a call's push.
    pub stores: u32,
    /// Times that the CPU's clock is read.
    #[serde(skip_serializing_if = "none")]
    pub clock: u32,
}

fn none(times: &u32) -> bool {
    *times == 0
}

/// The least that a trampoline with this contract can do with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Bound {
    /// Registers that must be saved.
    pub saved: u32,
    /// Bytes of stack.
    pub stack: i32,
    /// 8-byte slots read.
    pub loads: u32,
    /// 8-byte slots written.
    pub stores: u32,
}

impl Bound {
    /// From what is promised alone: a callee may overwrite what C lets it, so what is kept, and the way back, pass
    /// through memory once; a struct that a callback reads is filled, a slot whose stores take effect is read again; a
    /// frame record takes the frame pointer and a return address.
    pub fn of(contract: &Contract, target: &Target) -> Bound {
        let facts = target.facts;
        let (abi, site, frame) = (&facts.abi, &target.convention.site, &contract.frame);
        let pushes = u32::from(abi.link.is_none());
        if let Some(recorder) = contract.kind.recorder() {
            return Bound::record(recorder, contract, pushes);
        }
        if contract.callee.is_empty() && contract.programs.is_empty() {
            return Bound { saved: 0, stack: 0, loads: pushes, stores: 0 };
        }
        if let Some(programs) = contract.kind.programs() {
            return Bound::programs(&programs, contract, target);
        }
        if contract.kind.calls_body() {
            return Bound::around(contract, target);
        }
        // A link register leads back too, if the site has not pushed the address.
        let way: Vec<Reg> = match contract.kind.attaches() {
            true => [site.pc, site.parent_ip].into_iter().filter_map(Loc::reg).collect(),
            false => Vec::new(),
        };
        let records = frame.records.len() as u32;
        let vectors = target.carriers(contract.kind).entered.len() as u32;
        if !frame.c_struct.is_empty() {
            let slots = |wanted: &dyn Fn(&Field) -> bool| words(frame.fields.iter().filter(|f| wanted(f)), abi);
            let in_memory = |c: Content| pushes == 1 && matches!(c, Content::Pc | Content::ParentIp | Content::Flags);
            let filled = slots(&|f| f.content != Content::Unfilled);
            let back = slots(&|f| f.reloaded());
            let moved = slots(&|f| in_memory(f.content));
            let moved_back = slots(&|f| in_memory(f.content) && f.stores == Stores::TakeEffect);
            let flags = u32::from(contract.flags_kept);
            return Bound {
                saved: count(held(frame, target, |f| f.offset < frame.c_size || f.stores == Stores::Hidden)) + vectors,
                stack: frame.size + 8 * (flags + pushes) as i32,
                loads: back + moved + flags + pushes,
                stores: filled + 2 * records + moved_back + flags + pushes,
            };
        }
        let live = contract.kind.live().unwrap_or_default();
        let vector = vectors + u32::from(live.saved_vectors());
        let regs = count(contract.kept.minus(site.c_keeps(abi))) + way.len() as u32;
        let words = regs + vector * abi.vector_bytes as u32 / 8 + u32::from(live.stack);
        // The first record's frame pointer, once more in each further one.
        let frame_pointer = u32::from(records > 0);
        let stored = words + records;
        let align = if pushes == 1 { 8 } else { target.stack_align };
        Bound {
            saved: regs + vector + frame_pointer,
            stack: (8 * stored).next_multiple_of(align) as i32 + 8 * pushes as i32,
            loads: words + frame_pointer + pushes,
            stores: stored + pushes,
        }
    }

    /// For one that calls programs, on the way through all of them: the context is filled once, each program has a cookie
    /// and each that may decide the result a place for it, if one reads it; what the function wants is read again, if a
    /// program was called before, and its stack arguments, which must lie below its return address, are written again.
    fn programs(programs: &Programs, contract: &Contract, target: &Target) -> Bound {
        let pushes = u32::from(target.facts.abi.link.is_none());
        let sessions = u32::from(programs.sessions);
        let called = contract.programs.len() as u32 + sessions;
        let at = |attach| contract.programs.iter().filter(|p| p.attach == attach).count() as u32;
        let bracketed = programs.bracketed();
        let (deciding, after) = (at(Attach::FmodRet), at(Attach::Fexit) + sessions > 0 || bracketed);
        let before = u32::from(!programs.call_orig || bracketed || at(Attach::Fentry) + sessions + deciding > 0);
        let words =
            |live: &Live| count(live.regs) + u32::from(live.saved_vectors()) * target.facts.abi.vector_bytes as u32 / 8;
        let (live, result, stack) = (words(&programs.live), words(&programs.result), u32::from(programs.live.stack));
        let body = u32::from(programs.call_orig);
        let context = live + stack + 1 + u32::from(programs.ip_arg);
        let result = if after { result } else { 0 };
        let results = body * result + deciding * result + u32::from(deciding > 0);
        // The functions around each program and around all, and what a program decided, once they have run.
        let (own, around) = (count(programs.own), if bracketed { 2 * (called + body) } else { 0 });
        let decided = if bracketed { deciding } else { 0 };
        // The function's way back, and its own place if it goes on there by a register.
        let way = 2 + u32::from(!programs.call_orig && pushes == 0);
        Bound {
            saved: count(held(&contract.frame, target, |f| matches!(f.content, Content::Reg(_) | Content::Own(_))))
                + u32::from(programs.live.saved_vectors()),
            stack: contract.frame.size + 8 * pushes as i32,
            loads: before * live + stack + body * (stack + result) + way + own + decided,
            stores: context + own + called + results + body * stack + 4 - pushes + pushes * (called + body + around),
        }
    }

    /// For one that records: the cursor is read and written once for each record, the limit read, its words stored and the
    /// clock read, which may take registers that are in use; of a counter, the counter. One that calls the function has a frame record of the caller.
    fn record(recorder: Recorder, contract: &Contract, pushes: u32) -> Bound {
        let records = recorder.recorded().len() as u32;
        let counts = u32::from(recorder.events == Events::Count);
        let (read, entry) = (recorder.clock == Clock::Word, records.min(1));
        // Where a function returns there are registers to spare, where it begins only those that sites leave.
        let spilled = entry * u32::from(recorder.clock.of_cpu()) * contract.facts.clock.1.len() as u32;
        let clock = u32::from(read) * records + spilled;
        let words: i32 = recorder.recorded().iter().map(|event| recorder.words(*event)).sum();
        let body = u32::from(contract.kind.calls_body());
        if recorder.shadow {
            // Where entries go is read to ask for room, to take one and to find it again, and written twice. The return address
            // and SP are in it. Where a call pushes return addresses, one comes from the stack and goes back there.
            return Bound {
                saved: 0,
                stack: 8 * pushes as i32,
                loads: 2 * records + clock + 6 + 3 * pushes,
                stores: 3 * records + spilled + words as u32 + 4 + 2 * pushes,
            };
        }
        if recorder.pair {
            // One slot is taken, and its address is in the frame. Without a clock, the return has the cursor instead.
            let cursor = u32::from(recorder.clock == Clock::None);
            return Bound {
                saved: 2 - pushes,
                stack: contract.frame.size + 8 * pushes as i32,
                loads: 2 + clock + 3 + cursor,
                stores: 1 + 4 + spilled + words as u32 + 3,
            };
        }
        Bound {
            saved: 2 * body - body * pushes,
            stack: contract.frame.size + 8 * (body * pushes) as i32,
            loads: counts + 2 * records + clock + 2 * body,
            stores: counts + 3 * records + spilled + words as u32 + 2 * body,
        }
    }

    /// For a paired trampoline: arguments pass through memory once, results once, in the same place if no struct wants them
    /// elsewhere; the frame pointer and the function's way back stay in records, with the function's own address.
    fn around(contract: &Contract, target: &Target) -> Bound {
        let (abi, frame) = (&target.facts.abi, &contract.frame);
        let pushes = u32::from(abi.link.is_none());
        let of_handlers = || frame.fields.iter().filter(|f| !f.in_record && f.content != Content::Unfilled);
        let (saved, back) = (words(of_handlers(), abi), words(of_handlers().filter(|f| f.reloaded()), abi));
        let regs = count(held(frame, target, |f| matches!(f.content, Content::Reg(_))));
        let regs = regs + target.carriers(contract.kind).entered.len() as u32;
        // {fp, parent_ip} and {fp, pc}; where a call pushes its return address, parent_ip is there already.
        let records = 4 - pushes;
        let calls = 3 * pushes;
        if contract.kind.is_shadow() {
            // No record, but the return address is written once more where a call had pushed it.
            let stack = frame.size + 8 * pushes as i32;
            return Bound { saved: regs, stack, loads: back + pushes, stores: saved + calls + pushes };
        }
        Bound { saved: regs, stack: frame.size + 8 * pushes as i32, loads: back + 2, stores: saved + records + calls }
    }
}

/// The registers that a frame holds: a link register holds pc or parent_ip, and a frame record the frame pointer.
fn held(frame: &FrameLayout, target: &Target, wanted: impl Fn(&Field) -> bool) -> RegSet {
    let mut regs: Vec<Reg> = Vec::new();
    let records = frame.records.iter().map(|r| r.ret);
    for content in frame.fields.iter().filter(|f| wanted(f)).map(|f| f.content).chain(records) {
        regs.extend(match content {
            Content::Reg(reg) | Content::Own(reg) => Some(reg),
            Content::Pc => target.convention.site.pc.reg(),
            Content::ParentIp => target.convention.site.parent_ip.reg(),
            _ => None,
        });
    }
    if !frame.records.is_empty() {
        regs.push(target.facts.abi.fp);
    }
    RegSet::of(&regs)
}

/// Words of 8 bytes in these slots.
fn words<'f>(fields: impl Iterator<Item = &'f Field>, abi: &Abi) -> u32 {
    fields.map(|f| f.bytes(abi.vector_bytes as i32) as u32 / 8).sum()
}

fn count(set: RegSet) -> u32 {
    set.iter().count() as u32
}

/// The cost of one trampoline.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Cost {
    /// Bytes of code.
    pub bytes: u32,
    /// Registers that are stored as they came.
    pub saved: u32,
    /// Instructions in the code.
    pub instructions: u32,
    /// Most bytes of stack below SP at the trampoline's entry, without what the callback uses.
    pub stack: i32,
    /// The ways through.
    pub paths: Vec<PathCost>,
}

pub(crate) fn cost(spec: &Spec, target: &Target, listing: &Listing<impl Instruction>) -> Result<Cost> {
    let mut code = CodeBuf::default();
    let vectors = spec.kind.live().map_or(0, |live| usize::from(live.saved_vectors()));
    let vectors = vectors + target.carriers(spec.kind).entered.len();
    let saved = count(held(&*target.frame(spec.kind)?, target, |_| true)) + vectors as u32;
    let mut total = Cost { bytes: 0, saved, instructions: 0, stack: 0, paths: Vec::new() };
    for line in &listing.lines {
        if let Line::Insn(insn, _) = *line {
            insn.encode(target, &mut code)?;
            total.instructions += u32::from(insn.effects().executed);
        }
    }
    total.bytes = code.bytes.len() as u32;
    let zero = PathCost { path: "plain", executed: 0, loads: 0, stores: 0, clock: 0 };
    let pad = Local::Mark(Mark::Pad);
    if spec.kind.recorder().is_some_and(|recorder| recorder.unwind) {
        let unwound = PathCost { path: pad.suffix(), ..zero.clone() };
        let depth = target.frame(spec.kind)?.size;
        walk((spec, listing), listing.label(pad, spec)?, depth, unwound, &mut total)?;
    }
    walk((spec, listing), 0, 0, zero, &mut total)?;
    Ok(total)
}

/// The way on which no program is called.
const REFUSED: &str = "refused";

/// Labels lie behind the branches to them, but for where a record is written, and where an entry of the shadow stack is looked at:
/// no walk goes back there twice. So every walk ends.
fn walk(
    (spec, listing): (&Spec, &Listing<impl Instruction>),
    from: usize,
    mut depth: i32,
    mut path: PathCost,
    total: &mut Cost,
) -> Result<()> {
    let mut at = from;
    // What hands an exception back does not return: a label is behind it.
    let resumed = |line: &Line<_>| matches!(line, Line::Local(Local::Mark(Mark::End)));
    while let Some(line) = listing.lines.get(at) {
        at += 1;
        let Line::Insn(insn, _) = *line else { continue };
        let effects = insn.effects();
        path.executed += u32::from(effects.executed);
        path.loads += u32::from(effects.loads);
        path.stores += u32::from(effects.stores);
        path.clock += u32::from(matches!(effects.action, Action::ReadClock { .. }));
        if let SpEffect::Move(by) = effects.sp {
            depth -= by;
        }
        let pushed_by_call = if effects.flow == Flow::Call { 8 * i32::from(effects.stores) } else { 0 };
        total.stack = total.stack.max(depth + pushed_by_call);
        match effects.flow {
            Flow::Next | Flow::Call if !listing.lines.get(at).is_none_or(resumed) => {}
            Flow::Jump(local) => at = listing.label(local, spec)?,
            // Of programs that functions around them may refuse, all are called, or none is. Then none has a result.
            Flow::Branch(local @ Local::Refused(_)) if path.path == REFUSED => at = listing.label(local, spec)?,
            Flow::Branch(local @ Local::Refused(0)) => {
                let taken = PathCost { path: REFUSED, ..path.clone() };
                walk((spec, listing), listing.label(local, spec)?, depth, taken, total)?;
            }
            Flow::Branch(Local::Refused(_)) => {}
            Flow::Branch(Local::Path(_)) if path.path == REFUSED => {}
            Flow::Branch(local) => {
                // One entry that is passed over tells what each takes.
                let name = if local == Local::Find { path.path } else { local.suffix() };
                if local != Local::PassOver || path.path != name {
                    let taken = PathCost { path: name, ..path.clone() };
                    walk((spec, listing), listing.label(local, spec)?, depth, taken, total)?;
                }
            }
            // Where the function's entry is lost, nothing goes on.
            Flow::Trap => return Ok(()),
            Flow::Leave | Flow::Next | Flow::Call => {
                total.paths.push(path);
                // Branches were walked before this; the plain path comes first in reports.
                total.paths.rotate_right(1);
                return Ok(());
            }
        }
    }
    Ok(())
}
