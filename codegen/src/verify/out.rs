//! Ways out: where they lead, and what must be back by then.

use super::value::{Root, State, Value, Why};
use super::{Called, Checker, Code, Property};
use crate::arch::harden::ReturnStyle;
use crate::ask::frame::Content;
use crate::ask::kind::Gives;
use crate::effect::action::Action;
use crate::effect::effects::Flow;
use crate::words::abi::{Loc, RegSet};
use crate::words::step::ExitPath;

/// Where a way out leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Out {
    /// Into the traced function, behind its site.
    Function,
    /// To the direct trampoline that a callback chose.
    Direct,
    /// To one that the site would jump to.
    Jump,
    /// To that of the `ftrace_ops`.
    Early,
    /// Behind the call of the traced function.
    Parent,
    /// Behind its own call, as a C function.
    Caller,
}

impl Checker<'_> {
    /// The trampoline is left.
    pub(super) fn leave(&mut self, line: usize, action: Action, state: &mut State) {
        self.decided(line, state);
        self.returns(line, action);
        let Some(out) = self.way(line, state) else { return };
        let Some(goes_to) = self.destination(line, action, state) else { return };
        let Some(sp) = state.get(self.abi.sp).on_stack() else { return };
        self.recorded(line, true, state);
        self.returned(line, state);
        let made = if out == Out::Early || state.shadow.full == Some(true) { 0 } else { self.calls.len() };
        if state.calls != made {
            self.fault(line, Property::Calls, format!("{} calls of {made} were made", state.calls));
        }
        match out {
            Out::Function => self.leaves_for_function(line, goes_to, sp, state),
            Out::Direct => self.leaves_for_direct(line, goes_to, sp, state),
            Out::Jump => self.leaves_for_direct_jump(line, goes_to, sp, state),
            Out::Early => self.leaves_early(line, goes_to, sp, state),
            Out::Parent => self.leaves_for_parent(line, goes_to, sp, state),
            Out::Caller => self.leaves_for_caller(line, goes_to, sp, state),
        }
    }

    fn way(&mut self, line: usize, state: &State) -> Option<Out> {
        let contract = self.contract;
        let early = if contract.early_direct { state.early } else { Some(false) };
        let direct = if contract.direct { state.direct } else { Some(false) };
        let jump = if contract.direct_jumps { state.jump } else { Some(false) };
        match (contract.kind.traits().leaves, early, direct, jump) {
            // For whoever called it, it is a C function.
            _ if contract.kind.is_sled() => Some(Out::Caller),
            (ExitPath::Caller, ..) => Some(Out::Caller),
            _ if state.shadow.full == Some(true) => Some(Out::Function),
            (ExitPath::Parent, ..) => Some(Out::Parent),
            (_, Some(true), ..) => Some(Out::Early),
            (_, Some(false), Some(true), Some(false)) => Some(Out::Direct),
            (_, Some(false), Some(true), Some(true)) => Some(Out::Jump),
            (_, Some(false), Some(false), _) => Some(Out::Function),
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

    /// Where it goes, with SP as it is then.
    fn destination(&mut self, line: usize, action: Action, state: &mut State) -> Option<Value> {
        match action {
            Action::LeaveBy { reg, links } => {
                if links {
                    self.fault(line, Property::Way, "the way out links");
                }
                let goes_to = state.get(reg);
                if let (true, Some(link)) = (links, self.abi.link) {
                    state.set(link, Value::lost(Why::Computed));
                }
                Some(goes_to)
            }
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
            _ => {
                self.fault(line, Property::Way, "nobody knows where the way out leads");
                None
            }
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

    fn sp(&mut self, line: usize, wanted: i32, sp: i32) {
        if sp != wanted {
            self.fault(line, Property::Stack, format!("sp is off by {:+} on the way out", sp - wanted));
        }
    }

    fn at(&self, loc: Loc, sp: i32, state: &State) -> Value {
        match loc {
            Loc::Reg(reg) => state.get(reg),
            Loc::Stack(offset) => state.memory.load(sp + offset),
        }
    }

    fn leaves_for_function(&mut self, line: usize, goes_to: Value, sp: i32, state: &State) {
        let pc = self.left(Content::Pc, state).unwrap_or(self.pc);
        let parent = self.left(Content::ParentIp, state).unwrap_or(Value::of(Root::Parent));
        self.same(line, Property::Way, "where the function goes on", pc, goes_to);
        self.sp(line, self.site_sp, sp);
        let found = match self.abi.link {
            Some(link) => state.get(link),
            None => state.memory.load(sp),
        };
        self.same(line, Property::Way, "the function's return address", parent, found);
        self.keeps(line, self.contract.kept, state);
        self.keeps_flags(line, state);
        self.keeps_vectors(line, state);
    }

    fn leaves_for_direct(&mut self, line: usize, goes_to: Value, sp: i32, state: &State) {
        let Some(direct) = self.left(Content::Direct, state) else { return };
        self.same(line, Property::Way, "the direct trampoline", direct, goes_to);
        self.sp(line, 0, sp);
        let (site, contract) = (self.site, self.contract);
        // What a callback made of pc is for those who go on in the function.
        let (pc, found) = (self.left(Content::Pc, state), self.at(site.pc, sp, state));
        if pc.is_none_or(|pc| !found.is(pc)) {
            self.same(line, Property::Way, "pc for the direct trampoline", self.pc, found);
        }
        let parent = self.left(Content::ParentIp, state).unwrap_or(Value::of(Root::Parent));
        let found = self.at(site.parent_ip, sp, state);
        self.same(line, Property::Way, "parent_ip for the direct trampoline", parent, found);
        self.keeps(line, contract.kept.minus(contract.direct_lost), state);
        self.keeps_flags(line, state);
        self.keeps_vectors(line, state);
    }

    /// As if the site had jumped to the direct trampoline, whose address is without the bit that says so.
    fn leaves_for_direct_jump(&mut self, line: usize, goes_to: Value, sp: i32, state: &State) {
        let Some(direct) = self.left(Content::Direct, state) else { return };
        self.same(line, Property::Way, "the direct trampoline", direct.plus(-1), goes_to);
        self.sp(line, self.site_sp, sp);
        let parent = self.left(Content::ParentIp, state).unwrap_or(Value::of(Root::Parent));
        let found = match self.abi.link {
            Some(link) => state.get(link),
            None => state.memory.load(sp),
        };
        self.same(line, Property::Way, "parent_ip for the direct trampoline", parent, found);
        self.keeps(line, self.contract.kept.minus(self.contract.direct_lost), state);
        self.keeps_flags(line, state);
        self.keeps_vectors(line, state);
    }

    /// As if the site had called the direct trampoline.
    fn leaves_early(&mut self, line: usize, goes_to: Value, sp: i32, state: &State) {
        let cell = self.early.map_or(Value::lost(Why::Computed), |op| Value::of(Root::OpField(op.direct_call)));
        self.same(line, Property::Way, "the direct trampoline", cell, goes_to);
        self.sp(line, 0, sp);
        for (what, loc) in [("pc", self.site.pc), ("parent_ip", self.site.parent_ip)] {
            let (wanted, found) = (self.at(loc, 0, &self.start), self.at(loc, sp, state));
            self.same(line, Property::Way, what, wanted, found);
        }
        self.keeps(line, self.contract.kept, state);
        self.keeps_vectors(line, state);
    }

    fn leaves_for_parent(&mut self, line: usize, goes_to: Value, sp: i32, state: &State) {
        let (contract, abi) = (self.contract, self.abi);
        // The handler keeps the way back, or the stack does.
        let keeps = contract.kind.is_shadow() && self.calls.last() == Some(&Called::Exit);
        let handler = contract.kind.returned_to() || keeps;
        let last = self.calls.len().saturating_sub(1) as u8;
        let parent = Value::of(if handler { Root::Returned(last) } else { Root::Parent });
        self.same(line, Property::Way, "where the parent goes on", parent, goes_to);
        if let Some(link) = abi.link {
            self.same(line, Property::Way, "the link register in the parent", parent, state.get(link));
        }
        if contract.kind.returned_to() {
            self.sp(line, 0, sp);
            self.keeps(line, contract.kept, state);
            self.keeps_flags(line, state);
            self.keeps_vectors(line, state);
            return;
        }
        self.sp(line, self.site_sp + abi.return_bytes() as i32, sp);
        let saved = self.site.c_keeps(abi);
        for reg in saved.iter() {
            self.same(line, Property::Registers, abi.name(reg), self.start.get(reg), state.get(reg));
        }
        self.results(line, state);
    }

    /// What the traced function returned, as the last handler left it.
    fn results(&mut self, line: usize, state: &State) {
        let (abi, kind) = (self.abi, self.contract.kind);
        let result = kind.programs().map(|programs| programs.result);
        let (carriers, vectors) =
            result.map_or((RegSet::of(abi.rets), 0), |result| (result.regs, usize::from(result.vectors)));
        let shown = match kind.traits().gives {
            Gives::Context => self.calls.last().is_some_and(|c| *c != Called::Body) && state.results.is_some(),
            Gives::Frame => true,
            Gives::Arguments => false,
        };
        for reg in carriers.iter() {
            let wanted = match (shown, state.skipped_by) {
                (true, _) => self.left(Content::Result(reg), state),
                (false, None) => Some(Value::of(Root::Body(reg))),
                (false, Some(call)) => (abi.rets.first() == Some(&reg)).then_some(Value::of(Root::Returned(call))),
            };
            if let Some(wanted) = wanted {
                self.same(line, Property::Registers, abi.name(reg), wanted, state.get(reg));
            }
        }
        if let Some(counted) =
            kind.programs().and_then(|programs| programs.tail_call).filter(|counted| counted.returned)
        {
            // The function counted on, if it ran.
            let root = if state.skipped_by.is_some() { Root::Register(counted.reg) } else { Root::Body(counted.reg) };
            self.same(line, Property::Registers, abi.name(counted.reg), Value::of(root), state.get(counted.reg));
        }
        if state.skipped_by.is_some() {
            return;
        }
        let named = abi.vector_rets.iter().fold(0, |bits, vector| bits | 1 << vector) & self.contract.vectors_kept;
        for vector in self.due(abi.vector_rets, vectors, named) {
            let wanted = [0, 1].map(|half| Value::of(Root::BodyVector(vector, half)));
            self.same_vector(line, Property::Registers, vector, wanted, state);
        }
    }

    /// A C function that does nothing.
    fn leaves_for_caller(&mut self, line: usize, goes_to: Value, sp: i32, state: &State) {
        self.same(line, Property::Way, "where the caller goes on", Value::of(Root::Parent), goes_to);
        self.sp(line, self.abi.return_bytes() as i32, sp);
        self.keeps(line, self.contract.kept, state);
        self.keeps_vectors(line, state);
    }

    fn keeps_flags(&mut self, line: usize, state: &State) {
        if self.contract.flags_kept {
            let wanted = self.left(Content::Flags, state).unwrap_or(Value::of(Root::Flags));
            self.same(line, Property::Flags, "the flags register", wanted, state.flags);
        }
    }
}
