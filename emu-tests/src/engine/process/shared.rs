//! Memory that this process and an engine's share: that of the guest, and messages between the two. `shared.h` has the same layout.

use std::cell::Cell;
use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use codegen::words::error::{Error, Result};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::futex::{Flags, Timespec, wait, wake};

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Judge,
    Cpu,
}
/// What a message has room for.
pub(super) const RANGES: usize = 64;
const REGISTERS: usize = 1024;
/// In the number of a register: a mask says which of its bits are to be set.
pub(super) const MASKED: u32 = 1 << 16;
const NAME: usize = 24;
pub(super) const BATCH: usize = 128;
pub(super) const DATA: usize = 1 << 16;
pub(super) const PASSES: usize = 128;
/// How often it is looked whether it is our turn, with any other thread that wants this CPU in between, before this thread sleeps.
const YIELDS: u32 = 2_000;

/// The value of little-endian bytes.
pub(super) fn word(bytes: &[Cell<u8>]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(byte.get()))
}

/// What the CPU says when the turn comes to the judge. `shared.h` has the same numbers, in this order from 1 on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Said {
    /// It waits.
    Parked,
    /// It is before an instruction.
    Instruction,
    /// It has loaded or stored.
    Access,
    /// An exception came.
    Trapped,
    /// The run has come to its end: the address, the number of instructions, or what a hook on an access wanted.
    Ended,
}

impl Said {
    pub const ALL: [Said; 5] = [Said::Parked, Said::Instruction, Said::Access, Said::Trapped, Said::Ended];
}

/// How the CPU goes on with its turn. `shared.h` has the same numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Told {
    /// As it would.
    GoOn = 4,
    /// From `Message::from` on.
    Go = 5,
    /// To where it waits.
    Stop = 6,
    /// A run begins there.
    Run = 7,
    /// A run that went to wait goes on there.
    Back = 8,
}

impl Told {
    pub const ALL: [Told; 5] = [Told::GoOn, Told::Go, Told::Stop, Told::Run, Told::Back];
}

/// What is done without giving the CPU its turn. `shared.h` has the same numbers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    /// Read registers.
    Read = 1,
    /// Set registers.
    Write = 2,
    /// Write code.
    Code = 3,
    /// Of Bochs's guest: leave all registers in memory.
    All = 9,
    /// Of Bochs: become two.
    Fork = 10,
}

/// Addresses that the judge wants to be asked about: their first, their last, whether stores count, whether loads do.
#[repr(C)]
pub(super) struct Range(pub [Cell<u64>; 4]);

impl Range {
    fn has(&self, at: u64) -> bool {
        let [first, last, ..] = &self.0;
        (first.get()..=last.get()).contains(&at)
    }
}

/// The message. Whoever does not have the turn leaves all of it alone.
#[repr(C)]
pub(super) struct Message {
    turn: AtomicU32,
    /// Who does not have the turn sleeps, and is to be woken.
    sleeps: [AtomicU32; 2],
    /// How many registers are in the lists.
    pub count: Cell<u32>,
    pub what: Cell<u64>,
    pub pc: Cell<u64>,
    pub bytes: Cell<u32>,
    pub first_of_block: Cell<u32>,
    /// Instructions of which the judge may be told late, and those of which it is.
    pub most_late: Cell<u32>,
    pub passed: Cell<u32>,
    pub from: Cell<u64>,
    pub ok: Cell<u64>,
    pub at: Cell<u64>,
    pub is_write: Cell<u64>,
    /// Where it may be told late: first address, end, and one that is the last of them. And of what it is.
    pub late_first: Cell<u64>,
    pub late_end: Cell<u64>,
    pub late_last: Cell<u64>,
    pub passes: [Cell<u64>; PASSES],
    /// The process that the engine's ends with.
    pub judge: Cell<u64>,
    /// The engine's size of the message.
    pub bytes_of_this: Cell<u64>,
    /// Whether the process has given up its rights, and that it is to: `shared.h` says how.
    pub walled: Cell<u64>,
    pub registers: Cell<u64>,
    pub park: Cell<u64>,
    pub stub: Cell<u64>,
    pub trap: Cell<u64>,
    pub ram: Cell<u64>,
    pub tables: Cell<u64>,
    pub until: Cell<u64>,
    pub budget: Cell<u64>,
    pub instructions: Cell<u64>,
    pub accesses: Cell<u64>,
    pub blocks: Cell<u64>,
    pub instruction: [Range; RANGES],
    pub access: [Range; RANGES],
    pub ids: [Cell<u32>; BATCH],
    pub sizes: [Cell<u32>; BATCH],
    names: [[Cell<u8>; NAME]; REGISTERS],
    pub data: [Cell<u8>; DATA],
}

impl Message {
    /// Bytes of it.
    pub const SIZE: usize = size_of::<Message>().next_multiple_of(4096);

