//! The shadow stack of a thread: where functions that are recorded in place have their way back.

use codegen::words::recorder::Recorder;

use crate::engine::cpu::{put_word, word, words};
use crate::engine::interface::Cpu;

/// Where it lies, and its bytes.
pub(crate) const STACK: u64 = 0x69_9e33_0000;
pub(crate) const SIZE: u64 = 0x1000;
/// What each word of it, and of buffers, holds at first: nobody writes that.
pub(crate) const FRESH: u64 = 0xa5a5_a5a5_a5a5_a5a5;
/// Bytes of an entry.
const ENTRY: u64 = Recorder::KEPT as u64;
/// Entries that are there before a run, with the one below all others.
const BEFORE: [[u64; 2]; 3] =
    [[0, 0], [0x0123_4567_89ab_cdef, 0x7fff_ffff_ff00], [0xfedc_ba98_7654_3210, 0x7fff_ffff_f000]];
/// What no entry has.
const STALE: u64 = 0xdead_0003;
/// The same of functions that did not return: where they would have gone, and bytes below SP.
const LEFT: [(u64, u64); 2] = [(0xdead_0001, 0x200), (0xdead_0002, 0x60)];

/// The two words of the thread that belong to it: where each is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub top: u64,
    pub limit: u64,
}

impl Kept {
    /// What they hold before a run.
    pub(crate) fn at_first(self, full: bool, above: bool) -> [(u64, u64); 2] {
        let top = STACK + ENTRY * BEFORE.len() as u64;
        // Whoever takes an entry without looking has come above the limit.
        let limit = if above { top - ENTRY } else { top };
        [(self.top, top), (self.limit, if full { limit } else { STACK + SIZE })]
    }

    /// What they hold in a new thread, where a routine makes the stack later: nothing is there, and the limit promises room.
    pub(crate) fn promised(self) -> [(u64, u64); 2] {
        [(self.top, 0), (self.limit, u64::MAX)]
    }

    /// What they hold in a new thread where nobody does.
    pub(crate) fn none(self) -> [(u64, u64); 2] {
        [(self.top, 0), (self.limit, 0)]
    }

    /// The stack as it is before a run.
    pub(crate) fn prepare<D>(uc: &mut Cpu<'_, D>) {
        uc.store(STACK, &vec![0xa5; SIZE as usize]);
        for (at, word) in (STACK..).step_by(8).zip(BEFORE.as_flattened()) {
            put_word(uc, at, *word);
        }
    }

    /// What must be there after a run as it was before, and is there: the entries below those of the run, which reach to `end`,
    /// and all behind.
    pub(crate) fn unchanged<D>(end: u64, uc: &Cpu<'_, D>) -> impl Iterator<Item = (u64, u64)> {
        let before = BEFORE.as_flattened();
        let found = (STACK..).step_by(8).zip(words(uc, STACK, SIZE as usize)).enumerate();
        let others = found.filter(move |(n, (at, _))| *n < before.len() || *at >= end);
        others.map(|(n, (_, found))| (before.get(n).copied().unwrap_or(FRESH), found))
    }

    /// The topmost entry: a return address, and SP.
    pub(crate) fn topmost<D>(self, uc: &Cpu<'_, D>) -> [u64; 2] {
        let at = word(uc, self.top).wrapping_sub(ENTRY);
        [word(uc, at), word(uc, at.wrapping_add(Recorder::KEPT_SP as u64))]
    }

    /// What lies above the topmost entry was there before: also one with this SP. Returns where that ends.
    pub(crate) fn stale<D>(self, sp: u64, uc: &mut Cpu<'_, D>) -> u64 {
        let at = word(uc, self.top);
        put_word(uc, at, STALE);
        put_word(uc, at.wrapping_add(Recorder::KEPT_SP as u64), sp);
        at.wrapping_add(ENTRY)
    }

    /// The topmost entry becomes that of a function which is nowhere.
    pub(crate) fn lose<D>(self, uc: &mut Cpu<'_, D>) {
        let at = word(uc, self.top).wrapping_sub(ENTRY - Recorder::KEPT_SP as u64);
        put_word(uc, at, STALE);
    }

    /// So many functions are called with SP there, and do not return: somebody jumps past them.
    pub(crate) fn leave_behind<D>(self, sp: u64, functions: usize, uc: &mut Cpu<'_, D>) {
        for (parent, below) in LEFT.into_iter().take(functions) {
            let at = word(uc, self.top);
            put_word(uc, at, parent);
            put_word(uc, at.wrapping_add(Recorder::KEPT_SP as u64), sp.wrapping_sub(below));
            put_word(uc, self.top, at.wrapping_add(ENTRY));
        }
    }
}
