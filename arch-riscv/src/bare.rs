//! riscv64 on a bare machine of QEMU: RISC-V privileged manual, "Supervisor-Level ISA", "Sv48", "Zicfilp", "Zicfiss".

use codegen::arch::bare::{Bare, Boot, Cause, Code, Entered, Exception, Guard, Page, Program, Qemu, Wide};
use codegen::arch::pads::IndirectBranch;

use crate::accesses::decode;
use crate::regs::T1;

/// In machine mode: all memory and all exceptions are the supervisor's.
const BOOT: Code = Code::Words(&[
    (0x0000_0f97, "auipc t6, 0"),
    (0xfff0_0293, "li t0, -1"),
    (0x3b02_9073, "csrw pmpaddr0, t0"),
    (0x01f0_0293, "li t0, 31"),
    (0x3a02_9073, "csrw pmpcfg0, t0"),
    (0xfff0_0293, "li t0, -1"),
    (0x3022_9073, "csrw medeleg, t0"),
    (0x3062_9073, "csrw mcounteren, t0"),
    (0x1062_9073, "csrw scounteren, t0"),
    (0x700f_b283, "ld t0, 0x700(t6)"),
    (0x30a2_9073, "csrw menvcfg, t0"),
    (0x708f_b283, "ld t0, 0x708(t6)"),
    (0x1802_9073, "csrw satp, t0"),
    (0x710f_b283, "ld t0, 0x710(t6)"),
    (0x1052_9073, "csrw stvec, t0"),
    (0x718f_b283, "ld t0, 0x718(t6)"),
    (0x3002_9073, "csrw mstatus, t0"),
    // Vectors have a type, so that instructions with them are none that do not exist.
    (0x0d80_72d7, "vsetvli t0, zero, e64, m1, ta, ma"),
    (0x720f_b283, "ld t0, 0x720(t6)"),
    (0x3412_9073, "csrw mepc, t0"),
    (0x3020_0073, "mret"),
]);

/// Where a CPU waits: LPAD with label 0, which is this AUIPC.
const STUB: Code = Code::Words(&[(0x0000_0017, "auipc zero, 0"), (0x0000_0013, "nop"), (0xff9f_f06f, "j . - 8")]);

/// Sets `ssp`.
const SET_SSP: Code = Code::Words(&[(0x0115_1073, "csrw 0x011, a0"), (0xfc1f_f06f, "j . - 0x40")]);

/// Sets VTYPE, and VL to the most that fits.
const SET_VTYPE: Code = Code::Words(&[(0x80a0_7557, "vsetvl a0, zero, a0"), (0xfb1f_f06f, "j . - 0x50")]);

/// Sets VCSR.
const SET_VCSR: Code = Code::Words(&[(0x00f5_1073, "csrw vcsr, a0"), (0xfa9f_f06f, "j . - 0x58")]);

/// Calls and jumps by t1, which expect a landing pad.
const ENTER: Code = Code::Words(&[(0x0003_00e7, "jalr t1"), (0x0003_0067, "jr t1")]);

/// Where exceptions come to.
const TRAP: Code = Code::Words(&[(0x0000_0013, "nop"), (0x1020_0073, "sret")]);

/// MSTATUS: MPP is supervisor mode, FS and VS are dirty.
const MSTATUS: u64 = 1 << 11 | 3 << 13 | 3 << 9;
/// MENVCFG: LPE and SSE.
const PROTECTED: u64 = 1 << 2 | 1 << 3;
/// SATP.MODE: Sv48.
const SV48: u64 = 9 << 60;
/// Bits of page table entries: V; R, W, X; A and D.
const V: u64 = 1;
const R: u64 = 1 << 1;
const W: u64 = 1 << 2;
const X: u64 = 1 << 3;
const USED: u64 = 3 << 6;

/// The machine.
pub const BARE: Option<&Bare> = Some(&Bare {
    program: Program::Qemu(Qemu {
        program: "qemu-system-riscv64",
        arguments: &["-M", "virt", "-cpu", "max,vlen=512", "-bios", "none"],
        starts_there: true,
    }),
    ram: 0x8000_0000,
    memory: 1 << 30,
    start: 0x8000_0000,
    boot: &[(0, BOOT)],
    parameters: (0x700, parameters),
    around: &[(0, STUB), (0x20, ENTER), (0x40, SET_SSP), (0x50, SET_VTYPE), (0x58, SET_VCSR), (0x100, TRAP)],
    park: 4,
    trap: 0x100,
    entered: &[
        Entered { by: IndirectBranch::Call, at: 0x20, reg: T1 },
        Entered { by: IndirectBranch::Jump, at: 0x24, reg: T1 },
    ],
    setters: &[("ssp", 0x40), ("vtype", 0x50), ("vcsr", 0x58)],
    names: &[("s0", "fp")],
    parts: &[],
    resumes: None,
    split: false,
    table: |at| at >> 2 | V,
    page,
    syndrome: &["scause", "sepc", "stval"],
    cause,
    enforces: &[Guard::LandingPad, Guard::Checked],
    shadow_stack: "ssp",
    wide: WIDE,
    lengths: None,
    decode,
});

/// The V extension, chapter 3: vector registers, and what VSETVL and instructions with vectors set. All of vector registers can be set,
/// of VTYPE what leaves LMUL 1, of VCSR all that there is; VL follows from VTYPE, and VSTART is 0 but in traps.
#[rustfmt::skip]
const WIDE: &[Wide] = &[
    v("v0"), v("v1"), v("v2"), v("v3"), v("v4"), v("v5"), v("v6"), v("v7"), v("v8"), v("v9"), v("v10"), v("v11"),
    v("v12"), v("v13"), v("v14"), v("v15"), v("v16"), v("v17"), v("v18"), v("v19"), v("v20"), v("v21"), v("v22"),
    v("v23"), v("v24"), v("v25"), v("v26"), v("v27"), v("v28"), v("v29"), v("v30"), v("v31"), control("vtype", 0xd8),
    control("vcsr", 7), control("vl", 0), control("vstart", 0),
];

const fn v(name: &'static str) -> Wide {
    Wide { name, bytes: 64, known: 0, set: u64::MAX }
}

const fn control(name: &'static str, set: u64) -> Wide {
    Wide { name, bytes: 8, known: 0, set }
}

fn parameters(boot: &Boot) -> Vec<u64> {
    let protected = if boot.enforced { PROTECTED } else { 0 };
    let satp = SV48 | boot.tables[0] >> 12;
    vec![protected, satp, boot.around + 0x100, MSTATUS, boot.around]
}

/// A page table entry.
fn page(at: u64, page: Page) -> u64 {
    let may = match page {
        Page::Machine | Page::Code | Page::Guarded => R | W | X,
        Page::Data => R | W,
        Page::ShadowStack => W,
    };
    at >> 2 | V | may | USED
}

/// "Machine Cause Register"; "Software check" of Zicfilp and Zicfiss.
fn cause(registers: &[u64]) -> Exception {
    let (number, pc, at) = match registers {
        [number, pc, at, ..] => (*number, *pc, *at),
        _ => (u64::MAX, 0, 0),
    };
    let why = match (number, at) {
        (0 | 1 | 12, _) => Cause::Fetch,
        (2 | 3 | 8 | 9, _) => Cause::Breakpoint,
        (4..=7 | 13 | 15, _) => Cause::Access,
        (18, 2) => Cause::Guard(Guard::LandingPad),
        (18, 3) => Cause::Guard(Guard::Checked),
        _ => Cause::Other(number),
    };
    // SSPOPCHK names the register, and no trampoline has one.
    Exception { why, pc, at, returns_to: None }
}
