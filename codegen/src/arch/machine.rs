//! An architecture's data for emulators. The numbers are Unicorn's (unicorn.h, x86.h, arm64.h, riscv.h); a test of
//! `emu-tests` compares each with the engine's own name for it.

use super::bare::Bare;
use super::moves::Move;
use super::pads::{IndirectBranch, Pad};
use crate::words::abi::{Abi, Reg, RegSet};

/// A register by name and by the emulator's number.
#[derive(Clone, Copy, Debug)]
pub struct EmuReg {
    /// The manual's name.
    pub name: &'static str,
    /// The emulator's number.
    pub id: i32,
}

/// A control or status word, and its value in runs: one that the manual allows, and that is no initial value of the engine and
/// no value of another word. So a run detects words that are exchanged, cleared or reset.
#[derive(Clone, Copy, Debug)]
pub struct ControlWord {
    /// The register.
    pub reg: EmuReg,
    /// The value.
    pub value: u64,
    /// Another value, of another thread or context; the same for a status word.
    pub other: u64,
    /// The bits that arithmetic sets.
    pub status: u64,
}

/// A system call of Linux. The kernel keeps all registers but that of the result, which is the first register of results.
#[derive(Debug)]
pub struct SystemCall {
    /// The instruction.
    pub bytes: &'static [u8],
    /// The registers that the instruction changes.
    pub lost: RegSet,
}

/// Vector state beyond the registers of a table, which is judged by reading where an engine lacks it: predicates over Capstone's
/// mnemonic and operands.
#[derive(Debug)]
pub struct WideVectors {
    /// Its name.
    pub name: &'static str,
    /// May this instruction change it?
    pub changes: fn(&str, &str) -> bool,
    /// May this instruction store it, or a part of it?
    pub stores: fn(&str, &str) -> bool,
}

/// The effects of a branch on return-address stack and landing-pad checks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Branch {
    /// The branch pushes the address behind it onto the return-address stack.
    pub pushes: bool,
    /// The branch pops the return-address stack, as a prediction of its target.
    pub pops: bool,
    /// The type of an indirect branch: with landing-pad checks, it must reach a landing pad.
    pub indirect: Option<IndirectBranch>,
}

/// The successor of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Goes {
    /// The next instruction, or the system.
    On,
    /// The target that the instruction or its relocation encodes: a jump, a branch or a call.
    To,
    /// The address in a register or in memory.
    Anywhere,
    /// The caller.
    Back,
}

/// A format of the unwind table that objtool makes, `.orc_unwind`, in some versions of the kernel.
#[derive(Debug)]
pub struct Orc {
    /// The first kernel with this format, by which profiles name it.
    pub name: &'static str,
    /// The contents of the section `.orc_header`: a hash of the definitions, by scripts/orc_hash.sh of the kernel. `None` for
    /// kernels without the section.
    pub header: Option<[u8; 20]>,
    /// Bytes of an entry.
    pub bytes: usize,
    /// Decodes an entry; `None` if it describes no call.
    pub read: fn(&[u8]) -> Option<OrcEntry>,
}

/// The contents of an entry of `.orc_unwind`. Offsets are relative to CFA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OrcEntry {
    /// CFA, as a register plus an offset in bytes.
    pub cfa: (Reg, i64),
    /// The offset of the return address.
    pub returns: i64,
    /// The location of the caller's frame pointer.
    pub fp: OrcFp,
}

/// The location of the caller's frame pointer in an entry of `.orc_unwind`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrcFp {
    /// Still in the frame pointer.
    Kept,
    /// In memory, at this offset.
    At(i64),
    /// In a location that is not supported here.
    Elsewhere,
}

/// Emulation of instructions that an engine lacks, or whose results come from outside.
#[derive(Clone, Copy, Debug)]
pub struct Lent {
    /// The size in bytes of such an instruction at the start of code; `None` if there is none. Those that [`Lent::told`] does not
    /// name are left to an engine that has all.
    pub size: fn(&[u8]) -> Option<usize>,
    /// Executes an instruction, from its bytes and the address behind it. An error is the fault that a CPU would raise.
    pub run: fn(&[u8], u64, &mut dyn LentCpu) -> Result<LentTo, &'static str>,
    /// Does an instruction of [`Lent::size`] have its result from outside of the CPU, whatever the engine has?
    pub told: fn(&[u8]) -> bool,
    /// The size in bytes of an instruction of the CPU's shadow stack at the start of code; `None` if there is none. Where an engine
    /// does not have it, nothing is done in its place, as by a CPU whose shadow stack is off.
    pub of_shadow_stack: fn(&[u8]) -> Option<usize>,
}

impl Lent {
    /// The value for engines that support all instructions.
    pub const NONE: Lent =
        Lent { size: |_| None, run: |_, _, _| Ok(LentTo::Engine), told: |_| true, of_shadow_stack: |_| None };
}

/// The component that executes such an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LentTo {
    /// The emulation has executed it, and the next instruction follows.
    Us,
    /// The engine must execute it, as it supports this case.
    Engine,
}

/// The CPU state that emulated instructions access.
pub trait LentCpu {
    /// A general register.
    fn general(&self, reg: Reg) -> u64;
    /// Reads another register by the emulator's number, into `value`.
    fn get(&self, id: i32, value: &mut [u8]);
    /// Sets another register by the emulator's number.
    fn set(&mut self, id: i32, value: &[u8]);
    /// Set a general register.
    fn set_general(&mut self, reg: Reg, value: u64);
    /// The CPU's clock.
    fn clock(&self) -> u64;
    /// Loads from memory. Returns whether the address is mapped.
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> bool;
    /// Stores to memory. Returns whether the address is mapped.
    fn write(&mut self, at: u64, bytes: &[u8]) -> bool;
}

