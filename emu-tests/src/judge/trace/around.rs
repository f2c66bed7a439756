//! P10: the functions that Linux calls around each program, and around all programs and the traced function.

use codegen::contract::Contract;
use codegen::contract::demand::{Called, Holds, Spot};
use codegen::words::program::Bracket;

use super::state::{Activation, Around, Begun};
use super::{Culprit, Here, Trace};
use crate::engine::rng::Rng;
use crate::report::Clause;
use crate::report::place::Place;
use crate::run::situation::Situation;

/// The run context, and where in it the caller's context is kept.
const RUN_CONTEXT: u64 = Bracket::RUN_CONTEXT as u64;
const SAVED: u64 = Bracket::SAVED as u64;

/// Which function a trampoline called.
enum Which {
    BeforeProgram,
    AfterProgram,
    BeforeAll,
    AfterAll,
}

impl Trace {
    /// A function that is called around others begins.
    pub(super) fn around(&mut self, here: &mut Here) {
        self.check_call(here);
        let Some(contract) = self.contract() else { return };
        self.check_records(here, &contract);
        match self.which(here, &contract) {
            Some(Which::BeforeProgram) => self.program_begins(here, &contract),
            Some(Which::AfterProgram) => self.program_ended(here, &contract),
            Some(Which::BeforeAll) => self.enters(here, &contract),
            Some(Which::AfterAll) => self.leaves(here, &contract),
            None => {}
        }
    }

    /// The addresses of the two functions around program `n`; behind the last program, of those around all.
    fn bracket(&self, contract: &Contract, n: usize) -> [u64; 2] {
        let from = contract.programs.len() + 2 * n;
        let callees = self.callees.get(self.trampoline()).and_then(|all| all.get(from..from + 2));
        callees.and_then(|pair| pair.try_into().ok()).unwrap_or_default()
    }

    fn which(&self, here: &Here, contract: &Contract) -> Option<Which> {
        let count = contract.programs.len();
        let [enter, leave] = self.bracket(contract, count);
        let programs = (0..count).map(|n| self.bracket(contract, n));
        let [before, after] = [0, 1].map(|which| programs.clone().any(|pair| pair[which] == here.pc));
        match () {
            () if here.pc == enter => Some(Which::BeforeAll),
            () if here.pc == leave => Some(Which::AfterAll),
            // One function may be both.
            () if after && (!before || self.state.begun.is_some()) => Some(Which::AfterProgram),
            () => before.then_some(Which::BeforeProgram),
        }
    }

    fn program_begins(&mut self, here: &mut Here, contract: &Contract) {
        let p10 = self.at(Clause::P10, here.pc);
        self.check(p10, Place::ProgramEnds, false, self.state.begun.is_some());
        self.check(p10, Place::AroundOpen, true, self.open(contract));
        let Some(calls) = self.count() else { return };
        let over = self.state.exiting().is_some();
        let Some((_, n)) = self.due(contract, over).nth(calls as usize - 1) else {
            self.check(p10, Place::Programs, calls - 1, calls);
            return;
        };
        let [enter, _] = self.bracket(contract, n);
        self.check(p10, Place::BeforeProgram, enter, here.pc);
        let (argument, run_context) = (here.arg(0), here.arg(1));
        if let Some(wanted) = self.arguments(n) {
            self.checks.check_by(p10, Place::ProgramArgument, self.register(here, 0), wanted, argument);
        }
        let top = self.state.exiting().map(|e| e.sp).or(self.state.activations.last().map(|a| a.sp)).unwrap_or(0);
        let inside = run_context >= here.sp() && run_context.wrapping_add(RUN_CONTEXT) <= top;
        self.checks.check_by(p10, Place::RunContext, self.register(here, 1), true, inside);
        let moment = contract.moment(Called::Before(n), over);
        for demand in self.demanded().iter().filter(|demand| Some(demand.moment) == moment) {
            if let (Spot::RunContext, Holds::Is(term)) = (demand.spot, &demand.holds) {
                let cookie = term.add.cast_unsigned();
                let by = Culprit::Memory(run_context);
                self.checks.check_by(p10, Place::Cookie, by, cookie, here.word(run_context));
                self.check_written(run_context, "cookie", here.pc);
            }
        }
        self.poison(here, 120 + 2 * calls + u64::from(over));
        let mut rng = Rng::new(self.case.seed, 0x400 + 2 * calls + u64::from(over));
        let always = contract.stated.around_programs.get(n).is_some_and(|program| program.around.always);
        let refuses = self.case.situation == Situation::Unentered && !always;
        let start = if refuses { 0 } else { self.case.canary(&mut rng) | 1 };
        let saved = self.case.canary(&mut rng);
        self.store(here, vec![(run_context.wrapping_add(SAVED), saved)], &Place::StoreRunContext);
        here.set(here.registers.abi.rets[0], start);
        self.state.begun = Some(Begun { n, argument, run_context, saved, start, called: false });
    }

