//! What a thread has of its own: the shadow stack, the recursion guard, pending kretprobes.

use crate::data::Data;
use crate::users::{EPOCH, slot};
use crate::word::Word;

/// Users of the function graph.
pub const GRAPH_USERS: usize = 16;
/// Words of a shadow stack.
const WORDS: usize = 512 - GRAPH_USERS;
/// Words of a frame: return address, function, where the return address lay, and the link that ends it.
const FRAME: usize = 4;
/// The most words that one user can reserve in a frame.
const MOST_DATA: usize = 32;

/// Contexts that nest on one thread: ordinary, soft interrupt or signal, interrupt, NMI.
const CONTEXTS: usize = 4;

/// In the link of a frame: where the next older one begins, then a bit for each user who wants the return, and from `EPOCH` on
/// the count of registrations at the entry.
const USERS: u32 = 12;
/// In the header of data: the number of words behind it, and from here on the owner's slot.
const OWNER: u32 = 8;

/// A thread. Other threads never look inside; interrupts and signals on this one may, between any two stores.
// Counts come first: their offsets have a byte in instructions then.
#[derive(Debug)]
#[repr(C)]
pub struct Task {
    /// Where the words in use end.
    top: Word,
    /// Where the latest frame begins; there is none at the end of all words.
    frame: Word,
    /// How many hooked functions are active.
    depth: Word,
    overrun: Word,
    unwound: Word,
    /// For each context, whether a handler of it is running.
    guards: [Word; CONTEXTS],
    context: Word,
    /// The latest pending kretprobe, as an index into the pool and one; 0 is none.
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
        // Who interrupts has left its context again by then.
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

    /// Everything but the words of the stack is as in a new one.
    pub(crate) fn reset(&self) {
        let counts = [&self.top, &self.depth, &self.overrun, &self.unwound, &self.context, &self.pending];
        counts.into_iter().chain(&self.guards).chain(&self.owners).for_each(|word| word.set(0));
        self.frame.set(WORDS as u64);
    }

    /// Say in which context the thread is now: 0 ordinary, up to 3. Returns the one before.
    pub fn enter_context(&self, context: u64) -> u64 {
        let before = self.context.get();
        self.context.set(context.min(CONTEXTS as u64 - 1));
        before
    }

    /// The guard of this context.
    fn guard(&self) -> &Word {
        &self.guards[self.context.index() % CONTEXTS]
    }

    /// Take the guard of this context, or find that one of its handlers is running.
    pub(crate) fn lock(&self) -> Option<Guard<'_>> {
        let guard = self.guard();
        (guard.get() == 0).then(|| {
            guard.set(1);
            Guard(self)
        })
    }

    /// Functions that were not traced because the shadow stack was full.
    #[must_use]
    pub fn overrun(&self) -> u64 {
        self.overrun.get()
    }

    /// Frames that were dropped because the thread left their functions without returning.
    #[must_use]
    pub fn unwound(&self) -> u64 {
        self.unwound.get()
    }

    /// Is nothing pending, on either stack?
    #[must_use]
    pub fn is_balanced(&self) -> bool {
        let counts = [&self.top, &self.depth, &self.pending];
        counts.into_iter().chain(&self.guards).all(|word| word.get() == 0) && self.top_frame().is_none()
    }

    pub(crate) fn depth(&self) -> u64 {
        self.depth.get()
    }

    /// The word of this thread for a user: zero until the user stores something.
    pub(crate) fn var(&self, id: u64) -> Option<&Word> {
        let var = self.vars.get(slot(id))?;
        if self.owners[slot(id)].get() != id {
            var.set(0);
            self.owners[slot(id)].set(id);
        }
        Some(var)
    }

    /// The words of the frame that begins there.
    fn head(&self, start: usize) -> Option<&[Word; FRAME]> {
        self.words.get(start..)?.first_chunk()
    }

    /// The frame that begins there, with all up to `top`.
    fn frame_at(&self, start: usize, top: usize) -> Option<Frame<'_>> {
        let (head, reserved) = self.words.get(start..top)?.split_first_chunk()?;
        Some(Frame { head, reserved, start })
    }

    /// Push a frame, or count that there is no room. Between any two stores an interrupt may push and pop above `top`: that moves
    /// first, and a frame is found from when all of it is there.
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

    /// Say who wants the return from the frame that begins there, of those whose ids are no more than `latest`.
    pub(crate) fn settle(&self, start: usize, users: u64, latest: u64) {
        let Some([.., link]) = self.head(start) else { return };
        link.set(latest >> EPOCH << EPOCH | users << USERS | link.get());
    }

    /// Take the latest frame away, and what lies above it.
    pub(crate) fn pop(&self, frame: &Frame) {
        // Whoever interrupts between these pushes above the frame.
        self.frame.set(frame.link().older() as u64);
        self.top.set(frame.start as u64);
        self.depth.set(self.depth.get().wrapping_sub(1));
    }

    /// The same, when nobody wants it.
    pub(crate) fn drop_frame(&self) {
        self.top_frame().iter().for_each(|frame| self.pop(frame));
    }

    /// Where the stack ends now, to cut it back to.
    pub(crate) fn mark(&self) -> usize {
        self.top.index()
    }

    /// Drop what was reserved since.
    pub(crate) fn cut(&self, mark: usize) {
        self.top.set(mark as u64);
    }

    /// Reserve words at the end, which is there, for the user in this slot. Nobody looks for them before the frame is settled.
    pub(crate) fn reserve(&self, end: usize, owner: usize, words: usize) -> Option<Data<'_>> {
        if words == 0 || words > MOST_DATA {
            return None;
        }
        let (header, data) = self.words.get(end..end + 1 + words)?.split_first()?;
        self.top.set((end + 1 + words) as u64);
        header.set((owner << OWNER | words) as u64);
        // What the last owner of this memory left is nobody's to read.
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

    /// The frame of the function whose return address lay at `retp`, or else the latest. Frames above it are dropped: their
    /// functions were left by a jump.
    #[cold]
    pub(crate) fn unwind_to(&self, retp: u64) -> Option<Frame<'_>> {
        let frame = self.frames().find(|f| f.retp() == retp).or_else(|| self.top_frame())?;
        self.drop_above(frame.start);
        Some(frame)
    }

    /// Is the frame that begins there the latest? Those above it, when a handler is done, were left by a jump.
    pub(crate) fn is_latest(&self, start: usize) -> bool {
        self.frame.index() == start
    }

    /// Drop the frames above the one that begins there.
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
    /// Where the next older frame begins.
    fn older(self) -> usize {
        (self.0 & ((1 << USERS) - 1)) as usize
    }

    /// The slots of those who want the return, a bit each.
    pub(crate) fn users(self) -> u64 {
        self.0 >> USERS & ((1 << GRAPH_USERS) - 1)
    }

    /// No less than the ids of those who were there at the entry, and less than later ones, which may be in their slots.
    pub(crate) fn latest(self) -> u64 {
        self.0
    }
}

/// A frame of the shadow stack, with what users reserved in it behind.
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

    /// Where the return address lay.
    pub(crate) fn retp(&self) -> u64 {
        self.head[2].get()
    }

    /// Who wants the return.
    pub(crate) fn link(&self) -> Link {
        Link(self.head[3].get())
    }

    /// What users reserved.
    pub(crate) fn reserved(&self) -> Reserved<'t> {
        Reserved(self.reserved)
    }
}

/// What users reserved in a frame, in the order of their slots.
pub(crate) struct Reserved<'t>(&'t [Word]);

impl<'t> Reserved<'t> {
    /// What the user in this slot reserved. That and what is before it are passed over for good.
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
