//! The arm64 backend.

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
use codegen::arch::harden::ReturnGuard;
use codegen::arch::machine::Machine;
use codegen::arch::patch::Relocation;
use codegen::ask::option::Choices;
use codegen::ask::spec::Kind;
use codegen::effect::effects::CfiEntry;
use codegen::listing::isa::{Architecture, Labels};
use codegen::profile::Convention;
use codegen::profile::target::Target;
use codegen::words::error::Result;
use codegen::words::field::out_of_reach;

/// arm64.
pub struct Arm64;

/// The facts that hold under every option and profile.
pub const FACTS: Facts = Facts {
    name: "arm64",
    aliases: &["aarch64"],
    machine: 183,
    e_flags: EFlags::NONE,
    unwinders_jump: true,
    comment: "//",
    function_type: "%function",
    progbits: "%progbits",
    reg_prefix: "",
    assembler: "aarch64-linux-gnu-as",
    align: 8,
    // GNU_PROPERTY_AARCH64_FEATURE_1_AND, BTI and GCS: ELF for the Arm 64-bit Architecture, 6.
    guards: &[ReturnGuard::Signed, ReturnGuard::Scs],
    marks: Some(Marks {
        property: 0xc000_0000,
        features: &[
            Feature { name: "BTI", bit: 1, promise: Promise::Pads },
            Feature { name: "PAC", bit: 2, promise: Promise::Signed },
            Feature { name: "GCS", bit: 4, promise: Promise::Paired },
        ],
    }),
    fill: (&[0x1f, 0x20, 0x03, 0xd5], ""),
    fill_end: false,
    options: option::OPTIONS,
    abi: abi::ABI,
    patched: abi::PATCHED,
    flags: "nzcv",
    relocations: ("R_AARCH64_", reloc::NAMES),
    dynamic: [257, 1027, 1025, 1026],
    mapping: "$x",
    lengths: None,
    objtool: None,
    cie: Cie {
        version: 1,
        column: LINK,
        code_align: 4,
        data_align: -8,
        // DW_CFA_def_cfa sp, 0
        initial: &[0x0c, 31, 0],
        cfa_offset: 0,
        pcrel32: reloc::PREL32,
    },
    threads: &[regs::Thread::El0.name(), regs::Thread::El1.name()],
    clock: ("cntvct_el0", &[]),
    // MOVZ and MOVK.
    number: &[(0, reloc::MOVW_UABS_G0_NC), (4, reloc::MOVW_UABS_G1)],
    low_parts: &[],
};

/// The DWARF column of x30 (AADWARF64, section 4.1).
const LINK: u16 = 30;
/// The column of the return address where x30 has a value of its own: that of x17, which carries nothing at a function's
/// entry. AADWARF64 has column 32 for PC, but libgcc gives it no size and aborts.
const PC: u16 = 17;

impl Architecture for Arm64 {
    const FACTS: &'static Facts = &FACTS;
    const MACHINE: &'static Machine = &emu::MACHINE;

    fn target(convention: &'static Convention, choices: Choices) -> Result<Target> {
        abi::target(convention, choices)
    }

    fn cfi_entry(kind: Kind) -> CfiEntry {
        let plain = CfiEntry { column: LINK, cfa_offset: 0, moved: &[], undefined: false, signal: false };
        match kind {
            _ if kind.jumped_to() || kind.is_callback() || kind.is_in_the_middle() => plain,
            Kind::Return | Kind::Rethook => CfiEntry { undefined: true, ..plain },
            _ if kind.calls_body() => CfiEntry { moved: &[(LINK, regs::X9)], ..plain },
            // The site moved the function's x30 to x9 and put its own return address into x30.
            _ => CfiEntry { column: PC, moved: &[(PC, regs::X30), (LINK, regs::X9)], signal: true, ..plain },
        }
    }
}

impl Labels for Arm64 {
    fn patch_local(r_type: u32, code: &mut [u8], at: usize, target: usize) -> Result<bool> {
        let rel = Relocation { r_type, place: at as u64, value: target as u64, high: 0 };
        let Some(field) = code.get_mut(at..at + 4) else {
            return Err(out_of_reach("a branch", target as i64 - at as i64, 21));
        };
        reloc::relocate(&rel, field)?;
        Ok(false)
    }
}
