//! Processes that fork, run another program, and end.

use trace::calls::{Call, Ending, Step};
use trace::export::{self, Version};
use trace::file::{
    Clock, ClockPair, End, Events, Function, Functions, Loaded, Lost, Object, Process, Status, Task, Why, Writer,
};
use trace::filter::{Filter, Wanted};
use trace::recording::Recording;
use trace::steps::{Merged, Steps};
use trace::view::{Key, Report};

use crate::foreign::{Directory, babeltrace, uftrace, uftrace_counts};
use crate::made::{Stored, bytes, open, session};

/// `main` calls `fork_it`, which forks. The child returns from both, and `after` comes between; then it runs another program, which
/// has a `main` too, calls `last` and is killed within.
fn recorded(build_ids: bool) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).unwrap();
    writer.session(&session(Clock::Tsc, Events::Both)).unwrap();
    for ticks in [0, 1 << 40] {
        writer.clock(&ClockPair { pid: 1, ticks, monotonic: ticks }).unwrap();
    }
    let mut object = |id: u32, path: &str, names: &[&str]| {
        let build_id = if build_ids { format!("{id}0c0ffee") } else { String::new() };
        writer.object(&Object { id, path: path.to_owned(), build_id }).unwrap();
        let function = |(i, name): (u64, &&str)| {
            let offset = 0x1000 + 16 * i;
            Function {
                offset,
                size: 16,
                name: (*name).to_owned(),
                site: offset,
                entry_only: false,
                parameters: Vec::new(),
                result: None,
            }
        };
        let functions = (0..).zip(names).map(function).collect();
        writer.functions(&Functions { object: id, first: 10 * id, functions }).unwrap();
    };
    object(0, "/usr/bin/program", &["main", "fork_it", "after"]);
    object(1, "/opt/bin/program", &["main", "last"]);
    let records = |all: &[(u64, u32, u64)]| {
        bytes(&all.iter().map(|&(time, function, kind)| Stored { time, function, kind }).collect::<Vec<_>>())
    };
    let mut begins = |pid: u32, parent: Option<u32>, exe: &str, started: u64, object: Option<u32>, all: &[_]| {
        writer.process(&Process { pid, parent, exe: exe.to_owned(), started }).unwrap();
        // A child has what its parent had.
        if let Some(object) = object {
            let base = 0x4000_0000 + 0x1000_0000 * u64::from(object);
            writer.loaded(&Loaded { pid, object, base, ranges: Vec::new() }).unwrap();
        }
        // A thread that is not introduced is another one too, after an exec.
        if object != Some(1) {
            writer.task(&Task { pid, tid: pid, name: exe.to_owned(), started }).unwrap();
        }
        writer.records(pid, pid, 0, &records(all)).unwrap();
    };
    let parent = [(100, 0, 1), (110, 1, 1), (300, 1, 2), (310, 0, 2)];
    begins(1, None, "/usr/bin/program", 50, Some(0), &parent);
    begins(2, Some(1), "/usr/bin/program", 150, None, &[(200, 1, 2), (210, 2, 1), (220, 2, 2), (230, 0, 2)]);
    begins(2, None, "/opt/bin/program", 240, Some(1), &[(250, 10, 1), (260, 11, 1)]);
    writer.lost(&Lost { pid: 2, tid: 2, records: 5, why: Why::Full }).unwrap();
    writer.end(&End { pid: 1, status: Status::Exited(0), ended: 320 }).unwrap();
    writer.end(&End { pid: 2, status: Status::Signalled(9), ended: 500 }).unwrap();
    writer.into_inner()
}

fn all<R>(recording: &Recording<R>) -> Filter {
    Filter::new(&Wanted::default(), recording).unwrap()
}

#[test]
fn each_program_of_a_process_has_its_own_calls() {
    let file = recorded(true);
    let recording = open(&file);
    let filter = all(&recording);
    let ends = |thread: usize| {
        let mut steps = Steps::new(&recording, &recording.threads[thread], &filter);
        let mut ends: Vec<(String, u64, u64, Ending, bool)> = Vec::new();
        while let Some(shown) = steps.next_step().unwrap() {
            if let Step::End(Call { function, begin, end, ending, cut, .. }) = shown.step {
                ends.push((recording.name(function).to_owned(), begin, end, ending, cut));
            }
        }
        ends
    };
    let call = |name: &str, begin, end, ending, cut| (name.to_owned(), begin, end, ending, cut);
    assert_eq!(recording.threads.len(), 3);
    let child = [
        call("fork_it", 200, 200, Ending::Returned, true),
        call("after", 210, 220, Ending::Returned, false),
        call("main", 200, 230, Ending::Returned, true),
    ];
    assert_eq!(ends(1), child);
    // Killed at 500.
    assert_eq!(ends(2), [call("last", 260, 500, Ending::Open, false), call("main", 250, 500, Ending::Open, false)]);
}

#[test]
fn threads_are_merged_by_time() {
    let file = recorded(true);
    let recording = open(&file);
    let filter = all(&recording);
    let mut merged = Merged::new(&recording, &filter).unwrap();
    let mut times = Vec::new();
    while let Some((thread, shown)) = merged.next_step().unwrap() {
        times.push((shown.step.time(), thread));
    }
    assert_eq!(times.len(), 14);
    assert!(times.is_sorted_by_key(|(time, _)| *time), "{times:?}");
}

#[test]
fn functions_of_one_name_are_told_apart_by_their_object() {
    let file = recorded(true);
    let recording = open(&file);
    let report = Report::new(&recording, &all(&recording), false, Key::Function).unwrap();
    let names: Vec<(&str, u64)> = report.rows.iter().map(|row| (row.function.as_str(), row.calls)).collect();
    assert_eq!(names, [("after", 1), ("fork_it", 2), ("last", 1), ("main", 2), ("main", 1)]);
    let notes = report.notes();
    for note in [
        "calls running at the end: 2",
        "calls begun before the first record: 2",
        "records lost because the buffer was full: 5",
    ] {
        assert!(notes.iter().any(|told| told == note), "{note}: {notes:?}");
    }
}

#[test]
fn uftrace_reads_all_programs() {
    // Two of the same name: their build IDs tell them apart, or their paths.
    for build_ids in [true, false] {
        let file = recorded(build_ids);
        let recording = open(&file);
        let dir = tempfile::tempdir().unwrap();
        export::uftrace(&recording, &all(&recording), &mut Directory(dir.path())).unwrap();
        let counts = uftrace_counts(dir.path());
        let expected = [("after", 1), ("fork_it", 2), ("last", 1), ("main", 3)].map(|(name, n)| (name.to_owned(), n));
        assert_eq!(counts, expected.into(), "{build_ids}");
        let replay = uftrace(dir.path(), &["replay"]);
        assert!(replay.contains("LOST 5 records"), "{replay}");
    }
}

#[test]
fn babeltrace_reads_functions_of_one_name() {
    let file = recorded(true);
    let recording = open(&file);
    let dir = tempfile::tempdir().unwrap();
    export::ctf(&recording, &all(&recording), Version::One, &mut Directory(dir.path())).unwrap();
    let text = babeltrace(dir.path());
    let entries = |label: &str| text.matches(&format!("function = ( \"{label}\" : ")).count();
    assert_eq!([entries("main"), entries("main #10"), entries("last")], [4, 2, 2], "{text}");
    assert_eq!(text.matches(" running: ").count(), 2);
}
