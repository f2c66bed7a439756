//! The memory that traced processes and this one share: a table of buffers, and the buffers. `session/preload/protocol.h` has the same
//! in C.
//!
//! This is the one place of the crate with unsafe code: the memory is mapped here, and changes while it is read. So all of it is
//! read and written as atomic words.
#![allow(unsafe_code, reason = "memory that other processes write to has no other access")]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::thread::futex;

use crate::protocol::{MAGIC, Moment};

/// Bytes of records in a buffer. The last record may reach 64 bytes further.
pub const BUFFER: usize = 1 << 16;
const FIRST: usize = 2 * BUFFER;
const TABLE: usize = 4096;
const ENTRY: usize = 40;

/// The reaction if no buffer is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The program waits.
    Block,
    /// The record is lost, and counted.
    Drop,
    /// A thread overwrites its own oldest buffer: it has so many.
    Flight(u32),
}

/// The state of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Nobody's.
    Free,
    /// A thread writes to it. In a flight recorder, the thread may have ended.
    Taken,
    /// A thread has filled it.
    Full,
}

/// Whose a buffer is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Owner {
    /// The process; 0 while a thread takes it.
    pub pid: u32,
    /// The thread; of a coroutine, [`Owner::COROUTINES`] and its number.
    pub tid: u32,
    /// Of the thread's buffers, in the order in which it took them, from 0 on.
    pub serial: u32,
}

impl Owner {
    /// More than the number of any thread: Linux has 22 bits for them.
    pub const COROUTINES: u32 = 1 << 22;
}

/// The words at the beginning of the pool, by their number.
#[derive(Clone, Copy)]
enum Word {
    Magic,
    Buffers,
    Mode,
    Tool,
    Ring,
    Full,
    Sleeping,
    Freed,
    Waiting,
    Stopped,
}

/// Where the counts of what was lost are, as numbers of words of 8 bytes.
const LOST: usize = 6;
const UNTRACED: usize = 7;

/// The memory, mapped.
pub struct Pool {
    file: OwnedFd,
    at: *mut u8,
    bytes: usize,
    buffers: usize,
}

// SAFETY: all access is by atomic words of memory that is never unmapped.
unsafe impl Send for Pool {}
// SAFETY: the same.
unsafe impl Sync for Pool {}

impl Pool {
    /// The most buffers that a pool may have.
    pub const MOST: usize = (FIRST - TABLE) / ENTRY;

    /// A pool of so many buffers, at least 1 and at most [`Pool::MOST`].
    ///
    /// # Errors
    /// The system gives no memory.
    pub fn new(buffers: usize, mode: Mode) -> io::Result<Pool> {
        let buffers = buffers.clamp(1, Pool::MOST);
        let bytes = FIRST + buffers * 2 * BUFFER;
        let file = memfd_create("tramptool-trace", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, bytes as u64)?;
        // SAFETY: the kernel chooses the place, so that nothing else is there.
        let at = unsafe {
            mmap(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)?.cast::<u8>()
        };
        let pool = Pool { file, at, bytes, buffers };
        let (number, ring) = match mode {
            Mode::Block => (0, 0),
            Mode::Drop => (1, 0),
            Mode::Flight(ring) => (2, ring),
        };
        pool.word(Word::Buffers).store(buffers as u32, Ordering::SeqCst);
        pool.word(Word::Mode).store(number, Ordering::SeqCst);
        pool.word(Word::Ring).store(ring, Ordering::SeqCst);
        pool.word(Word::Tool).store(std::process::id(), Ordering::SeqCst);
        pool.word(Word::Magic).store(MAGIC, Ordering::SeqCst);
        Ok(pool)
    }

    /// The file, for another process to map.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// The number of buffers.
    pub fn buffers(&self) -> usize {
        self.buffers
    }

