//! Threads that call functions by a script. What happened is known from the script, not from the reader.

use std::io::Cursor;

use proptest::prelude::*;
use trace::file::{
    Clock, ClockPair, End, Events, Function, Functions, Kind, Loaded, Number, Object, Parameter, Process, Range,
    Session, Status, Task, Writer,
};
use trace::recording::Recording;

/// How many functions there are at each depth.
pub const WIDTH: u32 = 3;
/// How many functions there are.
pub const FUNCTIONS: u32 = 60;
/// The function whose prototype is known: `short (int n, double x, void *p, bool, unsigned long m)`.
pub const KNOWN: u32 = FUNCTIONS - 1;
/// The process.
pub const PID: u32 = 1000;
/// Where its program is.
pub const BASE: u64 = 0x5555_5555_0000;

/// What a thread does next.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// It calls the function of this number; those of other depths have other numbers, if the script says so.
    Call(u32),
    Return,
    Throw,
    /// It leaves so many calls without their return.
    Jump(usize),
}

/// A call as it was.
#[derive(Clone, Debug)]
pub struct True {
    pub function: u32,
    pub depth: usize,
    pub caller: Option<usize>,
    /// The index of its record.
    pub entry: usize,
    /// The index of its record, and whether it is an exception.
    pub exit: Option<(usize, bool)>,
}

/// A record as it is in a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Stored {
    pub time: u64,
    pub function: u32,
    pub kind: u64,
}

/// What a thread did.
#[derive(Clone, Default, Debug)]
pub struct Story {
    pub calls: Vec<True>,
    pub records: Vec<Stored>,
}

/// Scripts, in which a step takes some time too.
pub fn scripts(jumps: bool) -> impl Strategy<Value = Vec<(Op, u64)>> {
    let jump = if jumps { 1 } else { 0 };
    let op = prop_oneof![
        6 => (0..WIDTH).prop_map(Op::Call),
        5 => Just(Op::Return),
        1 => Just(Op::Throw),
        jump => (1_usize..4).prop_map(Op::Jump),
    ];
    proptest::collection::vec((op, 0_u64..50), 0..120)
}

/// Follow a script. `apart`: a function is called at one depth only, so that it never calls itself.
pub fn follow(script: &[(Op, u64)], apart: bool) -> Story {
    let (mut story, mut open, mut time): (Story, Vec<usize>, u64) = (Story::default(), Vec::new(), 1000);
    for (op, takes) in script {
        time += takes;
        match *op {
            Op::Call(which) if open.len() < (FUNCTIONS / WIDTH) as usize => {
                let depth = open.len();
                let function = if apart { depth as u32 * WIDTH + which } else { which };
                let (caller, entry) = (open.last().copied(), story.records.len());
                open.push(story.calls.len());
                story.calls.push(True { function, depth, caller, entry, exit: None });
                story.records.push(Stored { time, function, kind: 1 });
            }
            Op::Call(_) => {}
            Op::Return | Op::Throw => {
                let throws = matches!(op, Op::Throw);
                let Some(call) = open.pop().map(|call| &mut story.calls[call]) else { continue };
                call.exit = Some((story.records.len(), throws));
                story.records.push(Stored { time, function: call.function, kind: if throws { 3 } else { 2 } });
            }
            // Somebody must be there to jump to.
            Op::Jump(levels) => open.truncate(open.len().saturating_sub(levels).max(1.min(open.len()))),
        }
    }
    story
}

/// The records as bytes.
pub fn bytes(records: &[Stored]) -> Vec<u8> {
    records.iter().flat_map(|r| [r.time, u64::from(r.function) << 8 | r.kind]).flat_map(u64::to_le_bytes).collect()
}

/// A function's name.
pub fn name(function: u32) -> String {
    format!("function_{function}")
}

pub fn session(clock: Clock, events: Events) -> Session {
    Session {
        version: "0".to_owned(),
        arch: "any".to_owned(),
        machine: 1,
        command: vec!["program".to_owned(), "argument".to_owned()],
        clock,
        events,
        started: 1_700_000_000_000_000_000,
    }
}

/// A file with these threads: buffers of each, in turns. A tick is a nanosecond.
pub fn file(threads: &[Vec<Vec<u8>>]) -> Vec<u8> {
    file_with(&session(Clock::Tsc, Events::Both), threads)
}

pub fn file_with(session: &Session, threads: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).unwrap();
    begin(&mut writer, session);
    for i in 0..threads.len() {
        let task = Task { pid: PID, tid: PID + i as u32, name: format!("thread {i}"), started: 900 };
        writer.task(&task).unwrap();
    }
    for serial in 0..threads.iter().map(Vec::len).max().unwrap_or(0) {
        for (i, buffers) in threads.iter().enumerate() {
            if let Some(buffer) = buffers.get(serial) {
                writer.records(PID, PID + i as u32, serial as u32, buffer).unwrap();
            }
        }
    }
    for ticks in [0, 1 << 40] {
        writer.clock(&ClockPair { pid: PID, ticks, monotonic: ticks }).unwrap();
    }
    writer.end(&End { pid: PID, status: Status::Exited(3), ended: 0 }).unwrap();
    writer.into_inner()
}

