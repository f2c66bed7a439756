//! The CPU's state in one piece: what is stored is what is loaded again.

use super::value::{Area, State, Value};
use super::{Checker, Property};
use crate::effect::action::StateArea;

impl Checker<'_> {
    /// All vector registers are stored from SP on.
    pub(super) fn store_area(&mut self, line: usize, area: StateArea, sp: i32, state: &mut State) {
        self.components(line, area, state);
        let (from, to) = area.reserved;
        for at in (from..to).step_by(8) {
            self.same(line, Property::Slots, "a reserved word", Value::number(0), state.memory.load(sp + at));
        }
        if sp + area.bytes > self.top {
            self.fault(line, Property::Memory, "the state is stored above sp at the site");
        }
        state.area = Some(Area { from: sp, to: sp + area.bytes, vectors: Box::new(state.vectors) });
    }

    /// They are loaded from there.
    pub(super) fn load_area(&mut self, line: usize, area: StateArea, sp: i32, state: &mut State) {
        self.components(line, area, state);
        match &state.area {
            Some(area) if area.from == sp => state.vectors = *area.vectors,
            _ => self.fault(line, Property::Slots, "state is loaded from where none was stored"),
        }
    }

    fn components(&mut self, line: usize, area: StateArea, state: &State) {
        for (reg, wanted) in area.mask.into_iter().zip([area.components, 0]) {
            self.same(line, Property::Registers, "which components", Value::number(wanted.into()), state.get(reg));
        }
    }
}
