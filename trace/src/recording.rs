//! A file as a whole: who ran, what was traced, and where each thread's records are.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::io::{Read, Seek};

use codegen::words::error::{Error, Result};
use rustc_hash::FxHashMap;

use crate::clock::Timeline;
use crate::file::{Block, Clock, ClockPair, End, Function, Loaded, Object, Place, Process, Reader, Session, Task, Why};
use crate::names::demangled;

/// A program as a process ran it.
pub struct Run {
    /// The process and the program.
    pub process: Process,
    /// The objects that the process has loaded.
    pub loaded: Vec<Loaded>,
    /// The end of the process; none if the file does not have it.
    pub end: Option<End>,
}

/// A thread and where its records are.
pub struct Thread {
    /// The thread.
    pub task: Task,
    /// The index of its program in [`Recording::runs`].
    pub run: usize,
    /// The thread's blocks of records, in order.
    pub(crate) blocks: Vec<Place>,
    /// The number of lost records, by the reason.
    pub lost: BTreeMap<Why, u64>,
}

/// A function with its object.
pub struct Traced {
    /// The function.
    pub function: Function,
    /// The index of its object in [`Recording::objects`].
    pub object: usize,
    name: OnceCell<String>,
}

/// The unit of times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Nanoseconds of CLOCK_MONOTONIC.
    Nanoseconds,
    /// Ticks of the CPU's clock: the file does not have two clock pairs.
    Ticks,
    /// The records of a thread are numbered: they have no times.
    Order,
}

/// A file as a whole.
pub struct Recording<R> {
    /// The run.
    pub session: Session,
    /// Each program that a process ran, in the order of the file.
    pub runs: Vec<Run>,
    /// The objects.
    pub objects: Vec<Object>,
    /// The threads, in the order of the file.
    pub threads: Vec<Thread>,
    /// The file ends within a block, at this offset.
    pub cut: Option<u64>,
    functions: FxHashMap<u32, Traced>,
    timeline: Option<Timeline>,
    reader: RefCell<Reader<R>>,
}

impl<R: Read + Seek> Recording<R> {
    /// Read all of a file but its records.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or is not a recording.
    pub fn open(from: R) -> Result<Recording<R>> {
        let mut reader = Reader::new(from)?;
        let mut parts = Parts::default();
        while let Some(block) = reader.next_block()? {
            parts.add(block)?;
        }
        let session = parts.session.ok_or_else(|| Error::damaged("it has no session"))?;
        Ok(Recording {
            session,
            runs: parts.runs,
            objects: parts.objects,
            threads: parts.threads,
            cut: reader.cut(),
            functions: parts.functions,
            timeline: Timeline::new(&parts.pairs),
            reader: RefCell::new(reader),
        })
    }

    /// Read a block of records.
    pub(crate) fn load(&self, place: Place, to: &mut Vec<u8>) -> Result<()> {
        self.reader.borrow_mut().load(place, to)
    }
}

impl<R> Recording<R> {
    /// The unit of all times of calls.
    pub fn unit(&self) -> Unit {
        match (self.session.clock, &self.timeline) {
            (Clock::None, _) => Unit::Order,
            (_, Some(_)) => Unit::Nanoseconds,
            (_, None) => Unit::Ticks,
        }
    }

    /// The frequency of the clock in the records, in Hz, as pairs of readings of both clocks show it; none without two pairs.
    pub fn frequency(&self) -> Option<u64> {
        let timeline = self.timeline.as_ref().filter(|_| self.session.clock != Clock::None);
        timeline.map(Timeline::frequency)
    }

    /// A time of the records in this unit. `near` is for [`Timeline::nanoseconds`].
    pub(crate) fn time(&self, ticks: u64, near: &mut usize) -> u64 {
        self.timeline.as_ref().map_or(ticks, |line| line.nanoseconds(ticks, near))
    }

    /// The function of this number.
    pub fn function(&self, number: u32) -> Option<&Traced> {
        self.functions.get(&number)
    }

    /// A function's name as its author wrote it.
    pub fn name(&self, number: u32) -> &str {
        let name = |traced: &Traced| demangled(&traced.function.name);
        self.functions.get(&number).map_or("?", |traced| traced.name.get_or_init(|| name(traced)))
    }

    /// The object in which a function is.
    pub fn object_of(&self, number: u32) -> Option<&Object> {
        self.functions.get(&number).and_then(|traced| self.objects.get(traced.object))
    }

