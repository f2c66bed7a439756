//! The profile that <https://profiler.firefox.com> reads. It is of samples; here each is the time between two steps. Arguments and
//! results are markers.
//!
//! The processed format has tables of columns. Each column takes a walk through the thread's calls, so that none is held in
//! memory.

use std::io::{Read, Seek, Write};

use codegen::words::error::Result;
use serde_json::{Value, json};

use crate::calls::{Call, Step};
use crate::filter::{Filter, Shown};
use crate::recording::{Recording, Thread};
use crate::steps::Steps;
use crate::text::written;
use crate::tree::Tree;
use crate::values::{arguments, result};

/// The version of the processed format, that of the crate fxprof-processed-profile 0.8. The profiler converts older ones.
const VERSION: u32 = 55;

/// The type of the marker that a call with values has.
const MARKER: &str = "call";

/// Write the calls of each thread.
///
/// # Errors
/// The file cannot be read, or the output has an error.
pub fn firefox<R: Read + Seek>(recording: &Recording<R>, filter: &Filter, out: &mut dyn Write) -> Result<()> {
    let meta = json!({
        "interval": 0.001, "startTime": recording.session.started as f64 / 1e6, "processType": 0, "stackwalk": 1,
        "product": recording.session.command.first().map_or("", String::as_str), "version": 29,
        "preprocessedProfileVersion": VERSION, "symbolicated": true, "debug": false,
        "markerSchema": [{
            "name": MARKER, "display": ["marker-chart", "marker-table"],
            "data": [
                {"key": "arguments", "label": "Arguments", "format": "string", "searchable": true},
                {"key": "result", "label": "Result", "format": "string", "searchable": true},
            ],
        }],
        "pausedRanges": [], "extensions": {"length": 0, "baseURL": [], "id": [], "name": []},
        "categories": [{"name": "Other", "color": "grey", "subcategories": ["Other"]}],
    });
    written(write!(out, "{{\"meta\":{meta},\"libs\":[],\"threads\":["))?;
    for (i, thread) in recording.threads.iter().enumerate() {
        written(writeln!(out, "{}", if i > 0 { "," } else { "" }))?;
        write_thread(recording, thread, filter, out)?;
    }
    written(writeln!(out, "]}}"))
}

/// Some time in which no call began or ended.
struct Sample {
    /// The way to the innermost call.
    node: usize,
    begin: u64,
    time: u64,
}

fn write_thread<R: Read + Seek>(
    recording: &Recording<R>,
    thread: &Thread,
    filter: &Filter,
    out: &mut dyn Write,
) -> Result<()> {
    let mut tree = Tree::default();
    tree.add(Steps::new(recording, thread, filter))?;
    let started = recording.runs.first().map_or(0, |run| run.process.started);
    // Times are milliseconds.
    let milliseconds = |time: u64| format!("{:.6}", time as f64 / 1e6);
    written(write!(out, "{{\"samples\":{{\"weightType\":\"tracing-ms\",\"stack\":["))?;
    let length = column(recording, thread, filter, &tree, out, &|sample| sample.node.to_string())?;
    written(write!(out, "],\"time\":["))?;
    let begin = |sample: &Sample| milliseconds(sample.begin.saturating_sub(started));
    column(recording, thread, filter, &tree, out, &begin)?;
    written(write!(out, "],\"weight\":["))?;
    column(recording, thread, filter, &tree, out, &|sample| milliseconds(sample.time))?;
    written(write!(out, "],\"length\":{length}}}"))?;
    let functions = functions(&tree);
    let milliseconds = |time: u64| milliseconds(time.saturating_sub(started));
    let columns: [(&str, Cell); 6] = [
        ("data", &|marker| json!({"type": MARKER, "arguments": marker.arguments, "result": marker.result}).to_string()),
        ("name", &|marker| marker.name.to_string()),
        ("startTime", &|marker| milliseconds(marker.call.begin)),
        ("endTime", &|marker| milliseconds(marker.call.end)),
        // An interval, of the category `Other`.
        ("phase", &|_| "1".to_owned()),
        ("category", &|_| "0".to_owned()),
    ];
    let mut length = 0;
    written(write!(out, ",\"markers\":{{"))?;
    for (name, cell) in columns {
        written(write!(out, "\"{name}\":["))?;
        length = markers(recording, thread, filter, &functions, out, cell)?;
        written(write!(out, "],"))?;
    }
    written(write!(out, "\"length\":{length}}}"))?;
    let Value::Object(fields) = fields(recording, thread, &tree, &functions) else { return Ok(()) };
    fields.iter().try_for_each(|(name, value)| written(write!(out, ",\"{name}\":{value}")))?;
    written(write!(out, "}}"))
}

