//! An architecture's data for a bare machine of another emulator, `qemu-system-*` or Bochs: a machine without firmware and system,
//! on which a few instructions of ours turn on translation of addresses, and what protects branches and returns.

use std::ops::Range;

use crate::arch::pads::IndirectBranch;
use crate::words::abi::Reg;
use crate::words::error::Result;

/// Code of ours, with its text as GNU as takes it.
#[derive(Clone, Copy, Debug)]
pub enum Code {
    /// Instructions of four bytes.
    Words(&'static [(u32, &'static str)]),
    /// Instructions of any length.
    Bytes(&'static [(&'static [u8], &'static str)]),
}

impl Code {
    /// Its bytes.
    pub fn bytes(self) -> Vec<u8> {
        match self {
            Code::Words(code) => code.iter().flat_map(|(word, _)| word.to_le_bytes()).collect(),
            Code::Bytes(code) => code.iter().flat_map(|(bytes, _)| bytes.iter().copied()).collect(),
        }
    }

    /// Its text, line by line.
    pub fn text(self) -> Vec<&'static str> {
        match self {
            Code::Words(code) => code.iter().map(|(_, text)| *text).collect(),
            Code::Bytes(code) => code.iter().map(|(_, text)| *text).collect(),
        }
    }
}

/// The emulator that has the machine.
#[derive(Debug)]
pub enum Program {
    /// `qemu-system-*`, which tells a plugin what its CPU does.
    Qemu(Qemu),
    /// Bochs, where code of ours in the guest asks at each instruction and exception.
    Bochs(Bochs),
}

impl Program {
    /// What people call it.
    pub fn name(&self) -> &'static str {
        match self {
            Program::Qemu(_) => "QEMU",
            Program::Bochs(_) => "Bochs",
        }
    }
}

/// What QEMU is told.
#[derive(Debug)]
pub struct Qemu {
    /// The program.
    pub program: &'static str,
    /// Its arguments for the machine and the CPU.
    pub arguments: &'static [&'static str],
    /// The CPU begins at [`Bare::start`] by itself; otherwise QEMU has to be told.
    pub starts_there: bool,
}

/// What Bochs is told, and what the guest's code does for it.
#[derive(Debug)]
pub struct Bochs {
    /// The CPU, by Bochs's name.
    pub model: &'static str,
    /// What is in place of the firmware, the last 64 KiB below 4 GiB: code or data, each with its offset there.
    pub rom: &'static [(u64, Code)],
    /// Where the code of the first page leaves registers in the third one, and takes them from: names, offsets, bytes.
    pub registers: &'static [(&'static str, u64, usize)],
    /// The offsets of those that it always leaves there: others are to be asked for.
    pub general: Range<u64>,
    /// The offsets of vector state that it leaves there only if it is told to.
    pub wide: Range<u64>,
    /// Where that is told: the offset of a word, what it is usually, and where all is wanted.
    pub components: (u64, u32, u32),
}

/// Says what an instruction does, of which these are the first bytes, at this address, where registers by the program's names are so.
///
/// # Errors
/// It loads or stores, and what is not known.
pub type Decode = fn(&[u8], u64, &dyn Fn(&str) -> u64) -> Result<Decoded>;

/// What is known of an instruction before it runs.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Decoded {
    /// Its length, in bytes.
    pub bytes: usize,
    /// Its loads and stores: address, bytes, whether it is a store.
    pub accesses: Vec<(u64, usize, bool)>,
}

