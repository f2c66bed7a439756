//! Facts about an architecture, independent of options and profile: names, the psABI, ELF, DWARF, and the dialect of its
//! assembler.

use crate::arch::harden::ReturnGuard;
use crate::ask::option::OptionInfo;
use crate::words::abi::{Abi, Reg};

/// The facts about an architecture that hold under every option and profile.
#[derive(Debug)]
pub struct Facts {
    /// The name in files and reports.
    pub name: &'static str,
    /// Other names that people use: the kernel's, uname's, LLVM's.
    pub aliases: &'static [&'static str],
    /// `e_machine`.
    pub machine: u16,
    /// The meaning of the bits of `e_flags`.
    pub e_flags: EFlags,
    /// Unwinders go to where a function handles an exception by an indirect jump, which needs a landing pad; elsewhere by a return
    /// (libgcc's `__builtin_eh_return`, LLVM's `UnwindRegistersRestore.S`).
    pub unwinders_jump: bool,
    /// The text that starts a comment in GNU as.
    pub comment: &'static str,
    /// The text that marks a symbol as a function for GNU as: `@function` or `%function`.
    pub function_type: &'static str,
    /// The text that marks the note section's type for GNU as.
    pub progbits: &'static str,
    /// The prefix of register names in GNU as.
    pub reg_prefix: &'static str,
    /// Debian's name of the GNU assembler for this architecture.
    pub assembler: &'static str,
    /// Bytes to which a trampoline's start is aligned.
    pub align: u32,
    /// How code may guard the return address that it stores.
    pub guards: &'static [ReturnGuard],
    /// What the psABI's property note says of all code of an object, if there is such a note.
    pub marks: Option<Marks>,
    /// The bytes with which GNU as fills the space before an aligned start, and the operand that requests them.
    pub fill: (&'static [u8], &'static str),
    /// GNU as fills a code section up to its alignment.
    pub fill_end: bool,
    /// The options that the architecture offers.
    pub options: &'static [OptionInfo],
    /// Registers and conventions.
    pub abi: Abi,
    /// Instructions that tracers write into code, by the names that profiles have for them.
    pub patched: &'static [(&'static str, &'static [u8])],
    /// Flag registers that a full save keeps; empty where the architecture has none.
    pub flags: &'static str,
    /// The prefix of the psABI's names of relocation types, and the names of the supported ones.
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
    /// The thread pointers from which a profile chooses one, by which trampolines that record find the thread's words.
    pub threads: &'static [&'static str],
    /// The instruction that reads the CPU's clock, empty if there is none, and the registers that it always clobbers.
    pub clock: (&'static str, &'static [Reg]),
    /// The places of the function's number in the instructions that store a record's second word: bytes from the first
    /// instruction, and the type of relocation that writes a 31-bit value there.
    pub number: &'static [(u32, u32)],
    /// The relocations for the low part of a distance that refer to the instruction with the high part.
    pub low_parts: &'static [u32],
}

/// The property in `.note.gnu.property` with the protection that code goes with. A linker keeps the bits that all objects have.
#[derive(Debug)]
pub struct Marks {
    /// The type of the property.
    pub property: u32,
    /// Its bits, lowest first.
    pub features: &'static [Feature],
}

/// One bit of that property.
#[derive(Debug)]
pub struct Feature {
    /// The psABI's name of the protection.
    pub name: &'static str,
    /// The bit.
    pub bit: u32,
    /// What an object promises that has it.
    pub promise: Promise,
}

/// What a bit of the property promises of all code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Promise {
    /// Each indirect branch reaches a landing pad.
    Pads,
    /// Each return goes behind the call that it belongs to, because a shadow stack checks all of them.
    Paired,
    /// What code puts onto the shadow stack, it takes from there before it returns. The shadow stack checks nothing else.
    Guarded,
    /// Each return address that is stored on the stack is signed, and is checked before the return.
    Signed,
}

impl Marks {
    /// The bits that promise this.
    pub fn bits(&self, promise: Promise) -> u32 {
        self.features.iter().filter(|feature| feature.promise == promise).fold(0, |bits, feature| bits | feature.bit)
    }
}

/// How a linker treats `e_flags`.
#[derive(Debug)]
pub struct EFlags {
    /// Bits for features that code uses: the linker ORs them together. In all other bits, objects must agree.
    pub adds_up: u32,
    /// A text for the other bits.
    pub words: fn(u32) -> String,
    /// The remedy in messages about objects that do not agree.
    pub remedy: &'static str,
    /// The options with which gcc assembles text for objects with these flags, if its defaults differ.
    pub gcc: fn(u32) -> &'static str,
}

impl EFlags {
    /// The value for a psABI that defines no bits.
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

/// The meaning of a number in a profile, whatever name the tracer gives it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NumberOf {
    /// The offset of the function to call, in the structure that `op` points to.
    OpFunc,
    /// The offset of the direct trampoline to which to jump at once, or of 0, in the structure that `op` points to.
    OpDirectCall,
    /// Bytes from the thread pointer to [`ThreadWord::Cursor`].
    RecordCursor,
    /// Bytes from the thread pointer to [`ThreadWord::Limit`].
    RecordLimit,
    /// Bytes from the thread pointer to [`ThreadWord::Count`].
    RecordCount,
    /// The bit of a record's address that is set if the buffer has no room for it, for trampolines with a refill routine.
    RecordFull,
    /// Bytes from the thread pointer to [`ThreadWord::Shadow`].
    RecordShadow,
    /// Bytes from the thread pointer to [`ThreadWord::ShadowLimit`].
    RecordShadowLimit,
    /// The offset of [`ThreadWord::Cursor`] in the thread-local variable, if the thread's words are in one.
    TlsCursor,
    /// The offset of [`ThreadWord::Limit`] in the thread-local variable.
    TlsLimit,
    /// The offset of [`ThreadWord::Count`] in the thread-local variable.
    TlsCount,
    /// The offset of [`ThreadWord::Shadow`] in the thread-local variable.
    TlsShadow,
    /// The offset of [`ThreadWord::ShadowLimit`] in the thread-local variable.
    TlsShadowLimit,
}

/// A word of a thread, for trampolines that record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ThreadWord {
    /// The address of the next record.
    Cursor,
    /// The limit, at or behind which no record begins.
    Limit,
    /// The counter of entries.
    Count,
    /// The address of the shadow stack's next entry.
    Shadow,
    /// The end of the shadow stack.
    ShadowLimit,
}

impl ThreadWord {
    /// The number with the word's offset: in a thread-local variable if `tls`, else from the thread pointer.
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
    /// All numbers, with their names in a profile.
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
    /// The meaning of the number.
    pub of: NumberOf,
    /// The symbol.
    pub symbol: &'static str,
    /// The value, in bytes.
    pub value: i32,
}
