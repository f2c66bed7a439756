//! What an emulator must know of riscv64.

use codegen::abi::RegSet;
use codegen::machine::{EmuReg, Machine};

use crate::regs::{VECTORS, ZERO};

/// MSTATUS.FS: floating point is off at reset.
const MSTATUS_FS: u64 = 0x6000;

/// The machine.
pub const MACHINE: Machine = Machine {
    arch: 8,
    mode: 8,
    cpu_model: 0,
    init: &[(116, MSTATUS_FS)],
    pc: 190,
    flags: None,
    control: &[EmuReg { name: "fcsr", id: 43 }],
    vectors: VECTORS,
    vector_bytes: 8,
    vector_args: &[10, 11, 12, 13, 14, 15, 16, 17],
    vector_rets: &[10, 11],
    vector_callee_saved: &[8, 9, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27],
    reserved: RegSet::of(&[ZERO]),
    trap: &[0x73, 0x00, 0x10, 0x00],
    ret: &[0x67, 0x80, 0x00, 0x00],
    disassembler: ("riscv", "riscv64", &["riscvc"]),
    dynamic: [2, 3, 2, 5],
    calls: &[(19, 0, 0), (18, 0, 0), (17, 0, 0)],
    e_flags_abi: 6,
    entry_sp: &[0],
};
