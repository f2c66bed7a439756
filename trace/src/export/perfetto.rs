//! The protocol buffers that <https://ui.perfetto.dev> reads: a `TrackEvent` at each beginning and end of a call.
//!
//! Field numbers are those of protos/perfetto/trace in Perfetto's source.

use std::io::{Read, Seek, Write};

use codegen::words::error::Result;
use rustc_hash::FxHashSet;

use crate::calls::Step;
use crate::file::Process;
use crate::filter::{Filter, Shown};
use crate::recording::{Recording, Thread};
use crate::steps::Steps;
use crate::text::written;
use crate::values::{Value, arguments, result};

/// `Trace.packet`.
const PACKET: u32 = 1;

/// `TracePacket`.
mod packet {
    pub const TIMESTAMP: u32 = 8;
    pub const SEQUENCE: u32 = 10;
    pub const EVENT: u32 = 11;
    pub const INTERNED: u32 = 12;
    pub const FLAGS: u32 = 13;
    pub const TRACK: u32 = 60;
}

/// `TrackDescriptor`, `ProcessDescriptor`, `ThreadDescriptor`.
mod track {
    pub const UUID: u32 = 1;
    pub const PROCESS: u32 = 3;
    pub const THREAD: u32 = 4;
    pub const PID: u32 = 1;
    pub const PROCESS_NAME: u32 = 6;
    pub const TID: u32 = 2;
    pub const THREAD_NAME: u32 = 5;
}

/// `TrackEvent` and `DebugAnnotation`.
mod event {
    pub const ANNOTATION: u32 = 4;
    pub const TYPE: u32 = 9;
    pub const NAME: u32 = 10;
    pub const TRACK: u32 = 11;
    pub const ANNOTATION_NAME: u32 = 10;
    pub const BOOLEAN: u32 = 2;
    pub const UNSIGNED: u32 = 3;
    pub const SIGNED: u32 = 4;
    pub const POINTER: u32 = 7;
    /// Values of the type.
    pub const BEGIN: u64 = 1;
    pub const END: u64 = 2;
}

/// `InternedData` and `EventName`.
mod interned {
    pub const NAMES: u32 = 2;
    pub const ID: u32 = 1;
    pub const NAME: u32 = 2;
}

/// A message that is put together.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(mut self, field: u32, value: u64) -> Message {
        self.varint(u64::from(field << 3));
        self.varint(value);
        self
    }

    fn bytes(mut self, field: u32, bytes: &[u8]) -> Message {
        self.varint(u64::from(field << 3 | 2));
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn message(self, field: u32, message: Message) -> Message {
        self.bytes(field, &message.0)
    }
}

/// The destination of packets.
struct Packets<'o> {
    out: &'o mut dyn Write,
    any: bool,
}

impl Packets<'_> {
    /// Write a packet. The first one begins the sequence: what it interns is all that there is.
    fn write(&mut self, packet: Message) -> Result<()> {
        let flags = if self.any { 2 } else { 1 };
        self.any = true;
        let packet = packet.number(packet::SEQUENCE, 1).number(packet::FLAGS, flags);
        written(self.out.write_all(&Message::default().message(PACKET, packet).0))
    }
}

/// Write the calls, thread by thread.
///
/// # Errors
/// The file cannot be read, or the output has an error.
pub fn perfetto<R: Read + Seek>(recording: &Recording<R>, filter: &Filter, out: &mut dyn Write) -> Result<()> {
    let mut packets = Packets { out, any: false };
    for (i, run) in recording.runs.iter().enumerate() {
        packets.write(process(i, &run.process))?;
    }
    let mut named = FxHashSet::default();
    for (i, thread) in recording.threads.iter().enumerate() {
        let track = (recording.runs.len() + i + 1) as u64;
        packets.write(descriptor(track, thread))?;
        let mut steps = Steps::new(recording, thread, filter);
        while let Some(Shown { step, .. }) = steps.next_step()? {
            let function = step.call().function;
            let mut packet = Message::default().number(packet::TIMESTAMP, step.time());
            packet = packet.message(packet::EVENT, event(recording, &step, track));
            if named.insert(function) {
                let name = Message::default().number(interned::ID, id(function));
                let name = name.bytes(interned::NAME, recording.name(function).as_bytes());
                packet = packet.message(packet::INTERNED, Message::default().message(interned::NAMES, name));
            }
            packets.write(packet)?;
        }
    }
    Ok(())
}

/// 0 is no id.
fn id(function: u32) -> u64 {
    u64::from(function) + 1
}

fn process(index: usize, process: &Process) -> Message {
    let described = Message::default().number(track::PID, u64::from(process.pid));
    let described = described.bytes(track::PROCESS_NAME, process.exe.as_bytes());
    let described = Message::default().number(track::UUID, index as u64 + 1).message(track::PROCESS, described);
    Message::default().message(packet::TRACK, described)
}

fn descriptor(uuid: u64, thread: &Thread) -> Message {
    let described = Message::default().number(track::PID, u64::from(thread.task.pid));
    let described = described.number(track::TID, u64::from(thread.task.tid));
    let described = described.bytes(track::THREAD_NAME, thread.task.name.as_bytes());
    let described = Message::default().number(track::UUID, uuid).message(track::THREAD, described);
    Message::default().message(packet::TRACK, described)
}

fn event<R>(recording: &Recording<R>, step: &Step, track: u64) -> Message {
    let kind = if matches!(step, Step::Begin(_)) { event::BEGIN } else { event::END };
    let call = step.call();
    let message = Message::default().number(event::TYPE, kind).number(event::TRACK, track);
    let message = message.number(event::NAME, id(call.function));
    match step {
        Step::Begin(_) => arguments(recording, call).into_iter().enumerate().fold(message, |message, (i, argument)| {
            let name = argument.name.unwrap_or_else(|| format!("word {i}"));
            annotated(message, &name, argument.value)
        }),
        Step::End(_) => annotated(message, "result", result(recording, call)),
    }
}

fn annotated(message: Message, name: &str, value: Option<Value>) -> Message {
    let (field, value) = match value {
        None => return message,
        Some(Value::Boolean(value)) => (event::BOOLEAN, value.into()),
        Some(Value::Unsigned(value)) => (event::UNSIGNED, value),
        Some(Value::Signed(value)) => (event::SIGNED, value.cast_unsigned()),
        Some(Value::Pointer(value)) => (event::POINTER, value),
    };
    let annotation = Message::default().bytes(event::ANNOTATION_NAME, name.as_bytes());
    message.message(event::ANNOTATION, annotation.number(field, value))
}
