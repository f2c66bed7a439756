//! The function graph: up to sixteen users, which are called at entries, and at the returns that they ask for.

use crate::data::Data;
use crate::errno::{Errno, Result};
use crate::flags::{EXIT, Flags};
use crate::handlers::{Call, Entry, Handlers, Room};
use crate::runtime::Runtime;
use crate::task::{GRAPH_USERS, Task};
use crate::users::{User, latest};
use crate::word::Word;

/// The key of the user that stands for all fprobes with an exit handler. No object of a caller has this address.
const FPROBES: u64 = u64::MAX;

/// A user of the function graph.
#[derive(Clone, Copy, Debug, Default)]
pub struct GraphOps<'a> {
    /// The address of the object that identifies the user.
    pub key: u64,
    /// Functions to trace, by address; an empty list means all functions.
    pub filter: &'a [u64],
    /// Functions not to trace.
    pub notrace: &'a [u64],
}

impl<const W: usize> Runtime<'_, W> {
    /// Register a user. It does not see the returns of functions that are running now.
    ///
    /// # Errors
    /// `EBUSY`: registered already. `EINVAL`: no key or an unknown function. `ENOSPC`: sixteen users. `ENOMEM`: no ops for it.
    pub fn register_ftrace_graph(&self, ops: &GraphOps) -> Result<()> {
        if [0, FPROBES].contains(&ops.key)
            || ops.filter.iter().chain(ops.notrace).any(|ip| self.sites.find(*ip).is_none())
        {
            return Err(Errno::Inval);
        }
        self.add_graph_user(ops)
    }

    /// Unregister a user. Functions that are running now return without a call of its handler.
    ///
    /// # Errors
    /// `EINVAL`: it is not registered.
    pub fn unregister_ftrace_graph(&self, key: u64) -> Result<()> {
        let user = self.graph.find(key).filter(|u| u.key.get() != FPROBES).ok_or(Errno::Inval)?;
        self.remove_graph_user(user);
        Ok(())
    }

    pub(crate) fn start_fprobes(&self) -> Result<()> {
        match self.of_fprobes.get() {
            0 => self.add_graph_user(&GraphOps { key: FPROBES, ..GraphOps::default() }),
            _ => Ok(()),
        }
    }

    pub(crate) fn stop_fprobes(&self) {
        if let Some(user) = self.graph.find(FPROBES) {
            self.remove_graph_user(user);
            self.of_fprobes.set(0);
        }
    }

    fn add_graph_user(&self, ops: &GraphOps) -> Result<()> {
        if self.graph.find(ops.key).is_some() {
            return Err(Errno::Busy);
        }
        let turn = self.turns.iter().find(|t| t.get() < GRAPH_USERS as u64).ok_or(Errno::Nospc)?;
        self.start(Flags::GRAPH)?;
        let (slot, _) = self.graph.claim_at(turn.get() as usize, ops.key).inspect_err(|_| self.stop_graph())?;
        turn.set(GRAPH_USERS as u64);
        if ops.key == FPROBES {
            self.of_fprobes.set(1 << slot);
        }
        self.fill(&self.graph.filters, slot, ops.filter, ops.notrace);
        self.graph.publish(slot, self.tick());
        Ok(())
    }

    fn remove_graph_user(&self, user: &User) {
        let freed = user.slot() as u64;
        self.graph.remove(user);
        // The freed slot is used again last: the longer it is free, the fewer frames still name it.
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

    /// The users that trace this function, as a bit mask of slots.
    pub(crate) fn graph_wanting(&self, site: usize) -> u64 {
        let (users, fprobes) = (self.graph.wanting(site), self.of_fprobes.get());
        match users & fprobes == 0 || self.fprobes.of(site).any(|p| p.has(EXIT)) {
            true => users,
            false => users & !fprobes,
        }
    }

    /// Call the users at an entry, and hook the return if one of them asks for it. Returns the new return address.
    // The graph is most often the only ops, so its entry is one inlined function, which spills less.
    #[inline(always)]
    pub(crate) fn graph_enter<H: Handlers>(
        &self,
        task: &Task,
        h: &H,
        site: usize,
        call: &Call,
        entry: &Entry,
        regs: &H::Regs,
    ) -> u64 {
        let mut left = self.graph_wanting(site);
        if left == 0 {
            return entry.parent;
        }
        let latest = latest(self.now());
        let Some(frame) = task.push(entry.parent, call.ip, entry.retp) else {
            self.count_fprobes_missed(site);
            return entry.parent;
        };
        let mut users = left;
        while left != 0 {
            let owner = left.trailing_zeros() as usize;
            left &= left - 1;
            // A user registered since the function was entered sees the next call.
            let Some(user) = self.graph.at_by(owner, latest) else {
                users &= !(1 << owner);
                continue;
            };
            let room = Room::new(task, owner);
            let asked = match user.key.get() {
                FPROBES => self.fprobe_graph_enter(h, site, call, regs, &room),
                key => h.graph_entry(key, call, regs, &room),
            };
            // An interrupt during the handler left functions by a jump.
            if !task.is_latest(frame) {
                task.drop_above(frame);
            }
            // The handler may have unregistered its own user.
            if !asked || !user.is_by(latest) {
                users &= !(1 << owner);
                room.take_back();
            }
        }
        if users == 0 {
            task.drop_frame();
            return entry.parent;
        }
        task.settle(frame, users, latest);
        self.trampolines.return_to_handler
    }

    /// Handle the return of a hooked function; `return_to_handler` and paired trampolines call this. The return address lay at
    /// `retp`, which is 0 if unknown.
    ///
    /// Returns the address at which to go on, which may be a trampoline again; `None` if there is no frame, and no way on.
    pub fn return_to_handler<H: Handlers>(
        &self,
        task: &Task,
        handlers: &H,
        retp: u64,
        regs: &mut H::Regs,
    ) -> Option<u64> {
        let top = task.top_frame()?;
        let here = retp == 0 || top.retp() == retp;
        let frame = if here { top } else { task.unwind_to(retp)? };
        let ret = frame.ret();
        // The caller that this hook hides: most often there is no older hook.
        let parent_ip = match here && !self.is_trampoline(ret) {
            true => ret,
            false => self.hidden_parent(task, self.trampolines.return_to_handler, retp),
        };
        let parent_ip = handlers.caller(parent_ip, frame.retp());
        let call = Call { ip: frame.func(), parent_ip, depth: task.depth().wrapping_sub(1) };
        if let Some(_guard) = task.lock() {
            let (link, mut reserved) = (frame.link(), frame.reserved());
            let mut left = link.users();
            while left != 0 {
                let owner = left.trailing_zeros() as usize;
                left &= left - 1;
                let Some(user) = self.graph.at_by(owner, link.latest()) else { continue };
                let data = reserved.of(owner);
                match user.key.get() {
                    FPROBES => self.fprobe_graph_return(handlers, &call, regs, data),
                    key => handlers.graph_return(key, &call, regs, data),
                }
            }
        }
        task.pop(&frame);
        Some(ret)
    }

    /// The data that a user reserved in the frame `depth` below the top one: the kernel's `fgraph_retrieve_parent_data`.
    #[must_use]
    pub fn retrieve_parent_data<'t>(&self, task: &'t Task, key: u64, depth: usize) -> Option<Data<'t>> {
        let user = self.graph.find(key)?;
        let frame = task.frames().nth(depth)?;
        let (link, slot) = (frame.link(), user.slot());
        if link.users() >> slot & 1 == 0 || !user.is_by(link.latest()) {
            return None;
        }
        frame.reserved().of(slot)
    }

    /// A word of this thread for a user, zero at first: the kernel's `fgraph_get_task_var`.
    #[must_use]
    pub fn task_var<'t>(&self, task: &'t Task, key: u64) -> Option<&'t Word> {
        task.var(self.graph.find(key)?.id.get())
    }
}
