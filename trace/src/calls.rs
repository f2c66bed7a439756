//! From records to calls.

use rustc_hash::FxHashMap;

use crate::records::{Record, What};

/// The way in which a call ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Ending {
    /// The call returned.
    Returned,
    /// An exception or a forced unwind left it.
    Exception,
    /// The call did not return, and an outer function did: by `longjmp`, or by an exception that trampolines do not record.
    Left,
    /// The thread ended, for example by `pthread_exit`.
    Thread,
    /// The call was running when the recording ended.
    Open,
    /// Only its entry is recorded.
    Unrecorded,
}

/// A call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// The function's number.
    pub function: u32,
    /// The number of calls that surround it.
    pub depth: usize,
    /// When it began.
    pub begin: u64,
    /// The call began before the first record of its thread. `begin` is the time of that record.
    pub cut: bool,
    /// When it ended.
    pub end: u64,
    /// The way in which it ended.
    pub ending: Ending,
    /// Another call of the same function, inside of this one, returned; as nothing but the function's number is recorded, that one
    /// may be what was left, and this one what returned. Only calls that were left have this.
    pub ambiguous: bool,
    /// Argument registers.
    pub words: Vec<u64>,
    /// The first result register.
    pub result: Option<u64>,
}

impl Call {
    /// The duration.
    pub fn total(&self) -> u64 {
        self.end.saturating_sub(self.begin)
    }
}

/// The beginning or the end of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// A call begins. Its end is not known yet, and has the time of its beginning.
    Begin(Call),
    /// A call ends.
    End(Call),
}

impl Step {
    /// The call.
    pub fn call(&self) -> &Call {
        match self {
            Step::Begin(call) | Step::End(call) => call,
        }
    }

    /// When it happened.
    pub fn time(&self) -> u64 {
        match self {
            Step::Begin(call) => call.begin,
            Step::End(call) => call.end,
        }
    }
}

/// A call that has begun.
struct Open {
    call: Call,
    /// The number of the call among the thread's calls.
    number: u64,
}

/// The calls of one thread that have begun and not ended. A return ends the innermost call of its function; calls within that one
/// were left.
#[derive(Default)]
pub struct Nest {
    open: Vec<Open>,
    begun: u64,
    /// By function, the number of the last of its calls that returned.
    returned: FxHashMap<u32, u64>,
}

impl Nest {
    /// A nest whose outermost calls began before the first record; the outermost is the last. See [`Cuts`].
    pub(crate) fn beginning(cut: &[u32], time: u64, steps: &mut impl FnMut(Step)) -> Nest {
        let mut nest = Nest::default();
        for function in cut.iter().rev() {
            nest.begin(*function, time, true, Vec::new(), steps);
        }
        nest
    }

    /// The next record. `entry_only`: nothing is recorded at the end of this function.
    pub(crate) fn add(&mut self, record: Record, entry_only: bool, steps: &mut impl FnMut(Step)) {
        match record.what {
            What::Entry if entry_only => {
                self.begin(record.function, record.time, false, record.words, steps);
                self.end(record.time, Ending::Unrecorded, None, steps);
            }
            What::Entry => self.begin(record.function, record.time, false, record.words, steps),
            What::Return => self.ended(record, Ending::Returned, steps),
            What::Exception => self.ended(record, Ending::Exception, steps),
            What::ThreadEnd => self.finish(record.time, Ending::Thread, steps),
        }
    }

    /// The thread ends, or the recording.
    pub(crate) fn finish(&mut self, time: u64, ending: Ending, steps: &mut impl FnMut(Step)) {
        while !self.open.is_empty() {
            self.end(time, ending, None, steps);
        }
    }

    fn begin(&mut self, function: u32, begin: u64, cut: bool, words: Vec<u64>, steps: &mut impl FnMut(Step)) {
        let depth = self.open.len();
        let (ending, ambiguous, result) = (Ending::Open, false, None);
        let call = Call { function, depth, begin, cut, end: begin, ending, ambiguous, words, result };
        steps(Step::Begin(call.clone()));
        self.begun += 1;
        self.open.push(Open { call, number: self.begun });
    }

    fn ended(&mut self, record: Record, ending: Ending, steps: &mut impl FnMut(Step)) {
        // Where there is none, the caller's list of cut calls was not of these records.
        let Some(at) = self.open.iter().rposition(|open| open.call.function == record.function) else { return };
        while self.open.len() > at + 1 {
            self.end(record.time, Ending::Left, None, steps);
        }
        self.returned.insert(record.function, self.open[at].number);
        self.end(record.time, ending, record.words.first().copied(), steps);
    }

    fn end(&mut self, time: u64, ending: Ending, result: Option<u64>, steps: &mut impl FnMut(Step)) {
        let Some(Open { mut call, number }) = self.open.pop() else { return };
        let inner = || self.returned.get(&call.function).is_some_and(|last| *last > number);
        call.ambiguous = ending == Ending::Left && inner();
        call.end = time.max(call.begin);
        call.ending = ending;
        call.result = result;
        steps(Step::End(call));
    }
}

/// What began before the first record: functions whose returns have no entry.
#[derive(Default)]
pub(crate) struct Cuts {
    open: Vec<u32>,
    /// The innermost first.
    pub found: Vec<u32>,
}

impl Cuts {
    /// The next record, unless nothing is recorded at the end of its function.
    pub fn add(&mut self, function: u32, what: What) {
        match what {
            What::Entry => return self.open.push(function),
            What::ThreadEnd => return self.open.clear(),
            What::Return | What::Exception => {}
        }
        match self.open.iter().rposition(|open| *open == function) {
            Some(at) => self.open.truncate(at),
            None => {
                self.open.clear();
                self.found.push(function);
            }
        }
    }
}
