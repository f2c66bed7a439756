//! What is known of an architecture when its code is there as bytes: relocations, patchable entries, call slots. The
//! linker and the list of sites ask [`Patch`], and need no generator.

pub use crate::arch::branch::{Branch, Half};
use crate::arch::entry::{Code, Entry, First, Lead};
use crate::arch::facts::Facts;
use crate::words::error::{Error, Result};

/// A relocation to apply while linking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Relocation {
    /// The ELF relocation type.
    pub r_type: u32,
    /// Address of the field.
    pub place: u64,
    /// Symbol plus addend. For a low part that refers to its high part's instruction, the address computed there.
    pub value: u64,
    /// The address of the instruction with the high part, where there is one.
    pub high: u64,
}

/// What a patched site does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SiteState {
    /// Nothing.
    Disabled,
    /// Goes to a trampoline.
    Enabled {
        /// Address of the trampoline.
        target: u64,
        /// Address of the `ftrace_ops`, for functions with room for it; `None` if nobody names one.
        op: Option<u64>,
        /// By a jump, which leaves the return address alone, instead of a call.
        jump: bool,
    },
}

/// Bytes to write at an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// Address of the first byte.
    pub at: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// One of the writes by which a running kernel patches a site: other CPUs see it before the next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Poke {
    /// What is written; in one piece for whoever executes it.
    pub write: Write,
    /// From here to the next write, the site's first instruction is a breakpoint. Its handler emulates the final instruction
    /// for a CPU that hits it.
    pub traps: bool,
}

/// Places in an entry trampoline of which the kernel makes a copy for each `ftrace_ops`, as offsets from its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts {
    /// Behind the last byte that is copied.
    pub end: usize,
    /// The instruction that loads `op`.
    pub op_ptr: usize,
    /// The branch to the direct path, if there is one.
    pub jmp: Option<usize>,
}

/// An entry of the list by which a kernel replaces instructions when it boots. It begins with two references of four bytes:
/// to what is replaced, and to what replaces it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AlternativeEntry {
    /// Bytes of an entry.
    pub size: usize,
    /// Where it says how many bytes are replaced.
    pub length: EntryField,
    /// Where it says by how many.
    pub replacement_length: EntryField,
    /// A field, and those of its bits of which one says that the kernel does not copy instructions but computes them.
    pub special: Option<(EntryField, usize)>,
}

/// An unsigned number in an entry of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryField {
    /// Its offset in the entry.
    pub at: usize,
    /// How many bytes it has: at most 2.
    pub bytes: usize,
}

impl EntryField {
    /// The number; 0 where the entry ends before it.
    pub fn of(&self, entry: &[u8]) -> usize {
        let field = entry.iter().skip(self.at).take(self.bytes);
        field.rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
    }
}

/// What may be at a site: as a compiler leaves it, or as something has patched it.
#[derive(Debug)]
pub struct SiteForm {
    /// In a few words.
    pub about: &'static str,
    /// Of the XRay map, not of the lists of patchable entries.
    pub sled: bool,
    /// How far before the address that the kernel records these bytes begin.
    pub before: u64,
    /// Bytes in hexadecimal; `??` is any.
    pub bytes: &'static str,
    /// Why it cannot be patched; empty if it can.
    pub refused: &'static str,
}

impl SiteForm {
    /// One of the lists of patchable entries, whose address is that of its first byte.
    pub const fn entry(about: &'static str, bytes: &'static str) -> SiteForm {
        SiteForm { about, sled: false, before: 0, bytes, refused: "" }
    }

    /// One of the XRay map.
    pub const fn sled(about: &'static str, bytes: &'static str) -> SiteForm {
        SiteForm { sled: true, ..SiteForm::entry(about, bytes) }
    }

    /// How many bytes it has.
    #[allow(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> usize {
        self.bytes.split(' ').count()
    }

    /// Is this what is at a site with these bytes?
    pub fn fits(&self, bytes: &[u8]) -> bool {
        let same = |(wanted, byte): (&str, &u8)| wanted == "??" || u8::from_str_radix(wanted, 16) == Ok(*byte);
        bytes.len() == self.len() && self.bytes.split(' ').zip(bytes).all(same)
    }
}

