//! The Common Trace Format of LTTng, babeltrace and Trace Compass, versions 1.8 and 2.
//!
//! Both have the same streams, one a thread: packets of a head and events of 16 bytes.

use std::io::{Read, Seek, Write};

use codegen::words::error::{Error, Result};
use codegen::words::shown::printable;
use serde_json::{Map, Value, json};

use crate::calls::{Ending, Step};
use crate::filter::{Filter, Shown};
use crate::recording::{Recording, Thread, Unit};
use crate::steps::Steps;
use crate::text::written;

use super::Files;

/// The version of the format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// 1.8, whose metadata is a language of its own.
    One,
    /// 2, whose metadata is JSON.
    Two,
}

/// Events, by their numbers: what begins or how it ends.
const EVENTS: [(u8, &str); 7] =
    [(1, "entry"), (2, "return"), (3, "exception"), (4, "left"), (5, "running"), (6, "entry_only"), (7, "thread_end")];
/// The first word of a packet.
const MAGIC: u32 = 0xc1fc_1fc1;
/// Events of a packet.
const MOST: usize = 4096;

/// Write the directory's files.
///
/// # Errors
/// The file cannot be read, or a file cannot be written.
pub fn ctf<R: Read + Seek>(
    recording: &Recording<R>,
    filter: &Filter,
    version: Version,
    files: &mut dyn Files,
) -> Result<()> {
    let metadata = match version {
        Version::One => one(recording),
        Version::Two => two(recording),
    };
    let mut create = |name: &str| files.create(name).map_err(|e| Error::new(format!("cannot write {name}: {e}")));
    let mut file = create("metadata")?;
    written(file.write_all(metadata.as_bytes()).and_then(|()| file.flush()))?;
    for (i, thread) in recording.threads.iter().enumerate() {
        let mut file = create(&format!("stream_{i}"))?;
        stream(recording, thread, filter, &mut file)?;
        written(file.flush())?;
    }
    Ok(())
}

/// Events that are not written yet.
#[derive(Default)]
struct Packet {
    begin: u64,
    end: u64,
    events: Vec<u8>,
}

impl Packet {
    fn write(&mut self, thread: &Thread, out: &mut dyn Write) -> Result<()> {
        const HEAD: usize = 48;
        let bits = 8 * (HEAD + self.events.len()) as u64;
        let (pid, tid) = (thread.task.pid, thread.task.tid);
        let mut head = Vec::with_capacity(HEAD);
        head.extend(MAGIC.to_le_bytes());
        head.extend(0_u32.to_le_bytes());
        [self.begin, self.end, bits, bits].iter().for_each(|word| head.extend(word.to_le_bytes()));
        [pid, tid].iter().for_each(|word| head.extend(word.to_le_bytes()));
        self.events.splice(..0, head);
        let result = written(out.write_all(&self.events));
        self.events.clear();
        result
    }
}

fn stream<R: Read + Seek>(
    recording: &Recording<R>,
    thread: &Thread,
    filter: &Filter,
    out: &mut dyn Write,
) -> Result<()> {
    let mut packet = Packet::default();
    let mut steps = Steps::new(recording, thread, filter);
    while let Some(Shown { step, .. }) = steps.next_step()? {
        let kind = match &step {
            Step::Begin(_) => 1,
            Step::End(call) => match call.ending {
                Ending::Returned => 2,
                Ending::Exception => 3,
                Ending::Left => 4,
                Ending::Open => 5,
                Ending::Unrecorded => 6,
                Ending::Thread => 7,
            },
        };
        if packet.events.is_empty() {
            packet.begin = step.time();
        }
        packet.end = step.time();
        packet.events.extend(step.time().to_le_bytes());
        packet.events.extend((u64::from(step.call().function) << 8 | kind).to_le_bytes());
        if packet.events.len() >= 16 * MOST {
            packet.write(thread, out)?;
        }
    }
    if packet.events.is_empty() { Ok(()) } else { packet.write(thread, out) }
}

/// Nanoseconds from 1970 to the clock's 0; 0 if that is unknown.
fn offset<R>(recording: &Recording<R>) -> u64 {
    let started = recording.runs.first().map_or(0, |run| run.process.started);
    let known = recording.unit() == Unit::Nanoseconds && started > 0;
    if known { recording.session.started.saturating_sub(started) } else { 0 }
}

/// Functions by their numbers; one that has the name of another gets its number too.
fn labels<R>(recording: &Recording<R>) -> Vec<(String, u32)> {
    let mut seen = rustc_hash::FxHashSet::default();
    let label = |(number, _)| {
        let name = printable(recording.name(number));
        let name = if seen.contains(&name) { format!("{name} #{number}") } else { name };
        seen.insert(name.clone());
        (name, number)
    };
    recording.functions().map(label).collect()
}

