//! Interrupts between any two accesses of the core to its words, and others within them: functions that they call are traced, and
//! nothing changes for whom they interrupt. The core's own files are compiled here with words that an interrupt comes before.

#![allow(dead_code, reason = "what nobody asks for here is for other layers")]

#[path = "../../src/data.rs"]
mod data;
#[path = "../../src/enter.rs"]
mod enter;
#[path = "../../src/errno.rs"]
mod errno;
#[path = "../../src/flags.rs"]
mod flags;
#[path = "../../src/fprobe.rs"]
mod fprobe;
#[path = "../../src/graph.rs"]
mod graph;
#[path = "../../src/handlers.rs"]
mod handlers;
#[path = "../../src/kretprobe.rs"]
mod kretprobe;
#[path = "../../src/ops.rs"]
mod ops;
#[path = "../../src/pool.rs"]
mod pool;
#[path = "../../src/runtime.rs"]
mod runtime;
#[path = "../../src/sites.rs"]
mod sites;
#[path = "../../src/task.rs"]
mod task;
#[path = "../../src/users.rs"]
mod users;
mod word;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use data::Data;
use fprobe::Fprobe;
use graph::GraphOps;
use handlers::{Call, Entry, Handlers, Room};
use kretprobe::Kretprobe;
use ops::Ops;
use runtime::{Runtime, Trampolines};
use sites::Site;
use task::Task;
use word::{Word, interrupted};

const RETURN_TO_HANDLER: u64 = 0xf000;
const RETHOOK: u64 = 0xf100;
const SITES: [Site; 3] =
    [Site { ip: 0x1000, name: "f" }, Site { ip: 0x2000, name: "g" }, Site { ip: 0x3000, name: "h" }];

/// Users by their keys: two of the graph with data, the second of whom refuses `g`; a probe of entries; two of returns, with
/// and without data; a kretprobe; an ops; one of the graph who wants `f` alone.
const GRAPH: u64 = 1;
const REFUSES: u64 = 2;
const ENTRY: u64 = 3;
const EXIT: u64 = 4;
const KEEPS: u64 = 5;
const KRETPROBE: u64 = 6;
const OPS: u64 = 7;
const ONLY_F: u64 = 8;
const USERS: [u64; 8] = [GRAPH, REFUSES, ENTRY, EXIT, KEEPS, KRETPROBE, OPS, ONLY_F];

/// What a handler sees: whose it is, at a return, the call, the word that it kept.
type Seen = (u64, bool, Call, Option<u64>);

/// A core, a thread, and who is traced there: by level, 0 without an interrupt.
struct World {
    core: Runtime<'static, 1>,
    task: Task,
    level: Cell<usize>,
    logs: [RefCell<Vec<Seen>>; 3],
    /// The return addresses of functions that run, as they lie on the stack; 0 from the return on.
    cells: [Cell<u64>; 3],
    /// What functions do.
    body: Word,
}

/// Whom the function of a level is called by, and where its return address lies.
fn caller(level: usize) -> (u64, u64) {
    (0x9000 + level as u64, 0x8000 - 0x100 * level as u64)
}

impl World {
    fn new() -> Rc<World> {
        let trampolines = Trampolines { return_to_handler: RETURN_TO_HANDLER, rethook: RETHOOK };
        let core = Runtime::new(&SITES, trampolines).unwrap();
        let (level, logs, cells, body) = (Cell::new(0), Default::default(), Default::default(), Word::new(0));
        Rc::new(World { core, task: Task::new(), level, logs, cells, body })
    }

    fn with(keys: &[u64]) -> Rc<World> {
        let world = World::new();
        keys.iter().for_each(|key| world.register(*key));
        world
    }

    fn register(&self, key: u64) {
        let ips = SITES.map(|site| site.ip);
        let fprobe =
            |exit, words: usize| self.core.register_fprobe_ips(&Fprobe { key, exit, entry_data_size: 8 * words }, &ips);
        match key {
            GRAPH | REFUSES => self.core.register_ftrace_graph(&GraphOps { key, ..GraphOps::default() }),
            ONLY_F => self.core.register_ftrace_graph(&GraphOps { key, filter: &ips[..1], notrace: &[] }),
            ENTRY => fprobe(false, 0),
            EXIT => fprobe(true, 0),
            KEEPS => fprobe(true, 2),
            KRETPROBE => {
                // One function a probe: of `f` and of those that interrupts call.
                let kretprobes = ips.map(|ip| Kretprobe { key: key + ip, ip, maxactive: 0, entry: true });
                kretprobes.iter().try_for_each(|probe| self.core.register_kretprobe(probe))
            }
            _ => self.core.register_ftrace_function(&Ops { key, ..Ops::default() }),
        }
        .unwrap();
    }

