//! The fields of frames, by what they hold.

use std::collections::BTreeMap;

use super::observed::{Call, Observed};
use super::says::hex;
use super::tokens::OLDER;

/// The words from where the pointer points to, in order.
pub(super) fn words_of(call: &Call) -> Vec<String> {
    call.frame.iter().filter(|(at, _)| !at.starts_with('-')).map(|(_, word)| word.clone()).collect()
}

/// The fields of two frames that hold a thing which is in no other word, and hold it elsewhere: where they were and are.
pub(super) fn elsewhere(left: &Call, right: &Call) -> BTreeMap<u64, u64> {
    let named = |call: &Call| -> BTreeMap<String, Vec<u64>> {
        let mut all: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for (at, word) in call.frame.iter().filter(|(_, word)| relied(word)) {
            // Words before the frame have a sign.
            if let Ok(at) = u64::from_str_radix(at.trim_start_matches("0x"), 16) {
                all.entry(word.clone()).or_default().push(at);
            }
        }
        all
    };
    let (l, r) = (named(left), named(right));
    let only = |(word, l): (&String, &Vec<u64>)| match (l.as_slice(), r.get(word).map(Vec::as_slice)) {
        ([l], Some([r])) if l != r => Some((*l, *r)),
        _ => None,
    };
    l.iter().filter_map(only).collect()
}

/// Fields that lie one behind the other, before and now.
pub(super) fn together(elsewhere: &BTreeMap<u64, u64>) -> Vec<Vec<(u64, u64)>> {
    let mut runs: Vec<Vec<(u64, u64)>> = Vec::new();
    for (&l, &r) in elsewhere {
        match runs.last_mut().filter(|run| run.last() == Some(&(l.wrapping_sub(8), r.wrapping_sub(8)))) {
            Some(run) => run.push((l, r)),
            None => runs.push(vec![(l, r)]),
        }
    }
    runs
}

/// Where fields of the frames of the plain way lie elsewhere, by the calls.
pub(super) struct Fields(Vec<BTreeMap<u64, u64>>);

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
    pub(super) fn moved(&self, at: &str) -> (bool, bool) {
        let is = |other: &u64| hex(*other) == at;
        (self.0.iter().any(|all| all.keys().any(is)), self.0.iter().any(|all| all.values().any(is)))
    }

    /// What the right side calls the case; none if the left one has it under another name.
    pub(super) fn there(&self, when: &str) -> Option<String> {
        let same = || Some(when.to_owned());
        let Some((start, at)) = when.rsplit_once("frame+0x") else { return same() };
        let Ok(at) = u64::from_str_radix(at, 16) else { return same() };
        let number = start.rsplit_once("call ").and_then(|(_, rest)| rest.split(' ').next()?.parse::<usize>().ok());
        let Some(all) = number.and_then(|n| self.0.get(n.checked_sub(1)?)) else { return same() };
        match all.get(&at) {
            Some(there) => Some(format!("{start}frame+{}", hex(*there))),
            None if all.values().any(|there| *there == at) => None,
            None => same(),
        }
    }
}

/// From which offset on the words of the frames differ only in where they are; `None` if nowhere.
pub(super) fn moved(left: &Call, right: &Call) -> Option<u64> {
    let (l, r) = (words_of(left), words_of(right));
    only_longer(&l, &r).then(|| 8 * l.iter().zip(&r).take_while(|(l, r)| l == r).count() as u64)
}

/// Are these the same words, but for others that nobody has written, in one place and at the end? Something that is relied on
/// lies before that place: else it is the pointer that leads elsewhere.
pub(super) fn only_longer(left: &[String], right: &[String]) -> bool {
    let common = left.iter().zip(right).take_while(|(l, r)| l == r).count();
    let rest = |words: &[String]| -> Vec<String> {
        let mut rest: Vec<String> = words.iter().skip(common).skip_while(|word| *word == OLDER).cloned().collect();
        while rest.last().is_some_and(|word| word == OLDER) {
            rest.pop();
        }
        rest
    };
    let first = left.iter().take(common).any(|word| relied(word));
    first && left.len() != right.len() && rest(left) == rest(right)
}

/// Does somebody rely on a value? Not on what a call has left, nor on an address in the frame or a number.
pub(super) fn relied(value: &str) -> bool {
    !(value.contains(" left it")
        || value.starts_with("&stack")
        || value.starts_with(OLDER)
        || value.parse::<i64>().is_ok())
}
