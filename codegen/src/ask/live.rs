//! What is live when a function is entered: the words of its arguments, and the registers that carry them.

use crate::words::abi::{Abi, Reg, RegSet};

/// What a call of a function passes in, by its prototype.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Live {
    /// General registers.
    pub regs: RegSet,
    /// Vector registers: the first so many of those that carry arguments.
    pub vectors: u8,
    /// The callee was proven to leave vector registers alone.
    pub general_callee: bool,
    /// Words on the stack.
    pub stack: u8,
}

impl Live {
    /// Nothing.
    pub const NOTHING: Live = Live { regs: RegSet::EMPTY, vectors: 0, general_callee: false, stack: 0 };

    /// The first `count` argument registers, and what every function may be passed besides: `others`, and what direct-call
    /// trampolines keep for all.
    pub fn first(count: usize, abi: &Abi, others: RegSet) -> Live {
        let args = RegSet::of(abi.args.get(..count).unwrap_or(abi.args));
        Live { regs: args.union(abi.hidden_for_direct()).union(others), ..Live::default() }
    }

    /// Registers besides those for arguments and for the address of a result.
    pub fn others(self, abi: &Abi) -> impl Iterator<Item = Reg> {
        self.regs.minus(RegSet::of(abi.args)).minus(abi.hidden_for_direct()).iter()
    }

    /// How many vector registers must be saved.
    pub fn saved_vectors(self) -> u8 {
        if self.general_callee { 0 } else { self.vectors }
    }
}

/// The vector registers that may carry something of a function of which nothing is known, and that a trampoline saves around its
/// handlers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Carriers {
    /// When the trampoline is entered.
    pub entered: &'static [u8],
    /// When the function that it calls has returned.
    pub returned: &'static [u8],
}

impl Carriers {
    /// Their numbers as bits.
    pub fn bits(self) -> u32 {
        self.entered.iter().chain(self.returned).fold(0, |bits, vector| bits | 1 << vector)
    }
}

/// A word of a function's arguments: where it is when the function is entered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Word {
    /// In a general register.
    Reg(Reg),
    /// On the stack, so many words above the first one there.
    Stack(u8),
}

/// Words that a list of arguments can have: 12 of 16 bytes.
pub const MOST_WORDS: usize = 24;
