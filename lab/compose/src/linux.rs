//! Linux's own algorithms as a core: the function graph of 6.12 and of 7.3 with one user or several, and the fprobe of 7.3 on
//! it. Written as steps from descriptions of them, to be held against what they promise. Ops with a callback are there to
//! trace the same functions; direct calls, IPMODIFY and kretprobes are not.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use runtime::Call;

use crate::case::{Act, Callers, Case, Event, Seen, User, What, address};
use crate::machine::{Core, Hooks, RETURN_TO_HANDLER, Regs};

/// What differs between versions.
pub trait Version {
    /// Words of a frame without its reference word.
    const FRAME: usize;
    /// Has it fprobes on the function graph?
    const PROBES: bool;
    /// Is there a recursion guard around a return?
    const GUARDED_RETURN: bool;
}

/// Linux 6.12.
pub struct V6_12;
/// Linux 7.3.
pub struct V7_3;

impl Version for V6_12 {
    const FRAME: usize = 4;
    const PROBES: bool = false;
    const GUARDED_RETURN: bool = false;
}

impl Version for V7_3 {
    const FRAME: usize = 3;
    const PROBES: bool = true;
    const GUARDED_RETURN: bool = true;
}

/// Repairs of what is found, one bit each, to see what else is wrong.
pub mod repair {
    /// Bit 0 of a frame is that of user 0 only.
    pub const BIT_0: u8 = 1;
    /// Calls that find the stack full are missed.
    pub const OVERRUN: u8 = 2;
    /// Who comes has no returns of the slot's last owner.
    pub const SLOT: u8 = 4;
    /// And none of the last probe in its memory.
    pub const MEMORY: u8 = 8;
}

const USERS: usize = 16;
const WORDS: usize = 512;
const MOST_DATA: usize = 32;
/// Bits of a reference word.
const DISTANCE: u64 = 0x3ff;
const KIND: u64 = 3 << 10;
const BITMAP: u64 = 1 << 10;
const DATA: u64 = 2 << 10;

/// The first index at which nothing is pushed any more.
const fn limit(frame: usize) -> usize {
    WORDS - (frame + 1 + USERS)
}

/// A shadow stack with its thread.
pub struct Thread {
    words: RefCell<Vec<u64>>,
    top: Cell<usize>,
    depth: Cell<i64>,
    context: Cell<u64>,
    /// Recursion bits: a context each, and one that lets a single call of a handler through.
    guard: Cell<u64>,
    list: Cell<u64>,
}

impl Default for Thread {
    fn default() -> Self {
        let zero = || Cell::new(0);
        Self {
            words: RefCell::new(vec![0; WORDS]),
            top: Cell::new(0),
            depth: Cell::new(-1),
            context: zero(),
            guard: zero(),
            list: zero(),
        }
    }
}

/// Take a recursion bit: the context's, or the one for transitions.
fn trylock(bits: &Cell<u64>, context: u64) -> Option<u64> {
    let bit = [1 << context, 1 << 8].into_iter().find(|bit| bits.get() & bit == 0)?;
    bits.set(bits.get() | bit);
    Some(bit)
}

/// A graph user in its slot: whom it stands for.
#[derive(Clone)]
enum Graph {
    Of(User),
    Probes,
}

/// An fprobe's memory.
#[derive(Clone)]
struct Probe {
    exit: bool,
    words: usize,
    disabled: bool,
    missed: u64,
}

#[derive(Clone, PartialEq)]
enum Ops {
    Of(User),
    Graph,
    Probes,
}

