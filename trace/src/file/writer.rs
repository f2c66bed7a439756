//! Writing a file, block by block.

use std::io::{Error, ErrorKind, Result, Write};

use serde::Serialize;

use super::block::{
    ClockPair, End, Functions, HEADER, Loaded, Lost, MAGIC, MOST, Object, Process, Session, Task, VERSION, kind,
};
use super::packed;

/// A file that is written. It keeps nothing: each block is handed on at once.
///
/// After an error, the file may end within a block. Whoever writes on behind it makes the file unreadable from there.
pub struct Writer<W> {
    out: W,
    bytes: u64,
    /// Room for packed records.
    packed: Vec<u8>,
}

/// The head of a block of records.
fn head(words: [u32; 4]) -> [u8; HEADER] {
    let mut head = [0; HEADER];
    for (to, word) in head.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    head
}

impl<W: Write> Writer<W> {
    /// Begin a file.
    ///
    /// # Errors
    /// `out` has one.
    pub fn new(mut out: W) -> Result<Writer<W>> {
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out.write_all(&header)?;
        Ok(Writer { out, bytes: HEADER as u64, packed: Vec::new() })
    }

    /// The size of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What it writes to.
    pub fn into_inner(self) -> W {
        self.out
    }

    /// Write the run as a whole. This is the first block.
    ///
    /// # Errors
    /// As [`Writer::records`].
    pub fn session(&mut self, session: &Session) -> Result<()> {
        self.json(kind::SESSION, session)
    }

    /// Write that a process runs a program.
    ///
    /// # Errors
    /// As [`Writer::records`].
    pub fn process(&mut self, process: &Process) -> Result<()> {
        self.json(kind::PROCESS, process)
    }

    /// Write an object.
    ///
    /// # Errors
    /// As [`Writer::records`].
    pub fn object(&mut self, object: &Object) -> Result<()> {
        self.json(kind::OBJECT, object)
    }

    /// Write where an object is loaded.
    ///
    /// # Errors
    /// As [`Writer::records`].
    pub fn loaded(&mut self, loaded: &Loaded) -> Result<()> {
        self.json(kind::LOADED, loaded)
    }

    /// Write functions.
    ///
    /// # Errors
    /// As [`Writer::records`].
    pub fn functions(&mut self, functions: &Functions) -> Result<()> {
        self.json(kind::FUNCTIONS, functions)
    }

    /// Write a thread.
    ///
    /// # Errors
    /// As [`Writer::records`].
    pub fn task(&mut self, task: &Task) -> Result<()> {
        self.json(kind::TASK, task)
    }

    /// Write what two clocks show at the same moment.
    ///
    /// # Errors
    /// As [`Writer::records`].
    pub fn clock(&mut self, pair: &ClockPair) -> Result<()> {
        let mut payload = [0; 24];
        payload[..4].copy_from_slice(&pair.pid.to_le_bytes());
        payload[8..16].copy_from_slice(&pair.ticks.to_le_bytes());
        payload[16..].copy_from_slice(&pair.monotonic.to_le_bytes());
        self.block(kind::CLOCK, &[&payload])
    }

    /// Write records of a thread, as trampolines store them. The blocks of a thread come in the order of their serial numbers;
    /// 0 is the first buffer that the thread had.
    ///
    /// # Errors
    /// The output has one, or the block would have more than 64 MiB.
    pub fn records(&mut self, pid: u32, tid: u32, serial: u32, records: &[u8]) -> Result<()> {
        self.block(kind::RECORDS, &[&head([pid, tid, serial, 0]), records])
    }

    /// Write records in fewer bytes, if packing makes them smaller.
    ///
    /// # Errors
    /// As [`Writer::records`].
    pub fn packed(&mut self, pid: u32, tid: u32, serial: u32, records: &[u64]) -> Result<()> {
        let mut room = std::mem::take(&mut self.packed);
        let written = match packed::pack(records, &mut room).filter(|packed| packed.len() < 8 * records.len()) {
            Some(packed) => {
                let unpacked = u32::try_from(8 * records.len()).unwrap_or(u32::MAX);
                self.block(kind::PACKED, &[&head([pid, tid, serial, unpacked]), packed])
            }
            None => {
                let bytes: Vec<u8> = records.iter().flat_map(|word| word.to_le_bytes()).collect();
                self.records(pid, tid, serial, &bytes)
            }
        };
        self.packed = room;
        written
    }

    /// Write how many records are lost.
    ///
    /// # Errors
    /// As [`Writer::records`].
    pub fn lost(&mut self, lost: &Lost) -> Result<()> {
        self.json(kind::LOST, lost)
    }

    /// Write the end of a process.
    ///
    /// # Errors
    /// As [`Writer::records`].
    pub fn end(&mut self, end: &End) -> Result<()> {
        self.json(kind::END, end)
    }

    /// Hand on what the output itself may keep.
    ///
    /// # Errors
    /// The output has one.
    pub fn flush(&mut self) -> Result<()> {
        self.out.flush()
    }

    fn json(&mut self, kind: u32, block: &impl Serialize) -> Result<()> {
        self.block(kind, &[&serde_json::to_vec(block)?])
    }

    fn block(&mut self, kind: u32, parts: &[&[u8]]) -> Result<()> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let Some(short) = u32::try_from(bytes).ok().filter(|bytes| *bytes <= MOST) else {
            let why = format!("a block of {bytes} bytes; {MOST} are the most, so write it in parts");
            return Err(Error::new(ErrorKind::InvalidInput, why));
        };
        let padding = bytes.next_multiple_of(8) - bytes;
        self.out.write_all(&(u64::from(kind) | u64::from(short) << 32).to_le_bytes())?;
        parts.iter().try_for_each(|part| self.out.write_all(part))?;
        self.out.write_all(&[0; 8][..padding])?;
        self.bytes += (8 + bytes + padding) as u64;
        Ok(())
    }
}
