//! What the oracle's machine does not ask for: data of callers, words of a thread, patterns, functions left by a jump.

use std::cell::RefCell;

use tramptool_runtime::{
    Call, Data, Entry, Errno, Fprobe, GraphOps, Handlers, Kretprobe, Ops, Room, Runtime, Site, Task, Trampolines, glob,
};

const SITES: [Site; 3] =
    [Site { ip: 0x1000, name: "vfs_read" }, Site { ip: 0x2000, name: "vfs_write" }, Site { ip: 0x3000, name: "kfree" }];

fn core() -> Runtime<'static, 1> {
    Runtime::new(&SITES, Trampolines { return_to_handler: 0xf000, rethook: 0xf100 }).unwrap()
}

/// Users store the function they see, and look for what their callers' frames have.
struct Look<'r>(&'r Runtime<'static, 1>, &'r Task, RefCell<Vec<(u64, Option<u64>)>>);

impl Handlers for Look<'_> {
    type Regs = ();

    fn graph_entry(&self, _user: u64, call: &Call, _regs: &(), room: &Room) -> bool {
        let data = room.reserve_data(9).unwrap();
        assert_eq!((data.len(), data.get(1)), (2, 0), "rounded up to words, and clear");
        assert!(room.reserve_data(8).is_none(), "once an entry");
        data.set(0, call.ip);
        true
    }

    fn graph_return(&self, user: u64, call: &Call, _regs: &mut (), data: Option<Data>) {
        assert_eq!(data.unwrap().get(0), call.ip);
        let caller = self.0.retrieve_parent_data(self.1, user, 1).map(|d| d.get(0));
        self.2.borrow_mut().push((call.ip, caller));
    }
}

fn enter(look: &Look, ip: u64, retp: u64) {
    let entry = Entry { ip, parent: 0x9000 + retp, retp, direct: 0 };
    assert_eq!(look.0.enter(look.1, look, entry, &mut ()), Entry { parent: 0xf000, ..entry });
}

fn leave(look: &Look, retp: u64) {
    assert_eq!(look.0.return_to_handler(look.1, look, retp, &mut ()), Some(0x9000 + retp));
}

#[test]
fn a_return_finds_what_its_callers_stored() {
    let (core, task) = (core(), Task::new());
    core.register_ftrace_graph(&GraphOps { key: 8, ..GraphOps::default() }).unwrap();
    let look = Look(&core, &task, RefCell::default());
    enter(&look, 0x1000, 64);
    enter(&look, 0x2000, 32);
    leave(&look, 32);
    leave(&look, 64);
    assert_eq!(*look.2.borrow(), [(0x2000, Some(0x1000)), (0x1000, None)]);
    assert!(core.is_balanced(&task));
}

#[test]
fn frames_of_functions_that_were_left_by_a_jump_are_dropped() {
    let (core, task) = (core(), Task::new());
    core.register_ftrace_graph(&GraphOps { key: 8, ..GraphOps::default() }).unwrap();
    let look = Look(&core, &task, RefCell::default());
    enter(&look, 0x1000, 64);
    enter(&look, 0x2000, 32);
    enter(&look, 0x3000, 16);
    leave(&look, 64);
    assert_eq!((look.2.borrow().as_slice(), task.unwound()), (&[(0x1000, None)][..], 2));
    assert!(core.is_balanced(&task));
    let nothing = core.return_to_handler(&task, &look, 0, &mut ());
    assert_eq!(nothing, None, "nothing is pending");
}

#[test]
fn a_user_has_a_word_of_each_thread_that_begins_with_0() {
    let (core, task, other) = (core(), Task::new(), Task::new());
    let register = |key| core.register_ftrace_graph(&GraphOps { key, ..GraphOps::default() });
    register(8).unwrap();
    core.task_var(&task, 8).unwrap().set(5);
    assert_eq!(core.task_var(&task, 8).unwrap().get(), 5);
    assert_eq!(core.task_var(&other, 8).unwrap().get(), 0);
    // The slot comes around: its next owner has a word of its own.
    core.unregister_ftrace_graph(8).unwrap();
    assert!(core.task_var(&task, 8).is_none());
    (0..16).for_each(|n| register(16 + n).unwrap());
    assert_eq!(register(99), Err(Errno::Nospc));
    assert!((0..16).all(|n| core.task_var(&task, 16 + n).unwrap().get() == 0));
}

#[test]
fn the_key_of_all_fprobes_is_nobodys() {
    let core = core();
    let graph = GraphOps { key: u64::MAX, ..GraphOps::default() };
    for _ in 0..2 {
        assert_eq!(core.register_ftrace_graph(&graph), Err(Errno::Inval));
        assert_eq!(core.unregister_ftrace_graph(u64::MAX), Err(Errno::Inval));
        core.register_fprobe_ips(&Fprobe { key: 8, exit: true, entry_data_size: 8 }, &[0x1000]).ok();
    }
    assert_eq!(core.unregister_fprobe(8), Ok(()));
}