/// The core.
pub struct Linux<V, const REPAIRED: u8> {
    version: std::marker::PhantomData<V>,
    slots: RefCell<Vec<Option<Graph>>>,
    /// For repairs: the number of the latest registration, and those of the slots and the probes.
    clock: Cell<u64>,
    slot_since: RefCell<Vec<u64>>,
    probe_since: RefCell<HashMap<u64, u64>>,
    /// Indices in the order in which they are given out.
    free: RefCell<Vec<usize>>,
    /// The one user, while there is one.
    only: Cell<Option<usize>>,
    ops: RefCell<Vec<Ops>>,
    /// Nodes of the table by address, the newest first: function, probe.
    nodes: RefCell<Vec<(u64, u64)>>,
    /// Registered probes, and the memory of all that ever were.
    live: RefCell<Vec<u64>>,
    memory: RefCell<HashMap<u64, Probe>>,
    /// Filters of the two ops of probes: with exit handler, and without.
    filters: [RefCell<Vec<u64>>; 2],
}

fn wants(user: &User, f: u64) -> bool {
    (user.on.is_empty() || user.on.contains(&f)) && !user.not.contains(&f)
}

const fn is_exit(user: &User) -> bool {
    matches!(user.what, What::Fprobe { exit: true })
}

impl<V: Version, const REPAIRED: u8> Linux<V, REPAIRED> {
    fn graph_wants(&self, graph: &Graph, f: u64) -> bool {
        match graph {
            Graph::Of(user) => wants(user, f),
            Graph::Probes => self.filters[1].borrow().contains(&f),
        }
    }

    fn tick(&self) -> u64 {
        self.clock.set(self.clock.get() + 1);
        self.clock.get()
    }

    fn register_graph(&self, graph: Graph) -> i32 {
        let mut free = self.free.borrow_mut();
        if free.is_empty() {
            return -28;
        }
        let index = free.remove(0);
        let active = USERS - free.len();
        self.only.set((active == 1).then_some(index));
        self.slots.borrow_mut()[index] = Some(graph);
        self.slot_since.borrow_mut()[index] = self.tick();
        if active == 1 {
            self.ops.borrow_mut().push(Ops::Graph);
        }
        0
    }

    fn unregister_graph(&self, index: usize) {
        self.slots.borrow_mut()[index] = None;
        self.free.borrow_mut().push(index);
        let users = self.slots.borrow();
        let left: Vec<usize> = (0..USERS).filter(|i| users[*i].is_some()).collect();
        self.only.set(if left.len() == 1 { Some(left[0]) } else { None });
        if left.is_empty() {
            self.ops.borrow_mut().retain(|o| *o != Ops::Graph);
        }
    }

    fn register_probe(&self, user: &User) -> i32 {
        let (key, exit) = (user.key(), is_exit(user));
        if self.live.borrow().contains(&key) {
            return -17;
        }
        if user.on.is_empty() {
            return -22;
        }
        if user.words > 15 {
            return -7;
        }
        let mut memory = self.memory.borrow_mut();
        memory.insert(key, Probe { exit, words: user.words, disabled: false, missed: 0 });
        drop(memory);
        let first = self.filters[usize::from(exit)].borrow().is_empty();
        if first && exit {
            let code = self.register_graph(Graph::Probes);
            if code != 0 {
                return code;
            }
        } else if first {
            self.ops.borrow_mut().push(Ops::Probes);
        }
        for f in &user.on {
            let mut filter = self.filters[usize::from(exit)].borrow_mut();
            if !filter.contains(f) {
                filter.push(*f);
            }
            self.nodes.borrow_mut().insert(0, (*f, key));
        }
        self.live.borrow_mut().push(key);
        self.probe_since.borrow_mut().insert(key, self.tick());
        0
    }

