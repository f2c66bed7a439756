//! arm64 on a bare machine of QEMU: Arm ARM D8 (translation, indirect permissions), D8.4 (BTI), D11 (GCS), D8.10 (PAC).

use codegen::arch::bare::{Bare, Boot, Cause, Code, Entered, Exception, Guard, Page, Program, Qemu, Returns, Wide};
use codegen::arch::pads::IndirectBranch;
use codegen::words::abi::Reg;

use crate::accesses::decode;
use crate::regs::{X9, X16};

/// At EL1: TCR2_EL1 is S3_0_C2_C0_3, PIR_EL1 S3_0_C10_C2_3, GCSCR_EL1 S3_0_C2_C5_0.
const BOOT: Code = Code::Words(&[
    (0x1000_0009, "adr x9, ."),
    (0xa950_0520, "ldp x0, x1, [x9, #0x100]"),
    (0xd518_a200, "msr mair_el1, x0"),
    (0xd518_2041, "msr tcr_el1, x1"),
    (0xa951_0520, "ldp x0, x1, [x9, #0x110]"),
    (0xd518_2060, "msr s3_0_c2_c0_3, x0"),
    (0xd518_a261, "msr s3_0_c10_c2_3, x1"),
    (0xa952_0520, "ldp x0, x1, [x9, #0x120]"),
    (0xd518_2000, "msr ttbr0_el1, x0"),
    (0xd518_2021, "msr ttbr1_el1, x1"),
    (0xa953_0520, "ldp x0, x1, [x9, #0x130]"),
    (0xd518_c000, "msr vbar_el1, x0"),
    (0xd518_1041, "msr cpacr_el1, x1"),
    // Key B is another than key A, which is 0.
    (0xd518_2149, "msr apibkeylo_el1, x9"),
    (0xd503_3fdf, "isb"),
    (0xd508_871f, "tlbi vmalle1"),
    (0xd503_3f9f, "dsb sy"),
    (0xa954_0520, "ldp x0, x1, [x9, #0x140]"),
    (0xd518_1000, "msr sctlr_el1, x0"),
    (0xd503_3fdf, "isb"),
    (0xf940_a920, "ldr x0, [x9, #0x150]"),
    (0xd518_2500, "msr s3_0_c2_c5_0, x0"),
    (0xd503_3fdf, "isb"),
    (0xd61f_0020, "br x1"),
]);

/// Where a CPU waits.
const STUB: Code = Code::Words(&[(0xd503_24df, "bti jc"), (0xd503_201f, "nop"), (0x17ff_fffe, "b . - 8")]);

/// Sets `tpidr_el0`.
const SET_EL0: Code = Code::Words(&[(0xd51b_d040, "msr tpidr_el0, x0"), (0x17ff_fff0, "b . - 0x40")]);

/// Sets `tpidr_el1`.
const SET_EL1: Code = Code::Words(&[(0xd518_d080, "msr tpidr_el1, x0"), (0x17ff_ffec, "b . - 0x50")]);

/// Sets GCSPR_EL1.
const SET_GCS: Code =
    Code::Words(&[(0xd518_2520, "msr s3_0_c2_c5_1, x0"), (0xd503_3fdf, "isb"), (0x17ff_ffe7, "b . - 0x64")]);

/// Sets ZCR_EL1.
const SET_LENGTH: Code =
    Code::Words(&[(0xd518_1200, "msr s3_0_c1_c2_0, x0"), (0xd503_3fdf, "isb"), (0x17ff_ffe3, "b . - 0x74")]);

/// Calls by X9, which leaves BTYPE 2; jumps by X16 and by X9, which leave 1 and 3.
const ENTER: Code = Code::Words(&[(0xd63f_0120, "blr x9"), (0xd61f_0200, "br x16"), (0xd61f_0120, "br x9")]);

/// Where exceptions come to: VBAR_EL1 + 0x200.
const TRAP: Code = Code::Words(&[(0xd503_201f, "nop"), (0xd69f_03e0, "eret")]);

/// TCR_EL1: 48 bits and pages of 4 KiB in both halves, shared and cached; physical addresses of 40 bits.
const TCR: u64 = 16 | 16 << 16 | 2 << 30 | 2 << 32 | (3 << 12 | 5 << 8) | (3 << 28 | 5 << 24);
/// TCR2_EL1.PIE.
const TCR2: u64 = 1 << 1;
/// PIR_EL1: 0 is for all, 1 a guarded control stack, 4 without instructions.
const PIR: u64 = 0xe | 0x9 << 4 | 0xc << 16;
/// SCTLR_EL1: M, C, I, and the bits that are set.
const SCTLR: u64 = 0x30d0_0800 | 1 | 1 << 2 | 1 << 12;
/// SCTLR_EL1: BT1, EnIA and EnIB.
const PROTECTED: u64 = 1 << 36 | 1 << 31 | 1 << 30;
/// GCSCR_EL1: PCRSEL, RVCHKEN, PUSHMEn.
const GCSCR: u64 = 1 | 1 << 5 | 1 << 8;
/// CPACR_EL1: FPEN and ZEN.
const CPACR: u64 = 3 << 20 | 3 << 16;

