//! Operations on an architecture's code as bytes: relocations, patchable entries, call slots. The linker and the list of
//! sites use [`Patch`], and need no generator.

pub use crate::arch::branch::{Branch, Half};
use crate::arch::entry::{Code, Entry, First, Lead, Signing};
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

/// The state of a patched site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SiteState {
    /// The site does nothing.
    Disabled,
    /// The site goes to a trampoline.
    Enabled {
        /// Address of the trampoline.
        target: u64,
        /// Address of the `ftrace_ops`, for functions with room for it; `None` if there is none.
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
    /// The bytes to write, which other CPUs see all at once.
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

/// The layout of an entry in the list by which a kernel replaces instructions when it boots. It begins with two references of
/// four bytes: to the replaced code, and to the replacement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AlternativeEntry {
    /// Bytes of an entry.
    pub size: usize,
    /// The field with the number of replaced bytes.
    pub length: EntryField,
    /// The field with the number of bytes of the replacement.
    pub replacement_length: EntryField,
    /// A field, and a mask of bits. If one of them is set, the kernel computes the instructions instead of copying them.
    pub special: Option<(EntryField, usize)>,
}

/// An unsigned number in an entry of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryField {
    /// The offset of the number in the entry.
    pub at: usize,
    /// The size of the number in bytes, at most 2.
    pub bytes: usize,
}

impl EntryField {
    /// The number; 0 if the entry ends before it.
    pub fn of(&self, entry: &[u8]) -> usize {
        let field = entry.iter().skip(self.at).take(self.bytes);
        field.rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
    }
}

/// A form of the code at a site, as a compiler leaves it, or as a tracer has patched it.
#[derive(Debug)]
pub struct SiteForm {
    /// A few words that describe the form.
    pub about: &'static str,
    /// The site is in the XRay map, not in the lists of patchable entries.
    pub sled: bool,
    /// Bytes from the start of this code to the address that the kernel records.
    pub before: u64,
    /// The bytes in hexadecimal; `??` matches any byte.
    pub bytes: &'static str,
    /// The reason why the site cannot be patched; empty if it can.
    pub refused: &'static str,
}

impl SiteForm {
    /// A form of sites in the lists of patchable entries, whose address is that of the first byte.
    pub const fn entry(about: &'static str, bytes: &'static str) -> SiteForm {
        SiteForm { about, sled: false, before: 0, bytes, refused: "" }
    }

    /// A form of sites in the XRay map.
    pub const fn sled(about: &'static str, bytes: &'static str) -> SiteForm {
        SiteForm { sled: true, ..SiteForm::entry(about, bytes) }
    }

    /// The size of the form in bytes.
    #[allow(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> usize {
        self.bytes.len().div_ceil(FORM_BYTE)
    }

    /// Does a site with these bytes have this form?
    pub fn fits(&self, bytes: &[u8]) -> bool {
        // Files have many sites, and nearly every comparison ends with the first byte.
        let same = |(wanted, byte): (&[u8], &u8)| match wanted {
            [b'?', b'?', ..] => true,
            [high, low, ..] => hex(*high) << 4 | hex(*low) == u32::from(*byte),
            _ => false,
        };
        bytes.len() == self.len() && self.bytes.as_bytes().chunks(FORM_BYTE).zip(bytes).all(same)
    }
}

/// Two digits and a space: the characters of each byte in the text of a form.
const FORM_BYTE: usize = 3;

/// The value of a digit; more than a byte if it is none.
fn hex(digit: u8) -> u32 {
    char::from(digit).to_digit(16).unwrap_or(u32::MAX)
}

/// An architecture for linkers, and for tracers that patch running code.
pub trait Patch: Sync {
    /// The facts that hold under every option and profile.
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

    /// Of a relocation of code that loads an address from the global offset table: the type that does the same toward the word.
    fn through_got(&self, _r_type: u32) -> Option<u32> {
        None
    }

    /// The address to which code with this relocation refers, even if the distance counts from behind the instruction.
    fn refers_to(&self, relocation: &Relocation) -> u64 {
        relocation.value
    }

    /// The address that the kernel records for an entry of the site list (`ftrace_call_adjust`). Most lists contain this
    /// address.
    fn site_ip(&self, entry: u64, _word: &dyn Fn(u64) -> Option<u32>) -> u64 {
        entry
    }

    /// The forms of sites. If several fit, the first one holds.
    fn site_forms(&self) -> &'static [SiteForm] {
        &[]
    }

    /// The forms of functions that do nothing and have room for a [`Branch::SiteJump`]. The recorded address is that of the
    /// branch.
    fn empty_functions(&self) -> &'static [SiteForm] {
        &[]
    }

    /// The bytes of a branch at `at` to `target`.
    ///
    /// # Errors
    /// The target is out of reach.
    fn branch(&self, how: Branch, at: u64, target: u64) -> Result<Vec<u8>>;

    /// The bytes of one instruction of a two-instruction branch from `at` to `target`, whose first instruction was written for a
    /// branch to `toward`.
    ///
    /// # Errors
    /// Branches of the architecture are one instruction, or the second cannot reach `target` after the first.
    fn half_branch(&self, _how: Branch, _half: Half, _at: u64, _toward: u64, _target: u64) -> Result<Vec<u8>> {
        Err(Error::new(format!(
            "a branch of {} is one instruction; valid: `branch` without `half` at its sites",
            self.facts().name
        )))
    }

    /// How the entry of a function compiled without a site can be patched, by each possible branch, the shortest first. Empty for
    /// architectures that do not support it.
    fn entries(&self, _code: &Code) -> Vec<Entry> {
        Vec::new()
    }

    /// All direct branches of code that begins at `at`.
    fn leads(&self, _code: &[u8], _at: u64) -> Vec<Lead> {
        Vec::new()
    }

    /// The call or jump with which code at `at` begins, behind its landing pad. `None` on architectures whose compilers call no
    /// profiler there.
    fn first(&self, _code: &[u8], _at: u64) -> Option<First> {
        None
    }

    /// The instructions at address `from`, changed to do the same at `to`, and to continue behind the originals. The words that
    /// they load are behind them. Only the last instruction may be a call.
    ///
    /// # Errors
    /// An instruction cannot be moved, or a target is out of reach.
    fn moved(&self, _code: &[u8], _from: u64, _to: u64) -> Result<Vec<u8>> {
        Err(Error::new(format!("instructions of {} are not moved", self.facts().name)))
    }

    /// The instructions that the branch of an entry overwrites at `from`, for `to`: as [`Patch::moved`] makes them, behind the one that
    /// signs the return address, where the entry has one.
    ///
    /// # Errors
    /// As [`Patch::moved`].
    fn resumed(&self, entry: &Entry, code: &[u8], from: u64, to: u64) -> Result<Vec<u8>> {
        let sign = entry.signed.map_or(&[][..], |signing| signing.sign);
        Ok([sign, &self.moved(code, from, to.wrapping_add(sign.len() as u64))?].concat())
    }

    /// Code at `at` that authenticates the return address, and goes on at `target` by this branch.
    ///
    /// # Errors
    /// The target is out of reach.
    fn authenticated(&self, signing: Signing, how: Branch, at: u64, target: u64) -> Result<Vec<u8>> {
        let branch = self.branch(how, at.wrapping_add(signing.authenticate.len() as u64), target)?;
        Ok([signing.authenticate, &branch].concat())
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