    fn unregister_probe(&self, user: &User) -> i32 {
        let key = user.key();
        if !self.live.borrow().contains(&key) {
            return -22;
        }
        let exit = self.memory.borrow()[&key].exit;
        self.live.borrow_mut().retain(|k| *k != key);
        self.nodes.borrow_mut().retain(|(_, k)| *k != key);
        let nodes = self.nodes.borrow();
        let class: Vec<u64> =
            nodes.iter().filter(|(_, k)| self.memory.borrow()[k].exit == exit).map(|(f, _)| *f).collect();
        self.filters[usize::from(exit)].borrow_mut().retain(|f| class.contains(f));
        if class.is_empty() && exit {
            drop(nodes);
            let index = self.slots.borrow().iter().position(|s| matches!(s, Some(Graph::Probes)));
            index.into_iter().for_each(|i| self.unregister_graph(i));
        } else if class.is_empty() {
            self.ops.borrow_mut().retain(|o| *o != Ops::Probes);
        }
        0
    }

    /// Reserve words behind the top frame: where they begin.
    fn reserve(thread: &Thread, index: usize, words: usize) -> Option<usize> {
        let top = thread.top.get();
        let end = top + words + 1;
        if words > MOST_DATA || end >= limit(V::FRAME) {
            return None;
        }
        let mut stack = thread.words.borrow_mut();
        let distance = (stack[top - 1] & DISTANCE) + words as u64 + 1;
        stack[end - 1] = (index as u64) << 17 | (words as u64 - 1) << 12 | DATA | distance;
        thread.top.set(end);
        Some(top)
    }

    /// What a user reserved in the top frame: where, and how many words.
    fn retrieve(thread: &Thread, index: usize) -> Option<(usize, usize)> {
        let stack = thread.words.borrow();
        let mut at = thread.top.get() - 1;
        while stack[at] & KIND == DATA {
            let words = (stack[at] >> 12 & 31) as usize + 1;
            if (stack[at] >> 17 & 15) as usize == index {
                return Some((at - words, words));
            }
            at -= words + 1;
        }
        None
    }

    fn graph_enter(&self, thread: &Thread, hooks: &dyn Hooks, f: u64, regs: &mut Regs) {
        let Some(bit) = trylock(&thread.guard, thread.context.get()) else { return };
        if self.graph_push(thread, hooks, f, regs) {
            regs.parent = RETURN_TO_HANDLER;
        }
        thread.guard.set(thread.guard.get() & !bit);
    }

    /// Push a frame and ask the users. Is the return hooked?
    fn graph_push(&self, thread: &Thread, hooks: &dyn Hooks, f: u64, regs: &Regs) -> bool {
        let start = thread.top.get();
        if start + V::FRAME + 1 >= limit(V::FRAME) {
            if REPAIRED & repair::OVERRUN != 0 {
                self.probes_on(f, true).iter().filter(|(_, p)| !p.disabled).for_each(|(key, _)| self.miss(*key));
            }
            return false;
        }
        thread.depth.set(thread.depth.get() + 1);
        let reference = start + V::FRAME;
        let mut stack = thread.words.borrow_mut();
        stack[reference] = V::FRAME as u64;
        // The number of the registration stands where the address of the cell would.
        (stack[start], stack[start + 1], stack[start + 2]) = (regs.parent, f, self.clock.get());
        drop(stack);
        thread.top.set(reference + 1);
        let mut users = 0_u64;
        let only = self.only.get();
        for index in 0..USERS {
            let graph = self.slots.borrow()[index].clone();
            let Some(graph) = graph else { continue };
            // The one user is called without a look at its filter.
            let there = only.map_or_else(|| self.graph_wants(&graph, f), |only| only == index);
            let mark = thread.top.get();
            if there && self.ask(thread, hooks, index, &graph, f, regs) {
                users |= 1 << index;
            } else {
                thread.top.set(mark);
            }
        }
        if users == 0 {
            thread.top.set(start);
            thread.depth.set(thread.depth.get() - 1);
            return false;
        }
        let forced = u64::from(REPAIRED & repair::BIT_0 == 0);
        thread.words.borrow_mut()[reference] = (users | forced) << 12 | BITMAP | V::FRAME as u64;
        true
    }

