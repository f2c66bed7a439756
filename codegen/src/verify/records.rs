//! Records: that each slot is taken in one step, asked for room, and holds what the contract says.

use super::value::{Half, Places, Root, Slot, State, Value, Why};
use super::{Checker, Property};
use crate::effect::action::{Action, Cell, Stored};
use crate::words::recorder::{Clock, Event, Events, Recorder};
use crate::words::step::Sym;

impl Checker<'_> {
    /// Follow an instruction's effects on the thread's words and on slots. Returns the value that it loads.
    pub(super) fn record_action(
        &mut self,
        line: usize,
        action: Action,
        popped: Option<Value>,
        state: &mut State,
    ) -> Option<Value> {
        match action {
            Action::AtomicAdd { add, cell, .. } => {
                let by = self.read(add, state);
                Some(self.add_to(line, cell, by, state))
            }
            Action::AddToMemory { cell, add } => {
                self.add_to(line, cell, Value::number(add.into()), state);
                None
            }
            Action::StoreAt { base, at, stored } => {
                let value = match stored {
                    Stored::Reg(reg) => self.read(reg, state),
                    Stored::Number(n) => Value::number(n.into()),
                    Stored::Popped => popped.unwrap_or(Value::lost(Why::Computed)),
                };
                self.store_at(line, self.read(base, state).plus(at.into()), value, state);
                None
            }
            Action::StoreHalfAt { base, at, src } => {
                let value = match self.read(src, state) {
                    half @ Value { root: Root::Clock(_, Some(_)), add: 0 } => half,
                    _ => Value::lost(Why::Computed),
                };
                self.store_at(line, self.read(base, state).plus(at.into()), value, state);
                None
            }
            Action::StoreThread { src, at } => {
                let value = self.read(src, state);
                match self.of_thread(Cell::Thread(at), state) {
                    Some(at) => self.store_thread(line, at, value, state),
                    None => self.fault(line, Property::Memory, "a word of the thread is changed that nobody named"),
                }
                None
            }
            _ => None,
        }
    }

    /// The offset of a word of the thread, as in the contract.
    pub(super) fn of_thread(&self, cell: Cell, state: &State) -> Option<i32> {
        match cell {
            Cell::Thread(at) => self.counts_from(at.variable()).then_some(at.value),
            Cell::At(reg) => self.thread_offset(self.read(reg, state)),
        }
    }

    /// The offset of the thread's word at an address, as in the contract.
    pub(super) fn thread_offset(&self, address: Value) -> Option<i32> {
        let counted = match address.root {
            Root::Tls(sym) => self.counts_from(Some(sym)),
            root => self.is_thread_pointer(root) && self.counts_from(None),
        };
        counted.then(|| i32::try_from(address.add).ok()).flatten()
    }

    /// Is this where the contract counts a thread's words from: its variable, or, if it names none, the thread pointer?
    fn counts_from(&self, variable: Option<Sym>) -> bool {
        let name =
            variable.map(|sym| self.symbols.get(usize::from(sym.0)).filter(|s| s.add == 0).map_or("?", |s| s.name));
        name.unwrap_or_default() == self.contract.tls
    }

    /// The thread pointer may be a general register.
    fn is_thread_pointer(&self, root: Root) -> bool {
        let thread = self.contract.convention.thread;
        match root {
            Root::Thread => true,
            Root::Register(reg) => thread.and_then(|name| self.abi.find(name)) == Some(reg),
            _ => false,
        }
    }

    /// A word of the thread, as it is now.
    pub(super) fn word(&self, cell: Cell, state: &State) -> Value {
        self.of_thread(cell, state).map_or(Value::lost(Why::Computed), |at| self.thread_word(at, state))
    }

    /// The value plus the high part of a variable's offset.
    pub(super) fn with_offset_high(&self, value: Value, sym: Sym) -> Value {
        match value {
            value if value == Value::number(0) => Value::of(Root::TlsHigh(sym, false)),
            Value { root, add: 0 } if self.is_thread_pointer(root) => Value::of(Root::TlsHigh(sym, true)),
            _ => Value::lost(Why::Computed),
        }
    }

    /// The sum of two values that are both unknown numbers: the thread pointer, and the high part of a variable's offset.
    pub(super) fn sum(&self, one: Value, other: Value) -> Value {
        match (one, other) {
            (Value { root: Root::TlsHigh(sym, false), add: 0 }, Value { root, add: 0 })
            | (Value { root, add: 0 }, Value { root: Root::TlsHigh(sym, false), add: 0 })
                if self.is_thread_pointer(root) =>
            {
                Value::of(Root::TlsHigh(sym, true))
            }
            _ => Value::lost(Why::Computed),
        }
    }

    fn add_to(&mut self, line: usize, cell: Cell, by: Value, state: &mut State) -> Value {
        let (Some(places), Some(at)) = (self.thread, self.of_thread(cell, state)) else {
            self.fault(line, Property::Memory, "a word of memory is changed that nobody named");
            return Value::lost(Why::Computed);
        };
        if places.recorder.events == Events::Count {
            if at != places.count || !by.is(Value::number(1)) {
                self.fault(line, Property::Record, "something else than 1 is added to the counter, or elsewhere");
            }
            state.counted += 1;
            return Value::lost(Why::Computed);
        }
        let event = places.due(state).get(state.slots.len());
        let bytes = event.map_or(0, |event| places.recorder.slot_bytes(*event));
        if at != places.cursor || !by.is(Value::number(bytes.into())) {
            let by = self.tell(by);
            self.fault(
                line,
                Property::Record,
                format!("{by} is added {at:+} bytes from the thread pointer, not {bytes} to the cursor"),
            );
        }
        let second = std::mem::take(&mut state.refilled);
        // One more than there are events to record is a fault already; a circle may take any number of them.
        if event.is_none() {
            return Value::lost(Why::Computed);
        }
        state.slots.push(Slot { full: None, timed: None, stores: Vec::new(), second });
        Value::of(Root::Slot(state.slots.len() as u8 - 1))
    }

    /// Does the routine that makes room get called here?
    pub(super) fn refills(&self, action: Action) -> bool {
        let Action::CallSymbol { sym } = action else { return false };
        let called = self.symbols.get(usize::from(sym.0));
        let refill = self.thread.is_some_and(|places| places.recorder.refill);
        refill && called.is_some_and(|called| called.name == self.contract.callee && called.add == 0)
    }

    /// Follow a call of the refill routine: the taken slot is invalid. It preserves all but the link register and the flags.
    pub(super) fn refilled(&mut self, line: usize, state: &mut State) {
        let wanted = state.slots.pop_if(|slot| slot.full == Some(true) && !slot.second);
        if wanted.is_none() {
            self.fault(line, Property::Record, "room is made where there is some, or where there was none before");
        }
        let lost = Value::lost(Why::Clobbered);
        self.abi.link.into_iter().for_each(|link| state.set(link, lost));
        (state.flags, state.tested, state.compared) = (lost, None, None);
        let n = state.slots.len() as u8;
        [Root::Slot(n), Root::Full(n)].into_iter().for_each(|root| state.replace(Value::of(root), lost));
        state.refilled = true;
    }

    fn store_at(&mut self, line: usize, address: Value, value: Value, state: &mut State) {
        if let Some(at) = self.thread_offset(address) {
            self.store_thread(line, at, value, state);
            return;
        }
        if self.is_top(address) {
            self.keep(line, address.add, value, state);
            return;
        }
        let slot = match address.root {
            Root::Slot(n) => state.slots.get_mut(usize::from(n)),
            _ => None,
        };
        match slot {
            Some(slot) if slot.full == Some(false) => slot.stores.push((address.add as i32, value)),
            Some(_) => {
                self.fault(line, Property::Record, "a store to a slot for which nobody knows that there is room")
            }
            None => self.fault(line, Property::Memory, "a store to what is neither the stack nor a slot"),
        }
    }

    /// Is this the question whether there is room for a slot? The one whose number it is.
    pub(super) fn asks_for_room(&self, reg: Value, with: Value, state: &State) -> Option<u8> {
        let Root::Slot(n) = reg.root else { return None };
        let limit = self.thread.map(|places| Value::of(Root::ThreadWord(places.limit)));
        let open = state.slots.get(usize::from(n)).is_some_and(|slot| slot.full.is_none());
        let bounded = self.thread.is_some_and(|places| !places.recorder.refill);
        (reg.add == 0 && bounded && open && limit.is_some_and(|limit| with.is(limit))).then_some(n)
    }

    /// A bit of an address: what it says, if that is a slot.
    pub(super) fn bit(&self, address: Value, bit: i32) -> Value {
        match address {
            Value { root: Root::Slot(n), add: 0 }
                if bit == self.contract.full_bit && self.thread.is_some_and(|places| places.recorder.refill) =>
            {
                Value::of(Root::Full(n))
            }
            // Those for both records of a call are at multiples of 8.
            Value { root: Root::Slot(_), add: 0 } if bit == 0 && self.pairs() => Value::number(0),
            Value { root: Root::Number, add } if self.pairs() => Value::number(add >> bit & 1),
            _ => Value::lost(Why::Computed),
        }
    }

    /// Is there one slot for both records of a call?
    fn pairs(&self) -> bool {
        self.thread.is_some_and(|places| places.recorder.pair)
    }

    /// Is this the question whether the time belongs into a slot? The one whose number it is.
    pub(super) fn asks_for_time(&self, reg: Value, with: Value, state: &State) -> Option<u8> {
        let Value { root: Root::InBlock(n, last), add: 0 } = reg else { return None };
        let recorder = self.thread.filter(|places| places.recorder.clock == Clock::Stamp8)?.recorder;
        let bytes = recorder.bytes(*self.thread?.due(state).get(usize::from(n))?);
        // A multiple lies in the slot if its last byte is not so far behind one.
        let open = state.slots.get(usize::from(n)).is_some_and(|slot| slot.timed.is_none());
        (open && last == bytes - 1 && with.is(Value::number(bytes.into()))).then_some(n)
    }

    /// All that must be recorded when the traced function begins, or at the end.
    pub(super) fn recorded(&mut self, line: usize, at_end: bool, state: &State) {
        let Some(places) = self.thread else { return };
        let count = u32::from(places.recorder.events == Events::Count);
        if state.counted != count {
            self.fault(line, Property::Record, format!("{} entries are counted, not {count}", state.counted));
        }
        let due: Vec<Event> =
            places.due(state).iter().copied().filter(|event| at_end || *event == Event::Entry).collect();
        let wanted = if places.recorder.pair { due.len().min(1) } else { due.len() };
        if state.refilled || state.slots.len() != wanted {
            self.fault(line, Property::Record, format!("{} slots are taken, not {wanted}", state.slots.len()));
            return;
        }
        let slots = if places.recorder.pair { self.parts(line, &places, &due, state) } else { state.slots.clone() };
        for (n, (event, slot)) in due.into_iter().zip(slots).enumerate() {
            match slot.full {
                None => self.fault(line, Property::Record, "nobody asked whether there is room for a record"),
                Some(true) if places.recorder.refill && !slot.second => {
                    self.fault(line, Property::Record, "nobody made room for a record")
                }
                Some(true) => {}
                Some(false) => self.complete(line, &places, (event, n as u8 + 1), &slot),
            }
        }
    }

    /// The stores for each event in the slot of both, by offset from the start of the event's record.
    fn parts(&mut self, line: usize, places: &Places, due: &[Event], state: &State) -> Vec<Slot> {
        let Some(slot) = state.slots.first() else { return Vec::new() };
        let part = |event: &Event| {
            let (from, bytes) = (places.recorder.begins(*event), places.recorder.bytes(*event));
            let own = slot.stores.iter().filter(|(at, _)| (from..from + bytes).contains(at));
            Slot { stores: own.map(|(at, value)| (at - from, *value)).collect(), ..slot.clone() }
        };
        let parts: Vec<Slot> = due.iter().map(part).collect();
        if parts.iter().map(|part| part.stores.len()).sum::<usize>() != slot.stores.len() {
            self.fault(line, Property::Record, "a store to a slot that is part of no record");
        }
        parts
    }

    /// The record of an event, which so many slots were taken for.
    fn complete(&mut self, line: usize, places: &Places, (event, taken): (Event, u8), slot: &Slot) {
        let recorder = places.recorder;
        let clock = |half| Value::of(Root::Clock(if recorder.pair { 1 } else { taken }, half));
        let whole = |value: Value| vec![("the time", Recorder::TIME, value)];
        let mut wanted = match (recorder.clock, slot.timed) {
            (Clock::None, _) if recorder.pair && event != Event::Entry => {
                whole(Value::of(Root::ThreadWord(places.cursor)))
            }
            (Clock::None, _) | (Clock::Stamp8, Some(false)) => whole(Value::number(0)),
            (Clock::Word, _) => {
                whole(places.clock.map_or(Value::lost(Why::Computed), |sym| Value::of(Root::Content(sym))))
            }
            (Clock::Stamp8, None) => {
                self.fault(line, Property::Record, "nobody asked whether a record has the time");
                return;
            }
            (Clock::Tsc, _) | (Clock::Stamp8, Some(true)) if self.contract.facts.clock.1.is_empty() => {
                whole(clock(None))
            }
            (Clock::Tsc, _) | (Clock::Stamp8, Some(true)) => vec![
                ("the time", Recorder::TIME, clock(Some(Half::Low))),
                ("the upper half of the time", Recorder::TIME + 4, clock(Some(Half::High))),
            ],
        };
        for (n, &reg) in recorder.registers(event, self.abi).iter().enumerate() {
            let value = match event {
                Event::Entry => self.start.get(reg),
                Event::Exit | Event::Unwound => Value::of(Root::Body(reg)),
            };
            wanted.push(("a word of a record", Recorder::WORDS + 8 * n as i32, value));
        }
        wanted.push(("what happened", Recorder::WHAT, Value::number(recorder.what(event).into())));
        for (name, at, wanted) in &wanted {
            let found = slot.stores.iter().rev().find(|(place, _)| place == at);
            let found = found.map_or(Value::lost(Why::Unwritten), |(_, value)| *value);
            self.same(line, Property::Record, name, *wanted, found);
        }
        // Before it was known that a record has the time, it had none.
        let before = usize::from(slot.timed == Some(true));
        if slot.stores.len() != wanted.len() + before || slot.stores.last().is_none_or(|(at, _)| *at != Recorder::WHAT)
        {
            self.fault(line, Property::Record, "a record has other words, or what happened is not stored last");
        }
    }
}

/// The value plus the low part of a variable's offset.
pub(super) fn with_offset_low(value: Value, sym: Sym) -> Value {
    if value == Value::of(Root::TlsHigh(sym, true)) { Value::of(Root::Tls(sym)) } else { Value::lost(Why::Computed) }
}
