//! The state of one thread: the shadow stack, the recursion guard, pending kretprobes.

use crate::data::Data;
use crate::users::{EPOCH, slot};
use crate::word::Word;

/// Users of the function graph.
pub const GRAPH_USERS: usize = 16;
/// Words of a shadow stack.
const WORDS: usize = 512 - GRAPH_USERS;
/// Words of a frame: return address, function, address of the return address, and the link that ends the frame.
const FRAME: usize = 4;
/// The most words that one user can reserve in a frame.
const MOST_DATA: usize = 32;

/// Contexts that nest on one thread: ordinary, soft interrupt or signal, interrupt, NMI.
const CONTEXTS: usize = 4;

/// The lowest user bit in a frame's link. Below is the start of the next older frame, here a bit for each user that wants the
/// return, and from `EPOCH` on the count of registrations at the entry.
const USERS: u32 = 12;
/// The lowest bit of the owner's slot in a header of data. Below is the number of words behind the header.
const OWNER: u32 = 8;

/// The state of a thread. Other threads never read it; interrupts and signals on this thread may, between any two stores.
// Counts come first, so that their offsets fit one byte in instructions.
#[derive(Debug)]
#[repr(C)]
pub struct Task {
    /// The end of the words in use.
    top: Word,
    /// The start of the latest frame; the end of all words if there is no frame.
    frame: Word,
    /// The number of active hooked functions.
    depth: Word,
    overrun: Word,
    unwound: Word,
    /// For each context: is a handler running?
    guards: [Word; CONTEXTS],
    context: Word,
    /// The latest pending kretprobe, as an index into the pool plus one; 0 means none.
    pub(crate) pending: Word,
    words: [Word; WORDS],
    vars: [Word; GRAPH_USERS],
    owners: [Word; GRAPH_USERS],
}

impl Default for Task {
    fn default() -> Self {
        Self::new()
    }
}

/// The recursion guard of a context, held until dropped.
pub(crate) struct Guard<'t>(&'t Task);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // An interrupt has left its context again before this one continues.
        self.0.guard().set(0);
    }
}

impl Task {
    /// A thread that runs no traced function.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            words: [const { Word::new(0) }; WORDS],
            top: Word::new(0),
            frame: Word::new(WORDS as u64),
            depth: Word::new(0),
            overrun: Word::new(0),
            unwound: Word::new(0),
            guards: [const { Word::new(0) }; CONTEXTS],
            context: Word::new(0),
            vars: [const { Word::new(0) }; GRAPH_USERS],
            owners: [const { Word::new(0) }; GRAPH_USERS],
            pending: Word::new(0),
        }
    }

    /// Reset all state but the words of the stack to that of a new task.
    pub(crate) fn reset(&self) {
        let counts = [&self.top, &self.depth, &self.overrun, &self.unwound, &self.context, &self.pending];
        counts.into_iter().chain(&self.guards).chain(&self.owners).for_each(|word| word.set(0));
        self.frame.set(WORDS as u64);
    }

    /// Set the context of the thread: 0 for ordinary code, up to 3. Returns the context before.
    pub fn enter_context(&self, context: u64) -> u64 {
        let before = self.context.get();
        self.context.set(context.min(CONTEXTS as u64 - 1));
        before
    }

    /// The guard of this context.
    fn guard(&self) -> &Word {
        &self.guards[self.context.index() % CONTEXTS]
    }

    /// Take the guard of this context; `None` if one of its handlers is running.
    pub(crate) fn lock(&self) -> Option<Guard<'_>> {
        let guard = self.guard();
        (guard.get() == 0).then(|| {
            guard.set(1);
            Guard(self)
        })
    }

    /// The number of calls not traced because the shadow stack was full.
    #[must_use]
    pub fn overrun(&self) -> u64 {
        self.overrun.get()
    }

    /// The number of frames dropped because the thread left their functions without returning.
    #[must_use]
    pub fn unwound(&self) -> u64 {
        self.unwound.get()
    }

    /// Are the shadow stack and the list of pending kretprobes empty?
    #[must_use]
    pub fn is_balanced(&self) -> bool {
        let counts = [&self.top, &self.depth, &self.pending];
        counts.into_iter().chain(&self.guards).all(|word| word.get() == 0) && self.top_frame().is_none()
    }

    pub(crate) fn depth(&self) -> u64 {
        self.depth.get()
    }

    /// The word of this thread for a user: zero until the user stores a value.
    pub(crate) fn var(&self, id: u64) -> Option<&Word> {
        let var = self.vars.get(slot(id))?;
        if self.owners[slot(id)].get() != id {
            var.set(0);
            self.owners[slot(id)].set(id);
        }
        Some(var)
    }

    /// The words of the frame that begins at `start`.
    fn head(&self, start: usize) -> Option<&[Word; FRAME]> {
        self.words.get(start..)?.first_chunk()
    }

    /// The frame that begins at `start`, with all words up to `top`.
    fn frame_at(&self, start: usize, top: usize) -> Option<Frame<'_>> {
        let (head, reserved) = self.words.get(start..top)?.split_first_chunk()?;
        Some(Frame { head, reserved, start })
    }

    /// Push a frame, or count an overrun if there is no room. An interrupt between any two stores may push and pop above `top`:
    /// so `top` moves first, and the frame becomes visible when it is complete.
    pub(crate) fn push(&self, ret: u64, func: u64, retp: u64) -> Option<usize> {
        let start = self.top.index();
        let Some([at, own, place, link]) = self.head(start) else {
            self.overrun.add(1);
            return None;
        };
        self.top.set((start + FRAME) as u64);
        at.set(ret);
        own.set(func);
        place.set(retp);
        link.set(self.frame.get());
        self.frame.set(start as u64);
        self.depth.set(self.depth.get() + 1);
        Some(start)
    }

    /// Store which users want the return in the frame that begins at `start`. Their ids are at most `latest`.
    pub(crate) fn settle(&self, start: usize, users: u64, latest: u64) {
        let Some([.., link]) = self.head(start) else { return };
        link.set(latest >> EPOCH << EPOCH | users << USERS | link.get());
    }

    /// Pop the latest frame, and all words above it.
    pub(crate) fn pop(&self, frame: &Frame) {
        // An interrupt between these stores pushes above the frame.
        self.frame.set(frame.link().older() as u64);
        self.top.set(frame.start as u64);
        self.depth.set(self.depth.get().wrapping_sub(1));
    }

    /// Drop the latest frame, whose return no user wants.
    pub(crate) fn drop_frame(&self) {
        self.top_frame().iter().for_each(|frame| self.pop(frame));
    }

    /// The current end of the stack, for [`Task::cut`].
    pub(crate) fn mark(&self) -> usize {
        self.top.index()
    }

    /// Drop all words reserved since `mark` was taken.
    pub(crate) fn cut(&self, mark: usize) {
        self.top.set(mark as u64);
    }

    /// Reserve words for the user in slot `owner` at `end`, the end of the stack. No code reads them before the frame is settled.
    pub(crate) fn reserve(&self, end: usize, owner: usize, words: usize) -> Option<Data<'_>> {
        if words == 0 || words > MOST_DATA {
            return None;
        }
        let (header, data) = self.words.get(end..end + 1 + words)?.split_first()?;
        self.top.set((end + 1 + words) as u64);
        header.set((owner << OWNER | words) as u64);
        // No user may read the words of the memory's last owner.
        data.iter().for_each(|w| w.set(0));
        Some(Data(data))
    }

    /// The latest frame.
    pub(crate) fn top_frame(&self) -> Option<Frame<'_>> {
        self.frame_at(self.frame.index(), self.top.index())
    }

    /// The frames, the latest first.
    pub(crate) fn frames(&self) -> impl Iterator<Item = Frame<'_>> {
        let (mut start, mut top) = (self.frame.index(), self.top.index());
        core::iter::from_fn(move || {
            let frame = self.frame_at(start, top)?;
            (start, top) = (frame.link().older(), start);
            Some(frame)
        })
    }

    /// The frame of the function whose return address lay at `retp`, or else the latest frame. Drops the frames above it,
    /// because their functions were left by a jump.
    #[cold]
    pub(crate) fn unwind_to(&self, retp: u64) -> Option<Frame<'_>> {
        let frame = self.frames().find(|f| f.retp() == retp).or_else(|| self.top_frame())?;
        self.drop_above(frame.start);
        Some(frame)
    }

    /// Is the frame that begins at `start` the latest? Frames still above it after a handler belong to functions left by a jump.
    pub(crate) fn is_latest(&self, start: usize) -> bool {
        self.frame.index() == start
    }

    /// Drop the frames above the one that begins at `start`.
    #[cold]
    pub(crate) fn drop_above(&self, start: usize) {
        let above = || self.frames().take_while(|f| f.start > start);
        let Some(oldest) = above().last() else { return };
        let lost = above().count() as u64;
        self.unwound.add(lost);
        self.depth.set(self.depth.get().wrapping_sub(lost));
        self.frame.set(start as u64);
        self.top.set(oldest.start as u64);
    }
}

