//! The native file of a trace: a header, and blocks that are only ever appended.
//!
//! The header is the magic number, the version and a 0, each little-endian: `tramptrc`, u32 2, u32 0. A block is
//! `{ u32 kind, u32 bytes, payload }`, and the payload is padded to a multiple of 8 bytes. Blocks of records and of clock
//! pairs are binary; the payload of all others is JSON. A file that ends within a block is valid up to the last whole one.

mod block;
mod packed;
mod reader;
mod writer;

pub use block::{
    Clock, ClockPair, End, Events, Function, Functions, Kind, Loaded, Lost, Number, Object, Parameter, Process, Range,
    Session, Status, Task, Why,
};
pub use reader::{Block, Place, Reader};
pub use writer::Writer;

/// The name of the file, unless another is given.
pub const DEFAULT: &str = "trace.tramptool";
