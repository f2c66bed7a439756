//! What C functions of the machine do next, act by act, and what came of it.

use std::collections::VecDeque;
use std::sync::Arc;

use codegen::arch::patch::SiteState;
use compose::{Act, Call, Event, REPLACEMENT, Seen, UNCALLED, User, What, mix};

use super::state::{ANSWER, FUNCTION, Frame, GOT, SEED, SERVICE, Step, TARGETS, Todo, USER, Uc, Waiting, mail, post};
use super::third;
use crate::engine::cpu::word;
use crate::engine::registers::Snapshot;

/// What `NEXT` answers, and the services.
const END: u64 = 0;
const CALL: u64 = 1;
const SERVE: u64 = 2;
const INTERRUPT: u64 = 1;
const SWITCH: u64 = 2;
const CONTROL: u64 = 3;
const BALANCED: u64 = 4;
const EXITED: u64 = 5;

/// The object of users that trace nothing which is called.
const IDLE: u64 = 0x800;

/// What is to be done now.
pub(super) fn next(uc: &mut Uc) -> u64 {
    let registers = uc.data().registers;
    let now = registers.general(uc);
    let at_sp = word(uc, now[registers.abi.sp]);
    let Some(level) = uc.data_mut().levels.last_mut() else { return END };
    let waiting = std::mem::replace(&mut level.waiting, Waiting::Nothing);
    let before = level.asked.replace((now.clone(), at_sp));
    over(uc, waiting, before.map(|(all, _)| all), &now);
    let Some(level) = uc.data_mut().levels.last_mut() else { return END };
    match level.steps.pop_front() {
        Some(step) => begin(uc, step),
        None => ended(uc),
    }
}

/// There is no more to do for whoever asks.
fn ended(uc: &mut Uc) -> u64 {
    let levels = &mut uc.data_mut().levels;
    match levels.pop() {
        Some(level) if level.stays => {
            levels.push(level);
            third::change_places(uc);
        }
        _ => {}
    }
    END
}

/// What was done is over.
fn over(uc: &mut Uc, waiting: Waiting, before: Option<Snapshot>, now: &Snapshot) {
    let (answer, got) = (mail(uc, ANSWER), mail(uc, GOT));
    let state = uc.data_mut();
    let done = Event { value: answer, ..Event::of(Seen::Done) };
    match waiting {
        Waiting::Nothing => {}
        Waiting::Call => {
            let Some(frame) = state.frames.pop() else { return };
            let abi = state.registers.abi;
            let lost = |reg: &codegen::words::abi::Reg| before.as_ref().is_some_and(|before| before[*reg] != now[*reg]);
            if let Some(reg) = abi.callee_saved.iter().chain([abi.sp]).find(lost) {
                state.lost(abi.name(reg), frame.now.f, now[reg]);
            }
            // Who is left by a jump returns nothing.
            if got != frame.value && !frame.jumps {
                state.lost("the result", frame.now.f, got);
            }
        }
        Waiting::Control(act) => match act {
            Act::Register(u) => {
                if answer == 0 {
                    let user = &state.case.users[u];
                    state.objects.push(((user.key(), user.what.family()), u));
                }
                state.see(done);
            }
            Act::Missed(_) => state.see(Event { value: answer, ..Event::of(Seen::Missed) }),
            _ => state.see(done),
        },
        Waiting::Idle => state.see(done),
        Waiting::Balanced if answer == 0 && !state.jumps => state.see(Event::of(Seen::Unbalanced)),
        Waiting::Balanced => {}
    }
}

fn idle(n: u64) -> User {
    let answer = compose::Answer::Always;
    User { what: What::Graph, on: vec![UNCALLED], not: vec![], answer, words: 0, then: None, object: IDLE + 8 * n }
}

/// Do a step: what the C function is told.
fn begin(uc: &mut Uc, step: Step) -> u64 {
    let state = uc.data_mut();
    let act = match step {
        Step::Act(act) => act,
        Step::Stay(call) => return begin_call(uc, call, true),
        Step::Control(operation, user) => {
            state.wait(Waiting::Idle);
            return control(uc, operation, &user, 0);
        }
        Step::Balanced => {
            state.wait(Waiting::Balanced);
            post(uc, SERVICE, BALANCED);
            return SERVE;
        }
    };
    match act {
        Act::Call(call) => begin_call(uc, call, false),
        Act::Enter(_) | Act::Leave | Act::End => of_the_third(uc, &act),
        Act::Interrupt(call) => beside(uc, call, INTERRUPT),
        Act::Switch(call) => beside(uc, call, SWITCH),
        Act::Look(f) => {
            let data = state.targets[f as usize];
            state.see(Event { f, data, ..Event::of(Seen::Site) });
            again(uc)
        }
        Act::Fill(n) => {
            let from = state.idle;
            state.idle += n;
            state.soon((from..from + n).map(|n| Step::Control(0, idle(n))));
            again(uc)
        }
        Act::Crowd(table, n) => {
            let users: Vec<User> = (0..n).map(|n| table.user(n)).collect();
            state.crowd.extend(users.iter().cloned());
            state.soon(users.into_iter().map(|user| Step::Control(0, user)));
            again(uc)
        }
        Act::Drain => {
            let crowd = std::mem::take(&mut state.crowd);
            let all = std::mem::take(&mut state.idle);
            let graph = (0..all).rev().map(|n| Step::Control(1, idle(n)));
            state.soon(crowd.into_iter().rev().map(|user| Step::Control(1, user)).chain(graph));
            again(uc)
        }
        Act::Churn(n) => {
            state.soon((0..n).flat_map(|_| [Step::Control(0, idle(99)), Step::Control(1, idle(99))]));
            again(uc)
        }
        Act::Register(u) => operate(uc, &act, 0, u, 0),
        Act::Unregister(u) => operate(uc, &act, 1, u, 0),
        Act::Modify(u) => operate(uc, &act, 2, u, 0),
        Act::Disable(u, disable) => operate(uc, &act, 3, u, u64::from(disable)),
        Act::Filter(u, ..) => operate(uc, &act, 4, u, 0),
        Act::Missed(u) => operate(uc, &act, 5, u, 0),
    }
}

