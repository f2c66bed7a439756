//! Calls: what is called, with which arguments, on which stack, and what it leaves behind.

use super::demands::At;
use super::value::{Root, State, Value, Why};
use super::{Checker, Property};
use crate::arch::harden::ReturnGuard;
use crate::ask::frame::{Content, Field};
use crate::ask::kind::Kind;
use crate::contract::demand::Called;
use crate::effect::action::Action;
use crate::words::abi::RegSet;
use crate::words::program::Bracket;
use crate::words::step::{Sym, Value as Argument};

impl Checker<'_> {
    /// A call, from what is demanded to what it leaves behind.
    pub(super) fn call(&mut self, line: usize, action: Action, state: &mut State) {
        self.guarded(line, state);
        if self.refills(action) {
            self.refilled(line, state);
            return;
        }
        self.decided(line, state);
        state.decided = false;
        let Some(&called) = self.calls.get(state.calls) else {
            self.fault(line, Property::Calls, "nothing more is to be called here");
            self.clobber(None, state);
            return;
        };
        self.callee(line, called, action, state);
        let sp = state.get(self.abi.sp).on_stack().unwrap_or(0);
        self.records(line, state);
        match called {
            Called::Body => self.body(line, sp, state),
            Called::Before(n) | Called::After(n) => self.around(line, (called, n), sp, state),
            _ => self.handler(line, called, sp, state),
        }
        state.calls += 1;
    }

    fn callee(&mut self, line: usize, called: Called, action: Action, state: &State) {
        let contract = self.contract;
        let traced = contract.traced.as_ref();
        if let (Called::Callback, Some(op)) = (called, self.early) {
            let found = match action {
                Action::CallRegister { reg } => state.get(reg),
                _ => Value::lost(Why::Computed),
            };
            self.same(line, Property::Calls, "what is called", Value::of(Root::OpField(op.func)), found);
            return;
        }
        let convention = contract.convention;
        if let (Called::Callback, Some(variable)) = (called, convention.calls_through) {
            let known = self.symbols.iter().position(|s| s.name == variable && s.add == 0);
            let wanted = known.map_or(Value::lost(Why::Computed), |sym| Value::of(Root::Content(Sym(sym as u8))));
            let found = match action {
                Action::CallRegister { reg } => state.get(reg),
                _ => Value::lost(Why::Computed),
            };
            self.same(line, Property::Calls, "what is called", wanted, found);
            return;
        }
        let around = |n| contract.stated.brackets().nth(n).flatten();
        let (name, add) = match called {
            Called::Callback | Called::Named | Called::ExitHandler => (contract.callee.as_str(), 0),
            Called::Program(n) => (contract.programs.get(n).map_or("", |p| &p.symbol), 0),
            Called::Before(n) => (around(n).map_or("", |around| &around.enter), 0),
            Called::After(n) => (around(n).map_or("", |around| &around.exit), 0),
            Called::Body => traced.map_or(("", 0), |t| (t.function.as_str(), t.resume)),
            Called::Exit => traced.map_or(("", 0), |t| (t.exit.as_str(), 0)),
            // Nothing generates what calls these.
            Called::Kernel | Called::Context => ("", 0),
        };
        let found = match action {
            Action::CallSymbol { sym } => self.symbols.get(usize::from(sym.0)),
            _ => None,
        };
        if found.is_none_or(|s| s.name != name || s.add != add) {
            let found = found.map_or("something else".to_owned(), |s| s.to_string());
            self.fault(line, Property::Calls, format!("{found} is called, not {name}{add:+}"));
        }
    }

    /// Where code runs that may overwrite the frame, the return address is guarded there.
    fn guarded(&mut self, line: usize, state: &State) {
        let parent = Value::of(Root::Parent);
        match self.contract.guard {
            Some(ReturnGuard::Pushed | ReturnGuard::Scs) if state.pushed != [parent] => {
                self.fault(line, Property::Guard, "the shadow stack does not have parent_ip at a call");
            }
            None | Some(ReturnGuard::Pushed | ReturnGuard::Scs) => {}
            Some(ReturnGuard::Signed) => {
                let shows = |field: &&Field| field.content == Content::ParentIp && !field.in_record;
                let shown = self.contract.frame.fields.iter().filter(shows).count();
                if state.memory.count(parent) > shown {
                    self.fault(line, Property::Guard, "parent_ip is on the stack at a call, and is not signed");
                }
            }
        }
    }

    /// What a frame record has as its return address.
    fn recorded_return(&self, ret: Content) -> Value {
        let plain = if ret == Content::Pc { self.pc } else { Value::of(Root::Parent) };
        let signed = plain.root == Root::Parent && self.contract.guard == Some(ReturnGuard::Signed);
        if signed { Value::of(Root::Signed) } else { plain }
    }

    /// The chain that an unwinder follows from the frame pointer.
    fn records(&mut self, line: usize, state: &State) {
        let (abi, contract) = (self.abi, self.contract);
        let fp = state.get(abi.fp);
        let records = &contract.frame.records;
        if contract.marks_regs && (contract.kind.calls_back() || contract.kind == Kind::Rethook) {
            let fregs = if contract.kind == Kind::Rethook {
                Some(0)
            } else {
                contract.convention.callback.position(Argument::Fregs)
            };
            let fregs = fregs.map_or(Value::lost(Why::Computed), |n| self.argument(n, state));
            self.same(line, Property::Records, "the frame pointer", fregs.plus(1), fp);
            // The records lie above the frame, where the unwinder knows them to be.
            let Some(base) = fregs.on_stack() else { return };
            let mut before = self.start.get(abi.fp);
            for record in records {
                let ret = self.recorded_return(record.ret);
                let place = base + record.offset;
                self.same(line, Property::Records, "fp in a frame record", before, state.memory.load(place));
                self.same(
                    line,
                    Property::Records,
                    "return address in a frame record",
                    ret,
                    state.memory.load(place + 8),
                );
                before = Value::stack(place);
            }
            return;
        }
        if records.is_empty() {
            if !contract.realigned {
                self.same(line, Property::Records, "the frame pointer", self.start.get(abi.fp), fp);
            }
            return;
        }
        let (mut fp, mut last) = (fp, None);
        for record in records.iter().rev() {
            let ret = self.recorded_return(record.ret);
            let Some(place) = fp.on_stack().map(|fp| fp + self.machine.record as i32) else {
                let found = self.tell(fp);
                self.fault(line, Property::Records, format!("the frame pointer is {found}, which is no frame record"));
                return;
            };
            self.same(line, Property::Records, "return address in a frame record", ret, state.memory.load(place + 8));
            if last.is_some_and(|last| place <= last) {
                self.fault(line, Property::Records, "a frame record does not lie above the one before".to_owned());
            }
            last = Some(place);
            fp = state.memory.load(place);
        }
        self.same(line, Property::Records, "fp in the last frame record", self.start.get(abi.fp), fp);
    }

    /// A handler: arguments, what it is shown, and what it may do.
    fn handler(&mut self, line: usize, called: Called, sp: i32, state: &mut State) {
        let call = state.calls as u8;
        let base = self.holds(line, At::call(state.calls, sp), state);
        if let Some(base) = base {
            self.inside(line, base, sp);
        }
        let copied = if called == Called::Named { self.contract.kind.copied_words() } else { 0 };
        self.clobber(Some(copied), state);
        if let Some(&ret) = self.abi.rets.first() {
            state.set(ret, Value::of(Root::Returned(call)));
        }
        if let (Some(base), true) = (base, self.shows()) {
            self.stored(base, call, state);
        }
    }

    /// A function around a program, or around all.
    fn around(&mut self, line: usize, (called, n): (Called, usize), sp: i32, state: &mut State) {
        self.holds(line, At::call(state.calls, sp), state);
        let of_program = n < self.contract.stated.around_programs.len();
        let (before, call) = (matches!(called, Called::Before(_)), state.calls as u8);
        let given = self.argument(if before { 1 } else { 2 }, state);
        if of_program && before {
            state.run_context = given.on_stack();
            if given.on_stack().is_none_or(|at| at < sp || at + Bracket::RUN_CONTEXT > self.top) {
                self.fault(line, Property::Arguments, "the run context is not on our part of the stack");
            }
        } else if let (true, Some(at)) = (of_program, state.run_context) {
            self.same(line, Property::Arguments, "the run context", Value::stack(at), given);
            let kept = Value::of(Root::Left(at + Bracket::SAVED, call.saturating_sub(2)));
            self.same(
                line,
                Property::Arguments,
                "what is kept in the run context",
                kept,
                state.memory.load(at + Bracket::SAVED),
            );
        }
        self.clobber(Some(0), state);
        if let (true, Some(at)) = (of_program, state.run_context) {
            state.memory.store(at, Value::lost(Why::Clobbered));
            let own =
                if before { Value::of(Root::Left(at + Bracket::SAVED, call)) } else { Value::lost(Why::Clobbered) };
            state.memory.store(at + Bracket::SAVED, own);
        }
        if let Some(&ret) = self.abi.rets.first() {
            state.set(ret, Value::of(Root::Returned(call)));
        }
    }

    pub(super) fn argument(&self, n: usize, state: &State) -> Value {
        self.abi.args.get(n).map_or(Value::lost(Why::Computed), |reg| state.get(*reg))
    }

    /// The frame lies between SP and what the site's caller has.
    fn inside(&mut self, line: usize, base: i32, sp: i32) {
        let size = self.contract.frame.c_size;
        if base < sp || base + size > self.top {
            self.fault(
                line,
                Property::Frame,
                format!("the frame at sp{:+} is not on our part of the stack", base - sp),
            );
        }
    }

    /// The call that decides the way by what it has returned, if nobody has looked at that yet.
    pub(super) fn undecided(&self, state: &State) -> Option<u8> {
        let last = state.calls.checked_sub(1).filter(|_| !state.decided)?;
        let of_program = |n: usize| n < self.contract.stated.around_programs.len();
        let call = match self.calls.get(last)? {
            Called::Before(n) if of_program(*n) => last,
            Called::Program(_) if self.contract.stated.around_programs.is_empty() && self.may_decide(last) => last,
            // The function behind the program does not overwrite what that has decided.
            Called::After(_) => {
                let refused = state.refused.map(usize::from);
                last.checked_sub(1).filter(|call| refused != call.checked_sub(1) && self.may_decide(*call))?
            }
            _ => return None,
        };
        Some(call as u8)
    }

    /// Somebody must have looked at what the last call returned, where that decides the way.
    pub(super) fn decided(&mut self, line: usize, state: &State) {
        if self.undecided(state).is_some() {
            self.fault(line, Property::Control, "nobody asked what the program before returned");
        }
    }

    /// The traced function: its state is that of the site, and it returns here.
    fn body(&mut self, line: usize, sp: i32, state: &mut State) {
        self.recorded(line, false, state);
        self.kept(line, state);
        self.holds(line, At::call(state.calls, sp), state);
        let copied = self.contract.kind.copied_words();
        self.clobber(Some(copied), state);
        for reg in RegSet::of(self.abi.exit_rets).union(RegSet::of(self.abi.rets)).union(self.contract.results()).iter()
        {
            state.set(reg, Value::of(Root::Body(reg)));
        }
        if let Some(counted) = self.contract.kind.programs().and_then(|programs| programs.tail_call) {
            state.set(counted.reg, Value::of(Root::Body(counted.reg)));
        }
        for (n, vector) in state.vectors.iter_mut().enumerate() {
            *vector = [0, 1].map(|half| Value::of(Root::BodyVector(n as u8, half)));
        }
        state.returned = true;
    }

    /// Mark everything that a C function may clobber as unknown. `copied` words of stack arguments belong to the callee.
    fn clobber(&mut self, copied: Option<i32>, state: &mut State) {
        let abi = self.abi;
        let lost = Value::lost(Why::Clobbered);
        self.contract.c_loses().iter().chain(abi.link).for_each(|reg| state.set(reg, lost));
        (state.flags, state.tested, state.compared) = (lost, None, None);
        let sp = state.get(abi.sp).on_stack().unwrap_or(0);
        (0..copied.unwrap_or(0)).for_each(|word| state.memory.store(sp + 8 * word, lost));
        if !self.contract.leaves_vectors() {
            for (n, vector) in state.vectors.iter_mut().enumerate() {
                // Of those that it must keep, arm64 has the lower half only.
                let kept = if abi.vector_callee_saved.contains(&(n as u8)) { 1 } else { 0 };
                vector[kept..].fill(lost);
            }
        }
    }
}
