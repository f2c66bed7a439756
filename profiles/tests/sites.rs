//! Sites as the kernel writes them, in its order: the bytes of each state, beside what GNU as and ld make of the same
//! instructions.

use codegen::patch::{Poke, SiteState, Write};
use codegen::profile::Convention;

fn convention(arch: &str) -> &'static Convention {
    tramptool_profiles::default_convention(arch::backend(arch).unwrap().facts()).unwrap()
}

fn writes(arch: &str, ip: u64, state: SiteState, has_op: bool) -> Vec<Write> {
    convention(arch).site.patch(arch::backend(arch).unwrap(), ip, state, has_op).unwrap()
}

fn write(at: u64, bytes: &[u8]) -> Write {
    Write { at, bytes: bytes.to_vec() }
}

/// `call f` with `-Ttext=0x401004 --defsym=f=0x480000` (GNU as and ld 2.40); NOPL of five bytes.
#[test]
fn x86_64() {
    const CALL: [u8; 5] = [0xe8, 0xf7, 0xef, 0x07, 0x00];
    const NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];
    let ip = 0x40_1004;
    let on = SiteState::Enabled { target: 0x48_0000, op: Some(0x1234), jump: false };
    for has_op in [false, true] {
        assert_eq!(writes("x86_64", ip, on, has_op), [write(ip, &CALL)]);
        assert_eq!(writes("x86_64", ip, SiteState::Disabled, has_op), [write(ip, &NOP)]);
    }
    // arch/x86/kernel/alternative.c: a breakpoint, all but the first byte, the first byte.
    let pokes = convention("x86_64").site.poke(arch::backend("x86_64").unwrap(), ip, on, false).unwrap();
    let poke = |at, bytes: &[u8], traps| Poke { write: write(at, bytes), traps };
    assert_eq!(pokes, [poke(ip, &[0xcc], true), poke(ip + 1, &CALL[1..], true), poke(ip, &CALL[..1], false)]);
}

/// `mov x9, x30; bl f` with `-Ttext=0x401000 --defsym=f=0x3ff000` (GNU as and ld 2.40).
#[test]
fn arm64() {
    const MOV: [u8; 4] = 0xaa1e_03e9_u32.to_le_bytes();
    const CALL: [u8; 4] = 0x97ff_f7ff_u32.to_le_bytes();
    const NOP: [u8; 4] = 0xd503_201f_u32.to_le_bytes();
    let (ip, mov) = (0x40_1004, write(0x40_1000, &MOV));
    let on = |op| SiteState::Enabled { target: 0x3f_f000, op, jump: false };
    assert_eq!(writes("arm64", ip, on(Some(0x1234)), false), [mov.clone(), write(ip, &CALL)]);
    let op = write(0x40_0ff8, &[0x34, 0x12, 0, 0, 0, 0, 0, 0]);
    assert_eq!(writes("arm64", ip, on(Some(0x1234)), true), [op, mov.clone(), write(ip, &CALL)]);

    // Without a name for what it carries, such a site would have the trampoline read address 0.
    assert_eq!(writes("arm64", ip, on(None), false), [mov.clone(), write(ip, &CALL)]);
    let refused = convention("arm64").site.patch(arch::backend("arm64").unwrap(), ip, on(None), true);
    assert!(refused.unwrap_err().to_string().contains("--ops"));

    for has_op in [false, true] {
        assert_eq!(writes("arm64", ip, SiteState::Disabled, has_op), [mov.clone(), write(ip, &NOP)]);
    }
    // The function is at 0x401000; its site is at + 4, or at + 8 after a landing pad.
    for ip in [0x40_1004, 0x40_1008] {
        let writes = writes("arm64", ip, SiteState::Enabled { target: ip, op: Some(0), jump: false }, true);
        assert_eq!(writes.first(), Some(&write(0x40_0ff8, &[0; 8])));
    }
}

/// `1: auipc t0, %pcrel_hi(f); jalr t0, %pcrel_lo(1b)(t0)` at 0x401004 with `--defsym=f=0x480ffe` (GNU as and ld 2.40).
#[test]
fn riscv64() {
    const CALL: [u8; 8] = [0x97, 0x02, 0x08, 0x00, 0xe7, 0x82, 0xa2, 0xff];
    const NOPS: [u8; 8] = [0x13, 0, 0, 0, 0x13, 0, 0, 0];
    let ip = 0x40_1004;
    let on = SiteState::Enabled { target: 0x48_0ffe, op: Some(0x1234), jump: false };
    for has_op in [false, true] {
        assert_eq!(writes("riscv64", ip, on, has_op), [write(ip, &CALL)]);
        assert_eq!(writes("riscv64", ip, SiteState::Disabled, has_op), [write(ip, &NOPS)]);
    }
}
