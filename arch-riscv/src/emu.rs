//! Data of riscv64 for emulators.

use codegen::arch::machine::{Branch, ControlWord, EmuReg, Goes, Machine, SystemCall, WideVectors};
use codegen::arch::pads::{IndirectBranch, Pad};
use codegen::words::abi::RegSet;

use crate::bare::BARE;
use crate::emulated::LENT;
use crate::moves::{csr, moves};
use crate::regs::{GP, TP, VECTORS, ZERO};

/// MSTATUS.FS: floating point is off at reset.
const MSTATUS_FS: u64 = 0x6000;

/// The machine.
pub const MACHINE: Machine = Machine {
    bare: BARE,
    arch: 8,
    mode: 8,
    cpu_model: 0,
    init: &[(116, MSTATUS_FS)],
    pc: 190,
    flags: None,
    clear_flags: &[],
    pt_regs: &[],
    threads: &[],
    // Rounding up, and three flags. RISC-V unprivileged manual, 20.2.
    control: &[ControlWord { reg: EmuReg { name: "fcsr", id: 43 }, value: 0x6d, other: 0x2d, status: 0x1f }],
    vectors: VECTORS,
    wide: WideVectors { name: "V registers", changes: changes_wide, stores: stores_wide },
    is_vector,
    lent: LENT,
    reserved: RegSet::of(&[ZERO]),
    // Unprivileged ISA, "Eventual Success of Store-Conditional Instructions": only a loop without a trap is sure to end.
    exclusive: (&["lr."], &["sc."]),
    trap: &[0x73, 0x00, 0x10, 0x00],
    short_trap: &[0x02, 0x90],
    step_trap: &[0x73, 0x00, 0x10, 0x00],
    ret: &[0x67, 0x80, 0x00, 0x00],
    // ECALL: arch/riscv/kernel/traps.c.
    system_call: SystemCall { bytes: &[0x73, 0x00, 0x00, 0x00], lost: RegSet::EMPTY },
    return_thunk: "",
    disassembler: ("riscv", "riscv64", &["riscvc"]),
    calls: &[(19, 0, 0), (18, 0, 0), (17, 0, 0)],
    sp_access_align: 1,
    accesses_by_sp: |_| false,
    branch,
    goes,
    moves,
    stripped: |address| address,
    // Zicfiss: sspush ra, sspush t0, sspopchk ra, sspopchk t0, and the short forms. RISC-V unprivileged manual, "Zicfiss".
    unnamed: &[
        (&[0x73, 0x40, 0x10, 0xce], ("sspush", "ra")),
        (&[0x73, 0x40, 0x50, 0xce], ("sspush", "t0")),
        (&[0x73, 0xc0, 0xc0, 0xcd], ("sspopchk", "ra")),
        (&[0x73, 0xc0, 0xc2, 0xcd], ("sspopchk", "t0")),
        (&[0x81, 0x60], ("sspush", "ra")),
        (&[0x81, 0x62], ("sspopchk", "t0")),
    ],
    jumps: &["j", "c.j"],
    relative: true,
    // LPAD with label 0. RISC-V privileged manual, "Landing Pad (Zicfilp)".
    pads: &[Pad {
        bytes: &[0x17, 0x00, 0x00, 0x00],
        lets: &[IndirectBranch::Call, IndirectBranch::Jump, IndirectBranch::Veneer],
    }],
    // RISC-V psABI, "Frame Pointer Convention".
    orc: &[],
    record: -16,
    e_flags_abi: 6,
    red_zone: 0,
    millicode: &["__riscv_save_", "__riscv_restore_"],
    kept_by_platform: RegSet::of(&[GP, TP]),
    entry_sp: &[0],
};

/// RISC-V unprivileged manual, 2.5.1: the hints to the return-address stack; ra and t0 are link registers.
fn branch(mnemonic: &str, operands: &str) -> Option<Branch> {
    let mut operands = operands.split([',', '(', ')', ' ']).filter(|o| !o.is_empty());
    let (first, second) = (operands.next().unwrap_or(""), operands.next().unwrap_or(""));
    let is_register = |o: &str| o.starts_with(|c: char| c.is_ascii_lowercase());
    // Short forms leave out rd, or rs1 after an offset.
    let (rd, rs1) = match mnemonic.trim_start_matches("c.") {
        "ret" => ("zero", "ra"),
        "jr" => ("zero", first),
        "jalr" if is_register(second) => (first, second),
        "jalr" if second.is_empty() => ("ra", first),
        "jalr" => (first, operands.next().unwrap_or("")),
        "jal" if is_register(first) => (first, ""),
        "jal" => ("ra", ""),
        _ => return None,
    };
    let link = |reg: &str| matches!(reg, "ra" | "t0");
    let indirect = !rs1.is_empty() && !link(rs1) && rs1 != "t2";
    let kind = if rd == "zero" { IndirectBranch::Jump } else { IndirectBranch::Call };
    Some(Branch { pushes: link(rd), pops: link(rs1) && rd != rs1, indirect: indirect.then_some(kind) })
}

/// RISC-V unprivileged manual, 2.5; "C" extension, 27.4.
fn goes(mnemonic: &str, operands: &str) -> Goes {
    match mnemonic.trim_start_matches("c.") {
        "ret" | "mret" | "sret" => Goes::Back,
        "jr" if operands == "ra" => Goes::Back,
        "jr" | "jalr" => Goes::Anywhere,
        "j" | "jal" => Goes::To,
        "beq" | "bne" | "blt" | "bge" | "bltu" | "bgeu" => Goes::To,
        "beqz" | "bnez" | "blez" | "bgez" | "bltz" | "bgtz" => Goes::To,
        _ => Goes::On,
    }
}

/// RISC-V V extension, 5: every instruction of it, and none else, begins with a v. Chapter 3: its registers of control, of which
/// Capstone has numbers: vstart, vxsat, vxrm and vcsr.
fn changes_wide(mnemonic: &str, operands: &str) -> bool {
    let controls = ["8", "9", "0xa", "10", "0xf", "15", "vstart", "vxsat", "vxrm", "vcsr"];
    let control = csr(mnemonic, operands).filter(|_| mnemonic != "csrr");
    mnemonic.starts_with('v') || control.is_some_and(|csr| controls.contains(&csr))
}

/// Chapter 7: stores name an address.
fn stores_wide(mnemonic: &str, operands: &str) -> bool {
    mnemonic.starts_with("vs") && operands.contains('(')
}

/// Every instruction of F and D names one of its registers.
fn is_vector(mnemonic: &str, operands: &str) -> bool {
    let mut names = operands.split(|c: char| !c.is_ascii_alphanumeric());
    changes_wide(mnemonic, operands) || names.any(|name| VECTORS.iter().any(|v| v.name == name))
}
