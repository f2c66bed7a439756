//! Trampolines that record: t0 and t1, t3 and above are free at a function's entry and at its end, and are all that they need.

use codegen::arch::facts::{NumberOf, ThreadWord};
use codegen::ask::spec::{Clock, Event, Recorder};
use codegen::listing::Lowering;
use codegen::words::abi::Reg;
use codegen::words::error::Result;
use codegen::words::step::{Callee, Disp, Local, RecordStep};

use crate::abi::ABI;
use crate::insn::{Insn, parts};
use crate::regs::*;

/// A value for a slot.
const TEMP: Reg = T1;
/// The slot of a record, and the address of the cursor or the counter, which outlives the call of a routine that makes room.
const SLOT: Reg = T3;
const CELL: Reg = T4;
/// The offset of the word with the address of both records' slot, while the function runs.
const KEPT: Disp = Disp::number(0);

/// What says whether there is room; and how many bytes a record has, when it is known that there is. Where all others are kept,
/// these are registers that are free then.
fn limits(recorder: Recorder) -> (Reg, Reg) {
    if recorder.keeps_all { (TEMP, CELL) } else { (T5, T5) }
}

/// The register from which the thread's words are counted: the thread pointer, or `free`, with where the thread's own copy of a
/// variable is.
pub(crate) fn thread(free: Reg, cx: &mut Lowering<Insn>) -> Result<Reg> {
    let Some(sym) = cx.tls()? else { return Ok(TP) };
    cx.insn(Insn::LuiTls { dst: free, sym });
    cx.insn(Insn::AddTo { dst: free, add: TP });
    cx.insn(Insn::AddiTls { dst: free, sym });
    Ok(free)
}

/// Lower a step that they alone have.
pub(crate) fn lower(step: RecordStep, cx: &mut Lowering<Insn>) -> Result<()> {
    let recorder = cx.recorder()?;
    let (limit, _) = limits(recorder);
    match step {
        RecordStep::Count => {
            let imm = cx.word(ThreadWord::Count)?;
            cx.insn(Insn::Addi { dst: SLOT, src: ZERO, imm: Disp::number(1) });
            let src = thread(CELL, cx)?;
            cx.insn(Insn::Addi { dst: CELL, src, imm });
            cx.noted(Insn::AmoaddD { dst: SLOT, add: SLOT, base: CELL }, "amoadd.d t3, t3, (t4): entries");
        }
        RecordStep::Slot(event) if recorder.pair && event != Event::Entry => {
            cx.noted(Insn::Ld { dst: SLOT, at: KEPT }, "the slot of the entry");
        }
        RecordStep::Slot(event) => {
            let imm = cx.word(ThreadWord::Cursor)?;
            let base = thread(CELL, cx)?;
            if !recorder.refill {
                let at = cx.word(ThreadWord::Limit)?;
                cx.noted(Insn::LdReg { dst: limit, base, at }, "where the buffer ends");
            }
            cx.insn(Insn::Addi { dst: CELL, src: base, imm });
            take(event, cx)?;
        }
        RecordStep::SlotAgain(event) => take(event, cx)?,
        RecordStep::BranchIfFull(_, to) if recorder.refill => {
            cx.insn(Insn::SlliUp { dst: limit, src: SLOT, bit: cx.number(NumberOf::RecordFull)? });
            cx.noted(Insn::Bltz { reg: limit, to }, "no room there");
        }
        RecordStep::BranchIfFull(event, to) if recorder.pair && event != Event::Entry => {
            cx.insn(Insn::SlliUp { dst: limit, src: SLOT, bit: Disp::number(0) });
            cx.noted(Insn::Bltz { reg: limit, to }, "no room there");
        }
        RecordStep::KeepSlot => cx.noted(Insn::Sd { src: SLOT, at: KEPT }, "for the return"),
        RecordStep::NoSlot => {
            cx.noted(Insn::Addi { dst: SLOT, src: ZERO, imm: Disp::number(Recorder::NO_SLOT) }, "no slot");
            cx.noted(Insn::J { to: Local::Recorded(Event::Entry) }, "j");
        }
        RecordStep::BranchIfFull(_, to) => cx.insn(Insn::Bgeu { reg: SLOT, with: limit, to }),
        RecordStep::Refill(event) => refill(!recorder.has_frame(event), cx),
        RecordStep::ToRoom(event) => cx.noted(Insn::J { to: Local::Room(event) }, "j"),
        RecordStep::What(event) => {
            // In two instructions of four bytes, whatever the number is: those of all functions are alike.
            let (imm, low) = parts(recorder.what(event));
            cx.noted(Insn::LuiWide { dst: TEMP, imm }, "lui t1: the number of the function");
            cx.noted(Insn::AddiwWide { dst: TEMP, imm: low }, "addiw t1, t1");
            let at = Disp::number(recorder.begins(event) + Recorder::WHAT);
            cx.noted(Insn::SdReg { src: TEMP, base: SLOT, at }, "what happened");
        }
        RecordStep::Time(event) => time(event, cx)?,
        RecordStep::Timed(_) | RecordStep::Room(_) | RecordStep::Recorded(_) => {}
        RecordStep::Words(event) => {
            for (n, &src) in recorder.registers(event, &ABI).iter().enumerate() {
                cx.insn(Insn::SdReg {
                    src,
                    base: SLOT,
                    at: Disp::number(recorder.begins(event) + Recorder::WORDS + 8 * n as i32),
                });
            }
        }
        RecordStep::Resume => resume(cx),
    }
    Ok(())
}

