//! P24: what is in the thread's buffer after a run is what happened in it, and nothing else of the thread changed.

use codegen::contract::Contract;
use codegen::words::recorder::{Clock, Event, Events};

use super::unwinding::recorded_return;
use super::{Here, Trace, Uc};
use crate::engine::cpu::{EXIT, put_word, word};
use crate::engine::shadow_stack::{FRESH, Kept};
use crate::report::Clause;
use crate::report::place::Place;
use crate::run::situation::Situation;
use crate::run::thread::{TIME, Words, Written};

impl Trace {
    /// Something happens that is to be recorded. The time goes on.
    pub(super) fn happens(&mut self, uc: &mut Uc, event: Event) {
        let index = match event {
            Event::Entry => self.case.attach,
            Event::Exit | Event::Unwound => self.trampoline(),
        };
        let Some(recorder) = self.kind(index).and_then(|kind| kind.recorder()) else { return };
        if self.case.situation.untraced() {
            return;
        }
        if recorder.events == Events::Count && event == Event::Entry {
            self.state.counted += 1;
        }
        if !recorder.recorded().contains(&event) {
            return;
        }
        self.state.events += 1;
        self.first_reading();
        let cursor = || self.contracts.get(index).and_then(|c| Words::of(c)).map_or(0, |words| word(uc, words.cursor));
        let time = match (recorder.clock, self.clock) {
            // Where the next slot is taken tells as much.
            (Clock::None, _) if recorder.pair && event == Event::Exit => cursor(),
            (Clock::Word, Some(at)) => {
                put_word(uc, at, self.now());
                self.now()
            }
            (Clock::Tsc | Clock::Stamp8, _) => self.now(),
            _ => 0,
        };
        let what = i64::from(recorder.what(event)).cast_unsigned();
        let mut words = vec![time, what];
        if let Some(registers) = self.registers {
            words.extend(recorder.registers(event, registers.abi).iter().map(|reg| registers.get(uc, *reg)));
        }
        if recorder.pair && event == Event::Exit {
            let behind = recorder.begins(event) as usize / 8;
            let both = self.state.open.pop().and_then(|n| self.state.written.get_mut(n));
            let part = both.map(|both| both.words.iter_mut().skip(behind).zip(words));
            part.into_iter().flatten().for_each(|(word, written)| *word = written);
            return;
        }
        // Nothing is written there before the return.
        words.resize(recorder.slot_bytes(event) as usize / 8, FRESH);
        self.state.written.push(Written { words, stamp: recorder.clock == Clock::Stamp8 });
    }

    /// Calls of the routine that makes room, so far.
    pub fn refills(&self) -> u64 {
        self.state.refills
    }

    /// What the time is: both halves change at each event.
    pub fn now(&self) -> u64 {
        TIME.wrapping_add(self.state.events.wrapping_mul(0x1_0000_0003))
    }

    /// What reads the CPU's clock next reads it for another record.
    pub fn first_reading(&self) {
        self.state.clock_reads.set(0);
    }

    /// What the CPU's clock says: time goes on from one reading to the next, and a record has the first.
    pub fn read_clock(&self) -> u64 {
        let reads = self.state.clock_reads.get();
        self.state.clock_reads.set(reads + 1);
        self.now().wrapping_add(reads.wrapping_mul(0x1_0000_0001))
    }

    /// The routine is called that makes room: stack traces find the function's caller, and SP is where any callee's is.
    pub(super) fn check_refill(&mut self, here: &Here) {
        let (at, sp, parent) = match (self.state.exiting(), self.state.activations.last()) {
            (Some(e), _) => (&e.expect, e.sp, e.parent),
            (None, Some(a)) => (&a.expect, a.sp, a.parent),
            (None, None) => return,
        };
        let (abi, fp) = (here.registers.abi, here.get(here.registers.abi.fp));
        let before = at[abi.fp];
        let record = fp.wrapping_add_signed(here.registers.machine.record);
        let (next, stored) = (here.word(record), here.word(record.wrapping_add(8)));
        let back = self.contract().map_or(stored, |contract| recorded_return(here, &contract, stored));
        let p12 = self.at(Clause::P12, here.pc);
        self.check(p12, Place::FrameRecord { n: 0 }, parent, back);
        self.check(p12, Place::BehindRecords, before, next);
        let moved = sp.wrapping_sub(here.sp()) % u64::from(abi.sp_align);
        let pushed = if self.state.exiting().is_some() { abi.return_bytes() } else { 0 };
        self.check(p12.of(Clause::P8), Place::SpModuloOfBody, pushed, moved);
    }

    /// The function is called: the record of its return goes behind the last that was written, if one slot has both.
    pub(super) fn open_slot(&mut self, contract: &Contract) {
        if contract.kind.recorder().is_some_and(|recorder| recorder.pair) {
            self.state.open.extend(self.state.written.len().checked_sub(1));
        }
    }

    /// The function is called, and has its way back on the shadow stack. What it calls may leave more there.
    pub(super) fn check_kept(&mut self, here: &mut Here, contract: &Contract, parent: u64, sp: u64) {
        let Some(kept) = Words::of(contract).and_then(|words| words.kept) else { return };
        let [found, returned] = kept.topmost(here.uc);
        let p24 = self.at(Clause::P24, here.pc);
        self.check(p24, Place::ShadowParent, parent, found);
        self.check(p24, Place::ShadowSp, sp, returned);
        if self.case.situation == Situation::LeftBehind {
            kept.leave_behind(sp, 1 + usize::from(self.case.closely), here.uc);
        }
        self.state.kept_to = self.state.kept_to.max(kept.stale(sp, here.uc));
    }

    /// The run is over: compare.
    pub(super) fn check_recorded(&mut self, uc: &Uc) {
        let Some(words) = self.contracts.get(self.case.attach).and_then(|c| Words::of(c)) else { return };
        let (found, wanted) = (words.left(uc), words.wanted(&self.case, &self.state.written, self.state.counted));
        let p24 = self.at(Clause::P24, EXIT);
        if let Some(refills) = words.refills(&self.case, &self.state.written) {
            self.check(p24, Place::Refills, refills, self.state.refills);
        }
        for ((at, want), (_, have)) in wanted.near.into_iter().zip(found.near) {
            let place = match at {
                _ if at == words.cursor => Place::Cursor,
                _ if at == words.limit => Place::Limit,
                _ if at == words.count => Place::Counter,
                _ if words.kept.is_some_and(|kept| kept.top == at) => Place::ShadowTop,
                _ if words.kept.is_some_and(|kept| kept.limit == at) => Place::ShadowLimit,
                _ => Place::BesideWords,
            };
            self.check(p24, place, want, have);
        }
        let end = self.state.kept_to;
        for (want, have) in words.kept.into_iter().flat_map(|_| Kept::unchanged(end, uc)) {
            self.check(p24, Place::ShadowOthers, want, have);
        }
        for (n, (want, have)) in wanted.buffer.into_iter().zip(found.buffer).enumerate() {
            self.check(p24, Place::Buffer { offset: 8 * n }, want, have);
        }
    }
}
