//! The Common Trace Format of LTTng, babeltrace and Trace Compass, versions 1.8 and 2.
//!
//! Both have the same streams, one a thread: packets of a head and events of 16 bytes, and values behind those.

use std::io::{Read, Seek, Write};

use codegen::words::error::{Error, Result};
use codegen::words::shown::printable;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Map, Value, json};

use crate::calls::{Ending, Step};
use crate::file::{Kind, Number};
use crate::filter::{Filter, Shown};
use crate::recording::{Recording, Thread, Unit};
use crate::steps::Steps;
use crate::text::written;
use crate::values::{argument_bytes, result_bytes, width};

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
const EVENTS: [(u16, &str); 7] =
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
    let worded = worded(recording);
    let metadata = match version {
        Version::One => one(recording, &worded),
        Version::Two => two(recording, &worded),
    };
    // By function: events with arguments, and those with a result.
    let mut ids: [FxHashMap<u32, u16>; 2] = Default::default();
    for event in &worded {
        ids[usize::from(event.result)].insert(event.function, event.id);
    }
    let mut create = |name: &str| files.create(name).map_err(|e| Error::new(format!("cannot write {name}: {e}")));
    let mut file = create("metadata")?;
    written(file.write_all(metadata.as_bytes()).and_then(|()| file.flush()))?;
    for (i, thread) in recording.threads.iter().enumerate() {
        let mut file = create(&format!("stream_{i}"))?;
        stream(recording, thread, filter, &ids, &mut file)?;
        written(file.flush())?;
    }
    Ok(())
}

/// An event of one function, which has values of its own.
struct Worded {
    id: u16,
    function: u32,
    /// The call returns; else it begins.
    result: bool,
    /// The values with their names. Those of arguments lie in a structure.
    values: Vec<(String, Number)>,
}

impl Worded {
    fn event(&self) -> &'static str {
        EVENTS[usize::from(self.result)].1
    }
}

/// The events of functions whose arguments or results are recorded: as many as there are numbers for.
fn worded<R>(recording: &Recording<R>) -> Vec<Worded> {
    let mut all = Vec::new();
    for (number, traced) in recording.functions() {
        let mut seen = FxHashSet::default();
        let mut name = |n: usize, name: &str| {
            let letter = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
            let name: String = name.chars().map(letter).collect();
            if !name.is_empty() && seen.insert(name.clone()) { name } else { format!("word_{n}") }
        };
        let parameters = traced.function.parameters.iter().enumerate();
        let arguments = parameters.filter_map(|(n, p)| Some((name(n, &p.name), p.word?.1))).collect();
        let result = traced.function.result.map(|number| ("result".to_owned(), number)).into_iter().collect();
        all.extend([(false, arguments), (true, result)].map(|(result, values)| (number, result, values)));
    }
    all.retain(|(_, _, values): &(u32, bool, Vec<_>)| !values.is_empty());
    let ids = EVENTS.len() as u16 + 1..=u16::MAX;
    let event = |(id, (function, result, values))| Worded { id, function, result, values };
    ids.zip(all).map(event).collect()
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
    ids: &[FxHashMap<u32, u16>; 2],
    out: &mut dyn Write,
) -> Result<()> {
    let mut packet = Packet::default();
    let mut steps = Steps::new(recording, thread, filter);
    while let Some(Shown { step, .. }) = steps.next_step()? {
        let (kind, ids, values) = match &step {
            Step::Begin(call) => (1, &ids[0], argument_bytes(recording, call, 1)),
            Step::End(call) => {
                let kind = match call.ending {
                    Ending::Returned => 2,
                    Ending::Exception => 3,
                    Ending::Left => 4,
                    Ending::Open => 5,
                    Ending::Unrecorded => 6,
                    Ending::Thread => 7,
                };
                (kind, &ids[1], result_bytes(recording, call, 1).filter(|_| call.ending == Ending::Returned))
            }
        };
        let worded = ids.get(&step.call().function).copied().zip(values);
        let (kind, values) = worded.unwrap_or((kind, Vec::new()));
        if packet.events.is_empty() {
            packet.begin = step.time();
        }
        packet.end = step.time();
        packet.events.extend(step.time().to_le_bytes());
        packet.events.extend((u64::from(step.call().function) << 16 | u64::from(kind)).to_le_bytes());
        packet.events.extend(values);
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

fn one<R>(recording: &Recording<R>, worded: &[Worded]) -> String {
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let names: Vec<String> =
        labels(recording).iter().map(|(name, number)| format!("\"{}\" = {number}", quoted(name))).collect();
    let function = match names.is_empty() {
        true => "integer { size = 48; align = 8; signed = false; } function;".to_owned(),
        false => {
            let names = names.join(",\n        ");
            format!("enum : integer {{ size = 48; align = 8; signed = false; }} {{\n        {names}\n    }} function;")
        }
    };
    let event = |id: u16, name: &str, values: &str| {
        format!(
            "event {{ name = \"{name}\"; id = {id}; stream_id = 0; fields := struct {{\n    {function}{values}\n}}; }};\n"
        )
    };
    // Readers take the first underscore away, which tells names from words of the language.
    let field = |(name, number): &(String, Number)| {
        let (bits, signed) = (8 * width(*number), number.kind == Kind::Signed);
        let base = if number.kind == Kind::Pointer { 16 } else { 10 };
        format!(" integer {{ size = {bits}; align = 8; signed = {signed}; base = {base}; }} _{name};")
    };
    let worded = worded.iter().map(|of| {
        let fields: String = of.values.iter().map(field).collect();
        let values = if of.result { fields } else { format!(" struct {{{fields} }} args;") };
        event(of.id, of.event(), &values)
    });
    let events: String = EVENTS.iter().map(|(id, name)| event(*id, name, "")).chain(worded).collect();
    let offset = offset(recording);
    let (seconds, nanoseconds) = (offset / 1_000_000_000, offset % 1_000_000_000);
    format!(
        r#"/* CTF 1.8 */
typealias integer {{ size = 16; align = 8; signed = false; }} := uint16_t;
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
    event.header := struct {{ time_t timestamp; uint16_t id; }};
}};
{events}"#
    )
}