    fn words32(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.bytes, "inside the pool");
        // SAFETY: inside the mapping, which lives as long as this does, and aligned.
        unsafe { AtomicU32::from_ptr(self.at.add(at).cast()) }
    }

    fn words64(&self, at: usize, count: usize) -> &[AtomicU64] {
        assert!(at.is_multiple_of(8) && at + 8 * count <= self.bytes, "inside the pool");
        // SAFETY: inside the mapping, which lives as long as this does, and aligned; AtomicU64 has the layout of u64.
        unsafe { std::slice::from_raw_parts(self.at.add(at).cast(), count) }
    }

    fn word(&self, word: Word) -> &AtomicU32 {
        self.words32(4 * word as usize)
    }

    fn entry(&self, buffer: usize, word: usize) -> &AtomicU32 {
        self.words32(TABLE + ENTRY * buffer + 4 * word)
    }

    /// What a buffer is. A process that writes something else there has taken it.
    pub fn state(&self, buffer: usize) -> State {
        match self.entry(buffer, 0).load(Ordering::Acquire) {
            0 => State::Free,
            2 => State::Full,
            _ => State::Taken,
        }
    }

    /// Whose it is, or was.
    pub fn owner(&self, buffer: usize) -> Owner {
        let word = |n| self.entry(buffer, n).load(Ordering::Relaxed);
        let pid = self.entry(buffer, 1).load(Ordering::Acquire);
        let tid = if word(8) == 0 { word(2) } else { Owner::COROUTINES.saturating_add(word(8)) };
        Owner { pid, tid, serial: word(3) }
    }

    /// The thread that writes to it.
    pub fn thread(&self, buffer: usize) -> u32 {
        self.entry(buffer, 2).load(Ordering::Relaxed)
    }

    /// When it was taken.
    pub fn taken(&self, buffer: usize) -> Moment {
        let words = self.words64(TABLE + ENTRY * buffer + 16, 2);
        let word = |n: usize| words[n].load(Ordering::Relaxed);
        Moment { ticks: word(0), monotonic: word(1) }
    }

    /// The words of a buffer as they are now, into `words`. Each pair of them is told to `see`, so that nobody has to read them again.
    pub fn copy(&self, buffer: usize, words: &mut Vec<u64>, mut see: impl FnMut([u64; 2])) {
        let all = self.words64(FIRST + buffer * 2 * BUFFER, (BUFFER + 64) / 8);
        words.resize(all.len(), 0);
        for (to, from) in words.as_chunks_mut().0.iter_mut().zip(all.as_chunks().0) {
            let [first, second] = from;
            *to = [first.load(Ordering::Relaxed), second.load(Ordering::Relaxed)];
            see(*to);
        }
    }

    /// Give a buffer back, and tell whoever waits for one.
    pub fn give_back(&self, buffer: usize) {
        // Whoever takes it puts its number there last, so that nobody takes it for that of its last owner.
        self.entry(buffer, 1).store(0, Ordering::Relaxed);
        self.entry(buffer, 0).store(0, Ordering::Release);
        self.word(Word::Freed).fetch_add(1, Ordering::SeqCst);
        if self.word(Word::Waiting).load(Ordering::SeqCst) > 0 {
            // Nobody to wake is no failure.
            let _ = futex::wake(self.word(Word::Freed), futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// Does a thread wait for a buffer?
    pub fn starved(&self) -> bool {
        self.word(Word::Waiting).load(Ordering::SeqCst) > 0
    }

    /// The number of buffers that were ever handed in.
    pub fn handed_in(&self) -> u32 {
        self.word(Word::Full).load(Ordering::SeqCst)
    }

    /// Wait until more than `seen` were, or for that time.
    pub fn wait(&self, seen: u32, most: Duration) {
        self.word(Word::Sleeping).store(1, Ordering::SeqCst);
        let most = rustix::time::Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
        // Whatever ends it, the caller looks again.
        let _ = futex::wait(self.word(Word::Full), futex::Flags::empty(), seen, Some(&most));
        self.word(Word::Sleeping).store(0, Ordering::SeqCst);
    }

    /// Let [`Pool::wait`] end.
    pub fn wake(&self) {
        self.word(Word::Full).fetch_add(1, Ordering::SeqCst);
        let _ = futex::wake(self.word(Word::Full), futex::Flags::empty(), i32::MAX as u32);
    }

    /// From now on, nobody reads what is recorded.
    pub fn stop(&self) {
        self.word(Word::Stopped).store(1, Ordering::SeqCst);
        let _ = futex::wake(self.word(Word::Freed), futex::Flags::empty(), i32::MAX as u32);
    }

    /// Is it so already? A process may say it too.
    pub fn stopped(&self) -> bool {
        self.word(Word::Stopped).load(Ordering::SeqCst) != 0
    }

    /// Records that found no room, and threads that got no shadow stack.
    pub fn lost(&self) -> (u64, u64) {
        let words = self.words64(0, UNTRACED + 1);
        (words[LOST].load(Ordering::Relaxed), words[UNTRACED].load(Ordering::Relaxed))
    }
}

/// A file in memory with these parts, each at its offset, for a process to map.
///
/// # Errors
/// The system gives no memory.
pub fn file_of(parts: &[(u64, Vec<u8>)]) -> io::Result<OwnedFd> {
    let file = File::from(memfd_create("tramptool-trampolines", MemfdFlags::CLOEXEC)?);
    parts.iter().try_for_each(|(at, bytes)| file.write_all_at(bytes, *at))?;
    Ok(file.into())
}
