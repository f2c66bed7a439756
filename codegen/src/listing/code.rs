//! The buffer for encoded instructions: bytes, and fields that wait for addresses.

use dynasmrt::{AssemblyOffset, DynasmApi};

use crate::words::step::{Local, Sym};

/// The symbol or label to which a fixup refers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ref {
    /// A symbol of the listing.
    Symbol(Sym),
    /// A label of the same trampoline.
    Local(Local),
}

/// A field to be filled in once addresses are known.
#[derive(Clone, Copy, Debug)]
pub struct Fixup {
    /// Offset of the relocated field in the buffer.
    pub at: usize,
    /// ELF relocation type.
    pub r_type: u32,
    /// The symbol or label to which the fixup refers.
    pub to: Ref,
    /// The addend.
    pub addend: i64,
}

/// The buffer for encoded instructions. dynasm writes into it.
#[derive(Default, Debug)]
pub struct CodeBuf {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The fixups of the trampoline being encoded.
    pub fixups: Vec<Fixup>,
}

impl CodeBuf {
    /// Add a fixup for the field `back` bytes before the end, which refers to `to`.
    pub fn fixup(&mut self, back: usize, r_type: u32, to: Ref, addend: i64) {
        self.fixups.push(Fixup { at: self.bytes.len() - back, r_type, to, addend });
    }
}

impl Extend<u8> for CodeBuf {
    fn extend<T: IntoIterator<Item = u8>>(&mut self, iter: T) {
        self.bytes.extend(iter);
    }
}

impl<'a> Extend<&'a u8> for CodeBuf {
    #[inline(always)]
    fn extend<T: IntoIterator<Item = &'a u8>>(&mut self, iter: T) {
        for &byte in iter {
            self.bytes.push(byte);
        }
    }
}

impl DynasmApi for CodeBuf {
    fn offset(&self) -> AssemblyOffset {
        AssemblyOffset(self.bytes.len())
    }

    #[inline]
    fn push(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    #[inline]
    fn push_i32(&mut self, value: i32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    #[inline]
    fn push_u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    fn align(&mut self, alignment: usize, with: u8) {
        self.bytes.resize(self.bytes.len().next_multiple_of(alignment), with);
    }
}