/// The machine.
pub const BARE: Option<&Bare> = Some(&Bare {
    program: Program::Qemu(Qemu {
        program: "qemu-system-aarch64",
        // The machine has the description of its devices at the start of memory.
        arguments: &["-M", "virt", "-cpu", "max,sme=off"],
        starts_there: false,
    }),
    ram: 0x4000_0000,
    memory: 1 << 30,
    start: 0x4020_0000,
    boot: &[(0, BOOT)],
    parameters: (0x100, parameters),
    around: &[
        (0, STUB),
        (0x20, ENTER),
        (0x40, SET_EL0),
        (0x50, SET_EL1),
        (0x60, SET_GCS),
        (0x70, SET_LENGTH),
        (0xa00, TRAP),
    ],
    park: 4,
    trap: 0xa00,
    entered: &[
        Entered { by: IndirectBranch::Call, at: 0x20, reg: X9 },
        Entered { by: IndirectBranch::Veneer, at: 0x24, reg: X16 },
        Entered { by: IndirectBranch::Jump, at: 0x28, reg: X9 },
    ],
    setters: &[("tpidr_el0", 0x40), ("tpidr_el1", 0x50), ("GCSPR_EL1", 0x60), ("ZCR_EL1", 0x70)],
    names: NAMES,
    parts: &[("nzcv", "cpsr", 0xf000_0000)],
    // All but BTYPE.
    resumes: Some(("cpsr", "SPSR_EL1", 0xffff_f3ff)),
    split: true,
    table: |at| at | 3,
    page,
    syndrome: &["ESR_EL1", "ELR_EL1", "FAR_EL1"],
    cause,
    enforces: &[Guard::LandingPad, Guard::ShadowStack, Guard::Signed],
    shadow_stack: "GCSPR_EL1",
    wide: WIDE,
    lengths: Some(("ZCR_EL1", 16)),
    decode,
});

/// Arm ARM B1.2.2: a V register is the first 16 bytes of its Z register.
#[rustfmt::skip]
const NAMES: &[(&str, &str)] = &[
    ("tpidr_el0", "TPIDR_EL0"), ("tpidr_el1", "TPIDR_EL1"),
    ("v0", "z0"), ("v1", "z1"), ("v2", "z2"), ("v3", "z3"),
    ("v4", "z4"), ("v5", "z5"), ("v6", "z6"), ("v7", "z7"),
    ("v8", "z8"), ("v9", "z9"), ("v10", "z10"), ("v11", "z11"),
    ("v12", "z12"), ("v13", "z13"), ("v14", "z14"), ("v15", "z15"),
    ("v16", "z16"), ("v17", "z17"), ("v18", "z18"), ("v19", "z19"),
    ("v20", "z20"), ("v21", "z21"), ("v22", "z22"), ("v23", "z23"),
    ("v24", "z24"), ("v25", "z25"), ("v26", "z26"), ("v27", "z27"),
    ("v28", "z28"), ("v29", "z29"), ("v30", "z30"), ("v31", "z31"),
];

/// Arm ARM B1.4.2.
#[rustfmt::skip]
const WIDE: &[Wide] = &[
    z("z0"), z("z1"), z("z2"), z("z3"), z("z4"), z("z5"), z("z6"), z("z7"), z("z8"), z("z9"), z("z10"), z("z11"),
    z("z12"), z("z13"), z("z14"), z("z15"), z("z16"), z("z17"), z("z18"), z("z19"), z("z20"), z("z21"), z("z22"),
    z("z23"), z("z24"), z("z25"), z("z26"), z("z27"), z("z28"), z("z29"), z("z30"), z("z31"), p("p0"), p("p1"),
    p("p2"), p("p3"), p("p4"), p("p5"), p("p6"), p("p7"), p("p8"), p("p9"), p("p10"), p("p11"), p("p12"), p("p13"),
    p("p14"), p("p15"), p("ffr"),
];

const fn z(name: &'static str) -> Wide {
    Wide { name, bytes: 256, known: 16, set: u64::MAX }
}

const fn p(name: &'static str) -> Wide {
    Wide { name, bytes: 32, known: 0, set: u64::MAX }
}

fn parameters(boot: &Boot) -> Vec<u64> {
    let (sctlr, gcscr) = if boot.enforced { (SCTLR | PROTECTED, GCSCR) } else { (SCTLR, 0) };
    let [lower, upper] = boot.tables;
    vec![0xff, TCR, TCR2, PIR, lower, upper, boot.around + 0x800, CPACR, sctlr, boot.around, gcscr]
}

/// A descriptor: valid, inner shareable, accessed. GP is bit 50, PIIndex bits 54, 53, 51 and 6.
fn page(at: u64, page: Page) -> u64 {
    let is = match page {
        Page::Machine | Page::Code => 0,
        Page::Guarded => 1 << 50,
        Page::Data => 1 << 53,
        Page::ShadowStack => 1 << 6,
    };
    at | 3 | 3 << 8 | 1 << 10 | is
}

/// Arm ARM, ESR_EL1.EC.
fn cause(registers: &[u64]) -> Exception {
    let (syndrome, pc, at) = match registers {
        [syndrome, pc, at, ..] => (*syndrome, *pc, *at),
        _ => (u64::MAX, 0, 0),
    };
    let why = match syndrome >> 26 & 0x3f {
        0x00 | 0x15 | 0x3c => Cause::Breakpoint,
        0x0d => Cause::Guard(Guard::LandingPad),
        0x1c => Cause::Guard(Guard::Signed),
        0x21 | 0x22 => Cause::Fetch,
        0x25 | 0x26 => Cause::Access,
        0x2d => Cause::Guard(Guard::ShadowStack),
        class => Cause::Other(class),
    };
    // ISS of a GCS data check: Rn.
    let returns_to =
        matches!(why, Cause::Guard(Guard::ShadowStack)).then_some(Returns::Register(Reg((syndrome >> 5 & 0x1f) as u8)));
    Exception { why, pc, at, returns_to }
}
