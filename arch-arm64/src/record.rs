//! Trampolines that record: the registers that sites leave for scratch are all that they need, unless they keep those too.

use codegen::arch::facts::{NumberOf, ThreadWord};
use codegen::ask::spec::{Clock, Event, Recorder};
use codegen::listing::Lowering;
use codegen::words::abi::Reg;
use codegen::words::error::{Error, Result};
use codegen::words::step::{Callee, Disp, Local, RecordStep};

use crate::abi::ABI;
use crate::insn::{Insn, XZR};
use crate::regs::*;

/// The registers that they use.
#[derive(Clone, Copy)]
pub(crate) struct Scratch {
    /// Where the thread's words are counted from, and what is made of it. It outlives the call of a routine that makes room.
    pub(crate) thread: Reg,
    /// The slot of a record, or an entry of the shadow stack.
    pub(crate) slot: Reg,
    /// A value for it.
    pub(crate) value: Reg,
    /// SP where the function has returned.
    pub(crate) returned: Reg,
    /// The instruction that takes a slot, which an assembler may not know by name.
    takes: &'static str,
}

impl Scratch {
    /// The scratch registers that sites leave.
    const OF_SITE: Scratch =
        Scratch { thread: X10, slot: X11, value: X12, returned: X13, takes: "ldadd x11, x11, [x10]: the slot" };
    /// Where all others are kept: the two that any call may overwrite, and one that the frame has saved.
    const SAVED: Scratch =
        Scratch { slot: X16, value: X17, returned: X10, takes: "ldadd x16, x16, [x10]: the slot", ..Scratch::OF_SITE };

    /// The scratch registers of this trampoline.
    pub(crate) fn of(recorder: Recorder) -> Scratch {
        if recorder.keeps_all { Scratch::SAVED } else { Scratch::OF_SITE }
    }
}

/// The offset of the word with the address of both records' slot, while the function runs.
const KEPT: Disp = Disp::number(0);

/// Where the thread's words are counted from: the thread pointer, as the profile says, or the thread's own copy of a variable.
pub(crate) fn thread(dst: Reg, cx: &mut Lowering<Insn>) -> Result<()> {
    let name = cx.thread()?;
    let of = Thread::ALL.into_iter().find(|of| of.name() == name);
    let of = of.ok_or_else(|| Error::unknown("thread pointer", name, Thread::ALL.map(Thread::name)))?;
    cx.insn(Insn::MrsThread { dst, of });
    if let Some(sym) = cx.tls()? {
        cx.insn(Insn::AddTlsHigh { dst, src: dst, sym });
        cx.insn(Insn::AddTlsLow { dst, src: dst, sym });
    }
    Ok(())
}

/// Lower a step that they alone have.
pub(crate) fn lower(step: RecordStep, cx: &mut Lowering<Insn>) -> Result<()> {
    let recorder = cx.recorder()?;
    let Scratch { thread: temp, slot, value, .. } = Scratch::of(recorder);
    match step {
        RecordStep::Count => {
            let imm = cx.word(ThreadWord::Count)?;
            thread(temp, cx)?;
            cx.insn(Insn::Movz { dst: slot, imm: 1 });
            cx.insn(Insn::Add { dst: temp, src: temp, imm });
            cx.noted(Insn::Ldadd { add: slot, dst: slot, base: temp }, "ldadd x11, x11, [x10]: entries");
        }
        RecordStep::Slot(event) if recorder.pair && event != Event::Entry => {
            cx.noted(Insn::Ldr { dst: slot, at: KEPT }, "the slot of the entry");
        }
        RecordStep::Slot(event) => {
            let cursor = cx.word(ThreadWord::Cursor)?;
            // What looks at the shadow stack before has it there.
            if !recorder.shadow {
                thread(temp, cx)?;
            }
            if !recorder.refill {
                let at = cx.word(ThreadWord::Limit)?;
                cx.noted(Insn::LdrReg { dst: value, base: temp, at }, "where the buffer ends");
            }
            cx.insn(Insn::Add { dst: temp, src: temp, imm: cursor });
            take(event, cx)?;
        }
        RecordStep::SlotAgain(event) => take(event, cx)?,
        RecordStep::BranchIfFull(_, to) if recorder.refill => {
            cx.noted(Insn::Tbnz { reg: slot, bit: cx.number(NumberOf::RecordFull)?, to }, "no room there");
        }
        RecordStep::BranchIfFull(event, to) if recorder.pair && event != Event::Entry => {
            cx.noted(Insn::Tbnz { reg: slot, bit: Disp::number(0), to }, "no room there");
        }
        RecordStep::KeepSlot => cx.noted(Insn::Str { src: slot, at: KEPT }, "for the return"),
        RecordStep::NoSlot => {
            cx.noted(Insn::Movz { dst: slot, imm: Recorder::NO_SLOT as u16 }, "no slot");
            cx.insn(Insn::BLocal { to: Local::Recorded(Event::Entry) });
        }
        RecordStep::BranchIfFull(_, to) => {
            cx.insn(Insn::Cmp { reg: slot, with: value });
            cx.insn(Insn::BHs { to });
        }
        RecordStep::Refill(event) => refill(!recorder.has_frame(event), cx),
        RecordStep::ToRoom(event) => cx.insn(Insn::BLocal { to: Local::Room(event) }),
        RecordStep::What(event) => {
            // In two instructions, whatever the number is: those of all functions are alike.
            let what = recorder.what(event);
            cx.insn(Insn::Movz { dst: value, imm: what as u16 });
            cx.insn(Insn::Movk { dst: value, imm: (what >> 16) as u16, shift: 16 });
            let at = Disp::number(recorder.begins(event) + Recorder::WHAT);
            cx.noted(Insn::StrReg { src: value, base: slot, at }, "what happened");
        }
        RecordStep::Time(event) => time(event, cx)?,
        RecordStep::Timed(_) | RecordStep::Room(_) | RecordStep::Recorded(_) => {}
        RecordStep::Words(event) => {
            for (n, &src) in recorder.registers(event, &ABI).iter().enumerate() {
                cx.insn(Insn::StrReg {
                    src,
                    base: slot,
                    at: Disp::number(recorder.begins(event) + Recorder::WORDS + 8 * n as i32),
                });
            }
        }
        RecordStep::Resume => resume(cx),
    }
    Ok(())
}

