//! Trampolines that record: [`SLOT`] is all that they need, and the flags.

use codegen::arch::facts::{NumberOf, ThreadWord};
use codegen::ask::frame::Content;
use codegen::ask::spec::{Clock, Event, Recorder};
use codegen::listing::Lowering;
use codegen::words::abi::Reg;
use codegen::words::error::Result;
use codegen::words::step::{Callee, Disp, Local, Name, RecordStep};

use crate::abi::ABI;
use crate::insn::Insn;
use crate::regs::*;

/// The slot of a record: free at a function's entry and at its end.
const SLOT: Reg = R11;

/// A word of the thread.
pub(crate) fn word(of: ThreadWord, cx: &mut Lowering<Insn>) -> Result<Disp> {
    let at = cx.word(of)?;
    Ok(match (cx.tls()?, at.name) {
        (Some(sym), Name::Number(number)) => Disp { name: Name::Tls(sym, number), ..at },
        _ => at,
    })
}

/// Lower a step that they alone have.
pub(crate) fn lower(step: RecordStep, cx: &mut Lowering<Insn>) -> Result<()> {
    let recorder = cx.recorder()?;
    match step {
        RecordStep::Count => {
            let at = word(ThreadWord::Count, cx)?;
            cx.noted(Insn::IncThread { at }, "entries");
        }
        RecordStep::Slot(event) if recorder.pair && event != Event::Entry => {
            cx.noted(Insn::Pop { reg: SLOT }, "the slot of the entry");
        }
        RecordStep::Slot(event) | RecordStep::SlotAgain(event) => {
            let (cursor, imm) = (word(ThreadWord::Cursor, cx)?, recorder.slot_bytes(event));
            cx.insn(Insn::MovImm { dst: SLOT, imm });
            cx.noted(Insn::XaddThread { reg: SLOT, at: cursor }, "the slot");
        }
        RecordStep::BranchIfFull(_, to) if recorder.refill => {
            cx.noted(Insn::Bt { reg: SLOT, bit: cx.number(NumberOf::RecordFull)? }, "no room there");
            cx.insn(Insn::JcFar { to });
        }
        RecordStep::BranchIfFull(event, to) if recorder.pair && event != Event::Entry => {
            cx.noted(Insn::Bt { reg: SLOT, bit: Disp::number(0) }, "no room there");
            cx.insn(Insn::JcFar { to });
        }
        RecordStep::BranchIfFull(_, to) => {
            let at = word(ThreadWord::Limit, cx)?;
            cx.noted(Insn::CmpThread { reg: SLOT, at }, "where the buffer ends");
            cx.insn(if to == Local::NoSlot { Insn::JaeFar { to } } else { Insn::Jae { to } });
        }
        RecordStep::KeepSlot => {
            cx.insn(Insn::Push { reg: SLOT });
            cx.noted(Insn::Push { reg: SLOT }, "for the return");
        }
        RecordStep::NoSlot => {
            cx.noted(Insn::MovImm { dst: SLOT, imm: Recorder::NO_SLOT }, "no slot");
            cx.insn(Insn::JmpFar { to: Local::Recorded(Event::Entry) });
        }
        RecordStep::Refill(_) if recorder.keeps_all => refill_below_saves(cx),
        RecordStep::Refill(event) => refill(!recorder.has_frame(event), cx),
        RecordStep::ToRoom(event) => cx.insn(Insn::JmpFar { to: Local::Room(event) }),
        RecordStep::What(event) => {
            let at = recorder.begins(event) + Recorder::WHAT;
            cx.noted(Insn::StoreSlotImm { imm: recorder.what(event), at }, "what happened");
        }
        RecordStep::Time(event) => time(event, cx)?,
        RecordStep::Room(_) | RecordStep::Recorded(_) => {}
        RecordStep::Timed(_) if recorder.keeps_all => {}
        RecordStep::Timed(_) => cx.insn(Insn::Pop { reg: RAX }),
        RecordStep::Words(event) => {
            if recorder.keeps_all && event == Event::Exit {
                cx.noted(Insn::Load { dst: RAX, at: cx.slot(Content::Reg(RAX))? }, "the result");
            }
            for (n, &src) in recorder.registers(event, &ABI).iter().enumerate() {
                cx.insn(Insn::StoreSlot { src, at: recorder.begins(event) + Recorder::WORDS + 8 * n as i32 });
            }
        }
        RecordStep::Resume => resume(cx),
    }
    Ok(())
}

