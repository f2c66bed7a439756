//! The hooks on an engine, and what the plugin is told of them.

use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::rc::Rc;

use super::shared::{Message, RANGES, Range};
use crate::engine::interface::{Access, Accesses, EVERYWHERE, OnAccess, OnGuard, OnInstruction, OnMissing};

/// A hook: it may be called while the list that has it changes.
pub(super) type Kept<T> = Rc<RefCell<T>>;

pub(super) fn kept<T>(hook: T) -> Kept<T> {
    Rc::new(RefCell::new(hook))
}

/// A hook on accesses.
pub(super) struct AccessHook<D> {
    pub number: usize,
    pub which: Accesses,
    pub at: RangeInclusive<u64>,
    pub hook: Kept<OnAccess<D>>,
}

impl<D> AccessHook<D> {
    /// Is it for this access?
    pub fn is_for(&self, access: Access) -> bool {
        let counts = self.which == Accesses::All || (self.which == Accesses::Writes) == access.is_write;
        let end = access.at.saturating_add(access.bytes as u64);
        counts && access.at <= *self.at.end() && end > *self.at.start()
    }
}

/// All of them, in the order in which they came.
pub(super) struct Hooks<D> {
    pub instructions: Vec<(RangeInclusive<u64>, Kept<OnInstruction<D>>)>,
    pub blocks: Vec<Kept<OnInstruction<D>>>,
    pub accesses: Vec<AccessHook<D>>,
    pub missing_data: Vec<Kept<OnMissing<D>>>,
    pub missing_code: Vec<Kept<OnMissing<D>>>,
    pub guards: Vec<Kept<OnGuard<D>>>,
}

impl<D> Default for Hooks<D> {
    fn default() -> Self {
        Hooks {
            instructions: Vec::new(),
            blocks: Vec::new(),
            accesses: Vec::new(),
            missing_data: Vec::new(),
            missing_code: Vec::new(),
            guards: Vec::new(),
        }
    }
}

impl<D> Hooks<D> {
    /// Tell the plugin which addresses hooks are for.
    pub fn tell(&self, message: &Message) {
        let all = |to: &[Range; RANGES], from: &[(RangeInclusive<u64>, bool, bool)]| {
            for (to, (range, writes, reads)) in to.iter().zip(from) {
                let values = [*range.start(), *range.end(), u64::from(*writes), u64::from(*reads)];
                to.0.iter().zip(values).for_each(|(to, value)| to.set(value));
            }
            from.len() as u64
        };
        let mut instructions: Vec<_> = self.instructions.iter().map(|(range, _)| (range.clone(), true, true)).collect();
        if instructions.len() > RANGES {
            // Each hook is asked for its own addresses anyway.
            instructions = vec![(EVERYWHERE, true, true)];
        }
        let access =
            |hook: &AccessHook<D>| (hook.at.clone(), hook.which != Accesses::Reads, hook.which != Accesses::Writes);
        let accesses: Vec<_> = self.accesses.iter().map(access).collect();
        message.instructions.set(all(&message.instruction, &instructions));
        message.accesses.set(all(&message.access, &accesses));
        message.blocks.set(u64::from(!self.blocks.is_empty()));
    }
}
