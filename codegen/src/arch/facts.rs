//! What is true of an architecture, whatever its options and whatever the profile: names, the psABI, ELF, DWARF, and the
//! dialect of its assembler.

use crate::ask::option::OptionInfo;
use crate::words::abi::{Abi, Reg};

/// What is true of an architecture under every choice.
#[derive(Debug)]
pub struct Facts {
    /// The name in files and reports.
    pub name: &'static str,
    /// Other names that people use: the kernel's, uname's, LLVM's.
    pub aliases: &'static [&'static str],
    /// `e_machine`.
    pub machine: u16,
    /// What the bits of `e_flags` are.
    pub e_flags: EFlags,
    /// What starts a comment in GNU as.
    pub comment: &'static str,
    /// What marks a symbol as a function for GNU as: `@function` or `%function`.
    pub function_type: &'static str,
    /// What marks the note section's type for GNU as.
    pub progbits: &'static str,
    /// What stands before a register's name in GNU as.
    pub reg_prefix: &'static str,
    /// The GNU assembler for this architecture, as Debian calls it.
    pub assembler: &'static str,
    /// Bytes to which a trampoline's start is aligned.
    pub align: u32,
    /// The property of the psABI that says of all code that it has landing pads, if there is one.
    pub landing_pads: Option<u32>,
    /// What fills the space before an aligned start, as GNU as has it, and the operand that asks for it.
    pub fill: (&'static [u8], &'static str),
    /// GNU as fills a code section up to its alignment.
    pub fill_end: bool,
    /// The options that it offers.
    pub options: &'static [OptionInfo],
    /// Registers and conventions.
    pub abi: Abi,
    /// Instructions that tracers write into code, by the names that profiles have for them.
    pub patched: &'static [(&'static str, &'static [u8])],
    /// Flag registers that a full save keeps; empty where the architecture has none.
    pub flags: &'static str,
    /// The prefix of the psABI's names of relocation types, and the names of those that are known here.
    pub relocations: (&'static str, &'static [(u32, &'static str)]),
    /// Relocations of shared libraries: the address of a symbol, of a place in the library, of a symbol
    /// for the global offset table, of a function for the linkage table.
    pub dynamic: [u32; 4],
    /// The symbol that marks code for disassemblers; empty if the psABI has none.
    pub mapping: &'static str,
    /// Relocations for lengths in unwind tables, where the linker may change them.
    pub lengths: Option<&'static LengthRelocs>,
    /// Relocations of objtool's annotations, where a kernel's objtool checks objects: an address, a distance, both of 32 bits.
    pub objtool: Option<(u32, u32)>,
    /// DWARF: the code alignment factor, data alignment factor and version of a CIE as GNU as writes it.
    pub cie: Cie,
    /// The registers of which a profile names the one by which trampolines that record find what is the thread's.
    pub threads: &'static [&'static str],
    /// What reads the CPU's clock, empty if nothing does; and the registers that it overwrites, whatever it is asked for.
    pub clock: (&'static str, &'static [Reg]),
    /// Where the function's number stands in the instructions that store what happened: bytes from the first of them, and the
    /// type of relocation that puts a value of 31 bits there.
    pub number: &'static [(u32, u32)],
    /// The relocations that name an instruction and take the low part of the distance that this one has the high part of.
    pub low_parts: &'static [u32],
}

/// What a linker must know of `e_flags`.
#[derive(Debug)]
pub struct EFlags {
    /// Bits that say what code uses: of objects that are linked they add up. In all others objects must agree.
    pub adds_up: u32,
    /// What the others say, in words.
    pub words: fn(u32) -> String,
    /// What makes objects agree.
    pub remedy: &'static str,
    /// The options with which gcc assembles text for an object with these, where its own are others.
    pub gcc: fn(u32) -> &'static str,
}

impl EFlags {
    /// The psABI gives none a meaning.
    pub const NONE: EFlags = EFlags {
        adds_up: 0,
        words: |e_flags| format!("e_flags {e_flags:#x}"),
        remedy: "the psABI knows no such flags; compile both for this architecture",
        gcc: |_| "",
    };
}

impl Facts {
    /// The psABI's name of a relocation type.
    pub fn relocation(&self, r_type: u32) -> Option<String> {
        let (prefix, names) = self.relocations;
        names.iter().find(|(t, _)| *t == r_type).map(|(_, name)| format!("{prefix}{name}"))
    }
}

/// Relocation types for lengths that the linker may change (RISC-V): (add or set, subtract).
#[derive(Debug)]
pub struct LengthRelocs {
    /// For the 32-bit length of an FDE.
    pub range: (u32, u32),
    /// For advances of 6, 8 and 16 bits.
    pub advance: [(u32, u32); 3],
}

/// The parts of a CIE that GNU as fixes for each architecture.
#[derive(Debug)]
pub struct Cie {
    /// Version number.
    pub version: u8,
    /// The return address column of a C function.
    pub column: u16,
    /// Code alignment factor.
    pub code_align: u8,
    /// Data alignment factor.
    pub data_align: i8,
    /// The rules before the first instruction, as encoded bytes: CFA, and return address where a call pushes it.
    pub initial: &'static [u8],
    /// CFA minus SP at a function's entry.
    pub cfa_offset: i32,
    /// Relocation type of an FDE's start.
    pub pcrel32: u32,
}

/// What a number of a profile is, whatever the tracer calls it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NumberOf {
    /// The offset, in the structure that `op` points to, of the function that is to be called.
    OpFunc,
    /// The same of the direct trampoline to which to go at once, or 0.
    OpDirectCall,
    /// Bytes from the thread pointer to the word that says where the thread's next record begins.
    RecordCursor,
    /// The same to the word that says where none begins any more.
    RecordLimit,
    /// The same to the word that is counted up.
    RecordCount,
    /// The bit of a record's address that says that there is no room for it, where a routine makes room.
    RecordFull,
    /// Bytes from the thread pointer to the word that says where the next entry of the thread's shadow stack goes.
    RecordShadow,
    /// The same to the word that says where none goes any more.
    RecordShadowLimit,
    /// The same five, in the variable that the thread's words are in, if they are in one.
    TlsCursor,
    /// Of the word that says where no record begins any more.
    TlsLimit,
    /// Of the word that is counted up.
    TlsCount,
    /// Of the word that says where the next entry of the shadow stack goes.
    TlsShadow,
    /// Of the word that says where none goes any more.
    TlsShadowLimit,
}