/// Write a column of the table of samples. Returns how many there are.
fn column<R: Read + Seek>(
    recording: &Recording<R>,
    thread: &Thread,
    filter: &Filter,
    tree: &Tree,
    out: &mut dyn Write,
    cell: &dyn Fn(&Sample) -> String,
) -> Result<u64> {
    let mut steps = Steps::new(recording, thread, filter);
    let (mut open, mut last, mut count): (Vec<usize>, u64, u64) = (Vec::new(), 0, 0);
    while let Some(Shown { step, .. }) = steps.next_step()? {
        let time = step.time().saturating_sub(last);
        if let Some(&node) = open.last().filter(|_| time > 0) {
            let separator = if count > 0 { "," } else { "" };
            written(write!(out, "{separator}{}", cell(&Sample { node, begin: last, time })))?;
            count += 1;
        }
        last = step.time();
        match step {
            Step::Begin(call) if call.depth < Tree::DEEPEST => {
                open.extend(tree.callee(open.last().copied(), call.function));
            }
            Step::End(call) if call.depth < Tree::DEEPEST => drop(open.pop()),
            Step::Begin(_) | Step::End(_) => {}
        }
    }
    Ok(count)
}

/// Writes one column's value of a call.
type Cell<'a> = &'a dyn Fn(&Marker) -> String;

/// A call of which values are recorded.
struct Marker {
    call: Call,
    /// The index of the function.
    name: usize,
    arguments: String,
    result: String,
}

/// Write a column of the table of markers. Returns how many there are.
fn markers<R: Read + Seek>(
    recording: &Recording<R>,
    thread: &Thread,
    filter: &Filter,
    functions: &[u32],
    out: &mut dyn Write,
    cell: Cell,
) -> Result<u64> {
    let mut steps = Steps::new(recording, thread, filter);
    let mut count = 0;
    while let Some(Shown { step, .. }) = steps.next_step()? {
        let Step::End(call) = step else { continue };
        let Ok(name) = functions.binary_search(&call.function) else { continue };
        if call.words.is_empty() && call.result.is_none() {
            continue;
        }
        let arguments: Vec<String> = arguments(recording, &call).iter().map(ToString::to_string).collect();
        let result = result(recording, &call).map_or(String::new(), |result| result.to_string());
        let separator = if count > 0 { "," } else { "" };
        let marker = Marker { call, name, arguments: arguments.join(", "), result };
        written(write!(out, "{separator}{}", cell(&marker)))?;
        count += 1;
    }
    Ok(count)
}

/// The functions of a tree, by number.
fn functions(tree: &Tree) -> Vec<u32> {
    let mut functions: Vec<u32> = tree.nodes.iter().map(|node| node.function).collect();
    functions.sort_unstable();
    functions.dedup();
    functions
}

/// All of a thread but its samples and markers. A frame is a function, and a stack is a node of the tree.
fn fields<R>(recording: &Recording<R>, thread: &Thread, tree: &Tree, functions: &[u32]) -> Value {
    let count = functions.len();
    let all = |value: Value| vec![value; count];
    let numbers: Vec<usize> = (0..count).collect();
    let names: Vec<&str> = functions.iter().map(|function| recording.name(*function)).collect();
    let frames: Vec<usize> =
        tree.nodes.iter().map(|node| functions.partition_point(|function| *function < node.function)).collect();
    let mut callers: Vec<Option<usize>> = vec![None; tree.nodes.len()];
    for (caller, node) in tree.nodes.iter().enumerate() {
        node.callees.iter().for_each(|callee| callers[*callee] = Some(caller));
    }
    let process = recording.runs.get(thread.run).map_or("", |run| run.process.exe.as_str());
    let (task, nodes) = (&thread.task, tree.nodes.len());
    json!({
        "name": task.name, "processName": process, "isMainThread": task.pid == task.tid,
        "pid": task.pid.to_string(), "tid": task.tid, "processType": "default", "processStartupTime": 0,
        "processShutdownTime": null, "registerTime": 0, "unregisterTime": null, "pausedRanges": [],
        "stackTable": {"frame": frames, "prefix": callers, "length": nodes},
        "frameTable": {
            "address": all(json!(-1)), "inlineDepth": all(json!(0)), "category": all(json!(0)), "subcategory": all(json!(0)),
            "func": numbers, "nativeSymbol": all(Value::Null), "innerWindowID": all(json!(0)),
            "line": all(Value::Null), "column": all(Value::Null), "length": count,
        },
        "funcTable": {
            "name": numbers, "isJS": all(json!(false)), "relevantForJS": all(json!(false)), "resource": all(json!(-1)),
            "fileName": all(Value::Null), "lineNumber": all(Value::Null), "columnNumber": all(Value::Null), "length": count,
        },
        "resourceTable": {"lib": [], "name": [], "host": [], "type": [], "length": 0},
        "nativeSymbols": {"libIndex": [], "address": [], "name": [], "functionSize": [], "length": 0},
        "stringArray": names,
    })
}
