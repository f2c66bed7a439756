//! Reading a file, block by block, in bounded memory.

use std::io::{Read, Seek, SeekFrom};

use codegen::words::error::{Error, Result};
use serde::de::DeserializeOwned;

use super::block::{
    ClockPair, End, Functions, HEADER, Loaded, Lost, MAGIC, MOST, Object, Process, Session, Task, VERSION, kind,
};
use super::packed;

/// A block of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the variants' types say it")]
pub enum Block {
    Session(Session),
    Process(Process),
    Object(Object),
    Loaded(Loaded),
    Functions(Functions),
    Task(Task),
    Clock(ClockPair),
    /// Records of a thread, which are not read yet.
    Records {
        pid: u32,
        tid: u32,
        serial: u32,
        place: Place,
    },
    Lost(Lost),
    End(End),
}

/// The place of a block's records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    at: u64,
    /// Bytes in the file.
    stored: u32,
    bytes: u32,
}

impl Place {
    /// The size of the records in bytes.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }
}

/// A file that is read. Each input gives blocks or an error with its place.
pub struct Reader<R> {
    from: R,
    at: u64,
    length: u64,
    cut: Option<u64>,
}

impl<R: Read + Seek> Reader<R> {
    /// Open a file.
    ///
    /// # Errors
    /// The file cannot be read, or is not a recording.
    pub fn new(mut from: R) -> Result<Reader<R>> {
        let length = from
            .seek(SeekFrom::End(0))
            .map_err(|e| Error::new(format!("cannot find the end of the trace: {e}; valid: a file, and no pipe")))?;
        let mut reader = Reader { from, at: 0, length, cut: None };
        let mut header = [0; HEADER];
        if length < HEADER as u64 {
            return Err(Error::new(
                "this is no trace: it is shorter than a header; valid: a file of `tramptool trace`",
            ));
        }
        reader.read(0, &mut header)?;
        if header[..8] != MAGIC {
            return Err(Error::new("this is no trace: its first bytes are others; valid: a file of `tramptool trace`"));
        }
        match (word(&header, 8), word(&header, 12)) {
            (VERSION, 0) => {}
            (version, _) => {
                let valid = format!("version {VERSION}");
                return Err(Error::unknown("version of a trace", &version.to_string(), [valid.as_str()]));
            }
        }
        reader.at = HEADER as u64;
        Ok(reader)
    }

    /// The offset of the block in whose middle the file ends: whoever wrote it was killed, or the disk was full. It is known once
    /// there is no further block.
    pub fn cut(&self) -> Option<u64> {
        self.cut
    }

    /// The next block; none at the end of the file.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn next_block(&mut self) -> Result<Option<Block>> {
        let left = self.length.saturating_sub(self.at);
        let mut head = [0; 8];
        if left >= 8 {
            self.read(self.at, &mut head)?;
        } else {
            return Ok(self.ends(left));
        }
        let (kind, bytes) = (word(&head, 0), word(&head, 4));
        if bytes > MOST {
            return Err(self.damaged(&format!("a block of {bytes} bytes; {MOST} are the most")));
        }
        let whole = 8 + u64::from(bytes).next_multiple_of(8);
        if left < whole {
            return Ok(self.ends(left));
        }
        let block = match kind {
            kind::RECORDS | kind::PACKED => self.head_of_records(bytes, kind)?,
            kind::CLOCK => self.clock(bytes)?,
            kind::SESSION => self.json(bytes).map(Block::Session)?,
            kind::PROCESS => self.json(bytes).map(Block::Process)?,
            kind::OBJECT => self.json(bytes).map(Block::Object)?,
            kind::LOADED => self.json(bytes).map(Block::Loaded)?,
            kind::FUNCTIONS => self.json(bytes).map(Block::Functions)?,
            kind::TASK => self.json(bytes).map(Block::Task)?,
            kind::LOST => self.json(bytes).map(Block::Lost)?,
            kind::END => self.json(bytes).map(Block::End)?,
            other => return Err(self.damaged(&format!("a block of the unknown kind {other}"))),
        };
        self.at += whole;
        Ok(Some(block))
    }

    /// Read the records of a block into `to`, in place of what is there.
    ///
    /// # Errors
    /// The file cannot be read, or has become shorter.
    pub fn load(&mut self, place: Place, to: &mut Vec<u8>) -> Result<()> {
        if place.stored == place.bytes {
            to.resize(place.bytes as usize, 0);
            return self.read(place.at, to);
        }
        let mut packed = vec![0; place.stored as usize];
        self.read(place.at, &mut packed)?;
        to.clear();
        packed::unpack(&packed, place.bytes as usize, to).map_err(|e| e.at(format!("byte {}", place.at)))
    }

    fn ends(&mut self, left: u64) -> Option<Block> {
        self.cut = (left > 0).then_some(self.at);
        None
    }

    fn head_of_records(&mut self, bytes: u32, kind: u32) -> Result<Block> {
        let mut head = [0; HEADER];
        let Some(rest) = bytes.checked_sub(HEADER as u32) else {
            return Err(self.damaged(&format!("a block of records of {bytes} bytes; {HEADER} are the least")));
        };
        self.read(self.at + 8, &mut head)?;
        let unpacked = if kind == kind::PACKED { word(&head, 12) } else { rest };
        if unpacked > MOST || (kind == kind::PACKED && unpacked <= rest) {
            return Err(
                self.damaged(&format!("a block of {rest} bytes, unpacked {unpacked}; valid: more, up to {MOST}"))
            );
        }
        let place = Place { at: self.at + 8 + HEADER as u64, stored: rest, bytes: unpacked };
        Ok(Block::Records { pid: word(&head, 0), tid: word(&head, 4), serial: word(&head, 8), place })
    }

    fn clock(&mut self, bytes: u32) -> Result<Block> {
        let mut payload = [0; 24];
        if bytes != 24 {
            return Err(self.damaged(&format!("a clock pair of {bytes} bytes, which has 24")));
        }
        self.read(self.at + 8, &mut payload)?;
        let long = |at| u64::from(word(&payload, at)) | u64::from(word(&payload, at + 4)) << 32;
        Ok(Block::Clock(ClockPair { pid: word(&payload, 0), ticks: long(8), monotonic: long(16) }))
    }

    fn json<T: DeserializeOwned>(&mut self, bytes: u32) -> Result<T> {
        let mut payload = vec![0; bytes as usize];
        self.read(self.at + 8, &mut payload)?;
        serde_json::from_slice(&payload).map_err(|e| self.damaged(&format!("a block with other fields: {e}")))
    }

    fn read(&mut self, at: u64, to: &mut [u8]) -> Result<()> {
        let read = self.from.seek(SeekFrom::Start(at)).and_then(|_| self.from.read_exact(to));
        read.map_err(|e| Error::new(format!("cannot read the trace at byte {at}: {e}")))
    }

    fn damaged(&self, what: &str) -> Error {
        Error::damaged(what).at(format!("byte {}", self.at))
    }
}

/// The u32 at this offset; 0 behind the end.
fn word(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    u32::from_le_bytes(four.unwrap_or_default())
}