/// A word of a thread, for trampolines that record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ThreadWord {
    /// Where the next record begins.
    Cursor,
    /// Where none begins any more.
    Limit,
    /// What is counted up.
    Count,
    /// Where the next entry of the shadow stack goes.
    Shadow,
    /// Where none goes any more.
    ShadowLimit,
}

impl ThreadWord {
    /// The number that says where it is: in a thread-local variable, or from the thread pointer.
    pub fn number(self, tls: bool) -> NumberOf {
        match (self, tls) {
            (ThreadWord::Cursor, false) => NumberOf::RecordCursor,
            (ThreadWord::Limit, false) => NumberOf::RecordLimit,
            (ThreadWord::Count, false) => NumberOf::RecordCount,
            (ThreadWord::Shadow, false) => NumberOf::RecordShadow,
            (ThreadWord::ShadowLimit, false) => NumberOf::RecordShadowLimit,
            (ThreadWord::Cursor, true) => NumberOf::TlsCursor,
            (ThreadWord::Limit, true) => NumberOf::TlsLimit,
            (ThreadWord::Count, true) => NumberOf::TlsCount,
            (ThreadWord::Shadow, true) => NumberOf::TlsShadow,
            (ThreadWord::ShadowLimit, true) => NumberOf::TlsShadowLimit,
        }
    }
}

impl NumberOf {
    /// All of them, with their names in a profile.
    pub const ALL: [(&'static str, NumberOf); 13] = [
        ("op-func", NumberOf::OpFunc),
        ("op-direct-call", NumberOf::OpDirectCall),
        ("record-cursor", NumberOf::RecordCursor),
        ("record-limit", NumberOf::RecordLimit),
        ("record-count", NumberOf::RecordCount),
        ("record-full", NumberOf::RecordFull),
        ("record-shadow", NumberOf::RecordShadow),
        ("record-shadow-limit", NumberOf::RecordShadowLimit),
        ("tls-cursor", NumberOf::TlsCursor),
        ("tls-limit", NumberOf::TlsLimit),
        ("tls-count", NumberOf::TlsCount),
        ("tls-shadow", NumberOf::TlsShadow),
        ("tls-shadow-limit", NumberOf::TlsShadowLimit),
    ];

    /// The key in a profile.
    pub fn key(self) -> &'static str {
        NumberOf::ALL.iter().find(|(_, of)| *of == self).map_or("", |(key, _)| key)
    }
}

/// A number that depends on the kernel's configuration, under the name that the assembly text gives it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Number {
    /// What it is.
    pub of: NumberOf,
    /// The symbol.
    pub symbol: &'static str,
    /// The value, in bytes.
    pub value: i32,
}
