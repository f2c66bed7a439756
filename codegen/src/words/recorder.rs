//! Trampolines that write records themselves: which events, and what a record looks like.
//!
//! A record is 16 bytes and 8 more for each word: the time, what happened, the words. Records lie one behind the other in a
//! buffer of the thread. The thread has two words for it: the cursor, where the next record begins, and the limit, at or
//! behind which none begins. One instruction takes a slot and moves the cursor, so that a signal finds it either before or
//! behind. The buffer reaches [`Recorder::LARGEST`] bytes behind the limit,
//! or [`Recorder::LARGEST_PAIR`].
//!
//! Under the shadow form the thread has two words more: where the next entry of its shadow stack goes, and where none goes any
//! more. A function finds its own entry by SP. What lies above that one is of functions that did not return.

use crate::words::abi::{Abi, Reg};
use crate::words::error::{Error, Result};

/// What is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Events {
    /// A counter of the thread goes up by one at each entry. There is no record.
    Count,
    /// A record at each entry.
    Entry,
    /// A record at each entry, and one at each return.
    Both,
}

impl Events {
    /// All of them.
    pub const ALL: [Events; 3] = [Events::Count, Events::Entry, Events::Both];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Events::Count => "count",
            Events::Entry => "entry",
            Events::Both => "both",
        }
    }

    /// The events with this name.
    ///
    /// # Errors
    /// There are none; the message lists those that there are.
    pub fn named(name: &str) -> Result<Events> {
        let found = Events::ALL.into_iter().find(|events| events.name() == name);
        found.ok_or_else(|| Error::unknown("events", name, Events::ALL.map(Events::name)))
    }
}

/// Where the time of a record comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Clock {
    /// It is 0; in the second record of a pair, the cursor.
    None,
    /// The CPU's own, in each record.
    Tsc,
    /// The CPU's own, in each record in which a multiple of [`Recorder::BLOCK`] bytes lies; 0 in the others.
    Stamp8,
    /// A variable in memory, which somebody else keeps up to date.
    Word,
}

impl Clock {
    /// All of them.
    pub const ALL: [Clock; 4] = [Clock::None, Clock::Tsc, Clock::Stamp8, Clock::Word];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Clock::None => "none",
            Clock::Tsc => "tsc",
            Clock::Stamp8 => "stamp8",
            Clock::Word => "word",
        }
    }

    /// Is it the CPU's own?
    pub fn of_cpu(self) -> bool {
        matches!(self, Clock::Tsc | Clock::Stamp8)
    }

    /// The clock with this name.
    ///
    /// # Errors
    /// There is none; the message lists those that there are.
    pub fn named(name: &str) -> Result<Clock> {
        let found = Clock::ALL.into_iter().find(|clock| clock.name() == name);
        found.ok_or_else(|| Error::unknown("clock", name, Clock::ALL.map(Clock::name)))
    }
}

/// What a record is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Event {
    /// The traced function begins.
    Entry,
    /// It has returned.
    Exit,
    /// An exception or a forced unwind has left it.
    Unwound,
}

impl Event {
    /// The number in a record. 0 is none: nobody wrote to that slot.
    pub const fn number(self) -> i32 {
        match self {
            Event::Entry => 1,
            Event::Exit => 2,
            Event::Unwound => 3,
        }
    }
}

/// What a trampoline that records does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Recorder {
    /// What it records.
    pub events: Events,
    /// Where the time comes from.
    pub clock: Clock,
    /// The number of the function in its records: up to [`Recorder::LAST_ID`].
    pub id: u32,
    /// Argument registers in the record of an entry: up to [`Recorder::MOST_ARGS`].
    pub args: u8,
    /// The record of a return has the first result register.
    pub result: bool,
    /// An exception that leaves the function is an event: the trampoline has a landing pad, which records it and resumes.
    pub unwind: bool,
    /// Where the buffer has no room, a routine is called that may make some, and a slot is taken once more.
    pub refill: bool,
    /// Nothing is on the function's stack while it runs: its return address is on a shadow stack of the thread. Without room
    /// there, it is not traced.
    pub shadow: bool,
    /// One slot is taken at the entry, for both records of a call: that of the return lies behind that of the entry.
    pub pair: bool,
    /// Registers that C functions may overwrite are kept too, at the entry and at the return: the caller of a local function may
    /// know which of them it leaves alone, and have values there.
    pub keeps_all: bool,
    /// The thread's words are in a thread-local variable, whose offset from the thread pointer linkers and loaders know.
    pub tls: bool,
}

impl Recorder {
    /// The largest number of a function: with the kind of event below it, it fits the immediate operand of an x86-64 store.
    pub const LAST_ID: u32 = (1 << 23) - 1;
    /// The most argument registers in a record.
    pub const MOST_ARGS: u8 = 6;
    /// Bytes of the largest record.
    pub const LARGEST: i32 = Recorder::WORDS + 8 * Recorder::MOST_ARGS as i32;
    /// Bytes of the largest pair of records.
    pub const LARGEST_PAIR: i32 = Recorder::LARGEST + Recorder::WORDS + 8;
    /// Bytes for which there is one time under [`Clock::Stamp8`]: eight records without words.
    pub const BLOCK: i32 = 128;
    /// In place of a slot for both records of a call: there is none. Slots are at multiples of 8.
    pub const NO_SLOT: i32 = 1;
    /// Bytes of an entry of the shadow stack: the return address, and behind it SP as it is when the function has returned.
    pub const KEPT: i32 = 16;
    /// Where in an entry SP is. It is 0 in the one below all others.
    pub const KEPT_SP: i32 = 8;
    /// Where in a record the time is.
    pub const TIME: i32 = 0;
    /// Where in a record its second word is: what happened.
    pub const WHAT: i32 = 8;
    /// Where in a record the words begin that only some have.
    pub const WORDS: i32 = 16;

