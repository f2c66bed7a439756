//! What a thread has of its own: the shadow stack, the recursion guard, pending kretprobes.

use crate::users::{epoch, slot};
use crate::word::{Data, Word};

/// Users of the function graph.
pub const GRAPH_USERS: usize = 16;
/// Words of a shadow stack.
const WORDS: usize = 512 - GRAPH_USERS;
/// Words of a frame: return address, function, where the return address lay, and the reference word that ends it.
pub(crate) const FRAME: usize = 4;
/// The most words that one user can reserve in a frame.
const MOST_DATA: usize = 32;

/// Contexts that nest on one thread: ordinary, soft interrupt or signal, interrupt, NMI.
const CONTEXTS: u64 = 4;

/// The low ten bits of a reference word: how many words below it the frame begins.
const DISTANCE: u64 = 0x3ff;
const KIND: u64 = 3 << 10;
const FRAME_END: u64 = 1 << 10;
const DATA: u64 = 2 << 10;
/// In the reference word of a frame: a bit for each user who wants the return, and the registration count at entry.
const USERS: u32 = 12;
const EPOCH: u32 = USERS + GRAPH_USERS as u32;
/// In the reference word of data: how many words they are with it, and the owner's slot.
const LENGTH: u32 = 12;
const OWNER: u32 = 18;
/// What tells that a word is such a one, and whose.
const WHOSE: u64 = 15 << OWNER | KIND;

/// What a frame of so many words, with its own, is in the reference word of data that are reserved behind it.
pub(crate) const fn reference(owner: usize, frame: usize) -> u64 {
    (owner as u64) << OWNER | DATA | frame as u64
}

/// The length in such a word.
pub(crate) const fn length(reference: u64) -> usize {
    (reference & DISTANCE) as usize
}

/// A thread. Other threads never look inside; interrupts and signals on this one may, between any two stores.
// Counts come first: their offsets have a byte in instructions then.
#[derive(Debug)]
#[repr(C)]
pub struct Task {
    top: Word,
    /// How many hooked functions are active.
    depth: Word,
    overrun: Word,
    unwound: Word,
    guard: Word,
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

/// The recursion guard of a context, held until dropped, and what the word was before: who interrupts has let go again by then.
pub(crate) struct Guard<'t>(&'t Task, u64);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.guard.set(self.1);
    }
}

