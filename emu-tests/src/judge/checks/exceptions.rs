//! P23: an exception comes out of the traced function. The judge is the unwinder: it takes from the image's own tables where
//! the exception goes, sets the CPU as they say, and looks at what the landing pad made of it.

use std::cell::Cell;
use std::sync::Arc;

use codegen::arch::pads::{IndirectBranch, Pad};
use codegen::profile::lsda::{PERSONALITY, RESUME};
use codegen::words::abi::Reg;
use codegen::words::error::Result;
use codegen::words::recorder::{Clock, Event, Recorder};

use crate::engine::call_sites::{Goes, goes};
use crate::engine::cpu::{EXIT, word};
use crate::engine::registers::Snapshot;
use crate::engine::rng::Rng;
use crate::engine::unwind::Rule;
use crate::judge::checks::signals::{interleaved, recorded, signal};
use crate::judge::checks::walk::{inside, walk};
use crate::judge::rig::Rig;
use crate::judge::tally::Tally;
use crate::judge::trace::{At, Finding};
use crate::report::Clause;
use crate::report::place::Place;
use crate::run::case::Case;
use crate::run::thread::{TIME, Words, Written};

/// Instructions of the longest landing pad.
const LONGEST: usize = 400;
/// Bytes below SP that unwinders overwrite.
const BELOW: u64 = 2048;
/// Bytes of the largest instruction, and of a pair that is one call.
const CALL: u64 = 15;

/// Where the CPU is at an instruction of the trampoline.
struct Frame {
    cfa: u64,
    returns: u64,
    saved: Vec<(Reg, u64)>,
}

/// An exception on its way, when the CPU is at the landing pad.
struct Thrown {
    pad: u64,
    /// SP as it was when the function was called, and is again.
    sp: u64,
    exception: u64,
}

/// What is wrong: where, what, what it should be, and what it is.
type Told = Vec<(u64, Place, u64, u64)>;

/// Throw an exception in the traced function of this case, which the trampoline calls.
///
/// # Errors
/// The engine has no room to remember the CPU.
pub(crate) fn judge_thrown(rig: &mut Rig, case: &Arc<Case>, tally: &mut Tally) -> Result<()> {
    let contract = &rig.suite.contracts[case.attach];
    let (Some(recorder), Some(words)) = (contract.kind.recorder(), Words::of(contract)) else { return Ok(()) };
    if !recorder.unwind {
        return Ok(());
    }
    let mut told = Told::new();
    if let Some(thrown) = throw(rig, case, &mut told) {
        passes(rig, case, &thrown, &mut told);
        let left = words.left(&*rig.uc);
        let written = wanted(recorder, case, rig);
        if let Some(refills) = words.refills(case, &written) {
            let place = Box::new(Place::Refills);
            told.push((thrown.pad, Place::Unwound { place }, refills, rig.trace().refills()));
        }
        let wanted = words.wanted(case, &written, 0);
        for ((at, want), (_, have)) in wanted.near.into_iter().zip(left.near) {
            let place = if at == words.cursor { Place::Cursor } else { Place::BesideWords };
            told.push((thrown.pad, Place::Unwound { place: Box::new(place) }, want, have));
        }
        for (n, (want, have)) in wanted.buffer.into_iter().zip(left.buffer).enumerate() {
            let place = Box::new(Place::Buffer { offset: 8 * n });
            told.push((thrown.pad, Place::Unwound { place }, want, have));
        }
    }
    let sound = told.iter().all(|(.., expected, found)| expected == found);
    if case.closely && sound {
        interrupted(rig, case, words, &mut told)?;
    }
    for (pc, place, expected, found) in told {
        let clause = if matches!(place, Place::SignalSlots | Place::SignalRecords) { Clause::P25 } else { Clause::P23 };
        tally.judged(case, Finding::new(At { clause, trampoline: case.attach, pc }, place, expected, found));
    }
    rig.dirty = true;
    Ok(())
}

