//! Values that are live when a function is entered: the words of its arguments, and the registers that carry them.

use crate::words::abi::{Abi, Reg, RegSet};

/// The registers and stack words that a call of a function passes in, by its prototype.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Live {
    /// General registers.
    pub regs: RegSet,
    /// The number of vector registers: that many of the first ones that carry arguments.
    pub vectors: u8,
    /// The callee was proven to leave vector registers alone.
    pub general_callee: bool,
    /// The number of words on the stack.
    pub stack: u8,
}

impl Live {
    /// The empty set.
    pub const NOTHING: Live = Live { regs: RegSet::EMPTY, vectors: 0, general_callee: false, stack: 0 };

    /// The first `count` argument registers, and the registers that every function may get besides: `others`, and those that
    /// direct-call trampolines preserve for all functions.
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

/// The vector registers that a trampoline saves around its handlers if the function's prototype is unknown, as they may carry
/// arguments or results.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Carriers {
    /// The vector registers to save when the trampoline is entered, by number.
    pub entered: &'static [u8],
    /// The vector registers to save when the function called by the trampoline has returned, by number.
    pub returned: &'static [u8],
}

impl Carriers {
    /// A bit mask of the numbers of all these registers.
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

/// The most words that a list of arguments can have: 12 arguments of 16 bytes.
pub const MOST_WORDS: usize = 24;