impl Task {
    /// A thread that runs no traced function.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            words: [const { Word::new(0) }; WORDS],
            top: Word::new(0),
            depth: Word::new(0),
            overrun: Word::new(0),
            unwound: Word::new(0),
            guard: Word::new(0),
            context: Word::new(0),
            vars: [const { Word::new(0) }; GRAPH_USERS],
            owners: [const { Word::new(0) }; GRAPH_USERS],
            pending: Word::new(0),
        }
    }

    /// Everything but the words of the stack is as in a new one.
    pub(crate) fn reset(&self) {
        let counts = [&self.top, &self.depth, &self.overrun, &self.unwound, &self.guard, &self.context, &self.pending];
        counts.into_iter().chain(&self.owners).for_each(|word| word.set(0));
    }

    /// Say in which context the thread is now: 0 ordinary, up to 3. Returns the one before.
    pub fn enter_context(&self, context: u64) -> u64 {
        let before = self.context.get();
        self.context.set(context.min(CONTEXTS - 1));
        before
    }

    /// Take the guard of this context, or find that one of its handlers is running.
    pub(crate) fn lock(&self) -> Option<Guard<'_>> {
        let bit = 1 << self.context.get();
        let held = self.guard.get();
        (held & bit == 0).then(|| {
            self.guard.set(held | bit);
            Guard(self, held)
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
        self.top.get() == 0 && self.depth.get() == 0 && self.pending.get() == 0 && self.guard.get() == 0
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
    fn frame_at(&self, start: usize) -> Option<&[Word; FRAME]> {
        self.words.get(start..)?.first_chunk()
    }

    /// Push a frame, or count that there is no room. Between any two stores an interrupt may push and pop above `top`, so the
    /// reference word is stored before and after `top` moves, and the rest after.
    pub(crate) fn push(&self, ret: u64, func: u64, retp: u64) -> Option<usize> {
        let start = self.top.index();
        let Some([at, own, place, end]) = self.frame_at(start) else {
            self.overrun.add(1);
            return None;
        };
        let reference = FRAME as u64 - 1;
        end.set(reference);
        self.top.set((start + FRAME) as u64);
        end.set(reference);
        at.set(ret);
        own.set(func);
        place.set(retp);
        self.depth.set(self.depth.get() + 1);
        Some(start)
    }

    /// Say who wants the return from the frame at `start`, of those who were registered then.
    pub(crate) fn settle(&self, start: usize, users: u64, now: u64) {
        let Some([.., end]) = self.frame_at(start) else { return };
        end.set(now << EPOCH | users << USERS | FRAME_END | (FRAME as u64 - 1));
    }

    /// Take the frame at `start` away, and what lies above.
    pub(crate) fn pop(&self, start: usize) {
        self.top.set(start as u64);
        self.depth.set(self.depth.get().saturating_sub(1));
    }

    /// Where the stack ends now, to cut it back to.
    pub(crate) fn mark(&self) -> usize {
        self.top.index()
    }

    /// Drop what was reserved since.
    pub(crate) fn cut(&self, mark: usize) {
        self.top.set(mark as u64);
    }

    /// Reserve words behind the top frame, which ends at `start`.
    pub(crate) fn reserve(&self, start: usize, reference: u64, words: usize) -> Option<Data<'_>> {
        if words == 0 || words > MOST_DATA {
            return None;
        }
        let (end, data) = self.words.get(start..start + words + 1)?.split_last()?;
        let reference = reference + ((words as u64 + 1) << LENGTH | words as u64);
        end.set(reference);
        self.top.set((start + words + 1) as u64);
        end.set(reference);
        // What the last owner of this memory left is nobody's to read.
        data.iter().for_each(|w| w.set(0));
        Some(Data(data))
    }

    fn frame_below(&self, end: usize) -> Option<Frame<'_>> {
        let last = end.checked_sub(1)?;
        let start = last.checked_sub((self.words.get(last)?.get() & DISTANCE) as usize)?;
        let (head, data) = self.words.get(start..end)?.split_first_chunk()?;
        Some(Frame { head, data, start })
    }

    /// The latest frame.
    pub(crate) fn top_frame(&self) -> Option<Frame<'_>> {
        self.frame_below(self.top.index())
    }

    /// The frames, the latest first.
    pub(crate) fn frames(&self) -> impl Iterator<Item = Frame<'_>> {
        let mut end = self.top.index();
        core::iter::from_fn(move || {
            let frame = self.frame_below(end)?;
            end = frame.start;
            Some(frame)
        })
    }

    /// The frame of the function whose return address lay at `retp`, or else the latest. Frames above it are dropped: their
    /// functions were left by a jump.
    #[cold]
    pub(crate) fn unwind_to(&self, retp: u64) -> Option<Frame<'_>> {
        let frame = self.frames().find(|f| f.retp() == retp).or_else(|| self.top_frame())?;
        let lost = self.frames().take_while(|f| f.start > frame.start).count() as u64;
        if lost > 0 {
            self.unwound.add(lost);
            self.depth.set(self.depth.get().saturating_sub(lost));
            self.top.set((frame.start + FRAME + frame.data.len()) as u64);
        }
        Some(frame)
    }
}

/// What the reference word of a frame says of users.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted(u64);

impl Wanted {
    /// The slots of those who want the return, a bit each.
    pub(crate) fn slots(self) -> u64 {
        self.0 >> USERS & ((1 << GRAPH_USERS) - 1)
    }

    /// Was the user of this id there at entry, so that it is not another one in its slot?
    pub(crate) fn knows(self, id: u64) -> bool {
        // The count has 36 bits here: it comes around after 68,000 million registrations.
        epoch(id) << EPOCH <= self.0
    }
}

/// A frame of the shadow stack, with the data behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'t> {
    head: &'t [Word; FRAME],
    data: &'t [Word],
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
    pub(crate) fn wanted(&self) -> Wanted {
        Wanted(self.head[3].get())
    }

    /// What the user in `owner` reserved.
    pub(crate) fn data(&self, owner: usize) -> Option<Data<'t>> {
        let mut rest = self.data;
        while let Some(reference) = rest.last() {
            let reference = reference.get();
            let words = (reference >> LENGTH & 63) as usize;
            let (others, data) = rest.split_at_checked(rest.len().checked_sub(words)?)?;
            let (_, data) = data.split_last()?;
            if reference & WHOSE == (owner as u64) << OWNER | DATA {
                return Some(Data(data));
            }
            if reference & KIND != DATA {
                return None;
            }
            rest = others;
        }
        None
    }
}