/// Take a slot. The address of the cursor is at hand.
fn take(event: Event, cx: &mut Lowering<Insn>) -> Result<()> {
    let recorder = cx.recorder()?;
    let Scratch { thread: temp, slot, takes, .. } = Scratch::of(recorder);
    cx.insn(Insn::Movz { dst: slot, imm: recorder.slot_bytes(event) as u16 });
    cx.noted(Insn::Ldadd { add: slot, dst: slot, base: temp }, takes);
    Ok(())
}

/// Call the routine that may make room. Where there is no frame, x30 is live, and stack traces find the function's
/// caller by this one.
fn refill(framed: bool, cx: &mut Lowering<Insn>) {
    let (at, imm) = (Disp::number(0), Disp::number(16));
    if framed {
        cx.insn(Insn::SubSp { imm });
        cx.insn(Insn::Stp { a: X29, b: X30, at });
        cx.insn(Insn::AddSp { dst: X29, imm: at });
    }
    let sym = cx.callee(Callee::Named);
    cx.noted(Insn::Bl { sym }, "keeps every register but x30");
    if framed {
        cx.insn(Insn::Ldp { a: X29, b: X30, at });
        cx.insn(Insn::AddSp { dst: SP, imm });
    }
}

/// The time of a record.
fn time(event: Event, cx: &mut Lowering<Insn>) -> Result<()> {
    let recorder = cx.recorder()?;
    let Scratch { thread: temp, slot, value, .. } = Scratch::of(recorder);
    let at = Disp::number(recorder.begins(event) + Recorder::TIME);
    let store = |src: Reg| Insn::StrReg { src, base: slot, at };
    match recorder.clock {
        Clock::None if recorder.pair && event != Event::Entry => {
            let at = cx.word(ThreadWord::Cursor)?;
            thread(temp, cx)?;
            cx.noted(Insn::LdrReg { dst: value, base: temp, at }, "calls with slots before that began before");
        }
        Clock::None => {
            cx.noted(store(XZR), "no time");
            return Ok(());
        }
        Clock::Word => {
            let sym = cx.clock()?;
            cx.insn(Insn::Adrp { dst: value, sym });
            cx.noted(Insn::LdrLo12 { dst: value, base: value, sym }, "time");
        }
        Clock::Tsc => cx.noted(Insn::MrsClock { dst: value }, "time"),
        Clock::Stamp8 => {
            let bytes = recorder.bytes(event);
            cx.noted(store(XZR), "no time yet");
            cx.noted(Insn::Add { dst: value, src: slot, imm: Disp::number(bytes - 1) }, "the last byte of the slot");
            cx.insn(Insn::AndLow { dst: value, src: value, bits: Recorder::BLOCK.ilog2() as u8 });
            cx.insn(Insn::Movz { dst: temp, imm: bytes as u16 });
            cx.insn(Insn::Cmp { reg: value, with: temp });
            cx.insn(Insn::BHs { to: Local::Timed(event) });
            cx.noted(Insn::MrsClock { dst: value }, "time");
        }
    }
    cx.insn(store(value));
    Ok(())
}

/// Hand the exception back. It is where the unwinder wants it.
fn resume(cx: &mut Lowering<Insn>) {
    let sym = cx.resume();
    cx.insn(Insn::Bl { sym });
}
