//! Ops: callbacks at entries, direct calls, redirections; and which of them may be on one function together.

use crate::errno::{Errno, Result};
use crate::flags::{EXIT, Flags};
use crate::runtime::Runtime;
use crate::sites::Filters;
use crate::users::User;

/// An ops to register.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ops<'a> {
    /// The address of the user's object that identifies the ops.
    pub key: u64,
    /// The flags of the ops.
    pub flags: Flags,
    /// A word for the callback of the ops.
    pub private: u64,
    /// Functions to trace, by address; an empty list means all functions.
    pub filter: &'a [u64],
    /// Functions not to trace.
    pub notrace: &'a [u64],
}

/// A redirection: calls go to `to`, except calls made by the replacement itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hijack {
    /// The address of the replacement.
    pub to: u64,
    /// The end of the replacement. A caller between `to` and `end` reaches the original function.
    pub end: u64,
}

/// The code that a site calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Nothing: a NOP.
    Nop,
    /// The direct trampoline at this address, as nothing else traces the function.
    Direct(u64),
    /// `ftrace_caller`, which saves the argument registers.
    Caller,
    /// `ftrace_regs_caller`, which saves all registers.
    RegsCaller,
}

impl<const W: usize> Runtime<'_, W> {
    /// Register an ops, and call it from then on.
    ///
    /// # Errors
    /// `EINVAL`: no key, flags that are not for callers, an unknown function, IPMODIFY on all functions. `EBUSY`: the ops is
    /// registered, or another ops on the function excludes it. `ENOMEM`: no slot.
    pub fn register_ftrace_function(&self, ops: &Ops) -> Result<()> {
        self.register_ops(ops, 0, Errno::Busy)
    }

    /// Unregister an ops. Functions that are running now are not changed.
    ///
    /// # Errors
    /// `EBUSY`: the ops is not registered, as in the kernel.
    pub fn unregister_ftrace_function(&self, key: u64) -> Result<()> {
        let user = self.ops.find(key).filter(|u| !u.has(Flags::DIRECT.0)).ok_or(Errno::Busy)?;
        self.ops.remove(user);
        Ok(())
    }

    /// Redirect functions by an IPMODIFY ops. The core itself is its callback, so that it works inside handlers too.
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

    /// Call `addr` from functions: directly from the site if no other ops traces the function, else after all callbacks.
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

    /// Change the address of a direct call, with one store, so that each call goes to the old address or to the new one.
    ///
    /// # Errors
    /// `EINVAL`: no address, or no direct ops is registered with this key.
    pub fn modify_ftrace_direct(&self, key: u64, addr: u64) -> Result<()> {
        let user = self.ops.find(key).filter(|u| u.has(Flags::DIRECT.0) && addr != 0).ok_or(Errno::Inval)?;
        user.extra.set(addr);
        Ok(())
    }

    /// Unregister a direct call.
    ///
    /// # Errors
    /// `EINVAL`: no direct ops is registered with this key.
    pub fn unregister_ftrace_direct(&self, key: u64) -> Result<()> {
        let user = self.ops.find(key).filter(|u| u.has(Flags::DIRECT.0)).ok_or(Errno::Inval)?;
        self.ops.remove(user);
        Ok(())
    }

    /// Add a function to the filter of a registered ops, or remove it. Without its last function the ops traces none.
    ///
    /// # Errors
    /// `EINVAL`: not registered, an unknown function, or the last one of an IPMODIFY or direct ops. `EBUSY`: another ops on
    /// the function excludes it.
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

    /// The code that the site of a function calls now.
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

    /// Is an ops on this function? The ops of the graph or of probes is, if one of its users is.
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

    /// Set the filter of a claimed user; all functions are known to exist.
    pub(crate) fn fill(&self, filters: &Filters<W>, user: usize, filter: &[u64], notrace: &[u64]) {
        filter.iter().filter_map(|ip| self.sites.find(*ip)).for_each(|site| filters.set(user, site, true));
        notrace.iter().filter_map(|ip| self.sites.find(*ip)).for_each(|site| filters.exclude(user, site));
    }

    /// Register the ops through which a mechanism is called, when its first user registers.
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

    /// Unregister the ops of a mechanism, when its last user unregisters.
    pub(crate) fn stop(&self, flag: Flags) {
        if let Some(user) = self.ops.live().find(|u| u.has(flag.0)) {
            self.ops.remove(user);
            if flag == Flags::GRAPH {
                self.of_graph.set(0);
            }
        }
    }
}
