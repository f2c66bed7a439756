//! A trampoline seen from inside, for pages: its listing, its frame, and its registers along each path.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A trampoline seen from inside, under one set of options.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct View {
    /// The architecture.
    pub arch: String,
    /// The symbol.
    pub trampoline: String,
    /// `name=value` for every option.
    pub options: String,
    /// Its instructions, and behind them those of others that it jumps to.
    pub listing: Vec<Line>,
    /// Runs of it. Of those that execute the same instructions there is one, but for failures.
    pub paths: Vec<Path>,
}

/// An instruction.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Line {
    /// Bytes from the trampoline's start, or `symbol+offset` of another one.
    pub at: String,
    /// Its bytes, in hexadecimal digits.
    pub bytes: String,
    /// The instruction, as the disassembler writes it.
    pub text: String,
    /// What it is for, if that is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// It stops speculation or fills space: nothing executes it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub filler: bool,
}

/// One run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Path {
    /// The situation, as `check --situation` names it.
    pub situation: String,
    /// The traced function.
    pub function: String,
    /// What fails in it: clause and place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    /// The instructions that were executed, by their numbers in the listing.
    pub steps: Vec<usize>,
    /// Of these, by their numbers in `steps`, those that called something.
    pub calls: Vec<usize>,
    /// Most bytes of stack below SP at its entry.
    pub stack: u64,
    /// The general registers along the way.
    pub registers: Vec<Track>,
    /// The stack when it called for the last time, or where SP was lowest; highest address first.
    pub frame: Vec<Word>,
    /// The command that runs this case again.
    pub replay: String,
}

/// A register along a path.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Track {
    /// Its name.
    pub register: String,
    /// The contract promises it on this way out.
    pub promised: bool,
    /// A clause fails because of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
    /// After each step, a letter: `l` it has the value from the entry, `s` that value is in memory or another register too,
    /// `c` it has another value and the one from the entry is elsewhere, `x` the one from the entry is nowhere, `r` it has the
    /// value from the entry again, `h` it has what a callee stored into the frame.
    pub states: String,
}

/// A word of the stack.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Word {
    /// Bytes from SP at the trampoline's entry.
    pub offset: i64,
    /// What is in it; empty if it was not written.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub holds: String,
    /// The instruction that wrote it, by its number in the listing; none if it is not the trampoline's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer: Option<usize>,
    /// The instructions that loaded it into a register, with the register.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loaded: Vec<(usize, String)>,
}
