//! The x86-64 backend.

pub mod abi;
mod accesses;
mod bare;
pub mod emu;
mod emulated;
pub mod entry;
pub mod faulty;
pub mod insn;
pub mod lower;
mod moves;
pub mod mutate;
pub mod option;
mod record;
pub mod regs;
pub mod reloc;
mod rethook;
mod shadow;
pub mod site;
mod sled;

use codegen::arch::facts::{Cie, EFlags, Facts, Feature, Marks, Promise};
use codegen::arch::machine::Machine;
use codegen::ask::option::Choices;
use codegen::ask::spec::Kind;
use codegen::effect::effects::CfiEntry;
use codegen::listing::isa::{Architecture, Labels};
use codegen::profile::Convention;
use codegen::profile::target::Target;
use codegen::words::error::Result;
use codegen::words::field::out_of_reach;

/// x86-64.
pub struct X86_64;

/// The facts that hold under every option and profile.
pub const FACTS: Facts = Facts {
    name: "x86_64",
    aliases: &["x86", "x86-64", "amd64"],
    machine: 62,
    e_flags: EFlags::NONE,
    unwinders_jump: true,
    comment: "#",
    function_type: "@function",
    progbits: "@progbits",
    reg_prefix: "%",
    assembler: "x86_64-linux-gnu-as",
    align: 16,
    // GNU_PROPERTY_X86_FEATURE_1_AND, IBT and SHSTK: x86-64 psABI, 4.1.2.
    guards: &[],
    marks: Some(Marks {
        property: 0xc000_0002,
        features: &[
            Feature { name: "IBT", bit: 1, promise: Promise::Pads },
            Feature { name: "SHSTK", bit: 2, promise: Promise::Paired },
        ],
    }),
    fill: (&[0xcc], ", 0xcc"),
    fill_end: false,
    options: option::OPTIONS,
    abi: abi::ABI,
    patched: abi::PATCHED,
    flags: "rflags",
    relocations: ("R_X86_64_", reloc::NAMES),
    dynamic: [1, 8, 6, 7],
    mapping: "",
    lengths: None,
    objtool: Some((reloc::ABS32, reloc::PC32)),
    cie: Cie {
        version: 1,
        column: RETURN_ADDRESS,
        code_align: 1,
        data_align: -8,
        // DW_CFA_def_cfa rsp, 8; DW_CFA_offset rip at CFA-8
        initial: &[0x0c, 7, 8, 0x90, 1],
        cfa_offset: 8,
        pcrel32: reloc::PC32,
    },
    threads: &["fs"],
    clock: ("rdtsc", &[regs::RAX, regs::RDX]),
    // MOV of 32 bits to 8(%r11).
    number: &[(4, reloc::ABS32S)],
    low_parts: &[],
};

/// The DWARF column of the return address (psABI, figure 3.36).
const RETURN_ADDRESS: u16 = 16;

impl Architecture for X86_64 {
    const FACTS: &'static Facts = &FACTS;
    const MACHINE: &'static Machine = &emu::MACHINE;

    fn target(convention: &'static Convention, choices: Choices) -> Result<Target> {
        abi::target(convention, choices)
    }

    fn cfi_entry(kind: Kind) -> CfiEntry {
        let undefined = kind.returned_to();
        // Where nothing returns to the function from its site, the return address is its caller's.
        let dropped = if kind.calls_body() && !kind.jumped_to() { 8 } else { 0 };
        let cfa_offset = if undefined { 0 } else { 8 + dropped };
        CfiEntry { column: RETURN_ADDRESS, cfa_offset, moved: &[], undefined, signal: false }
    }
}

impl Labels for X86_64 {
    fn patch_local(r_type: u32, code: &mut [u8], at: usize, target: usize) -> Result<bool> {
        let size = if r_type == reloc::PC8 { 1 } else { 4 };
        let distance = target as i64 - (at + size) as i64;
        let reach = if size == 1 { i64::from(i8::MAX) } else { i64::from(i32::MAX) };
        let Some(field) = code.get_mut(at..at + size).filter(|_| -reach - 1 <= distance && distance <= reach) else {
            return Err(out_of_reach("a branch", distance, 8 * size as u32));
        };
        field.copy_from_slice(&distance.to_le_bytes()[..size]);
        Ok(false)
    }
}
