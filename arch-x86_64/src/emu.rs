//! What an emulator must know of x86-64.

use codegen::abi::RegSet;
use codegen::machine::{Branch, EmuReg, Goes, Lands, Machine, Pad};

use crate::regs::VECTORS;

/// CF, PF, AF, ZF, SF, OF: what arithmetic sets. DF and AC belong to the caller's environment.
const ARITHMETIC: u64 = 0x8d5;

/// x86-64 psABI, 3.2.1: DF is clear at a function's entry. AC lets kernel code at user memory: it is set in short
/// sequences only, none of which calls.
const DF: u64 = 1 << 10;
const AC: u64 = 1 << 18;

/// The machine.
pub const MACHINE: Machine = Machine {
    arch: 4,
    mode: 8,
    cpu_model: 19,
    init: &[],
    pc: 41,
    flags: Some((EmuReg { name: "rflags", id: 253 }, ARITHMETIC)),
    clear_flags: DF | AC,
    control: &[EmuReg { name: "mxcsr", id: 249 }, EmuReg { name: "fpcw", id: 246 }],
    vectors: VECTORS,
    wide: ("ymm, zmm and mask registers", changes_wide),
    is_vector,
    reserved: RegSet::EMPTY,
    trap: &[0xcc],
    ret: &[0xc3],
    return_thunk: "__x86_return_thunk",
    disassembler: ("x86", "mode64", &[]),
    calls: &[(4, 1, -4), (4, 2, -4)],
    branch,
    goes,
    // ENDBR64. Intel SDM volume 1, 17.3.
    pads: &[Pad { bytes: &[0xf3, 0x0f, 0x1e, 0xfa], lets: &[Lands::Call, Lands::Jump, Lands::Veneer] }],
    record: 0,
    e_flags_abi: 0,
    entry_sp: &[8, 0],
};

/// Intel SDM volume 1, 6.4 and 17.3: a NOTRACK jump needs no pad.
fn branch(mnemonic: &str, operands: &str) -> Option<Branch> {
    let indirect = !is_number(operands);
    let branch = match mnemonic {
        "call" => Branch { pushes: true, lands: indirect.then_some(Lands::Call), ..Branch::default() },
        "jmp" if indirect => Branch { lands: Some(Lands::Jump), ..Branch::default() },
        "ret" => Branch { pops: true, ..Branch::default() },
        _ => return None,
    };
    Some(branch)
}

/// Intel SDM volume 2. Capstone has NOTRACK and BND before an instruction in its mnemonic.
fn goes(mnemonic: &str, operands: &str) -> Goes {
    let text = format!("{mnemonic} {operands}");
    let text = text.trim_start_matches("notrack ").trim_start_matches("bnd ");
    let (mnemonic, operands) = text.split_once(' ').unwrap_or((text, ""));
    let jumps = ["j", "call", "loop", "xbegin"].iter().any(|start| mnemonic.starts_with(start));
    match mnemonic {
        "ljmp" | "lcall" => Goes::Anywhere,
        _ if ["ret", "iret"].iter().any(|start| mnemonic.starts_with(start)) => Goes::Back,
        _ if jumps && is_number(operands.trim_start()) => Goes::To,
        _ if jumps => Goes::Anywhere,
        _ => Goes::On,
    }
}

/// Capstone writes numbers below ten without 0x.
fn is_number(operands: &str) -> bool {
    operands.starts_with(|c: char| c.is_ascii_digit())
}

/// Intel SDM volume 1, 14.8: what has no VEX or EVEX prefix leaves the bits above 128 as they are. XRSTOR loads them.
fn changes_wide(mnemonic: &str, _: &str) -> bool {
    ["v", "k", "xrstor"].iter().any(|start| mnemonic.starts_with(start))
}

/// All of SSE and AVX names a register; the x87 and the instructions that store or load all state have an f or an x.
fn is_vector(mnemonic: &str, operands: &str) -> bool {
    operands.contains("mm") || ["f", "xsave", "xrstor", "emms"].iter().any(|start| mnemonic.starts_with(start))
}
