//! What was observed of a trampoline, as data.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use super::case::Case;
use super::value::{Offset, Place, Value, text};

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
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Way {
    /// What makes it go there.
    pub when: Case,
    /// Instructions executed.
    pub instructions: usize,
    /// Bytes of stack below where SP was.
    pub stack: u64,
    /// Offsets of returns that do not go behind the call that they pair with.
    pub mispaired: Vec<u64>,
    /// Offsets that a CPU takes such a return to go to, where no trap stops it.
    pub astray: Vec<u64>,
    /// Where returns go that pair with calls from before the entry.
    pub beyond: Vec<Value>,
    /// Calls that no return pairs with.
    pub unreturned: usize,
    /// Offsets of instructions that use memory below SP, where an interrupt may overwrite it.
    pub below: Vec<u64>,
    /// Offsets of instructions that use memory by an SP that the hardware refuses.
    pub crooked: Vec<u64>,
    /// Offsets of instructions that may change vector state that the engine does not have.
    pub wide: Vec<u64>,
    /// Offsets of instructions that move the CPU's shadow stack, which the engine does not have.
    pub shadow: Vec<u64>,
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
    /// Whom it finds.
    #[serde(flatten)]
    pub caller: Caller,
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
    pub callee: Value,
    /// The offset of the call.
    pub at: u64,
    /// By which branch.
    pub by: By,
    /// Where SP is above the return address, relative to where it was at the entry.
    pub sp: Value,
    /// To what SP is aligned there, whatever it was at the entry.
    pub aligned: u64,
    /// To what it is aligned there if the caller of the traced function aligns it as C does.
    pub usually_aligned: u64,
    /// The argument registers that do not hold what they held at the entry. In a function that is entered behind its
    /// beginning, also the others that may be live there.
    pub argument: BTreeMap<&'static str, Value>,
    /// Vector argument registers that do not hold what they held at the entry.
    pub vectors: Vec<&'static str>,
    /// Flags that are set though C code begins with them clear.
    pub flags: Vec<&'static str>,
    /// Words at SP that are words of the caller, by their offsets: arguments on the stack.
    pub stack: BTreeMap<Offset, Value>,
    /// Return addresses that an unwinder by frame pointers finds, and the frame pointer behind them.
    pub chain: Vec<Link>,
    /// The argument register that points to the frame.
    pub pointer: Option<&'static str>,
    /// Words from there up, or from SP if nothing points to them, by their offsets, up to where SP was; and a few before.
    pub frame: BTreeMap<Offset, Value>,
    /// Which instruction changed each register last.
    #[serde(skip)]
    pub writers: BTreeMap<&'static str, u64>,
    /// Which one stored each word of the frame.
    #[serde(skip)]
    pub slots: BTreeMap<Offset, u64>,
}

/// How a way ends.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Leave {
    /// Where it goes.
    #[serde(flatten)]
    pub end: End,
    /// The offset of its last instruction.
    pub at: u64,
    /// An instruction behind it stops what a CPU executes by mistake.
    pub trap: bool,
    /// SP there, relative to where it was at the entry.
    pub sp: Value,
    /// Registers that hold what they held.
    pub kept: Vec<&'static str>,
    /// The others.
    pub changed: BTreeMap<&'static str, Value>,
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
    #[serde(flatten)]
    pub vectors: Vectors,
    /// The same where what is called uses general registers only. Null where no instruction uses vector registers, and in runs
    /// that were made for something else.
    pub general_only: Option<Vectors>,
    /// Control words that are not as they were.
    pub control: Vec<&'static str>,
    /// Words above where SP was that are not as they were.
    pub memory: BTreeMap<Offset, Value>,
    /// Words outside of the stack that are written.
    pub elsewhere: BTreeMap<Value, Value>,
    /// Which instruction changed each register last.
    #[serde(skip)]
    pub writers: BTreeMap<&'static str, u64>,
}

/// Vector registers that are not as they were.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, JsonSchema)]
pub struct Vectors {
    /// The lower half is not.
    pub vectors: Vec<&'static str>,
    /// No more than the upper half is not.
    pub upper_halves: Vec<&'static str>,
}

/// What becomes of a word that a called function stores.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Store {
    /// Number of the call, from 1.
    pub call: usize,
    /// The word.
    pub word: Place,
    /// Where it is found again at the end.
    pub shows: Vec<Shows>,
}

/// How a way ends.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum End {
    /// It goes elsewhere.
    Goes {
        /// Where to.
        to: Value,
        /// By which branch.
        by: By,
    },
    /// It does not end.
    Never {
        /// Why, for people.
        never: String,
    },
}

