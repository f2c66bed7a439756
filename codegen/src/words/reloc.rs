//! The relocations of an assembly, before they are those of an object file.

/// The symbol or place to which a relocation refers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RelocTarget {
    /// External or global symbol number `n`.
    Global(u32),
    /// Local symbol number `n`.
    Local(u32),
    /// The start of `.text`.
    Text,
    /// Label number `n` of the unwind table.
    Unwind(u32),
    /// The pointer to the personality function.
    Personality,
    /// Table of call sites number `n`.
    Table(u32),
    /// The start of the tables of call sites.
    Tables,
}

/// A relocation of the assembly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reloc {
    /// Offset of the field in its section.
    pub at: u32,
    /// ELF relocation type.
    pub r_type: u32,
    /// The symbol or place to which the relocation refers.
    pub to: RelocTarget,
    /// The addend.
    pub addend: i64,
}
