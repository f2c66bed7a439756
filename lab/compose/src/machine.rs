//! The machine: threads that call functions, as the acts of a case say. What happens is logged.

use std::cell::{Cell, RefCell};

use runtime::Call as Traced;

use crate::case::{
    Act, Call, Callers, Case, Event, HANDLER, OUTSIDE, REPLACEMENT, Seen, User, What, When, address, fold, mix,
};

/// Where replaced return addresses lead.
pub const RETURN_TO_HANDLER: u64 = 0x40_0000;
/// Those of kretprobes.
pub const RETHOOK: u64 = 0x40_1000;
/// Threads.
pub const THREADS: usize = 3;
/// The one that stays in functions.
const THIRD: usize = 2;
/// The object of the graph users that trace nothing which is called.
pub const IDLE: u64 = 0x800;

/// Registers at a traced entry or return, and where the call goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Regs {
    /// The function; when the core has seen it, where it goes on.
    pub ip: u64,
    /// The return address.
    pub parent: u64,
    /// Where that lies.
    pub retp: u64,
    /// Arguments at an entry.
    pub args: [u64; 8],
    /// The result at a return.
    pub retval: u64,
    /// A direct trampoline to go through, or 0.
    pub direct: u64,
}

/// Whom a core calls.
pub trait Hooks {
    /// An ops' callback.
    fn callback(&self, key: u64, call: &Traced, regs: &mut Regs);
    /// A graph user's entry. `store` keeps words for the return; it says whether there was room.
    fn graph_entry(&self, key: u64, call: &Traced, regs: &Regs, store: &dyn Fn(&[u64]) -> bool) -> bool;
    /// Its return.
    fn graph_return(&self, key: u64, call: &Traced, regs: &Regs, data: Option<&[u64]>);
    /// An fprobe's entry, with as many words as it asked for.
    fn probe_entry(&self, key: u64, call: &Traced, regs: &Regs, store: &dyn Fn(&[u64])) -> bool;
    /// Its exit.
    fn probe_exit(&self, key: u64, call: &Traced, regs: &Regs, data: Option<&[u64]>);
    /// A kretprobe's entry.
    fn kret_entry(&self, key: u64, call: &Traced, regs: &Regs, store: &dyn Fn(&[u64])) -> bool;
    /// Its return.
    fn kret_return(&self, key: u64, call: &Traced, regs: &Regs, data: &[u64]);
}

/// A core under test.
pub trait Core {
    /// What it has for a thread.
    type Thread: Default;
    /// Nobody is registered.
    fn new() -> Self;
    /// Register: 0, or the error as Linux returns it.
    fn register(&self, user: &User) -> i32;
    /// Unregister.
    fn unregister(&self, user: &User) -> i32;
    /// Send a direct call to its second trampoline.
    fn modify(&self, user: &User) -> i32;
    /// Disable or enable a probe.
    fn disable(&self, user: &User, disable: bool) -> i32;
    /// Put a function into the filter of an ops, or take it out.
    fn filter(&self, user: &User, f: u64, remove: bool) -> i32;
    /// What a probe missed, or an error.
    fn missed(&self, user: &User) -> i64;
    /// A function is entered.
    fn enter(&self, thread: &Self::Thread, hooks: &dyn Hooks, regs: &mut Regs);
    /// A trampoline is returned to. None: it does not know where to go on.
    fn leave(&self, thread: &Self::Thread, hooks: &dyn Hooks, trampoline: u64, regs: &mut Regs) -> Option<u64>;
    /// The context of a thread changes; the one before.
    fn context(&self, thread: &Self::Thread, context: u64) -> u64;
    /// A thread ends, in whatever functions it is.
    fn exit(&self, thread: &Self::Thread);
    /// What a site calls: 0 nothing, 1 `ftrace_caller`, 2 `ftrace_regs_caller`, or a direct trampoline.
    fn site(&self, f: u64) -> u64;
    /// Which return address stood at `cell`, where there is `at` now: what unwinders ask. By default, `at`.
    fn true_parent(&self, _thread: &Self::Thread, at: u64, _cell: u64) -> u64 {
        at
    }
    /// Is nothing pending?
    fn is_balanced(&self, thread: &Self::Thread) -> bool;
}

