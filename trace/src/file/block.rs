//! The content of a file's blocks.

use serde::{Deserialize, Serialize};

/// The first bytes of a file.
pub const MAGIC: [u8; 8] = *b"tramptrc";
/// The version of the format.
pub const VERSION: u32 = 2;
/// Bytes of the file's header, and of the head of a block of records.
pub const HEADER: usize = 16;
/// Bytes that a block's payload may have.
pub const MOST: u32 = 64 << 20;

/// Kinds of blocks, by their numbers in the file.
pub mod kind {
    pub const SESSION: u32 = 1;
    pub const PROCESS: u32 = 2;
    pub const OBJECT: u32 = 3;
    pub const LOADED: u32 = 4;
    pub const FUNCTIONS: u32 = 5;
    pub const TASK: u32 = 6;
    pub const CLOCK: u32 = 7;
    pub const RECORDS: u32 = 8;
    pub const LOST: u32 = 9;
    pub const END: u32 = 10;
    pub const PACKED: u32 = 11;
}

/// The run as a whole. It is the first block, and there is one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Session {
    /// The version of the tool that recorded.
    pub version: String,
    /// The architecture's name.
    pub arch: String,
    /// The architecture's number in ELF files (`e_machine`).
    pub machine: u16,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The source of times.
    pub clock: Clock,
    /// The recorded events.
    pub events: Events,
    /// When it began, in nanoseconds since 1970.
    pub started: u64,
}

/// The source of the times in records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// The CPU's counter, in each record.
    Tsc,
    /// The CPU's counter, in every eighth record or so, and 0 in the others.
    Stamp8,
    /// None: all times are 0.
    None,
}

/// The recorded events of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Events {
    /// Entry and end.
    Both,
    /// The entry.
    Entry,
    /// Nothing but how many there are.
    Count,
}

/// A program that a process runs. After an exec, the same process has another one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Process {
    /// The process.
    pub pid: u32,
    /// The process that forked it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// The program's path.
    pub exe: String,
    /// When it began, in nanoseconds of CLOCK_MONOTONIC.
    pub started: u64,
}

/// A program or library with traced functions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Object {
    /// The object's number, unique in the file.
    pub id: u32,
    /// The object's path.
    pub path: String,
    /// The build ID in hexadecimal digits; empty if there is none.
    pub build_id: String,
}

/// The place where a process has loaded an object. The object comes before it in the file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Loaded {
    /// The process.
    pub pid: u32,
    /// The object's number.
    pub object: u32,
    /// The address of the object's address 0.
    pub base: u64,
    /// The object's lines of /proc/PID/maps.
    pub ranges: Vec<Range>,
}

/// A line of /proc/PID/maps.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Range {
    /// The first address.
    pub start: u64,
    /// The address behind the last.
    pub end: u64,
    /// The offset in the file.
    pub offset: u64,
    /// The permissions, as `r-xp`.
    pub flags: String,
}

/// Functions of an object. Their numbers are those that records have: `first`, `first` + 1 and so on. A number is that of one
/// function in the whole file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Functions {
    /// The object's number. The object comes before its functions in the file.
    pub object: u32,
    /// The number of the first function.
    pub first: u32,
    /// The functions.
    pub functions: Vec<Function>,
}

/// A function.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Function {
    /// The function's address in the object, from `base` on.
    pub offset: u64,
    /// The size in bytes; 0 if unknown.
    pub size: u64,
    /// The name in the symbol table.
    pub name: String,
    /// The address of its patched site in the object.
    pub site: u64,
    /// Only its entries are recorded, also where [`Session::events`] is [`Events::Both`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub entry_only: bool,
    /// Its parameters, where words of entries are arguments. One without a name and a word: nothing is known of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<Parameter>,
    /// What the word of a return is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Number>,
}

/// A parameter of a function.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Parameter {
    /// The parameter's name; empty if it has none.
    pub name: String,
    /// The word of an entry that has its value, and that value's type; none if no word does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub word: Option<(u8, Number)>,
}

/// A number in the low bytes of a word. What is above them may be anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Number {
    /// The size in bytes.
    pub bytes: u8,
    /// The kind.
    pub kind: Kind,
}

/// The kind of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// With a sign.
    Signed,
    /// Without.
    Unsigned,
    /// An address.
    Pointer,
    /// 0 or 1.
    Boolean,
}

/// A thread. It comes before its records. The same numbers once more are another thread.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The process's number.
    pub pid: u32,
    /// The thread's number.
    pub tid: u32,
    /// The thread's name.
    pub name: String,
    /// When it began, in nanoseconds of CLOCK_MONOTONIC.
    pub started: u64,
}

/// Readings of the records' clock and of CLOCK_MONOTONIC at the same moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockPair {
    /// The process.
    pub pid: u32,
    /// The time as records have it.
    pub ticks: u64,
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub monotonic: u64,
}

/// Records that there was no room for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lost {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// How many; of [`Why::Depth`], how many calls.
    pub records: u64,
    /// What had no room.
    pub why: Why,
}

/// Why records are lost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Why {
    /// The buffer was full.
    Full,
    /// Calls lay deeper in each other than the shadow stack is long.
    Depth,
    /// There was no memory for the thread's first buffer.
    Memory,
    /// The file has reached its limit.
    Limit,
}

/// The end of a process, or of the program that it ran before an exec.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct End {
    /// The process.
    pub pid: u32,
    /// The way in which it ended.
    pub status: Status,
    /// When it ended, in nanoseconds of CLOCK_MONOTONIC.
    pub ended: u64,
}

/// The way in which a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// With this exit code.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
    /// The process runs another program.
    Executed,
    /// Nobody told us how.
    Unknown,
    /// The process was still running when the recording ended.
    Running,
}
