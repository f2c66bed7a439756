//! The relocations of an assembly, before they are those of an object file.

/// What a relocation refers to.
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
    /// The pointer to the function that unwinders ask.
    Personality,
    /// Table of call sites number `n`.
    Table(u32),
    /// The start of the tables of call sites.
    Tables,
}

/// A relocation of the assembly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reloc {
    /// Offset in its section.
    pub at: u32,
    /// ELF relocation type.
    pub r_type: u32,
    /// What it refers to.
    pub to: RelocTarget,
    /// What is added.
    pub addend: i64,
}
