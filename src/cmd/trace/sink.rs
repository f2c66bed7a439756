//! From a running program to the file of a recording.

use std::collections::HashSet;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

use codegen::words::input;
use session::clock;
use session::debug_info;
use session::forms::{How, What};
use session::function;
use session::maps::Mapping;
use session::objects::Numbered;
use session::pool::Owner;
use session::protocol::Moment;
use session::signature::Signature;
use session::sink::{Begun, Sink};
use trace::file::{
    ClockPair, End, Function, Functions, Kind, Loaded, Lost, Number, Object, Parameter, Process, Range, Status, Task,
    Why, Writer,
};

/// Nanoseconds between pairs of clocks that are written.
const OFTEN: u64 = 1_000_000;

/// Writes what is recorded.
pub struct ToFile<W> {
    writer: Writer<W>,
    what: What,
    /// The last pair of clocks, in nanoseconds.
    paired: u64,
    threads: HashSet<(u32, u32)>,
}

impl<W: Write> ToFile<W> {
    /// To a file that has its first block.
    pub fn new(writer: Writer<W>, what: What) -> ToFile<W> {
        ToFile { writer, what, paired: 0, threads: HashSet::new() }
    }

    /// How many threads have recorded, and how many bytes the file has.
    pub fn size(&self) -> (usize, u64) {
        (self.threads.len(), self.writer.bytes())
    }

    fn clocks(&mut self, pid: u32, at: Moment) -> io::Result<()> {
        if at.monotonic < self.paired + OFTEN {
            return Ok(());
        }
        self.paired = at.monotonic;
        self.writer.clock(&ClockPair { pid, ticks: at.ticks, monotonic: at.monotonic })
    }
}

/// A thread's name, as long as it is there.
fn name(pid: u32, tid: u32) -> String {
    let name = input::text(Path::new(&format!("/proc/{pid}/task/{tid}/comm")));
    name.map_or_else(|_| String::new(), |name| name.trim_end().to_owned())
}

/// A function that is recorded like this.
fn function(function: &function::Function, how: How, what: What) -> Function {
    let signature = function.signature.as_ref();
    let known = |signature: &Signature| match &signature.parameters {
        Ok(parameters) => parameters.iter().map(|p| parameter(p.name.clone(), p.word.ok())).collect(),
        Err(_) => vec![parameter(String::new(), None)],
    };
    let result = signature.filter(|_| what.result && how == How::Shadow).and_then(|s| s.result.ok());
    Function {
        offset: function.address,
        size: function.size,
        name: function.name.clone(),
        site: function.site,
        entry_only: what.returns && how == How::Entry,
        parameters: signature.filter(|_| what.args).map(known).unwrap_or_default(),
        result: result.map(number),
    }
}

fn parameter(name: String, word: Option<(u8, debug_info::Number)>) -> Parameter {
    Parameter { name, word: word.map(|(word, of)| (word, number(of))) }
}

fn number(number: debug_info::Number) -> Number {
    let kind = match number.kind {
        debug_info::Kind::Signed => Kind::Signed,
        debug_info::Kind::Unsigned => Kind::Unsigned,
        debug_info::Kind::Pointer => Kind::Pointer,
        debug_info::Kind::Boolean => Kind::Boolean,
    };
    Number { bytes: number.bytes, kind }
}

fn flags(mapping: &Mapping) -> String {
    let flag = |(n, letter): (u32, char)| if mapping.protection >> n & 1 == 1 { letter } else { '-' };
    (0..).zip("rwx".chars()).map(flag).chain(['p']).collect()
}

impl<W: Write + Send> Sink for ToFile<W> {
    fn process(&mut self, begun: &Begun) -> io::Result<()> {
        let Begun { pid, parent, exe, at } = begun;
        let process = Process { pid: *pid, parent: Some(*parent), exe: exe.clone(), started: at.monotonic };
        self.writer.process(&process)?;
        self.clocks(*pid, *at)
    }

    fn object(&mut self, object: &Numbered, how: How) -> io::Result<()> {
        let Numbered { id, first, object } = object;
        let path = object.path.display().to_string();
        self.writer.object(&Object { id: *id, path, build_id: object.build_id.clone() })?;
        let functions = object.functions.iter().map(|f| function(f, how, self.what));
        self.writer.functions(&Functions { object: *id, first: *first, functions: functions.collect() })
    }

    fn loaded(&mut self, pid: u32, object: &Numbered, base: u64, maps: &[Mapping]) -> io::Result<()> {
        let range = |m: &Mapping| Range { start: m.range.start, end: m.range.end, offset: m.offset, flags: flags(m) };
        self.writer.loaded(&Loaded { pid, object: object.id, base, ranges: maps.iter().map(range).collect() })
    }

    fn records(&mut self, owner: Owner, taken: Moment, words: &[u64]) -> io::Result<()> {
        let Owner { pid, tid, serial } = owner;
        if self.threads.insert((pid, tid)) || serial == 0 {
            self.writer.task(&Task { pid, tid, name: name(pid, tid), started: taken.monotonic })?;
        }
        self.clocks(pid, taken)?;
        self.writer.packed(pid, tid, serial, words)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    fn end(&mut self, pid: u32, status: Option<ExitStatus>, lost: u64, now: Option<Moment>) -> io::Result<()> {
        if lost > 0 {
            self.writer.lost(&Lost { pid, tid: pid, records: lost, why: Why::Full })?;
        }
        self.paired = 0;
        now.map_or(Ok(()), |now| self.clocks(pid, now))?;
        let status = match status.map(|status| (status.code(), status.signal())) {
            Some((Some(code), _)) => Status::Exited(code),
            Some((None, Some(signal))) => Status::Signalled(signal),
            Some((None, None)) => Status::Running,
            None => Status::Unknown,
        };
        self.writer.end(&End { pid, status, ended: clock::monotonic() })
    }
}