/// Take a slot. CELL has the address of the cursor.
fn take(event: Event, cx: &mut Lowering<Insn>) -> Result<()> {
    let imm = Disp::number(cx.recorder()?.slot_bytes(event));
    cx.insn(Insn::Addi { dst: SLOT, src: ZERO, imm });
    cx.noted(Insn::AmoaddD { dst: SLOT, add: SLOT, base: CELL }, "amoadd.d t3, t3, (t4): the slot");
    Ok(())
}

/// Call the routine that may make room. Where there is no frame, ra is live, and stack traces find the function's caller
/// by this one.
fn refill(framed: bool, cx: &mut Lowering<Insn>) {
    let (fp, ra) = (Disp::number(0), Disp::number(8));
    let add = |dst: Reg, imm: i32| Insn::Addi { dst, src: SP, imm: Disp::number(imm) };
    if framed {
        cx.insn(add(SP, -16));
        cx.insn(Insn::Sd { src: RA, at: ra });
        cx.insn(Insn::Sd { src: S0, at: fp });
        cx.insn(add(S0, 16));
    }
    let sym = cx.callee(Callee::Named);
    cx.noted(Insn::Call { sym }, "keeps every register but ra");
    if framed {
        cx.insn(Insn::Ld { dst: RA, at: ra });
        cx.insn(Insn::Ld { dst: S0, at: fp });
        cx.insn(add(SP, 16));
    }
}

/// The time of a record.
fn time(event: Event, cx: &mut Lowering<Insn>) -> Result<()> {
    let recorder = cx.recorder()?;
    let at = Disp::number(recorder.begins(event) + Recorder::TIME);
    let store = |src: Reg| Insn::SdReg { src, base: SLOT, at };
    match recorder.clock {
        Clock::None if recorder.pair && event != Event::Entry => {
            let at = cx.word(ThreadWord::Cursor)?;
            let base = thread(TEMP, cx)?;
            cx.noted(Insn::LdReg { dst: TEMP, base, at }, "calls with slots before that began before");
        }
        Clock::None => {
            cx.noted(store(ZERO), "no time");
            return Ok(());
        }
        Clock::Word => {
            let (sym, anchor) = (cx.clock()?, Local::ClockAnchor(event));
            cx.local(anchor);
            cx.insn(Insn::AuipcHi { dst: TEMP, sym });
            cx.noted(Insn::LdLo { dst: TEMP, anchor }, "time");
        }
        Clock::Tsc => cx.noted(Insn::Rdtime { dst: TEMP }, "rdtime t1"),
        Clock::Stamp8 => {
            let bytes = recorder.bytes(event);
            cx.noted(store(ZERO), "no time yet");
            let last = Disp::number(bytes - 1);
            cx.noted(Insn::Addi { dst: TEMP, src: SLOT, imm: last }, "the last byte of the slot");
            cx.insn(Insn::AndLow { dst: TEMP, src: TEMP, bits: Recorder::BLOCK.ilog2() as u8 });
            let (_, with) = limits(recorder);
            cx.insn(Insn::Addi { dst: with, src: ZERO, imm: Disp::number(bytes) });
            cx.insn(Insn::Bgeu { reg: TEMP, with, to: Local::Timed(event) });
            cx.noted(Insn::Rdtime { dst: TEMP }, "rdtime t1");
        }
    }
    cx.insn(store(TEMP));
    Ok(())
}

/// Hand the exception back. It is where the unwinder wants it.
fn resume(cx: &mut Lowering<Insn>) {
    let sym = cx.resume();
    cx.insn(Insn::Call { sym });
}
