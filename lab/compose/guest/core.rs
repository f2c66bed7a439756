// SPDX-License-Identifier: MIT OR Apache-2.0
//! The core as `layer.c` calls it, and handlers that ask outside. Nothing here dereferences what is not a reference: what is
//! unsafe are the names under which C finds it.
#![no_std]

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

extern crate tramptool_runtime as runtime;

use runtime::{
    Call, Data, Entry, Errno, Flags, Fprobe, GraphOps, Handlers, Hijack, Kretprobe, Ops, Room, Runtime, Site, Target,
    Task, Trampolines,
};

type Core = Runtime<'static, 1>;
type Sites = [Site<'static>; 8];

/// As in `guest.h`.
#[repr(C)]
pub struct Outside {
    host: extern "C" fn(u64, u64, u64, u64) -> u64,
    run: extern "C" fn(),
    unwind: extern "C" fn(),
    caller: extern "C" fn(u64, u64) -> u64,
    mail: [AtomicU64; ARGS + 8 + 40 + 8 + 32 + 2],
}

const SEEN: usize = 6;
const ARGS: usize = 13;
const DATA: usize = ARGS + 8;

/// Why `host` is called: an entry handler begins, it has tried to store its data, it answers; a return handler.
const ENTERED: u64 = 16;
const STORED: u64 = 17;
const ANSWER: u64 = 18;
const LEFT: u64 = 19;

/// As in `layer.c`.
#[repr(C)]
pub struct Shown {
    ip: u64,
    parent: u64,
    retp: u64,
    args: [u64; 8],
    retval: u64,
    direct: u64,
}

impl Outside {
    fn put(&self, at: usize, words: &[u64]) {
        words.iter().zip(&self.mail[at..]).for_each(|(value, word)| word.store(*value, Relaxed));
    }

    fn show(&self, seen: u64, key: u64, call: &Call, regs: &Shown) {
        (self.unwind)();
        self.put(SEEN, &[seen, key, call.ip, call.parent_ip, call.depth, regs.retval, u64::MAX]);
        self.put(ARGS, &regs.args);
    }

    /// An entry handler, which keeps as many words as it is told.
    fn entered<'d>(
        &self,
        seen: u64,
        key: u64,
        call: &Call,
        regs: &Shown,
        room: impl Fn(usize) -> Option<Data<'d>>,
    ) -> bool {
        self.show(seen, key, call, regs);
        let words = (self.host)(ENTERED, 0, 0, 0) as usize;
        let data = if words == 0 { None } else { room(words) };
        for (at, word) in self.mail[DATA..].iter().enumerate().take(words) {
            data.iter().for_each(|data| data.set(at, word.load(Relaxed)));
        }
        (self.host)(STORED, u64::from(words == 0 || data.is_some()), 0, 0);
        (self.run)();
        (self.host)(ANSWER, 0, 0, 0) != 0
    }

    fn left(&self, seen: u64, key: u64, call: &Call, regs: &Shown, data: Option<Data>) {
        self.show(seen, key, call, regs);
        if let Some(data) = data {
            self.put(SEEN + 6, &[data.len() as u64]);
            (0..data.len().min(40)).for_each(|at| self.put(DATA + at, &[data.get(at)]));
        }
        (self.host)(LEFT, 0, 0, 0);
        (self.run)();
    }
}

impl Handlers for &Outside {
    type Regs = Shown;

    fn caller(&self, parent: u64, retp: u64) -> u64 {
        (self.caller)(parent, retp)
    }

    fn callback(&self, ops: u64, private: u64, call: &Call, regs: &mut Shown, ip: u64) -> u64 {
        // The number of the user's object, as it was registered. With another's it is nobody.
        self.entered(0, if private == ops & 0xffff { ops } else { 0 }, call, regs, |_| None);
        ip
    }

    fn graph_entry(&self, user: u64, call: &Call, regs: &Shown, room: &Room) -> bool {
        self.entered(1, user, call, regs, |words| room.reserve_data(words * 8))
    }

    fn graph_return(&self, user: u64, call: &Call, regs: &mut Shown, data: Option<Data>) {
        self.left(2, user, call, regs, data);
    }

    fn fprobe_entry(&self, probe: u64, call: &Call, regs: &Shown, data: Option<Data>) -> bool {
        self.entered(3, probe, call, regs, |_| data)
    }

    fn fprobe_exit(&self, probe: u64, call: &Call, regs: &mut Shown, data: Option<Data>) {
        self.left(4, probe, call, regs, data);
    }

    fn kretprobe_entry(&self, probe: u64, call: &Call, regs: &Shown, data: Data) -> bool {
        self.entered(5, probe, call, regs, |_| Some(data))
    }