/// What an unwinder finds on the stack.
#[derive(Clone, Copy)]
struct Frame {
    /// The address that calls come from; 0: a trampoline that was returned to.
    who: u64,
    /// The return address, and where it lies. 0: no function's.
    parent: u64,
    cell: u64,
}

/// A function that runs, and what it calls last.
struct Inside<T> {
    f: u64,
    n: u64,
    tail: Option<T>,
}

/// A function in which the third thread stays.
struct Open {
    f: u64,
    jumps: bool,
    inside: Inside<Call>,
    caller: u64,
    cell: u64,
    retp: u64,
}

/// The third thread: its functions, and the stack while it does not run.
#[derive(Default)]
struct Third {
    runs: bool,
    open: Vec<Open>,
    stack: Vec<Frame>,
}

/// A core in a case.
pub struct Machine<'c, C: Core> {
    case: &'c Case,
    /// A function is left by a jump, so that depths are known late.
    jumps: bool,
    core: C,
    threads: [C::Thread; THREADS],
    thread: Cell<usize>,
    calls: Cell<u64>,
    depth: [Cell<u64>; THREADS],
    stack: RefCell<Vec<Frame>>,
    third: RefCell<Third>,
    fired: Cell<u64>,
    idle: Cell<u64>,
    /// Those who fill tables.
    crowd: RefCell<Vec<User>>,
    /// For each object and family, the user that was registered last.
    objects: RefCell<Vec<((u64, u8), usize)>>,
    log: RefCell<Vec<Event>>,
}

/// What the idle graph user number `n` is.
fn idle(n: u64) -> User {
    let object = IDLE + 8 * n;
    let on = vec![crate::case::UNCALLED];
    let answer = crate::case::Answer::Always;
    User { what: crate::case::What::Graph, on, not: vec![], answer, words: 0, then: None, object }
}

/// Somebody who is no function.
const fn beside(who: u64) -> Frame {
    Frame { who, parent: 0, cell: 0 }
}

/// Run a case: what is seen.
#[must_use]
pub fn run<C: Core>(case: &Case) -> Vec<Event> {
    let machine: Machine<C> = Machine {
        case,
        jumps: case.jumps(),
        core: C::new(),
        threads: Default::default(),
        thread: Cell::new(0),
        calls: Cell::new(0),
        depth: Default::default(),
        stack: RefCell::new(vec![beside(OUTSIDE)]),
        third: RefCell::default(),
        fired: Cell::new(0),
        idle: Cell::new(0),
        crowd: RefCell::default(),
        objects: RefCell::default(),
        log: RefCell::default(),
    };
    case.acts.iter().chain([&Act::End]).for_each(|act| machine.act(act, OUTSIDE));
    let balanced = machine.threads.iter().all(|t| machine.core.is_balanced(t));
    if !balanced && !case.jumps() {
        machine.see(Event::of(Seen::Unbalanced));
    }
    machine.log.into_inner()
}

