//! The messages between the traced process and this one. `session/preload/protocol.h` has the same in C.

use std::fmt;

/// At the beginning of each message.
pub const MAGIC: u32 = 0x3154_5254;

/// Bytes of [`Hello`].
pub const HELLO: usize = 80;

/// The most text that is taken, in bytes.
pub const TEXT_LIMIT: u32 = 1 << 24;

/// A message of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The process has begun, and waits for orders.
    Attach,
    /// The process is the child of a fork, and has all that its parent has.
    Forked,
    /// The process has loaded or unloaded an object.
    Loaded,
}

/// The clocks of the processor and of the system, read one after the other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Moment {
    /// Of the processor's clock.
    pub ticks: u64,
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub monotonic: u64,
}

/// The beginning of what a process says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Why it says it.
    pub kind: Kind,
    /// The process's number.
    pub pid: u32,
    /// The parent's number.
    pub parent: u32,
    /// The thread's.
    pub tid: u32,
    /// Bytes of text that follow: its program's path, and below that its `/proc/self/maps`.
    pub text: u32,
    /// Address of the routine that gives a thread its buffer.
    pub refill: u64,
    /// Offset of a thread's words from its thread pointer.
    pub words: i64,
    /// When it said it.
    pub now: Moment,
    /// What its loader calls for debuggers when it has loaded something: `r_brk` of `<link.h>`.
    pub brk: u64,
    /// Address of the routine that says so to us.
    pub loaded: u64,
    /// Address of the routine that functions call with which the recording ends.
    pub last: u64,
}

/// These bytes are no [`Hello`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Strange;

impl fmt::Display for Strange {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("something else than the library of this tool has said something")
    }
}

impl Hello {
    /// Read it.
    ///
    /// # Errors
    /// Another magic number, a kind that there is not, too much text.
    pub fn parse(bytes: &[u8; HELLO]) -> Result<Hello, Strange> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let kind = match word(4) {
            0 => Kind::Attach,
            1 => Kind::Forked,
            2 => Kind::Loaded,
            _ => return Err(Strange),
        };
        let text = word(20);
        if word(0) != MAGIC || text > TEXT_LIMIT {
            return Err(Strange);
        }
        let (pid, parent, tid) = (word(8), word(12), word(16));
        let now = Moment { ticks: long(40), monotonic: long(48) };
        let (words, brk, loaded, last) = (long(32).cast_signed(), long(56), long(64), long(72));
        Ok(Hello { kind, pid, parent, tid, text, refill: long(24), words, now, brk, loaded, last })
    }
}

/// Of pages that indirect branches enter at landing pads alone, where the processor looks. The process knows whether it does.
pub const GUARDED: u64 = 1 << 32;

/// An order to the process, in the order of its list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// Map so many bytes of the file with the orders, from this offset on, to this address, for execution.
    Map {
        /// The address.
        address: u64,
        /// The size in bytes.
        len: u32,
        /// The offset in the file.
        offset: u64,
    },
    /// Give pages this protection.
    Protect {
        /// The first page.
        address: u64,
        /// The size in bytes.
        len: u32,
        /// `PROT_*` of `<sys/mman.h>`, and [`GUARDED`].
        protection: u64,
    },
    /// Write to code, if the bytes there are these.
    Write {
        /// The address.
        address: u64,
        /// The bytes that are there.
        before: [u8; 8],
        /// The bytes to write.
        after: [u8; 8],
        /// The number of these bytes.
        len: u32,
    },
}

impl Order {
    /// Bytes of an order.
    pub const BYTES: usize = 40;

    /// Its bytes, behind those that are there.
    pub fn append_to(&self, list: &mut Vec<u8>) {
        let none = [0; 8];
        let (kind, len, address, offset, before, after) = match self {
            Order::Map { address, len, offset } => (1_u32, len, address, *offset, &none, &none),
            Order::Protect { address, len, protection } => (2, len, address, *protection, &none, &none),
            Order::Write { address, before, after, len } => (3, len, address, 0, before, after),
        };
        list.extend(kind.to_le_bytes());
        list.extend(len.to_le_bytes());
        list.extend(address.to_le_bytes());
        list.extend(offset.to_le_bytes());
        list.extend(before);
        list.extend(after);
    }
}

/// Bytes of what a process says once it has done what it was told: the errno of the first order that failed, and how many sites had
/// other bytes.
pub const OBEYED: usize = 8;

/// The answer to a process.
pub fn answer(orders: u32, pool_bytes: u64, file_bytes: u64) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[4..8].copy_from_slice(&orders.to_le_bytes());
    bytes[8..16].copy_from_slice(&pool_bytes.to_le_bytes());
    bytes[16..].copy_from_slice(&file_bytes.to_le_bytes());
    bytes
}
