//! fprobe: probes on sets of functions. Those with an exit handler are, together, one user of the function graph; the
//! others are one ops.
//!
//! Two tables: which probes are on a function, and which are alive. A return finds its probes by ids on the shadow stack, in
//! words of `registration << 12 | slot << 4 | words of data`, and asks the second table for each.

use crate::data::Data;
use crate::errno::{Errno, Result};
use crate::flags::{DISABLED, EXIT, Flags};
use crate::handlers::{Call, Handlers, Room};
use crate::runtime::Runtime;
use crate::sites::glob;
use crate::task::Task;
use crate::users::{User, epoch, id, slot};

/// The most bytes of data of one probe.
const MOST_DATA: usize = 120;
/// Bits of a header that are the number of words behind it.
const SIZE: u32 = 4;
/// The lowest bit of the registration's number in a header, above the slot.
const EPOCH: u32 = 12;

/// A probe.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fprobe {
    /// The address of the user's object that identifies the probe.
    pub key: u64,
    /// The probe has an exit handler.
    pub exit: bool,
    /// Bytes that the entry handler passes to the exit handler, rounded up to words.
    pub entry_data_size: usize,
}

/// The id of the probe to which a header belongs.
fn owner(header: u64) -> u64 {
    id(header >> EPOCH, (header >> SIZE & 0xff) as usize)
}