    fn ask(&self, thread: &Thread, hooks: &dyn Hooks, index: usize, graph: &Graph, f: u64, regs: &Regs) -> bool {
        let call = Call { ip: address(f), parent_ip: regs.parent, depth: thread.depth.get() as u64 };
        match graph {
            Graph::Probes => self.probes_enter(thread, hooks, index, &call, regs),
            Graph::Of(user) => {
                let store = |data: &[u64]| {
                    let at = Self::reserve(thread, index, data.len());
                    at.inspect(|at| thread.words.borrow_mut()[*at..*at + data.len()].copy_from_slice(data)).is_some()
                };
                hooks.graph_entry(user.key(), &call, regs, &store)
            }
        }
    }

    /// The probes with exit handler on a function, the newest first.
    fn probes_on(&self, f: u64, exit: bool) -> Vec<(u64, Probe)> {
        let nodes = self.nodes.borrow();
        let memory = self.memory.borrow();
        let there = nodes.iter().filter(|(g, _)| *g == f).map(|(_, key)| (*key, memory[key].clone()));
        there.filter(|(_, probe)| probe.exit == exit).collect()
    }

    fn miss(&self, key: u64) {
        self.memory.borrow_mut().entry(key).and_modify(|probe| probe.missed += 1);
    }

    fn probes_enter(&self, thread: &Thread, hooks: &dyn Hooks, index: usize, call: &Call, regs: &Regs) -> bool {
        let f = (call.ip >> 12) - 1;
        let here = self.probes_on(f, true);
        let reserved: usize = here.iter().map(|(_, probe)| 1 + probe.words).sum();
        let mut at = 0;
        if reserved > 0 {
            match Self::reserve(thread, index, reserved) {
                Some(place) => at = place,
                None => {
                    here.iter().filter(|(_, p)| !p.disabled).for_each(|(key, _)| self.miss(*key));
                    return false;
                }
            }
        }
        let mut used = 0;
        for (key, _) in here {
            // A probe that is gone is off the list; one that is disabled meanwhile is passed by.
            let probe = self.memory.borrow()[&key].clone();
            if !self.nodes.borrow().contains(&(f, key)) || probe.disabled || !probe.exit {
                continue;
            }
            if used + 1 + probe.words > reserved {
                self.miss(key);
                continue;
            }
            let place = at + used + 1;
            let store = |data: &[u64]| thread.words.borrow_mut()[place..place + data.len()].copy_from_slice(data);
            if hooks.probe_entry(key, call, regs, &store) {
                thread.words.borrow_mut()[at + used] = (probe.words as u64) << 60 | key & (u64::MAX >> 4);
                used += 1 + probe.words;
            }
        }
        if used > 0 && used < reserved {
            thread.words.borrow_mut()[at + used] = 0;
        }
        used > 0
    }

    fn probes_return(&self, thread: &Thread, hooks: &dyn Hooks, index: usize, call: &Call, regs: &Regs, since: u64) {
        // Without data the kernel warns, once.
        let Some((at, words)) = Self::retrieve(thread, index) else { return };
        let stored = thread.words.borrow()[at..at + words].to_vec();
        let mut rest = &*stored;
        while let Some((header, behind)) = rest.split_first().filter(|(header, _)| **header != 0) {
            let (size, key) = ((header >> 60) as usize, header | 0xf << 60);
            let alive = self.live.borrow().contains(&key) && !self.memory.borrow()[&key].disabled;
            let alive = alive && (REPAIRED & repair::MEMORY == 0 || self.probe_since.borrow()[&key] <= since);
            let (own, next) = behind.split_at(size.min(behind.len()));
            if alive {
                hooks.probe_exit(key, call, regs, (size > 0).then_some(own));
            }
            rest = next;
        }
    }
}

impl<V: Version, const REPAIRED: u8> Core for Linux<V, REPAIRED> {
    type Thread = Thread;

