//! The engine that runs is the bundled, pinned one, and our register numbers are its own.

use codegen::backend::Backend;
use unicorn_engine::{RegisterARM64, RegisterRISCV, RegisterX86};

#[test]
fn the_engine_is_the_pinned_one() {
    assert_eq!(
        tramptool_emu_tests::engine_version(),
        (2, 1),
        "another libunicorn was linked: is UNICORN_NO_PKG_CONFIG unset?"
    );
}

macro_rules! ids {
    ($enum:ident: $($name:ident)*) => { &[$((stringify!($name), $enum::$name as i32)),*] };
}

/// Our numbers, in the order of our tables: general, vector, control, flags, pc.
fn ours(backend: &dyn Backend) -> Vec<i32> {
    let machine = backend.machine();
    let general = backend.facts().abi.regs.iter().map(|r| r.emu);
    let others = machine
        .vectors
        .iter()
        .chain(machine.control.iter().map(|word| &word.reg))
        .chain(machine.flags.as_ref().map(|(r, _)| r))
        .chain(machine.threads);
    general.chain(others.map(|r| r.id)).chain([machine.pc]).collect()
}

/// The engine's, in the same order, by the names that it gives them.
const THEIRS: &[(&str, &[(&str, i32)])] = &[
    (
        "x86_64",
        ids!(RegisterX86: RAX RCX RDX RBX RSP RBP RSI RDI R8 R9 R10 R11 R12 R13 R14 R15
            XMM0 XMM1 XMM2 XMM3 XMM4 XMM5 XMM6 XMM7 XMM8 XMM9 XMM10 XMM11 XMM12 XMM13 XMM14 XMM15
            MXCSR FPCW RFLAGS FS_BASE RIP),
    ),
    (
        "arm64",
        ids!(RegisterARM64: X0 X1 X2 X3 X4 X5 X6 X7 X8 X9 X10 X11 X12 X13 X14 X15 X16 X17 X18 X19 X20 X21 X22 X23
            X24 X25 X26 X27 X28 X29 X30 SP
            V0 V1 V2 V3 V4 V5 V6 V7 V8 V9 V10 V11 V12 V13 V14 V15 V16 V17 V18 V19 V20 V21 V22 V23 V24 V25 V26 V27
            V28 V29 V30 V31 FPCR FPSR NZCV TPIDR_EL0
            TPIDR_EL1 PC),
    ),
    (
        "riscv64",
        ids!(RegisterRISCV: X0 X1 X2 X3 X4 X5 X6 X7 X8 X9 X10 X11 X12 X13 X14 X15 X16 X17 X18 X19 X20 X21 X22 X23
            X24 X25 X26 X27 X28 X29 X30 X31
            F0 F1 F2 F3 F4 F5 F6 F7 F8 F9 F10 F11 F12 F13 F14 F15 F16 F17 F18 F19 F20 F21 F22 F23 F24 F25 F26 F27
            F28 F29 F30 F31 FCSR PC),
    ),
];

#[test]
fn register_numbers_are_the_engines() {
    for backend in arch::BACKENDS {
        let arch = backend.facts().name;
        let (_, theirs) = THEIRS.iter().find(|(name, _)| *name == arch).unwrap_or_else(|| panic!("{arch}: no row"));
        let ours = ours(*backend);
        assert_eq!(ours.len(), theirs.len(), "{arch}");
        for (ours, (name, theirs)) in ours.iter().zip(*theirs) {
            assert_eq!(ours, theirs, "{arch} {name}");
        }
    }
}
