//! P25: a signal before each instruction, whose handler calls a traced function itself, changes nothing, and leaves exactly the
//! records of both.

use std::sync::Arc;

use codegen::words::abi::RegSet;
use codegen::words::error::Result;

use crate::engine::cpu::{EXIT, put_word};
use crate::engine::interface::Ended;
use crate::engine::registers::Snapshot;
use crate::engine::rng::Rng;
use crate::engine::shadow_stack::FRESH;
use crate::judge::checks::compare::agree;
use crate::judge::checks::walk::{inside, walk};
use crate::judge::rig::Rig;
use crate::judge::tally::Tally;
use crate::judge::trace::{At, Finding};
use crate::report::Clause;
use crate::report::place::Place;
use crate::run::case::{Case, Outcome};
use crate::run::situation::Situation;
use crate::run::thread::{COUNT, Words};

/// Bytes below SP at which a signal handler's frame begins: behind the red zone of programs.
const BELOW: u64 = 512;
/// Where the handler's call comes back to: not where the function goes that it interrupted.
const BACK: u64 = EXIT + 256;
/// Instructions of the longest run that is interrupted at each.
const LONGEST: u64 = 600;

/// What a run recorded.
pub(crate) struct Recorded {
    /// The second words of the records that are there.
    pub whats: Vec<u64>,
    /// Bytes that were taken, also where there was no room.
    pub taken: u64,
    /// Something was stored where no record can be.
    pub overrun: bool,
    counted: u64,
}

/// Let a handler run here that calls the traced function, which begins at `start`. Afterwards the CPU is as it was. Did the
/// handler's call come back?
///
/// # Errors
/// The engine has no room to remember the CPU.
pub(crate) fn signal(rig: &mut Rig, case: &Case, start: u64) -> Result<bool> {
    let interrupted = rig.uc.save()?;
    let in_handler = handler(rig, case);
    rig.registers.load(&mut *rig.uc, &in_handler);
    let ended = rig.uc.run(start, BACK);
    let came_back = ended.is_ok() && rig.uc.pc() == BACK;
    rig.uc.restore(&interrupted);
    Ok(came_back)
}

/// Interrupt the run of a case before each instruction: of one that records, all of them; of others, those of the trampoline.
///
/// # Errors
/// The engine has no room to remember the CPU.
pub(crate) fn judge_signals(rig: &mut Rig, case: &Arc<Case>, expected: &Outcome, tally: &mut Tally) -> Result<()> {
    match Words::of(&rig.suite.contracts[case.attach]) {
        Some(words) => judge_recorder(rig, case, words, expected, tally)?,
        None => judge_reentered(rig, case, tally)?,
    }
    rig.dirty = true;
    Ok(())
}

fn judge_recorder(rig: &mut Rig, case: &Arc<Case>, words: Words, expected: &Outcome, tally: &mut Tally) -> Result<()> {
    let start = rig.function(&rig.functions[case.function].name);
    // Alone and with room for all, to know what one run records.
    let roomy = if case.situation.untraced() { case.situation } else { Situation::PLAIN };
    let roomy = Arc::new(Case { situation: roomy, ..Case::clone(case) });
    rig.load_case(&roomy, &case.initial.registers, false);
    let alone = rig.uc.run(start, EXIT);
    let wrong = alone.is_err() || rig.uc.pc() != EXIT;
    let one = recorded(rig, words, &roomy);
    let written = words.left(&*rig.uc).buffer;
    if wrong {
        // What is wrong with it has been said.
        return Ok(());
    }
    for n in 0..LONGEST {
        let Some(at) = stopped(rig, case, n) else { break };
        let finding = |place, expected, found| {
            Finding::new(At { clause: Clause::P25, trampoline: case.attach, pc: at }, place, expected, found)
        };
        if case.situation == roomy.situation {
            let lacks = unfinished(words, case, &written, &words.left(&*rig.uc).buffer);
            tally.judged(case, finding(Place::SignalUnfinished, 0, lacks));
        }
        let ended = interrupted(rig, case, at)?;
        let both = recorded(rig, words, case);
        let whole = !both.overrun && interleaved(&one.whats, &one.whats, &both.whats, words.room(case));
        tally.judged(case, finding(Place::SignalCount, 2 * one.counted, both.counted));
        if words.counts(case) {
            tally.judged(case, finding(Place::SignalSlots, 2 * one.taken, both.taken));
        }
        tally.judged(case, finding(Place::SignalRecords, 1, whole.into()));
        tally.judged(case, finding(Place::SignalAfter, 0, differing(rig, case, expected, ended)));
    }
    Ok(())
}

/// A run of a case that records nothing must end as it does alone.
fn judge_reentered(rig: &mut Rig, case: &Arc<Case>, tally: &mut Tally) -> Result<()> {
    let start = rig.function(&rig.functions[case.function].name);
    let mut way = Vec::new();
    rig.load_case(case, &case.initial.registers, false);
    if walk(rig, start, |at| at == EXIT, |_, at| way.push(at)).is_none() {
        // It needs what hooks do in place of the kernel, or is too long.
        return Ok(());
    }
    let alone = rig.collect(case, Ok(()));
    for (n, at) in (0..).zip(way) {
        if !inside(rig, case, at) {
            continue;
        }
        if stopped(rig, case, n) != Some(at) {
            break;
        }
        let ended = interrupted(rig, case, at)?;
        let at = At { clause: Clause::P25, trampoline: case.attach, pc: at };
        tally.judged(case, Finding::new(at, Place::SignalAfter, 0, differing(rig, case, &alone, ended)));
    }
    Ok(())
}

