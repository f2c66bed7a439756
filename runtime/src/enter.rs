//! Entries of traced functions.
//!
//! At an entry the ops are visited, the newest first. The function graph, fprobe and kretprobe are one ops each, registered
//! with their first user, and visit their own users: graph users by slot, fprobes the newest first, kretprobes the oldest
//! first. Returns visit graph users and fprobes in the order of entry, kretprobes in the opposite one.

use crate::flags::{DISABLED, Flags};
use crate::handlers::{Call, Handlers, Regs};
use crate::runtime::Runtime;
use crate::task::Task;
use crate::users::User;

/// Redirect a call, unless it is the replacement's own.
fn hijack<const W: usize>(user: &User<W>, call: &Call, regs: &mut Regs) {
    let (to, end) = (user.private.get(), user.extra.get());
    if !(to..end).contains(&call.parent_ip) {
        regs.ip = to;
    }
}

impl<const W: usize> Runtime<'_, W> {
    /// A traced function is entered: what trampolines at entries call.
    ///
    /// Afterwards the return address is `regs.parent`, and the function is reached at `regs.ip`, through `regs.direct` if
    /// that is not 0. A function called by a handler is not traced, but it is redirected as ever: a replacement and a direct
    /// call decide what runs, not who looks on.
    pub fn enter<H: Handlers>(&self, task: &Task, handlers: &H, ip: u64, regs: &mut Regs) {
        let Some(site) = self.site(ip) else { return };
        let call = Call { ip, parent_ip: self.true_parent(task, regs.parent, regs.retp), depth: task.depth() };
        let guard = task.lock();
        if guard.is_none() {
            self.count_missed(site);
        }
        self.ops.newest(|_, user| {
            let flags = Flags(user.flags.get());
            if !user.wants(site) {
                return;
            }
            if flags.has(Flags::DIRECT) {
                regs.direct = user.extra.get();
            } else if flags.has(Flags::HIJACK) {
                hijack(user, &call, regs);
            } else if guard.is_none() {
                // A handler's own call.
            } else if flags.has(Flags::GRAPH) {
                self.graph_enter(task, handlers, site, &call, regs);
            } else if flags.has(Flags::FPROBE) {
                self.fprobe_enter(handlers, site, &call, regs);
            } else if flags.has(Flags::KPROBE) {
                self.kretprobe_enter(task, handlers, site, &call, regs);
            } else {
                let kept = regs.clone();
                handlers.callback(user.key.get(), user.private.get(), &call, regs);
                let ip = if flags.has(Flags::IPMODIFY) { regs.ip } else { kept.ip };
                // The hooks are the core's own.
                *regs = Regs { ip, args: regs.args, ..kept };
            }
        });
    }

    /// Probes that a handler's own call passed by.
    fn count_missed(&self, site: usize) {
        let wanted = |flags: u64, wants: bool| wants && flags & DISABLED == 0;
        for probe in self.fprobes.live().filter(|u| wanted(u.flags.get(), u.wants(site))) {
            probe.missed.add(1);
        }
        for probe in self.kretprobes.live().filter(|u| u.wants(site)) {
            probe.missed.add(1);
        }
    }

    /// Whom a function returns to in the end, if its return address is `parent` and lies at `retp` (0 if that is not known).
    ///
    /// From one hook to the next older one: a handler at an entry may ask, when there are hooks of this entry already and the
    /// return address is not replaced yet.
    pub fn true_parent(&self, task: &Task, parent: u64, retp: u64) -> u64 {
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
