//! What was observed of a trampoline, as data.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

/// All that was observed of a trampoline.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Observed {
    /// The architecture's name.
    pub arch: &'static str,
    /// Where it begins.
    pub symbol: String,
    /// Bytes of its code.
    pub bytes: u64,
    /// What may land on its first instruction, where that is a landing pad.
    pub landing_pad: Vec<&'static str>,
    /// What the unwind table says of the instruction before it, where it says that there is no caller: so it is with code that
    /// functions return to.
    pub returned_to: bool,
    /// Runs that were made.
    pub runs: usize,
    /// Instructions that no run reached, as offsets.
    pub unreached: Vec<u64>,
    /// Each way through it, the plain one first.
    pub path: Vec<Way>,
    /// What becomes of what a called function stores in the words above its frame.
    pub store: Vec<Store>,
    /// Every other run: what differs from the plain one is in here, whether it went another way or not.
    #[serde(skip)]
    pub variants: Vec<Way>,
    /// Its instructions.
    #[serde(skip)]
    pub lines: Vec<Line>,
}

/// An instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// Its offset in the function.
    pub at: u64,
    /// As text, without the function's address in it.
    pub text: String,
}

/// One way through the code.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, JsonSchema)]
pub struct Way {
    /// What makes it go there.
    pub when: String,
    /// A called function does that, by a store.
    #[serde(skip)]
    pub by_store: bool,
    /// Instructions executed.
    pub instructions: usize,
    /// Bytes of stack below where SP was.
    pub stack: u64,
    /// Offsets of returns that do not go behind the call that they pair with.
    pub mispaired: Vec<u64>,
    /// Offsets that a CPU takes such a return to go to, where no trap stops it.
    pub astray: Vec<u64>,
    /// Where returns go that pair with calls from before the entry.
    pub beyond: Vec<String>,
    /// Calls that no return pairs with.
    pub unreturned: usize,
    /// Offsets of instructions that use memory below SP, where an interrupt may overwrite it.
    pub below: Vec<u64>,
    /// Offsets of instructions that use memory by an SP that the hardware refuses.
    pub crooked: Vec<u64>,
    /// How it ends.
    pub leave: Leave,
    /// What it calls, in order.
    pub call: Vec<Call>,
    /// What an unwinder finds, from one offset to the next; empty where there is no unwind table.
    pub unwind: Vec<Unwound>,
}

/// What the unwind table makes of some instructions, in the order in which they are executed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Unwound {
    /// Offset of the first.
    pub from: u64,
    /// Offset of the last.
    pub to: u64,
    /// CFA: SP in the caller.
    pub cfa: String,
    /// The return address.
    pub returns: String,
    /// The return address is in a column that unwinders know.
    pub known_column: bool,
    /// Unwinders look up the return address itself, because it is behind no call.
    pub looked_up: bool,
    /// Callee-saved registers that it gives another value than they had at the entry.
    pub lost: Vec<&'static str>,
}

/// A call of something outside.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Call {
    /// What is called.
    pub callee: String,
    /// The offset of the call.
    pub at: u64,
    /// By which branch.
    pub by: String,
    /// Where SP is above the return address, relative to where it was at the entry.
    pub sp: String,
    /// To what SP is aligned there, whatever it was at the entry.
    pub aligned: u64,
    /// To what it is aligned there if the caller of the traced function aligns it as C does.
    pub usually_aligned: u64,
    /// The argument registers that do not hold what they held at the entry. In a function that is entered behind its
    /// beginning, also the others that may be live there.
    pub argument: BTreeMap<&'static str, String>,
    /// Vector argument registers that do not hold what they held at the entry.
    pub vectors: Vec<&'static str>,
    /// Flags that are set though C code begins with them clear.
    pub flags: Vec<&'static str>,
    /// Words at SP that are words of the caller, by their offsets: arguments on the stack.
    pub stack: BTreeMap<String, String>,
    /// Return addresses that an unwinder by frame pointers finds, and the frame pointer behind them.
    pub chain: Vec<String>,
    /// The argument register that points to the frame.
    pub pointer: Option<&'static str>,
    /// Words from there up, or from SP if nothing points to them, by their offsets, up to where SP was; and a few before.
    pub frame: BTreeMap<String, String>,
    /// Which instruction changed each register last.
    #[serde(skip)]
    pub writers: BTreeMap<&'static str, u64>,
    /// Which one stored each word of the frame.
    #[serde(skip)]
    pub slots: BTreeMap<String, u64>,
}

/// How a way ends.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, JsonSchema)]
pub struct Leave {
    /// Where it goes; why nowhere, if it does not end.
    pub to: String,
    /// It ends.
    pub ends: bool,
    /// The offset of its last instruction.
    pub at: u64,
    /// By which branch.
    pub by: String,
    /// An instruction behind it stops what a CPU executes by mistake.
    pub trap: bool,
    /// SP there, relative to where it was at the entry.
    pub sp: String,
    /// Registers that hold what they held.
    pub kept: Vec<&'static str>,
    /// The others.
    pub changed: BTreeMap<&'static str, String>,
    /// Flags are as they were.
    pub flags: bool,
    /// What they are.
    #[serde(skip)]
    pub flag_bits: u64,
    /// They are loaded from a word that a called function stores.
    #[serde(skip)]
    pub flags_follow: bool,
    /// Flags that are set, though C code begins with them clear.
    pub unclear: Vec<&'static str>,
    /// Vector registers that are not as they were: a call may change most, so they are those that are not saved.
    pub vectors: Vec<&'static str>,
    /// Control words that are not as they were.
    pub control: Vec<&'static str>,
    /// Words above where SP was that are not as they were.
    pub memory: BTreeMap<String, String>,
    /// Words outside of the stack that are written.
    pub elsewhere: BTreeMap<String, String>,
    /// Which instruction changed each register last.
    #[serde(skip)]
    pub writers: BTreeMap<&'static str, u64>,
}

/// What becomes of a word that a called function stores.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Store {
    /// Number of the call, from 1.
    pub call: usize,
    /// Bytes above the pointer that the function got.
    pub frame: String,
    /// Where it is found again at the end.
    pub shows: Vec<String>,
}

impl Unwound {
    /// All but where it is.
    pub(super) fn state(&self) -> (&str, &str, bool, bool, &[&'static str]) {
        (&self.cfa, &self.returns, self.known_column, self.looked_up, &self.lost)
    }
}
