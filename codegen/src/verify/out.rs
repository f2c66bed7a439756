//! Ways out: where they lead, and what must be back by then.

use super::demands::At;
use super::value::{Root, State, Value, Why};
use super::{Checker, Code, Property};
use crate::arch::harden::ReturnStyle;
use crate::contract::demand::Moment;
use crate::effect::action::Action;
use crate::effect::effects::Flow;
use crate::words::step::ExitPath;

impl Checker<'_> {
    /// The trampoline is left.
    pub(super) fn leave(&mut self, line: usize, action: Action, state: &mut State) {
        self.returns(line, action);
        if !state.pushed.is_empty() {
            self.fault(line, Property::Guard, "the shadow stack keeps what this function has pushed");
        }
        let Some(way) = self.way(line, state) else { return };
        let Some(goes_to) = self.destination(line, action, state) else { return };
        let Some(sp) = state.get(self.abi.sp).on_stack() else { return };
        self.recorded(line, true, state);
        self.returned(line, state);
        let made = if way == ExitPath::EarlyDirect || state.shadow.full == Some(true) { 0 } else { self.calls.len() };
        if state.calls != made {
            self.fault(line, Property::Calls, format!("{} calls of {made} were made", state.calls));
        }
        self.holds(line, At { moment: Moment::Leave(way), sp, goes_to }, state);
    }

    fn way(&mut self, line: usize, state: &State) -> Option<ExitPath> {
        let contract = self.contract;
        let asked = |way, answer| if contract.leaves_by(way) { answer } else { Some(false) };
        let early = asked(ExitPath::EarlyDirect, state.early);
        let direct = asked(ExitPath::Direct, state.direct);
        let jump = asked(ExitPath::DirectJump, state.jump);
        match (contract.kind.traits().leaves, early, direct, jump) {
            _ if contract.leaves_by(ExitPath::Caller) => Some(ExitPath::Caller),
            _ if state.shadow.full == Some(true) => Some(ExitPath::Function),
            (ExitPath::Parent, ..) if state.skipped_by.is_some() => Some(ExitPath::Skipped),
            (ExitPath::Parent, ..) => Some(ExitPath::Parent),
            (_, Some(true), ..) => Some(ExitPath::EarlyDirect),
            (_, Some(false), Some(true), Some(false)) => Some(ExitPath::Direct),
            (_, Some(false), Some(true), Some(true)) => Some(ExitPath::DirectJump),
            (_, Some(false), Some(false), _) => Some(ExitPath::Function),
            (_, Some(false), Some(true), None) => {
                self.fault(line, Property::Control, "nobody asked whether the site jumps to the direct trampoline");
                None
            }
            _ => {
                self.fault(line, Property::Control, "nobody asked whether the way is to a direct trampoline");
                None
            }
        }
    }

    /// The address to which the way out leads. SP in `state` becomes that at this address.
    fn destination(&mut self, line: usize, action: Action, state: &mut State) -> Option<Value> {
        match action {
            Action::LeaveBy { reg } => Some(state.get(reg)),
            Action::LeaveFor { sym, through } => {
                through.into_iter().for_each(|reg| state.set(reg, Value::of(Root::Symbol(sym))));
                Some(Value::of(Root::Symbol(sym)))
            }
            Action::Return { thunk } => {
                let name = thunk.and_then(|sym| self.symbols.get(usize::from(sym.0)));
                if name.is_some_and(|s| s.name != self.machine.return_thunk || s.add != 0) {
                    self.fault(line, Property::Way, "the way out is a jump to something that does not return");
                }
                let sp = state.get(self.abi.sp).on_stack()?;
                let goes_to = self.load(line, sp, sp, state);
                state.set(self.abi.sp, Value::stack(sp + 8));
                Some(goes_to)
            }
            _ => Some(Value::lost(Why::Computed)),
        }
    }

    /// A return by the stack is made as was asked for.
    fn returns(&mut self, line: usize, action: Action) {
        let (Action::Return { thunk }, Some(style)) = (action, self.contract.returns) else { return };
        let behind = self.code.iter().skip(line + 1).find_map(|c| match c {
            Code::Insn(effects) => Some(effects.flow),
            _ => None,
        });
        let wrong = match style {
            ReturnStyle::Plain | ReturnStyle::Trapped if thunk.is_some() => "a jump to a function that returns",
            ReturnStyle::Thunk(_) if thunk.is_none() => "a return instruction, where all go to a function that returns",
            ReturnStyle::Trapped if behind != Some(Flow::Trap) => "no trap behind the return",
            _ => return,
        };
        self.fault(line, Property::Returns, wrong);
    }
}
