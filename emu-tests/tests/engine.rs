//! The engine that runs is the bundled, pinned one, and our register numbers are its own.

use codegen::backend::Backend;
use tramptool_emu_tests::{Access, Accesses, Cpu, EVERYWHERE, Holds, engine};
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

/// What hooks heard: instructions, writes, and missing memory.
#[derive(Default)]
struct Heard {
    instructions: Vec<u64>,
    writes: Vec<(u64, usize)>,
    missing: Vec<u64>,
}

const CODE: u64 = 0x10_0000;
const DATA: u64 = 0x20_0000;
const PAGE: u64 = 0x1000;

/// Stores behind the end of a page and over it, by architecture: the code, its instructions, and where data is then which bytes.
const STORES: [(&str, &[u8], usize, &[u8]); 3] = [
    // fld1; fstpt 0xffc(%rdi); nop: the engine makes two stores of one, and pops the register behind both.
    ("x86_64", &[0xd9, 0xe8, 0xdb, 0xbf, 0xfc, 0x0f, 0, 0, 0x90], 3, &[0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0x3f]),
    // mov x9, #0xffc; mov x10, #1; str x10, [x0, x9]
    ("arm64", &[0x89, 0xff, 0x81, 0xd2, 0x2a, 0, 0x80, 0xd2, 0x0a, 0x68, 0x29, 0xf8], 3, &[1, 0, 0, 0, 0, 0, 0, 0]),
    // lui t0, 1; add t0, t0, a0; li t1, 1; sd t1, -4(t0)
    (
        "riscv64",
        &[0xb7, 0x12, 0, 0, 0xb3, 0x82, 0xa2, 0, 0x13, 0x03, 0x10, 0, 0x23, 0xbe, 0x62, 0xfe],
        4,
        &[1, 0, 0, 0, 0, 0, 0, 0],
    ),
];

/// An instruction that lacks memory is executed again when a hook has mapped some: as if it had been there, and hooks hear of it once.
/// The hook takes so long that the engine makes its TLB smaller.
#[test]
fn memory_appears_where_an_instruction_lacks_it() {
    for (arch, code, instructions, bytes) in STORES {
        let backend = *arch::BACKENDS.iter().find(|backend| backend.facts().name == arch).unwrap();
        let mut uc = engine(backend, Heard::default()).unwrap();
        uc.map(CODE, PAGE, Holds::Code).unwrap();
        assert!(uc.store(CODE, code));
        uc.on_instructions(EVERYWHERE, Box::new(|uc, pc, _| uc.data_mut().instructions.push(pc))).unwrap();
        let heard = |uc: &mut Cpu<'_, Heard>, access: Access| {
            if access.is_write {
                uc.data_mut().writes.push((access.at, access.bytes));
            }
        };
        uc.on_accesses(Accesses::All, EVERYWHERE, Box::new(heard)).unwrap();
        let appear = |uc: &mut Cpu<'_, Heard>, at: u64| {
            std::thread::sleep(std::time::Duration::from_millis(120));
            uc.data_mut().missing.push(at);
            uc.map(at & !(PAGE - 1), PAGE, Holds::Data).is_ok()
        };
        uc.on_missing_data(Box::new(appear)).unwrap();
        uc.write(backend.facts().abi.regs[usize::from(backend.facts().abi.args[0].0)].emu, DATA).unwrap();
        uc.run_at_most(CODE, CODE + code.len() as u64, 0).unwrap();
        let mut found = vec![0; bytes.len()];
        assert!(uc.load(DATA + 0xffc, &mut found), "{arch}");
        assert_eq!(found, bytes, "{arch}");
        let heard = uc.data();
        let mut once = heard.instructions.clone();
        once.dedup();
        assert_eq!((once.len(), &once), (instructions, &heard.instructions), "{arch}");
        let written: usize = heard.writes.iter().map(|(_, bytes)| bytes).sum();
        assert_eq!((heard.missing.len(), written), (2, bytes.len()), "{arch}: {:?}", heard.writes);
    }
}