fn begin(writer: &mut Writer<Vec<u8>>, session: &Session) {
    let exe = "/usr/bin/program";
    writer.session(session).unwrap();
    writer.process(&Process { pid: PID, parent: None, exe: exe.to_owned(), started: 800 }).unwrap();
    writer.object(&Object { id: 0, path: exe.to_owned(), build_id: String::new() }).unwrap();
    let range = Range { start: BASE, end: BASE + 0x10000, offset: 0, flags: "r-xp".to_owned() };
    writer.loaded(&Loaded { pid: PID, object: 0, base: BASE, ranges: vec![range] }).unwrap();
    let function = |i| {
        let offset = 0x1000 + 64 * u64::from(i);
        Function {
            offset,
            size: 64,
            name: name(i),
            site: offset,
            entry_only: false,
            parameters: if i == KNOWN { parameters() } else { Vec::new() },
            result: (i == KNOWN).then_some(Number { bytes: 2, kind: Kind::Signed }),
        }
    };
    let functions = (0..FUNCTIONS).map(function).collect();
    writer.functions(&Functions { object: 0, first: 0, functions }).unwrap();
}

fn parameters() -> Vec<Parameter> {
    let parameter = |name: &str, word: Option<(u8, u8, Kind)>| {
        let word = word.map(|(word, bytes, kind)| (word, Number { bytes, kind }));
        Parameter { name: name.to_owned(), word }
    };
    vec![
        parameter("n", Some((0, 4, Kind::Signed))),
        parameter("x", None),
        parameter("p", Some((1, 8, Kind::Pointer))),
        parameter("", Some((2, 1, Kind::Boolean))),
        parameter("m", Some((3, 8, Kind::Unsigned))),
    ]
}

/// A call of each of these functions, with -7 as the word of its entry if it has parameters.
pub fn with_functions(all: &[(&str, Vec<Parameter>)]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).unwrap();
    let exe = "/usr/bin/program";
    writer.session(&session(Clock::Tsc, Events::Both)).unwrap();
    writer.process(&Process { pid: PID, parent: None, exe: exe.to_owned(), started: 800 }).unwrap();
    writer.object(&Object { id: 0, path: exe.to_owned(), build_id: String::new() }).unwrap();
    let function = |(i, (name, parameters)): (u64, &(&str, Vec<Parameter>))| {
        let offset = 0x1000 + 64 * i;
        Function {
            offset,
            size: 64,
            name: (*name).to_owned(),
            site: offset,
            entry_only: false,
            parameters: parameters.clone(),
            result: None,
        }
    };
    writer.functions(&Functions { object: 0, first: 0, functions: (0..).zip(all).map(function).collect() }).unwrap();
    writer.loaded(&Loaded { pid: PID, object: 0, base: BASE, ranges: Vec::new() }).unwrap();
    writer.task(&Task { pid: PID, tid: PID, name: String::new(), started: 900 }).unwrap();
    let call = |(n, (_, parameters)): (u64, &(&str, Vec<Parameter>))| {
        let words = if parameters.is_empty() { &[][..] } else { &[7_u64.wrapping_neg()] };
        let entry = [1000 + 2 * n, n << 8 | (words.len() as u64) << 4 | 1];
        [&entry, words, &[1001 + 2 * n, n << 8 | 2]].concat()
    };
    let records: Vec<u8> = (0..).zip(all).flat_map(call).flat_map(u64::to_le_bytes).collect();
    writer.records(PID, PID, 0, &records).unwrap();
    for ticks in [0, 1 << 40] {
        writer.clock(&ClockPair { pid: PID, ticks, monotonic: ticks }).unwrap();
    }
    writer.into_inner()
}

/// A call of [`KNOWN`], whose words have more in them than its arguments and its result, and one that was recorded without.
pub fn known() -> Vec<u8> {
    let record = |time: u64, words: &[u64], kind: u64| {
        let what = u64::from(KNOWN) << 8 | (words.len() as u64) << 4 | kind;
        [&[time, what], words].concat().into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>()
    };
    let arguments = [0xabcd_ffff_fffe, 0x7fff_0000_0010, 0xff01, u64::MAX];
    let records =
        [record(1000, &arguments, 1), record(1005, &[0x1234_8000], 2), record(1010, &[], 1), record(1020, &[], 2)];
    file(&[vec![records.concat()]])
}

pub fn open(file: &[u8]) -> Recording<Cursor<&[u8]>> {
    Recording::open(Cursor::new(file)).unwrap()
}

/// A function that calls itself until so many calls lie in each other.
pub fn deep(levels: u64) -> Vec<u8> {
    let record = |(time, kind)| Stored { time, function: 0, kind };
    let kinds = (0..2 * levels).map(|i| if i < levels { 1 } else { 2 });
    file(&[vec![bytes(&(1000..).zip(kinds).map(record).collect::<Vec<_>>())]])
}
