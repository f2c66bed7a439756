//! Data of arm64 for emulators.

use codegen::arch::machine::{Branch, ControlWord, EmuReg, Goes, Machine, SystemCall, WideVectors};
use codegen::arch::pads::{IndirectBranch, Pad};
use codegen::words::abi::RegSet;

use crate::bare::BARE;
use crate::emulated::LENT;
use crate::moves::moves;
use crate::regs::{Thread, VECTORS, X30};

/// CPACR_EL1.FPEN: let EL1 use the vector registers.
const CPACR_FPEN: u64 = 3 << 20;

/// The machine.
pub const MACHINE: Machine = Machine {
    bare: BARE,
    arch: 2,
    mode: 0,
    // "max": the only model of the engine with pointer authentication and BTI.
    cpu_model: 3,
    init: &[(261, CPACR_FPEN)],
    pc: 260,
    flags: Some((EmuReg { name: "nzcv", id: 3 }, 0xf000_0000)),
    clear_flags: &[],
    // arch/arm64/kernel/ptrace.c, regoffset_table.
    pt_regs: &[("x30", X30), ("lr", X30)],
    threads: &[EmuReg { name: Thread::El0.name(), id: 262 }, EmuReg { name: Thread::El1.name(), id: 264 }],
    // FPCR: DN, FZ, rounding up. FPSR: QC, IXC, IOC. Arm ARM C5.2.
    control: &[
        ControlWord { reg: EmuReg { name: "fpcr", id: 291 }, value: 0x0340_0000, other: 0x0380_0000, status: 0 },
        ControlWord { reg: EmuReg { name: "fpsr", id: 292 }, value: 0x0800_0011, other: 0x0800_0011, status: u64::MAX },
    ],
    vectors: VECTORS,
    wide: WideVectors { name: "SVE and SME registers", changes: changes_wide, stores: stores_wide },
    is_vector: changes_wide,
    lent: LENT,
    reserved: RegSet::EMPTY,
    // Arm ARM, "Synchronization and semaphores": a return from an exception clears the local monitor.
    exclusive: (&["ldxr", "ldaxr", "ldxp", "ldaxp"], &["stxr", "stlxr", "stxp", "stlxp", "clrex"]),
    trap: &[0x00, 0x00, 0x20, 0xd4],
    short_trap: &[],
    step_trap: &[0xc0, 0x00, 0x20, 0xd4],
    ret: &[0xc0, 0x03, 0x5f, 0xd6],
    // `svc #0`: arch/arm64/kernel/syscall.c.
    system_call: SystemCall { bytes: &[0x01, 0x00, 0x00, 0xd4], lost: RegSet::EMPTY },
    return_thunk: "",
    disassembler: ("arm64", "arm", &[]),
    calls: &[(283, 0, 0), (282, 0, 0), (280, 0, 0)],
    // Arm ARM D1.8.2: SCTLR_EL1.SA, which kernels set for themselves and for processes. The engine has it off.
    sp_access_align: 16,
    accesses_by_sp: |operands| operands.contains("[sp"),
    branch,
    goes,
    moves,
    stripped,
    unnamed: &[],
    jumps: &["b"],
    relative: false,
    // BTI c, BTI j, BTI jc; PACIASP and PACIBSP, which are as BTI c where Linux runs (SCTLR_EL1.BT0). Arm ARM D8.4.
    pads: &[
        Pad { bytes: &[0x3f, 0x23, 0x03, 0xd5], lets: &[IndirectBranch::Call, IndirectBranch::Veneer] },
        Pad { bytes: &[0x7f, 0x23, 0x03, 0xd5], lets: &[IndirectBranch::Call, IndirectBranch::Veneer] },
        Pad { bytes: &[0x5f, 0x24, 0x03, 0xd5], lets: &[IndirectBranch::Call, IndirectBranch::Veneer] },
        Pad { bytes: &[0x9f, 0x24, 0x03, 0xd5], lets: &[IndirectBranch::Jump, IndirectBranch::Veneer] },
        Pad {
            bytes: &[0xdf, 0x24, 0x03, 0xd5],
            lets: &[IndirectBranch::Call, IndirectBranch::Jump, IndirectBranch::Veneer],
        },
    ],
    orc: &[],
    record: 0,
    e_flags_abi: 0,
    red_zone: 0,
    millicode: &[],
    // x18 is scratch in Linux's user space.
    kept_by_platform: RegSet::EMPTY,
    entry_sp: &[0],
};

/// Arm ARM C6.2 (BL, BLR, BR, RET) and D8.4: what PSTATE.BTYPE each leaves.
fn branch(mnemonic: &str, operands: &str) -> Option<Branch> {
    let branch = match (mnemonic, operands) {
        ("bl", _) => Branch { pushes: true, ..Branch::default() },
        ("blr", _) => Branch { pushes: true, indirect: Some(IndirectBranch::Call), ..Branch::default() },
        ("br", "x16" | "x17") => Branch { indirect: Some(IndirectBranch::Veneer), ..Branch::default() },
        ("br", _) => Branch { indirect: Some(IndirectBranch::Jump), ..Branch::default() },
        ("ret", _) => Branch { pops: true, ..Branch::default() },
        _ => return None,
    };
    Some(branch)
}

/// Arm ARM, XPACI: bit 55 in all bits above an address of 48.
fn stripped(address: u64) -> u64 {
    const SIGNATURE: u64 = 0xffff_0000_0000_0000;
    if address >> 55 & 1 == 1 { address | SIGNATURE } else { address & !SIGNATURE }
}

/// Arm ARM C6.2.
fn goes(mnemonic: &str, _: &str) -> Goes {
    match mnemonic {
        "b" | "bl" | "cbz" | "cbnz" | "tbz" | "tbnz" => Goes::To,
        _ if ["b.", "bc."].iter().any(|start| mnemonic.starts_with(start)) => Goes::To,
        // With pointer authentication they have letters behind.
        _ if mnemonic.starts_with("blr") || (mnemonic.starts_with("br") && mnemonic != "brk") => Goes::Anywhere,
        _ if ["ret", "eret"].iter().any(|start| mnemonic.starts_with(start)) => Goes::Back,
        _ => Goes::On,
    }
}

/// Arm ARM, C1.2.5 and B1.2.2: whatever writes a SIMD register clears the bits of its SVE register above 128. C5.2 and C6.2: FPMR,
/// SVCR, SMSTART and SMSTOP say how vectors are used. Stores are among those that are taken for writes, so as to decide too little
/// rather than too much.
fn changes_wide(mnemonic: &str, operands: &str) -> bool {
    let of_mode = || ["s3_3_c4_c4_2", "fpmr", "svcr"].iter().any(|name| operands.to_lowercase().contains(name));
    if ["smstart", "smstop", "setffr"].contains(&mnemonic) || mnemonic == "msr" && of_mode() {
        return true;
    }
    let mut names = operands.split(|c: char| !c.is_ascii_alphanumeric());
    names.any(|name| {
        let (kind, number) = name.split_at(name.len().min(1));
        "bhsdqvzp".contains(kind) && number.parse::<u8>().is_ok()
    })
}

/// Arm ARM, C4.1: the mnemonics of all stores begin so.
fn stores_wide(mnemonic: &str, operands: &str) -> bool {
    mnemonic.starts_with("st") && changes_wide(mnemonic, operands)
}