impl<const W: usize> Runtime<'_, W> {
    /// Register a probe on functions, by address.
    ///
    /// # Errors
    /// `EEXIST`: the probe is registered. `EINVAL`: no key, no addresses. `E2BIG`: more than 120 bytes of data. `ENOENT`: an
    /// address is no function's. `ENOSPC`: the function graph has no place. `ENOMEM`: no slot.
    pub fn register_fprobe_ips(&self, probe: &Fprobe, ips: &[u64]) -> Result<()> {
        let (slot, user) = self.claim_fprobe(probe, ips.is_empty())?;
        if ips.iter().any(|ip| self.sites.find(*ip).is_none()) {
            return Err(Errno::Noent);
        }
        self.fill(&self.fprobes.filters, slot, ips, &[]);
        self.publish_fprobe(slot, user)
    }

    /// Register a probe on the functions whose names match `filter` and not `notfilter`.
    ///
    /// # Errors
    /// As `register_fprobe_ips`. `ENOENT`: no function matches.
    pub fn register_fprobe(&self, probe: &Fprobe, filter: &str, notfilter: Option<&str>) -> Result<()> {
        let (slot, user) = self.claim_fprobe(probe, filter.is_empty())?;
        let matches = |name: &str| glob(filter, name) && !notfilter.is_some_and(|not| glob(not, name));
        for (site, _) in self.sites.all().iter().enumerate().filter(|(_, s)| matches(s.name)) {
            self.fprobes.filters.set(slot, site, true);
        }
        if self.fprobes.filters.is_all(slot) {
            return Err(Errno::Noent);
        }
        self.publish_fprobe(slot, user)
    }

    fn claim_fprobe(&self, probe: &Fprobe, empty: bool) -> Result<(usize, &User)> {
        if self.fprobes.find(probe.key).is_some() {
            return Err(Errno::Exist);
        }
        if probe.key == 0 || empty {
            return Err(Errno::Inval);
        }
        if probe.entry_data_size > MOST_DATA {
            return Err(Errno::TooBig);
        }
        let (slot, user) = self.fprobes.claim(probe.key)?;
        user.flags.set(u64::from(probe.exit) * EXIT);
        user.extra.set(probe.entry_data_size.div_ceil(8) as u64);
        Ok((slot, user))
    }

    fn publish_fprobe(&self, slot: usize, user: &User) -> Result<()> {
        match user.has(EXIT) {
            true => self.start_fprobes()?,
            false => self.start(Flags::FPROBE)?,
        }
        self.fprobes.publish(slot, self.tick());
        Ok(())
    }

    /// Unregister a probe. Functions that are running now return without a call of its exit handler.
    ///
    /// # Errors
    /// `EINVAL`: it is not registered.
    pub fn unregister_fprobe(&self, key: u64) -> Result<()> {
        let user = self.fprobes.find(key).ok_or(Errno::Inval)?;
        let class = user.flags.get() & EXIT;
        self.fprobes.remove(user);
        if !self.fprobes.live().any(|u| u.flags.get() & EXIT == class) {
            match class {
                EXIT => self.stop_fprobes(),
                _ => self.stop(Flags::FPROBE),
            }
        }
        Ok(())
    }

    /// Disable a probe without unregistering it, or enable it again.
    ///
    /// # Errors
    /// `EINVAL`: it is not registered.
    pub fn disable_fprobe(&self, key: u64, disable: bool) -> Result<()> {
        let user = self.fprobes.find(key).ok_or(Errno::Inval)?;
        let flags = user.flags.get();
        user.flags.set(if disable { flags | DISABLED } else { flags & !DISABLED });
        Ok(())
    }

    /// The number of calls that a probe missed: calls made by handlers, or without room on the shadow stack.
    ///
    /// # Errors
    /// `EINVAL`: it is not registered.
    pub fn fprobe_missed(&self, key: u64) -> Result<u64> {
        Ok(self.fprobes.find(key).ok_or(Errno::Inval)?.missed.get())
    }

    /// Count a call as missed for the probes that wanted its return and cannot get it.
    pub(crate) fn count_fprobes_missed(&self, site: usize) {
        for probe in self.fprobes.of(site).filter(|u| u.has(EXIT) && !u.has(DISABLED)) {
            probe.missed.add(1);
        }
    }

    /// Run the entry handlers of probes without exit handler: the callback of their common ops.
    #[cold]
    pub(crate) fn fprobe_enter<H: Handlers>(&self, h: &H, site: usize, call: &Call, regs: &H::Regs) {
        self.fprobes.newest(|id, user| {
            if self.fprobes.wants(slot(id), site) && user.flags.get() & (EXIT | DISABLED) == 0 {
                h.fprobe_entry(user.key.get(), call, regs, None);
            }
        });
    }

    /// Run the entry handlers of probes with exit handler: one reservation for all of them, or none of them is called.
    #[cold]
    pub(crate) fn fprobe_graph_enter<H: Handlers>(
        &self,
        h: &H,
        site: usize,
        call: &Call,
        regs: &H::Regs,
        room: &Room,
    ) -> bool {
        let here = |id: u64, user: &User| self.fprobes.wants(slot(id), site) && user.has(EXIT);
        let mut needed = 0;
        self.fprobes.newest(|id, user| needed += if here(id, user) { 1 + user.extra.index() } else { 0 });
        let Some(words) = room.reserve_data(needed * 8) else {
            if needed > 0 {
                self.count_fprobes_missed(site);
            }
            return false;
        };
        let mut used = 0;
        self.fprobes.newest(|id, user| {
            if !here(id, user) || user.has(DISABLED) {
                return;
            }
            let size = user.extra.index();
            let Some(own) = words.0.get(used + 1..used + 1 + size) else {
                // A handler that ran earlier at this entry has registered the probe.
                user.missed.add(1);
                return;
            };
            // The memory may still have words stored by a probe that did not want its return.
            own.iter().for_each(|word| word.set(0));
            let data = (size > 0).then_some(Data(own));
            if h.fprobe_entry(user.key.get(), call, regs, data) && self.fprobes.get(id).is_some() {
                words.set(used, epoch(id) << EPOCH | (slot(id) << SIZE | size) as u64);
                used += 1 + size;
            }
        });
        if used > 0 && used < words.len() {
            words.set(used, 0);
        }
        used > 0
    }

    /// Run the exit handlers of the probes that are still registered, in the order of entry.
    #[cold]
    pub(crate) fn fprobe_graph_return<H: Handlers>(&self, h: &H, call: &Call, regs: &mut H::Regs, data: Option<Data>) {
        let Some(mut rest) = data.map(|d| d.0) else { return };
        while let Some((header, behind)) = rest.split_first() {
            let header = header.get();
            let size = (header & ((1 << SIZE) - 1)) as usize;
            let (own, next) = behind.split_at(size.min(behind.len()));
            if header == 0 {
                return;
            }
            if let Some(user) = self.fprobes.get(owner(header)).filter(|u| !u.has(DISABLED)) {
                h.fprobe_exit(user.key.get(), call, regs, (size > 0).then_some(Data(own)));
            }
            rest = next;
        }
    }

    /// Does the thread have no pending return, and is every node of the pool free?
    #[must_use]
    pub fn is_balanced(&self, task: &Task) -> bool {
        task.is_balanced() && self.pool.is_free()
    }
}
