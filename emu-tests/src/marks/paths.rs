//! All paths of a function, and where its return address is at each of their ends.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use codegen::arch::facts::Promise;
use codegen::arch::machine::Goes;
use codegen::arch::moves::Move;

use super::code::{Code, Function, Insn};
use super::values::{State, Value};
use super::why::Why;

/// Instructions of one function that are followed.
const MOST: usize = 1 << 16;

/// Times that code to which no branch leads is told what is known where it may come from.
const ROUNDS: usize = 64;

/// Values that are kept for one function: each takes some ten bytes of memory.
const KEPT: u64 = 1 << 21;

/// Something about a function that speaks against a promise.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Problem {
    pub promise: Promise,
    pub at: u64,
    pub why: Why,
}

/// A jump by a register that a landing pad must receive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Jump {
    /// Perhaps it calls another function.
    Anywhere,
    /// It stays inside of the function, as the frame is still there.
    Inside,
}

/// What following a function's paths has shown.
#[derive(Default)]
pub(super) struct Followed {
    pub problems: Vec<Problem>,
    /// Where other functions are gone on in with this one's frame.
    pub joined: BTreeSet<u64>,
    /// Code that no branch leads to.
    pub hidden: Vec<u64>,
    /// A jump by a register, if there is one in the function.
    pub jump: Option<Jump>,
    /// It puts something onto the CPU's shadow stack, or signs.
    pub guards: bool,
    /// It has entries on the shadow call stack, of which no note says anything.
    pub scs: bool,
    /// Where it does not use that as it must; is it certain?
    pub scs_faults: BTreeSet<(u64, bool)>,
    /// Where the unwind table has the return address signed and it is not, or the other way round.
    pub misstated: BTreeSet<u64>,
}

/// Follow the paths of a function.
pub(super) fn follow(code: &Code, function: &Function) -> Followed {
    let mut joined = BTreeSet::new();
    loop {
        let mut paths = Paths::of(code, function, &joined);
        if !paths.settle() {
            let why = Why::TooLong;
            let problem = |promise| Problem { promise, at: function.range.start, why: why.clone() };
            let problems = PROMISES.map(problem).into();
            return Followed { problems, joined, ..Followed::default() };
        }
        let ends = paths.ends();
        // Where nothing may be spent any more, the next round says so.
        if ends.joined.is_subset(&joined) && code.spend(0) {
            let problems = ends.problems.into_iter().collect();
            let (guards, scs, misstated) = (paths.guards, paths.scs, ends.misstated);
            let (hidden, jump, scs_faults) = (paths.hidden, ends.jump, ends.scs);
            return Followed { problems, joined, hidden, jump, guards, scs, scs_faults, misstated };
        }
        joined.extend(ends.joined);
    }
}

/// What code that was not followed leaves open.
const PROMISES: [Promise; 4] = [Promise::Pads, Promise::Paired, Promise::Guarded, Promise::Signed];

struct Paths<'c, 'i> {
    code: &'c Code<'i>,
    range: Range<u64>,
    /// Where pieces of straight code begin, with what is known there.
    heads: BTreeMap<u64, Option<State>>,
    /// Heads of which no branch says that it leads there.
    hidden: Vec<u64>,
    guards: bool,
    scs: bool,
    /// Values that `heads` has.
    kept: u64,
    too_long: bool,
}

/// What is known where code may be left for code to which no branch leads.
#[derive(Default)]
struct Sources {
    /// Jumps by a register, with something on the stack.
    jumps: Vec<State>,
    /// Jumps by a register that may as well call another function.
    leaves: Vec<State>,
    /// Calls, when they come back.
    calls: Vec<State>,
}

/// What pieces of straight code lead to.
#[derive(Default)]
struct Out {
    to: Vec<(u64, State)>,
    sources: Sources,
    problems: BTreeSet<Problem>,
    /// Where they go on in other functions.
    joined: BTreeSet<u64>,
    jump: Option<Jump>,
    /// Where the return address is stored on the stack as it is.
    stores: BTreeSet<u64>,
    /// It is returned to as it was there.
    returns_stored: bool,
    misstated: BTreeSet<u64>,
    scs: BTreeSet<(u64, bool)>,
}

