//! The function graph: up to sixteen users who see entries and the returns that they ask for.

use crate::errno::{Errno, Result};
use crate::flags::{EXIT, Flags};
use crate::handlers::{Call, Handlers, Regs, Room};
use crate::runtime::Runtime;
use crate::task::{GRAPH_USERS, Task};
use crate::users::{User, epoch, slot};
use crate::word::{Data, Word};

/// The user who stands for all fprobes with an exit handler.
const FPROBES: u64 = 1;

/// A user of the function graph.
#[derive(Clone, Copy, Debug, Default)]
pub struct GraphOps<'a> {
    /// The address of the object that stands for it.
    pub key: u64,
    /// Functions to trace, by address; none listed is all.
    pub filter: &'a [u64],
    /// Functions not to trace.
    pub notrace: &'a [u64],
}

impl<const W: usize> Runtime<'_, W> {
    /// Register a user. Functions that run are not its own until they are called again.
    ///
    /// # Errors
    /// `EBUSY`: registered already. `EINVAL`: no key or an unknown function. `ENOSPC`: sixteen users. `ENOMEM`: no ops for it.
    pub fn register_ftrace_graph(&self, ops: &GraphOps) -> Result<()> {
        if ops.key == 0 || ops.filter.iter().chain(ops.notrace).any(|ip| self.sites.find(*ip).is_none()) {
            return Err(Errno::Inval);
        }
        self.add_graph_user(ops, 0)
    }

    /// Unregister it. Functions that run return as if it had not asked.
    ///
    /// # Errors
    /// `EINVAL`: it is not registered.
    pub fn unregister_ftrace_graph(&self, key: u64) -> Result<()> {
        let user = self.graph.find(key).filter(|u| u.flags.get() == 0).ok_or(Errno::Inval)?;
        self.remove_graph_user(user);
        Ok(())
    }

    pub(crate) fn start_fprobes(&self) -> Result<()> {
        match self.graph.live().any(|u| u.flags.get() == FPROBES) {
            true => Ok(()),
            false => self.add_graph_user(&GraphOps { key: u64::MAX, ..GraphOps::default() }, FPROBES),
        }
    }

    pub(crate) fn stop_fprobes(&self) {
        if let Some(user) = self.graph.live().find(|u| u.flags.get() == FPROBES) {
            self.remove_graph_user(user);
        }
    }

    fn add_graph_user(&self, ops: &GraphOps, kind: u64) -> Result<()> {
        if self.graph.find(ops.key).is_some() {
            return Err(Errno::Busy);
        }
        let turn = self.turns.iter().find(|t| t.get() < GRAPH_USERS as u64).ok_or(Errno::Nospc)?;
        self.start(Flags::GRAPH)?;
        let (slot, user) = self.graph.claim_at(turn.get() as usize, ops.key).inspect_err(|_| self.stop_graph())?;
        turn.set(GRAPH_USERS as u64);
        user.flags.set(kind);
        self.fill(user, ops.filter, ops.notrace);
        self.graph.publish(slot, self.tick());
        Ok(())
    }

    fn remove_graph_user(&self, user: &User<W>) {
        let freed = slot(user.id.get()) as u64;
        self.graph.remove(user);
        // The freed slot comes behind all others: the longer it rests, the fewer frames still name it.
        for turn in 1..GRAPH_USERS {
            self.turns[turn - 1].set(self.turns[turn].get());
        }
        self.turns[GRAPH_USERS - 1].set(freed);
        self.stop_graph();
    }

    fn stop_graph(&self) {
        if self.graph.live().next().is_none() {
            self.stop(Flags::GRAPH);
        }
    }

    /// Does this user trace this function?
    pub(crate) fn graph_wants(&self, user: &User<W>, site: usize) -> bool {
        match user.flags.get() {
            FPROBES => self.fprobes.live().any(|p| p.wants(site) && p.has(EXIT)),
            _ => user.wants(site),
        }
    }

    /// Show an entry to the users, and hook the return if one of them asks for it.
    pub(crate) fn graph_enter<H: Handlers>(&self, task: &Task, h: &H, site: usize, call: &Call, regs: &mut Regs) {
        let wanting = self.graph.live().filter(|u| self.graph_wants(u, site));
        let mut left = wanting.fold(0, |all: u64, user| all | 1 << slot(user.id.get()));
        if left == 0 {
            return;
        }
        let now = self.now();
        let Some(frame) = task.push(regs.parent, call.ip, regs.retp) else {
            self.count_fprobes_missed(site);
            return;
        };
        let mut users = 0;
        while left != 0 {
            let owner = left.trailing_zeros() as usize;
            left &= left - 1;
            let Some(user) = self.graph.at(owner) else { continue };
            // Who came since the function was entered sees its next call.
            if epoch(user.id.get()) > now {
                continue;
            }
            let (id, mark) = (user.id.get(), task.mark());
            let room = Room::new(task, frame, mark, owner);
            let asked = match user.flags.get() {
                FPROBES => self.fprobe_graph_enter(h, site, call, regs, &room),
                _ => h.graph_entry(user.key.get(), call, regs, &room),
            };
            // The handler may have unregistered its own user.
            if asked && self.graph.get(id).is_some() {
                users |= 1 << owner;
            } else {
                task.cut(mark);
            }
        }
        if users == 0 {
            task.pop(frame);
            return;
        }
        task.settle(frame, users, now);
        regs.parent = self.trampolines.return_to_handler;
    }

    /// A hooked function returns: what `return_to_handler` and paired trampolines call. `regs.retval` is the result,
    /// `regs.retp` where the return address lay, or 0 if that is not known.
    ///
    /// Returns where to go on, which may be a trampoline again; None if no frame is there, and nothing can be done.
    pub fn return_to_handler<H: Handlers>(&self, task: &Task, handlers: &H, regs: &mut Regs) -> Option<u64> {
        // Frames above the one that returns were left by a jump.
        let here = task.frames().find(|f| regs.retp == 0 || f.retp() == regs.retp);
        let frame = here.or_else(|| task.frames().next())?;
        task.unwind_to(&frame);
        regs.ip = frame.ret();
        let parent_ip = self.true_parent(task, self.trampolines.return_to_handler, regs.retp);
        let call = Call { ip: frame.func(), parent_ip, depth: task.depth().saturating_sub(1) };
        if let Some(_guard) = task.lock() {
            for user in self.graph.live().filter(|u| frame.is_for(u.id.get())) {
                let data = frame.data(slot(user.id.get()));
                match user.flags.get() {
                    FPROBES => self.fprobe_graph_return(handlers, &call, regs, data),
                    _ => handlers.graph_return(user.key.get(), &call, regs, data),
                }
            }
        }
        let ret = frame.ret();
        task.pop(frame.start);
        Some(ret)
    }

    /// The kernel's `fgraph_retrieve_parent_data`: what a user reserved in the frame `depth` below the top one.
    #[must_use]
    pub fn retrieve_parent_data<'t>(&self, task: &'t Task, key: u64, depth: usize) -> Option<Data<'t>> {
        let id = self.graph.find(key)?.id.get();
        task.frames().nth(depth).filter(|f| f.is_for(id))?.data(slot(id))
    }

    /// The kernel's `fgraph_get_task_var`: a word of this thread for a user, zero at first.
    #[must_use]
    pub fn task_var<'t>(&self, task: &'t Task, key: u64) -> Option<&'t Word> {
        task.var(self.graph.find(key)?.id.get())
    }
}
