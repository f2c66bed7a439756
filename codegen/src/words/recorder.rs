//! Trampolines that write records themselves: their events, and the layout of records.
//!
//! A record has 16 bytes, and 8 more for each word: the time, the event, the words. Records lie one behind the other in a
//! buffer of the thread. Two words of the thread describe the buffer: the cursor, where the next record begins, and the
//! limit, at or behind which no record begins. One instruction takes a slot and moves the cursor, so that a signal comes
//! either before both or after both. The buffer reaches [`Recorder::LARGEST`] bytes behind the limit, or
//! [`Recorder::LARGEST_PAIR`].
//!
//! Under the shadow form the thread has two words more: the place of its shadow stack's next entry, and the stack's end. A
//! function finds its own entry by SP. Entries above that one belong to functions that did not return.

use crate::words::abi::{Abi, Reg};
use crate::words::error::{Error, Result};

/// The events that are recorded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Events {
    /// No records: each entry adds one to a counter of the thread.
    Count,
    /// A record at each entry.
    Entry,
    /// A record at each entry, and one at each return.
    Both,
}

impl Events {
    /// All values.
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
    /// No value has this name; the message lists the valid names.
    pub fn named(name: &str) -> Result<Events> {
        let found = Events::ALL.into_iter().find(|events| events.name() == name);
        found.ok_or_else(|| Error::unknown("events", name, Events::ALL.map(Events::name)))
    }
}

/// The source of the time in records.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Clock {
    /// No clock: the time is 0, and in the second record of a pair it is the cursor.
    None,
    /// The CPU's clock, in each record.
    Tsc,
    /// The CPU's clock, in each record in which a multiple of [`Recorder::BLOCK`] bytes lies; 0 in the others.
    Stamp8,
    /// A variable in memory, which other code keeps up to date.
    Word,
}

impl Clock {
    /// All values.
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

    /// Is it the CPU's clock?
    pub fn of_cpu(self) -> bool {
        matches!(self, Clock::Tsc | Clock::Stamp8)
    }

    /// The clock with this name.
    ///
    /// # Errors
    /// No clock has this name; the message lists the valid names.
    pub fn named(name: &str) -> Result<Clock> {
        let found = Clock::ALL.into_iter().find(|clock| clock.name() == name);
        found.ok_or_else(|| Error::unknown("clock", name, Clock::ALL.map(Clock::name)))
    }
}

/// The event of a record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Event {
    /// The traced function begins.
    Entry,
    /// The traced function has returned.
    Exit,
    /// An exception or a forced unwind has left the traced function.
    Unwound,
}

impl Event {
    /// The event's number in a record. 0 is no event: it means that nothing was written to the slot.
    pub const fn number(self) -> i32 {
        match self {
            Event::Entry => 1,
            Event::Exit => 2,
            Event::Unwound => 3,
        }
    }
}

/// The parameters of a trampoline that records.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Recorder {
    /// The events that the trampoline records.
    pub events: Events,
    /// The source of the time.
    pub clock: Clock,
    /// The number of the function in its records, up to [`Recorder::LAST_ID`].
    pub id: u32,
    /// The number of argument registers in the record of an entry, up to [`Recorder::MOST_ARGS`].
    pub args: u8,
    /// The record of a return has the first result register.
    pub result: bool,
    /// An exception that leaves the function is an event: the trampoline has a landing pad, which records it and resumes.
    pub unwind: bool,
    /// If the buffer has no room, the trampoline calls a routine that may make room, and then takes a slot again.
    pub refill: bool,
    /// While the function runs, nothing of the trampoline is on its stack: the return address is on a shadow stack of the
    /// thread. If the shadow stack has no room, the call is not traced.
    pub shadow: bool,
    /// The trampoline takes one slot at the entry for both records of a call: the return's record behind the entry's.
    pub pair: bool,
    /// Caller-saved registers are preserved too, at the entry and at the return: the caller of a local function may know which of
    /// them the function does not use, and keep values there.
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
    /// Bytes of records that share one time under [`Clock::Stamp8`]: eight records without words.
    pub const BLOCK: i32 = 128;
    /// The value that stands for a slot if there is none for both records of a call. Real slots are at multiples of 8.
    pub const NO_SLOT: i32 = 1;
    /// Bytes of an entry of the shadow stack: the return address, and then SP as it is when the function has returned.
    pub const KEPT: i32 = 16;
    /// The offset of SP in an entry of the shadow stack. SP is 0 in the bottom entry.
    pub const KEPT_SP: i32 = 8;
    /// The offset of the time in a record.
    pub const TIME: i32 = 0;
    /// The offset of a record's second word: the event, the function's number, and the number of words.
    pub const WHAT: i32 = 8;
    /// The offset of the optional words in a record.
    pub const WORDS: i32 = 16;

    /// The parameters for records without optional words, and without any further promise.
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

    /// Refuse parameters that the shadow form or pairs do not support.
    ///
    /// # Errors
    /// The parameters have such a combination.
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

    /// The events with a record if the function returns, in order.
    pub fn recorded(self) -> &'static [Event] {
        match self.events {
            Events::Count => &[],
            Events::Entry => &[Event::Entry],
            Events::Both => &[Event::Entry, Event::Exit],
        }
    }

    /// The events with a record if an exception leaves the function, in order.
    pub fn unwound(self) -> &'static [Event] {
        match self.events {
            Events::Both if self.unwind => &[Event::Entry, Event::Unwound],
            _ => &[],
        }
    }

    /// All events that may have records.
    pub fn possible(self) -> impl Iterator<Item = Event> {
        let last = self.unwound().last();
        self.recorded().iter().chain(last).copied()
    }

    /// Is a frame with the function's caller on the stack when the record of an event is written?
    pub fn has_frame(self, event: Event) -> bool {
        self.events == Events::Both && !self.shadow && event != Event::Entry
    }

    /// Bytes of the record of an event.
    pub fn bytes(self, event: Event) -> i32 {
        Recorder::WORDS + 8 * self.words(event)
    }

    /// Bytes of the slot that is taken for an event.
    pub fn slot_bytes(self, event: Event) -> i32 {
        let both = self.pair && event == Event::Entry;
        self.bytes(event) + if both { self.bytes(Event::Exit) } else { 0 }
    }

    /// The offset of an event's record in its slot.
    pub fn begins(self, event: Event) -> i32 {
        if self.pair && event != Event::Entry { self.bytes(Event::Entry) } else { 0 }
    }

    /// The number of words behind the first two in the record of an event.
    pub fn words(self, event: Event) -> i32 {
        match event {
            Event::Entry => self.args.into(),
            Event::Exit => self.result.into(),
            Event::Unwound => 0,
        }
    }

    /// The registers in the optional words of a record: arguments at the entry, the result at the return.
    pub fn registers(self, event: Event, abi: &Abi) -> &'static [Reg] {
        let all = match event {
            Event::Entry => abi.args,
            Event::Exit => abi.rets,
            Event::Unwound => &[],
        };
        &all[..all.len().min(self.words(event) as usize)]
    }

    /// The second word of a record: the number of the function from bit 8 on, the number of words in the four bits below, and
    /// the number of the event in the lowest four.
    pub fn what(self, event: Event) -> i32 {
        (self.id as i32) << 8 | self.words(event) << 4 | event.number()
    }
}