/// Run the function up to its body, and let an exception come out of that. `None` if there is no landing pad to look at.
fn throw(rig: &mut Rig, case: &Arc<Case>, told: &mut Told) -> Option<Thrown> {
    rig.load_case(case, &case.initial.registers, false);
    let name = &rig.functions[case.function].name;
    let (start, body) = (rig.function(name), rig.body(name));
    if walk(rig, start, |at| at == body, |_, _| {}) != Some(body) {
        // What is wrong with it has been said.
        return None;
    }
    let abi = rig.registers.abi;
    let (at_body, sp) = (rig.registers.general(&*rig.uc), rig.registers.sp(&*rig.uc));
    let came_from = match abi.link {
        Some(link) => at_body[link],
        None => word(&*rig.uc, sp),
    };
    let thrown_at = sp.wrapping_add(abi.return_bytes());
    let (asked, where_to) = goes(&rig.image, came_from.wrapping_sub(1));
    told.push((came_from, Place::Personality, rig.address(PERSONALITY), asked.unwrap_or(0)));
    let pad = if let Goes::To(pad) = where_to { Some(pad).filter(|pad| inside(rig, case, *pad)) } else { None };
    told.push((came_from, Place::Handled, 1, pad.is_some().into()));
    let pad = pad.filter(|_| asked.is_some())?;
    let contract = &rig.suite.contracts[case.attach];
    if contract.landing_pad && contract.facts.unwinders_jump {
        let fits =
            |p: &Pad| p.lets.contains(&IndirectBranch::Jump) && rig.image.bytes(pad, p.bytes.len()) == Some(p.bytes);
        told.push((pad, Place::PadForException, 1, rig.registers.machine.pads.iter().any(fits).into()));
    }
    // As the unwinder finds it: what the function saved is back, all else may be anything.
    let mut rng = Rng::new(case.seed, 0x23);
    let mut all = at_body.clone();
    for reg in abi.caller_saved.iter().chain(abi.link).filter(|reg| *reg != abi.sp) {
        all[reg] = rng.canary();
    }
    let exception = rng.canary();
    if let Some(&first) = abi.rets.first() {
        all[first] = exception;
    }
    all[abi.sp] = thrown_at;
    rig.registers.load(&mut *rig.uc, &all);
    let garbage: Vec<u8> = (0..BELOW / 8).flat_map(|_| rng.canary().to_le_bytes()).collect();
    rig.uc.store(thrown_at - BELOW, &garbage);
    rig.trace().first_reading();
    Some(Thrown { pad, sp: thrown_at, exception })
}

/// From the landing pad to the end, looking at the unwind table on the way.
fn passes(rig: &mut Rig, case: &Case, thrown: &Thrown, told: &mut Told) {
    let (resume, start, size) = (rig.address(RESUME), rig.ranges[case.attach].0, rig.ranges[case.attach].1);
    // The routine that may make room is called and comes back.
    let callee = &rig.suite.contracts[case.attach].callee;
    let routine = rig.image.symbols.iter().find(|s| s.name == *callee).map_or(0..0, |s| s.address..s.address + s.size);
    let own = |at: u64| at.wrapping_sub(start) < size;
    let ends = |at: u64| at == resume || !(own(at) || routine.contains(&at));
    let calls = rig.decode(case.attach).unwrap_or_default().into_iter();
    let calls: Vec<u64> = calls.filter(|d| d.branch.is_some_and(|branch| branch.pushes)).map(|d| d.at).collect();
    let mut last = thrown.pad;
    let end = walk(rig, thrown.pad, ends, |rig, at| {
        if at == routine.start && own(last) {
            told.push((last, Place::ReturnsWithoutCall, 0, u64::from(!calls.contains(&last))));
        }
        last = at;
        if case.closely && own(at) {
            compare(rig, case, at, at, told);
        }
    });
    told.push((thrown.pad, Place::Resumed, resume, end.unwrap_or(0)));
    if end == Some(resume) {
        handed_back(rig, case, thrown, told);
    }
}

/// P25 of the landing pad: a signal before each of its instructions.
fn interrupted(rig: &mut Rig, case: &Arc<Case>, words: Words, told: &mut Told) -> Result<()> {
    let Some(recorder) = rig.suite.contracts[case.attach].kind.recorder() else { return Ok(()) };
    let whats = |events: &[Event]| -> Vec<u64> {
        events.iter().map(|event| i64::from(recorder.what(*event)).cast_unsigned()).collect()
    };
    let taken = |events: &[Event]| events.iter().map(|event| recorder.bytes(*event) as u64).sum::<u64>();
    let (one, other) = (recorder.unwound(), recorder.recorded());
    let resume = rig.address(RESUME);
    let start = rig.function(&rig.functions[case.function].name);
    for n in 0..LONGEST {
        let Some(thrown) = throw(rig, case, &mut Told::new()) else { break };
        let done = Cell::new(0);
        let at = walk(rig, thrown.pad, |at| at == resume || done.get() == n, |_, _| done.set(done.get() + 1));
        let Some(at) = at.filter(|at| *at != resume) else { break };
        let came_back = signal(rig, case, start)?;
        let end = if came_back { walk(rig, at, |at| at == resume, |_, _| {}) } else { None };
        let both = recorded(rig, words, case);
        let room = words.room(case);
        let whole = end.is_some() && !both.overrun && interleaved(&whats(one), &whats(other), &both.whats, room);
        if words.counts(case) {
            told.push((at, Place::SignalSlots, taken(one) + taken(other), both.taken));
        }
        told.push((at, Place::SignalRecords, 1, whole.into()));
    }
    Ok(())
}

