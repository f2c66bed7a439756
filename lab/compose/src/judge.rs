//! Verdicts: a case is run on a core, and each event compared with the model's. What fails is made small.

use std::fmt;

use crate::case::{Act, Answer, Call, Case, Event};
use crate::machine::{Core, run};
use crate::model::{Room, expected};

/// How a core differs from the model in a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The case.
    pub case: Case,
    /// The number of the event.
    pub at: usize,
    /// What the model has.
    pub expected: Option<Event>,
    /// What was seen.
    pub seen: Option<Event>,
}

/// A core with what it promises.
#[derive(Clone, Copy)]
pub struct Subject<'r> {
    /// Its name.
    pub name: &'r str,
    /// Its shadow stack.
    pub room: Room,
    run: &'r (dyn Fn(&Case) -> Vec<Event> + Sync),
    supports: &'r (dyn Fn(&Case) -> bool + Sync),
    /// An event as far as the core promises it.
    promised: fn(Event) -> Option<Event>,
}

impl<'r> Subject<'r> {
    /// A core that promises all that the model knows.
    #[must_use]
    pub const fn new<C: Core + 'r>(name: &'r str, room: Room) -> Self {
        Self { name, room, run: &run::<C>, supports: &|_| true, promised: Some }
    }

    /// One that has less, or promises less.
    #[must_use]
    pub const fn limited(
        self,
        supports: &'r (dyn Fn(&Case) -> bool + Sync),
        promised: fn(Event) -> Option<Event>,
    ) -> Self {
        Self { supports, promised, ..self }
    }

    /// The same core, run somewhere else.
    #[must_use]
    pub const fn elsewhere(self, name: &'r str, run: &'r (dyn Fn(&Case) -> Vec<Event> + Sync)) -> Self {
        Self { name, run, ..self }
    }

    /// Has the core all that the case uses?
    #[must_use]
    pub fn supports(&self, case: &Case) -> bool {
        (self.supports)(case)
    }

    /// The first event that differs.
    #[must_use]
    pub fn judge(&self, case: &Case) -> Option<Failure> {
        let mut wanted = expected(case, self.room).into_iter().filter_map(self.promised);
        let mut seen = (self.run)(case).into_iter().filter_map(self.promised);
        let mut at = 0;
        loop {
            let (a, b) = (wanted.next(), seen.next());
            if a != b {
                return Some(Failure { case: case.clone(), at, expected: a, seen: b });
            }
            a?;
            at += 1;
        }
    }

    /// The smallest case found that still fails, by taking away and simplifying one thing at a time.
    #[must_use]
    pub fn minimise(&self, failure: Failure) -> Failure {
        let mut least = failure;
        'again: loop {
            for smaller in smaller(&least.case) {
                if self.supports(&smaller)
                    && let Some(failure) = self.judge(&smaller)
                {
                    least = failure;
                    continue 'again;
                }
            }
            return least;
        }
    }
}

/// Cases with one thing less.
fn smaller(case: &Case) -> Vec<Case> {
    let mut out: Vec<Case> = vec![];
    for index in (0..case.users.len()).rev() {
        out.push(without_user(case, index));
    }
    out.extend(acts(&case.acts).into_iter().map(|acts| Case { acts, users: case.users.clone() }));
    for (index, user) in case.users.iter().enumerate() {
        let mut with = |change: &dyn Fn(&mut crate::case::User)| {
            let mut users = case.users.clone();
            change(&mut users[index]);
            if users != case.users {
                out.push(Case { users, acts: case.acts.clone() });
            }
        };
        with(&|u| u.then = None);
        with(&|u| u.not = vec![]);
        with(&|u| u.answer = Answer::Always);
        with(&|u| u.words = 0);
        with(&|u| u.words = u.words.min(1));
        for at in 0..user.on.len() {
            if user.on.len() > 1 {
                with(&|u| {
                    u.on.remove(at);
                });
            }
        }
        if let Some((when, act)) = &user.then {
            for act in acts(std::slice::from_ref(act)).into_iter().filter_map(|a| a.into_iter().next()) {
                with(&|u| u.then = Some((*when, Box::new(act.clone()))));
            }
        }
    }
    out
}

