//! The core of this project, as the machine wants it.

use runtime::{
    Call, Data, Entry, Errno, Flags, Fprobe, GraphOps, Handlers, Hijack, Kretprobe, Ops, Room, Runtime, Site, Target,
    Task, Trampolines,
};

use crate::case::{FUNCTIONS, REPLACEMENT, User, What, address};
use crate::machine::{Core, Hooks, RETHOOK, RETURN_TO_HANDLER, Regs};

const SITES: [Site; FUNCTIONS as usize] = {
    let mut sites = [Site { ip: 0, name: "f" }; FUNCTIONS as usize];
    let mut f = 0;
    while f < FUNCTIONS {
        sites[f as usize].ip = address(f);
        f += 1;
    }
    sites
};

/// The core.
pub struct Ours(Runtime<'static, 1>);

fn code(result: Result<(), Errno>) -> i32 {
    result.map_or_else(Errno::code, |()| 0)
}

fn words(data: Data) -> Vec<u64> {
    (0..data.len()).map(|i| data.get(i)).collect()
}

fn put(data: Data, words: &[u64]) {
    words.iter().enumerate().for_each(|(i, w)| data.set(i, *w));
}

/// The machine's hooks for the core, which lends places in its stack.
struct Lent<'h>(&'h dyn Hooks);

impl Handlers for Lent<'_> {
    type Regs = Regs;

    fn callback(&self, ops: u64, private: u64, call: &Call, regs: &mut Regs, ip: u64) -> u64 {
        // The number of the user's object, as it was registered. With another's it is nobody.
        self.0.callback(if private == ops & 0xffff { ops } else { 0 }, call, regs);
        ip
    }

    fn graph_entry(&self, user: u64, call: &Call, regs: &Regs, room: &Room) -> bool {
        let store = |w: &[u64]| room.reserve_data(w.len() * 8).map(|data| put(data, w)).is_some();
        self.0.graph_entry(user, call, regs, &store)
    }

    fn graph_return(&self, user: u64, call: &Call, regs: &mut Regs, data: Option<Data>) {
        self.0.graph_return(user, call, regs, data.map(words).as_deref());
    }

    fn fprobe_entry(&self, probe: u64, call: &Call, regs: &Regs, data: Option<Data>) -> bool {
        self.0.probe_entry(probe, call, regs, &|w| data.iter().for_each(|data| put(*data, w)))
    }

    fn fprobe_exit(&self, probe: u64, call: &Call, regs: &mut Regs, data: Option<Data>) {
        self.0.probe_exit(probe, call, regs, data.map(words).as_deref());
    }

    fn kretprobe_entry(&self, probe: u64, call: &Call, regs: &Regs, data: Data) -> bool {
        self.0.kret_entry(probe, call, regs, &|w| put(data, w))
    }

    fn kretprobe_return(&self, probe: u64, call: &Call, regs: &mut Regs, data: Data) {
        self.0.kret_return(probe, call, regs, &words(data));
    }
}

impl Core for Ours {
    type Thread = Task;

    fn new() -> Self {
        let trampolines = Trampolines { return_to_handler: RETURN_TO_HANDLER, rethook: RETHOOK };
        Self(Runtime::new(&SITES, trampolines).unwrap_or_else(|e| unreachable!("the sites are sorted and few: {e}")))
    }

