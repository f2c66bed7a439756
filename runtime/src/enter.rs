//! Entries of traced functions.
//!
//! At an entry the ops are visited, the newest first. The function graph, fprobe and kretprobe are one ops each, registered
//! with their first user, and visit their own users: graph users by slot, fprobes the newest first, kretprobes the oldest
//! first. Returns visit graph users and fprobes in the order of entry, kretprobes in the opposite one.

use crate::flags::{DISABLED, Flags};
use crate::handlers::{Call, Handlers, Regs};
use crate::runtime::Runtime;
use crate::task::Task;
use crate::users::{User, slot};

/// Redirect a call, unless it is the replacement's own.
fn hijack(user: &User, call: &Call, regs: &mut Regs) {
    let (to, end) = (user.private.get(), user.extra.get());
    if !(to..end).contains(&call.parent_ip) {
        regs.ip = to;
    }
}

/// Show an ops what it may see, and take from it what it may change.
#[cold]
fn callback<H: Handlers>(handlers: &H, user: &User, call: &Call, regs: &mut Regs) {
    let kept = regs.clone();
    handlers.callback(user.key.get(), user.private.get(), call, regs);
    let ip = if user.has(Flags::IPMODIFY.0) { regs.ip } else { kept.ip };
    // The hooks are the core's own.
    *regs = Regs { ip, args: regs.args, ..kept };
}

impl<const W: usize> Runtime<'_, W> {
    /// A traced function is entered: what trampolines at entries call.
    ///
    /// Afterwards the return address is `regs.parent`, and the function is reached at `regs.ip`, through `regs.direct` if
    /// that is not 0.
    ///
    /// A paired trampoline replaces nothing. Its layer gives the true caller as `regs.parent` and its frame's address as
    /// `regs.retp`. At the return it calls what `regs.parent` led to, until that is the caller again.
    ///
    /// A function called by a handler is not traced, but it is redirected as ever: a replacement and a direct call decide what
    /// runs, not who looks on.
    pub fn enter<H: Handlers>(&self, task: &Task, handlers: &H, ip: u64, regs: &mut Regs) {
        let Some(site) = self.site(ip) else { return };
        let parent_ip = handlers.caller(self.true_parent(task, regs.parent, regs.retp), regs.retp);
        let call = Call { ip, parent_ip, depth: task.depth() };
        match task.lock() {
            // Whose users say which functions they want.
            Some(_guard) if self.ops.taken() == self.of_graph.get() => {
                self.graph_enter(task, handlers, site, &call, regs);
            }
            guard => self.visit(task, handlers, site, &call, regs, guard.is_some()),
        }
    }

    /// Visit the ops; `guarded`: this is no handler's own call.
    #[cold]
    fn visit<H: Handlers>(&self, task: &Task, handlers: &H, site: usize, call: &Call, regs: &mut Regs, guarded: bool) {
        if !guarded {
            self.count_missed(site);
        }
        self.ops.newest(|id, user| {
            let flags = Flags(user.flags.get());
            if !self.ops.wants(slot(id), site) {
                return;
            }
            if flags.has(Flags::DIRECT) {
                regs.direct = user.extra.get();
            } else if flags.has(Flags::HIJACK) {
                hijack(user, call, regs);
            } else if !guarded {
                // A handler's own call.
            } else if flags.has(Flags::GRAPH) {
                self.graph_enter(task, handlers, site, call, regs);
            } else if flags.has(Flags::FPROBE) {
                self.fprobe_enter(handlers, site, call, regs);
            } else if flags.has(Flags::KPROBE) {
                self.kretprobe_enter(task, handlers, site, call, regs);
            } else {
                callback(handlers, user, call, regs);
            }
        });
    }

    /// Probes that a handler's own call passed by.
    #[cold]
    fn count_missed(&self, site: usize) {
        let fprobes = self.fprobes.of(site).filter(|u| !u.has(DISABLED));
        for probe in fprobes.chain(self.kretprobes.of(site)) {
            probe.missed.add(1);
        }
    }

    /// Whom a function returns to in the end, if its return address is `parent` and lies at `retp` (0 if that is not known).
    ///
    /// From one hook to the next older one: a handler at an entry may ask, when there are hooks of this entry already and the
    /// return address is not replaced yet.
    pub fn true_parent(&self, task: &Task, parent: u64, retp: u64) -> u64 {
        match self.is_trampoline(parent) {
            true => self.hidden_parent(task, parent, retp),
            false => parent,
        }
    }

    /// Is this where a replaced return address leads?
    pub(crate) fn is_trampoline(&self, address: u64) -> bool {
        address == self.trampolines.return_to_handler || address == self.trampolines.rethook
    }

    #[cold]
    fn hidden_parent(&self, task: &Task, parent: u64, retp: u64) -> u64 {
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