    fn kretprobe_return(&self, probe: u64, call: &Call, regs: &mut Shown, data: Data) {
        self.left(6, probe, call, regs, Some(data));
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn core_bytes(which: u64) -> u64 {
    (match which {
        0 => size_of::<Core>(),
        1 => size_of::<Task>(),
        _ => size_of::<Sites>(),
    }) as u64
}

#[unsafe(no_mangle)]
pub extern "C" fn core_sites(room: &'static mut MaybeUninit<Sites>, ips: &[u64; 8]) -> &'static Sites {
    room.write(ips.map(|ip| Site { ip, name: "f" }))
}

#[unsafe(no_mangle)]
pub extern "C" fn core_new(
    room: &'static mut MaybeUninit<Core>,
    sites: &'static Sites,
    return_to_handler: u64,
    rethook: u64,
) -> Option<&'static Core> {
    Some(room.write(Runtime::new(sites, Trampolines { return_to_handler, rethook }).ok()?))
}

#[unsafe(no_mangle)]
pub extern "C" fn core_task(room: &'static mut MaybeUninit<Task>) -> &'static Task {
    room.write(Task::new())
}

#[unsafe(no_mangle)]
pub extern "C" fn core_enter(core: &Core, task: &Task, outside: &Outside, shown: &mut Shown) {
    let entry = Entry { ip: shown.ip, parent: shown.parent, retp: shown.retp, direct: 0 };
    let Entry { ip, parent, direct, .. } = core.enter(task, &outside, entry, shown);
    (shown.ip, shown.parent, shown.direct) = (ip, parent, direct);
}

#[unsafe(no_mangle)]
pub extern "C" fn core_leave(core: &Core, task: &Task, outside: &Outside, rethook: u64, shown: &mut Shown) -> u64 {
    let to = match rethook {
        0 => core.return_to_handler(task, &outside, shown.retp, shown),
        _ => core.rethook_return(task, &outside, shown.retp, shown),
    };
    to.unwrap_or(0)
}

#[unsafe(no_mangle)]
pub extern "C" fn core_target(core: &Core, ip: u64) -> u64 {
    match core.target(ip) {
        Target::Nop => 0,
        Target::Caller => 1,
        Target::RegsCaller => 2,
        Target::Direct(direct) => direct,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn core_context(task: &Task, context: u64) -> u64 {
    task.enter_context(context)
}

#[unsafe(no_mangle)]
pub extern "C" fn core_true_parent(core: &Core, task: &Task, at: u64, cell: u64) -> u64 {
    core.true_parent(task, at, cell)
}

#[unsafe(no_mangle)]
pub extern "C" fn core_exit(core: &Core, task: &Task) {
    core.exit_task(task);
}

#[unsafe(no_mangle)]
pub extern "C" fn core_balanced(core: &Core, task: &Task) -> u64 {
    u64::from(core.is_balanced(task))
}

/// Up to nine addresses, as the emulator passes them: their number, then they.
fn list(words: &[AtomicU64]) -> ([u64; 8], usize) {
    let count = words[0].load(Relaxed) as usize;
    let mut all = [0; 8];
    all.iter_mut().zip(&words[1..]).for_each(|(value, word)| *value = word.load(Relaxed));
    (all, count.min(8))
}

/// What is done for a user: which operation, what the user is, the address of its object, one more word; its functions, and
/// those that it does not want.
#[unsafe(no_mangle)]
pub extern "C" fn core_control(core: &Core, user: &[AtomicU64; 32]) -> u64 {
    let word = |at: usize| user[at].load(Relaxed);
    let (key, more, what) = (word(2), word(3), word(1));
    let ((on, n), (not, m)) = (list(&user[8..]), list(&user[17..]));
    let (filter, notrace) = (&on[..n], &not[..m]);
    let done = match word(0) {
        0 => {
            let ops = |flags| Ops { key, flags, private: more, filter, notrace };
            match what {
                0 => core.register_ftrace_function(&ops(Flags::ARGS)),
                1 => core.register_ftrace_function(&ops(Flags::REGS)),
                2 => core.register_hijack(key, filter, Hijack { to: more, end: word(4) }),
                3 => core.register_ftrace_direct(&ops(Flags::ARGS), more),
                4 => core.register_ftrace_direct(&ops(Flags::SHARE_IPMODIFY), more),
                5 => core.register_ftrace_graph(&GraphOps { key, filter, notrace }),
                6 | 7 => {
                    let probe = Fprobe { key, exit: what == 7, entry_data_size: word(4) as usize * 8 };
                    core.register_fprobe_ips(&probe, filter)
                }
                _ => {
                    let ip = filter.first().copied().unwrap_or(0);
                    core.register_kretprobe(&Kretprobe { key, ip, maxactive: more as usize, entry: true })
                }
            }
        }
        1 => match what {
            0..3 => core.unregister_ftrace_function(key),
            3 | 4 => core.unregister_ftrace_direct(key),
            5 => core.unregister_ftrace_graph(key),
            6 | 7 => core.unregister_fprobe(key),
            _ => core.unregister_kretprobe(key),
        },
        2 if what < 5 => core.modify_ftrace_direct(key, more),
        3 if matches!(what, 6 | 7) => core.disable_fprobe(key, more != 0),
        4 if what < 5 => core.ftrace_set_filter_ip(key, word(9), more != 0),
        5 => {
            let missed = match what {
                6 | 7 => core.fprobe_missed(key),
                8 => core.kretprobe_missed(key),
                _ => Err(Errno::Inval),
            };
            return missed.unwrap_or_else(|e| i64::from(e.code()) as u64);
        }
        _ => Err(Errno::Inval),
    };
    i64::from(done.map_or_else(Errno::code, |()| 0)) as u64
}
