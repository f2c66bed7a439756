//! What an emulated machine does for those who run code on it: the judge, the observer, probes and compositions.
//!
//! Unicorn's is in [`super::unicorn`], the only file that names it. Registers are numbered as the tables of
//! [`codegen::arch::machine::Machine`] and of the psABI have them.

use std::any::Any;
use std::fmt;
use std::ops::{Range, RangeInclusive};

use codegen::arch::bare::{Entered, Guard};
use codegen::arch::patch::Write;
use codegen::words::error::Result;

use super::registers::{Besides, Registers, Snapshot};

/// An engine whose hooks work on `D`.
pub type Cpu<'a, D> = dyn Engine<D> + 'a;

/// A hook on instructions: their addresses and bytes.
pub type OnInstruction<D> = Box<dyn FnMut(&mut Cpu<'_, D>, u64, usize)>;
/// A hook on accesses to memory.
pub type OnAccess<D> = Box<dyn FnMut(&mut Cpu<'_, D>, Access)>;
/// A hook on accesses to an address without memory: is there some now?
pub type OnMissing<D> = Box<dyn FnMut(&mut Cpu<'_, D>, u64) -> bool>;

/// A hook on what protects branches and returns: which, and the instruction. Does the run go on as without?
pub type OnGuard<D> = Box<dyn FnMut(&mut Cpu<'_, D>, Guard, u64) -> bool>;

/// Every address, for hooks.
pub const EVERYWHERE: RangeInclusive<u64> = 0..=u64::MAX;

/// One load or store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Its first byte.
    pub at: u64,
    /// How many bytes.
    pub bytes: usize,
    /// A store.
    pub is_write: bool,
}

/// Which accesses a hook is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accesses {
    /// Loads.
    Reads,
    /// Stores.
    Writes,
    /// Both.
    All,
}

/// What memory is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holds {
    /// Loads and stores.
    Data,
    /// Those, and instructions.
    Code,
}

/// Why the CPU went no further.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// A breakpoint, or an instruction that does not exist: of RISC-V's breakpoints, Unicorn says that.
    Breakpoint,
    /// A load or store where there is no memory.
    NoMemory,
    /// An instruction is where there is no memory.
    NoCode,
    /// An instruction is in memory that is for data.
    NotCode,
    /// A protection of branches or returns.
    Guard(Guard),
    /// Anything else.
    Other,
}

/// The end of a run that did not come to where it was to end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trap {
    /// The reason.
    pub why: Why,
    /// The engine's word for it.
    pub said: String,
}

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.said)
    }
}

/// How a run ends.
pub type Ended = std::result::Result<(), Trap>;

/// Instructions of which a hook may be told late, since nothing is asked of them.
pub struct Late {
    /// Their addresses.
    pub at: Range<u64>,
    /// One of them that ends it: of what follows that, the hook is told in time.
    pub last: Option<u64>,
    /// How many at most.
    pub most: u64,
}

/// A hook, in the engine's own form: [`Engine::unhook`] takes it away.
pub struct Hook(pub(super) Box<dyn Any>);

/// All registers of a CPU, in the engine's own form.
pub struct Saved(pub(super) Box<dyn Any>);

/// An emulated machine.
pub trait Engine<D> {
    /// What hooks work on.
    fn data(&self) -> &D;
    /// The same, to change it.
    fn data_mut(&mut self) -> &mut D;