#[test]
fn many_functions_are_told_apart_in_any_order_of_calls() {
    struct Count(RefCell<Vec<(u64, u64)>>);
    impl Handlers for Count {
        type Regs = ();

        fn callback(&self, ops: u64, _private: u64, call: &Call, _regs: &mut (), ip: u64) -> u64 {
            self.0.borrow_mut().push((ops, call.ip));
            ip
        }
    }
    let ips: Vec<u64> = (0..256).map(|i| 0x1000 + 16 * i + (i / 200) * 0x100_0000).collect();
    let sites: Vec<Site> = ips.iter().map(|ip| Site { ip: *ip, name: "f" }).collect();
    let core: Runtime<4> = Runtime::new(&sites, Trampolines { return_to_handler: 0xf000, rethook: 0xf100 }).unwrap();
    let (even, odd): (Vec<u64>, Vec<u64>) = ips.iter().partition(|ip| *ip / 16 % 2 == 0);
    for (key, filter) in [(2, &even), (3, &odd)] {
        core.register_ftrace_function(&Ops { key, filter, ..Ops::default() }).unwrap();
    }
    let (task, count) = (Task::new(), Count(RefCell::default()));
    for step in [1, 1, 7, 101] {
        for n in 0..256 {
            let ip = ips[n * step % 256];
            for near in [ip - 1, ip, ip + 1] {
                core.enter(&task, &count, Entry { ip: near, ..Entry::default() }, &mut ());
            }
            assert_eq!(count.0.take(), [(2 + ip / 16 % 2, ip)]);
        }
    }
}

#[test]
fn a_user_that_gets_a_slot_during_an_entry_sees_the_next_one() {
    struct Swap<'r>(&'r Runtime<'static, 1>, RefCell<Vec<u64>>);
    impl Handlers for Swap<'_> {
        type Regs = ();

        fn graph_entry(&self, user: u64, _call: &Call, _regs: &(), _room: &Room) -> bool {
            self.1.borrow_mut().push(user);
            if user == 1 {
                let graph = |key| GraphOps { key, filter: &[0x1000], notrace: &[] };
                // The slot of user 2 comes around.
                let _ = self.0.unregister_ftrace_graph(2);
                (3..=16).for_each(|key| self.0.register_ftrace_graph(&graph(key)).unwrap());
                self.0.register_ftrace_graph(&graph(17)).unwrap();
                (3..=16).for_each(|key| self.0.unregister_ftrace_graph(key).unwrap());
            }
            false
        }
    }
    let (core, task) = (core(), Task::new());
    for key in [1, 2] {
        core.register_ftrace_graph(&GraphOps { key, filter: &[0x1000], notrace: &[] }).unwrap();
    }
    let swap = Swap(&core, RefCell::default());
    core.enter(&task, &swap, Entry { ip: 0x1000, ..Entry::default() }, &mut ());
    assert_eq!(swap.1.take(), [1]);
}

#[test]
fn a_kretprobe_that_comes_during_an_entry_sees_the_next_one() {
    struct More<'r>(&'r Runtime<'static, 1>, RefCell<Vec<u64>>);
    impl Handlers for More<'_> {
        type Regs = ();

        fn kretprobe_entry(&self, probe: u64, call: &Call, _regs: &(), _data: Data) -> bool {
            self.1.borrow_mut().push(probe);
            let _ = self.0.register_kretprobe(&Kretprobe { key: 2, ip: call.ip, maxactive: 0, entry: true });
            false
        }
    }
    let (core, task) = (core(), Task::new());
    core.register_kretprobe(&Kretprobe { key: 1, ip: 0x1000, maxactive: 0, entry: true }).unwrap();
    let more = More(&core, RefCell::default());
    for seen in [&[1][..], &[1, 2]] {
        core.enter(&task, &more, Entry { ip: 0x1000, ..Entry::default() }, &mut ());
        assert_eq!(more.1.take(), seen);
    }
}

#[test]
fn probes_are_registered_by_patterns() {
    struct Count(RefCell<Vec<u64>>);
    impl Handlers for Count {
        type Regs = ();

        fn fprobe_entry(&self, _probe: u64, call: &Call, _regs: &(), _data: Option<Data>) -> bool {
            self.0.borrow_mut().push(call.ip);
            true
        }
    }
    let (core, task, count) = (core(), Task::new(), Count(RefCell::default()));
    let probe = Fprobe { key: 8, ..Fprobe::default() };
    assert_eq!(core.register_fprobe(&probe, "nothing*", None), Err(Errno::Noent));
    core.register_fprobe(&probe, "vfs_*", Some("*w?ite")).unwrap();
    for site in SITES {
        core.enter(&task, &count, Entry { ip: site.ip, ..Entry::default() }, &mut ());
    }
    assert_eq!(*count.0.borrow(), [0x1000]);
    for (pattern, name, matches) in
        [("*", "", true), ("", "", true), ("a*b*c", "abbc", true), ("a*b*c", "abcb", false), ("??", "a", false)]
    {
        assert_eq!(glob(pattern, name), matches, "{pattern} {name}");
    }
}