    /// Say what registers are called, by number.
    pub fn set_names<'n>(&self, names: impl Iterator<Item = &'n str>) {
        for (to, name) in self.names.iter().zip(names) {
            to.iter().take(NAME - 1).zip(name.bytes()).for_each(|(to, byte)| to.set(byte));
            self.registers.set(self.registers.get() + 1);
        }
    }

    /// May the judge be told of this instruction late? Then it is noted.
    pub fn passes(&self, pc: u64) -> bool {
        let next = self.passed.get();
        let is_late = (self.late_first.get()..self.late_end.get()).contains(&pc) && next < self.most_late.get();
        let Some(to) = self.passes.get(next as usize).filter(|_| is_late) else { return false };
        to.set(pc);
        self.passed.set(next + 1);
        if pc == self.late_last.get() {
            self.most_late.set(0);
        }
        true
    }

    /// Does the judge want to be asked about this instruction?
    pub fn asks_about(&self, pc: u64) -> bool {
        self.instruction.iter().take(self.instructions.get() as usize).any(|range| range.has(pc))
    }

    /// QEMU's names of registers, by number.
    pub fn names(&self) -> Vec<String> {
        let name = |name: &[Cell<u8>; NAME]| {
            let bytes: Vec<u8> = name.iter().map(Cell::get).take_while(|byte| *byte != 0).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        self.names.iter().take(self.registers.get() as usize).map(name).collect()
    }

    /// It is the CPU's turn from the beginning on: it has a message when it waits.
    pub fn begin(&self) {
        self.ok.set(1);
        self.turn.store(Side::Cpu as u32, Ordering::SeqCst);
    }

    /// Let one have its turn.
    pub fn give(&self, to: Side) {
        self.turn.store(to as u32, Ordering::SeqCst);
        if self.sleeps[to as usize].load(Ordering::SeqCst) != 0 {
            // It may have been woken already.
            let _ = wake(&self.turn, Flags::empty(), 1);
        }
    }

    /// Wait for one's own, at most about so long: has it come?
    pub fn wait(&self, own: Side, most: Duration) -> bool {
        let others = 1 - own as u32;
        for _ in 0..YIELDS {
            if self.turn.load(Ordering::SeqCst) != others {
                return true;
            }
            std::thread::yield_now();
        }
        let most = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: i64::from(most.subsec_nanos()) };
        let sleeps = &self.sleeps[own as usize];
        sleeps.store(1, Ordering::SeqCst);
        // It is looked again, whatever ended the sleep.
        let _ = wait(&self.turn, Flags::empty(), others, Some(&most));
        sleeps.store(0, Ordering::SeqCst);
        self.turn.load(Ordering::SeqCst) != others
    }
}

/// Memory of both processes.
pub(super) struct Shared {
    at: NonNull<c_void>,
    size: usize,
}

impl Shared {
    /// New memory of zeros, and the file that it is.
    ///
    /// # Errors
    /// The system has no such memory.
    pub fn new(name: &str, size: usize) -> Result<(OwnedFd, Shared)> {
        let failed = |e: rustix::io::Errno| Error::new(format!("emulator: memory for an engine: {e}"));
        let file = memfd_create(name, MemfdFlags::CLOEXEC).map_err(failed)?;
        ftruncate(&file, size as u64).map_err(failed)?;
        let shared = Shared::of(&file, size)?;
        Ok((file, shared))
    }

    /// The memory that this file is.
    ///
    /// # Errors
    /// The system has no room for it.
    pub fn of(file: &OwnedFd, size: usize) -> Result<Shared> {
        let failed = |e: rustix::io::Errno| Error::new(format!("emulator: memory for an engine: {e}"));
        #[allow(unsafe_code, reason = "memory that two processes share is mapped by address")]
        // SAFETY: the mapping is new, where the system wants it; nothing else is there.
        let at = unsafe {
            let may = ProtFlags::READ | ProtFlags::WRITE;
            mmap(std::ptr::null_mut(), size, may, MapFlags::SHARED, file, 0)
        };
        let at =
            NonNull::new(at.map_err(failed)?).ok_or_else(|| Error::new("emulator: memory for an engine is at 0"))?;
        Ok(Shared { at, size })
    }

    /// Its bytes.
    pub fn cells(&self) -> &[Cell<u8>] {
        #[allow(unsafe_code, reason = "memory that two processes share is mapped by address")]
        // SAFETY: the mapping has this size, lives as long as `self`, and is seen through cells alone. The other process, or another
        // thread by a mapping of its own, changes it while it has the turn, which `Message::wait` and `give` order.
        unsafe {
            std::slice::from_raw_parts(self.at.as_ptr().cast_const().cast(), self.size)
        }
    }

    /// The message at its beginning; `None` if it is too small.
    pub fn message(&self) -> Option<&Message> {
        #[allow(unsafe_code, reason = "memory that two processes share is mapped by address")]
        // SAFETY: the mapping is large enough and begins with a page; a message has cells and atomic words alone, for which all
        // bits are allowed.
        (self.size >= Message::SIZE).then(|| unsafe { self.at.cast().as_ref() })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        #[allow(unsafe_code, reason = "memory that two processes share is mapped by address")]
        // SAFETY: this is the mapping of `new`, and what borrowed it is gone.
        let _ = unsafe { munmap(self.at.as_ptr(), self.size) };
    }
}
