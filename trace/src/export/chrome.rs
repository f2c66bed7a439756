//! The JSON that chrome://tracing, Perfetto and speedscope read.

use std::io::{Read, Seek, Write};

use codegen::words::error::Result;
use serde_json::json;

use crate::calls::{Call, Step};
use crate::filter::{Filter, Shown};
use crate::recording::Recording;
use crate::steps::Steps;
use crate::text::{microseconds, written};

/// Write the calls as pairs of events, thread by thread.
///
/// # Errors
/// The file cannot be read, or the output has an error.
pub fn chrome<R: Read + Seek>(recording: &Recording<R>, filter: &Filter, out: &mut dyn Write) -> Result<()> {
    written(write!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":["))?;
    let mut separator = "\n";
    for run in &recording.runs {
        let (pid, exe) = (run.process.pid, &run.process.exe);
        let event = json!({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": exe}});
        written(write!(out, "{separator}{event}"))?;
        separator = ",\n";
    }
    for thread in &recording.threads {
        let (pid, tid) = (thread.task.pid, thread.task.tid);
        let event =
            json!({"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": thread.task.name}});
        written(write!(out, "{separator}{event}"))?;
        separator = ",\n";
        let mut steps = Steps::new(recording, thread, filter);
        while let Some(Shown { step, .. }) = steps.next_step()? {
            let (phase, arguments) = match &step {
                Step::Begin(call) => ("B", arguments(call)),
                Step::End(call) => ("E", result(call)),
            };
            let (name, time) = (json!(recording.name(step.call().function)), microseconds(step.time()));
            let event =
                format!("{{\"ph\":\"{phase}\",\"ts\":{time},\"pid\":{pid},\"tid\":{tid},\"name\":{name}{arguments}}}");
            written(write!(out, "{separator}{event}"))?;
        }
    }
    written(writeln!(out, "\n]}}"))
}

fn arguments(call: &Call) -> String {
    let words: Vec<String> = call.words.iter().map(|word| format!("{word:#x}")).collect();
    if words.is_empty() { String::new() } else { format!(",\"args\":{}", json!({"words": words})) }
}

fn result(call: &Call) -> String {
    let result = call.result.map(|result| format!(",\"args\":{}", json!({"result": format!("{result:#x}")})));
    result.unwrap_or_default()
}
