//! Tables of users. Each user has a slot. As in the kernel, the address of the user's object finds it; an id identifies it.
//!
//! An id contains the number of its registration. A frame pushed for a user that unregistered names an id that no slot
//! has any more, even if the same object, or another one in its memory, was registered since.

use core::ops::Range;

use crate::errno::{Errno, Result};
use crate::sites::Filters;
use crate::word::Word;

/// The number of bits of an id below the number of its registration: the slot, and zeros where a word of the shadow stack
/// has other fields beside such a number, so that one comparison orders such a word and an id.
pub(crate) const EPOCH: u32 = 28;

/// The id of a user: the number of the registration, and the slot.
// The number has 36 bits: it comes around after 68,000 million registrations.
pub(crate) const fn id(epoch: u64, slot: usize) -> u64 {
    epoch << EPOCH | slot as u64
}

/// The number of the registration in an id.
pub(crate) const fn epoch(id: u64) -> u64 {
    id >> EPOCH
}

/// The slot of an id.
pub(crate) const fn slot(id: u64) -> usize {
    (id & ((1 << EPOCH) - 1)) as usize
}

/// An upper bound of all ids that existed when the count of registrations was `now`. All later ids are greater.
pub(crate) const fn latest(now: u64) -> u64 {
    now << EPOCH | ((1 << EPOCH) - 1)
}

/// The state of a user: one cache line, so that a shift of the slot finds it.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct User {
    /// The id of the user; 0 if the slot is free.
    pub(crate) id: Word,
    /// The address of the user's object.
    pub(crate) key: Word,
    pub(crate) flags: Word,
    /// A word for the handlers.
    pub(crate) private: Word,
    /// A word for the table: a direct trampoline, or the number of words of data.
    pub(crate) extra: Word,
    pub(crate) missed: Word,
}

impl User {
    const fn new() -> Self {
        Self {
            id: Word::new(0),
            key: Word::new(0),
            flags: Word::new(0),
            private: Word::new(0),
            extra: Word::new(0),
            missed: Word::new(0),
        }
    }

    /// Does the slot have a user whose id is at most `latest`?
    pub(crate) fn is_by(&self, latest: u64) -> bool {
        self.id.get().wrapping_sub(1) < latest
    }

    /// The user's slot in its table.
    pub(crate) fn slot(&self) -> usize {
        slot(self.id.get())
    }

    /// Does the user have this flag?
    pub(crate) fn has(&self, flag: u64) -> bool {
        self.flags.get() & flag != 0
    }
}

/// A table of users, 32 at most. Ids grow with each registration, so that their order is that of registration.
#[derive(Debug)]
pub(crate) struct Users<const W: usize, const N: usize> {
    slots: [User; N],
    /// A bit for each slot that is taken.
    taken: Word,
    /// The functions that users want, by slot.
    pub(crate) filters: Filters<W>,
}

/// The numbers of the set bits of a word, lowest first.
pub(crate) fn bits(mut left: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
        left &= left - 1;
        Some(bit)
    })
}

impl<const W: usize, const N: usize> Users<W, N> {
    pub(crate) const fn new() -> Self {
        Self { slots: [const { User::new() }; N], taken: Word::new(0), filters: Filters::new() }
    }

    /// The user whose object has the address `key`, if registered.
    pub(crate) fn find(&self, key: u64) -> Option<&User> {
        self.live().find(|u| u.key.get() == key)
    }

    /// The user with this id, if still registered.
    pub(crate) fn get(&self, id: u64) -> Option<&User> {
        self.slots.get(slot(id)).filter(|u| id != 0 && u.id.get() == id)
    }

    /// All users, by slot.
    pub(crate) fn live(&self) -> impl Iterator<Item = &User> {
        bits(self.taken.get()).filter_map(|slot| self.at(slot))
    }

    /// A bit for each slot that is taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.get()
    }

    /// The users that want this function, as a bit mask of slots.
    pub(crate) fn wanting(&self, site: usize) -> u64 {
        self.taken.get() & self.filters.wanting(site)
    }

    /// Does the user in this slot want the function?
    pub(crate) fn wants(&self, slot: usize, site: usize) -> bool {
        self.filters.wanting(site) >> slot & 1 == 1
    }

    /// The users that want this function, by slot.
    pub(crate) fn of(&self, site: usize) -> impl Iterator<Item = &User> {
        bits(self.wanting(site)).filter_map(|slot| self.at(slot))
    }

    /// A free slot for a new user, with empty filters, not visible yet.
    pub(crate) fn claim(&self, key: u64) -> Result<(usize, &User)> {
        let free = self.slots.iter().position(|u| u.id.get() == 0);
        self.claim_at(free.ok_or(Errno::Nomem)?, key)
    }

    /// Claim this slot for a new user, with empty filters, not visible yet.
    pub(crate) fn claim_at(&self, slot: usize, key: u64) -> Result<(usize, &User)> {
        let user = self.slots.get(slot).filter(|u| u.id.get() == 0).ok_or(Errno::Nomem)?;
        user.key.set(key);
        user.missed.set(0);
        self.filters.reset(slot);
        Ok((slot, user))
    }

    /// The user in a slot.
    pub(crate) fn at(&self, slot: usize) -> Option<&User> {
        self.slots.get(slot).filter(|u| u.id.get() != 0)
    }

    /// The user in a slot, if its id is at most `latest`.
    pub(crate) fn at_by(&self, slot: usize, latest: u64) -> Option<&User> {
        self.slots.get(slot).filter(|u| u.is_by(latest))
    }

    /// Make a claimed slot visible, as registration number `epoch`.
    pub(crate) fn publish(&self, slot: usize, epoch: u64) {
        if let Some(user) = self.slots.get(slot) {
            user.id.set(id(epoch, slot));
            self.taken.set(self.taken.get() | 1 << slot);
        }
    }

    /// Remove a user, and free its slot.
    pub(crate) fn remove(&self, user: &User) {
        let taken = self.taken.get() & !(1 << user.slot());
        user.id.set(0);
        self.taken.set(taken);
    }

    /// The live users of some slots whose ids are in a range, with their ids.
    fn between(&self, slots: u64, ids: Range<u64>) -> impl Iterator<Item = (u64, &User)> {
        let of = bits(slots).filter_map(|slot| self.slots.get(slot));
        of.map(|u| (u.id.get(), u)).filter(move |(id, _)| ids.contains(id))
    }

    /// Visit the users that are registered now, the newest first, if they still are when their turn comes.
    ///
    /// A user registered meanwhile has a higher id than all of them, even in a slot that one of them had.
    #[inline]
    pub(crate) fn newest(&self, mut visit: impl FnMut(u64, &User)) {
        let (mut left, mut end) = (self.taken.get(), u64::MAX);
        while let Some((id, user)) = self.between(left, 1..end).max_by_key(|(id, _)| *id) {
            (left, end) = (left & !(1 << slot(id)), id);
            visit(id, user);
        }
    }

    /// Visit the users that are registered now, the oldest first, if they still are when their turn comes.
    pub(crate) fn oldest(&self, mut visit: impl FnMut(u64, &User)) {
        let (mut left, mut from) = (self.taken.get(), 1);
        let end = self.between(left, 1..u64::MAX).map(|(id, _)| id + 1).max().unwrap_or(from);
        while let Some((id, user)) = self.between(left, from..end).min_by_key(|(id, _)| *id) {
            (left, from) = (left & !(1 << slot(id)), id + 1);
            visit(id, user);
        }
    }
}