/// What the unwinder gets back, and how it goes on from there.
fn handed_back(rig: &Rig, case: &Case, thrown: &Thrown, told: &mut Told) {
    let abi = rig.registers.abi;
    let sp = rig.registers.sp(&*rig.uc);
    let from = match abi.link {
        Some(link) => rig.registers.get(&*rig.uc, link),
        None => word(&*rig.uc, sp),
    };
    let given = abi.args.first().map_or(0, |reg| rig.registers.get(&*rig.uc, *reg));
    let call = from.wrapping_sub(1);
    let (_, goes_on) = goes(&rig.image, call);
    told.push((from, Place::Exception, thrown.exception, given));
    told.push((from, Place::SpResumed, thrown.sp, sp.wrapping_add(abi.return_bytes())));
    told.push((from, Place::GoesOn, 1, (goes_on == Goes::On).into()));
    let table = rig.table();
    let described = |at: &u64| table.as_ref().is_some_and(|table| table.row(*at).is_some());
    match (0..CALL).map(|back| call.wrapping_sub(back)).find(described) {
        Some(row) => compare(rig, case, from, row, told),
        None => told.push((from, Place::Cfa, 1, 0)),
    }
}

/// Compare the caller's frame, as the row of `at` says, with what it was when the function was called.
fn compare(rig: &Rig, case: &Case, pc: u64, at: u64, told: &mut Told) {
    let abi = rig.registers.abi;
    let mut now = rig.registers.general(&*rig.uc);
    if pc != at {
        // Behind the call.
        now[abi.sp] = now[abi.sp].wrapping_add(abi.return_bytes());
    }
    let Some(frame) = frame(rig, case, at, &now) else {
        told.push((pc, Place::Cfa, 1, 0));
        return;
    };
    let initial = &case.initial.registers;
    told.push((pc, Place::Cfa, case.initial.sp.wrapping_add(abi.return_bytes()), frame.cfa));
    told.push((pc, Place::UnwindReturn, EXIT, frame.returns));
    for (reg, found) in frame.saved {
        told.push((pc, Place::Column { name: abi.name(reg) }, initial[reg], found));
    }
}

fn frame(rig: &Rig, case: &Case, at: u64, now: &Snapshot) -> Option<Frame> {
    let abi = rig.registers.abi;
    let table = rig.table()?;
    let row = table.row(at)?;
    let cfa = row.cfa(&now.gpr);
    let value = |rule: Rule| rule.value(cfa, &now.gpr, |at| word(&*rig.uc, at));
    let scs = rig.suite.contracts[case.attach].scs();
    let saved = row.tells.iter().chain(scs).filter(|reg| Some(*reg) != abi.link && *reg != abi.sp);
    let saved = saved.map(|reg| (reg, value(row.rule(reg)))).collect();
    let returns = row.returns.map_or(0, |rule| row.return_address(rig.registers.machine, value(rule)));
    Some(Frame { cfa, returns, saved })
}

/// The records of a function that an exception leaves. The time stands still.
fn wanted(recorder: Recorder, case: &Case, rig: &Rig) -> Vec<Written> {
    let time = if recorder.clock == Clock::None { 0 } else { TIME };
    let initial = &case.initial.registers;
    let written = |event: &Event| {
        let mut words = vec![time, i64::from(recorder.what(*event)).cast_unsigned()];
        words.extend(recorder.registers(*event, rig.registers.abi).iter().map(|reg| initial[*reg]));
        Written { words, stamp: recorder.clock == Clock::Stamp8 }
    };
    recorder.unwound().iter().map(written).collect()
}
