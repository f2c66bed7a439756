//! What other programs read of our files.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use trace::export::{self, Files, Version};
use trace::filter::{Filter, Wanted};

use crate::exports::sums;
use crate::made::{KNOWN, Op, PID, Story, bytes, file, follow, known, name, open, with_functions};

/// Files in a directory.
pub struct Directory<'d>(pub &'d Path);

impl Files for Directory<'_> {
    fn create(&mut self, name: &str) -> io::Result<Box<dyn Write>> {
        Ok(Box::new(fs::File::create(self.0.join(name))?))
    }
}

/// Run a program of this Debian package.
fn run(package: &str, command: &mut Command, input: &[u8]) -> String {
    let missing = |e| panic!("{command:?}: {e}; install the package {package}", command = package);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap_or_else(missing);
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join().unwrap();
    assert!(output.status.success(), "{package}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A thread in which everything happens that the formats have in common.
fn story(rounds: usize, first: u32) -> Story {
    use Op::{Call, Return, Throw};
    let round = [
        Call(first),
        Call(1),
        Call(2),
        Return,
        Call(2),
        Return,
        Throw,
        Call(1),
        Call(1),
        Return,
        Return,
        Return,
        Call(0),
        Return,
    ];
    let script: Vec<(Op, u64)> = round.iter().cycle().take(rounds * round.len()).map(|op| (*op, 1000)).collect();
    follow(&script, false)
}

/// Two threads, and what they did by function.
fn threads() -> (Vec<u8>, [Story; 2], BTreeMap<String, u64>) {
    let stories = [story(200, 0), story(70, 2)];
    let file = file(&stories.each_ref().map(|story| vec![bytes(&story.records)]));
    let mut calls: BTreeMap<String, u64> = BTreeMap::new();
    for (name, (count, _)) in stories.iter().flat_map(sums) {
        *calls.entry(name).or_default() += count;
    }
    (file, stories, calls)
}

/// A program that reads recordings: of the directory in `TRAMPTOOL_READERS`, where `cargo xtask engines` has newer ones, or of this
/// machine.
fn reader(name: &str) -> Command {
    Command::new(env::var_os("TRAMPTOOL_READERS").map_or_else(|| name.into(), |dir| Path::new(&dir).join(name)))
}

/// What a command of uftrace prints.
pub fn uftrace(dir: &Path, arguments: &[&str]) -> String {
    let mut command = reader("uftrace");
    run("uftrace", command.args(arguments).arg("-d").arg(dir).args(["--no-pager", "--color=no"]), b"")
}

/// How many calls of each function uftrace reads.
pub fn uftrace_counts(dir: &Path) -> BTreeMap<String, u64> {
    let report = uftrace(dir, &["report", "-f", "call"]);
    let mut counts = BTreeMap::new();
    for line in report.lines().skip(2) {
        let words: Vec<&str> = line.split_whitespace().collect();
        *counts.entry(words[1].to_owned()).or_default() += words[0].parse::<u64>().unwrap();
    }
    counts
}

#[test]
fn uftrace_reads_the_same_calls() {
    let (file, stories, calls) = threads();
    let recording = open(&file);
    let filter = Filter::new(&Wanted::default(), &recording).unwrap();
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(export::uftrace(&recording, &filter, &mut Directory(dir.path())).unwrap(), 0);
    assert_eq!(uftrace_counts(dir.path()), calls);
    // All threads, each call of each with its depth, which is its indent, and its time where the call has callees.
    for (i, story) in stories.iter().enumerate() {
        let tid = PID + i as u32;
        let replay = uftrace(dir.path(), &["replay", "-f", "none", "--no-merge", "--tid", &tid.to_string()]);
        let begun: Vec<(usize, String)> = replay.lines().filter_map(begins).collect();
        let expected: Vec<(usize, String)> = story.calls.iter().map(|c| (c.depth, name(c.function))).collect();
        assert_eq!(begun, expected, "{replay}");
    }
    assert!(uftrace(dir.path(), &["info"]).contains("program argument"));
}

/// The depth and the name of a call that a line of `uftrace replay` begins.
fn begins(line: &str) -> Option<(usize, String)> {
    let text = line.trim_start();
    let (name, _) = text.split_once('(')?;
    Some(((line.len() - text.len()) / 2, name.to_owned())).filter(|_| !text.starts_with('}'))
}

/// Values have no names in uftrace, and those that are not recorded are left out.
#[test]
fn uftrace_reads_arguments_and_results() {
    let file = known();
    let recording = open(&file);
    let filter = Filter::new(&Wanted::default(), &recording).unwrap();
    let dir = tempfile::tempdir().unwrap();
    export::uftrace(&recording, &filter, &mut Directory(dir.path())).unwrap();
    let replay = uftrace(dir.path(), &["replay", "-f", "none"]);
    let calls: Vec<&str> = replay.lines().map(str::trim).filter(|line| line.contains('(')).collect();
    let all = "function_59(-2, 0x7fff00000010, 1, 0xffffffffffffffff) = -32768;";
    assert_eq!(calls, [all, "function_59();"]);
}

/// uftrace finds functions by a part of their names: those that it would take for each other have no values, unless they are alike.
#[test]
fn uftrace_is_not_misled_by_names() {
    use trace::file::{Kind, Number, Parameter};
    let parameter = |bytes, kind| Parameter { name: "n".to_owned(), word: Some((0, Number { bytes, kind })) };
    let functions = [
        ("_ZN3foo3barEi", parameter(4, Kind::Signed)),
        ("_ZN3foo3barEm", parameter(8, Kind::Unsigned)),
        ("_ZN12_GLOBAL__N_13bazEi", parameter(4, Kind::Signed)),
        ("_ZN3foo3bazEi", parameter(4, Kind::Signed)),
        ("plain", parameter(4, Kind::Signed)),
    ];
    let file = with_functions(&functions.map(|(name, parameter)| (name, vec![parameter])));
    let recording = open(&file);
    let filter = Filter::new(&Wanted::default(), &recording).unwrap();
    let dir = tempfile::tempdir().unwrap();
    export::uftrace(&recording, &filter, &mut Directory(dir.path())).unwrap();
    let replay = uftrace(dir.path(), &["replay", "-f", "none"]);
    let calls: Vec<&str> = replay.lines().map(str::trim).filter(|line| line.contains('(')).collect();
    let shown = ["foo::bar();", "foo::bar();", "_GLOBAL__N_1::baz(-7);", "foo::baz(-7);", "plain(-7);"];
    assert_eq!(calls, shown, "{replay}");
}

/// The events that babeltrace2 reads, a line each.
pub fn babeltrace(dir: &Path) -> String {
    run("babeltrace2", reader("babeltrace2").arg("--clock-cycles").arg(dir), b"")
}

#[test]
fn babeltrace_reads_the_same_events() {
    babeltrace_reads_events(Version::One);
}

#[test]
#[ignore = "babeltrace2 reads CTF 2 from its version 2.1 on, which `cargo xtask engines` fetches"]
fn babeltrace_reads_the_same_events_of_ctf_2() {
    babeltrace_reads_events(Version::Two);
}

fn babeltrace_reads_events(version: Version) {
    let (file, stories, calls) = threads();
    let recording = open(&file);
    let filter = Filter::new(&Wanted::default(), &recording).unwrap();
    let dir = tempfile::tempdir().unwrap();
    export::ctf(&recording, &filter, version, &mut Directory(dir.path())).unwrap();
    let text = babeltrace(dir.path());
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    let mut last = 0;
    for line in text.lines() {
        let time = line.split_once('[').unwrap().1.split_once(']').unwrap().0.parse::<u64>().unwrap();
        assert!(time >= last, "{line}");
        last = time;
        if line.contains(" entry: ") {
            *seen.entry(line.split('"').nth(1).unwrap().to_owned()).or_default() += 1;
        }
    }
    assert_eq!(seen, calls);
    let of = |kind: u64| stories.iter().flat_map(|s| &s.records).filter(|record| record.kind == kind).count();
    assert_eq!(text.matches(" return: ").count(), of(2));
    assert_eq!(text.matches(" exception: ").count(), of(3));
    assert_eq!(text.matches(&format!("tid = {}", PID + 1)).count(), stories[1].records.len());
}

/// Values are fields of their own, and what has none is an event without them.
#[test]
fn babeltrace_reads_arguments_and_results() {
    babeltrace_reads_values(Version::One);
}

#[test]
#[ignore = "babeltrace2 reads CTF 2 from its version 2.1 on, which `cargo xtask engines` fetches"]
fn babeltrace_reads_arguments_and_results_of_ctf_2() {
    babeltrace_reads_values(Version::Two);
}

fn babeltrace_reads_values(version: Version) {
    let file = known();
    let recording = open(&file);
    let filter = Filter::new(&Wanted::default(), &recording).unwrap();
    let dir = tempfile::tempdir().unwrap();
    export::ctf(&recording, &filter, version, &mut Directory(dir.path())).unwrap();
    let text = babeltrace(dir.path());
    let fields: Vec<&str> = text.lines().map(|line| line.rsplit_once("}, { ").unwrap().1).collect();
    let function = format!("function = ( \"{}\" : container = {KNOWN} )", name(KNOWN));
    let args = "args = { n = -2, p = 0x7FFF00000010, word_3 = 1, m = 18446744073709551615 }";
    let expected = [
        format!("{function}, {args} }}"),
        format!("{function}, result = -32768 }}"),
        format!("{function} }}"),
        format!("{function} }}"),
    ];
    assert_eq!(fields, expected, "{text}");
    assert_eq!((text.matches(" entry: ").count(), text.matches(" return: ").count()), (2, 2));
}

/// The fields of Perfetto's messages that we write, by what its documentation says of them.
const PROTO: &str = r#"
syntax = "proto2";
message Trace { repeated TracePacket packet = 1; }
message TracePacket {
  optional uint64 timestamp = 8; optional uint32 trusted_packet_sequence_id = 10; optional TrackEvent track_event = 11;
  optional InternedData interned_data = 12; optional uint32 sequence_flags = 13; optional TrackDescriptor track_descriptor = 60;
}
message TrackEvent {
  enum Type { UNSPECIFIED = 0; SLICE_BEGIN = 1; SLICE_END = 2; }
  repeated DebugAnnotation debug_annotations = 4; optional Type type = 9; optional uint64 name_iid = 10; optional uint64 track_uuid = 11;
}
message DebugAnnotation {
  optional string name = 10; optional bool bool_value = 2; optional uint64 uint_value = 3; optional int64 int_value = 4;
  optional uint64 pointer_value = 7;
}
message InternedData { repeated EventName event_names = 2; }
message EventName { optional uint64 iid = 1; optional string name = 2; }
message TrackDescriptor {
  optional uint64 uuid = 1; optional ProcessDescriptor process = 3; optional ThreadDescriptor thread = 4;
}
message ProcessDescriptor { optional int32 pid = 1; optional string process_name = 6; }
message ThreadDescriptor { optional int32 pid = 1; optional int32 tid = 2; optional string thread_name = 5; }
"#;

/// A recording as Perfetto has it, in text.
fn decoded(file: &[u8]) -> String {
    let recording = open(file);
    let filter = Filter::new(&Wanted::default(), &recording).unwrap();
    let mut trace = Vec::new();
    export::perfetto(&recording, &filter, &mut trace).unwrap();
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("trace.proto"), PROTO).unwrap();
    let mut protoc = Command::new("protoc");
    run("protobuf-compiler", protoc.args(["--decode=Trace", "trace.proto"]).current_dir(dir.path()), &trace)
}

#[test]
fn protoc_reads_arguments() {
    let text = decoded(&known());
    let words: Vec<&str> = text.split_whitespace().collect();
    for (name, value) in [
        ("n", "int_value: -2"),
        ("p", "pointer_value: 140733193388048"),
        ("word 3", "bool_value: true"),
        ("m", "uint_value: 18446744073709551615"),
        ("result", "int_value: -32768"),
    ] {
        // Fields come in the order of their numbers.
        let annotation = format!("debug_annotations {{ {value} name: \"{name}\" }}");
        assert!(words.join(" ").contains(&annotation), "{annotation}: {text}");
    }
    assert_eq!(text.matches("debug_annotations").count(), 5);
}

#[test]
fn protoc_reads_the_same_events() {
    let (file, stories, calls) = threads();
    let text = decoded(&file);
    // A field that the description does not have is shown by its number.
    let unknown = text.lines().find(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()));
    assert_eq!(unknown, None);
    let mut names: BTreeMap<&str, String> = BTreeMap::new();
    let mut begun: BTreeMap<&str, u64> = BTreeMap::new();
    for packet in text.split("\npacket {") {
        let value = |key: &str| Some(packet.split_once(&format!(" {key}: "))?.1.lines().next().unwrap());
        if let (Some(iid), Some(name)) = (value("iid"), value("name")) {
            names.insert(iid, name.trim_matches('"').to_owned());
        }
        if value("type") == Some("SLICE_BEGIN") {
            *begun.entry(value("name_iid").unwrap()).or_default() += 1;
        }
    }
    let seen: BTreeMap<String, u64> = begun.into_iter().map(|(iid, count)| (names[iid].clone(), count)).collect();
    assert_eq!(seen, calls);
    let ends = stories.iter().flat_map(|s| &s.records).filter(|record| record.kind != 1).count();
    assert_eq!(text.matches("type: SLICE_END").count(), ends);
    assert_eq!(text.matches("tid: ").count(), stories.len());
}

/// Its format has 1,024 levels: the calls of the deeper ones are lost, and said to be.
#[test]
fn uftrace_reads_what_its_levels_hold() {
    let file = crate::made::deep(1100);
    let recording = open(&file);
    let filter = Filter::new(&Wanted::default(), &recording).unwrap();
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(export::uftrace(&recording, &filter, &mut Directory(dir.path())).unwrap(), 76);
    assert_eq!(uftrace_counts(dir.path()), [(name(0), 1024)].into());
    let replay = uftrace(dir.path(), &["replay", "-f", "none"]);
    assert!(replay.contains("LOST 152 records"), "{}", replay.lines().rev().take(9).collect::<Vec<_>>().join("\n"));
}