    /// A register of up to 64 bits.
    ///
    /// # Errors
    /// The engine does not have it.
    fn read(&self, register: i32) -> Result<u64>;
    /// Set a register of up to 64 bits.
    ///
    /// # Errors
    /// The engine does not have it.
    fn write(&mut self, register: i32, value: u64) -> Result<()>;
    /// A register of any size: its first bytes.
    ///
    /// # Errors
    /// The engine does not have it.
    fn read_bytes(&self, register: i32, to: &mut [u8]) -> Result<()>;
    /// Set a register of any size.
    ///
    /// # Errors
    /// The engine does not have it.
    fn write_bytes(&mut self, register: i32, value: &[u8]) -> Result<()>;
    /// Read general registers, and some besides, in one call.
    fn snapshot(&self, registers: Registers, besides: Besides, to: &mut Snapshot);
    /// Vector state that [`Machine::vectors`](codegen::arch::machine::Machine::vectors) does not have: registers and their bytes. None
    /// where the engine has none.
    ///
    /// # Errors
    /// The engine is gone.
    fn wide(&self) -> Result<Vec<(&'static str, Vec<u8>)>>;
    /// Give all of that a length and values, which follow from a seed; without one, it is not wanted until it has one again.
    ///
    /// # Errors
    /// The engine does not take them.
    fn set_wide(&mut self, seed: Option<u64>) -> Result<()>;
    /// Set registers of 64 bits, in one call.
    fn write_all(&mut self, registers: &[i32], values: &[u64]);
    /// The program counter; 0 if the engine does not say.
    fn pc(&self) -> u64;
    /// From a hook: go on there.
    fn go(&mut self, pc: u64);
    /// All registers.
    ///
    /// # Errors
    /// The engine has no room for them.
    fn save(&self) -> Result<Saved>;
    /// Set all registers to what [`Engine::save`] found.
    fn restore(&mut self, saved: &Saved);

    /// Have zeros in whole pages of memory.
    ///
    /// # Errors
    /// There is memory already, or these are no pages.
    fn map(&mut self, at: u64, bytes: u64, holds: Holds) -> Result<()>;
    /// Read memory. Is there any?
    fn load(&self, at: u64, to: &mut [u8]) -> bool;
    /// Write data. Is there memory?
    fn store(&mut self, at: u64, bytes: &[u8]) -> bool;
    /// Write code, which runs as it is then.
    ///
    /// # Errors
    /// There is no memory.
    fn write_code(&mut self, writes: &[Write]) -> Result<()>;

    /// Run from one address to another, at most so many instructions; 0 for any number.
    ///
    /// # Errors
    /// What stopped the CPU, if neither its way, a hook nor the number of instructions did.
    fn run_at_most(&mut self, from: u64, until: u64, instructions: usize) -> Ended;
    /// Run from one address to another.
    ///
    /// # Errors
    /// What stopped the CPU, if neither its way nor a hook did.
    fn run(&mut self, from: u64, until: u64) -> Ended {
        self.run_at_most(from, until, 0)
    }
    /// Go on from where a run was stopped: what it has put onto the CPU's shadow stack is still there.
    ///
    /// # Errors
    /// As of [`Engine::run`].
    fn go_on(&mut self, from: u64, until: u64) -> Ended {
        self.run(from, until)
    }
    /// From a hook: go no further.
    fn stop(&mut self);
    /// From a hook on all instructions: of these it may be called late, with nothing but their addresses; but before any other hook.
    fn tell_late(&mut self, late: Late);

    /// Call a hook before each instruction at these addresses.
    ///
    /// # Errors
    /// The engine does not take it.
    fn on_instructions(&mut self, at: RangeInclusive<u64>, hook: OnInstruction<D>) -> Result<()>;
    /// Call a hook before each straight piece of code.
    ///
    /// # Errors
    /// The engine does not take it.
    fn on_blocks(&mut self, hook: OnInstruction<D>) -> Result<()>;
    /// Call a hook before each access to these addresses.
    ///
    /// # Errors
    /// The engine does not take it.
    fn on_accesses(&mut self, which: Accesses, at: RangeInclusive<u64>, hook: OnAccess<D>) -> Result<Hook>;
    /// Call a hook where data is accessed without memory there.
    ///
    /// # Errors
    /// The engine does not take it.
    fn on_missing_data(&mut self, hook: OnMissing<D>) -> Result<()>;
    /// Call a hook where instructions are to run without memory there.
    ///
    /// # Errors
    /// The engine does not take it.
    fn on_missing_code(&mut self, hook: OnMissing<D>) -> Result<()>;
    /// Is it another process, so that hooks cost much, and is its CPU at the instruction for which a hook is called?
    fn can_tell_late(&self) -> bool;
    /// Does it have all instructions, those of the CPU's shadow stack too, whether that is on or not?
    fn has_all_instructions(&self) -> bool;
    /// Bytes that the last run has pushed onto the CPU's shadow stack and not popped; `None` where only what code asks for is pushed
    /// and that stack is off, or where it has all calls.
    fn pushed(&self) -> Option<u64>;
    /// What protects branches and returns here, and stops whoever breaks it.
    fn enforces(&self) -> &'static [Guard];
    /// The indirect branches by which code may be entered; none where no landing pad is enforced.
    fn entered(&self) -> &'static [Entered];
    /// Go to an address by one of them, for one instruction and without hooks: does a landing pad's absence stop it?
    ///
    /// # Errors
    /// The engine enforces none, or is gone.
    fn is_stopped_at(&mut self, entry: u64, way: Entered) -> Result<bool>;
    /// Call a hook where such a protection stops the CPU.
    ///
    /// # Errors
    /// The engine enforces none.
    fn on_guard(&mut self, hook: OnGuard<D>) -> Result<()>;
    /// Take a hook away.
    ///
    /// # Errors
    /// The engine does not give it back.
    fn unhook(&mut self, hook: Hook) -> Result<()>;
    /// Drop what was translated: code that was translated without hooks calls none, and with some looks for them.
    ///
    /// # Errors
    /// The engine keeps it.
    fn translate_anew(&mut self) -> Result<()>;
}