/// The link of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link(u64);

impl Link {
    /// The start of the next older frame.
    fn older(self) -> usize {
        (self.0 & ((1 << USERS) - 1)) as usize
    }

    /// The slots of users that want the return, as a bit mask.
    pub(crate) fn users(self) -> u64 {
        self.0 >> USERS & ((1 << GRAPH_USERS) - 1)
    }

    /// An upper bound of the ids of users registered at the entry. Ids of later users, maybe in the same slots, are greater.
    pub(crate) fn latest(self) -> u64 {
        self.0
    }
}

/// A frame of the shadow stack, with the users' reserved words behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'t> {
    head: &'t [Word; FRAME],
    reserved: &'t [Word],
    pub(crate) start: usize,
}

impl<'t> Frame<'t> {
    /// The address that the function returns to.
    pub(crate) fn ret(&self) -> u64 {
        self.head[0].get()
    }

    /// The function.
    pub(crate) fn func(&self) -> u64 {
        self.head[1].get()
    }

    /// The address at which the return address lay.
    pub(crate) fn retp(&self) -> u64 {
        self.head[2].get()
    }

    /// The link of the frame: the users that want the return, and the next older frame.
    pub(crate) fn link(&self) -> Link {
        Link(self.head[3].get())
    }

    /// The words that users reserved in the frame.
    pub(crate) fn reserved(&self) -> Reserved<'t> {
        Reserved(self.reserved)
    }
}

/// The words that users reserved in a frame, in the order of their slots.
pub(crate) struct Reserved<'t>(&'t [Word]);

impl<'t> Reserved<'t> {
    /// The words that the user in slot `owner` reserved. Consumes them and all words before them.
    pub(crate) fn of(&mut self, owner: usize) -> Option<Data<'t>> {
        while let Some((header, behind)) = self.0.split_first() {
            let header = header.index();
            if header >> OWNER > owner {
                return None;
            }
            let (data, next) = behind.split_at_checked(header & ((1 << OWNER) - 1))?;
            self.0 = next;
            if header >> OWNER == owner {
                return Some(Data(data));
            }
        }
        None
    }
}