impl<C: Core> Machine<'_, C> {
    fn see(&self, event: Event) {
        self.log.borrow_mut().push(event);
    }

    fn thread(&self) -> &C::Thread {
        &self.threads[self.thread.get()]
    }

    fn done(&self, code: i32) {
        self.see(Event { value: i64::from(code) as u64, ..Event::of(Seen::Done) });
    }

    fn act(&self, act: &Act, caller: u64) {
        let user = |index: &usize| &self.case.users[*index];
        match act {
            Act::Register(u) => {
                let code = self.core.register(user(u));
                if code == 0 {
                    self.objects.borrow_mut().push(((user(u).key(), user(u).what.family()), *u));
                }
                self.done(code);
            }
            Act::Unregister(u) => self.done(self.core.unregister(user(u))),
            Act::Modify(u) => self.done(self.core.modify(user(u))),
            Act::Disable(u, disable) => self.done(self.core.disable(user(u), *disable)),
            Act::Filter(u, f, remove) => self.done(self.core.filter(user(u), *f, *remove)),
            Act::Missed(u) => self.see(Event { value: self.core.missed(user(u)) as u64, ..Event::of(Seen::Missed) }),
            Act::Look(f) => self.see(Event { f: *f, data: self.core.site(*f), ..Event::of(Seen::Site) }),
            Act::Call(call) => drop(self.call(call, caller)),
            Act::Interrupt(call) => {
                let before = self.core.context(self.thread(), 0);
                self.core.context(self.thread(), before + 1);
                self.within(OUTSIDE, || self.call(call, OUTSIDE));
                self.core.context(self.thread(), before);
            }
            Act::Switch(call) => {
                let before = self.thread.replace(usize::from(self.thread.get() == 0));
                let context = self.core.context(self.thread(), 0);
                self.core.context(self.thread(), (context + 1).min(3));
                let others = self.stack.replace(vec![beside(OUTSIDE)]);
                self.call(call, OUTSIDE);
                self.stack.replace(others);
                self.core.context(self.thread(), context);
                self.thread.set(before);
            }
            Act::Enter(call) => self.third(|| self.stay(call)),
            Act::Leave => self.third(|| self.go_on()),
            Act::End => self.third(|| {
                self.core.exit(self.thread());
                self.depth[THIRD].set(0);
                self.stack.take();
                self.third.borrow_mut().open.clear();
            }),
            Act::Fill(n) => {
                for _ in 0..*n {
                    self.done(self.core.register(&idle(self.idle.get())));
                    self.idle.set(self.idle.get() + 1);
                }
            }
            Act::Crowd(table, n) => {
                for n in 0..*n {
                    let user = table.user(n);
                    self.done(self.core.register(&user));
                    self.crowd.borrow_mut().push(user);
                }
            }
            Act::Drain => {
                while let Some(user) = self.crowd.borrow_mut().pop() {
                    self.done(self.core.unregister(&user));
                }
                for n in (0..self.idle.replace(0)).rev() {
                    self.done(self.core.unregister(&idle(n)));
                }
            }
            Act::Churn(n) => {
                for _ in 0..*n {
                    self.done(self.core.register(&idle(99)));
                    self.done(self.core.unregister(&idle(99)));
                }
            }
        }
    }

    /// What is done while somebody runs who is no function.
    fn within<R>(&self, who: u64, done: impl FnOnce() -> R) -> R {
        self.stack.borrow_mut().push(beside(who));
        let result = done();
        self.stack.borrow_mut().pop();
        result
    }

    /// The frame of the function that runs, from now on.
    fn frame(&self, who: u64, parent: u64, cell: u64) {
        if let Some(frame) = self.stack.borrow_mut().last_mut() {
            *frame = Frame { who, parent, cell };
        }
    }

    /// Whom an unwinder finds.
    fn callers(&self) -> Callers {
        let stack = self.stack.borrow();
        let mut behind = None;
        let frames = stack.iter().rev().flat_map(|frame| {
            let here = behind.take().unwrap_or(frame.who);
            behind = (frame.cell != 0).then(|| self.core.true_parent(self.thread(), frame.parent, frame.cell));
            Some(here).filter(|who| *who != 0)
        });
        Callers::of(frames)
    }

    /// What the third thread does, if it does nothing else.
    fn third(&self, done: impl FnOnce()) {
        if std::mem::replace(&mut self.third.borrow_mut().runs, true) {
            return;
        }
        let own = std::mem::take(&mut self.third.borrow_mut().stack);
        let before = self.thread.replace(THIRD);
        let others = self.stack.replace(if own.is_empty() { vec![beside(OUTSIDE)] } else { own });
        done();
        let own = self.stack.replace(others);
        self.thread.set(before);
        let mut third = self.third.borrow_mut();
        (third.runs, third.stack) = (false, own);
    }

    /// A function is called that does not return for now.
    fn stay(&self, call: &Call) {
        let caller = self.third.borrow().open.last().map_or(OUTSIDE, |open| address(open.inside.f) + 0x100);
        let (mut cell, retp) = (caller, self.push());
        let Inside { f, n, tail } = self.enter(call, &mut cell, retp);
        let inside = Inside { f, n, tail: tail.cloned() };
        let open = Open { f: call.f, jumps: call.jumps, inside, caller, cell, retp };
        self.third.borrow_mut().open.push(open);
    }

    /// And now it does.
    fn go_on(&self) {
        let open = self.third.borrow_mut().open.pop();
        let Some(Open { f, jumps, inside, caller, mut cell, retp }) = open else { return };
        let inside = Inside { f: inside.f, n: inside.n, tail: inside.tail.as_ref() };
        let value = self.rest(&inside, &mut cell, retp);
        if !jumps {
            self.leave(f, value, caller, cell, retp);
        }
        self.pop();
    }

    /// A place on the stack for a return address.
    fn push(&self) -> u64 {
        let depth = &self.depth[self.thread.get()];
        self.stack.borrow_mut().push(beside(0));
        0x7fff_0000 - 16 * depth.replace(depth.get() + 1)
    }

    fn pop(&self) {
        let depth = &self.depth[self.thread.get()];
        self.stack.borrow_mut().pop();
        depth.set(depth.get() - 1);
    }

    /// Call a function.
    fn call(&self, call: &Call, caller: u64) -> u64 {
        let (mut cell, retp) = (caller, self.push());
        let value = self.run(call, &mut cell, retp);
        if !call.jumps {
            self.leave(call.f, value, caller, cell, retp);
        }
        self.pop();
        value
    }

    /// Return through whatever trampolines the return address leads to.
    fn leave(&self, f: u64, value: u64, caller: u64, mut cell: u64, retp: u64) {
        let mut hooks = 0;
        while (cell == RETURN_TO_HANDLER || cell == RETHOOK) && hooks < 1000 {
            self.frame(0, cell, retp);
            let mut regs = Regs { retval: value, retp, ..Regs::default() };
            cell = self.core.leave(self.thread(), self, cell, &mut regs).unwrap_or(0);
            hooks += 1;
        }
        if cell != caller {
            self.see(Event { f, data: cell, ..Event::of(Seen::WrongReturn) });
        }
    }

    /// The function itself, entered by a call or a jump.
    fn run(&self, call: &Call, cell: &mut u64, retp: u64) -> u64 {
        let inside = self.enter(call, cell, retp);
        self.rest(&inside, cell, retp)
    }

    /// Up to the end of its body.
    fn enter<'a>(&self, call: &'a Call, cell: &mut u64, retp: u64) -> Inside<&'a Call> {
        let n = self.calls.replace(self.calls.get() + 1);
        let ip = address(call.f);
        let mut regs = Regs { ip, parent: *cell, retp, ..Regs::default() };
        regs.args[0] = n;
        self.frame(ip + 0x100, *cell, retp);
        self.core.enter(self.thread(), self, &mut regs);
        *cell = regs.parent;
        self.frame(regs.ip + 0x100, *cell, retp);
        if regs.direct != 0 {
            let event = Event { f: call.f, n, data: regs.direct, ..Event::of(Seen::Direct) };
            self.see(match What::records(regs.direct) {
                true => Event { seen: Seen::Recorded, ..event },
                false => Event { callers: self.callers(), ..event },
            });
        }
        if regs.ip != ip {
            let again = vec![Act::Call(Call { jumps: false, ..call.clone() })];
            let replaced = Call { f: REPLACEMENT, body: again, tail: None, jumps: false };
            let Inside { f, n, .. } = self.enter(&replaced, cell, retp);
            return Inside { f, n, tail: None };
        }
        self.see(Event { f: call.f, n, ..Event::of(Seen::Body) });
        call.body.iter().for_each(|act| self.act(act, ip + 0x100));
        Inside { f: call.f, n, tail: call.tail.as_deref() }
    }

    /// Its end: it jumps to another function, or returns.
    fn rest(&self, &Inside { f, n, tail }: &Inside<&Call>, cell: &mut u64, retp: u64) -> u64 {
        let value = tail.map_or_else(|| mix(f, n), |tail| self.run(tail, cell, retp));
        self.see(Event { f, n, value, ..Event::of(Seen::Result) });
        value
    }

    /// The user with this object who was registered last.
    fn user(&self, seen: Seen, key: u64) -> Option<&User> {
        let family = match seen {
            Seen::Op => 0,
            Seen::GraphEntry | Seen::GraphReturn => 1,
            Seen::ProbeEntry | Seen::ProbeExit => 2,
            _ => 3,
        };
        let objects = self.objects.borrow();
        let (_, user) = objects.iter().rev().find(|(k, _)| *k == (key, family))?;
        Some(&self.case.users[*user])
    }

    fn event(&self, seen: Seen, key: u64, call: &Traced, value: u64, data: Option<&[u64]>) -> Event {
        let depth = if self.jumps { 0 } else { call.depth };
        let f = (call.ip >> 12).wrapping_sub(1);
        let (data, callers) = (fold(data), self.callers());
        Event { seen, user: key & 0xffff, f, n: 0, parent: call.parent_ip, value, data, depth, callers }
    }

    /// What the handler of a user does besides, the first time.
    fn fire(&self, user: &User, now: When) {
        let bit = 1 << (user.object % 64);
        if let Some((when, act)) = &user.then
            && *when == now
            && self.fired.get() & bit == 0
        {
            self.fired.set(self.fired.get() | bit);
            self.within(HANDLER, || self.act(act, HANDLER));
        }
    }

    /// An entry: it is logged, data are stored, and the handler answers.
    fn entered(&self, seen: Seen, key: u64, call: &Traced, regs: &Regs, store: &dyn Fn(&[u64]) -> bool) -> bool {
        let Some(user) = self.user(seen, key) else { return false };
        let n = regs.args[0];
        let data = user.data(n);
        let stored = data.is_empty() || store(&data);
        self.see(Event { n, ..self.event(seen, key, call, u64::from(stored), None) });
        self.fire(user, When::Entry);
        user.wants(n)
    }

    fn left(&self, seen: Seen, key: u64, call: &Traced, regs: &Regs, data: Option<&[u64]>) {
        self.see(self.event(seen, key, call, regs.retval, data));
        if let Some(user) = self.user(seen, key) {
            self.fire(user, When::Return);
        }
    }
}