fn one<R>(recording: &Recording<R>) -> String {
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let names: Vec<String> =
        labels(recording).iter().map(|(name, number)| format!("\"{}\" = {number}", quoted(name))).collect();
    let function = match names.is_empty() {
        true => "integer { size = 56; align = 8; signed = false; } function;".to_owned(),
        false => {
            let names = names.join(",\n        ");
            format!("enum : integer {{ size = 56; align = 8; signed = false; }} {{\n        {names}\n    }} function;")
        }
    };
    let events: String = EVENTS
        .iter()
        .map(|(id, name)| {
            format!(
                "event {{ name = \"{name}\"; id = {id}; stream_id = 0; fields := struct {{\n    {function}\n}}; }};\n"
            )
        })
        .collect();
    let offset = offset(recording);
    let (seconds, nanoseconds) = (offset / 1_000_000_000, offset % 1_000_000_000);
    format!(
        r#"/* CTF 1.8 */
typealias integer {{ size = 8; align = 8; signed = false; }} := uint8_t;
typealias integer {{ size = 32; align = 8; signed = false; }} := uint32_t;
typealias integer {{ size = 64; align = 8; signed = false; }} := uint64_t;
trace {{
    major = 1; minor = 8; byte_order = le;
    packet.header := struct {{ uint32_t magic; uint32_t stream_id; }};
}};
env {{ tracer_name = "tramptool"; }};
clock {{
    name = monotonic; freq = 1000000000; offset_s = {seconds}; offset = {nanoseconds};
}};
typealias integer {{ size = 64; align = 8; signed = false; map = clock.monotonic.value; }} := time_t;
stream {{
    id = 0;
    packet.context := struct {{
        time_t timestamp_begin; time_t timestamp_end; uint64_t content_size; uint64_t packet_size; uint32_t pid; uint32_t tid;
    }};
    event.header := struct {{ time_t timestamp; uint8_t id; }};
}};
{events}"#
    )
}

fn two<R>(recording: &Recording<R>) -> String {
    let mut mappings = Map::new();
    for (name, number) in labels(recording) {
        mappings.insert(name, json!([[number, number]]));
    }
    let member = |name: &str, bits: u32, roles: &[&str]| {
        let class = json!({
            "type": "fixed-length-unsigned-integer", "length": bits, "byte-order": "little-endian", "alignment": 8,
            "roles": roles,
        });
        json!({"name": name, "field-class": class})
    };
    let structure = |members: Vec<Value>| json!({"type": "structure", "member-classes": members});
    let mut function = member("function", 56, &[]);
    if !mappings.is_empty() {
        function["field-class"]["mappings"] = Value::Object(mappings);
    }
    let mut fragments = vec![
        json!({"type": "preamble", "version": 2}),
        json!({
            "type": "trace-class", "environment": {"tracer_name": "tramptool"},
            "packet-header-field-class": structure(vec![
                member("magic", 32, &["packet-magic-number"]),
                member("stream_id", 32, &["data-stream-class-id"]),
            ]),
        }),
        json!({
            "type": "clock-class", "id": "monotonic", "frequency": 1_000_000_000,
            "offset-from-origin": {"seconds": offset(recording) / 1_000_000_000, "cycles": offset(recording) % 1_000_000_000},
            "origin": "unix-epoch",
        }),
        json!({
            "type": "data-stream-class", "id": 0, "default-clock-class-id": "monotonic",
            "packet-context-field-class": structure(vec![
                member("timestamp_begin", 64, &["default-clock-timestamp"]),
                member("timestamp_end", 64, &["packet-end-default-clock-timestamp"]),
                member("content_size", 64, &["packet-content-length"]),
                member("packet_size", 64, &["packet-total-length"]),
                member("pid", 32, &[]),
                member("tid", 32, &[]),
            ]),
            "event-record-header-field-class": structure(vec![
                member("timestamp", 64, &["default-clock-timestamp"]),
                member("id", 8, &["event-record-class-id"]),
            ]),
        }),
    ];
    for (id, name) in EVENTS {
        let payload = structure(vec![function.clone()]);
        fragments.push(json!({
            "type": "event-record-class", "id": id, "data-stream-class-id": 0, "name": name, "payload-field-class": payload,
        }));
    }
    let fragment = |fragment: &Value| format!("\u{1e}{fragment}\n");
    fragments.iter().map(fragment).collect()
}
