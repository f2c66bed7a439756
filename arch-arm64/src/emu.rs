//! What an emulator must know of arm64.

use codegen::abi::RegSet;
use codegen::machine::{EmuReg, Machine};

use crate::regs::VECTORS;

/// CPACR_EL1.FPEN: let EL1 use the vector registers.
const CPACR_FPEN: u64 = 3 << 20;

/// The machine.
pub const MACHINE: Machine = Machine {
    arch: 2,
    mode: 0,
    // "max": the only model of the engine with pointer authentication and BTI.
    cpu_model: 3,
    init: &[(261, CPACR_FPEN)],
    pc: 260,
    flags: Some((EmuReg { name: "nzcv", id: 3 }, 0xf000_0000)),
    control: &[EmuReg { name: "fpcr", id: 291 }, EmuReg { name: "fpsr", id: 292 }],
    vectors: VECTORS,
    vector_bytes: 16,
    vector_args: &[0, 1, 2, 3, 4, 5, 6, 7],
    vector_rets: &[0, 1, 2, 3],
    vector_callee_saved: &[8, 9, 10, 11, 12, 13, 14, 15],
    reserved: RegSet::EMPTY,
    trap: &[0x00, 0x00, 0x20, 0xd4],
    ret: &[0xc0, 0x03, 0x5f, 0xd6],
    disassembler: ("arm64", "arm", &[]),
    dynamic: [257, 1027, 1025, 1026],
    calls: &[(283, 0, 0), (282, 0, 0)],
    e_flags_abi: 0,
    entry_sp: &[0],
};
