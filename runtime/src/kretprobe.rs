//! kretprobe over rethook: returns of single functions, with nodes from a pool in place of the shadow stack.

use crate::data::Data;
use crate::errno::{Errno, Result};
use crate::flags::Flags;
use crate::handlers::{Call, Entry, Handlers};
use crate::pool::{NODES, Node};
use crate::runtime::Runtime;
use crate::task::Task;
use crate::users::{User, slot};

/// The most nodes that one probe may have pending.
const MAXACTIVE_MAX: usize = 4096;
/// The flag of a probe with an entry handler, which may decline the return.
const ENTRY: u64 = 1;

/// A kretprobe.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kretprobe {
    /// The address of the user's object that identifies the probe.
    pub key: u64,
    /// The function.
    pub ip: u64,
    /// The most calls of the function that may be pending on all threads together; 0 means as many as there are nodes.
    pub maxactive: usize,
    /// The probe has an entry handler, which decides whether to hook the return.
    pub entry: bool,
}

impl<const W: usize> Runtime<'_, W> {
    /// Register a kretprobe.
    ///
    /// # Errors
    /// `EBUSY`: it is registered. `EINVAL`: no key. `E2BIG`: more than 4096 pending. `ENOENT`: no such function. `ENOMEM`: no
    /// slot.
    pub fn register_kretprobe(&self, probe: &Kretprobe) -> Result<()> {
        if probe.key == 0 {
            return Err(Errno::Inval);
        }
        if self.kretprobes.find(probe.key).is_some() {
            return Err(Errno::Busy);
        }
        if probe.maxactive > MAXACTIVE_MAX {
            return Err(Errno::TooBig);
        }
        if self.sites.find(probe.ip).is_none() {
            return Err(Errno::Noent);
        }
        let (slot, user) = self.kretprobes.claim(probe.key)?;
        self.start(Flags::KPROBE)?;
        user.flags.set(u64::from(probe.entry) * ENTRY);
        user.extra.set(if probe.maxactive == 0 { NODES } else { probe.maxactive } as u64);
        self.fill(&self.kretprobes.filters, slot, &[probe.ip], &[]);
        self.kretprobes.publish(slot, self.tick());
        Ok(())
    }

    /// Unregister a kretprobe. Functions that are running now return without a call of its handler.
    ///
    /// # Errors
    /// `EINVAL`: it is not registered.
    pub fn unregister_kretprobe(&self, key: u64) -> Result<()> {
        let user = self.kretprobes.find(key).ok_or(Errno::Inval)?;
        self.kretprobes.remove(user);
        if self.kretprobes.live().next().is_none() {
            self.stop(Flags::KPROBE);
        }
        Ok(())
    }

    /// The number of calls that a kretprobe missed: calls made by handlers, or without a free node.
    ///
    /// # Errors
    /// `EINVAL`: it is not registered.
    pub fn kretprobe_missed(&self, key: u64) -> Result<u64> {
        Ok(self.kretprobes.find(key).ok_or(Errno::Inval)?.missed.get())
    }

    #[cold]
    pub(crate) fn kretprobe_enter<H: Handlers>(
        &self,
        task: &Task,
        h: &H,
        site: usize,
        call: &Call,
        entry: &mut Entry,
        regs: &H::Regs,
    ) {
        self.kretprobes.oldest(|id, user| {
            if !self.kretprobes.wants(slot(id), site) {
                return;
            }
            let Some((index, node)) = self.pool.take(id, user.extra.index()) else {
                user.missed.add(1);
                return;
            };
            let asked = !user.has(ENTRY) || h.kretprobe_entry(user.key.get(), call, regs, Data(&node.data));
            if !asked || self.kretprobes.get(id).is_none() {
                node.owner.set(0);
                return;
            }
            node.ret.set(entry.parent);
            node.ip.set(call.ip);
            node.retp.set(entry.retp);
            node.top.set(task.mark() as u64);
            node.next.set(task.pending.get());
            task.pending.set(index);
            entry.parent = self.trampolines.rethook;
        });
    }

    /// Handle the return of a function with pending kretprobes, whose return address lay at `retp`. The rethook trampoline calls
    /// this.
    ///
    /// Returns the address at which to go on, which may be a trampoline again; `None` if no return is pending.
    pub fn rethook_return<H: Handlers>(&self, task: &Task, handlers: &H, retp: u64, regs: &mut H::Regs) -> Option<u64> {
        self.drop_left_by_jumps(task, retp);
        let parent_ip = self.true_parent(task, self.trampolines.rethook, retp);
        let node = self.pool.pending(task).next()?;
        let ret = node.ret.get();
        let parent_ip = handlers.caller(parent_ip, node.retp.get());
        let call = Call { ip: node.ip.get(), parent_ip, depth: task.depth() };
        let probe: Option<&User> = self.kretprobes.get(node.owner.get());
        if let (Some(user), Some(_guard)) = (probe, task.lock()) {
            handlers.kretprobe_return(user.key.get(), &call, regs, Data(&node.data));
        }
        task.pending.set(node.next.get());
        node.owner.set(0);
        Some(ret)
    }

    /// Free the nodes of functions that were left by a jump and never return: those above the node of `retp`.
    fn drop_left_by_jumps(&self, task: &Task, retp: u64) {
        if self.pool.pending(task).any(|n| n.retp.get() == retp) {
            self.drop_pending(task, |node| node.retp.get() != retp);
        }
    }

    /// Free the latest nodes of a thread, as long as `of` holds for them.
    fn drop_pending(&self, task: &Task, of: impl Fn(&Node) -> bool) {
        while let Some(node) = self.pool.pending(task).next().filter(|n| of(n)) {
            task.pending.set(node.next.get());
            node.owner.set(0);
        }
    }

    /// Drop all pending returns of a thread that has ended. No handler is called for them, and another thread can use `task`.
    ///
    /// The kernel's `ftrace_graph_exit_task` and `rethook_flush_task`.
    pub fn exit_task(&self, task: &Task) {
        self.drop_pending(task, |_| true);
        task.reset();
    }
}
