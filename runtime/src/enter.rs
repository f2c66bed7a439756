//! Entries of traced functions.
//!
//! At an entry the ops are visited, the newest first. The function graph, fprobe and kretprobe are one ops each, registered
//! with their first user, and visit their own users: graph users by slot, fprobes the newest first, kretprobes the oldest
//! first. Returns visit graph users and fprobes in the order of entry, kretprobes in the opposite one.

use crate::flags::{DISABLED, Flags};
use crate::handlers::{Call, Entry, Handlers};
use crate::runtime::Runtime;
use crate::task::Task;
use crate::users::{User, slot};

/// Redirect a call, unless the replacement makes it.
fn hijack(user: &User, call: &Call, entry: &mut Entry) {
    let (to, end) = (user.private.get(), user.extra.get());
    if !(to..end).contains(&call.parent_ip) {
        entry.ip = to;
    }
}

/// Run the callback of an ops, and apply the changes that its flags allow.
#[cold]
fn callback<H: Handlers>(handlers: &H, user: &User, call: &Call, entry: &mut Entry, regs: &mut H::Regs) {
    let ip = handlers.callback(user.key.get(), user.private.get(), call, regs, entry.ip);
    if user.has(Flags::IPMODIFY.0) {
        entry.ip = ip;
    }
}

impl<const W: usize> Runtime<'_, W> {
    /// Handle the entry of a traced function; trampolines at entries call this. Returns where the call goes now.
    ///
    /// A paired trampoline replaces no return address. Its layer passes the true caller as `entry.parent` and its frame's
    /// address as `entry.retp`. At the return it calls the trampoline at the answer's `parent`, until that is the caller again.
    ///
    /// A function called by a handler is not traced, but still redirected: a replacement and a direct call decide which code
    /// runs, not who observes it.
    pub fn enter<H: Handlers>(&self, task: &Task, handlers: &H, entry: Entry, regs: &mut H::Regs) -> Entry {
        let Some(site) = self.site(entry.ip) else { return entry };
        let parent_ip = handlers.caller(self.true_parent(task, entry.parent, entry.retp), entry.retp);
        let call = Call { ip: entry.ip, parent_ip, depth: task.depth() };
        // If the graph is the only ops: its users have filters of their own.
        if self.ops.taken() == self.of_graph.get()
            && let Some(_guard) = task.lock()
        {
            return Entry { parent: self.graph_enter(task, handlers, site, &call, &entry, regs), ..entry };
        }
        self.visit(task, handlers, site, &call, entry, regs)
    }

    /// Visit the ops.
    #[cold]
    fn visit<H: Handlers>(
        &self,
        task: &Task,
        handlers: &H,
        site: usize,
        call: &Call,
        mut entry: Entry,
        regs: &mut H::Regs,
    ) -> Entry {
        let guard = task.lock();
        if guard.is_none() {
            self.count_missed(site);
        }
        self.ops.newest(|id, user| {
            let flags = Flags(user.flags.get());
            if !self.ops.wants(slot(id), site) {
                return;
            }
            if flags.has(Flags::DIRECT) {
                entry.direct = user.extra.get();
            } else if flags.has(Flags::HIJACK) {
                hijack(user, call, &mut entry);
            } else if guard.is_none() {
                // A handler made this call.
            } else if flags.has(Flags::GRAPH) {
                entry.parent = self.graph_enter(task, handlers, site, call, &entry, regs);
            } else if flags.has(Flags::FPROBE) {
                self.fprobe_enter(handlers, site, call, regs);
            } else if flags.has(Flags::KPROBE) {
                self.kretprobe_enter(task, handlers, site, call, &mut entry, regs);
            } else {
                callback(handlers, user, call, &mut entry, regs);
            }
        });
        entry
    }

    /// Count a call made by a handler as missed, for the probes on the function.
    #[cold]
    fn count_missed(&self, site: usize) {
        let fprobes = self.fprobes.of(site).filter(|u| !u.has(DISABLED));
        for probe in fprobes.chain(self.kretprobes.of(site)) {
            probe.missed.add(1);
        }
    }

    /// The true caller of a function whose return address is `parent` and lies at `retp` (0 if unknown).
    ///
    /// Goes from one hook to the next older one, because a handler at an entry may call this when hooks of the entry exist
    /// already and the return address is not replaced yet.
    pub fn true_parent(&self, task: &Task, parent: u64, retp: u64) -> u64 {
        match self.is_trampoline(parent) {
            true => self.hidden_parent(task, parent, retp),
            false => parent,
        }
    }

    /// Is `address` one to which replaced return addresses lead?
    pub(crate) fn is_trampoline(&self, address: u64) -> bool {
        address == self.trampolines.return_to_handler || address == self.trampolines.rethook
    }

    #[cold]
    pub(crate) fn hidden_parent(&self, task: &Task, parent: u64, retp: u64) -> u64 {
        let here = |at: u64| retp == 0 || at == retp;
        let mut frames = task.frames().filter(|f| here(f.retp()));
        let mut nodes = self.pool.pending(task).filter(|n| here(n.retp.get()));
        let (mut parent, mut end) = (parent, usize::MAX);
        loop {
            let next = match parent {
                p if p == self.trampolines.return_to_handler => {
                    frames.find(|f| f.start < end).map(|f| (f.ret(), f.start))
                }
                p if p == self.trampolines.rethook => {
                    nodes.find(|n| n.top.index() <= end).map(|n| (n.ret.get(), n.top.index()))
                }
                _ => None,
            };
            match next {
                Some(older) => (parent, end) = older,
                None => return parent,
            }
        }
    }
}
