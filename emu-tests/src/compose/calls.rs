//! Functions under trace: they are entered, do what they are told, jump or return.

use codegen::words::abi::RegSet;
use compose::{Act, Call, Event, REPLACEMENT, Seen, mix};

use super::places::RECORDER_ARGS;
use super::state::{SEED, Step, Todo, Uc, post};
use crate::engine::cpu::{put_word, word};
use crate::run::thread::{BUFFER, SIZE};

/// What the arguments of a call with this seed come to: `CHECK` of the functions.
fn checked(seed: u64, signature: &str) -> u64 {
    let mixed = |h: u64, v: u64| (h ^ v).rotate_left(23).wrapping_mul(0x5bd1_e995);
    let argument = |i: u64| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(i);
    let last = if signature == "stack" { 10 } else { 3 };
    (2..=last).fold(mixed(0, seed), |h, i| mixed(h, argument(i)))
}

/// The second word of a recorder's records: its number, how many words follow, and that of an entry.
fn what(id: usize) -> u64 {
    (id as u64) << 8 | u64::from(RECORDER_ARGS) << 4 | 1
}

/// Records that were written since somebody looked: by which trampoline, at which call.
pub(super) fn recorded(uc: &mut Uc) {
    const RECORD: u64 = 16 + 8 * RECORDER_ARGS as u64;
    let state = uc.data();
    if state.directs[1].is_empty() {
        return;
    }
    let (cursor, argument) = (state.places.cursor, state.argument_index() as u64);
    let end = word(uc, cursor);
    for at in (BUFFER..end.min(BUFFER + SIZE)).step_by(RECORD as usize) {
        let (time, written, n) = (word(uc, at), word(uc, at + 8), word(uc, at + 16 + 8 * argument));
        let state = uc.data_mut();
        let f = state.frames.last().map_or(0, |frame| frame.at);
        match state.directs[1].get((written >> 8) as usize).copied() {
            Some(data) if time == 0 && written == what((written >> 8) as usize) => {
                state.see(Event { f, n, data, ..Event::of(Seen::Recorded) });
            }
            _ => state.lost("a record", f, written),
        }
    }
    if end != BUFFER {
        put_word(uc, cursor, BUFFER);
    }
}

/// A function is entered: by a call, by a jump, or because calls are redirected to it.
pub(super) fn entry(uc: &mut Uc, f: u64) {
    recorded(uc);
    let state = uc.data();
    let registers = state.registers;
    let n = state.calls;
    let reg = registers.abi.args[state.argument_index()];
    // Calls are redirected on the way from one function to another.
    if state.frames.last().is_some_and(|frame| frame.open) {
        compare(uc, f, false);
    }
    registers.set(uc, reg, n);
    let all = registers.snapshot(uc);
    let state = uc.data_mut();
    state.calls += 1;
    match state.frames.last_mut() {
        Some(frame) => (frame.at, frame.n, frame.open, frame.entered) = (f, n, true, all),
        None => state.lost("the way: nobody called it", f, 0),
    }
}

/// Everything is as it was at the entry. Within a paired trampoline, there is a frame more on the stack.
fn compare(uc: &mut Uc, f: u64, paired: bool) {
    let registers = uc.data().registers;
    let now = registers.snapshot(uc);
    let state = uc.data_mut();
    let Some(frame) = state.frames.last() else { return };
    let kept = match paired {
        true => state.kept.paired,
        false => state.kept.called.union(RegSet::of(&[registers.abi.sp])),
    };
    let kept = kept.iter();
    let mut lost: Vec<(&'static str, u64)> =
        kept.filter(|reg| frame.entered[*reg] != now[*reg]).map(|reg| (registers.abi.name(reg), now[reg])).collect();
    if frame.entered.vectors != now.vectors {
        lost.push(("a vector register", 0));
    }
    for (what, value) in lost {
        state.lost(what, f, value);
    }
}

/// A function goes on behind its site. Does it return to its paired trampoline?
pub(super) fn inside(uc: &mut Uc, f: u64) {
    let registers = uc.data().registers;
    let sp = registers.sp(uc);
    let back = registers.abi.link.map_or_else(|| word(uc, sp), |link| registers.get(uc, link));
    let state = uc.data_mut();
    let around = state.places.families[state.family].around.get(f as usize);
    // A function that was jumped to may have that return address already.
    let called = state.frames.last().is_some_and(|frame| frame.entered[registers.abi.sp] != sp);
    let paired = called && around.is_some_and(|(start, size)| back.wrapping_sub(*start) < *size);
    if paired {
        state.called[f as usize] = Some(back);
    }
    compare(uc, f, paired);
}

/// A direct trampoline calls.
pub(super) fn through(uc: &mut Uc) -> u64 {
    let state = uc.data_mut();
    let data = state.direct.take().and_then(|index| state.directs[0].get(index)).copied().unwrap_or(0);
    let Some(frame) = state.frames.last() else { return 0 };
    let (f, n, callers) = (frame.at, frame.n, state.callers());
    state.see(Event { f, n, data, callers, ..Event::of(Seen::Direct) });
    0
}

/// The body of a function begins.
pub(super) fn body(uc: &mut Uc, number: u64, n: u64, check: u64) -> u64 {
    let state = uc.data_mut();
    let signature = state.places.families[state.family].signature;
    let Some(frame) = state.frames.last_mut() else { return 0 };
    let (good, entered) = (check == checked(frame.seed, signature), frame.n);
    frame.chain.push((number, n));
    frame.open = false;
    frame.replaced = number == REPLACEMENT && frame.now.f != REPLACEMENT;
    let acts = match frame.replaced {
        true => vec![Act::Call(Call { jumps: false, ..frame.now.clone() })],
        false => frame.now.body.clone(),
    };
    let stays = std::mem::take(&mut frame.stays);
    if !good {
        state.lost("an argument", number, check);
    }
    if n != entered {
        state.lost("the first argument", number, n);
    }
    state.see(Event { f: number, n, ..Event::of(Seen::Body) });
    state.level(acts.into_iter().map(Step::Act).collect());
    state.levels.iter_mut().next_back().into_iter().for_each(|level| level.stays = stays);
    0
}

/// What it calls last, as a jump.
pub(super) fn tail(uc: &mut Uc) -> u64 {
    let state = uc.data_mut();
    let seed = mix(state.calls, 0x7a11);
    let Some(frame) = state.frames.last_mut() else { return 0 };
    let Some(tail) = frame.now.tail.clone().filter(|_| !frame.replaced) else { return 0 };
    frame.now = *tail;
    frame.seed = seed;
    let start = state.places.families[state.family].starts[frame.now.f as usize];
    post(uc, SEED, seed);
    start
}

/// It returns.
pub(super) fn result(uc: &mut Uc, number: u64, n: u64) -> u64 {
    let state = uc.data_mut();
    let value = mix(number, n);
    let Some(frame) = state.frames.last_mut() else { return value };
    frame.value = value;
    let (chain, jumps) = (frame.chain.clone(), frame.jumps);
    for (f, n) in chain.into_iter().rev() {
        state.see(Event { f, n, value, ..Event::of(Seen::Result) });
    }
    if jumps && let Some(asked) = state.levels.last().and_then(|level| level.asked.clone()) {
        state.todo = Some(Todo::Resume(Box::new(asked)));
    }
    value
}