/// Whom an unwinder takes for the caller.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Caller {
    /// There is one.
    Found {
        /// CFA: SP in the caller.
        cfa: Value,
        /// The return address.
        returns: Value,
    },
    /// The table says that there is none.
    Undefined {
        /// CFA: SP in the caller.
        cfa: Value,
    },
    /// The table has no entry.
    Nothing {},
}

/// Kinds of branches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// None: the code ends before it goes elsewhere.
    FallThrough,
    /// A return.
    Return,
    /// An indirect call.
    IndirectCall,
    /// An indirect jump.
    IndirectJump,
    /// An indirect jump that landing pads take for one from a veneer.
    Veneer,
    /// A direct call.
    Call,
    /// A direct jump.
    Jump,
}

/// By which branch code goes elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct By {
    /// The branch.
    pub kind: Kind,
    /// The function that stands for a return, where the branch is in that.
    pub inside: Option<&'static str>,
}

/// What an unwinder finds that follows frame pointers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Link {
    /// A return address.
    Returns(Value),
    /// A return address whose record leads back down.
    Falls(Value),
    /// A record that nobody has written, where SP was at the entry, if so.
    Unwritten(bool),
    /// An address in the stack that is no record.
    Stack,
    /// The address of a frame, marked: kernels say so that there are registers in place of a record.
    Marked(Offset),
    /// Something else.
    Other(Value),
}

/// Where a word that a called function stored is found again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Shows {
    /// The code goes there.
    To,
    /// In a register at the end.
    Register(&'static str),
    /// In a word of the caller.
    CallerWord(Offset),
    /// In an argument register at the call with this number.
    Argument(&'static str, usize),
    /// The call with this number is of it.
    Callee(usize),
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, word) = match self.kind {
            Kind::FallThrough => ("falling through", "fall-through"),
            Kind::Return => ("a return", "return"),
            Kind::IndirectCall => ("an indirect call", "indirect-call"),
            Kind::IndirectJump => ("an indirect jump", "indirect-jump"),
            Kind::Veneer => ("an indirect jump as from a veneer", "veneer"),
            Kind::Call => ("a call", "call"),
            Kind::Jump => ("a jump", "jump"),
        };
        f.write_str(if f.alternate() { word } else { text })?;
        self.inside.map_or(Ok(()), |name| write!(f, " in {name}"))
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, f.alternate()) {
            (Link::Returns(value) | Link::Other(value), false) => write!(f, "{value}"),
            (Link::Returns(value) | Link::Other(value), true) => write!(f, "{value:#}"),
            (Link::Falls(value), false) => write!(f, "{value} (the next one is below)"),
            (Link::Falls(value), true) => write!(f, "falls({value:#})"),
            (Link::Unwritten(entry), false) => {
                let place = if *entry { "where SP was at the entry" } else { "elsewhere in the stack" };
                write!(f, "a record that nobody has written, {place}")
            }
            (Link::Unwritten(entry), true) => f.write_str(if *entry { "unwritten(sp)" } else { "unwritten" }),
            (Link::Stack, false) => f.write_str("the stack"),
            (Link::Stack, true) => f.write_str("stack"),
            (Link::Marked(at), false) if at.0 == 0 => f.write_str("&frame, which is marked"),
            (Link::Marked(at), false) => write!(f, "&frame+{:#x}, which is marked", at.0),
            (Link::Marked(at), true) => write!(f, "marked({:#})", Place::Frame(*at)),
        }
    }
}

impl fmt::Display for Shows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, f.alternate()) {
            (Shows::To, false) => f.write_str("where it goes"),
            (Shows::To, true) => f.write_str("to"),
            (Shows::Register(name), _) => f.write_str(name),
            (Shows::CallerWord(at), false) => write!(f, "[stack+{at}]"),
            (Shows::CallerWord(at), true) => write!(f, "{:#}", Place::Stack(at.0)),
            (Shows::Argument(name, call), false) => write!(f, "{name} at call {call}"),
            (Shows::Argument(name, call), true) => write!(f, "call{call}.{name}"),
            (Shows::Callee(call), false) => write!(f, "callee of call {call}"),
            (Shows::Callee(call), true) => write!(f, "call{call}.callee"),
        }
    }
}

text!(By, Link, Shows);

impl Leave {
    /// Where it goes; `None` if it does not end.
    pub fn to(&self) -> Option<&Value> {
        match &self.end {
            End::Goes { to, .. } => Some(to),
            End::Never { .. } => None,
        }
    }

    /// It ends.
    pub fn ends(&self) -> bool {
        self.to().is_some()
    }
}

impl Unwound {
    /// All but where it is.
    pub(super) fn state(&self) -> (&Caller, bool, bool, &[&'static str]) {
        (&self.caller, self.known_column, self.looked_up, &self.lost)
    }
}