/// What runs on the machine before anything else, and around it.
#[derive(Debug)]
pub struct Bare {
    /// The program.
    pub program: Program,
    /// The physical address of the first byte of memory.
    pub ram: u64,
    /// Bytes of memory, of which the system gives what is touched.
    pub memory: u64,
    /// The physical address where the CPU begins. The page there, and the three behind it, have the same virtual address.
    pub start: u64,
    /// The code of the first page, each with its offset there. The first reads [`Bare::parameters`], sets the CPU up, and goes where
    /// it waits.
    pub boot: &'static [(u64, Code)],
    /// What `boot` reads: where it is from `start` on, and its words.
    pub parameters: (u64, fn(&Boot) -> Vec<u64>),
    /// The code of the second page, each with its offset there.
    pub around: &'static [(u64, Code)],
    /// Of QEMU, the offset in the second page of an instruction where a CPU waits, behind a landing pad for any branch at 0.
    pub park: u64,
    /// Of QEMU, the offset in the second page of the instruction that each exception comes to. Behind it is the return.
    pub trap: u64,
    /// The indirect branches by which code may be entered.
    pub entered: &'static [Entered],
    /// Registers that the guest's own code has to set: each with the offset in the second page of code that sets it from the first
    /// general register of results, and goes to wait.
    pub setters: &'static [(&'static str, u64)],
    /// The program's names of registers that have another one here, ours first.
    pub names: &'static [(&'static str, &'static str)],
    /// Registers of ours that are a part of one of the program's: ours, that one, and the bits of it.
    pub parts: &'static [(&'static str, &'static str, u64)],
    /// The register with the CPU's state, the one that keeps it in an exception, and the bits of that which count afterwards.
    pub resumes: Option<(&'static str, &'static str, u64)>,
    /// The upper half of addresses has tables of its own.
    pub split: bool,
    /// An entry of a page table that leads to another table.
    pub table: fn(u64) -> u64,
    /// An entry of a page table for a page.
    pub page: fn(u64, Page) -> u64,
    /// Registers that say why an exception came.
    pub syndrome: &'static [&'static str],
    /// What they say.
    pub cause: fn(&[u64]) -> Exception,
    /// What the CPU can enforce.
    pub enforces: &'static [Guard],
    /// The register with the address of the topmost entry of the shadow stack, which grows down.
    pub shadow_stack: &'static str,
    /// Vector state that the tables of registers do not have.
    pub wide: &'static [Wide],
    /// The register that says how long vectors are, and the longest: it has one less than the number of parts of 16 bytes.
    pub lengths: Option<(&'static str, usize)>,
    /// What an instruction does, for engines that tell of accesses by nothing else.
    pub decode: Decode,
}

/// A register with vector state that the tables of registers do not have.
#[derive(Clone, Copy, Debug)]
pub struct Wide {
    /// Its name here.
    pub name: &'static str,
    /// Its bytes, where vectors are longest.
    pub bytes: usize,
    /// How many of them, from the first on, a register of the tables is.
    pub known: usize,
    /// The bits that can be set, of each of its words.
    pub set: u64,
}

/// How the machine is set up.
#[derive(Clone, Copy, Debug)]
pub struct Boot {
    /// The physical addresses of the page tables, for the lower and the upper half of addresses.
    pub tables: [u64; 2],
    /// The address of the second page.
    pub around: u64,
    /// What is enforced.
    pub enforced: bool,
}

/// An indirect branch in the second page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entered {
    /// Its type.
    pub by: IndirectBranch,
    /// Its offset there.
    pub at: u64,
    /// The register with its target.
    pub reg: Reg,
}

/// What a page is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Page {
    /// What sets the machine up: its own code and data.
    Machine,
    /// Loads, stores and instructions.
    Code,
    /// The same, and indirect branches come to landing pads only.
    Guarded,
    /// Loads and stores.
    Data,
    /// Return addresses that calls and returns alone change.
    ShadowStack,
}

/// A protection of branches or returns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Guard {
    /// Indirect branches come to landing pads only.
    LandingPad,
    /// A return goes behind its call: calls and returns keep a stack of their own.
    ShadowStack,
    /// The same, where instructions ask for it.
    Checked,
    /// A signed return address is as it was signed.
    Signed,
}

/// Why an exception came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exception {
    /// The reason.
    pub why: Cause,
    /// The instruction.
    pub pc: u64,
    /// The address that it was about; 0 if there is none.
    pub at: u64,
    /// Where the return address is, of which a shadow stack has another one.
    pub returns_to: Option<Returns>,
}

/// Where a return takes its address from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Returns {
    /// A register.
    Register(Reg),
    /// The stack's last word.
    Stack,
}

/// The reason of an exception.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// An instruction is nowhere, or where none may be.
    Fetch,
    /// A load or store is where there is no memory for it.
    Access,
    /// A breakpoint, a system call, or an instruction that does not exist.
    Breakpoint,
    /// A protection.
    Guard(Guard),
    /// Another one, by the manual's number.
    Other(u64),
}
