//! All calls in their order, those of callees indented.

use std::io::{Read, Seek, Write};

use codegen::words::error::Result;
use codegen::words::shown::printable;

use crate::calls::{Call, Ending, Step};
use crate::filter::{Filter, Shown};
use crate::names::parameters;
use crate::recording::Recording;
use crate::steps::Merged;
use crate::text::{duration, written};
use crate::values::{arguments, result};

/// Write all calls.
///
/// # Errors
/// The file cannot be read, or the output has an error.
pub fn replay<R: Read + Seek>(recording: &Recording<R>, filter: &Filter, out: &mut dyn Write) -> Result<()> {
    let mut merged = Merged::new(recording, filter)?;
    let mut begun: Vec<Option<Call>> = recording.threads.iter().map(|_| None).collect();
    written(writeln!(out, "# {:>12}  {:>9}  FUNCTION", "DURATION", "TID"))?;
    let mut lines = Lines { recording, out };
    let mut present = None;
    while let Some((thread, Shown { step, .. })) = merged.next_step()? {
        // A line is that of one thread: what another one has begun comes first.
        if let Some(call) = present.filter(|other| *other != thread).and_then(|other: usize| begun[other].take()) {
            lines.begin(present.unwrap_or(thread), &call)?;
        }
        present = Some(thread);
        match (step, begun[thread].take()) {
            (Step::Begin(call), before) => {
                before.map_or(Ok(()), |before| lines.begin(thread, &before))?;
                begun[thread] = Some(call);
            }
            (Step::End(call), Some(_)) => lines.whole(thread, &call)?,
            (Step::End(call), None) => lines.end(thread, &call)?,
        }
    }
    Ok(())
}

/// The destination of lines.
struct Lines<'r, R> {
    recording: &'r Recording<R>,
    out: &'r mut dyn Write,
}

impl<R> Lines<'_, R> {
    fn begin(&mut self, thread: usize, call: &Call) -> Result<()> {
        self.line(thread, call, None, &format!("{} {{", self.called(call)))
    }

    fn whole(&mut self, thread: usize, call: &Call) -> Result<()> {
        let text = format!("{}{};{}", self.called(call), self.result(call), remark(call, ""));
        self.line(thread, call, Some(call.total()), &text)
    }

    fn end(&mut self, thread: usize, call: &Call) -> Result<()> {
        let name = self.name(call);
        let result = self.result(call);
        let result = if result.is_empty() { result } else { result + ";" };
        self.line(thread, call, Some(call.total()), &format!("}}{result}{}", remark(call, &name)))
    }

    fn line(&mut self, thread: usize, call: &Call, total: Option<u64>, text: &str) -> Result<()> {
        /// More is not indented: recursion may go on for millions.
        const DEEPEST: usize = 500;
        let Recording { threads, .. } = self.recording;
        let tid = threads.get(thread).map_or(0, |thread| thread.task.tid);
        let total = total.map_or(String::new(), |total| duration(total, self.recording.unit()));
        let indent = 2 * call.depth.min(DEEPEST);
        written(writeln!(self.out, "{total:>14} [{tid:>7}] | {:indent$}{text}", ""))
    }

    fn name(&self, call: &Call) -> String {
        printable(self.recording.name(call.function))
    }

    /// The name and what it is called with; where nothing of that is recorded, parameters that are part of the name.
    fn called(&self, call: &Call) -> String {
        let all: Vec<String> = arguments(self.recording, call).iter().map(ToString::to_string).collect();
        let name = self.recording.name(call.function);
        let text = match parameters(name) {
            Some(_) if all.is_empty() => name.to_owned(),
            Some(at) => format!("{}({}){}", &name[..at.start], all.join(", "), &name[at.end..]),
            None => format!("{name}({})", all.join(", ")),
        };
        printable(&text)
    }

    fn result(&self, call: &Call) -> String {
        result(self.recording, call).map_or(String::new(), |result| format!(" = {result}"))
    }
}

/// A comment: the function's name, if that is on another line, and what is unusual about the call.
fn remark(call: &Call, name: &str) -> String {
    let ending = match call.ending {
        Ending::Returned | Ending::Unrecorded => "",
        Ending::Exception => "exception",
        Ending::Left if call.ambiguous => "left, or an inner call was",
        Ending::Left => "left",
        Ending::Thread => "ended with its thread",
        Ending::Open => "running",
    };
    let cut = if call.cut { "begun before the first record" } else { "" };
    let words: Vec<&str> = [name, ending, cut].into_iter().filter(|word| !word.is_empty()).collect();
    if words.is_empty() { String::new() } else { format!(" /* {} */", words.join(": ")) }
}
