//! Calls are those of the script that made the records, wherever the records begin and end.

use proptest::prelude::*;
use trace::calls::{Ending, Step};
use trace::filter::{Filter, Wanted};
use trace::steps::Steps;

use crate::made::{Story, bytes, file, follow, open, scripts};

/// A call as it must be read: function, begin, end, how it ended, and whether its beginning was seen; and the depth, where that
/// is known.
type Read = (u32, u64, u64, Ending, bool, Option<usize>);

/// What must be read of the records from `from` to `to`.
fn expected(story: &Story, from: usize, to: usize, deep: bool) -> Vec<Read> {
    let kept = |record: usize| (from..to).contains(&record);
    let exit = |call: usize| story.calls[call].exit.filter(|(record, _)| kept(*record));
    let time = |record: usize| story.records[record].time;
    let visible = |call: &usize| kept(story.calls[*call].entry) || exit(*call).is_some();
    let all: Vec<usize> = (0..story.calls.len()).filter(visible).collect();
    let read = |&index: &usize| {
        let call = &story.calls[index];
        let around = std::iter::successors(call.caller, |caller| story.calls[*caller].caller);
        let callers: Vec<usize> = around.collect();
        let left = || callers.iter().find_map(|caller| exit(*caller)).map(|(record, _)| (time(record), Ending::Left));
        let own = exit(index)
            .map(|(record, throws)| (time(record), if throws { Ending::Exception } else { Ending::Returned }));
        let (end, ending) = own.or_else(left).unwrap_or((time(to - 1), Ending::Open));
        let cut = !kept(call.entry);
        // Callers of which no record is kept are not there.
        let depth = deep.then(|| callers.iter().filter(|caller| visible(caller)).count());
        (call.function, time(if cut { from } else { call.entry }), end, ending, cut, depth)
    };
    let mut expected: Vec<Read> = all.iter().map(read).collect();
    expected.sort();
    expected
}

fn read(story: &Story, from: usize, to: usize, deep: bool) -> Vec<Read> {
    // In two buffers.
    let half = from.midpoint(to);
    let file = file(&[vec![bytes(&story.records[from..half]), bytes(&story.records[half..to])]]);
    let recording = open(&file);
    let filter = Filter::new(&Wanted::default(), &recording).unwrap();
    let mut steps = Steps::new(&recording, &recording.threads[0], &filter);
    let (mut calls, mut begun): (Vec<Read>, Vec<u32>) = (Vec::new(), Vec::new());
    while let Some(shown) = steps.next_step().unwrap() {
        match shown.step {
            Step::Begin(call) => begun.push(call.function),
            Step::End(call) => {
                assert_eq!(begun.pop(), Some(call.function), "ends are in the order of beginnings");
                assert_eq!(begun.len(), call.depth);
                calls.push((call.function, call.begin, call.end, call.ending, call.cut, deep.then_some(call.depth)));
            }
        }
    }
    assert!(begun.is_empty() && steps.unread() == 0);
    calls.sort();
    calls
}

/// How many calls of a function ended how.
fn counts(reads: &[Read]) -> std::collections::BTreeMap<(u32, Ending), usize> {
    let mut counts = std::collections::BTreeMap::new();
    for (function, _, _, ending, ..) in reads {
        *counts.entry((*function, *ending)).or_default() += 1;
    }
    counts
}

fn bounds(story: &Story, from: usize, to: usize) -> (usize, usize) {
    let all = story.records.len();
    let (from, to) = (from * all / 100, to * all / 100);
    (from.min(to), from.max(to))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Recursion too: nothing is left, so that all is known.
    #[test]
    fn calls_that_nest_are_read_as_they_were(script in scripts(false), from in 0_usize..60, to in 40_usize..=100) {
        let story = follow(&script, false);
        let (from, to) = bounds(&story, from, to);
        prop_assume!(from < to);
        prop_assert_eq!(read(&story, from, to, true), expected(&story, from, to, true));
    }

    /// Where no function calls itself, it is known which calls were left.
    #[test]
    fn calls_that_were_left_are_read_as_they_were(script in scripts(true), from in 0_usize..60, to in 40_usize..=100) {
        let story = follow(&script, true);
        let (from, to) = bounds(&story, from, to);
        prop_assume!(from < to);
        prop_assert_eq!(read(&story, from, to, false), expected(&story, from, to, false));
    }

    /// Where functions call themselves, it is known how many.
    #[test]
    fn of_recursion_that_was_left_counts_are_right(script in scripts(true), to in 40_usize..=100) {
        let story = follow(&script, false);
        let (_, to) = bounds(&story, 0, to);
        prop_assume!(to > 0);
        let (read, expected) = (read(&story, 0, to, false), expected(&story, 0, to, false));
        let returned = |reads: &[Read]| {
            let mut counts = counts(reads);
            counts.retain(|(_, ending), _| matches!(ending, Ending::Returned | Ending::Exception));
            counts
        };
        prop_assert_eq!(returned(&read), returned(&expected));
        prop_assert_eq!(read.len(), expected.len());
    }
}

/// `f` calls `f`, which jumps back to the first one: the report says that it cannot know which of them returned.
#[test]
fn recursion_that_was_left_is_said_to_be_ambiguous() {
    use crate::made::Op::{Call, Jump, Return};
    let ambiguous = |script: &[crate::made::Op]| {
        let script: Vec<_> = script.iter().map(|op| (*op, 1)).collect();
        let file = file(&[vec![bytes(&follow(&script, false).records)]]);
        let recording = open(&file);
        let filter = Filter::new(&Wanted::default(), &recording).unwrap();
        let report = trace::view::Report::new(&recording, &filter, false, trace::view::Key::Total).unwrap();
        report.rows.iter().map(|row| (row.ambiguous, row.left)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    };
    assert_eq!(ambiguous(&[Call(0), Call(1), Call(1), Jump(1), Return, Return]), (1, 1));
    assert_eq!(ambiguous(&[Call(0), Call(1), Call(2), Jump(1), Return, Return]), (0, 1));
    assert_eq!(ambiguous(&[Call(0), Call(1), Call(1), Return, Return, Return]), (0, 0));
}
