//! One run of one function: with which handler, in which situation, from which registers; and what it leaves behind.

use std::fmt;
use std::str::FromStr;

use codegen::ask::frame::{Content, Stores};
use codegen::contract::Contract;
use codegen::words::abi::{Abi, Reg};
use codegen::words::error::Error;

use crate::engine::cpu::{SPARSE_DIRECT, SPARSE_JUMP, SPARSE_LIVEPATCH};
use crate::engine::registers::Snapshot;
use crate::engine::rng::Rng;
use crate::run::situation::Situation;

/// The registers that the handler of a case overwrites.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Handler {
    /// Overwrites general registers only, as kernel C does.
    #[default]
    General,
    /// Overwrites vector registers too.
    Any,
}

impl Handler {
    /// Both, in the order in which they are run.
    pub const ALL: [Handler; 2] = [Handler::General, Handler::Any];
}

impl fmt::Display for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Handler::General => "general",
            Handler::Any => "any",
        })
    }
}

impl FromStr for Handler {
    type Err = Error;

    fn from_str(name: &str) -> Result<Handler, Error> {
        let found = Handler::ALL.into_iter().find(|h| h.to_string() == name);
        found.ok_or_else(|| Error::unknown("handler", name, ["general", "any"]))
    }
}

/// The place of the trampolines, seen from the traced functions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Distance {
    /// In the same image.
    #[default]
    Near,
    /// In an image of their own.
    Far {
        /// From the functions to there, in bytes.
        bytes: i64,
        /// The entry trampolines are copies, as the kernel makes them for an `ftrace_ops`.
        copied: bool,
    },
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distance::Near => f.pad("0"),
            Distance::Far { bytes, copied } => write!(f, "{}{bytes:+}", if *copied { "copy" } else { "" }),
        }
    }
}

impl FromStr for Distance {
    type Err = Error;

    fn from_str(text: &str) -> Result<Distance, Error> {
        let (copied, number) = text.strip_prefix("copy").map_or((false, text), |rest| (true, rest));
        match number.parse() {
            Ok(0) if !copied => Ok(Distance::Near),
            Ok(bytes) if bytes != 0 => Ok(Distance::Far { bytes, copied }),
            _ => Err(Error::new(format!("distance {text:?}; valid: 0, bytes as in -4096, or copy-4096 for copies"))),
        }
    }
}

/// One run of one function.
#[derive(Clone, Default, Debug)]
pub(crate) struct Case {
    /// The trampoline at the site.
    pub attach: usize,
    pub function: usize,
    pub situation: Situation,
    pub handler: Handler,
    /// SP modulo 16.
    pub entry_sp: u64,
    pub seed: u64,
    /// The first record begins so many words into a block.
    pub slot: u64,
    pub sret: bool,
    /// Before every instruction of a trampoline, compare the unwind table with the CPU, and let an interrupt happen.
    pub closely: bool,
    /// A signal's handler interrupts it, and calls the function too, with other arguments.
    pub signals: bool,
    /// Give vectors their full width, and see what becomes of it.
    pub wide: bool,
    /// Look at every access to the stack.
    pub watched: bool,
    /// The values that the callback writes to registers, by register.
    pub new_registers: [u64; 32],
    /// The values that the exit handler writes to registers.
    pub new_results: Vec<(Reg, u64)>,
    /// Registers and stack at the function's entry.
    pub initial: Initial,
}

/// Registers, SP, and the stack from there up, when a function is called.
#[derive(Clone, Default, Debug)]
pub(crate) struct Initial {
    pub registers: Snapshot,
    pub(crate) sp: u64,
    pub(crate) above: Vec<u8>,
    /// The thread pointer.
    pub(crate) thread: Option<u64>,
    /// Words of the block, by their offsets.
    pub(crate) block: Vec<(u64, u64)>,
}

impl Case {
    /// The callback does nothing besides overwriting.
    pub fn is_plain(&self) -> bool {
        self.situation == Situation::PLAIN
    }

    /// Scratch registers are 0, at the entry and after each call, and what is gone to by an address has one bit in it.
    pub fn sparse(&self) -> bool {
        self.handler == Handler::Any
    }

    /// The seed of vectors at full width: another one for each trampoline, fixture and situation, since the length follows
    /// from it.
    pub fn wide_seed(&self, trampoline: &str, fixture: &str) -> u64 {
        format!("{trampoline} {fixture} {}", self.situation)
            .bytes()
            .fold(self.seed, |seed, byte| seed.rotate_left(5) ^ u64::from(byte))
    }

    /// A value for a register.
    pub fn canary(&self, rng: &mut Rng) -> u64 {
        let value = rng.canary();
        if self.sparse() { value & !(SPARSE_DIRECT | SPARSE_LIVEPATCH | SPARSE_JUMP) } else { value }
    }

    /// The registers that the callback rewrites, with their new values: all to which the contract lets it.
    pub fn rewritten<'c>(&'c self, contract: &'c Contract, abi: &'c Abi) -> impl Iterator<Item = (Reg, u64)> + 'c {
        contract.frame.fields.iter().filter_map(move |f| match (f.content, f.stores) {
            (Content::Reg(r), Stores::TakeEffect) if !(f.in_record || self.sret && r == abi.sret) => {
                Some((r, self.new_registers[r.0 as usize]))
            }
            _ => None,
        })
    }
}

/// Bytes for a result returned in memory.
pub(crate) const RESULT: usize = 64;

/// The result of a run.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Outcome {
    pub(crate) registers: Snapshot,
    pub(crate) above: Vec<u8>,
    pub(crate) result: [u8; RESULT],
}

/// A function that was run unpatched.
#[derive(Debug)]
pub(crate) struct Unpatched {
    pub(crate) start: u64,
    pub(crate) registers: Snapshot,
    pub(crate) above: Vec<u8>,
    pub(crate) thread: Option<u64>,
    pub(crate) left: Outcome,
}