impl<'c, 'i> Paths<'c, 'i> {
    fn of(code: &'c Code<'i>, function: &Function, joined: &BTreeSet<u64>) -> Paths<'c, 'i> {
        let range = function.range.clone();
        let heads = BTreeMap::new();
        let mut paths = Paths {
            code,
            range: range.clone(),
            heads,
            hidden: Vec::new(),
            guards: false,
            scs: false,
            kept: 0,
            too_long: false,
        };
        let mut reached = BTreeSet::new();
        paths.reach(range.start, joined, &mut reached);
        joined.iter().for_each(|at| paths.reach(*at, joined, &mut reached));
        paths.heads.insert(range.start, Some(State::entry(&code.backend.facts().abi)));
        let cut_off = joined.iter().filter_map(|at| code.around(*at)).filter(|f| f.cut_off).map(|f| f.range.clone());
        let ranges: Vec<Range<u64>> = [range].into_iter().chain(cut_off).collect();
        let all: Vec<&Insn> = ranges.into_iter().flat_map(|part| code.within(part)).collect();
        paths.hide(&all, joined, &mut reached);
        let mut moves = reached.iter().filter_map(|at| code.insn(*at)).flat_map(|insn| &insn.moves);
        paths.scs = moves.clone().any(|step| matches!(step, Move::PushScs(_) | Move::PopScs(_)));
        paths.guards = moves
            .any(|step| matches!(step, Move::Sign(..) | Move::Authenticate(..) | Move::Push(_) | Move::PopCheck(_)));
        paths.too_long = reached.len() > MOST || !code.spend(reached.len() as u64);
        paths
    }

    /// Find the code that no branch leads to, and what is reached from there.
    fn hide(&mut self, all: &[&Insn], joined: &BTreeSet<u64>, reached: &mut BTreeSet<u64>) {
        let targets: BTreeSet<u64> = all.iter().filter(|insn| !insn.calls()).filter_map(|insn| insn.target).collect();
        let behind = |n: usize| {
            n.checked_sub(1).and_then(|n| all.get(n)).is_some_and(|i| !i.last && !i.filler && self.goes_on(i))
        };
        let begins = |n: usize, insn: &Insn| !targets.contains(&insn.at) && !behind(n);
        let first: Vec<u64> =
            all.iter().enumerate().filter(|(n, insn)| begins(*n, insn)).map(|(_, insn)| insn.at).collect();
        let rest = all.iter().map(|insn| insn.at);
        for at in first.into_iter().chain(rest) {
            let filler = self.code.insn(at).is_none_or(|insn| insn.filler);
            if !filler && !reached.contains(&at) {
                self.hidden.push(at);
                self.reach(at, joined, reached);
            }
        }
    }

