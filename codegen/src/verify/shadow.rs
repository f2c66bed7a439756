//! The thread's shadow stack: that an entry is taken before it is written, found again by SP, and given back once it is read.

use super::run::Question;
use super::value::{Root, Shadow, State, Value};
use super::{Checker, Property};
use crate::effect::action::Action;
use crate::words::recorder::Recorder;

impl Checker<'_> {
    /// The word that says where the next entry goes, as it is at the start.
    fn top(&self) -> Option<Value> {
        self.thread?.shadow.map(|[top, _]| Value::of(Root::ThreadWord(top)))
    }

    /// Is this the address of the entry that is taken, or of a word of it?
    pub(super) fn is_top(&self, address: Value) -> bool {
        self.top().is_some_and(|top| top.root == address.root)
    }

    /// A word of the thread, as it is now: where entries go has changed since the start.
    pub(super) fn thread_word(&self, at: i32, state: &State) -> Value {
        let word = Value::of(Root::ThreadWord(at));
        match self.top() {
            Some(top) if top == word && state.returned => Value::of(Root::Top),
            Some(top) if top == word && state.shadow.taken => word.plus(Recorder::KEPT.into()),
            _ => word,
        }
    }

    /// A word of an entry below the top.
    pub(super) fn kept_word(&self, address: Value, state: &State) -> Option<Value> {
        let Value { root: Root::Top, add } = address else { return None };
        let sp = i64::from(Recorder::KEPT_SP);
        if add < 0 && add.rem_euclid(Recorder::KEPT.into()) == sp {
            return Some(Value::of(Root::KeptSp(add - sp)));
        }
        (state.shadow.own == Some(add)).then(|| Value::of(Root::Parent))
    }

    /// A word of the thread is stored to: only that of the shadow stack may be, to take an entry and to give it back.
    pub(super) fn store_thread(&mut self, line: usize, at: i32, value: Value, state: &mut State) {
        let taken =
            self.top().filter(|top| top.root == Root::ThreadWord(at)).map(|top| top.plus(Recorder::KEPT.into()));
        let shadow = &mut state.shadow;
        if taken.is_none() {
            self.fault(line, Property::Record, "a word of the thread is changed in more than one step");
        } else if !state.returned {
            let wrong = shadow.taken || shadow.full != Some(false) || !taken.is_some_and(|taken| taken.is(value));
            shadow.taken = true;
            if wrong {
                self.fault(line, Property::Record, "no entry of the shadow stack is taken so");
            }
        } else {
            let own = shadow.own.is_some_and(|own| value.is(Value::of(Root::Top).plus(own)));
            let given_back = std::mem::replace(&mut shadow.given_back, true);
            let read = match self.abi.link {
                Some(link) => state.get(link),
                None => state.memory.load(self.site_sp),
            };
            let wrong = !own || given_back || !read.is(Value::of(Root::Parent));
            if wrong {
                self.fault(line, Property::Record, "an entry is given back that is not its own, or not yet read");
            }
        }
    }

    /// A word of the entry that was taken.
    pub(super) fn keep(&mut self, line: usize, at: i64, value: Value, state: &mut State) {
        if !state.shadow.taken || state.returned {
            self.fault(line, Property::Record, "a store to an entry of the shadow stack that was not taken");
        }
        state.shadow.stores.push((at, value));
    }

    /// When the function is called, its entry must hold the way back; when it is not, there is none.
    pub(super) fn kept(&mut self, line: usize, state: &State) {
        if self.thread.is_none_or(|places| places.shadow.is_none()) {
            return;
        }
        let wanted = [
            ("the return address on the shadow stack", 0, Value::of(Root::Parent)),
            ("sp on the shadow stack", i64::from(Recorder::KEPT_SP), Value::stack(self.top_of_caller())),
        ];
        for (name, at, wanted) in wanted {
            let found = state.shadow.stores.iter().rev().find(|(place, _)| *place == at).map(|(_, value)| *value);
            match found {
                Some(found) => self.same(line, Property::Record, name, wanted, found),
                None => self.fault(line, Property::Record, format!("{name} was never stored")),
            }
        }
        if state.shadow.stores.len() != wanted.len() {
            self.fault(line, Property::Record, "an entry of the shadow stack has other words");
        }
    }

    /// The same on the way out.
    pub(super) fn returned(&mut self, line: usize, state: &State) {
        if self.thread.is_none_or(|places| places.shadow.is_none()) {
            return;
        }
        let shadow = &state.shadow;
        match shadow.full {
            None => self.fault(line, Property::Record, "nobody asked whether the shadow stack has room"),
            Some(true) if shadow.taken => {
                self.fault(line, Property::Record, "an entry is taken where there is no room")
            }
            Some(false) if !shadow.given_back => {
                self.fault(line, Property::Record, "its entry of the shadow stack is not given back")
            }
            Some(_) => {}
        }
    }

    /// SP as it is when the function has returned.
    fn top_of_caller(&self) -> i32 {
        self.site_sp + self.abi.return_bytes() as i32
    }

    /// The question about the shadow stack that a branch tests, and whether the branch is taken if the answer is no.
    pub(super) fn asks_of_shadow(&self, action: Action, state: &State) -> Option<(Question, bool)> {
        let [top, limit] = self.thread?.shadow?.map(|at| Value::of(Root::ThreadWord(at)));
        let of_room = |(reg, with): (Value, Value)| {
            (reg.is(top) && with.is(limit) && state.shadow.full.is_none()).then_some((Question::NoRoomToReturn, false))
        };
        match action {
            Action::BranchIfNotBelow => state.compared.and_then(of_room),
            Action::BranchIfRegNotBelow { reg, with } => of_room((self.read(reg, state), self.read(with, state))),
            Action::BranchIfFlags { zero } => match (state.tested, state.compared) {
                (Some(value), _) => is_last(value, state).map(|question| (question, zero)),
                (None, compared) => self.is_another(compared?, state).map(|question| (question, zero)),
            },
            Action::BranchIfRegsDiffer { reg, with } => {
                let both = (self.read(reg, state), state.get(with));
                self.is_another(both, state).map(|question| (question, false))
            }
            Action::BranchIf { reg, zero } => is_last(self.read(reg, state), state).map(|question| (question, zero)),
            _ => None,
        }
    }

    /// Is this the question whether an entry is another function's?
    fn is_another(&self, (one, other): (Value, Value), state: &State) -> Option<Question> {
        let sp = Value::stack(self.top_of_caller());
        let at = match (one.root, other.root) {
            (Root::KeptSp(at), _) if one.add == 0 && other.is(sp) => at,
            (_, Root::KeptSp(at)) if other.add == 0 && one.is(sp) => at,
            _ => return None,
        };
        // One after the other, and none below the last.
        let Shadow { passed, below, own, .. } = state.shadow;
        let next = at == -(passed + 1) * i64::from(Recorder::KEPT) && (passed == 0 || below == Some(true));
        (own.is_none() && next).then_some(Question::AnotherEntry(at))
    }
}

/// The question whether there is an entry below that which was passed over last.
fn is_last(value: Value, state: &State) -> Option<Question> {
    let Shadow { passed, below, own, .. } = state.shadow;
    let last = Value::of(Root::KeptSp(-passed * i64::from(Recorder::KEPT)));
    (passed > 0 && below.is_none() && own.is_none() && value == last).then_some(Question::EntryBelow)
}