    /// A program that has functions around it begins; false if the one before it did not let it.
    pub(super) fn begins_inside(&mut self, here: &Here, n: usize) -> bool {
        let lets = self.state.begun.as_mut().filter(|begun| begun.n == n && begun.start != 0 && !begun.called);
        let lets = lets.map(|begun| begun.called = true).is_some();
        self.check(self.at(Clause::P10, here.pc), Place::ProgramLet, true, lets);
        lets
    }

    fn program_ended(&mut self, here: &mut Here, contract: &Contract) {
        let p10 = self.at(Clause::P10, here.pc);
        let begun = self.state.begun.take();
        self.check(p10, Place::ProgramBegan, true, begun.is_some());
        let Some(begun) = begun else { return };
        let [_, exit] = self.bracket(contract, begun.n);
        self.check(p10, Place::AfterProgram, exit, here.pc);
        self.check(p10, Place::ProgramCalled, begun.start != 0, begun.called);
        let wanted = [
            (Place::ProgramArgument, begun.argument),
            (Place::Start, begun.start),
            (Place::RunContextAgain, begun.run_context),
        ];
        for (n, (place, wanted)) in wanted.into_iter().enumerate() {
            self.checks.check_by(p10, place, self.register(here, n), wanted, here.arg(n));
        }
        let at = begun.run_context.wrapping_add(SAVED);
        self.checks.check_by(p10, Place::RunContextSaved, Culprit::Memory(at), begun.saved, here.word(at));
        // Theirs to use until it returns: what they leave is nobody's cookie.
        let mut rng = Rng::new(self.case.seed, 0x480 + begun.n as u64);
        let own = [0, SAVED].map(|at| (begun.run_context.wrapping_add(at), self.case.canary(&mut rng)));
        self.store(here, own.to_vec(), &Place::StoreRunContext);
        self.poison(here, 160 + begun.n as u64 + 40 * u64::from(self.state.exiting().is_some()));
        if contract.kind.is_function() && !begun.called {
            self.end_early(here, Vec::new());
        }
    }

    fn enters(&mut self, here: &mut Here, contract: &Contract) {
        let p10 = self.at(Clause::P10, here.pc);
        let argument = here.arg(0);
        if let Some(wanted) = self.arguments(contract.programs.len()) {
            self.checks.check_by(p10, Place::AroundArgument, self.register(here, 0), wanted, argument);
        }
        let Some(Activation { around, calls, .. }) = self.state.activations.last_mut() else { return };
        around.entered += 1;
        around.argument = argument;
        let before = *calls;
        self.check(p10, Place::AroundFirst, 0, before);
        self.poison(here, 240);
    }

    fn leaves(&mut self, here: &mut Here, contract: &Contract) {
        let p10 = self.at(Clause::P10, here.pc);
        let due = if self.case.situation.retired() { 0 } else { self.due(contract, true).count() as u64 };
        let Some(exiting) = self.state.exiting_mut() else {
            self.check(p10, Place::AroundLast, true, false);
            return;
        };
        exiting.around.left += 1;
        let (argument, calls) = (exiting.around.argument, exiting.calls);
        self.check(p10, Place::AroundLast, due, calls);
        self.checks.check_by(p10, Place::AroundArgument, self.register(here, 0), argument, here.arg(0));
        self.poison(here, 241);
    }

    /// Before the traced function, `left` is 0; where its caller goes on, both are 1.
    pub(super) fn check_around(&mut self, here: &Here, contract: &Contract, around: Around, left: u64) {
        let p10 = self.at(Clause::P10, here.pc);
        let over = !contract.stated.around_programs.is_empty();
        if over {
            self.check(p10, Place::ProgramEnds, false, self.state.begun.is_some());
        }
        if contract.stated.around_function.is_some() {
            self.check(p10, Place::AroundEntered, 1, around.entered);
            self.check(p10, Place::AroundLeft, left, around.left);
        }
    }

    /// Did the trampoline call what comes first, and not yet what comes last?
    fn open(&self, contract: &Contract) -> bool {
        let around = match self.state.exiting() {
            Some(exiting) => exiting.around,
            None => self.state.activations.last().map(|a| a.around).unwrap_or_default(),
        };
        contract.stated.around_function.is_none() || around.entered > around.left
    }

    /// One more program is called; nothing if no trampoline is at work.
    pub(super) fn count(&mut self) -> Option<u64> {
        let calls = match self.state.exiting().is_some() {
            true => self.state.exiting_mut().map(|e| &mut e.calls),
            false => self.state.activations.last_mut().map(|a| &mut a.calls),
        }?;
        *calls += 1;
        Some(*calls)
    }

    /// What the contract says that the functions around program `n` are given, or those around all.
    fn arguments(&self, n: usize) -> Option<u64> {
        self.arguments.get(self.trampoline()).and_then(|all| all.get(n)).copied().flatten()
    }

    fn register(&self, here: &Here, n: usize) -> Culprit {
        Culprit::Register(here.registers.abi.args[n])
    }
}