/// An architecture as a linker sees it, and whoever patches running code.
pub trait Patch: Sync {
    /// What is true under every choice.
    fn facts(&self) -> &'static Facts;

    /// Apply a relocation to the bytes at its place.
    ///
    /// # Errors
    /// An unknown type, or a value out of the field's range.
    fn relocate(&self, rel: &Relocation, field: &mut [u8]) -> Result<()>;

    /// Is `value` of this relocation type the address of another relocated instruction (`%pcrel_lo`)?
    fn refers_to_high(&self, _r_type: u32) -> bool {
        false
    }

    /// Does this relocation type mark padding that a relaxing linker shortens? The code runs with all of it.
    fn is_padding(&self, _r_type: u32) -> bool {
        false
    }

    /// The address that code gets from this relocation: of what is counted from behind an instruction, not that of the field.
    fn refers_to(&self, relocation: &Relocation) -> u64 {
        relocation.value
    }

    /// From an entry of the site list to the address that the kernel records (`ftrace_call_adjust`): most lists have it
    /// as it is.
    fn site_ip(&self, entry: u64, _word: &dyn Fn(u64) -> Option<u32>) -> u64 {
        entry
    }

    /// What may be at a site. Of those that several fit, the first one holds.
    fn site_forms(&self) -> &'static [SiteForm] {
        &[]
    }

    /// What a function that does nothing looks like, where a [`Branch::SiteJump`] has room in it: the address that is recorded is
    /// that of the branch.
    fn empty_functions(&self) -> &'static [SiteForm] {
        &[]
    }

    /// The bytes of a branch at `at` to `target`.
    ///
    /// # Errors
    /// The target is out of reach.
    fn branch(&self, how: Branch, at: u64, target: u64) -> Result<Vec<u8>>;

    /// The bytes of one instruction, at `at`, of a branch to `target` that is made of two, where the first one was written for a
    /// branch to `toward`.
    ///
    /// # Errors
    /// Branches of the architecture are one instruction, or the second leads from where the first does to nowhere near.
    fn half_branch(&self, _how: Branch, _half: Half, _at: u64, _toward: u64, _target: u64) -> Result<Vec<u8>> {
        Err(Error::new(format!(
            "a branch of {} is one instruction; valid: `branch` without `half` at its sites",
            self.facts().name
        )))
    }

    /// How the entry of a function is patched for which no compiler has left room, by each branch that may do, the shortest first.
    /// Those of an architecture that says nothing of it are not.
    fn entries(&self, _code: &Code) -> Vec<Entry> {
        Vec::new()
    }

    /// All direct branches of code that begins at `at`.
    fn leads(&self, _code: &[u8], _at: u64) -> Vec<Lead> {
        Vec::new()
    }

    /// The call or jump with which code at `at` begins, behind its landing pad. Architectures whose compilers call no profiler there say
    /// nothing of it.
    fn first(&self, _code: &[u8], _at: u64) -> Option<First> {
        None
    }

    /// Instructions from address `from`, which do the same at `to`, and go on behind those at `from`. What they need of memory is
    /// behind them. None of them but the last may be a call.
    ///
    /// # Errors
    /// One of them cannot be moved, or something is out of reach.
    fn moved(&self, _code: &[u8], _from: u64, _to: u64) -> Result<Vec<u8>> {
        Err(Error::new(format!("instructions of {} are not moved", self.facts().name)))
    }

    /// The bytes that make a patchable call slot call `target`.
    ///
    /// # Errors
    /// The target is out of reach.
    fn patch_call(&self, slot: u64, target: u64) -> Result<Write> {
        Ok(Write { at: slot, bytes: self.branch(Branch::Slot, slot, target)? })
    }

    /// Make the load at offset `at` of `code`, which reads relative to the program counter, read at offset `from`. `None` if
    /// there is no such load.
    fn aim_load(&self, _code: &mut [u8], _at: usize, _from: usize) -> Option<()> {
        None
    }
}
