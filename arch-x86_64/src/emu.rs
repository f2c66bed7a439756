//! What an emulator must know of x86-64.

use codegen::abi::RegSet;
use codegen::machine::{EmuReg, Machine};

use crate::regs::VECTORS;

/// CF, PF, AF, ZF, SF, OF: what arithmetic sets. DF and AC belong to the caller's environment.
const ARITHMETIC: u64 = 0x8d5;

/// The machine.
pub const MACHINE: Machine = Machine {
    arch: 4,
    mode: 8,
    cpu_model: 19,
    init: &[],
    pc: 41,
    flags: Some((EmuReg { name: "rflags", id: 253 }, ARITHMETIC)),
    control: &[EmuReg { name: "mxcsr", id: 249 }, EmuReg { name: "fpcw", id: 246 }],
    vectors: VECTORS,
    vector_bytes: 16,
    vector_args: &[0, 1, 2, 3, 4, 5, 6, 7],
    vector_rets: &[0, 1],
    vector_callee_saved: &[],
    reserved: RegSet::EMPTY,
    trap: &[0xcc],
    ret: &[0xc3],
    disassembler: ("x86", "mode64", &[]),
    dynamic: [1, 8, 6, 7],
    calls: &[(4, 1, -4), (4, 2, -4)],
    e_flags_abi: 0,
    entry_sp: &[8, 0],
};
