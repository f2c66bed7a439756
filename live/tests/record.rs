//! What is recorded is what the program counts itself.
#![allow(unsafe_code, reason = "functions of C are called, and attached to")]

mod common;

use std::collections::HashMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{Compiled, Functions, live};
use tramptool_live::{Event, Function, Live, Record, Recorder};

type Add = extern "C" fn(i64, i64) -> i64;
type Halves = extern "C" fn(f64, i64) -> f64;

const NAMES: [&str; 2] = ["add", "halves"];

fn recorder(live: Live, functions: &Functions, room: usize) -> Recorder {
    let found: Vec<Function> =
        NAMES.map(|name| live.function_at(functions.address(name)).unwrap()).into_iter().collect();
    // SAFETY: nothing is changed.
    unsafe { live.record(&found, room) }.unwrap()
}

/// What the functions have counted themselves.
fn bodies(functions: &Functions) -> [u64; 2] {
    let bodies = functions.address("bodies").cast::<AtomicU64>();
    // SAFETY: the library's counters.
    [0, 2].map(|n| unsafe { &*bodies.add(n) }.load(Ordering::SeqCst))
}

fn count(records: &[Record], function: u32, event: Event) -> u64 {
    records.iter().filter(|record| (record.function, record.event) == (function, event)).count() as u64
}

/// Each thread's calls lie in each other, and its clock goes on.
fn nest(records: &[Record]) -> usize {
    let mut threads: HashMap<u32, (u64, Vec<u32>)> = HashMap::new();
    for record in records {
        let (last, open) = threads.entry(record.thread).or_default();
        assert!(record.time >= *last);
        *last = record.time;
        match record.event {
            Event::Entry => open.push(record.function),
            Event::Return => assert_eq!(open.pop(), Some(record.function)),
        }
    }
    assert!(threads.values().all(|(_, open)| open.is_empty()));
    threads.len()
}

#[test]
fn every_call_of_every_thread_is_recorded() {
    for compiled in [Compiled::WithRoom, Compiled::AsUsual] {
        let functions = Functions::load(common::C, compiled);
        let (add, halves): (Add, Halves) = (functions.get("add"), functions.get("halves"));
        let recorder = recorder(live(), &functions, 1 << 16);
        let calls = || (0..1000).for_each(|n| assert_eq!((add(n, 1), halves(8.0, 3)), (n + 1, 7.0)));
        calls();
        let before = bodies(&functions);
        assert_eq!((before, recorder.take(usize::MAX)), ([1000, 4000], Vec::new()), "not before it is enabled");
        let ready = Barrier::new(3);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    ready.wait();
                    ready.wait();
                    calls();
                });
            }
            ready.wait();
            recorder.enable().unwrap();
            ready.wait();
            (0..2).for_each(|_| _ = scope.spawn(calls));
            calls();
        });
        recorder.disable().unwrap();
        let during = bodies(&functions);
        calls();
        let records = recorder.take(usize::MAX);
        assert_eq!((nest(&records), recorder.dropped()), (5, 0));
        for (n, function) in [0, 1].into_iter().enumerate() {
            let made = during[n] - before[n];
            assert_eq!([Event::Entry, Event::Return].map(|event| count(&records, function, event)), [made; 2]);
        }
        assert_eq!(recorder.take(usize::MAX), Vec::new(), "each is taken once");
    }
}

/// Threads that begin and end take the place of those before, while somebody takes their records.
#[test]
fn nothing_is_lost_while_records_are_taken() {
    let functions = Functions::load(common::C, Compiled::WithRoom);
    let add: Add = functions.get("add");
    let recorder = recorder(live(), &functions, 64);
    recorder.enable().unwrap();
    let (stop, mut taken) = (AtomicBool::new(false), Vec::new());
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| {
            for _ in 0..200 {
                let short = scope.spawn(|| (0..100).for_each(|n| assert_eq!(add(n, n), 2 * n)));
                short.join().unwrap();
            }
            stop.store(true, Ordering::SeqCst);
        });
        while !stop.load(Ordering::SeqCst) {
            let some = recorder.take(50);
            assert!(some.len() <= 50);
            taken.extend(some);
        }
        caller.join().unwrap();
    });
    taken.extend(recorder.take(usize::MAX));
    assert_eq!(bodies(&functions)[0], 200 * 100);
    assert_eq!(taken.len() as u64 + recorder.dropped(), 2 * 200 * 100, "each is taken or counted");
    assert!(taken.len() >= 64 && taken.iter().all(|record| record.function == 0));
}

#[test]
fn what_finds_no_room_is_counted() {
    let functions = Functions::load(common::C, Compiled::WithRoom);
    let add: Add = functions.get("add");
    for (room, kept) in [(0, 0), (10, 10), (usize::MAX, 0)] {
        let recorder = recorder(live(), &functions, room);
        recorder.enable().unwrap();
        (0..50).for_each(|n| assert_eq!(add(n, 1), n + 1));
        assert_eq!((recorder.dropped(), recorder.take(usize::MAX).len()), (100 - kept, kept as usize));
    }
}

/// A child has records of its own.
#[test]
fn a_child_of_fork_records_its_own_calls() {
    let functions = Functions::load(common::C, Compiled::WithRoom);
    let add: Add = functions.get("add");
    let recorder = recorder(live(), &functions, 1000);
    recorder.enable().unwrap();
    add(1, 2);
    // SAFETY: the child calls functions that need no other thread, and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            add(3, 4);
            let records = recorder.take(10);
            let own = records.iter().all(|record| record.thread == std::process::id());
            libc::_exit((!own || records.len() != 2).into());
        }
        let mut status = 0;
        assert_eq!((libc::waitpid(child, &raw mut status, 0), status), (child, 0));
    }
    assert_eq!(recorder.take(10).len(), 2);
}