    fn new() -> Self {
        Self {
            version: std::marker::PhantomData,
            slots: RefCell::new(vec![None; USERS]),
            clock: Cell::new(0),
            slot_since: RefCell::new(vec![0; USERS]),
            probe_since: RefCell::default(),
            free: RefCell::new((0..USERS).collect()),
            only: Cell::new(None),
            ops: RefCell::default(),
            nodes: RefCell::default(),
            live: RefCell::default(),
            memory: RefCell::default(),
            filters: Default::default(),
        }
    }

    fn register(&self, user: &User) -> i32 {
        let is_it = |slot: &Option<Graph>| matches!(slot, Some(Graph::Of(u)) if u.key() == user.key());
        match user.what {
            What::Fprobe { .. } => self.register_probe(user),
            What::Graph if self.slots.borrow().iter().any(is_it) => -16,
            What::Graph => self.register_graph(Graph::Of(user.clone())),
            _ if self.ops.borrow().iter().any(|o| matches!(o, Ops::Of(u) if u.key() == user.key())) => -16,
            _ => {
                self.ops.borrow_mut().push(Ops::Of(user.clone()));
                0
            }
        }
    }

    fn unregister(&self, user: &User) -> i32 {
        let is_it = |slot: &Option<Graph>| matches!(slot, Some(Graph::Of(u)) if u.key() == user.key());
        match user.what {
            What::Fprobe { .. } => self.unregister_probe(user),
            What::Graph => {
                let index = self.slots.borrow().iter().position(is_it);
                let Some(index) = index else { return -22 };
                self.unregister_graph(index);
                0
            }
            _ => {
                let before = self.ops.borrow().len();
                self.ops.borrow_mut().retain(|o| !matches!(o, Ops::Of(u) if u.key() == user.key()));
                if self.ops.borrow().len() < before { 0 } else { -16 }
            }
        }
    }

    fn modify(&self, _user: &User) -> i32 {
        -22
    }

    fn disable(&self, user: &User, disable: bool) -> i32 {
        if !matches!(user.what, What::Fprobe { .. }) || !self.live.borrow().contains(&user.key()) {
            return -22;
        }
        self.memory.borrow_mut().entry(user.key()).and_modify(|p| p.disabled = disable);
        0
    }

    fn filter(&self, _user: &User, _f: u64, _remove: bool) -> i32 {
        -22
    }

    fn missed(&self, user: &User) -> i64 {
        match matches!(user.what, What::Fprobe { .. }) && self.live.borrow().contains(&user.key()) {
            true => self.memory.borrow()[&user.key()].missed as i64,
            false => -22,
        }
    }

    fn enter(&self, thread: &Thread, hooks: &dyn Hooks, regs: &mut Regs) {
        let f = regs.ip;
        let f = (f >> 12) - 1;
        let Some(list) = trylock(&thread.list, thread.context.get()) else { return };
        let call = Call { ip: address(f), parent_ip: regs.parent, depth: (thread.depth.get() + 1) as u64 };
        let ops = self.ops.borrow().clone();
        for ops in ops.into_iter().rev() {
            if !self.ops.borrow().contains(&ops) {
                continue;
            }
            match ops {
                Ops::Of(user) if wants(&user, f) => hooks.callback(user.key(), &call, regs),
                Ops::Of(_) => {}
                Ops::Graph => {
                    let slots = self.slots.borrow().clone();
                    if slots.iter().flatten().any(|graph| self.graph_wants(graph, f)) {
                        self.graph_enter(thread, hooks, f, regs);
                    }
                }
                Ops::Probes => {
                    let Some(bit) = trylock(&thread.guard, thread.context.get()) else { continue };
                    for (key, _) in self.probes_on(f, false) {
                        let there = self.nodes.borrow().contains(&(f, key)) && !self.memory.borrow()[&key].disabled;
                        if there {
                            hooks.probe_entry(key, &call, regs, &|_| ());
                        }
                    }
                    thread.guard.set(thread.guard.get() & !bit);
                }
            }
        }
        thread.list.set(thread.list.get() & !list);
    }

