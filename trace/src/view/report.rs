//! The report: the number of calls of each function, and their times.

use std::collections::BTreeMap;
use std::io::{Read, Seek, Write};

use codegen::words::error::Result;
use codegen::words::shown::printable;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::calls::{Call, Ending, Step};
use crate::file::Why;
use crate::filter::{Filter, Shown};
use crate::recording::{Recording, Unit};
use crate::steps::Steps;
use crate::text::{duration, written};

/// By what rows are sorted, the largest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// The time with callees.
    Total,
    /// The time without callees.
    Own,
    /// The number of calls.
    Calls,
    /// The name, in the order of the alphabet.
    Function,
}

/// A function, or a function as another one calls it.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize)]
pub struct Row {
    /// The function's name.
    pub function: String,
    /// The base name of its object.
    pub object: String,
    /// The caller's name, if rows are by caller; empty for what no traced function called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// The time with callees. Of recursion, that of the outermost call.
    pub total: u64,
    /// The time without callees.
    #[serde(rename = "self")]
    pub own: u64,
    /// The number of calls.
    pub calls: u64,
    /// The number of calls that an exception ended.
    pub exceptions: u64,
    /// The number of calls that were left without a return.
    pub left: u64,
    /// How many of those may have returned, and an inner call of the same function was left.
    pub ambiguous: u64,
    /// The number of calls that ended with their thread.
    pub with_thread: u64,
    /// The number of calls that were running at the end.
    pub open: u64,
    /// The number of calls that began before the first record of their thread.
    pub cut: u64,
}

impl Row {
    fn count(&mut self, call: &Call, own: u64, outermost: bool) {
        let one = |is: bool| u64::from(is);
        self.total = self.total.saturating_add(if outermost { call.total() } else { 0 });
        self.own = self.own.saturating_add(own);
        self.calls += 1;
        self.exceptions += one(call.ending == Ending::Exception);
        self.left += one(call.ending == Ending::Left);
        self.ambiguous += one(call.ambiguous);
        self.with_thread += one(call.ending == Ending::Thread);
        self.open += one(call.ending == Ending::Open);
        self.cut += one(call.cut);
    }
}

/// A report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    /// The version of this format.
    pub version: u32,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The unit of times: `ns`, `ticks`, or `order` where there are none.
    pub unit: &'static str,
    /// The frequency of the CPU's clock in Hz, as it was compared with CLOCK_MONOTONIC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_hz: Option<u64>,
    /// The number of threads.
    pub threads: usize,
    /// The number of calls that are shown.
    pub calls: u64,
    /// The number of lost records, by the reason.
    pub lost: BTreeMap<Why, u64>,
    /// Bytes of buffers that are no completed record.
    pub unread: u64,
    /// The file ends within a block.
    pub cut: bool,
    /// The functions.
    pub rows: Vec<Row>,
    #[serde(skip)]
    of: Unit,
}

/// Rows by function, and by caller if that is asked for.
type Rows = FxHashMap<(Option<Option<u32>>, u32), Row>;