/// Run a case up to the instruction with this number. Where that is; `None` behind the last.
fn stopped(rig: &mut Rig, case: &Arc<Case>, n: u64) -> Option<u64> {
    let start = rig.function(&rig.functions[case.function].name);
    rig.load_case(case, &case.initial.registers, false);
    // The engine can count them itself, and then stops anywhere.
    rig.trace().steps(n);
    let ended = rig.uc.run(start, EXIT);
    rig.trace().step(false);
    Some(rig.uc.pc()).filter(|at| ended.is_ok() && *at != EXIT)
}

/// Let a signal's handler run before this instruction, and the case go on. How it ended; `None` if the handler's call did not
/// come back.
fn interrupted(rig: &mut Rig, case: &Case, at: u64) -> Result<Option<Ended>> {
    let start = rig.function(&rig.functions[case.function].name);
    Ok(signal(rig, case, start)?.then(|| rig.uc.go_on(at, EXIT)))
}

/// How much differs at the end from what is expected.
fn differing(rig: &mut Rig, case: &Arc<Case>, expected: &Outcome, ended: Option<Ended>) -> u64 {
    let Some(ended) = ended else { return 1 };
    let outcome = rig.collect(case, ended);
    let mut differ = std::mem::take(&mut rig.trace().checks.findings);
    agree(rig, case, expected, &outcome, 1 << case.attach, &mut differ);
    differ.len() as u64
}

/// The CPU where a handler calls the function: all that C may overwrite is overwritten.
fn handler(rig: &mut Rig, case: &Case) -> Snapshot {
    let (registers, abi) = (rig.registers, rig.registers.abi);
    let mut all = registers.general(&*rig.uc);
    let sp = (registers.sp(&*rig.uc) - BELOW) & !15;
    let mut rng = Rng::new(case.seed, 0x500);
    for reg in rig.suite.contracts[case.attach].c_loses().minus(RegSet::of(&[abi.sp])).iter() {
        all[reg] = rng.canary();
    }
    if case.sret {
        // What is returned to the handler lies in its own frame.
        all[abi.sret] = sp + BELOW / 4;
    }
    match abi.link {
        Some(link) => {
            all[link] = BACK;
            all[abi.sp] = sp;
        }
        None => {
            all[abi.sp] = sp - abi.return_bytes();
            put_word(&mut *rig.uc, sp - abi.return_bytes(), BACK);
        }
    }
    all
}

/// What a run left in the thread's memory.
pub(crate) fn recorded(rig: &Rig, words: Words, case: &Case) -> Recorded {
    let left = words.left(&*rig.uc);
    let of = |at: u64| left.near.iter().find(|(place, _)| *place == at).map_or(0, |(_, value)| *value);
    let mut whats = Vec::new();
    for from in words.beginnings(case) {
        let mut at = ((from - words.buffer) / 8) as usize;
        while let Some(what) = left.buffer.get(at + 1).copied().filter(|what| *what != FRESH) {
            let behind = at + bytes(what) as usize / 8;
            // Of both records of a call, the second is in the upper half.
            let returned = left.buffer.get(behind + 1).copied().filter(|_| words.pair);
            let what = what | returned.map_or(0, |returned| returned << 32);
            whats.push(what);
            at += bytes(what) as usize / 8;
        }
    }
    let taken = of(words.cursor).wrapping_sub(words.first(case));
    let overrun = words.overruns(case, &left);
    Recorded { whats, taken, overrun, counted: of(words.count).wrapping_sub(COUNT) }
}

/// How many words are not there yet of records that say already what happened; in the end the buffer is as `written`.
fn unfinished(words: Words, case: &Case, written: &[u64], now: &[u64]) -> u64 {
    let mut lacking = 0;
    for from in words.beginnings(case) {
        let mut at = ((from - words.buffer) / 8) as usize;
        while let Some(what) = written.get(at + 1).copied().filter(|what| *what != FRESH) {
            let size = bytes(what) as usize / 8;
            if now.get(at + 1) == Some(&what) {
                let pairs = written.iter().zip(now).skip(at).take(size);
                lacking += pairs.filter(|(written, now)| written != now).count() as u64;
            }
            at += size;
        }
    }
    lacking
}

/// Bytes of a record, by its second word, or of two that have one slot.
fn bytes(what: u64) -> u64 {
    let one = |what: u64| 16 + 8 * (what >> 4 & 15);
    one(what) + if what >> 32 == 0 { 0 } else { one(what >> 32) }
}

/// Are these the records of a run, with those of another all together somewhere between them, as far as there is room?
pub(crate) fn interleaved(one: &[u64], other: &[u64], both: &[u64], room: u64) -> bool {
    (0..=one.len()).any(|at| {
        let (before, rest) = one.split_at(at);
        let mut cursor = 0;
        let mut fits = |what: &&u64| {
            let fits = cursor < room;
            cursor += bytes(**what);
            fits
        };
        before.iter().chain(other).chain(rest).take_while(&mut fits).eq(both)
    })
}
