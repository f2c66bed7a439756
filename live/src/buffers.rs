//! Records of what threads do, in memory of each.
#![allow(unsafe_code, reason = "a thread's memory is mapped when it calls for the first time, in a signal handler too")]

use std::cell::Cell;
use std::mem::size_of;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::time::{ClockId, clock_gettime};

use crate::calls::{has_ended, this_thread};

/// The event that a record is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A call begins.
    Entry,
    /// The function returns.
    Return,
}

/// An event in a thread, with its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// The thread, as the kernel counts them.
    pub thread: u32,
    /// Which of the functions that [`crate::Live::record`] was given.
    pub function: u32,
    /// The event.
    pub event: Event,
}

/// The buffers of a recorder: one for each thread that has called.
pub(crate) struct Buffers {
    number: usize,
    /// Records in each.
    room: u64,
    first: AtomicPtr<Buffer>,
    dropped: AtomicU64,
}

static NEXT: AtomicUsize = AtomicUsize::new(0);

/// A ring that one thread writes and one reads; its records, two words each, lie behind it.
#[repr(C)]
struct Buffer {
    owner: AtomicU32,
    pid: u32,
    next: *mut Buffer,
    written: AtomicU64,
    taken: AtomicU64,
}

/// The number of recorders whose buffers a thread can find at once, without a search.
const NEAR: usize = 4;

thread_local! {
    /// The last buffers of this thread, and the recorders, by whose numbers they are found.
    static LAST: [Cell<(*const Buffers, *const Buffer)>; NEAR] =
        const { [const { Cell::new((ptr::null(), ptr::null())) }; NEAR] };
}

/// In the child of `fork`: the buffers are those of the parent's thread.
pub(crate) fn forget() {
    LAST.with(|last| last.iter().for_each(|last| last.set((ptr::null(), ptr::null()))));
}

impl Buffers {
    /// Those of a new recorder, for ever: trampolines may still use them when it is gone.
    pub(crate) fn new(room: usize) -> &'static Buffers {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (first, dropped) = (AtomicPtr::new(ptr::null_mut()), AtomicU64::new(0));
        Box::leak(Box::new(Buffers { number, room: room as u64, first, dropped }))
    }

    /// The number of records for which there was no room.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Record what this thread does.
    pub(crate) fn put(&self, function: u32, event: Event) {
        let now = clock_gettime(ClockId::Monotonic);
        let time = now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned();
        let Some(buffer) = self.buffer() else { return self.drop_one() };
        let (n, taken) = (buffer.written.load(Ordering::Relaxed), buffer.taken.load(Ordering::Acquire));
        if n - taken >= self.room {
            return self.drop_one();
        }
        let what = u64::from(buffer.owner.load(Ordering::Relaxed)) << 32 | u64::from(function) << 1;
        let [at_time, at_what] = self.words(buffer, n);
        at_time.store(time, Ordering::Relaxed);
        at_what.store(what | u64::from(event == Event::Return), Ordering::Relaxed);
        buffer.written.store(n + 1, Ordering::Release);
    }

    fn drop_one(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// The words of a record. There is room for one.
    fn words<'a>(&self, buffer: &'a Buffer, n: u64) -> [&'a AtomicU64; 2] {
        let at = (n % self.room) as usize * 2;
        // SAFETY: so many words lie behind the buffer, and both sides use them as atomic ones.
        unsafe {
            let words = ptr::from_ref(buffer).add(1).cast::<AtomicU64>();
            [&*words.add(at), &*words.add(at + 1)]
        }
    }

    fn all(&self) -> impl Iterator<Item = &'static Buffer> {
        // SAFETY: what is in the list is there for ever.
        let at = |buffer: *mut Buffer| unsafe { buffer.as_ref() };
        let pid = std::process::id();
        let all = std::iter::successors(at(self.first.load(Ordering::Acquire)), move |buffer| at(buffer.next));
        all.filter(move |buffer| buffer.pid == pid)
    }

    /// That of this thread. No handler of a signal comes in between: whoever is here is not reported.
    fn buffer(&self) -> Option<&'static Buffer> {
        LAST.with(|last| {
            let last = last.get(self.number % NEAR)?;
            if let (buffers, buffer) = last.get()
                && ptr::eq(buffers, self)
            {
                // SAFETY: nothing unmaps it.
                return unsafe { buffer.as_ref() };
            }
            let this = this_thread();
            let own = || self.all().find(|buffer| buffer.owner.load(Ordering::Relaxed) == this);
            let buffer = own().or_else(|| self.left(this)).or_else(|| self.mapped(this))?;
            last.set((self, buffer));
            Some(buffer)
        })
    }

    /// One whose thread has ended, and of which all was taken.
    fn left(&self, this: u32) -> Option<&'static Buffer> {
        self.all().find(|buffer| {
            let owner = buffer.owner.load(Ordering::Acquire);
            let empty = buffer.written.load(Ordering::Acquire) == buffer.taken.load(Ordering::Acquire);
            let swap = || buffer.owner.compare_exchange(owner, this, Ordering::AcqRel, Ordering::Relaxed).is_ok();
            empty && has_ended(owner) && swap()
        })
    }

    fn mapped(&self, this: u32) -> Option<&'static Buffer> {
        let words = usize::try_from(self.room).ok()?.checked_mul(2 * size_of::<u64>())?;
        let (size, flags) = (words.checked_add(size_of::<Buffer>())?, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping.
        let at = unsafe { mmap_anonymous(ptr::null_mut(), size, ProtFlags::READ | ProtFlags::WRITE, flags) }.ok()?;
        let buffer = at.cast::<Buffer>();
        let mut next = self.first.load(Ordering::Acquire);
        loop {
            let [written, taken] = [const { AtomicU64::new(0) }; 2];
            let made = Buffer { owner: AtomicU32::new(this), pid: std::process::id(), next, written, taken };
            // SAFETY: nobody else knows the memory before it is in the list.
            unsafe { buffer.write(made) };
            match self.first.compare_exchange(next, buffer, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: nothing unmaps it.
                Ok(_) => return unsafe { buffer.as_ref() },
                Err(now) => next = now,
            }
        }
    }

    /// Take at most so many. One thread does at a time.
    pub(crate) fn take(&self, most: usize) -> Vec<Record> {
        let mut records = Vec::new();
        for buffer in self.all() {
            let (from, end) = (buffer.taken.load(Ordering::Relaxed), buffer.written.load(Ordering::Acquire));
            let end = end.min(from.saturating_add((most - records.len()) as u64));
            records.extend((from..end).map(|n| {
                let [time, what] = self.words(buffer, n).map(|word| word.load(Ordering::Relaxed));
                let event = if what & 1 == 0 { Event::Entry } else { Event::Return };
                Record { time, thread: (what >> 32) as u32, function: what as u32 >> 1, event }
            }));
            buffer.taken.store(end, Ordering::Release);
        }
        records
    }
}
