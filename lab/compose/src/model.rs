//! The model: what should be seen. It has no shadow stack and no tables: the hooks of a call are a list in the function that
//! models the call, so that a return can only find what its own entry left there.

mod control;

use std::collections::VecDeque;

use crate::case::{
    Act, Call, Callers, Case, Event, HANDLER, OUTSIDE, REPLACEMENT, Seen, User, What, When, address, fold, mix,
};

/// Words of a shadow stack: how many a frame takes, and how many there are.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Of a frame.
    pub frame: usize,
    /// Of all.
    pub all: usize,
}

/// Kretprobes that may be pending at once, and the words that each has.
const NODES: usize = 64;
const NODE_WORDS: usize = 8;
/// Users of the function graph, and the most words that one stores.
const GRAPH_USERS: u64 = 16;
const MOST_WORDS: usize = 32;
/// The most words of an fprobe.
const PROBE_WORDS: usize = 15;

/// Somebody who is registered.
#[derive(Clone)]
struct Live<'c> {
    user: Option<&'c User>,
    object: u64,
    what: What,
    /// The number of the registration.
    at: u64,
    on: Vec<u64>,
    disabled: bool,
    missed: u64,
    direct: u64,
    /// Of the function graph.
    slot: u64,
}

impl Live<'_> {
    fn wants(&self, f: u64) -> bool {
        let on = self.on.is_empty() && !matches!(self.what, What::Fprobe { .. }) || self.on.contains(&f);
        on && !self.user.is_some_and(|u| u.not.contains(&f))
    }
}

/// An ops in the list: of a user, by registration, or of a mechanism.
#[derive(Clone, Copy, PartialEq)]
enum Ops {
    Of(u64),
    Graph,
    Probes,
    Kretprobes,
}

/// What a call left for its return.
enum Hook {
    /// Graph users and probes by registration, with their data; where the stack ended before; depth.
    Graph(Vec<(u64, Option<Vec<u64>>)>, usize, u64),
    /// A kretprobe by registration, its data, and the number of the pending return.
    Kret(u64, Vec<u64>, u64),
}

/// A function in the midst: itself, the number of its call, what it calls last.
type Inside<'c> = (u64, u64, Option<&'c Call>);

/// A function in which the third thread stays: what it is, its caller, its hooks, and whether it is left by a jump.
type Open<'c> = (Inside<'c>, u64, Vec<(u64, Hook)>, bool);

const THREADS: usize = 3;
/// The one that stays in functions.
const THIRD: usize = 2;

struct Model<'c> {
    case: &'c Case,
    room: Room,
    jumps: bool,
    live: Vec<Live<'c>>,
    ops: Vec<Ops>,
    /// Free slots of the graph, and that of the probes with the number of its registration.
    slots: VecDeque<u64>,
    probes: Option<(u64, u64)>,
    clock: u64,
    calls: u64,
    idle: u64,
    /// Who fills tables: object, and what it is.
    crowd: Vec<(u64, What)>,
    fired: u64,
    thread: usize,
    /// The functions of the third thread, and who runs there; nothing while it runs.
    open: Vec<Open<'c>>,
    third: Option<Vec<u64>>,
    context: [usize; THREADS],
    held: [[bool; 4]; THREADS],
    depth: [u64; THREADS],
    /// Who runs on this thread, the latest last: addresses that calls come from.
    running: Vec<u64>,
    used: [usize; THREADS],
    /// Pending returns of kretprobes: number, thread, registration.
    nodes: Vec<(u64, usize, u64)>,
    pending: u64,
    log: Vec<Event>,
}

/// What should be seen in a case.
#[must_use]
pub fn expected(case: &Case, room: Room) -> Vec<Event> {
    let mut model = Model {
        case,
        room,
        jumps: case.jumps(),
        live: vec![],
        ops: vec![],
        slots: (0..GRAPH_USERS).collect(),
        probes: None,
        clock: 0,
        calls: 0,
        idle: 0,
        crowd: vec![],
        fired: 0,
        thread: 0,
        open: vec![],
        third: Some(vec![OUTSIDE]),
        context: [0; THREADS],
        held: [[false; 4]; THREADS],
        depth: [0; THREADS],
        running: vec![OUTSIDE],
        used: [0; THREADS],
        nodes: vec![],
        pending: 0,
        log: vec![],
    };
    case.acts.iter().for_each(|act| model.act(act, OUTSIDE));
    model.log
}