/// What the third thread does. If it does something already, nothing.
fn of_the_third(uc: &mut Uc, act: &Act) -> u64 {
    let done = match act {
        Act::Enter(call) => third::enter(uc, call),
        Act::Leave => third::leave(uc),
        _ => third::end(uc),
    };
    match act {
        _ if !done => again(uc),
        Act::End => {
            post(uc, SERVICE, EXITED);
            SERVE
        }
        _ => END,
    }
}

fn begin_call(uc: &mut Uc, call: Call, stays: bool) -> u64 {
    let state = uc.data_mut();
    state.wait(Waiting::Call);
    let seed = mix(state.calls, 0x5eed);
    let start = state.places.families[state.family].starts[call.f as usize];
    state.frames.push(Frame {
        jumps: call.jumps,
        stays,
        seed,
        now: call,
        at: u64::MAX,
        n: u64::MAX,
        open: false,
        entered: Snapshot::default(),
        chain: vec![],
        replaced: false,
        value: 0,
    });
    post(uc, FUNCTION, start);
    post(uc, SEED, seed);
    CALL
}

/// The next step at once.
fn again(uc: &mut Uc) -> u64 {
    match uc.data_mut().levels.last_mut().and_then(|level| level.steps.pop_front()) {
        Some(step) => begin(uc, step),
        None => ended(uc),
    }
}

/// A call that nobody makes who can be traced.
fn beside(uc: &mut Uc, call: Call, service: u64) -> u64 {
    uc.data_mut().level(VecDeque::from([Step::Act(Act::Call(call))]));
    post(uc, SERVICE, service);
    SERVE
}

fn operate(uc: &mut Uc, act: &Act, operation: u64, user: usize, more: u64) -> u64 {
    let state = uc.data_mut();
    state.wait(Waiting::Control(act.clone()));
    let mut user = state.case.users[user].clone();
    if let Act::Filter(_, f, _) = act {
        user.on = vec![*f];
    }
    let more = match (act, user.what) {
        (Act::Register(_), What::Direct { .. } | What::Recorder) => {
            state.direct(user.what.trampoline(user.object, false))
        }
        (Act::Modify(_), _) => state.direct(user.what.trampoline(user.object, true)),
        (Act::Filter(_, _, remove), _) => u64::from(*remove),
        (Act::Register(_), What::Hijack) => state.places.families[state.family].starts[REPLACEMENT as usize],
        (Act::Register(_), What::Kretprobe { most }) => most as u64,
        (Act::Register(_), _) => user.object,
        _ => more,
    };
    control(uc, operation, &user, more)
}

fn control(uc: &mut Uc, operation: u64, user: &User, more: u64) -> u64 {
    let what = match user.what {
        What::Op { regs } => u64::from(regs),
        What::Hijack => 2,
        What::Direct { .. } | What::Recorder => 3 + u64::from(user.what.direct() == Some(true)),
        What::Graph => 5,
        What::Fprobe { exit } => 6 + u64::from(exit),
        What::Kretprobe { .. } => 8,
    };
    let places = Arc::clone(&uc.data().places);
    let family = &places.families[uc.data().family];
    let last = if user.what == What::Hijack { family.ends[REPLACEMENT as usize] } else { user.words as u64 };
    let head = [operation, what, user.key(), more, last];
    head.into_iter().zip(0..).for_each(|(value, at)| post(uc, USER + at, value));
    for (list, at) in [(&user.on, USER + 8), (&user.not, USER + 17)] {
        post(uc, at, list.len() as u64);
        list.iter().zip(at + 1..).for_each(|(f, at)| post(uc, at, family.sites[*f as usize].ip));
    }
    post(uc, SERVICE, CONTROL);
    SERVE
}

/// Sites call something else from now on.
pub(super) fn changed(uc: &mut Uc) -> u64 {
    let wanted: Vec<u64> = (0..8).map(|f| mail(uc, TARGETS + f)).collect();
    let state = uc.data_mut();
    let places = Arc::clone(&state.places);
    let around = &places.families[state.family].around;
    let mut writes = vec![];
    for (f, wanted) in wanted.into_iter().enumerate() {
        let paired = around.get(f).filter(|_| wanted == 1);
        let (known, target) = match wanted {
            0 => (0, None),
            1 => (1, Some(paired.map_or(places.caller, |(at, _)| *at))),
            2 => (2, Some(places.regs_caller)),
            at => (state.known(at), Some(at)),
        };
        if std::mem::replace(&mut state.targets[f], known) != known {
            let op = Some(places.ops);
            let enabled = |target| SiteState::Enabled { target, op, jump: paired.is_some() };
            writes.push((f, target.map_or(SiteState::Disabled, enabled)));
        }
    }
    if !writes.is_empty() {
        state.todo = Some(Todo::Patch(writes));
    }
    0
}
