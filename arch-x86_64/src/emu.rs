//! Data of x86-64 for emulators.

use codegen::arch::machine::{
    Branch, ControlWord, EmuReg, Goes, Machine, Orc, OrcEntry, OrcFp, SystemCall, WideVectors,
};
use codegen::arch::pads::{IndirectBranch, Pad};
use codegen::words::abi::{Reg, RegSet};

use crate::bare::BARE;
use crate::emulated::{AC, FLAGS, LENT};
use crate::moves::moves;
use crate::regs::{R10, R11, R13, RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP, VECTORS};

/// CF, PF, AF, ZF, SF, OF: what arithmetic sets. DF and AC belong to the caller's environment.
const ARITHMETIC: u64 = 0x8d5;

/// x86-64 psABI, 3.2.1: DF is clear at a function's entry.
const DF: u64 = 1 << 10;

/// The machine.
pub const MACHINE: Machine = Machine {
    bare: BARE,
    arch: 4,
    mode: 8,
    cpu_model: 19,
    init: &[],
    pc: 41,
    flags: Some((EmuReg { name: "rflags", id: FLAGS }, ARITHMETIC)),
    clear_flags: &[("df", DF), ("ac", AC)],
    // arch/x86/kernel/ptrace.c, regoffset_table.
    pt_regs: &[("ax", RAX), ("bx", RBX), ("cx", RCX), ("dx", RDX), ("si", RSI), ("di", RDI), ("bp", RBP), ("sp", RSP)],
    threads: &[EmuReg { name: "fs", id: 250 }],
    // Rounding up or down, denormals as zeros, double precision; all exceptions masked. Intel SDM volume 1, 8.1.5 and 10.2.3.
    control: &[
        ControlWord { reg: EmuReg { name: "mxcsr", id: 249 }, value: 0xbfc0, other: 0xdfc0, status: 0x3f },
        ControlWord { reg: EmuReg { name: "fpcw", id: 246 }, value: 0x0a7f, other: 0x067f, status: 0 },
    ],
    vectors: VECTORS,
    wide: WideVectors { name: "ymm, zmm and mask registers", changes: changes_wide, stores: stores_wide },
    is_vector,
    lent: LENT,
    reserved: RegSet::EMPTY,
    exclusive: (&[], &[]),
    trap: &[0xcc],
    short_trap: &[],
    step_trap: &[0xcc],
    ret: &[0xc3],
    // SYSCALL: x86-64 psABI, A.2.1.
    system_call: SystemCall { bytes: &[0x0f, 0x05], lost: RegSet::of(&[RCX, R11]) },
    return_thunk: "__x86_return_thunk",
    disassembler: ("x86", "mode64", &[]),
    calls: &[(4, 1, -4), (4, 2, -4)],
    sp_access_align: 1,
    accesses_by_sp: |_| false,
    branch,
    goes,
    moves,
    stripped: |address| address,
    unnamed: &[],
    jumps: &["jmp"],
    relative: false,
    // ENDBR64. Intel SDM volume 1, 17.3.
    pads: &[Pad {
        bytes: &[0xf3, 0x0f, 0x1e, 0xfa],
        lets: &[IndirectBranch::Call, IndirectBranch::Jump, IndirectBranch::Veneer],
    }],
    orc: &[
        Orc {
            name: "6.12",
            header: Some(*b"\xfe\x5d\x32\xbf\x58\x1b\xd6\x3b\x2c\xa9\xa5\xc6\x5b\xa5\xa6\x25\xea\xb3\xfe\x24"),
            bytes: 6,
            read: |entry| orc(entry, &ORC_6_12),
        },
        Orc {
            name: "7.3",
            header: Some(*b"\x13\x7c\x36\xad\x76\x27\xc4\xdd\x55\x93\x21\x76\xbb\x0e\xcd\xbd\x50\x41\xfc\x82"),
            bytes: 6,
            read: |entry| orc(entry, &ORC_7_3),
        },
        Orc { name: "6.1", header: None, bytes: 6, read: |entry| orc(entry, &ORC_6_1) },
    ],
    record: 0,
    e_flags_abi: 0,
    // x86-64 psABI, 3.2.2.
    red_zone: 128,
    millicode: &["__sse_savms64", "__sse_resms64", "__avx_savms64", "__avx_resms64"],
    kept_by_platform: RegSet::EMPTY,
    entry_sp: &[8, 0],
};