impl<C: Core> Hooks for Machine<'_, C> {
    fn callback(&self, key: u64, call: &Traced, regs: &mut Regs) {
        self.entered(Seen::Op, key, call, regs, &|_| true);
    }

    fn graph_entry(&self, key: u64, call: &Traced, regs: &Regs, store: &dyn Fn(&[u64]) -> bool) -> bool {
        self.entered(Seen::GraphEntry, key, call, regs, store)
    }

    fn graph_return(&self, key: u64, call: &Traced, regs: &Regs, data: Option<&[u64]>) {
        self.left(Seen::GraphReturn, key, call, regs, data);
    }

    fn probe_entry(&self, key: u64, call: &Traced, regs: &Regs, store: &dyn Fn(&[u64])) -> bool {
        let store = |words: &[u64]| {
            store(words);
            true
        };
        self.entered(Seen::ProbeEntry, key, call, regs, &store)
    }

    fn probe_exit(&self, key: u64, call: &Traced, regs: &Regs, data: Option<&[u64]>) {
        self.left(Seen::ProbeExit, key, call, regs, data);
    }

    fn kret_entry(&self, key: u64, call: &Traced, regs: &Regs, store: &dyn Fn(&[u64])) -> bool {
        let store = |words: &[u64]| {
            store(words);
            true
        };
        self.entered(Seen::KretEntry, key, call, regs, &store)
    }

    fn kret_return(&self, key: u64, call: &Traced, regs: &Regs, data: &[u64]) {
        self.left(Seen::KretReturn, key, call, regs, Some(data));
    }
}