fn without_user(case: &Case, gone: usize) -> Case {
    let of = |act: &Act| match act {
        Act::Register(u) | Act::Unregister(u) | Act::Modify(u) | Act::Disable(u, _) => Some(*u),
        Act::Filter(u, ..) | Act::Missed(u) => Some(*u),
        _ => None,
    };
    let down = |u: usize| if u > gone { u - 1 } else { u };
    fn each(acts: &[Act], keep: &dyn Fn(&Act) -> Option<Act>) -> Vec<Act> {
        acts.iter().filter_map(keep).map(|a| inside(&a, &|c| within(c, keep))).collect()
    }
    fn within(call: &Call, keep: &dyn Fn(&Act) -> Option<Act>) -> Call {
        let tail = call.tail.as_ref().map(|t| Box::new(within(t, keep)));
        Call { body: each(&call.body, keep), tail, ..call.clone() }
    }
    let keep = move |act: &Act| match of(act) {
        Some(u) if u == gone => None,
        None => Some(act.clone()),
        Some(u) => Some(match act {
            Act::Register(_) => Act::Register(down(u)),
            Act::Unregister(_) => Act::Unregister(down(u)),
            Act::Modify(_) => Act::Modify(down(u)),
            Act::Disable(_, d) => Act::Disable(down(u), *d),
            Act::Filter(_, f, r) => Act::Filter(down(u), *f, *r),
            _ => Act::Missed(down(u)),
        }),
    };
    let mut users = case.users.clone();
    users.remove(gone);
    for user in &mut users {
        user.then = user.then.take().and_then(|(when, act)| {
            let act = each(std::slice::from_ref(&act), &keep).pop()?;
            Some((when, Box::new(act)))
        });
    }
    Case { users, acts: each(&case.acts, &keep) }
}

/// The act with its call changed.
fn inside(act: &Act, change: &dyn Fn(&Call) -> Call) -> Act {
    match act {
        Act::Call(call) => Act::Call(change(call)),
        Act::Interrupt(call) => Act::Interrupt(change(call)),
        Act::Switch(call) => Act::Switch(change(call)),
        Act::Enter(call) => Act::Enter(change(call)),
        other => other.clone(),
    }
}

/// Lists with one thing less.
fn acts(list: &[Act]) -> Vec<Vec<Act>> {
    let mut out = vec![];
    // Halves first, then one by one.
    if list.len() > 3 {
        out.extend([list[..list.len() / 2].to_vec(), list[list.len() / 2..].to_vec()]);
    }
    for at in (0..list.len()).rev() {
        let with = |replacement: &[Act]| [&list[..at], replacement, &list[at + 1..]].concat();
        out.push(with(&[]));
        match &list[at] {
            Act::Call(call) => {
                out.push(with(&call.body));
                out.extend(calls(call).into_iter().map(|c| with(&[Act::Call(c)])));
            }
            Act::Interrupt(call) => {
                out.push(with(&[Act::Call(call.clone())]));
                out.extend(calls(call).into_iter().map(|c| with(&[Act::Interrupt(c)])));
            }
            Act::Switch(call) => {
                out.push(with(&[Act::Call(call.clone())]));
                out.extend(calls(call).into_iter().map(|c| with(&[Act::Switch(c)])));
            }
            Act::Enter(call) => {
                out.push(with(&[Act::Call(call.clone())]));
                out.extend(calls(call).into_iter().map(|c| with(&[Act::Enter(c)])));
            }
            Act::Fill(n) if *n > 1 => out.extend([with(&[Act::Fill(n / 2)]), with(&[Act::Fill(n - 1)])]),
            Act::Crowd(table, n) if *n > 1 => out.push(with(&[Act::Crowd(*table, n - 1)])),
            Act::Churn(n) if *n > 1 => out.extend([with(&[Act::Churn(n / 2)]), with(&[Act::Churn(n - 1)])]),
            _ => {}
        }
    }
    out
}

fn calls(call: &Call) -> Vec<Call> {
    let mut out: Vec<Call> = acts(&call.body).into_iter().map(|body| Call { body, ..call.clone() }).collect();
    if let Some(tail) = &call.tail {
        out.push(Call { tail: None, ..call.clone() });
        out.push((**tail).clone());
        out.extend(calls(tail).into_iter().map(|t| Call { tail: Some(Box::new(t)), ..call.clone() }));
    }
    if call.jumps {
        out.push(Call { jumps: false, ..call.clone() });
    }
    out
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}", self.case)?;
        let show = |event: &Option<Event>| event.map_or("the end".to_owned(), |e| e.to_string());
        writeln!(f, "  event {}: expected {}", self.at, show(&self.expected))?;
        writeln!(f, "  {:>1$}: seen     {2}", "", self.at.to_string().len() + 6, show(&self.seen))
    }
}
