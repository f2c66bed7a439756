//! Templates: trampolines that a program copies.

use codegen::arch::facts::Facts;
use codegen::arch::patch::Relocation;
use codegen::out::template::{Filled as Depends, FixUp as Field, Piece, Template as Made};
use codegen::words::error::{Error, Result};

use crate::target::Target;

/// A trampoline as bytes that a program copies, with fields that the program fills in for each function at run time, as a
/// linker does with relocations.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Template {
    /// The trampoline's symbol.
    pub name: String,
    /// The alignment of a copy in bytes.
    pub align: u32,
    /// Offset of the first instruction.
    pub entry: u32,
    /// The bytes, with fields not filled in, as in an object.
    pub bytes: Vec<u8>,
    /// The fields, lowest offset first.
    pub fixups: Vec<FixUp>,
    /// The unwind entry of a copy. [`UnwindTable`](crate::UnwindTable) takes it.
    pub unwind: UnwindEntry,
}

/// The unwind entry of a copy: a CIE and an FDE, as in `.eh_frame`. Entries one after the other, with a word of 0 behind the
/// last, make a table for unwinders.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct UnwindEntry {
    /// The bytes, with fields not filled in, as in an object. Empty if the target's objects have no unwind tables.
    pub bytes: Vec<u8>,
    /// The fields, lowest offset first. Offsets count from the start of the unwind entry.
    pub fixups: Vec<FixUp>,
}

/// A field of a template.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FixUp {
    /// Offset of the field.
    pub offset: u32,
    /// ELF relocation type.
    pub r_type: u32,
    /// The psABI's name of the relocation type.
    pub name: Option<String>,
    /// The value S of the psABI's formulas.
    pub symbol: Filled,
    /// The offset of the place P of the psABI's formulas. For the low part of a distance, it is the offset of the high part.
    pub place: u32,
    /// The addend A of the psABI's formulas.
    pub addend: i64,
}

/// The value on which a field of a template depends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Filled {
    /// The number of the function, shifted left by 8 bits.
    Id,
    /// The address of the function.
    Function,
    /// The address of the variable that has the time.
    Clock,
    /// The address of the routine that makes room.
    Refill,
    /// The address of the C function that a sled calls.
    Callee,
    /// The offset of the thread's words from the thread pointer.
    Tls,
    /// The address of the copy.
    Copy,
    /// The address of the function that unwinders ask about a landing pad.
    Personality,
    /// The address of the function that a landing pad ends with.
    Resume,
}

/// The values for the fields of one copy of a template. A value that no field needs is ignored.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Filling {
    /// The function's number, below [`Filling::IDS`].
    pub id: u32,
    /// The function's address.
    pub function: u64,
    /// The address of the variable that has the time.
    pub clock: u64,
    /// The address of the routine that makes room.
    pub refill: u64,
    /// The address of the C function that a sled calls.
    pub callee: u64,
    /// For [`Spec::tls`](crate::Spec::tls): the offset of the variable with the thread's words from the thread pointer.
    pub tls: i64,
    /// For [`Spec::unwind`](crate::Spec::unwind): the address of `__gcc_personality_v0`, or of a function like it.
    pub personality: u64,
    /// For [`Spec::unwind`](crate::Spec::unwind): the address of `_Unwind_Resume`, or of a branch to it.
    pub resume: u64,
}

impl Template {
    /// Write a copy of the template into `copy`, which will execute at `address`, with its fields filled in from `filling`.
    ///
    /// # Errors
    /// A field cannot hold its value: an address out of reach, a number of [`Filling::IDS`] or more. `copy` has another length than
    /// the template's bytes.
    pub fn copy_to(&self, target: &Target, address: u64, filling: &Filling, copy: &mut [u8]) -> Result<()> {
        if copy.len() != self.bytes.len() {
            let (has, room) = (self.bytes.len(), copy.len());
            return Err(Error::new(format!("{}: {has} bytes for room of {room}; valid: as much room", self.name)));
        }
        if filling.id >= Filling::IDS {
            let (id, last) = (filling.id, Filling::IDS - 1);
            return Err(Error::new(format!("{}: function number {id}; valid: 0 to {last}", self.name)));
        }
        copy.copy_from_slice(&self.bytes);
        self.fill(target, &self.fixups, address, |symbol| filling.of(symbol, address), copy)
    }

    /// Fill in the fields of bytes that lie at `address`.
    pub(crate) fn fill(
        &self,
        target: &Target,
        fixups: &[FixUp],
        address: u64,
        s: impl Fn(Filled) -> u64,
        bytes: &mut [u8],
    ) -> Result<()> {
        for fixup in fixups {
            let place = address.wrapping_add(fixup.offset.into());
            let value = s(fixup.symbol).wrapping_add_signed(fixup.addend);
            let high = address.wrapping_add(fixup.place.into());
            let field = bytes.get_mut(fixup.offset as usize..).unwrap_or_default();
            let relocation = Relocation { r_type: fixup.r_type, place, value, high };
            let at = || format!("{} at {place:#x}", self.name);
            target.backend().relocate(&relocation, field).map_err(|e| e.at(at()))?;
        }
        Ok(())
    }

    pub(crate) fn new(made: &Made, facts: &Facts) -> Template {
        let fix_up = |f: &Field| FixUp {
            offset: f.at,
            r_type: f.r_type,
            name: facts.relocation(f.r_type),
            symbol: match f.of {
                Depends::Id => Filled::Id,
                Depends::Function => Filled::Function,
                Depends::Clock => Filled::Clock,
                Depends::Refill => Filled::Refill,
                Depends::Callee => Filled::Callee,
                Depends::Tls => Filled::Tls,
                Depends::Copy => Filled::Copy,
                Depends::Personality => Filled::Personality,
                Depends::Resume => Filled::Resume,
            },
            place: f.place,
            addend: f.addend,
        };
        let fix_ups = |piece: &Piece| piece.fix_ups.iter().map(fix_up).collect();
        Template {
            name: made.name.to_owned(),
            align: facts.align,
            entry: made.entry,
            bytes: made.code.bytes.clone(),
            fixups: fix_ups(&made.code),
            unwind: UnwindEntry { bytes: made.unwind.bytes.clone(), fixups: fix_ups(&made.unwind) },
        }
    }
}

impl Filling {
    /// The count of valid function numbers: a number, the bits below it and the rounding of RISC-V's LUI must fit a signed field
    /// of 32 bits.
    pub const IDS: u32 = (1 << 23) - 8;

    fn of(&self, symbol: Filled, copy: u64) -> u64 {
        match symbol {
            Filled::Id => u64::from(self.id) << 8,
            Filled::Function => self.function,
            Filled::Clock => self.clock,
            Filled::Refill => self.refill,
            Filled::Callee => self.callee,
            Filled::Tls => self.tls.cast_unsigned(),
            Filled::Copy => copy,
            Filled::Personality => self.personality,
            Filled::Resume => self.resume,
        }
    }
}
