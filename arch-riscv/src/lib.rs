//! The riscv64 backend.

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

use codegen::arch::facts::{Cie, Facts, Feature, LengthRelocs, Marks, Promise};
use codegen::arch::harden::ReturnGuard;
use codegen::arch::machine::Machine;
use codegen::arch::patch::Relocation;
use codegen::ask::option::Choices;
use codegen::ask::spec::Kind;
use codegen::effect::effects::CfiEntry;
use codegen::listing::isa::{Architecture, Labels};
use codegen::profile::Convention;
use codegen::profile::target::Target;
use codegen::words::error::{Error, Result};

/// riscv64.
pub struct Riscv64;

/// The facts that hold under every option and profile.
pub const FACTS: Facts = Facts {
    name: "riscv64",
    aliases: &["riscv", "rv64"],
    machine: 243,
    e_flags: abi::E_FLAGS,
    unwinders_jump: false,
    comment: "#",
    function_type: "@function",
    progbits: "@progbits",
    reg_prefix: "",
    assembler: "riscv64-linux-gnu-as",
    align: 4,
    // GNU_PROPERTY_RISCV_FEATURE_1_AND, CFI_LP_UNLABELED and CFI_SS: RISC-V ELF psABI, "Program Property".
    guards: &[ReturnGuard::Pushed, ReturnGuard::Scs],
    marks: Some(Marks {
        property: 0xc000_0000,
        features: &[
            Feature { name: "Zicfilp", bit: 1, promise: Promise::Pads },
            Feature { name: "Zicfiss", bit: 2, promise: Promise::Guarded },
        ],
    }),
    fill: (&[0x01, 0x00], ""),
    fill_end: true,
    options: option::OPTIONS,
    abi: abi::ABI,
    patched: abi::PATCHED,
    flags: "",
    relocations: ("R_RISCV_", reloc::NAMES),
    dynamic: [2, 3, 2, 5],
    mapping: "$x",
    lengths: Some(&LengthRelocs {
        range: (reloc::ADD32, reloc::SUB32),
        advance: [(reloc::SET6, reloc::SUB6), (reloc::SET8, reloc::SUB8), (reloc::SET16, reloc::SUB16)],
    }),
    objtool: None,
    cie: Cie {
        version: 3,
        column: LINK,
        code_align: 1,
        data_align: -4,
        // DW_CFA_def_cfa_register sp
        initial: &[0x0d, 2],
        cfa_offset: 0,
        pcrel32: reloc::PCREL32,
    },
    threads: &["tp"],
    clock: ("rdtime", &[]),
    // LUI and ADDIW.
    number: &[(0, reloc::HI20), (4, reloc::LO12_I)],
    low_parts: &[reloc::PCREL_LO12_I, reloc::PCREL_LO12_S],
};

/// The DWARF columns of ra and t0 (RISC-V psABI, "DWARF Register Numbers").
const LINK: u16 = 1;
const T0: u16 = 5;

impl Architecture for Riscv64 {
    const FACTS: &'static Facts = &FACTS;
    const MACHINE: &'static Machine = &emu::MACHINE;

    fn target(convention: &'static Convention, choices: Choices) -> Result<Target> {
        abi::target(convention, choices)
    }

    fn cfi_entry(kind: Kind) -> CfiEntry {
        let column = if kind.names_body()
            || matches!(kind, Kind::Stub | Kind::StubGraph | Kind::Return | Kind::Rethook | Kind::Sled)
        {
            LINK
        } else {
            T0
        };
        CfiEntry { column, cfa_offset: 0, moved: &[], undefined: kind.returned_to(), signal: column == T0 }
    }
}

impl Labels for Riscv64 {
    fn patch_local(r_type: u32, code: &mut [u8], at: usize, target: usize) -> Result<bool> {
        if ![reloc::BRANCH, reloc::JAL].contains(&r_type) {
            return Ok(true);
        }
        let distance = target as i64 - at as i64;
        let rel = Relocation { r_type, place: at as u64, value: target as u64, high: 0 };
        let Some(field) = code.get_mut(at..at + 4) else {
            return Err(Error::unencodable(format_args!(
                "a branch lies outside the code, {distance} bytes from its label"
            )));
        };
        reloc::relocate(&rel, field)?;
        Ok(true)
    }

    fn opaque_after(r_type: u32) -> bool {
        matches!(r_type, reloc::BRANCH | reloc::JAL | reloc::PCREL_HI20 | reloc::CALL_PLT)
    }
}
