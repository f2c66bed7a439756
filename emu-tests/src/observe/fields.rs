//! The fields of frames, by what they hold.

use std::collections::BTreeMap;

use super::case::Case;
use super::observed::{Call, Observed};
use super::value::{Offset, Value};

/// The words from where the pointer points to, in order.
pub(super) fn words_of(call: &Call) -> Vec<&Value> {
    call.frame.range(Offset(0)..).map(|(_, word)| word).collect()
}

/// The fields of two frames that hold a thing which is in no other word, and hold it elsewhere: where they were and are.
pub(super) fn elsewhere(left: &Call, right: &Call) -> BTreeMap<Offset, Offset> {
    fn named(call: &Call) -> BTreeMap<&Value, Vec<Offset>> {
        let mut all: BTreeMap<&Value, Vec<Offset>> = BTreeMap::new();
        for (at, word) in call.frame.range(Offset(0)..).filter(|(_, word)| word.is_relied_on()) {
            all.entry(word).or_default().push(*at);
        }
        all
    }
    let (l, r) = (named(left), named(right));
    let only = |(word, l): (&&Value, &Vec<Offset>)| match (l.as_slice(), r.get(*word).map(Vec::as_slice)) {
        ([l], Some([r])) if l != r => Some((*l, *r)),
        _ => None,
    };
    l.iter().filter_map(only).collect()
}

/// Fields that lie one behind the other, before and now.
pub(super) fn together(elsewhere: &BTreeMap<Offset, Offset>) -> Vec<Vec<(Offset, Offset)>> {
    let mut runs: Vec<Vec<(Offset, Offset)>> = Vec::new();
    for (&l, &r) in elsewhere {
        match runs.last_mut().filter(|run| run.last() == Some(&(Offset(l.0 - 8), Offset(r.0 - 8)))) {
            Some(run) => run.push((l, r)),
            None => runs.push(vec![(l, r)]),
        }
    }
    runs
}

/// Where fields of the frames of the plain way lie elsewhere, by the calls.
pub(super) struct Fields(Vec<BTreeMap<Offset, Offset>>);

impl Fields {
    /// Of two trampolines.
    pub(super) fn of(left: &Observed, right: &Observed) -> Fields {
        let calls = |o: &Observed, n: usize| -> Vec<Call> {
            o.path.iter().filter_map(|way| way.call.get(n).cloned()).collect()
        };
        let most = left.path.iter().map(|way| way.call.len()).max().unwrap_or(0);
        // The first ways that make the call, plain or not.
        let of = |n: usize| match (calls(left, n).first(), calls(right, n).first()) {
            (Some(l), Some(r)) if !only_longer(&words_of(l), &words_of(r)) => elsewhere(l, r),
            _ => BTreeMap::new(),
        };
        Fields((0..most).map(of).collect())
    }

    /// Does a field of some call lie there on the left side or the right, and elsewhere on the other?
    pub(super) fn moved(&self, at: Offset) -> (bool, bool) {
        let is = |other: &Offset| *other == at;
        (self.0.iter().any(|all| all.keys().any(is)), self.0.iter().any(|all| all.values().any(is)))
    }

    /// What the right side calls the case; none if the left one has it under another name.
    pub(super) fn there(&self, when: &Case) -> Option<Case> {
        let same = || Some(when.clone());
        let Some((call, at)) = when.field() else { return same() };
        let Some(all) = self.0.get(usize::from(call).wrapping_sub(1)) else { return same() };
        match all.get(&at) {
            Some(there) => Some(when.with_field(*there)),
            None if all.values().any(|there| *there == at) => None,
            None => same(),
        }
    }
}

/// From which offset on the words of the frames differ only in where they are; `None` if nowhere.
pub(super) fn moved(left: &Call, right: &Call) -> Option<Offset> {
    let (l, r) = (words_of(left), words_of(right));
    only_longer(&l, &r).then(|| Offset(8 * l.iter().zip(&r).take_while(|(l, r)| l == r).count() as i64))
}

/// Are these the same words, but for others that nobody has written, in one place and at the end? Something that is relied on
/// lies before that place: else it is the pointer that leads elsewhere.
pub(super) fn only_longer(left: &[&Value], right: &[&Value]) -> bool {
    fn rest<'v>(words: &[&'v Value], common: usize) -> Vec<&'v Value> {
        let mut rest: Vec<&Value> = words.iter().skip(common).copied().skip_while(|word| word.is_older()).collect();
        while rest.last().is_some_and(|word| word.is_older()) {
            rest.pop();
        }
        rest
    }
    let common = left.iter().zip(right).take_while(|(l, r)| l == r).count();
    let first = left.iter().take(common).any(|word| word.is_relied_on());
    first && left.len() != right.len() && rest(left, common) == rest(right, common)
}

#[cfg(test)]
mod tests {
    use codegen::words::term::Term;

    use super::*;

    fn words(text: &str) -> Vec<Value> {
        let abi = &arch::BACKENDS.iter().find(|b| b.facts().name == "x86_64").unwrap().facts().abi;
        text.split(' ').map(|word| Value::new(Term::parse(word, abi).unwrap(), abi)).collect()
    }

    #[test]
    fn a_gap_is_layout_and_a_moved_word_is_not() {
        let longer = |left: &str, right: &str| {
            let (left, right) = (words(left), words(right));
            only_longer(&left.iter().collect::<Vec<_>>(), &right.iter().collect::<Vec<_>>())
        };
        assert!(longer("rdi rsi pc", "rdi rsi older older pc"));
        assert!(longer("rdi rsi older pc", "rdi rsi pc"));
        assert!(!longer("rdi rsi pc", "rdi older rsi pc rax"));
        assert!(!longer("rdi rsi", "rdi rbp"));
        assert!(!longer("older rdi pc", "rdi pc"));
    }

    #[test]
    fn nobody_relies_on_what_a_call_left() {
        for value in words("call1.r10 sp-0x10 older -3 low(call1.r10)") {
            assert!(!value.is_relied_on(), "{value}");
        }
        for value in words("rdi [sp+0x8] call1.rax call1.stored") {
            assert!(value.is_relied_on(), "{value}");
        }
    }
}