fn two<R>(recording: &Recording<R>, worded: &[Worded]) -> String {
    let mut mappings = Map::new();
    for (name, number) in labels(recording) {
        mappings.insert(name, json!([[number, number]]));
    }
    let member = |name: &str, bits: usize, roles: &[&str]| {
        let mut class = json!({
            "type": "fixed-length-unsigned-integer", "length": bits, "byte-order": "little-endian", "alignment": 8,
        });
        // `field` below makes some of them signed, and CTF 2 has no `roles` for signed integers.
        if !roles.is_empty() {
            class["roles"] = json!(roles);
        }
        json!({"name": name, "field-class": class})
    };
    let structure = |members: Vec<Value>| json!({"type": "structure", "member-classes": members});
    let mut function = member("function", 48, &[]);
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
                member("id", 16, &["event-record-class-id"]),
            ]),
        }),
    ];
    let mut event = |id: u16, name: &str, values: Vec<Value>| {
        let payload = structure([vec![function.clone()], values].concat());
        fragments.push(json!({
            "type": "event-record-class", "id": id, "data-stream-class-id": 0, "name": name, "payload-field-class": payload,
        }));
    };
    EVENTS.iter().for_each(|(id, name)| event(*id, name, Vec::new()));
    for of in worded {
        let field = |(name, number): &(String, Number)| {
            let mut field = member(name, 8 * width(*number), &[]);
            if number.kind == Kind::Signed {
                field["field-class"]["type"] = json!("fixed-length-signed-integer");
            }
            field["field-class"]["preferred-display-base"] = json!(if number.kind == Kind::Pointer { 16 } else { 10 });
            field
        };
        let fields = of.values.iter().map(field).collect();
        let args = |fields| vec![json!({"name": "args", "field-class": structure(fields)})];
        event(of.id, of.event(), if of.result { fields } else { args(fields) });
    }
    let fragment = |fragment: &Value| format!("\u{1e}{fragment}\n");
    fragments.iter().map(fragment).collect()
}