    fn unregister(&self, key: u64) {
        match key {
            GRAPH | REFUSES | ONLY_F => self.core.unregister_ftrace_graph(key),
            ENTRY | EXIT | KEEPS => self.core.unregister_fprobe(key),
            KRETPROBE => SITES.iter().try_for_each(|site| self.core.unregister_kretprobe(key + site.ip)),
            _ => self.core.unregister_ftrace_function(key),
        }
        .unwrap();
    }

    fn see(&self, user: u64, returns: bool, call: &Call, kept: Option<u64>) {
        // How deep an interrupt is depends on where it comes.
        let depth = if self.level.get() == 0 { call.depth } else { 0 };
        self.logs[self.level.get()].borrow_mut().push((user, returns, Call { depth, ..*call }, kept));
    }

    /// What a user keeps of a call.
    fn kept(&self, user: u64, call: &Call) -> u64 {
        user << 32 | (self.level.get() as u64) << 16 | call.ip
    }

    /// The function of a level is called, and returns to whom it was called by.
    fn call(&self) {
        let level = self.level.get();
        let (parent, retp) = caller(level);
        self.cells[level].set(parent);
        let entry = Entry { ip: SITES[level].ip, parent, retp, direct: 0 };
        let mut to = self.core.enter(&self.task, self, entry, &mut ()).parent;
        self.cells[level].set(to);
        self.body.set(0);
        self.cells[level].set(0);
        for _ in 0..8 {
            let next = match to {
                RETURN_TO_HANDLER => self.core.return_to_handler(&self.task, self, retp, &mut ()),
                RETHOOK => self.core.rethook_return(&self.task, self, retp, &mut ()),
                _ => break,
            };
            to = next.expect("a hook has a frame");
        }
        assert_eq!(to, parent, "level {level} returns elsewhere");
    }

    /// An interrupt comes, in a context of its own, unwinds the stack, and calls.
    fn interrupt(&self) {
        let level = self.level.replace(self.level.get() + 1);
        let before = self.task.enter_context(level as u64 + 2);
        for (cell, (parent, retp)) in self.cells[..=level].iter().zip((0..).map(caller)) {
            if cell.get() != 0 {
                assert_eq!(self.core.true_parent(&self.task, cell.get(), retp), parent, "an unwinder is led astray");
            }
        }
        self.call();
        self.task.enter_context(before);
        self.level.set(level);
    }

    fn log(&self, level: usize) -> Vec<Seen> {
        self.logs[level].take()
    }
}

impl Handlers for World {
    type Regs = ();

    fn callback(&self, ops: u64, _private: u64, call: &Call, _regs: &mut (), ip: u64) -> u64 {
        self.see(ops, false, call, None);
        ip
    }

    fn graph_entry(&self, user: u64, call: &Call, _regs: &(), room: &Room) -> bool {
        let kept = self.kept(user, call);
        let data = room.reserve_data(24).expect("there is room");
        assert!((0..data.len()).all(|i| data.get(i) == 0), "the room is not clear");
        (0..data.len()).for_each(|i| data.set(i, kept));
        let entry = Entry { ip: call.ip, parent: 0x9100, retp: call.ip, direct: 0 };
        assert_eq!(self.core.enter(&self.task, self, entry, &mut ()), entry, "what a handler calls is traced");
        self.see(user, false, call, Some(kept));
        user == GRAPH || self.level.get() != 1
    }

    fn graph_return(&self, user: u64, call: &Call, _regs: &mut (), data: Option<Data>) {
        self.see(user, true, call, data.map(|data| data.get(2)));
    }

    fn fprobe_entry(&self, probe: u64, call: &Call, _regs: &(), data: Option<Data>) -> bool {
        data.iter().for_each(|data| data.set(1, self.kept(probe, call)));
        self.see(probe, false, call, data.map(|data| data.get(1)));
        true
    }

    fn fprobe_exit(&self, probe: u64, call: &Call, _regs: &mut (), data: Option<Data>) {
        self.see(probe, true, call, data.map(|data| data.get(1)));
    }

    fn kretprobe_entry(&self, probe: u64, call: &Call, _regs: &(), data: Data) -> bool {
        data.set(0, self.kept(probe, call));
        self.see(probe, false, call, Some(data.get(0)));
        true
    }

    fn kretprobe_return(&self, probe: u64, call: &Call, _regs: &mut (), data: Data) {
        self.see(probe, true, call, Some(data.get(0)));
    }
}