    /// One with records of two words, that promises nothing besides.
    pub const fn new(events: Events, clock: Clock, id: u32) -> Recorder {
        Recorder {
            events,
            clock,
            id,
            args: 0,
            result: false,
            unwind: false,
            refill: false,
            shadow: false,
            pair: false,
            keeps_all: false,
            tls: false,
        }
    }

    /// Refuse what the shadow form and pairs cannot do.
    ///
    /// # Errors
    /// It is asked for.
    pub fn fits_form(self) -> Result<()> {
        let Recorder { events, clock, unwind, refill, shadow, .. } = self;
        let unpaired = [
            (events != Events::Both, "a call has one record alone", "--events both"),
            (shadow, "the slot has a place in a frame", "--form frame"),
            (clock == Clock::Stamp8, "its records do not follow each other", "--clock none, tsc or word"),
            (refill, "a slot is open while its function runs, in a buffer that is given away", "without --refill"),
            (unwind, "a call that an exception leaves keeps no record of its return", "without --unwind"),
        ];
        if let Some((_, what, valid)) = unpaired.iter().find(|(wrong, ..)| self.pair && *wrong) {
            return Err(Error::new(format!("record --pair: {what}; valid: {valid}")));
        }
        let unkept = [
            (events == Events::Count, "a counter keeps no more than others", "--events entry or both"),
            (events == Events::Both && !shadow, "a frame displaces the function's", "--form shadow, or --events entry"),
        ];
        if let Some((_, what, valid)) = unkept.iter().find(|(wrong, ..)| self.keeps_all && *wrong) {
            return Err(Error::new(format!("record --live all: {what}; valid: {valid}")));
        }
        match (self.events, self.unwind) {
            _ if !self.shadow => Ok(()),
            (Events::Count | Events::Entry, _) => Err(Error::new(format!(
                "record --form shadow: --events {} keeps no return address; valid: --events both",
                self.events.name()
            ))),
            (Events::Both, true) => Err(Error::new(
                "record --form shadow: unwinders do not find the function's caller, so no exception passes \
                 --unwind's landing pad; valid: --form frame, or without --unwind",
            )),
            (Events::Both, false) => Ok(()),
        }
    }

    /// The events of which there are records if the function returns, in their order.
    pub fn recorded(self) -> &'static [Event] {
        match self.events {
            Events::Count => &[],
            Events::Entry => &[Event::Entry],
            Events::Both => &[Event::Entry, Event::Exit],
        }
    }

    /// Those of which there are records if an exception leaves it.
    pub fn unwound(self) -> &'static [Event] {
        match self.events {
            Events::Both if self.unwind => &[Event::Entry, Event::Unwound],
            _ => &[],
        }
    }

    /// All events of which there may be records.
    pub fn possible(self) -> impl Iterator<Item = Event> {
        let last = self.unwound().last();
        self.recorded().iter().chain(last).copied()
    }

    /// Is there a frame with the function's caller where the record of an event is written?
    pub fn has_frame(self, event: Event) -> bool {
        self.events == Events::Both && !self.shadow && event != Event::Entry
    }

    /// Bytes of the record of an event.
    pub fn bytes(self, event: Event) -> i32 {
        Recorder::WORDS + 8 * self.words(event)
    }

    /// Bytes of the slot that is taken for it.
    pub fn slot_bytes(self, event: Event) -> i32 {
        let both = self.pair && event == Event::Entry;
        self.bytes(event) + if both { self.bytes(Event::Exit) } else { 0 }
    }

    /// Where in its slot the record of an event begins.
    pub fn begins(self, event: Event) -> i32 {
        if self.pair && event != Event::Entry { self.bytes(Event::Entry) } else { 0 }
    }

    /// Words behind the first two in the record of an event.
    pub fn words(self, event: Event) -> i32 {
        match event {
            Event::Entry => self.args.into(),
            Event::Exit => self.result.into(),
            Event::Unwound => 0,
        }
    }

    /// The registers that these words have: arguments at the entry, the result at the return.
    pub fn registers(self, event: Event, abi: &Abi) -> &'static [Reg] {
        let all = match event {
            Event::Entry => abi.args,
            Event::Exit => abi.rets,
            Event::Unwound => &[],
        };
        &all[..all.len().min(self.words(event) as usize)]
    }

    /// The second word of a record: the number of the function from bit 8 on, below it how many words follow in four bits, and
    /// the number of the event in four.
    pub fn what(self, event: Event) -> i32 {
        (self.id as i32) << 8 | self.words(event) << 4 | event.number()
    }
}
