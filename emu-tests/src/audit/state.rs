//! The states that a function of unknown prototype is entered in: registers, memory, results of what it calls.
//!
//! All of it follows from the number of the run, so that a claim comes again with its number.

use codegen::words::abi::Reg;

use link::PAGE;

use crate::engine::cpu::{STACK_SIZE, STACK_TOP};
use crate::engine::rng::Rng;

/// Bytes of memory that a function is given at once: the engine takes its time for each.
pub(super) const CHUNK: u64 = 4 * PAGE;
/// The first pointer, and from one to the next. Below it is nothing that a function is given.
const FIRST: u64 = 0x51_0000_8000;
const STEP: u64 = 0x10_0000;
/// How many pointers there are: those of registers come first.
const POINTERS: u64 = 1024;
const OF_REGISTERS: u64 = 64;
/// Below this address there is no memory: a small number that is used as a pointer ends the run.
pub(super) const LOWEST: u64 = 0x1_0000;

/// Lengths and counts, around the sizes of blocks and vectors.
const NUMBERS: [u64; 22] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 15, 16, 17, 24, 32, 48, 63, 64, 65, 96, 128, 255, 256];
/// What is no length.
const ODD: [u64; 3] = [u64::MAX, -16_i64 as u64, 4096];
/// Words of the stack above the return address that hold arguments.
const STACK_ARGS: u64 = 8;

/// What words of memory hold that nobody has written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Words {
    Zero,
    Small,
    SmallHalves,
    Pointers,
    Random,
    Mixed,
}

/// The state of one run.
#[derive(Clone, Debug)]
pub(super) struct State {
    number: u64,
    words: Words,
}

/// Spread the bits of two numbers.
fn spread(a: u64, b: u64) -> u64 {
    Rng::new(a, b).next()
}

impl State {
    pub fn new(number: u64) -> State {
        let kinds = [Words::Mixed, Words::Zero, Words::Pointers, Words::Small, Words::SmallHalves, Words::Random];
        State { number, words: kinds[(number % 6) as usize] }
    }

    /// An argument: by chance, or, in later runs, systematically a pointer or a number.
    pub fn argument(&self, n: u64) -> u64 {
        let mut rng = Rng::new(self.number, 0x100 + n);
        let number = |rng: &mut Rng| NUMBERS[(rng.next() % NUMBERS.len() as u64) as usize];
        if self.number >= SYSTEMATIC {
            let mask = (self.number - SYSTEMATIC) / 2;
            let count = if self.number.is_multiple_of(2) { 16 } else { 1 };
            return if mask >> n & 1 == 1 { count } else { pointer(n) };
        }
        match rng.next() % 100 {
            0..55 => pointer(n),
            55..90 => number(&mut rng),
            _ => ODD[(rng.next() % 3) as usize],
        }
    }

    /// A register that is no argument: a value of its own, which is an address too.
    pub fn register(&self, reg: Reg) -> u64 {
        pointer(16 + u64::from(reg.0))
    }

    /// A word of the stack, so many bytes above SP at the entry; below it too.
    pub fn stack(&self, above: i64) -> u64 {
        let n = above.div_euclid(8);
        match u64::try_from(n) {
            Ok(n) if n < STACK_ARGS => self.argument(8 + n),
            _ => pointer(OF_REGISTERS + n.rem_euclid(64) as u64),
        }
    }

    /// The word at an address outside of the stack.
    pub fn word(&self, at: u64) -> u64 {
        let random = spread(self.number, at);
        match self.words {
            Words::Zero => 0,
            Words::Small => random % 17,
            Words::SmallHalves => (random % 17) | (((random >> 32) % 17) << 32),
            Words::Pointers => some_pointer(random),
            Words::Random => random,
            Words::Mixed => match random >> 60 {
                0..6 => some_pointer(random),
                6..12 => (random >> 8) % 17,
                12..14 => 0,
                _ => random,
            },
        }
    }

    /// What a called function returns in its first register of results.
    pub fn result(&self, call: u64) -> u64 {
        match spread(self.number, 0x1_0000 + call) % 4 {
            0 => 0,
            1 => 1,
            2 => u64::MAX,
            _ => pointer(OF_REGISTERS + 128 + call % 64),
        }
    }

    /// Another result, far from that.
    pub fn other_result(&self, call: u64) -> u64 {
        self.result(call).wrapping_add(0x240)
    }

    /// What the kernel returns: nothing, an error, or an address.
    pub fn of_kernel(&self, call: u64) -> u64 {
        match spread(self.number, 0x2_0000 + call) % 3 {
            0 => 0,
            1 => INVALID.wrapping_neg(),
            _ => pointer(OF_REGISTERS + 192 + call % 64),
        }
    }

    /// What it leaves in a register that it may change.
    pub fn left(&self, call: u64, n: u64) -> u64 {
        pointer(512 + (call * 40 + n) % 500) + 8
    }
}

/// An error of the kernel: EINVAL.
const INVALID: u64 = 22;

/// Runs from this number on go through masks of which arguments are numbers.
pub(super) const SYSTEMATIC: u64 = 1 << 20;
/// How many of them there are.
pub(super) const MASKS: u64 = 128;

/// A pointer to memory of its own.
fn pointer(n: u64) -> u64 {
    FIRST + n * STEP
}

fn some_pointer(random: u64) -> u64 {
    pointer(OF_REGISTERS + (random >> 16) % (POINTERS - OF_REGISTERS))
}

/// Is it an address that pointers are for?
pub(super) fn is_given(at: u64) -> bool {
    at.wrapping_sub(FIRST - 0x8000) < POINTERS * STEP
}

/// Is it in the stack?
pub(super) fn is_stack(at: u64) -> bool {
    at.wrapping_sub(STACK_TOP - STACK_SIZE) < STACK_SIZE
}