/// Call the routine that may make room. Where there is no frame, stack traces find the
/// function's caller by this one.
fn refill(framed: bool, cx: &mut Lowering<Insn>) {
    if framed {
        cx.insn(Insn::Push { reg: RBP });
        cx.insn(Insn::Mov { dst: RBP, src: RSP });
    }
    let sym = cx.callee(Callee::Named);
    cx.noted(Insn::Call { sym }, "keeps every register");
    if framed {
        cx.insn(Insn::Pop { reg: RBP });
    }
}

/// The same where every register is kept: the frame lies between a frame record and parent_ip, of which the record gets a copy.
fn refill_below_saves(cx: &mut Lowering<Insn>) {
    // As SP is aligned where the function is called.
    let pushes = if cx.frame.size % ABI.sp_align as i32 == 0 { 2 } else { 1 };
    cx.noted(Insn::Load { dst: SLOT, at: cx.frame_size(0) }, "parent_ip");
    (0..pushes).for_each(|_| cx.insn(Insn::Push { reg: SLOT }));
    refill(true, cx);
    (0..pushes).for_each(|_| cx.insn(Insn::Pop { reg: SLOT }));
}

/// The time of a record. What RDTSC overwrites may be in use.
fn time(event: Event, cx: &mut Lowering<Insn>) -> Result<()> {
    let recorder = cx.recorder()?;
    let at = recorder.begins(event) + Recorder::TIME;
    match recorder.clock {
        Clock::None if recorder.pair && event != Event::Entry => {
            let cursor = word(ThreadWord::Cursor, cx)?;
            cx.insn(Insn::LoadThread { dst: RCX, at: cursor });
            cx.noted(Insn::StoreSlot { src: RCX, at }, "calls with slots before that began before");
        }
        Clock::None => cx.noted(Insn::StoreSlotImm { imm: 0, at }, "no time"),
        Clock::Word => {
            let sym = cx.clock()?;
            cx.noted(Insn::PushSym { sym }, "time");
            cx.insn(Insn::PopSlot { at });
        }
        Clock::Tsc if recorder.keeps_all => read_clock(event, at, cx),
        Clock::Tsc => {
            cx.insn(Insn::Push { reg: RAX });
            read_clock(event, at, cx);
            cx.insn(Insn::Pop { reg: RAX });
        }
        Clock::Stamp8 => {
            let imm = recorder.bytes(event) as i8;
            cx.noted(Insn::StoreSlotImm { imm: 0, at }, "no time yet");
            if !recorder.keeps_all {
                cx.insn(Insn::Push { reg: RAX });
            }
            cx.insn(Insn::Mov { dst: RAX, src: SLOT });
            cx.noted(Insn::Sub { dst: RAX, imm: 1 - imm }, "the last byte of the slot");
            cx.insn(Insn::AndLow { dst: RAX, bits: Recorder::BLOCK.ilog2() as u8 });
            cx.insn(Insn::CmpImm { reg: RAX, imm });
            cx.insn(Insn::Jae { to: Local::Timed(event) });
            read_clock(event, at, cx);
        }
    }
    Ok(())
}

/// The clock to the slot. rax is free; with an exception, rdx too.
fn read_clock(event: Event, at: i32, cx: &mut Lowering<Insn>) {
    if event != Event::Unwound {
        cx.insn(Insn::Push { reg: RDX });
    }
    cx.insn(Insn::Rdtsc);
    cx.noted(Insn::StoreSlotHalf { src: RAX, at }, "time");
    cx.insn(Insn::StoreSlotHalf { src: RDX, at: at + 4 });
    if event != Event::Unwound {
        cx.insn(Insn::Pop { reg: RDX });
    }
}

/// Hand the exception back.
fn resume(cx: &mut Lowering<Insn>) {
    cx.noted(Insn::Mov { dst: RDI, src: RAX }, "the exception");
    let sym = cx.resume();
    cx.insn(Insn::Call { sym });
}
