//! What people see, and which calls filters leave.

use codegen::words::error::Result;
use trace::file::{Clock, Events, Kind, Number, Parameter};
use trace::filter::{Filter, Pattern, Wanted};
use trace::tree::Tree;
use trace::view::{Key, Report, graph, replay};

use crate::made::{Op, Stored, bytes, deep, file, file_with, follow, known, name, open, session, with_functions};

/// 0 calls 1, which calls 2 twice and itself; then 0 calls 2.
fn recorded() -> Vec<u8> {
    use Op::{Call, Return, Throw};
    let script = [
        (Call(0), 0),
        (Call(1), 100),
        (Call(2), 10),
        (Return, 5),
        (Call(2), 10),
        (Return, 300),
        (Call(1), 10),
        (Throw, 20),
        (Return, 10),
        (Call(2), 10),
        (Return, 1),
        (Return, 100),
    ];
    file(&[vec![bytes(&follow(&script, false).records)]])
}

fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts.iter().map(|text| Pattern::new(text).unwrap()).collect()
}

fn replayed(file: &[u8], wanted: &Wanted) -> Result<String> {
    let recording = open(file);
    let mut out = Vec::new();
    replay(&recording, &Filter::new(wanted, &recording)?, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

#[test]
fn calls_are_indented_and_have_their_durations() {
    let expected = "\
#     DURATION        TID  FUNCTION
               [   1000] | function_0() {
               [   1000] |   function_1() {
      0.005 us [   1000] |     function_2();
      0.300 us [   1000] |     function_2();
      0.020 us [   1000] |     function_1(); /* exception */
      0.365 us [   1000] |   } /* function_1 */
      0.001 us [   1000] |   function_2();
      0.576 us [   1000] | } /* function_0 */
";
    assert_eq!(replayed(&recorded(), &Wanted::default()).unwrap(), expected);
}

#[test]
fn filters_leave_what_they_say() {
    let file = recorded();
    let lines = |wanted: Wanted| {
        let text = replayed(&file, &wanted).unwrap();
        text.lines().skip(1).map(|line| line.split_once("| ").unwrap().1.to_owned()).collect::<Vec<_>>()
    };
    let only = Wanted { only: patterns(&["function_1"]), ..Wanted::default() };
    let inner = [
        "function_1() {",
        "  function_2();",
        "  function_2();",
        "  function_1(); /* exception */",
        "} /* function_1 */",
    ];
    assert_eq!(lines(only), inner);
    let never = Wanted { never: patterns(&["program:/_1$/"]), ..Wanted::default() };
    assert_eq!(lines(never), ["function_0() {", "  function_2();", "} /* function_0 */"]);
    let just = Wanted { just: patterns(&["*_2"]), ..Wanted::default() };
    assert_eq!(lines(just), ["function_2();"; 3]);
    let depth = Wanted { depth: Some(1), ..Wanted::default() };
    assert_eq!(lines(depth), ["function_0();"]);
    let least = Wanted { least: 100, ..Wanted::default() };
    assert_eq!(
        lines(least),
        ["function_0() {", "  function_1() {", "    function_2();", "  } /* function_1 */", "} /* function_0 */"]
    );
    for nothing in ["other:*", "nobody"] {
        let wanted = Wanted { only: patterns(&[nothing]), ..Wanted::default() };
        assert!(replayed(&file, &wanted).unwrap_err().to_string().contains("no recorded function has this name"));
    }
    assert!(Pattern::new("/(/").unwrap_err().to_string().contains("'/(/' is no regular expression"));
}

#[test]
fn totals_count_recursion_once_and_callers_are_told_apart() {
    let file = recorded();
    let recording = open(&file);
    let filter = Filter::new(&Wanted::default(), &recording).unwrap();
    let report = |callers, key| Report::new(&recording, &filter, callers, key).unwrap();
    let rows = |report: &Report| {
        let row = |row: &trace::view::Row| (row.function.clone(), row.total, row.own, row.calls);
        report.rows.iter().map(row).collect::<Vec<_>>()
    };
    let (zero, one, two) = ((name(0), 576, 210, 1), (name(1), 365, 60, 2), (name(2), 306, 306, 3));
    assert_eq!(rows(&report(false, Key::Total)), [zero.clone(), one.clone(), two.clone()]);
    assert_eq!(rows(&report(false, Key::Own)), [two.clone(), zero.clone(), one.clone()]);
    assert_eq!(rows(&report(false, Key::Calls)), [two, one, zero]);
    // The time of a call that is left out is its caller's, but what it calls is not.
    let some = Wanted { just: patterns(&["function_0", "function_2"]), ..Wanted::default() };
    let some = Report::new(&recording, &Filter::new(&some, &recording).unwrap(), false, Key::Own).unwrap();
    assert_eq!(rows(&some), [(name(2), 306, 306, 3), (name(0), 576, 270, 1)]);
    let callers = report(true, Key::Calls);
    let callers: Vec<_> =
        callers.rows.iter().map(|r| (r.caller.clone().unwrap(), r.function.clone(), r.calls)).collect();
    assert_eq!(callers[0], (name(1), name(2), 2));
    assert!(callers.contains(&(String::new(), name(0), 1)) && callers.contains(&(name(1), name(1), 1)), "{callers:?}");
    let mut text = Vec::new();
    report(false, Key::Own).text(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("      0.306 us        0.306 us           3  function_2\n"), "{text}");
    assert!(text.contains("# calls that an exception ended: 1\n"), "{text}");
}

#[test]
fn the_tree_has_the_most_time_first() {
    let file = recorded();
    let recording = open(&file);
    let tree = Tree::of(&recording, &Filter::new(&Wanted::default(), &recording).unwrap()).unwrap();
    let mut text = Vec::new();
    graph(&recording, &tree, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let columns: Vec<&str> = text.lines().map(|line| line[32..].trim_end()).collect();
    let expected = [
        "     CALLS  FUNCTION",
        "         1  function_0",
        "         1    function_1",
        "         2      function_2",
        "         1      function_1",
        "         1    function_2",
    ];
    assert_eq!(columns, expected, "{text}");
}

/// Times that only every other record has; slots that nobody completed; arguments and results.
#[test]
fn records_are_read_as_trampolines_write_them() {
    let record = |time: u64, function: u64, words: &[u64], kind: u64| {
        let what = function << 8 | (words.len() as u64) << 4 | kind;
        [&[time, what], words].concat().into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>()
    };
    let records = [
        record(1000, 0, &[7, 0xabc], 1),
        vec![0; 16],
        record(0, 1, &[1], 1),
        record(0, 1, &[], 2),
        record(1300, 0, &[9], 2),
    ];
    let file = file_with(&session(Clock::Stamp8, Events::Both), &[vec![records.concat()]]);
    let text = replayed(&file, &Wanted::default()).unwrap();
    let expected = "\
               [   1000] | function_0(0x7, 0xabc) {
      0.100 us [   1000] |   function_1(0x1);
      0.300 us [   1000] | } = 0x9; /* function_0 */
";
    assert!(text.ends_with(expected), "{text}");
    let recording = open(&file);
    let filter = Filter::new(&Wanted::default(), &recording).unwrap();
    assert_eq!(Report::new(&recording, &filter, false, Key::Own).unwrap().unread, 16);
}

/// Where a prototype is known, and where a thread has ended.
#[test]
fn arguments_have_names_and_threads_end() {
    let expected = "\
      0.005 us [   1000] | function_59(n=-2, x=?, p=0x7fff00000010, true, m=18446744073709551615) = -32768;
      0.010 us [   1000] | function_59(n=?, x=?, p=?, ?, m=?);
";
    let text = replayed(&known(), &Wanted::default()).unwrap();
    assert!(text.ends_with(expected), "{text}");
    let story = [(1000, 0, 1), (1010, 1, 1), (1030, 0, 4), (1040, 2, 1), (1050, 2, 2), (1060, 2, 1)];
    let records = story.map(|(time, function, kind)| Stored { time, function, kind });
    let file = file(&[vec![bytes(&records)]]);
    let text = replayed(&file, &Wanted::default()).unwrap();
    let expected = "\
               [   1000] | function_0() {
      0.020 us [   1000] |   function_1(); /* ended with its thread */
      0.030 us [   1000] | } /* function_0: ended with its thread */
      0.010 us [   1000] | function_2();
      0.000 us [   1000] | function_2(); /* running */
";
    assert!(text.ends_with(expected), "{text}");
    let recording = open(&file);
    let report =
        Report::new(&recording, &Filter::new(&Wanted::default(), &recording).unwrap(), false, Key::Own).unwrap();
    let notes = ["calls that ended with their thread, as by pthread_exit: 2", "calls running at the end: 1"];
    assert_eq!((report.notes(), report.unread), (notes.map(str::to_owned).to_vec(), 0));
}

/// A name of C++ has its parameters, or what is recorded of them.
#[test]
fn names_of_cpp_have_one_pair_of_parentheses() {
    let parameter = Parameter { name: "x".to_owned(), word: Some((0, Number { bytes: 4, kind: Kind::Signed })) };
    let names = [("_ZNK3foo3barEi", vec![parameter]), ("_ZNK3foo3barEi", Vec::new()), ("_ZN3foo3bazEv", Vec::new())];
    let text = replayed(&with_functions(&names), &Wanted::default()).unwrap();
    let calls: Vec<&str> = text.lines().skip(1).map(|line| line.split_once("| ").unwrap().1).collect();
    assert_eq!(calls, ["foo::bar(x=-7) const;", "foo::bar(int) const;", "foo::baz();"]);
}

/// A time that looks like what happened, behind a slot that nobody completed.
#[test]
fn a_slot_without_a_record_is_skipped_as_a_whole() {
    let words = [0, 0, 1 << 8 | 1, 2 << 8 | 1, 1 << 8 | 2, 2 << 8 | 2].map(u64::to_le_bytes).concat();
    let text = replayed(&file(&[vec![words]]), &Wanted::default()).unwrap();
    assert!(text.ends_with("      0.001 us [   1000] | function_2();\n") && text.lines().count() == 2, "{text}");
}

#[test]
fn without_times_there_are_orders_and_with_entries_alone_there_are_counts() {
    let records = [(0, 0, 1), (0, 1, 1), (0, 1, 1)].map(|(time, function, kind)| Stored { time, function, kind });
    let file = file_with(&session(Clock::None, Events::Entry), &[vec![bytes(&records)]]);
    let recording = open(&file);
    let filter = Filter::new(&Wanted::default(), &recording).unwrap();
    let mut text = Vec::new();
    Report::new(&recording, &filter, false, Key::Calls).unwrap().text(&mut text).unwrap();
    let expected = "     Calls  Function\n         2  function_1\n         1  function_0\n";
    assert_eq!(String::from_utf8(text).unwrap(), expected);
}

/// Ways have an end; the time of what lies deeper is not lost.
#[test]
fn recursion_is_cut_off_where_ways_end() {
    let file = deep(1100);
    let recording = open(&file);
    let filter = Filter::new(&Wanted::default(), &recording).unwrap();
    let tree = Tree::of(&recording, &filter).unwrap();
    assert_eq!((tree.nodes.len(), tree.deeper), (Tree::DEEPEST, 100));
    assert_eq!(tree.nodes.iter().map(|node| node.own).sum::<u64>(), tree.nodes[0].total);
    let report = Report::new(&recording, &filter, false, Key::Own).unwrap();
    assert_eq!((report.calls, report.rows[0].total, report.rows[0].own), (1100, 2199, 2199));
    let mut text = Vec::new();
    graph(&recording, &tree, &mut text).unwrap();
    assert!(String::from_utf8(text).unwrap().ends_with("# 100 calls lay deeper than 1000 and are not shown\n"));
}