/// Intel SDM volume 1, 6.4 and 17.3: a NOTRACK jump needs no pad.
fn branch(mnemonic: &str, operands: &str) -> Option<Branch> {
    let text = format!("{mnemonic} {operands}");
    let (mnemonic, operands) = without_prefix(&text);
    // A jump behind NOTRACK needs no landing pad.
    let indirect = !is_number(operands) && !text.starts_with("notrack ");
    let branch = match mnemonic {
        "call" => Branch { pushes: true, indirect: indirect.then_some(IndirectBranch::Call), ..Branch::default() },
        "jmp" if indirect => Branch { indirect: Some(IndirectBranch::Jump), ..Branch::default() },
        "ret" => Branch { pops: true, ..Branch::default() },
        _ => return None,
    };
    Some(branch)
}

/// Intel SDM volume 2. Capstone has NOTRACK, BND and REP before an instruction in its mnemonic.
fn without_prefix(text: &str) -> (&str, &str) {
    let prefixed = |text: &&str| ["notrack ", "bnd ", "repz ", "repne ", "rep "].iter().any(|p| text.starts_with(p));
    let mut text = text;
    while let Some((_, rest)) = Some(text).filter(prefixed).and_then(|text| text.split_once(' ')) {
        text = rest;
    }
    let (mnemonic, operands) = text.split_once(' ').unwrap_or((text, ""));
    (mnemonic, operands.trim_start())
}

