//! What a thread has of its own: the shadow stack, the recursion guard, pending kretprobes.

use core::ops::Range;

use crate::users::{epoch, slot};
use crate::word::{Data, Word};

/// Users of the function graph.
pub const GRAPH_USERS: usize = 16;
/// Words of a shadow stack.
const WORDS: usize = 512 - GRAPH_USERS;
/// Words of a frame: return address, function, where the return address lay, and the reference word that ends it.
const FRAME: usize = 4;
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
/// In the reference word of data: length less one, and the owner's slot.
const LENGTH: u32 = 12;
const OWNER: u32 = 17;

/// A thread. Other threads never look inside; interrupts and signals on this one may, between any two stores.
#[derive(Debug)]
pub struct Task {
    words: [Word; WORDS],
    top: Word,
    /// How many hooked functions are active.
    depth: Word,
    overrun: Word,
    unwound: Word,
    guard: Word,
    context: Word,
    vars: [Word; GRAPH_USERS],
    owners: [Word; GRAPH_USERS],
    /// The latest pending kretprobe, as an index into the pool and one; 0 is none.
    pub(crate) pending: Word,
}

impl Default for Task {
    fn default() -> Self {
        Self::new()
    }
}

/// The recursion guard of a context, held until dropped.
pub(crate) struct Guard<'t>(&'t Task, u64);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.guard.set(self.0.guard.get() & !self.1);
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
            Guard(self, bit)
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

    /// Push a frame, or count that there is no room. Between any two stores an interrupt may push and pop above `top`, so the
    /// reference word is stored before and after `top` moves, and the rest after.
    pub(crate) fn push(&self, ret: u64, func: u64, retp: u64) -> Option<usize> {
        let start = self.top.index();
        if start + FRAME > WORDS {
            self.overrun.add(1);
            return None;
        }
        let reference = FRAME as u64 - 1;
        self.words[start + 3].set(reference);
        self.top.set((start + FRAME) as u64);
        self.words[start + 3].set(reference);
        self.words[start].set(ret);
        self.words[start + 1].set(func);
        self.words[start + 2].set(retp);
        self.depth.set(self.depth.get() + 1);
        Some(start)
    }

    /// Say who wants the return from the frame at `start`, of those who were registered then.
    pub(crate) fn settle(&self, start: usize, users: u64, now: u64) {
        self.words[start + 3].set(now << EPOCH | users << USERS | FRAME_END | (FRAME as u64 - 1));
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

    /// Reserve words behind the top frame, which lies there, for the user in `owner`.
    pub(crate) fn reserve(&self, frame: Range<usize>, owner: usize, words: usize) -> Option<Data<'_>> {
        let start = frame.end;
        if words == 0 || words > MOST_DATA || start + words + 1 > WORDS {
            return None;
        }
        let distance = (frame.len() + words) as u64;
        let reference = (owner as u64) << OWNER | (words as u64 - 1) << LENGTH | DATA | distance;
        let (data, end) = (&self.words[start..start + words], &self.words[start + words]);
        end.set(reference);
        self.top.set((start + words + 1) as u64);
        end.set(reference);
        // What the last owner of this memory left is nobody's to read.
        data.iter().for_each(|w| w.set(0));
        Some(Data(data))
    }

    /// The frames, the latest first.
    pub(crate) fn frames(&self) -> impl Iterator<Item = Frame<'_>> {
        let mut end = self.top.index();
        core::iter::from_fn(move || {
            let last = self.words.get(end.checked_sub(1)?)?.get();
            let start = (end - 1).checked_sub((last & DISTANCE) as usize)?;
            let frame = Frame { words: &self.words[start..end], start };
            end = start;
            Some(frame)
        })
    }

    /// Drop the frames above `start`: their functions were left without returning.
    pub(crate) fn unwind_to(&self, frame: &Frame) {
        let lost = self.frames().take_while(|f| f.start > frame.start).count() as u64;
        if lost > 0 {
            self.unwound.add(lost);
            self.depth.set(self.depth.get().saturating_sub(lost));
            self.top.set((frame.start + frame.words.len()) as u64);
        }
    }
}

/// A frame of the shadow stack, with the data behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'t> {
    words: &'t [Word],
    pub(crate) start: usize,
}

impl<'t> Frame<'t> {
    /// The address that the function returns to.
    pub(crate) fn ret(&self) -> u64 {
        self.words[0].get()
    }

    /// The function.
    pub(crate) fn func(&self) -> u64 {
        self.words[1].get()
    }

    /// Where the return address lay.
    pub(crate) fn retp(&self) -> u64 {
        self.words[2].get()
    }

    /// Was the user of this id there at entry, and did it want the return?
    pub(crate) fn is_for(&self, id: u64) -> bool {
        let reference = self.words[3].get();
        // The count has 36 bits here: it comes around after 68,000 million registrations.
        let mask = u64::MAX >> EPOCH;
        reference >> USERS >> slot(id) & 1 == 1 && epoch(id) & mask <= reference >> EPOCH
    }

    /// What the user in `owner` reserved.
    pub(crate) fn data(&self, owner: usize) -> Option<Data<'t>> {
        let mut end = self.words.len();
        while end > FRAME {
            let reference = self.words[end - 1].get();
            let words = (reference >> LENGTH & 31) as usize + 1;
            if reference & KIND != DATA || end < FRAME + words + 1 {
                return None;
            }
            if (reference >> OWNER & 15) as usize == owner {
                return Some(Data(&self.words[end - 1 - words..end - 1]));
            }
            end -= words + 1;
        }
        None
    }
}
