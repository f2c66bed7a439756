//! What `host` is called for, and what handlers say.

use std::collections::VecDeque;
use std::sync::Arc;

use compose::{Event, Seen, User, When, fold};

use super::calls::{body, recorded, result, tail, through};
use super::state::{ARGS, ASKED, DATA, SEEN, State, Step, Uc, mail, post};
use super::steps::{changed, next};
use super::unwinding::Backtrace;
use crate::engine::cpu::word;

/// What handlers are called for, by their numbers in `core.rs`.
const HANDLERS: [Seen; 7] = [
    Seen::Op,
    Seen::GraphEntry,
    Seen::GraphReturn,
    Seen::ProbeEntry,
    Seen::ProbeExit,
    Seen::KretEntry,
    Seen::KretReturn,
];

/// `host` is called; it lies there.
pub(super) fn host(uc: &mut Uc, pc: u64) {
    let registers = uc.data().registers;
    let argument = |uc: &Uc, i: usize| registers.get(uc, registers.abi.args[i]);
    recorded(uc);
    let (a, b, c) = (argument(uc, 1), argument(uc, 2), argument(uc, 3));
    let answer = match argument(uc, 0) {
        1 => next(uc),
        2 => body(uc, a, b, c),
        3 => tail(uc),
        4 => result(uc, a, b),
        5 => changed(uc),
        6 => unwind(uc, pc, a),
        7 => through(uc),
        8 => astray(uc, a),
        16 => entered(uc),
        17 => stored(uc, a),
        18 => {
            let state = uc.data_mut();
            let asked = state.handlers.pop();
            u64::from(matches!(asked, Some((Some(user), n)) if user.wants(n)))
        }
        19 => left(uc),
        _ => 0,
    };
    registers.set(uc, registers.abi.rets[0], answer);
}

/// A function that runs within a paired trampoline does not return to its caller, or went elsewhere.
fn astray(uc: &mut Uc, to: u64) -> u64 {
    let state = uc.data_mut();
    let f = state.frames.last().map_or(0, |frame| frame.at);
    state.lost("where a paired trampoline returns", f, to);
    0
}

/// Somebody looks up the stack: is there a question for the core? It has answered the last one, if there was one.
fn unwind(uc: &mut Uc, pc: u64, answer: u64) -> u64 {
    let registers = uc.data().registers;
    let mut trace = match uc.data_mut().asked.take() {
        Some(trace) => trace.resumed_at(answer),
        None => Backtrace::new(registers.general(uc), pc),
    };
    let places = Arc::clone(&uc.data().places);
    let mut unwinder = std::mem::take(&mut uc.data_mut().unwinder);
    let entered = |pc| uc.data().entered_from(pc);
    let asked = unwinder.walk(&mut trace, &places, registers, &|at| word(uc, at), &entered);
    let state = uc.data_mut();
    state.unwinder = unwinder;
    match asked {
        Some((at, cell)) => {
            state.asked = Some(trace);
            post(uc, ASKED, at);
            post(uc, ASKED + 1, cell);
            1
        }
        None => {
            state.backtrace = Some(trace);
            0
        }
    }
}

/// The user with this object who was registered last.
fn user(state: &State, seen: Seen, key: u64) -> Option<User> {
    let family = match seen {
        Seen::Op => 0,
        Seen::GraphEntry | Seen::GraphReturn => 1,
        Seen::ProbeEntry | Seen::ProbeExit => 2,
        _ => 3,
    };
    let (_, user) = state.objects.iter().rev().find(|(k, _)| *k == (key, family))?;
    Some(state.case.users[*user].clone())
}

/// What a handler was shown.
fn shown(uc: &Uc) -> (Event, u64) {
    let state = uc.data();
    let seen = HANDLERS.get(mail(uc, SEEN) as usize).copied().unwrap_or(Seen::Op);
    let key = mail(uc, SEEN + 1);
    let depth = if state.jumps { 0 } else { mail(uc, SEEN + 4) };
    let (f, parent) = (state.places.function(mail(uc, SEEN + 2)), state.places.parent(mail(uc, SEEN + 3)));
    let callers = state.callers();
    (Event { user: key & 0xffff, f, parent, depth, callers, ..Event::of(seen) }, key)
}

/// An entry handler begins: how many words does it keep?
fn entered(uc: &mut Uc) -> u64 {
    let (event, key) = shown(uc);
    let state = uc.data();
    let n = mail(uc, ARGS + state.argument_index() as u64);
    let user = user(state, event.seen, key);
    let data = user.as_ref().map_or(vec![], |user| user.data(n));
    data.iter().zip(DATA..).for_each(|(value, at)| post(uc, at, *value));
    if let Some(value) = other_argument(uc) {
        uc.data_mut().lost("an argument that a handler reads", event.f, value);
    }
    uc.data_mut().handlers.push((user, n));
    data.len() as u64
}

/// What it is shown as an argument, if that is not what the function was called with.
fn other_argument(uc: &Uc) -> Option<u64> {
    let state = uc.data();
    let (frame, args) = (state.frames.last()?, state.registers.abi.args);
    let mut each = args.iter().zip(ARGS..).map(|(reg, at)| (frame.entered[*reg], mail(uc, at)));
    each.find(|(is, shown)| is != shown).map(|(_, shown)| shown)
}

/// It has kept them, or not.
fn stored(uc: &mut Uc, stored: u64) -> u64 {
    let (event, _) = shown(uc);
    let state = uc.data_mut();
    let Some((user, n)) = state.handlers.last().cloned() else { return 0 };
    if user.is_some() {
        let event = Event { n, value: stored, data: fold(None), ..event };
        state.see(event);
    }
    fire(state, user.as_ref(), When::Entry);
    0
}

/// A return handler.
fn left(uc: &mut Uc) -> u64 {
    let (event, key) = shown(uc);
    let (value, length) = (mail(uc, SEEN + 5), mail(uc, SEEN + 6));
    let words: Vec<u64> = (0..length.min(40)).map(|at| mail(uc, DATA + at)).collect();
    let data = fold((length != u64::MAX).then_some(&*words));
    let state = uc.data();
    let abi = state.registers.abi;
    // A result in memory is there; arm64 has its address in no register.
    let value = match state.frames.last() {
        Some(frame) if state.places.families[state.family].signature == "big" => {
            let at = frame.entered[abi.sret];
            if abi.args.contains(&abi.sret) && at != value { value } else { word(uc, at) }
        }
        _ => value,
    };
    let state = uc.data_mut();
    state.see(Event { value, data, ..event });
    let user = user(state, event.seen, key);
    fire(state, user.as_ref(), When::Return);
    0
}

/// What the handler of a user does besides, the first time.
fn fire(state: &mut State, user: Option<&User>, now: When) {
    let mut steps = VecDeque::new();
    if let Some(user) = user
        && let Some((when, act)) = &user.then
        && *when == now
        && state.fired >> (user.object % 64) & 1 == 0
    {
        state.fired |= 1 << (user.object % 64);
        steps.push_back(Step::Act((**act).clone()));
    }
    state.level(steps);
}
