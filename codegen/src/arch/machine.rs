//! What an emulator must know of an architecture, as data. The numbers are Unicorn's (unicorn.h, x86.h, arm64.h,
//! riscv.h); a test of `emu-tests` compares each with the engine's own name for it.

use crate::words::abi::{Abi, Reg, RegSet};

/// A register by name and by the emulator's number.
#[derive(Clone, Copy, Debug)]
pub struct EmuReg {
    /// The manual's name.
    pub name: &'static str,
    /// The emulator's number.
    pub id: i32,
}

/// A control or status word, and a value for runs: one that the manual allows, and that neither the engine nor another word
/// begins with. What is exchanged, cleared or set to its default shows then.
#[derive(Clone, Copy, Debug)]
pub struct ControlWord {
    /// The register.
    pub reg: EmuReg,
    /// The value.
    pub value: u64,
}

/// What an indirect branch is, to the landing pad that it reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IndirectBranch {
    /// A call.
    Call,
    /// A jump.
    Jump,
    /// A jump through a register that linkers use for long calls (arm64: x16, x17).
    Veneer,
}

/// What a branch does besides going elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Branch {
    /// The return-address stack gets the address behind it.
    pub pushes: bool,
    /// The return-address stack gives up its top, as a prediction of where this goes.
    pub pops: bool,
    /// It is indirect: where such branches are restricted, it must reach a landing pad.
    pub indirect: Option<IndirectBranch>,
}

/// A landing pad.
#[derive(Debug)]
pub struct Pad {
    /// The instruction.
    pub bytes: &'static [u8],
    /// What may reach it.
    pub lets: &'static [IndirectBranch],
}

/// Where an instruction goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Goes {
    /// To the next one, or into the system.
    On,
    /// Where it says itself, or its relocation: a jump, a branch or a call.
    To,
    /// Where a register or memory says.
    Anywhere,
    /// Back to the caller.
    Back,
}

/// One of the forms in which kernels for this architecture have written the unwind table that objtool makes,
/// `.orc_unwind`.
#[derive(Debug)]
pub struct Orc {
    /// The kernel that wrote it so first: profiles name it by that.
    pub name: &'static str,
    /// What the section `.orc_header` holds then: a hash of the definitions, by scripts/orc_hash.sh of the kernel. `None` of
    /// kernels that wrote no such section.
    pub header: Option<[u8; 20]>,
    /// Bytes of an entry.
    pub bytes: usize,
    /// What an entry says; `None` if it says nothing of a call.
    pub read: fn(&[u8]) -> Option<OrcEntry>,
}

/// What an entry of that table says. Bytes are relative to CFA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OrcEntry {
    /// CFA is this register plus so many bytes.
    pub cfa: (Reg, i64),
    /// Where the return address is.
    pub returns: i64,
    /// Where the frame pointer of the caller is.
    pub fp: OrcFp,
}

/// Where the table says that the caller's frame pointer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrcFp {
    /// In the frame pointer still.
    Kept,
    /// In memory.
    At(i64),
    /// In a way that is not followed here.
    Elsewhere,
}

/// Instructions that an engine lacks, or whose results it has from outside, and how they are done in its place.
#[derive(Clone, Copy, Debug)]
pub struct Lent {
    /// How many bytes such an instruction has; `None` if the code begins with none.
    pub size: fn(&[u8]) -> Option<usize>,
    /// Run one: its bytes, the address behind it. An error is the fault that a CPU would raise.
    pub run: fn(&[u8], u64, &mut dyn LentCpu) -> Result<LentTo, &'static str>,
}

impl Lent {
    /// The engine has all.
    pub const NONE: Lent = Lent { size: |_| None, run: |_, _, _| Ok(LentTo::Engine) };
}

/// Who does what such an instruction is there for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LentTo {
    /// It is done, and the next instruction follows.
    Us,
    /// The engine has this case of it.
    Engine,
}

/// The CPU, as such an instruction sees it.
pub trait LentCpu {
    /// A general register.
    fn general(&self, reg: Reg) -> u64;
    /// Another register by the emulator's number, in so many bytes.
    fn get(&self, id: i32, value: &mut [u8]);
    /// Set it.
    fn set(&mut self, id: i32, value: &[u8]);
    /// Set a general register.
    fn set_general(&mut self, reg: Reg, value: u64);
    /// The CPU's clock.
    fn clock(&self) -> u64;
    /// Load from memory. Is there any?
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> bool;
    /// Store to memory. Is there any?
    fn write(&mut self, at: u64, bytes: &[u8]) -> bool;
}

/// An architecture as an emulator sees it.
#[derive(Debug)]
pub struct Machine {
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
    /// The registers by which a thread may find its memory, where those are none of the general ones: as the facts name them.
    pub threads: &'static [EmuReg],
    /// Control and status words that code must leave alone.
    pub control: &'static [ControlWord],
    /// Vector or floating-point registers.
    pub vectors: &'static [EmuReg],
    /// The name of the vector state that Unicorn lacks, and a predicate over Capstone's mnemonic and operands: may this
    /// instruction change it?
    pub wide: (&'static str, fn(&str, &str) -> bool),
    /// Whether an instruction may read or change vector or floating-point registers, by its mnemonic and operands.
    pub is_vector: fn(&str, &str) -> bool,
    /// Instructions that the engine lacks, or lacks in part.
    pub lent: Lent,
    /// General registers that a test may not fill with random values, besides SP.
    pub reserved: RegSet,
    /// How the mnemonics begin that take a reservation on memory, and those that use it up or give it back.
    pub exclusive: (&'static [&'static str], &'static [&'static str]),
    /// A breakpoint. Behind a jump it stops speculation, and is never executed.
    pub trap: &'static [u8],
    /// The same in fewer bytes; empty if there is none.
    pub short_trap: &'static [u8],
    /// A function that returns at once.
    pub ret: &'static [u8],
    /// The function that some kernels want jumped to in place of a return; empty if there is none.
    pub return_thunk: &'static str,
    /// Capstone's names for architecture, mode and extra modes.
    pub disassembler: (&'static str, &'static str, &'static [&'static str]),
    /// What SP must be a multiple of where an instruction accesses memory by it; 1 if the hardware does not ask.
    pub sp_access_align: u64,
    /// Whether an instruction accesses memory by SP, by its operands as Capstone has them.
    pub accesses_by_sp: fn(&str) -> bool,
    /// A branch that has to do with return addresses or landing pads, by its mnemonic and operands as Capstone has them.
    pub branch: fn(&str, &str) -> Option<Branch>,
    /// Where an instruction goes, by the same.
    pub goes: fn(&str, &str) -> Goes,
    /// The mnemonics of those that go where they say, and never to the next one nor back.
    pub jumps: &'static [&'static str],
    /// The disassembler writes where they go as a distance from themselves.
    pub relative: bool,
    /// Landing pads.
    pub pads: &'static [Pad],
    /// The unwind table that objtool makes, where there is an objtool that makes one.
    pub orc: &'static [Orc],
    /// Where a frame record {frame pointer, return address} is, in bytes above the frame pointer.
    pub record: i64,
    /// Bits of `e_flags` in which two objects must agree to run together.
    pub e_flags_abi: u32,
    /// Relocations of calls and jumps: type, where in the instruction the field is, and what it adds to the target.
    pub calls: &'static [(u32, usize, i64)],
    /// What SP may be modulo 16 at a function's entry.
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
