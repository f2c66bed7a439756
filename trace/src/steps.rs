//! The calls of a thread, and of all threads in the order of time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{Read, Seek};

use codegen::words::error::Result;

use crate::calls::{Cuts, Ending, Nest};
use crate::file::Events;
use crate::filter::{Filter, Filtering, Shown};
use crate::recording::{Recording, Thread, Unit};
use crate::records::{Record, Records};

/// The beginnings and ends of a thread's calls, in their order.
pub struct Steps<'r, R> {
    recording: &'r Recording<R>,
    thread: &'r Thread,
    records: Records<'r, R>,
    nest: Nest,
    filtering: Filtering<'r>,
    ready: VecDeque<Shown>,
    last: u64,
    begun: bool,
    finished: bool,
}

impl<'r, R: Read + Seek> Steps<'r, R> {
    /// The steps of one thread that pass the filter.
    pub fn new(recording: &'r Recording<R>, thread: &'r Thread, filter: &'r Filter) -> Steps<'r, R> {
        Steps {
            recording,
            thread,
            records: Records::new(recording, thread),
            nest: Nest::default(),
            filtering: Filtering::new(filter),
            ready: VecDeque::new(),
            last: 0,
            begun: false,
            finished: false,
        }
    }

    /// How many bytes so far were no record that was completed.
    pub fn unread(&self) -> u64 {
        self.records.unread()
    }

    /// The next one.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn next_step(&mut self) -> Result<Option<Shown>> {
        while self.ready.is_empty() && !self.finished {
            match self.records.next_record()? {
                Some(record) => self.add(record)?,
                None => self.finish(),
            }
        }
        Ok(self.ready.pop_front())
    }

    fn add(&mut self, record: Record) -> Result<()> {
        let cut = if self.begun { Vec::new() } else { self.cut()? };
        let entry_only = self.is_entry_only(record.function);
        let Steps { nest, filtering, ready, .. } = self;
        let mut show = |step| filtering.add(step, &mut |shown| ready.push_back(shown));
        if !self.begun {
            *nest = Nest::beginning(&cut, record.time, &mut show);
        }
        self.begun = true;
        self.last = record.time;
        nest.add(record, entry_only, &mut show);
        Ok(())
    }

    fn finish(&mut self) {
        let ended = self.recording.runs.get(self.thread.run).and_then(|run| run.end.as_ref()).map(|end| end.ended);
        let ended = ended.filter(|_| self.recording.unit() == Unit::Nanoseconds);
        let Steps { nest, filtering, ready, .. } = self;
        let mut show = |step| filtering.add(step, &mut |shown| ready.push_back(shown));
        nest.finish(ended.unwrap_or(0).max(self.last), Ending::Open, &mut show);
        self.finished = true;
    }

    /// Read all records once for the calls that began before the first.
    fn cut(&self) -> Result<Vec<u32>> {
        let mut records = Records::new(self.recording, self.thread);
        let mut cuts = Cuts::default();
        while let Some((function, what)) = records.next_event()? {
            if !self.is_entry_only(function) {
                cuts.add(function, what);
            }
        }
        Ok(cuts.found)
    }

    fn is_entry_only(&self, function: u32) -> bool {
        let only = |function| self.recording.function(function).is_some_and(|traced| traced.function.entry_only);
        self.recording.session.events != Events::Both || only(function)
    }
}

/// The steps of all threads in the order of time. Without a common clock, it is one thread after the other.
pub struct Merged<'r, R> {
    threads: Vec<Steps<'r, R>>,
    /// The next step of each thread.
    next: Vec<Option<Shown>>,
    /// Its time, and the thread.
    order: BinaryHeap<Reverse<(u64, usize)>>,
    timed: bool,
}

impl<'r, R: Read + Seek> Merged<'r, R> {
    /// Those that the filter shows.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn new(recording: &'r Recording<R>, filter: &'r Filter) -> Result<Merged<'r, R>> {
        let threads: Vec<_> = recording.threads.iter().map(|thread| Steps::new(recording, thread, filter)).collect();
        let next = threads.iter().map(|_| None).collect();
        let timed = recording.unit() != Unit::Order;
        let mut merged = Merged { next, threads, order: BinaryHeap::new(), timed };
        (0..merged.threads.len()).try_for_each(|thread| merged.advance(thread))?;
        Ok(merged)
    }

    /// The next one, with the index of its thread in [`Recording::threads`].
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn next_step(&mut self) -> Result<Option<(usize, Shown)>> {
        let Some(Reverse((_, thread))) = self.order.pop() else { return Ok(None) };
        let step = self.next.get_mut(thread).and_then(Option::take);
        self.advance(thread)?;
        Ok(step.map(|step| (thread, step)))
    }

    /// How many bytes so far were no record that was completed.
    pub fn unread(&self) -> u64 {
        self.threads.iter().map(Steps::unread).sum()
    }

    fn advance(&mut self, thread: usize) -> Result<()> {
        self.next[thread] = self.threads[thread].next_step()?;
        if let Some(shown) = &self.next[thread] {
            let time = if self.timed { shown.step.time() } else { 0 };
            self.order.push(Reverse((time, thread)));
        }
        Ok(())
    }
}