/// An architecture's data for emulators.
#[derive(Debug)]
pub struct Machine {
    /// How QEMU runs it without a system, if it does.
    pub bare: Option<&'static Bare>,
    /// `uc_arch`.
    pub arch: i32,
    /// `uc_mode`.
    pub mode: i32,
    /// CPU model number.
    pub cpu_model: i32,
    /// Registers to write before anything runs, in this order.
    pub init: &'static [(i32, u64)],
    /// The program counter.
    pub pc: i32,
    /// The flags register, if there is one, and the bits of it that arithmetic sets.
    pub flags: Option<(EmuReg, u64)>,
    /// The flags that are clear wherever C code begins: their names, and their bits of the flags register.
    pub clear_flags: &'static [(&'static str, u64)],
    /// General registers that the kernel's `struct pt_regs` has under other names than the manual, all names of each.
    pub pt_regs: &'static [(&'static str, Reg)],
    /// The thread pointers that are no general registers, with the names in [`Facts::threads`](crate::arch::facts::Facts::threads).
    pub threads: &'static [EmuReg],
    /// Control and status words that code must leave alone.
    pub control: &'static [ControlWord],
    /// Vector or floating-point registers.
    pub vectors: &'static [EmuReg],
    /// The vector state that Unicorn lacks.
    pub wide: WideVectors,
    /// A predicate over mnemonic and operands: may the instruction read or change vector or floating-point registers?
    pub is_vector: fn(&str, &str) -> bool,
    /// Instructions that the engine lacks, or lacks in part.
    pub lent: Lent,
    /// General registers that a test may not fill with random values, besides SP.
    pub reserved: RegSet,
    /// Prefixes of mnemonics that take a reservation on memory, and of mnemonics that use or release it.
    pub exclusive: (&'static [&'static str], &'static [&'static str]),
    /// A breakpoint. Behind a jump it stops speculation, and is never executed.
    pub trap: &'static [u8],
    /// A breakpoint in fewer bytes; empty if there is none.
    pub short_trap: &'static [u8],
    /// The breakpoint that Linux puts behind an instruction that it has copied for a kprobe (kernel arch/*/kernel/kprobes).
    pub step_trap: &'static [u8],
    /// A function that returns at once.
    pub ret: &'static [u8],
    /// How programs call the kernel.
    pub system_call: SystemCall,
    /// The function to which some kernels jump instead of a return; empty if there is none.
    pub return_thunk: &'static str,
    /// Capstone's names for architecture, mode and extra modes.
    pub disassembler: (&'static str, &'static str, &'static [&'static str]),
    /// The alignment of SP that the hardware requires of instructions that access memory by SP; 1 if none.
    pub sp_access_align: u64,
    /// A predicate over Capstone's operands: does the instruction access memory by SP?
    pub accesses_by_sp: fn(&str) -> bool,
    /// The effects of a branch on return addresses or landing pads, from Capstone's mnemonic and operands.
    pub branch: fn(&str, &str) -> Option<Branch>,
    /// The successor of an instruction, from Capstone's mnemonic and operands.
    pub goes: fn(&str, &str) -> Goes,
    /// What an instruction does to SP and to return addresses, from Capstone's mnemonic and operands.
    pub moves: fn(&str, &str) -> Vec<Move>,
    /// Instructions that Capstone does not know: their bytes, with mnemonic and operands.
    pub unnamed: &'static [(&'static [u8], (&'static str, &'static str))],
    /// The address in a return address that may be signed.
    pub stripped: fn(u64) -> u64,
    /// The mnemonics of direct jumps, which never continue at the next instruction and never return.
    pub jumps: &'static [&'static str],
    /// The disassembler prints the targets of direct jumps as distances from the instruction.
    pub relative: bool,
    /// Landing pads.
    pub pads: &'static [Pad],
    /// The formats of the unwind table that objtool makes; empty if objtool makes none.
    pub orc: &'static [Orc],
    /// Bytes from the frame pointer up to the frame record {frame pointer, return address}.
    pub record: i64,
    /// Bits of `e_flags` in which two objects must agree to run together.
    pub e_flags_abi: u32,
    /// Relocations of calls and jumps: type, offset of the field in the instruction, and addend beyond the target.
    pub calls: &'static [(u32, usize, i64)],
    /// Bytes below SP that stay as they are in user space, whatever signal comes.
    pub red_zone: u64,
    /// Beginnings of the names of functions that compilers call in a way of their own.
    pub millicode: &'static [&'static str],
    /// The platform's registers that a C function keeps in user space.
    pub kept_by_platform: RegSet,
    /// The possible values of SP modulo 16 at a function's entry.
    pub entry_sp: &'static [u64],
}

impl Machine {
    /// The bits of all flags that are clear wherever C code begins.
    pub fn clear_flags(&self) -> u64 {
        self.clear_flags.iter().fold(0, |bits, (_, bit)| bits | bit)
    }

    /// The general register that the kernel's `struct pt_regs` has under this name, which events of kprobes write.
    pub fn pt_reg(&self, abi: &Abi, name: &str) -> Option<Reg> {
        let zero = abi.zero.filter(|zero| *zero != abi.sp);
        let renamed = |reg: Reg| self.pt_regs.iter().any(|(_, other)| *other == reg);
        let own = || abi.find(name).filter(|reg| !renamed(*reg) && Some(*reg) != zero);
        self.pt_regs.iter().find(|(other, _)| *other == name).map(|(_, reg)| *reg).or_else(own)
    }
}
