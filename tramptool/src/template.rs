//! Templates: trampolines that a program copies.

use codegen::arch::facts::Facts;
use codegen::arch::patch::Relocation;
use codegen::out::template::{Filled as Depends, FixUp as Field, Piece, Template as Made};
use codegen::words::error::{Error, Result};

use crate::target::Target;

/// A trampoline as bytes that a program copies, with fields that it fills in for each function at run time. Who fills them in
/// does what a linker does with relocations.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Template {
    /// The trampoline's symbol.
    pub name: String,
    /// Bytes to whose multiple a copy is aligned.
    pub align: u32,
    /// Offset of its first instruction.
    pub entry: u32,
    /// The bytes. Fields are as in an object, and numbers those of the trampoline itself.
    pub bytes: Vec<u8>,
    /// The fields, lowest offset first.
    pub fixups: Vec<FixUp>,
    /// What unwinders need to know of a copy. [`UnwindTable`](crate::UnwindTable) takes it.
    pub unwind: UnwindEntry,
}

/// The unwind entry of a copy: a CIE and an FDE, as they stand in `.eh_frame`. One after the other, and a word of 0 behind the last,
/// they are a table for unwinders.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct UnwindEntry {
    /// The bytes. Fields are as in an object. Where objects have no unwind tables, there are none.
    pub bytes: Vec<u8>,
    /// The fields, lowest offset first. Their places count from the entry.
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
    /// The psABI's name of that.
    pub name: Option<String>,
    /// What S of the psABI's formulas is.
    pub symbol: Filled,
    /// Offset of P. For the low part of a distance, that is where its high part is.
    pub place: u32,
    /// A.
    pub addend: i64,
}

/// What a field of a template depends on.
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

/// What a copy of a template is for: what S is in its fields. An address that the template has no field for is not looked at.
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
    /// Of [`Spec::tls`](crate::Spec::tls): the offset of the variable with the thread's words from the thread pointer.
    pub tls: i64,
    /// Of [`Spec::unwind`](crate::Spec::unwind): the address of `__gcc_personality_v0`, or of a function like it.
    pub personality: u64,
    /// Of [`Spec::unwind`](crate::Spec::unwind): the address of `_Unwind_Resume`, or of a branch there.
    pub resume: u64,
}

impl Template {
    /// Make the copy that lies at `address` and is for what `filling` says. `copy` takes it, and is as long as the template's bytes.
    ///
    /// # Errors
    /// A field cannot hold what belongs there: an address out of reach, a number of [`Filling::IDS`] or more. `copy` has another length.
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
    /// How many numbers of functions there are: a number, what stands below it and the rounding of RISC-V's LUI must fit a signed
    /// field of 32 bits.
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
