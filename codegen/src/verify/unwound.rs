//! Exceptions: what the landing pad finds, and what it hands back.

use super::value::{Root, State, Value};
use super::{Checker, Code, Property};
use crate::effect::action::Action;
use crate::profile::lsda::RESUME;
use crate::words::step::{Local, Mark};

impl Checker<'_> {
    /// An exception comes out of the call before line `at`: the way to the landing pad, with what unwinders keep.
    pub(super) fn thrown(&mut self, at: usize, state: &State) -> Option<(usize, State)> {
        let pad = self.label(at, Local::Mark(Mark::Pad))?;
        let insn = |code: &Code| if let Code::Insn(effects) = code { Some(effects.action) } else { None };
        let needs_pad = self.contract.landing_pad && self.contract.facts.unwinders_jump;
        if needs_pad && self.code.iter().skip(pad).find_map(insn) != Some(Action::LandingPad) {
            self.fault(pad, Property::Pad, "where unwinders go is no landing pad for their branch");
        }
        let mut state = state.clone();
        if let Some(&reg) = self.abi.rets.first() {
            state.set(reg, Value::of(Root::Exception));
        }
        state.thrown = state.get(self.abi.sp).on_stack();
        Some((pad, state))
    }

    /// The landing pad ends: the unwinder gets the exception, with the frame as it was.
    pub(super) fn resumes(&mut self, line: usize, action: Action, state: &mut State) {
        let called = match action {
            Action::CallSymbol { sym } => self.symbols.get(usize::from(sym.0)),
            _ => None,
        };
        if called.is_none_or(|called| called.name != RESUME || called.add != 0) {
            self.fault(line, Property::Way, format!("something else than {RESUME} is called with an exception"));
        }
        if let Some(&reg) = self.abi.args.first() {
            self.same(line, Property::Arguments, "the exception", Value::of(Root::Exception), state.get(reg));
        }
        let sp = state.get(self.abi.sp).on_stack();
        if sp != state.thrown {
            self.fault(line, Property::Stack, "sp is not where it was when the exception came");
        }
        self.recorded(line, true, state);
    }
}
