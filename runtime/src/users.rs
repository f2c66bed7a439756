//! Tables of users: a slot each, found by the address of the user's own object as in the kernel, told apart by an id.
//!
//! An id has the number of its registration in it. A frame that was pushed for a user who is gone names an id that no slot
//! has any more, even if the same object, or another one in its memory, was registered since.

use core::ops::Range;

use crate::errno::{Errno, Result};
use crate::sites::Filter;
use crate::word::Word;

/// Bits of an id that are the slot.
const SLOT: u32 = 8;

/// The number of the registration that an id is of.
pub(crate) const fn epoch(id: u64) -> u64 {
    id >> SLOT
}

/// The slot of an id.
pub(crate) const fn slot(id: u64) -> usize {
    (id & ((1 << SLOT) - 1)) as usize
}

/// What is known of a user.
#[derive(Debug)]
pub(crate) struct User<const W: usize> {
    /// 0: the slot is free.
    pub(crate) id: Word,
    /// The address of the user's object.
    pub(crate) key: Word,
    pub(crate) flags: Word,
    /// A word for the handlers.
    pub(crate) private: Word,
    /// What the table wants: a direct trampoline, words of data.
    pub(crate) extra: Word,
    pub(crate) missed: Word,
    pub(crate) filter: Filter<W>,
    pub(crate) notrace: Filter<W>,
}

impl<const W: usize> User<W> {
    const fn new() -> Self {
        Self {
            id: Word::new(0),
            key: Word::new(0),
            flags: Word::new(0),
            private: Word::new(0),
            extra: Word::new(0),
            missed: Word::new(0),
            filter: Filter::new(),
            notrace: Filter::new(),
        }
    }

    /// Is this function traced for the user?
    pub(crate) fn wants(&self, site: usize) -> bool {
        self.filter.passes(site) && !self.notrace.lists(site)
    }

    /// Does the user have this flag?
    pub(crate) fn has(&self, flag: u64) -> bool {
        self.flags.get() & flag != 0
    }
}

/// A table of users. Ids grow with each registration, so that their order is that of registration.
#[derive(Debug)]
pub(crate) struct Users<const W: usize, const N: usize> {
    slots: [User<W>; N],
    /// A bit for each slot that is taken.
    taken: Word,
}

impl<const W: usize, const N: usize> Users<W, N> {
    pub(crate) const fn new() -> Self {
        Self { slots: [const { User::new() }; N], taken: Word::new(0) }
    }

    /// The user with this object, if registered.
    pub(crate) fn find(&self, key: u64) -> Option<&User<W>> {
        self.live().find(|u| u.key.get() == key)
    }

    /// The user with this id, if still registered.
    pub(crate) fn get(&self, id: u64) -> Option<&User<W>> {
        self.slots.get(slot(id)).filter(|u| id != 0 && u.id.get() == id)
    }

    /// All users, by slot.
    pub(crate) fn live(&self) -> impl Iterator<Item = &User<W>> {
        let mut left = self.taken.get();
        core::iter::from_fn(move || {
            let slot = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(slot)
        })
        .filter_map(|slot| self.at(slot))
    }

    /// A free slot for a new user, with empty filters, not visible yet.
    pub(crate) fn claim(&self, key: u64) -> Result<(usize, &User<W>)> {
        let free = self.slots.iter().position(|u| u.id.get() == 0);
        self.claim_at(free.ok_or(Errno::Nomem)?, key)
    }

    /// The same with this slot.
    pub(crate) fn claim_at(&self, slot: usize, key: u64) -> Result<(usize, &User<W>)> {
        let user = self.slots.get(slot).filter(|u| u.id.get() == 0).ok_or(Errno::Nomem)?;
        user.key.set(key);
        user.missed.set(0);
        user.filter.reset();
        user.notrace.reset();
        Ok((slot, user))
    }

    /// The user in a slot.
    pub(crate) fn at(&self, slot: usize) -> Option<&User<W>> {
        self.slots.get(slot).filter(|u| u.id.get() != 0)
    }

    /// Make a claimed slot visible, as registration number `epoch`.
    pub(crate) fn publish(&self, slot: usize, epoch: u64) {
        if let Some(user) = self.slots.get(slot) {
            user.id.set(epoch << SLOT | slot as u64);
            self.taken.set(self.taken.get() | 1 << slot);
        }
    }

    /// Take a user away.
    pub(crate) fn remove(&self, user: &User<W>) {
        let taken = self.taken.get() & !(1 << slot(user.id.get()));
        user.id.set(0);
        self.taken.set(taken);
    }

    /// The live ones whose ids are in a range, with their ids.
    fn between(&self, ids: Range<u64>) -> impl Iterator<Item = (u64, &User<W>)> {
        self.live().map(|u| (u.id.get(), u)).filter(move |(id, _)| ids.contains(id))
    }

    /// Visit the users who are there now and still there when their turn comes, the newest first.
    pub(crate) fn newest(&self, mut visit: impl FnMut(u64, &User<W>)) {
        let mut end = u64::MAX;
        while let Some((id, user)) = self.between(1..end).max_by_key(|(id, _)| *id) {
            end = id;
            visit(id, user);
        }
    }

    /// The same, the oldest first.
    pub(crate) fn oldest(&self, mut visit: impl FnMut(u64, &User<W>)) {
        let mut from = 1;
        let end = self.between(1..u64::MAX).map(|(id, _)| id + 1).max().unwrap_or(from);
        while let Some((id, user)) = self.between(from..end).min_by_key(|(id, _)| *id) {
            from = id + 1;
            visit(id, user);
        }
    }
}