    fn leave(&self, thread: &Thread, hooks: &dyn Hooks, _trampoline: u64, regs: &mut Regs) -> Option<u64> {
        let last = *thread.words.borrow().get(thread.top.get().checked_sub(1)?)?;
        let start = (thread.top.get() - 1).checked_sub((last & DISTANCE) as usize)?;
        let words = thread.words.borrow();
        let (ret, f, bitmap) = (words[start], words[start + 1], words[start + V::FRAME] >> 12 & 0xffff);
        let since = words[start + 2];
        drop(words);
        regs.ip = ret;
        let call = Call { ip: address(f), parent_ip: ret, depth: thread.depth.get() as u64 };
        let bit = if V::GUARDED_RETURN { trylock(&thread.guard, thread.context.get()) } else { Some(0) };
        if let Some(bit) = bit {
            let only = self.only.get();
            for index in (0..USERS).filter(|i| bitmap >> i & 1 == 1 && only.is_none_or(|only| only == *i)) {
                let graph = self.slots.borrow()[index].clone();
                if REPAIRED & repair::SLOT != 0 && self.slot_since.borrow()[index] > since {
                    continue;
                }
                match graph {
                    None => {}
                    Some(Graph::Probes) => self.probes_return(thread, hooks, index, &call, regs, since),
                    Some(Graph::Of(user)) => {
                        let data = Self::retrieve(thread, index);
                        let data = data.map(|(at, words)| thread.words.borrow()[at..at + words].to_vec());
                        hooks.graph_return(user.key(), &call, regs, data.as_deref());
                    }
                }
            }
            thread.guard.set(thread.guard.get() & !bit);
        }
        thread.top.set(start);
        thread.depth.set(thread.depth.get() - 1);
        Some(ret)
    }

    fn context(&self, thread: &Thread, context: u64) -> u64 {
        thread.context.replace(context.min(3))
    }

    fn exit(&self, thread: &Thread) {
        thread.top.set(0);
        thread.depth.set(-1);
    }

    fn site(&self, _f: u64) -> u64 {
        0
    }

    fn is_balanced(&self, thread: &Thread) -> bool {
        thread.top.get() == 0 && thread.depth.get() == -1
    }
}

/// Has Linux what a case uses, and promises it to do something with it? No function is left by a jump there, handlers cannot
/// unregister, which sleeps, and of their own calls one is traced and others are not.
pub fn supports<V: Version>(case: &Case) -> bool {
    // In an interrupt nobody registers.
    fn promised(act: &Act, sleeps: bool) -> bool {
        match act {
            Act::Filter(..) | Act::Modify(_) | Act::Crowd(..) => false,
            Act::Call(call) | Act::Switch(call) | Act::Enter(call) => within(call, sleeps),
            Act::Interrupt(call) => within(call, false),
            Act::Look(_) | Act::Missed(_) | Act::Leave | Act::End => true,
            _ => sleeps,
        }
    }
    fn within(call: &crate::case::Call, sleeps: bool) -> bool {
        let body = call.body.iter().all(|act| promised(act, sleeps));
        body && !call.jumps && call.tail.as_deref().is_none_or(|tail| within(tail, sleeps))
    }
    let users = case.users.iter().all(|user| {
        let there = match user.what {
            What::Op { .. } | What::Graph => true,
            What::Fprobe { .. } => V::PROBES,
            _ => false,
        };
        there && user.then.as_ref().is_none_or(|(_, act)| promised(act, true) && matches!(**act, Act::Interrupt(_)))
    });
    users && case.acts.iter().all(|act| promised(act, true))
}

/// Callers are shown as return addresses, which other hooks may have replaced. Unwinders, and what sites call, are not modelled.
pub fn promised(event: Event) -> Option<Event> {
    (event.seen != Seen::Site).then_some(Event { parent: 0, callers: Callers::default(), ..event })
}