    /// Find the code that control comes to from here, and the heads in it.
    fn reach(&mut self, from: u64, joined: &BTreeSet<u64>, reached: &mut BTreeSet<u64>) {
        self.heads.entry(from).or_insert(None);
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            if reached.len() > MOST || !reached.insert(at) {
                continue;
            }
            let Some(insn) = self.code.insn(at) else { continue };
            if let Some(to) = insn.target.filter(|to| self.stays(insn, *to, joined)) {
                self.heads.entry(to).or_insert(None);
                open.push(to);
            }
            if !insn.last && self.goes_on(insn) && !self.is_other(insn.next, joined) {
                open.push(insn.next);
            }
        }
    }

    /// Does a direct branch lead to code that belongs to this function?
    fn stays(&self, insn: &Insn, to: u64, joined: &BTreeSet<u64>) -> bool {
        let inside = self.range.contains(&to) || joined.contains(&to);
        let near = || joined.iter().any(|at| self.code.around(*at).is_some_and(|f| f.range.contains(&to)));
        // A call of what has a name is a call of another function.
        let named = || insn.calls() && self.code.begins(to).is_some();
        to != insn.next && (inside || near()) && !named()
    }

    /// Does something come next behind an instruction? Behind a call at a function's end, nothing does.
    fn goes_on(&self, insn: &Insn) -> bool {
        !insn.calls() || insn.target == Some(insn.next) || self.code.returns(insn)
    }

    /// Is this the beginning of another function?
    fn is_other(&self, at: u64, joined: &BTreeSet<u64>) -> bool {
        !self.range.contains(&at) && !joined.contains(&at) && self.code.begins(at).is_some()
    }

    /// Go through all pieces until nothing changes. Returns whether that came to an end.
    fn settle(&mut self) -> bool {
        if self.too_long || !self.spread(BTreeSet::from([self.range.start])) {
            return false;
        }
        // Each round may reach jumps and calls that lead on.
        for _ in 0..ROUNDS {
            let open = self.enter_hidden();
            let done = open.is_empty();
            if !self.spread(open) {
                return false;
            }
            if done {
                return !self.too_long;
            }
        }
        false
    }

    /// Tell the code to which no branch leads what is known where it may come from: jumps by a register, and calls, out of which an
    /// exception leads there. Returns what has learnt something.
    fn enter_hidden(&mut self) -> BTreeSet<u64> {
        let mut sources = Sources::default();
        let mut kept = 0;
        for (head, state) in self.heads.iter().filter(|_| !self.hidden.is_empty()) {
            let Some(state) = state else { continue };
            let out = self.piece(*head, state.clone());
            let new = [&out.sources.jumps, &out.sources.leaves, &out.sources.calls];
            kept += new.into_iter().flatten().map(State::size).sum::<u64>();
            if kept > KEPT {
                self.too_long = true;
                return BTreeSet::new();
            }
            sources.jumps.extend(out.sources.jumps);
            sources.leaves.extend(out.sources.leaves);
            sources.calls.extend(out.sources.calls);
        }
        let abi = &self.code.backend.facts().abi;
        let mut open = BTreeSet::new();
        for at in self.hidden.clone() {
            let fits = |state: &&State| self.code.frame(at).is_none_or(|frame| state.is_frame(abi, frame.cfa));
            let all = [&sources.jumps, &sources.leaves, &sources.calls];
            self.too_long |= !self.code.spend(all.iter().map(|states| states.len() as u64).sum());
            let fitting = all.iter().map(|states| states.iter().filter(fits).collect::<Vec<_>>());
            let Some(from) = fitting.into_iter().find(|states| !states.is_empty()) else { continue };
            for state in from {
                if self.learn(at, state) {
                    open.insert(at);
                }
            }
        }
        open
    }

    /// Control comes to a head with this state. Returns whether less is known there now.
    fn learn(&mut self, head: u64, state: &State) -> bool {
        if !self.code.spend(state.size()) {
            return false;
        }
        let known = self.heads.entry(head).or_insert(None);
        let before = known.as_ref().map_or(0, State::size);
        let changed = match known {
            Some(known) => known.meet(state),
            None => {
                *known = Some(state.clone());
                true
            }
        };
        self.kept += known.as_ref().map_or(0, State::size) - before;
        self.too_long |= self.kept > KEPT;
        changed
    }

    /// Go on from these. Returns whether that came to an end.
    fn spread(&mut self, mut open: BTreeSet<u64>) -> bool {
        while let Some(head) = open.pop_first() {
            let Some(Some(state)) = self.heads.get(&head).cloned() else { continue };
            for (to, state) in self.piece(head, state).to {
                if self.learn(to, &state) {
                    open.insert(to);
                }
            }
            if self.too_long || !self.code.spend(0) {
                return false;
            }
        }
        true
    }

    /// What all pieces show, once they are settled.
    fn ends(&self) -> Out {
        let mut all = Out::default();
        for (head, state) in &self.heads {
            let Some(state) = state else { continue };
            let out = self.piece(*head, state.clone());
            all.problems.extend(out.problems);
            all.joined.extend(out.joined);
            all.jump = all.jump.max(out.jump);
            all.stores.extend(out.stores);
            all.misstated.extend(out.misstated);
            all.scs.extend(out.scs);
            all.returns_stored |= out.returns_stored;
        }
        // What is only shown to others does no harm.
        if all.returns_stored {
            let plain = |at: &u64| Problem { promise: Promise::Signed, at: *at, why: Why::StoredPlain };
            all.problems.extend(all.stores.iter().map(plain));
        }
        // Who moves the shadow stack himself may return where he likes.
        if all.problems.iter().any(|problem| problem.why == Why::MovesShadow) {
            all.problems.retain(|problem| problem.promise != Promise::Paired || problem.why == Why::MovesShadow);
        }
        all
    }

    /// Straight code from a head to the next one, or to where nothing follows.
    fn piece(&self, head: u64, mut state: State) -> Out {
        let abi = &self.code.backend.facts().abi;
        let mut out = Out::default();
        let mut at = head;
        loop {
            let (true, Some(insn)) = (self.code.spend(1), self.code.insn(at)) else {
                if self.code.unreadable.contains(&at) {
                    out.all(at, &Why::NoInstruction);
                }
                return out;
            };
            if self.code.frame(at).is_some_and(|frame| state.is_misstated(abi, &frame)) {
                out.misstated.insert(at);
            }
            for step in &insn.moves {
                self.watch(insn, *step, &state, &mut out);
                state.step(abi, *step, insn.at);
            }
            self.branch(insn, &mut state, &mut out);
            if insn.last || !self.goes_on(insn) {
                return out;
            }
            at = insn.next;
            if insn.calls() && insn.target != Some(insn.next) {
                state.called(abi, insn.next);
            }
            if self.heads.contains_key(&at) {
                out.to.push((at, state));
                return out;
            }
            if !self.range.contains(&at) && self.code.begins(at).is_some() {
                // It falls into the next function.
                if !state.is_as_called(abi) {
                    out.joined.insert(at);
                }
                return out;
            }
        }
    }

    /// Look at a move before it is made.
    fn watch(&self, insn: &Insn, step: Move, state: &State, out: &mut Out) {
        match step {
            Move::Store { what: Some(reg), at, .. } if matches!(state.get(reg), Value::Return { .. }) => {
                if matches!(state.get(at), Value::Stack { .. }) {
                    out.stores.insert(insn.at);
                }
            }
            Move::Authenticate(reg, seal) => {
                let due = state.sealed(&self.code.backend.facts().abi, seal);
                let why = match (state.get(reg), due) {
                    (found, due) if found == due => return,
                    (Value::Signed { seal: by, .. }, _) if by != seal => Why::AuthenticatesOtherwise,
                    // Of a frame whose size is not known, nobody knows how far it is from the one before.
                    (Value::Signed { sp: Some((from, _)), .. }, Value::Signed { sp: Some((now, _)), .. })
                        if from == now =>
                    {
                        Why::AuthenticatesOtherwise
                    }
                    (Value::Return { .. } | Value::Stack { .. } | Value::Number(_), _) => Why::AuthenticatesOther,
                    _ => Why::AuthenticatesUnknown,
                };
                out.problem(Promise::Signed, insn.at, why);
            }
            Move::PopCheck(reg) => {
                let why = match (state.pushed, state.get(reg)) {
                    (None | Some(Value::Stack { .. } | Value::Number(_)), _) => Why::AuthenticatesOther,
                    (Some(Value::Return { .. }), Value::Stack { .. } | Value::Number(_) | Value::Behind(_)) => {
                        Why::AuthenticatesOther
                    }
                    (Some(Value::Return { .. }), _) => return,
                    (Some(Value::Foreign), Value::Return { .. }) => Why::AuthenticatesOther,
                    _ => Why::AuthenticatesUnknown,
                };
                out.both(insn.at, &why);
            }
            Move::PopScs(_) if state.scs.is_some_and(Value::is_return) => {}
            Move::PopScs(_) => {
                let certain = !matches!(state.scs, Some(Value::Unknown | Value::Behind(_)));
                out.scs.insert((insn.at, certain));
            }
            // Who overwrites memory decides then where all callers return to.
            Move::Load { to, .. } if self.scs && self.code.backend.facts().abi.scs == Some(to) => {
                out.scs.insert((insn.at, true));
            }
            Move::ShadowPointer | Move::ShadowRead => out.problem(Promise::Paired, insn.at, Why::MovesShadow),
            _ => {}
        }
    }

    /// Where a branch leads.
    fn branch(&self, insn: &Insn, state: &mut State, out: &mut Out) {
        let abi = &self.code.backend.facts().abi;
        match insn.goes {
            Goes::On => {}
            Goes::Back => self.returns(insn, state, out),
            Goes::To if insn.calls() && insn.target == Some(insn.next) => state.called_next(abi, insn.next),
            Goes::To => self.direct(insn, state, out),
            Goes::Anywhere if insn.calls() => self.behind_call(insn, state, out),
            Goes::Anywhere => self.indirect(insn, state, out),
        }
    }

    fn returns(&self, insn: &Insn, state: &State, out: &mut Out) {
        let abi = &self.code.backend.facts().abi;
        // Returns from an exception are no function's.
        if insn.branch.is_none_or(|branch| !branch.pops)
            && !insn.moves.iter().any(|step| matches!(step, Move::Authenticate(..)))
        {
            return;
        }
        let sp = state.get(abi.sp);
        let value = state.returns_to(abi, insn.by.or(abi.link));
        out.returns_stored |= value == Value::Return { stored: true };
        if matches!(value, Value::Signed { .. }) {
            out.problem(Promise::Signed, insn.at, Why::ReturnsSigned);
        }
        self.keeps_pushed(insn, state, out);
        let why = match (value, state.taken) {
            (value, taken) if value.is_return() => {
                if !taken {
                    return;
                }
                Why::CallLeft
            }
            (Value::Foreign, _) if abi.link.is_none() && sp == Value::Foreign => Why::OtherStack,
            _ if abi.link.is_none() && sp == Value::Unknown => Why::StackUnknown,
            (Value::Unknown | Value::Behind(_), _) => Why::ReturnUnknown,
            _ => Why::ReturnsElsewhere,
        };
        out.problem(Promise::Paired, insn.at, why);
    }

    /// The function is left, and a shadow stack has something of it still.
    fn keeps_pushed(&self, insn: &Insn, state: &State, out: &mut Out) {
        out.scs.extend(state.scs.map(|value| (insn.at, value != Value::Unknown)));
        match state.pushed {
            None => {}
            // It was pushed on some ways, or something else was.
            Some(Value::Unknown) => out.both(insn.at, &Why::AuthenticatesUnknown),
            Some(_) => out.both(insn.at, &Why::ReturnsSigned),
        }
    }

    /// A direct jump, branch or call.
    fn direct(&self, insn: &Insn, state: &mut State, out: &mut Out) {
        let Some(to) = insn.target else { return };
        let abi = &self.code.backend.facts().abi;
        let named = self.code.begins(to).is_some();
        if insn.calls() {
            if self.heads.contains_key(&to) && !named {
                out.to.push((to, State::entry(abi)));
            }
            self.behind_call(insn, state, out);
            return;
        }
        // Back to the beginning, everything is as called, or the function calls itself last.
        let own = self.heads.contains_key(&to) && (to != self.range.start || !state.is_as_called(abi));
        if own {
            out.to.push((to, state.clone()));
        } else if !state.is_as_called(abi) {
            match self.code.around(to) {
                Some(_) => {
                    out.joined.insert(to);
                }
                None => self.leaves(insn, state, out),
            }
        } else {
            self.keeps_pushed(insn, state, out);
            out.returns_stored |= state.returns_to(abi, abi.link) == Value::Return { stored: true };
        }
    }

    /// A jump by a register or by memory.
    fn indirect(&self, insn: &Insn, state: &State, out: &mut Out) {
        let abi = &self.code.backend.facts().abi;
        let value = insn.by.map_or(Value::Unknown, |by| state.get(by));
        out.returns_stored |= value == Value::Return { stored: true };
        if value.is_return() {
            out.problem(Promise::Paired, insn.at, Why::LeavesByJump);
        } else if state.is_as_called(abi) {
            out.returns_stored |= state.returns_to(abi, abi.link) == Value::Return { stored: true };
            out.sources.leaves.push(state.clone());
        } else {
            if self.hidden.is_empty() {
                self.leaves(insn, state, out);
            }
            let jump = if state.has_frame(abi) { Jump::Inside } else { Jump::Anywhere };
            out.jump = insn.branch.and_then(|branch| branch.indirect).map(|_| jump);
            out.sources.jumps.push(state.clone());
        }
    }

    /// Control leaves the function, and something of it is left on the stack.
    fn leaves(&self, insn: &Insn, state: &State, out: &mut Out) {
        let abi = &self.code.backend.facts().abi;
        out.problem(Promise::Paired, insn.at, Why::GoesOn);
        if matches!(state.returns_to(abi, abi.link), Value::Signed { .. }) {
            out.problem(Promise::Signed, insn.at, Why::GoesOn);
        }
    }

    /// A call comes back.
    fn behind_call(&self, insn: &Insn, state: &State, out: &mut Out) {
        if !self.hidden.is_empty() {
            let mut thrown = state.clone();
            thrown.called(&self.code.backend.facts().abi, insn.next);
            out.sources.calls.push(thrown);
        }
    }
}

impl Out {
    fn problem(&mut self, promise: Promise, at: u64, why: Why) {
        self.problems.insert(Problem { promise, at, why });
    }

    /// Something about a shadow stack that is asked to check.
    fn both(&mut self, at: u64, why: &Why) {
        self.problem(Promise::Signed, at, why.clone());
        self.problem(Promise::Guarded, at, why.clone());
    }

    fn all(&mut self, at: u64, why: &Why) {
        for promise in PROMISES {
            self.problem(promise, at, why.clone());
        }
    }
}