/// What each level sees if nothing comes between.
fn undisturbed(keys: &[u64]) -> [Vec<Seen>; 3] {
    let world = World::with(keys);
    world.call();
    world.interrupt();
    world.level.set(1);
    world.interrupt();
    let logs = [0, 1, 2].map(|level| world.log(level));
    for (level, log) in logs.iter().enumerate() {
        let mut seen: Vec<(u64, bool)> = log.iter().map(|seen| (seen.0 & 0xfff, seen.1)).collect();
        seen.sort_unstable();
        assert_eq!(seen, promised(keys, level), "level {level}");
        for (user, _, call, kept) in log {
            let keeps = ![ENTRY, EXIT, OPS].contains(user);
            let word = user << 32 | (level as u64) << 16 | SITES[level].ip;
            assert_eq!((call.ip, call.parent_ip, *kept), (SITES[level].ip, caller(level).0, keeps.then_some(word)));
        }
    }
    logs
}

/// Who is promised the entry of a level's function, and who its return.
fn promised(keys: &[u64], level: usize) -> Vec<(u64, bool)> {
    let there = keys.iter().filter(|key| level == 0 || **key != ONLY_F);
    let returns = |key: u64| ![ENTRY, OPS].contains(&key) && (key != REFUSES || level != 1);
    let mut all: Vec<_> = there.flat_map(|key| [Some((*key, false)), returns(*key).then_some((*key, true))]).collect();
    all.sort_unstable();
    all.into_iter().flatten().collect()
}

/// Users of which all, some or one are there: what is looked at first differs.
const COMPANIES: [&[u64]; 5] = [&[GRAPH], &[GRAPH, REFUSES], &[EXIT, KEEPS], &[GRAPH, KRETPROBE, KEEPS], &USERS];

#[test]
fn a_call_and_the_interrupts_within_it_see_what_is_their_own() {
    for keys in COMPANIES {
        let alone = undisturbed(keys);
        let (mut first, mut runs) = (0, 0);
        loop {
            let mut second = 0;
            let came = loop {
                let world = World::with(keys);
                let deeper = Rc::clone(&world);
                let nmi: Rc<dyn Fn()> = Rc::new(move || deeper.interrupt());
                let came = Rc::new(Cell::new(false));
                let (outer, inner) = (Rc::clone(&world), Rc::clone(&came));
                let interrupt: Rc<dyn Fn()> = Rc::new(move || {
                    let ((), twice) = interrupted(second, Rc::clone(&nmi), || outer.interrupt());
                    inner.set(twice);
                });
                let ((), once) = interrupted(first, interrupt, || world.call());
                runs += 1;
                let at = format!("{keys:?}, interrupted after {first} accesses, there after {second}");
                let levels = [true, once, came.get()];
                for (level, there) in levels.into_iter().enumerate() {
                    let expected = if there { &*alone[level] } else { &[] };
                    assert_eq!(world.log(level), expected, "{at}: level {level}");
                }
                assert!(world.core.is_balanced(&world.task), "{at}: something is pending");
                if !came.get() {
                    break once;
                }
                second += 1;
            };
            if !came {
                break;
            }
            first += 1;
        }
        assert!(first > 60 && runs > 60 * first, "{keys:?}: {first} accesses, {runs} runs");
    }
}

#[test]
fn who_is_being_registered_is_there_for_an_interrupt_or_is_not() {
    for (key, there) in USERS.into_iter().flat_map(|key| [(key, false), (key, true)]) {
        let others: Vec<u64> = USERS.into_iter().filter(|other| *other != key).collect();
        let mut accesses = 0;
        loop {
            let world = World::with(&others);
            if there {
                world.register(key);
            }
            let deeper = Rc::clone(&world);
            let ((), came) = interrupted(accesses, Rc::new(move || deeper.interrupt()), || match there {
                true => world.unregister(key),
                false => world.register(key),
            });
            let of = |log: &[Seen], user: bool| -> Vec<Seen> {
                let is_its = |seen: &&Seen| seen.0 == key || key == KRETPROBE && seen.0 > 0x1000;
                log.iter().filter(|seen| is_its(seen) == user).copied().collect()
            };
            let at = format!("user {key}, there: {there}, after {accesses} accesses");
            if came {
                let [_, all, _] = undisturbed(&[&others[..], &[key]].concat());
                let log = world.log(1);
                let own = of(&log, true);
                assert!(own.is_empty() || sorted(&own) == sorted(&of(&all, true)), "{at}: it sees {own:x?}");
                assert_eq!(sorted(&of(&log, false)), sorted(&of(&all, false)), "{at}: others");
            }
            assert!(world.core.is_balanced(&world.task), "{at}: something is pending");
            world.call();
            assert_eq!(of(&world.log(0), true).is_empty(), there, "{at}: what is done is not done");
            if !came {
                break;
            }
            accesses += 1;
        }
        assert!(accesses > 5, "user {key}: {accesses} accesses");
    }
}

/// Who comes later is called in another place.
fn sorted(log: &[Seen]) -> Vec<(u64, bool, u64, Option<u64>)> {
    let mut seen: Vec<_> = log.iter().map(|(user, returns, call, kept)| (*user, *returns, call.ip, *kept)).collect();
    seen.sort_unstable();
    seen
}