impl Report {
    /// Count.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn new<R: Read + Seek>(recording: &Recording<R>, filter: &Filter, by_caller: bool, key: Key) -> Result<Report> {
        let (mut rows, mut unread) = (Rows::default(), 0);
        for thread in &recording.threads {
            let mut steps = Steps::new(recording, thread, filter);
            add(&mut steps, by_caller, &mut rows)?;
            unread += steps.unread();
        }
        let mut rows: Vec<Row> = rows.into_iter().map(|(of, row)| named(recording, of, row)).collect();
        rows.sort_by(|a, b| (&a.function, &a.caller, &a.object).cmp(&(&b.function, &b.caller, &b.object)));
        match key {
            Key::Total => rows.sort_by_key(|row| std::cmp::Reverse(row.total)),
            Key::Own => rows.sort_by_key(|row| std::cmp::Reverse(row.own)),
            Key::Calls => rows.sort_by_key(|row| std::cmp::Reverse(row.calls)),
            Key::Function => {}
        }
        let of = recording.unit();
        let unit = match of {
            Unit::Nanoseconds => "ns",
            Unit::Ticks => "ticks",
            Unit::Order => "order",
        };
        let command = recording.session.command.clone();
        let (threads, calls) = (recording.threads.len(), rows.iter().map(|row| row.calls).sum());
        let (lost, cut) = (recording.lost(), recording.cut.is_some());
        let clock_hz = recording.frequency();
        Ok(Report { version: 1, command, unit, clock_hz, threads, calls, lost, unread, cut, rows, of })
    }

    /// Write it as a table.
    ///
    /// # Errors
    /// The output has one.
    pub fn text(&self, out: &mut dyn Write) -> Result<()> {
        let timed = self.of != Unit::Order;
        let times = if timed { format!("{:>14}  {:>14}  ", "Total time", "Self time") } else { String::new() };
        let callers = self.rows.iter().any(|row| row.caller.is_some());
        written(writeln!(out, "{times}{:>10}  {}", "Calls", if callers { "Caller > Function" } else { "Function" }))?;
        for row in &self.rows {
            let times = format!("{}  {}  ", duration(row.total, self.of), duration(row.own, self.of));
            let times = if timed { &*times } else { "" };
            let caller = row.caller.as_ref().map_or(String::new(), |caller| match caller.is_empty() {
                true => "> ".to_owned(),
                false => printable(caller) + " > ",
            });
            written(writeln!(out, "{times}{:>10}  {caller}{}", row.calls, printable(&row.function)))?;
        }
        self.notes().iter().try_for_each(|note| written(writeln!(out, "# {note}")))?;
        let Some(hz) = self.clock_hz else { return Ok(()) };
        written(writeln!(out, "# the CPU's clock: {:.3} MHz", hz as f64 / 1e6))
    }

    /// What has to be known of the numbers, a sentence each.
    pub fn notes(&self) -> Vec<String> {
        let sum = |of: fn(&Row) -> u64| self.rows.iter().map(of).sum::<u64>();
        let mut notes = Vec::new();
        let mut note = |count: u64, text: &str| {
            if count > 0 {
                notes.push(format!("{text}: {count}"));
            }
        };
        note(sum(|row| row.exceptions), "calls that an exception ended");
        note(sum(|row| row.left), "calls left without a return, as by longjmp");
        note(sum(|row| row.ambiguous), "recursive ones of these, of which either call may be the one that was left");
        note(sum(|row| row.with_thread), "calls that ended with their thread, as by pthread_exit");
        note(sum(|row| row.open), "calls running at the end");
        note(sum(|row| row.cut), "calls begun before the first record");
        for (why, count) in &self.lost {
            note(*count, lost(*why));
        }
        note(self.unread, "bytes of records that were not completed");
        if self.cut {
            notes.push("the file ends within a block: the tracer was killed, or the disk was full".to_owned());
        }
        if self.of == Unit::Ticks {
            notes.push("times are ticks of the CPU's clock: the file has fewer than two clock pairs".to_owned());
        }
        notes
    }
}

/// The records that are lost for one reason.
fn lost(why: Why) -> &'static str {
    match why {
        Why::Full => "records lost because the buffer was full",
        Why::Depth => "calls lost because they lay too deep in each other",
        Why::Memory => "records lost because there was no memory for a buffer",
        Why::Limit => "records lost because the file has reached its limit",
    }
}

fn named<R>(recording: &Recording<R>, of: (Option<Option<u32>>, u32), row: Row) -> Row {
    let (caller, function) = of;
    let object = recording.object_of(function).map_or("", |object| object.path.rsplit('/').next().unwrap_or(""));
    let name = |caller: Option<u32>| caller.map_or(String::new(), |caller| recording.name(caller).to_owned());
    let function = recording.name(function).to_owned();
    Row { function, object: object.to_owned(), caller: caller.map(name), ..row }
}

/// Count the calls of a thread.
fn add<R: Read + Seek>(steps: &mut Steps<R>, by_caller: bool, rows: &mut Rows) -> Result<()> {
    let mut open: Vec<u32> = Vec::new();
    let mut depth: FxHashMap<u32, u64> = FxHashMap::default();
    while let Some(Shown { step, own }) = steps.next_step()? {
        match step {
            Step::Begin(call) => {
                *depth.entry(call.function).or_default() += 1;
                open.push(call.function);
            }
            Step::End(call) => {
                open.pop();
                let level = depth.entry(call.function).or_default();
                *level = level.saturating_sub(1);
                let outermost = *level == 0;
                let caller = by_caller.then(|| open.last().copied());
                rows.entry((caller, call.function)).or_default().count(&call, own, outermost);
            }
        }
    }
    Ok(())
}
