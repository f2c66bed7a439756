//! Ops: callbacks at entries, direct calls, redirections; who may be on one function with whom.

use crate::errno::{Errno, Result};
use crate::flags::{EXIT, Flags};
use crate::runtime::Runtime;
use crate::sites::Filters;
use crate::users::User;

/// An ops to register.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ops<'a> {
    /// The address of the object that stands for it.
    pub key: u64,
    /// What it is.
    pub flags: Flags,
    /// A word for its callback.
    pub private: u64,
    /// Functions to trace, by address; none listed is all.
    pub filter: &'a [u64],
    /// Functions not to trace.
    pub notrace: &'a [u64],
}

/// A redirection: calls go to `to`, but for those that come from the replacement itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hijack {
    /// The replacement.
    pub to: u64,
    /// Its end. A caller between its beginning and its end reaches the original.
    pub end: u64,
}

/// What a site calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Nothing: a NOP.
    Nop,
    /// The direct trampoline there, since nobody else traces the function.
    Direct(u64),
    /// `ftrace_caller`: arguments.
    Caller,
    /// `ftrace_regs_caller`: all registers.
    RegsCaller,
}

impl<const W: usize> Runtime<'_, W> {
    /// Register an ops, and call it from then on.
    ///
    /// # Errors
    /// `EINVAL`: no key, flags that are not for it, an unknown function, IPMODIFY on all functions. `EBUSY`: it is registered,
    /// or somebody is on the function who excludes it. `ENOMEM`: no slot.
    pub fn register_ftrace_function(&self, ops: &Ops) -> Result<()> {
        self.register_ops(ops, 0, Errno::Busy)
    }

    /// Unregister it. Functions that run are left as they are.
    ///
    /// # Errors
    /// `EBUSY`: it is not registered, as the kernel has it.
    pub fn unregister_ftrace_function(&self, key: u64) -> Result<()> {
        let user = self.ops.find(key).filter(|u| !u.has(Flags::DIRECT.0)).ok_or(Errno::Busy)?;
        self.ops.remove(user);
        Ok(())
    }

    /// Redirect functions: an IPMODIFY ops whose callback is the core's own, so that it works inside handlers too.
    ///
    /// # Errors
    /// As `register_ftrace_function`, and `EINVAL` for a replacement without bytes.
    pub fn register_hijack(&self, key: u64, filter: &[u64], hijack: Hijack) -> Result<()> {
        if hijack.to == 0 || hijack.end <= hijack.to {
            return Err(Errno::Inval);
        }
        let flags = Flags::IPMODIFY.with(Flags::HIJACK);
        self.register_ops(&Ops { key, flags, private: hijack.to, filter, notrace: &[] }, hijack.end, Errno::Busy)
    }

    /// Call `addr` directly from functions that nobody else traces, and behind all others from those that somebody does.
    ///
    /// # Errors
    /// `EINVAL`: no address, no function, or registered already. `EBUSY`: a function has a direct call, or an IPMODIFY ops
    /// that this one does not share with. `ENOMEM`: no slot.
    pub fn register_ftrace_direct(&self, ops: &Ops, addr: u64) -> Result<()> {
        if addr == 0 {
            return Err(Errno::Inval);
        }
        let flags = ops.flags.with(Flags::DIRECT).with(Flags::REGS);
        self.register_ops(&Ops { flags, ..*ops }, addr, Errno::Inval)
    }

    /// Call another address from the same functions: with one store, so that each call goes to the old one or the new one.
    ///
    /// # Errors
    /// `EINVAL`: no address, or it is no direct ops that is registered.
    pub fn modify_ftrace_direct(&self, key: u64, addr: u64) -> Result<()> {
        let user = self.ops.find(key).filter(|u| u.has(Flags::DIRECT.0) && addr != 0).ok_or(Errno::Inval)?;
        user.extra.set(addr);
        Ok(())
    }

    /// Take the direct call away.
    ///
    /// # Errors
    /// `EINVAL`: it is no direct ops that is registered.
    pub fn unregister_ftrace_direct(&self, key: u64) -> Result<()> {
        let user = self.ops.find(key).filter(|u| u.has(Flags::DIRECT.0)).ok_or(Errno::Inval)?;
        self.ops.remove(user);
        Ok(())
    }

    /// Add a function to the filter of a registered ops, or take it out. Taking the last one out leaves none.
    ///
    /// # Errors
    /// `EINVAL`: not registered, an unknown function, or the last one of an IPMODIFY or direct ops. `EBUSY`: somebody is there
    /// who excludes it.
    pub fn ftrace_set_filter_ip(&self, key: u64, ip: u64, remove: bool) -> Result<()> {
        let user = self.ops.find(key).ok_or(Errno::Inval)?;
        let site = self.sites.find(ip).ok_or(Errno::Inval)?;
        let (flags, slot, filters) = (Flags(user.flags.get()), user.slot(), &self.ops.filters);
        let exclusive = flags.has(Flags::IPMODIFY) || flags.has(Flags::DIRECT);
        if remove {
            if exclusive && filters.lists(slot, site) && filters.count(slot) == 1 {
                return Err(Errno::Inval);
            }
        } else if !filters.lists(slot, site) {
            self.admit(flags, site)?;
        }
        filters.set(slot, site, !remove);
        Ok(())
    }

    /// What the site of a function calls now.
    #[must_use]
    pub fn target(&self, ip: u64) -> Target {
        let Some(site) = self.sites.find(ip) else { return Target::Nop };
        let (mut all, mut regs, mut direct) = (0, false, 0);
        for user in self.ops.live().filter(|u| self.attached(u, site)) {
            let flags = Flags(user.flags.get());
            all += 1;
            regs |= flags.has(Flags::REGS) || flags.has(Flags::IPMODIFY);
            if flags.has(Flags::DIRECT) {
                direct = user.extra.get();
            }
        }
        match (all, direct) {
            (0, _) => Target::Nop,
            (1, direct) if direct != 0 => Target::Direct(direct),
            _ if regs => Target::RegsCaller,
            _ => Target::Caller,
        }
    }

    /// Is an ops on this function? That of the graph or of probes is if one of its users is.
    fn attached(&self, user: &User, site: usize) -> bool {
        let flags = Flags(user.flags.get());
        if flags.has(Flags::GRAPH) {
            self.graph_wanting(site) != 0
        } else if flags.has(Flags::FPROBE) {
            self.fprobes.of(site).any(|u| !u.has(EXIT))
        } else if flags.has(Flags::KPROBE) {
            self.kretprobes.wanting(site) != 0
        } else {
            self.ops.wants(user.slot(), site)
        }
    }

    /// May an ops with these flags be on this function too?
    fn admit(&self, flags: Flags, site: usize) -> Result<()> {
        let others = self.ops.of(site).map(|u| Flags(u.flags.get()));
        for other in others {
            let both = |flag| flags.has(flag) && other.has(flag);
            let one =
                |a: Flags, b: Flags| a.has(Flags::DIRECT) && b.has(Flags::IPMODIFY) && !a.has(Flags::SHARE_IPMODIFY);
            if both(Flags::DIRECT) || both(Flags::IPMODIFY) || one(flags, other) || one(other, flags) {
                return Err(Errno::Busy);
            }
        }
        Ok(())
    }

    fn register_ops(&self, ops: &Ops, extra: u64, registered: Errno) -> Result<()> {
        let own = Flags::DIRECT.0 | Flags::HIJACK.0;
        let exclusive = ops.flags.has(Flags::DIRECT) || ops.flags.has(Flags::IPMODIFY);
        if ops.key == 0 || ops.flags.0 & !(Flags::ASKED | own) != 0 || exclusive && ops.filter.is_empty() {
            return Err(Errno::Inval);
        }
        if self.ops.find(ops.key).is_some() {
            return Err(registered);
        }
        for ip in ops.filter {
            self.admit(ops.flags, self.sites.find(*ip).ok_or(Errno::Inval)?)?;
        }
        if ops.notrace.iter().any(|ip| self.sites.find(*ip).is_none()) {
            return Err(Errno::Inval);
        }
        let (slot, user) = self.ops.claim(ops.key)?;
        user.flags.set(ops.flags.0);
        user.private.set(ops.private);
        user.extra.set(extra);
        self.fill(&self.ops.filters, slot, ops.filter, ops.notrace);
        self.ops.publish(slot, self.tick());
        Ok(())
    }

    /// Give a claimed user its functions, which are known to exist.
    pub(crate) fn fill(&self, filters: &Filters<W>, user: usize, filter: &[u64], notrace: &[u64]) {
        filter.iter().filter_map(|ip| self.sites.find(*ip)).for_each(|site| filters.set(user, site, true));
        notrace.iter().filter_map(|ip| self.sites.find(*ip)).for_each(|site| filters.exclude(user, site));
    }

    /// The ops through which a mechanism is called, registered with its first user.
    pub(crate) fn start(&self, flag: Flags) -> Result<()> {
        if self.ops.live().any(|u| u.has(flag.0)) {
            return Ok(());
        }
        // No object of a caller has these addresses.
        let (slot, user) = self.ops.claim(u64::MAX - flag.0)?;
        user.flags.set(flag.0);
        if flag == Flags::GRAPH {
            self.of_graph.set(1 << slot);
        }
        self.ops.publish(slot, self.tick());
        Ok(())
    }

    /// And unregistered with its last.
    pub(crate) fn stop(&self, flag: Flags) {
        if let Some(user) = self.ops.live().find(|u| u.has(flag.0)) {
            self.ops.remove(user);
            if flag == Flags::GRAPH {
                self.of_graph.set(0);
            }
        }
    }
}