    fn register(&self, user: &User) -> i32 {
        let ips = |list: &[u64]| list.iter().map(|f| address(*f)).collect::<Vec<u64>>();
        let (key, filter, notrace) = (user.key(), &*ips(&user.on), &*ips(&user.not));
        let ops = |flags| Ops { key, flags, private: user.object, filter, notrace };
        code(match user.what {
            What::Op { regs: false } => self.0.register_ftrace_function(&ops(Flags::ARGS)),
            What::Op { regs: true } => self.0.register_ftrace_function(&ops(Flags::REGS)),
            What::Hijack => {
                let to = address(REPLACEMENT);
                self.0.register_hijack(key, filter, Hijack { to, end: to + 0x1000 })
            }
            What::Direct { .. } | What::Recorder => {
                let flags = if user.what.direct() == Some(true) { Flags::SHARE_IPMODIFY } else { Flags::ARGS };
                self.0.register_ftrace_direct(&ops(flags), user.what.trampoline(user.object, false))
            }
            What::Graph => self.0.register_ftrace_graph(&GraphOps { key, filter, notrace }),
            What::Fprobe { exit } => {
                let probe = Fprobe { key, exit, entry_data_size: user.words * 8 };
                self.0.register_fprobe_ips(&probe, filter)
            }
            What::Kretprobe { most } => {
                let ip = filter.first().copied().unwrap_or(0);
                self.0.register_kretprobe(&Kretprobe { key, ip, maxactive: most, entry: true })
            }
        })
    }

    fn unregister(&self, user: &User) -> i32 {
        let key = user.key();
        code(match user.what {
            What::Op { .. } | What::Hijack => self.0.unregister_ftrace_function(key),
            What::Direct { .. } | What::Recorder => self.0.unregister_ftrace_direct(key),
            What::Graph => self.0.unregister_ftrace_graph(key),
            What::Fprobe { .. } => self.0.unregister_fprobe(key),
            What::Kretprobe { .. } => self.0.unregister_kretprobe(key),
        })
    }

    fn modify(&self, user: &User) -> i32 {
        match user.what.family() {
            0 => code(self.0.modify_ftrace_direct(user.key(), user.what.trampoline(user.object, true))),
            _ => Errno::Inval.code(),
        }
    }

    fn disable(&self, user: &User, disable: bool) -> i32 {
        match user.what {
            What::Fprobe { .. } => code(self.0.disable_fprobe(user.key(), disable)),
            _ => Errno::Inval.code(),
        }
    }

    fn filter(&self, user: &User, f: u64, remove: bool) -> i32 {
        match user.what.family() {
            0 => code(self.0.ftrace_set_filter_ip(user.key(), address(f), remove)),
            _ => Errno::Inval.code(),
        }
    }

    fn missed(&self, user: &User) -> i64 {
        let missed = match user.what {
            What::Kretprobe { .. } => self.0.kretprobe_missed(user.key()),
            What::Fprobe { .. } => self.0.fprobe_missed(user.key()),
            _ => Err(Errno::Inval),
        };
        missed.map_or_else(|e| i64::from(e.code()), |n| n as i64)
    }

    fn enter(&self, thread: &Task, hooks: &dyn Hooks, regs: &mut Regs) {
        let entry = Entry { ip: regs.ip, parent: regs.parent, retp: regs.retp, direct: 0 };
        let Entry { ip, parent, direct, .. } = self.0.enter(thread, &Lent(hooks), entry, regs);
        (regs.ip, regs.parent, regs.direct) = (ip, parent, direct);
    }

    fn leave(&self, thread: &Task, hooks: &dyn Hooks, trampoline: u64, regs: &mut Regs) -> Option<u64> {
        match trampoline {
            RETURN_TO_HANDLER => self.0.return_to_handler(thread, &Lent(hooks), regs.retp, regs),
            _ => self.0.rethook_return(thread, &Lent(hooks), regs.retp, regs),
        }
    }

    fn context(&self, thread: &Task, context: u64) -> u64 {
        thread.enter_context(context)
    }

    fn exit(&self, thread: &Task) {
        self.0.exit_task(thread);
    }

    fn site(&self, f: u64) -> u64 {
        match self.0.target(address(f)) {
            Target::Nop => 0,
            Target::Caller => 1,
            Target::RegsCaller => 2,
            Target::Direct(direct) => direct,
        }
    }

    fn true_parent(&self, thread: &Task, at: u64, cell: u64) -> u64 {
        self.0.true_parent(thread, at, cell)
    }

    fn is_balanced(&self, thread: &Task) -> bool {
        self.0.is_balanced(thread)
    }
}