impl<'c> Model<'c> {
    fn see(&mut self, event: Event) {
        self.log.push(event);
    }

    fn done(&mut self, code: i64) {
        self.see(Event { value: code as u64, ..Event::of(Seen::Done) });
    }

    fn find(&mut self, object: u64, like: What) -> Option<&mut Live<'c>> {
        self.live.iter_mut().find(|l| l.object == object && l.what.family() == like.family())
    }

    fn at(&self, at: u64) -> Option<Live<'c>> {
        self.live.iter().find(|l| l.at == at).cloned()
    }

    fn act(&mut self, act: &'c Act, caller: u64) {
        let case = self.case;
        match act {
            Act::Register(u) => {
                let user = &case.users[*u];
                let code = self.register(user.object, user.what, user.on.clone(), Some(user));
                self.done(code);
            }
            Act::Unregister(u) => {
                let user = &case.users[*u];
                let code = self.unregister(user.object, user.what);
                self.done(code);
            }
            Act::Modify(u) => {
                let user = &case.users[*u];
                let code = self.find(user.object, user.what).filter(|l| l.what.direct().is_some()).map_or(-22, |l| {
                    l.direct = user.what.trampoline(l.object, true);
                    0
                });
                self.done(code);
            }
            Act::Disable(u, disable) => {
                let user = &case.users[*u];
                let code = self.find(user.object, user.what).filter(|l| matches!(l.what, What::Fprobe { .. })).map_or(
                    -22,
                    |l| {
                        l.disabled = *disable;
                        0
                    },
                );
                self.done(code);
            }
            Act::Filter(u, f, remove) => {
                let code = self.filter(&case.users[*u], *f, *remove);
                self.done(code);
            }
            Act::Missed(u) => {
                let user = &case.users[*u];
                let probe = |l: &&mut Live| matches!(l.what, What::Fprobe { .. } | What::Kretprobe { .. });
                let value = self.find(user.object, user.what).filter(probe).map_or(-22_i64 as u64, |l| l.missed);
                self.see(Event { value, ..Event::of(Seen::Missed) });
            }
            Act::Look(f) => {
                let data = self.site(*f);
                self.see(Event { f: *f, data, ..Event::of(Seen::Site) });
            }
            Act::Call(call) => self.call(call, caller),
            Act::Interrupt(call) => {
                let (thread, before) = (self.thread, self.context[self.thread]);
                self.context[thread] = (before + 1).min(3);
                self.within(OUTSIDE, |model| model.call(call, OUTSIDE));
                self.context[thread] = before;
            }
            Act::Switch(call) => {
                let before = self.thread;
                self.thread = usize::from(before == 0);
                let (thread, context) = (self.thread, self.context[self.thread]);
                self.context[thread] = (context + 1).min(3);
                let others = std::mem::replace(&mut self.running, vec![OUTSIDE]);
                self.call(call, OUTSIDE);
                self.running = others;
                self.context[thread] = context;
                self.thread = before;
            }
            Act::Enter(_) | Act::Leave | Act::End => self.third(act),
            Act::Fill(_) | Act::Crowd(..) | Act::Drain | Act::Churn(_) => self.idle(act),
        }
    }

    /// What the third thread does, if it does nothing else.
    fn third(&mut self, act: &'c Act) {
        let Some(running) = self.third.take() else { return };
        let others = (std::mem::replace(&mut self.thread, THIRD), std::mem::replace(&mut self.running, running));
        match act {
            Act::Enter(call) => {
                let caller = self.open.last().map_or(OUTSIDE, |((f, ..), ..)| address(*f) + 0x100);
                let mut hooks = vec![];
                self.running.push(address(call.f) + 0x100);
                let inside = self.begin(call, caller, &mut hooks);
                self.open.push((inside, caller, hooks, call.jumps));
            }
            Act::Leave => {
                if let Some((inside, caller, mut hooks, jumps)) = self.open.pop() {
                    let value = self.end(inside, caller, &mut hooks);
                    self.running.pop();
                    self.unhook(hooks, jumps, caller, value);
                }
            }
            _ => {
                // Nobody waits for its returns any more.
                self.open.clear();
                self.running.truncate(1);
                self.nodes.retain(|(_, thread, _)| *thread != THIRD);
                (self.used[THIRD], self.depth[THIRD]) = (0, 0);
            }
        }
        self.third = Some(std::mem::replace(&mut self.running, others.1));
        self.thread = others.0;
    }

    /// Whom an unwinder finds.
    fn callers(&self) -> Callers {
        Callers::of(self.running.iter().rev().copied())
    }

    /// What is done while somebody else runs besides.
    fn within<R>(&mut self, who: u64, done: impl FnOnce(&mut Self) -> R) -> R {
        self.running.push(who);
        let result = done(self);
        self.running.pop();
        result
    }

    fn call(&mut self, call: &'c Call, caller: u64) {
        let mut hooks = vec![];
        let value = self.within(address(call.f) + 0x100, |model| model.run(call, caller, &mut hooks));
        self.unhook(hooks, call.jumps, caller, value);
    }

    /// The returns of a call, in the context of the thread. The hooks of one that is left by a jump stay where they are until
    /// a call around it returns.
    fn unhook(&mut self, hooks: Vec<(u64, Hook)>, jumps: bool, caller: u64, value: u64) {
        let (thread, context) = (self.thread, self.context[self.thread]);
        for hook in hooks.into_iter().rev().filter(|_| !jumps) {
            let free = !std::mem::replace(&mut self.held[thread][context], true);
            self.leave(hook, caller, value, free);
            self.held[thread][context] = !free;
        }
    }

    fn run(&mut self, call: &'c Call, caller: u64, hooks: &mut Vec<(u64, Hook)>) -> u64 {
        let inside = self.begin(call, caller, hooks);
        self.end(inside, caller, hooks)
    }

    /// A function up to the end of its body.
    fn begin(&mut self, call: &'c Call, caller: u64, hooks: &mut Vec<(u64, Hook)>) -> Inside<'c> {
        let n = self.calls;
        self.calls += 1;
        let (redirected, direct) = self.enter(call.f, n, caller, hooks);
        if redirected {
            // A direct trampoline is to return to the replacement already.
            self.jump(REPLACEMENT);
        }
        self.direct(call.f, n, direct);
        if redirected {
            let m = self.calls;
            self.calls += 1;
            let (_, direct) = self.enter(REPLACEMENT, m, caller, hooks);
            self.direct(REPLACEMENT, m, direct);
            self.see(Event { f: REPLACEMENT, n: m, ..Event::of(Seen::Body) });
            self.original(call, address(REPLACEMENT) + 0x100);
            return (REPLACEMENT, m, None);
        }
        self.see(Event { f: call.f, n, ..Event::of(Seen::Body) });
        call.body.iter().for_each(|act| self.act(act, address(call.f) + 0x100));
        (call.f, n, call.tail.as_deref())
    }

    /// And its end.
    fn end(&mut self, (f, n, tail): Inside<'c>, caller: u64, hooks: &mut Vec<(u64, Hook)>) -> u64 {
        let value = match tail {
            Some(tail) => {
                self.jump(tail.f);
                self.run(tail, caller, hooks)
            }
            None => mix(f, n),
        };
        self.see(Event { f, n, value, ..Event::of(Seen::Result) });
        value
    }

    /// The replacement calls the original, which it does not leave by a jump.
    fn original(&mut self, call: &'c Call, caller: u64) {
        let mut hooks = vec![];
        let value = self.within(address(call.f) + 0x100, |model| model.run(call, caller, &mut hooks));
        self.unhook(hooks, false, caller, value);
    }

    /// Another function runs in the place of the last one.
    fn jump(&mut self, f: u64) {
        self.running.pop();
        self.running.push(address(f) + 0x100);
    }

    /// A function goes through its direct trampoline, if there is one.
    fn direct(&mut self, f: u64, n: u64, to: u64) {
        let event = Event { f, n, data: to, ..Event::of(Seen::Direct) };
        match to {
            0 => {}
            _ if What::records(to) => self.see(Event { seen: Seen::Recorded, ..event }),
            _ => self.see(Event { callers: self.callers(), ..event }),
        }
    }

    /// An entry: is it redirected, and through which direct trampoline does it go?
    fn enter(&mut self, f: u64, n: u64, caller: u64, hooks: &mut Vec<(u64, Hook)>) -> (bool, u64) {
        let (thread, context) = (self.thread, self.context[self.thread]);
        let free = !std::mem::replace(&mut self.held[thread][context], true);
        let depth = self.depth[thread];
        if !free {
            for probe in self.live.iter_mut().filter(|l| l.wants(f) && !l.disabled) {
                probe.missed += 1;
            }
        }
        let (mut redirected, mut direct) = (false, 0);
        for ops in self.ops.clone().into_iter().rev() {
            if !self.ops.contains(&ops) {
                continue;
            }
            match ops {
                Ops::Of(at) => {
                    let Some(own) = self.at(at).filter(|l| l.wants(f)) else { continue };
                    match own.what {
                        What::Hijack => redirected |= caller != address(REPLACEMENT) + 0x100,
                        What::Direct { .. } | What::Recorder => direct = own.direct,
                        _ if free => self.handle(Seen::Op, &own, (f, n, caller, depth), 1),
                        _ => {}
                    }
                }
                _ if !free => {}
                Ops::Graph => hooks.extend(self.graph(f, n, caller, depth).map(|h| (f, h))),
                Ops::Probes => {
                    for own in self.newest(&|l| l.what == What::Fprobe { exit: false } && l.wants(f)) {
                        if let Some(own) = self.at(own).filter(|l| !l.disabled) {
                            self.handle(Seen::ProbeEntry, &own, (f, n, caller, depth), 1);
                        }
                    }
                }
                Ops::Kretprobes => {
                    for own in
                        self.newest(&|l| matches!(l.what, What::Kretprobe { .. }) && l.wants(f)).into_iter().rev()
                    {
                        hooks.extend(self.kretprobe(own, (f, n, caller, depth)).map(|h| (f, h)));
                    }
                }
            }
        }
        self.held[thread][context] = !free;
        (redirected, direct)
    }

    fn newest(&self, test: &dyn Fn(&Live) -> bool) -> Vec<u64> {
        self.live.iter().rev().filter(|l| test(l)).map(|l| l.at).collect()
    }

    /// A handler runs at an entry.
    fn handle(&mut self, seen: Seen, own: &Live<'c>, (f, n, parent, depth): (u64, u64, u64, u64), stored: u64) {
        let depth = if self.jumps { 0 } else { depth };
        let callers = self.callers();
        self.see(Event { seen, user: own.object, f, n, parent, value: stored, data: fold(None), depth, callers });
        self.fire(own, When::Entry);
    }

    fn fire(&mut self, own: &Live<'c>, now: When) {
        let bit = 1 << (own.object % 64);
        if let Some((when, act)) = own.user.and_then(|u| u.then.as_ref())
            && *when == now
            && self.fired & bit == 0
        {
            self.fired |= bit;
            self.within(HANDLER, |model| model.act(act, HANDLER));
        }
    }

    fn kretprobe(&mut self, own: u64, call: (u64, u64, u64, u64)) -> Option<Hook> {
        let own = self.at(own)?;
        let What::Kretprobe { most } = own.what else { return None };
        let pending = self.nodes.iter().filter(|(.., at)| *at == own.at).count();
        if self.nodes.len() == NODES || most > 0 && pending >= most {
            self.find(own.object, own.what)?.missed += 1;
            return None;
        }
        self.pending += 1;
        let number = self.pending;
        self.nodes.push((number, self.thread, own.at));
        self.handle(Seen::KretEntry, &own, call, 1);
        let user = own.user?;
        if !user.wants(call.1) || self.at(own.at).is_none() {
            self.nodes.retain(|(n, ..)| *n != number);
            return None;
        }
        let mut data = user.data(call.1);
        data.resize(NODE_WORDS, 0);
        Some(Hook::Kret(own.at, data, number))
    }

    fn graph(&mut self, f: u64, n: u64, caller: u64, depth: u64) -> Option<Hook> {
        let thread = self.thread;
        let probes = |l: &Live| l.what == What::Fprobe { exit: true } && l.wants(f);
        if !self.live.iter().any(|l| l.what == What::Graph && l.wants(f) || probes(l)) {
            return None;
        }
        let miss = |model: &mut Self| {
            model.live.iter_mut().filter(|l| probes(l) && !l.disabled).for_each(|l| l.missed += 1);
        };
        if self.used[thread] + self.room.frame > self.room.all {
            miss(self);
            return None;
        }
        let start = self.used[thread];
        self.used[thread] += self.room.frame;
        self.depth[thread] += 1;
        let (now, mut left) = (self.clock, vec![]);
        for slot in 0..GRAPH_USERS {
            let mark = self.used[thread];
            let fits = |words: usize, used: usize| words <= MOST_WORDS && used + words < self.room.all;
            if let Some(own) =
                self.live.iter().find(|l| l.what == What::Graph && l.slot == slot && l.wants(f) && l.at <= now)
            {
                let own = own.clone();
                let Some(user) = own.user else { continue };
                let stored = user.words == 0 || fits(user.words, mark);
                if stored && user.words > 0 {
                    self.used[thread] += user.words + 1;
                }
                self.handle(Seen::GraphEntry, &own, (f, n, caller, depth), u64::from(stored));
                if user.wants(n) && self.at(own.at).is_some() {
                    left.push((own.at, (stored && user.words > 0).then(|| user.data(n))));
                    continue;
                }
            } else if self.probes.is_some_and(|(at, since)| at == slot && since <= now) {
                let here = self.newest(&probes);
                let words = |at: &u64| self.at(*at).and_then(|l| l.user).map_or(0, |u| u.words + 1);
                let needed: usize = here.iter().map(words).sum();
                if needed > 0 && !fits(needed, mark) {
                    miss(self);
                } else if needed > 0 {
                    self.used[thread] += needed + 1;
                    let before = left.len();
                    let since = self.probes;
                    for own in here {
                        let Some(own) = self.at(own).filter(|l| !l.disabled) else { continue };
                        let Some(user) = own.user else { continue };
                        self.handle(Seen::ProbeEntry, &own, (f, n, caller, depth), 1);
                        if user.wants(n) && self.at(own.at).is_some() {
                            left.push((own.at, (user.words > 0).then(|| user.data(n))));
                        }
                    }
                    if left.len() > before && self.probes == since {
                        continue;
                    }
                    left.truncate(before);
                }
            }
            self.used[thread] = mark;
        }
        if left.is_empty() {
            self.used[thread] = start;
            self.depth[thread] -= 1;
            return None;
        }
        Some(Hook::Graph(left, start, depth))
    }

    /// A return: those who asked and are still there see it.
    fn leave(&mut self, (f, hook): (u64, Hook), parent: u64, value: u64, free: bool) {
        let thread = self.thread;
        match hook {
            Hook::Kret(at, data, number) => {
                // Functions inside of this one that were left by jumps.
                self.nodes.retain(|(n, t, _)| *t != thread || *n <= number);
                let depth = if self.jumps { 0 } else { self.depth[thread] };
                if let (true, Some(own)) = (free, self.at(at)) {
                    let event = Event {
                        seen: Seen::KretReturn,
                        user: own.object,
                        f,
                        n: 0,
                        parent,
                        value,
                        data: fold(Some(&data)),
                        depth,
                        callers: self.callers(),
                    };
                    self.see(event);
                    self.fire(&own, When::Return);
                }
                self.nodes.retain(|(n, ..)| *n != number);
            }
            Hook::Graph(left, start, depth) => {
                let depth = if self.jumps { 0 } else { depth };
                for (at, data) in left {
                    let Some(own) = self.at(at).filter(|l| free && !l.disabled) else { continue };
                    let seen = if own.what == What::Graph { Seen::GraphReturn } else { Seen::ProbeExit };
                    self.see(Event {
                        seen,
                        user: own.object,
                        f,
                        n: 0,
                        parent,
                        value,
                        data: fold(data.as_deref()),
                        depth,
                        callers: self.callers(),
                    });
                    self.fire(&own, When::Return);
                }
                self.used[thread] = start;
                self.depth[thread] -= 1;
            }
        }
    }
}