    /// All functions with their numbers, by number.
    pub fn functions(&self) -> impl Iterator<Item = (u32, &Traced)> {
        let mut numbers: Vec<u32> = self.functions.keys().copied().collect();
        numbers.sort_unstable();
        numbers.into_iter().filter_map(|number| Some((number, self.functions.get(&number)?)))
    }

    /// The number of lost records, by the reason.
    pub fn lost(&self) -> BTreeMap<Why, u64> {
        let mut all = BTreeMap::new();
        for (why, records) in self.threads.iter().flat_map(|thread| &thread.lost) {
            let sum: &mut u64 = all.entry(*why).or_default();
            *sum = sum.saturating_add(*records);
        }
        all
    }
}

/// What was read so far.
#[derive(Default)]
struct Parts {
    session: Option<Session>,
    runs: Vec<Run>,
    objects: Vec<Object>,
    threads: Vec<Thread>,
    functions: FxHashMap<u32, Traced>,
    pairs: Vec<ClockPair>,
    /// Indexes of objects by number, of the present run of a process, and of the present thread of a number.
    object_of: FxHashMap<u32, usize>,
    run_of: FxHashMap<u32, usize>,
    thread_of: FxHashMap<(u32, u32), usize>,
}

impl Parts {
    fn add(&mut self, block: Block) -> Result<()> {
        match block {
            Block::Session(_) if self.session.is_some() => return Err(Error::damaged("it has two sessions")),
            Block::Session(session) => self.session = Some(session),
            Block::Process(process) => self.process(process),
            Block::Object(object) => {
                if self.object_of.insert(object.id, self.objects.len()).is_some() {
                    return Err(Error::damaged(format!("two objects have the number {}", object.id)));
                }
                self.objects.push(object);
            }
            Block::Loaded(loaded) => {
                self.object(loaded.object)?;
                let run = self.run(loaded.pid);
                self.runs[run].loaded.push(loaded);
            }
            Block::Functions(functions) => self.functions(functions.object, functions.first, functions.functions)?,
            Block::Task(task) => drop(self.begin(task)),
            Block::Clock(pair) => self.pairs.push(pair),
            Block::Records { pid, tid, place, .. } => {
                let thread = self.thread(pid, tid);
                self.threads[thread].blocks.push(place);
            }
            Block::Lost(lost) => {
                let thread = self.thread(lost.pid, lost.tid);
                let sum = self.threads[thread].lost.entry(lost.why).or_default();
                *sum = sum.saturating_add(lost.records);
            }
            Block::End(end) => {
                let run = self.run(end.pid);
                self.runs[run].end = Some(end);
            }
        }
        Ok(())
    }

    /// The threads of the program that the process ran before are no longer there.
    fn process(&mut self, process: Process) {
        self.thread_of.retain(|(pid, _), _| *pid != process.pid);
        self.run_of.insert(process.pid, self.runs.len());
        self.runs.push(Run { process, loaded: Vec::new(), end: None });
    }

    fn run(&mut self, pid: u32) -> usize {
        if let Some(&run) = self.run_of.get(&pid) {
            return run;
        }
        self.process(Process { pid, parent: None, exe: String::new(), started: 0 });
        self.runs.len() - 1
    }

    fn begin(&mut self, task: Task) -> usize {
        let run = self.run(task.pid);
        self.thread_of.insert((task.pid, task.tid), self.threads.len());
        self.threads.push(Thread { task, run, blocks: Vec::new(), lost: BTreeMap::new() });
        self.threads.len() - 1
    }

    fn thread(&mut self, pid: u32, tid: u32) -> usize {
        match self.thread_of.get(&(pid, tid)) {
            Some(&thread) => thread,
            None => self.begin(Task { pid, tid, name: String::new(), started: 0 }),
        }
    }

    fn object(&self, id: u32) -> Result<usize> {
        let missing = || Error::damaged(format!("there is no object {id} before its first use"));
        self.object_of.get(&id).copied().ok_or_else(missing)
    }

    fn functions(&mut self, object: u32, first: u32, functions: Vec<Function>) -> Result<()> {
        let object = self.object(object)?;
        for (i, function) in functions.into_iter().enumerate() {
            let number = u32::try_from(i).ok().and_then(|i| first.checked_add(i));
            let number = number.ok_or_else(|| Error::damaged("a function's number has more than 32 bits"))?;
            let traced = Traced { function, object, name: OnceCell::new() };
            if self.functions.insert(number, traced).is_some() {
                return Err(Error::damaged(format!("two functions have the number {number}")));
            }
        }
        Ok(())
    }
}