/// The same.
fn goes(mnemonic: &str, operands: &str) -> Goes {
    let text = format!("{mnemonic} {operands}");
    let (mnemonic, operands) = without_prefix(&text);
    let jumps = ["j", "call", "loop", "xbegin"].iter().any(|start| mnemonic.starts_with(start));
    match mnemonic {
        "ljmp" | "lcall" => Goes::Anywhere,
        _ if ["ret", "iret"].iter().any(|start| mnemonic.starts_with(start)) => Goes::Back,
        _ if jumps && is_number(operands) => Goes::To,
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

/// Capstone has the destination first.
fn stores_wide(mnemonic: &str, operands: &str) -> bool {
    let to_memory = || operands.split(',').next().is_some_and(|first| first.contains('['));
    mnemonic.starts_with("xsave") || changes_wide(mnemonic, operands) && to_memory()
}

/// All of SSE and AVX names a register; the x87 and the instructions that store or load all state have an f or an x.
fn is_vector(mnemonic: &str, operands: &str) -> bool {
    operands.contains("mm") || ["f", "xsave", "xrstor", "emms"].iter().any(|start| mnemonic.starts_with(start))
}

/// The numbers that `struct orc_entry` has for where something is.
struct OrcNumbers {
    /// CFA itself.
    prev_sp: u8,
    /// Registers.
    registers: &'static [(u8, Reg)],
    /// The type of an entry for calls, and the bits that it is in: with the others, no caller is told.
    call: (u8, u8),
}

/// ORC_REG_* (kernel 6.12, arch/x86/include/asm/orc_types.h).
const ORC_6_12: OrcNumbers =
    OrcNumbers { prev_sp: 1, registers: &[(2, RDX), (3, RDI), (4, RBP), (5, RSP), (6, R10), (7, R13)], call: (2, 7) };
/// The numbers of kernel 6.1, where types are numbered from the call's, in two bits, and the third marks the end of stacks.
const ORC_6_1: OrcNumbers = OrcNumbers { call: (0, 7), ..ORC_6_12 };
/// The numbers of kernel 7.3.
const ORC_7_3: OrcNumbers = OrcNumbers {
    prev_sp: 8,
    registers: &[(1, RAX), (2, RDX), (3, RSP), (4, RBP), (5, RDI), (6, R10), (7, R13)],
    call: (2, 7),
};

/// `struct orc_entry` (kernel arch/x86/include/asm/orc_types.h). Entries of other types than that for calls lead to a saved
/// `pt_regs`, or to nothing.
fn orc(entry: &[u8], numbers: &OrcNumbers) -> Option<OrcEntry> {
    const UNDEFINED: u8 = 0;
    let &[sp_low, sp_high, bp_low, bp_high, bases, kind] = entry else { return None };
    let (_, base) = *numbers.registers.iter().find(|(number, _)| *number == bases & 15)?;
    let offset = |low, high| i64::from(i16::from_le_bytes([low, high]));
    let fp = match bases >> 4 {
        UNDEFINED => OrcFp::Kept,
        number if number == numbers.prev_sp => OrcFp::At(offset(bp_low, bp_high)),
        _ => OrcFp::Elsewhere,
    };
    let (call, bits) = numbers.call;
    // The call pushed the return address.
    (kind & bits == call).then_some(OrcEntry { cfa: (base, offset(sp_low, sp_high)), returns: -8, fp })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel's header says of `push %rbp; mov %rsp, %rbp`: CFA is sp+8 at the entry, sp+16 behind the push, bp+16
    /// behind the move; rbp is undefined, then 16 below the previous SP.
    /// As Capstone writes `f3 c3`, `f2 c3`, `3e ff e0`, `f2 ff d0` and `f2 e9`.
    #[test]
    fn prefixes_are_no_other_branches() {
        for ret in ["ret", "repz ret", "bnd ret"] {
            assert_eq!((branch(ret, "").unwrap().pops, goes(ret, "")), (true, Goes::Back), "{ret}");
        }
        let jump = branch("notrack jmp", "rax").unwrap_or_default();
        assert_eq!((jump.indirect, goes("notrack jmp", "rax")), (None, Goes::Anywhere));
        assert_eq!(goes("notrack", "jmp rax"), Goes::Anywhere);
        assert_eq!(branch("bnd call", "rax").unwrap().indirect, Some(IndirectBranch::Call));
        assert_eq!((branch("bnd jmp", "0x10"), goes("bnd jmp", "0x10")), (None, Goes::To));
    }

    #[test]
    fn an_orc_entry_says_where_cfa_and_rbp_are() {
        let entry = |cfa, fp| Some(OrcEntry { cfa, returns: -8, fp });
        let orc = |entry: &[u8]| orc(entry, &ORC_6_12);
        assert_eq!(orc(&[8, 0, 0, 0, 0x05, 2]), entry((RSP, 8), OrcFp::Kept));
        assert_eq!(orc(&[16, 0, 0xf0, 0xff, 0x15, 2]), entry((RSP, 16), OrcFp::At(-16)));
        assert_eq!(orc(&[16, 0, 0xf0, 0xff, 0x14, 2]), entry((RBP, 16), OrcFp::At(-16)));
        assert_eq!(orc(&[16, 0, 0xf0, 0xff, 0x24, 2]), entry((RBP, 16), OrcFp::Elsewhere));
        assert_eq!(orc(&[0, 1, 0, 0, 0x06, 2 | 8]), entry((R10, 256), OrcFp::Kept), "the signal bit says nothing here");
    }

    /// The same, as 7.3 writes it.
    #[test]
    fn a_newer_kernel_has_other_numbers() {
        let entry = |cfa, fp| Some(OrcEntry { cfa, returns: -8, fp });
        let orc = |entry: &[u8]| orc(entry, &ORC_7_3);
        assert_eq!(orc(&[8, 0, 0, 0, 0x03, 2]), entry((RSP, 8), OrcFp::Kept));
        assert_eq!(orc(&[16, 0, 0xf0, 0xff, 0x83, 2]), entry((RSP, 16), OrcFp::At(-16)));
        assert_eq!(orc(&[16, 0, 0xf0, 0xff, 0x14, 2]), entry((RBP, 16), OrcFp::Elsewhere));
        assert_eq!(orc(&[8, 0, 0, 0, 0x09, 2]), None);
    }

    /// The same, as 6.1 writes it: `struct orc_entry` has `type:2` and `end:1`, and UNWIND_HINT_TYPE_CALL is 0.
    #[test]
    fn an_older_kernel_has_other_types() {
        let entry = |cfa, fp| Some(OrcEntry { cfa, returns: -8, fp });
        let orc = |entry: &[u8]| orc(entry, &ORC_6_1);
        assert_eq!(orc(&[8, 0, 0, 0, 0x05, 0]), entry((RSP, 8), OrcFp::Kept));
        assert_eq!(orc(&[16, 0, 0xf0, 0xff, 0x15, 0]), entry((RSP, 16), OrcFp::At(-16)));
        for other in [[8, 0, 0, 0, 0x05, 1], [8, 0, 0, 0, 0x05, 2], [8, 0, 0, 0, 0x05, 4], [0; 6]] {
            assert_eq!(orc(&other), None, "{other:?}");
        }
    }

    #[test]
    fn what_is_no_call_says_nothing() {
        let orc = |entry: &[u8]| orc(entry, &ORC_6_12);
        for entry in [[8, 0, 0, 0, 0x05, 3], [8, 0, 0, 0, 0x05, 0], [8, 0, 0, 0, 0x01, 2], [0; 6]] {
            assert_eq!(orc(&entry), None, "{entry:?}");
        }
        assert_eq!(orc(&[8, 0, 0, 0, 0x05]), None);
    }
}
