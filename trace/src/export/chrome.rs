//! The JSON that chrome://tracing, Perfetto and speedscope read.

use std::io::{Read, Seek, Write};

use codegen::words::error::Result;
use serde_json::json;

use crate::calls::{Call, Step};
use crate::filter::{Filter, Shown};
use crate::recording::Recording;
use crate::steps::Steps;
use crate::text::{microseconds, written};
use crate::values;

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
                Step::Begin(call) => ("B", arguments(recording, call)),
                Step::End(call) => ("E", result(recording, call)),
            };
            let (name, time) = (json!(recording.name(step.call().function)), microseconds(step.time()));
            let event =
                format!("{{\"ph\":\"{phase}\",\"ts\":{time},\"pid\":{pid},\"tid\":{tid},\"name\":{name}{arguments}}}");
            written(write!(out, "{separator}{event}"))?;
        }
    }
    written(writeln!(out, "\n]}}"))
}

/// By their names; words of which nothing is known as a list.
fn arguments<R>(recording: &Recording<R>, call: &Call) -> String {
    let all = values::arguments(recording, call);
    let known =
        all.iter().enumerate().filter_map(|(i, argument)| Some((i, &argument.name, argument.value?.to_string())));
    let args = match all.iter().any(|argument| argument.name.is_some()) {
        true => {
            let name = |i, name: &Option<String>| name.clone().unwrap_or_else(|| format!("word {i}"));
            known.map(|(i, of, value)| (name(i, of), json!(value))).collect()
        }
        false => {
            let words: Vec<String> = known.map(|(_, _, value)| value).collect();
            let words = Some(words).filter(|words| !words.is_empty());
            serde_json::Map::from_iter(words.map(|words| ("words".to_owned(), json!(words))))
        }
    };
    if args.is_empty() { String::new() } else { format!(",\"args\":{}", json!(args)) }
}

fn result<R>(recording: &Recording<R>, call: &Call) -> String {
    let result = values::result(recording, call);
    result.map_or(String::new(), |result| format!(",\"args\":{}", json!({"result": result.to_string()})))
}
