//! Sites as the kernel writes them, in its order: the bytes of each state, beside what GNU as and ld make of the same
//! instructions.

use codegen::arch::patch::{Parts, Poke, SiteState, Write};
use codegen::arch::site::Spot;
use codegen::profile::Convention;
use tramptool_profiles::Source;

fn convention(arch: &str) -> &'static Convention {
    tramptool_profiles::convention("linux-6.12", arch::backend(arch).unwrap().facts()).unwrap()
}

fn writes(arch: &str, ip: u64, state: SiteState, has_op: bool) -> Vec<Write> {
    convention(arch).site.patch(arch::backend(arch).unwrap(), spot(ip, has_op), state).unwrap()
}

fn spot(ip: u64, has_op: bool) -> Spot {
    Spot { ip, has_op, toward: None, nop_op: Some(0x5678) }
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
    let pokes = convention("x86_64").site.poke(arch::backend("x86_64").unwrap(), spot(ip, false), on).unwrap();
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
    let refused = convention("arm64").site.patch(arch::backend("arm64").unwrap(), spot(ip, true), on(None));
    assert!(refused.unwrap_err().to_string().contains("--ops"));

    for has_op in [false, true] {
        // arch/arm64/kernel/ftrace.c, `ftrace_make_nop`: the word before the function comes first.
        let nop_op = has_op.then(|| write(0x40_0ff8, &[0x78, 0x56, 0, 0, 0, 0, 0, 0]));
        let wanted: Vec<Write> = nop_op.into_iter().chain([mov.clone(), write(ip, &NOP)]).collect();
        assert_eq!(writes("arm64", ip, SiteState::Disabled, has_op), wanted);
    }
    // Who has none leaves that word alone.
    let none = Spot { nop_op: None, ..spot(ip, true) };
    let off = convention("arm64").site.patch(arch::backend("arm64").unwrap(), none, SiteState::Disabled).unwrap();
    assert_eq!(off, [mov.clone(), write(ip, &NOP)]);
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

/// arch/x86/kernel/ftrace.c, `create_trampoline`.
#[test]
fn a_copy_has_its_own_op_and_no_direct_path() {
    let (copies, x86_64) = (convention("x86_64").copies.as_ref().unwrap(), arch::backend("x86_64").unwrap());
    // GNU as 2.40: 1: mov 0x100(%rip), %rdx; jnz 1b; nop
    let code = [0x48, 0x8b, 0x15, 0x00, 0x01, 0, 0, 0x75, 0xf7, 0x90, 0xcc];
    let parts = Parts { end: 10, op_ptr: 0, jmp: Some(7) };
    let made = copies.make(x86_64, &code, &parts, 0x1122).unwrap();
    // And: mov 5(%rip), %rdx; xchg %ax, %ax; nop; ret; int3; .quad 0x1122
    let expected = [0x48, 0x8b, 0x15, 5, 0, 0, 0, 0x66, 0x90, 0x90, 0xc3, 0xcc, 0x22, 0x11, 0, 0, 0, 0, 0, 0];
    assert_eq!(made, expected);
    for wrong in [
        Parts { end: 12, ..parts },
        Parts { op_ptr: 1, ..parts },
        Parts { op_ptr: usize::MAX, ..parts },
        Parts { jmp: Some(8), ..parts },
        Parts { end: 5, jmp: None, ..parts },
    ] {
        assert_eq!(copies.make(x86_64, &code, &wrong, 0), None, "{wrong:?}");
    }
    assert!(convention("arm64").copies.is_none() && convention("riscv64").copies.is_none());
}

/// GNU as and ld 2.40, `-Ttext=0x401008 --defsym=f=0x480ffe`: `1: auipc t0, %pcrel_hi(f); jalr t0, %pcrel_lo(1b)(t0)`, and
/// the same with `f=0x480fee`.
#[test]
fn riscv64_writes_one_word() {
    const AUIPC: [u8; 4] = [0x97, 0x02, 0x08, 0x00];
    const JALR: [u8; 4] = [0xe7, 0x82, 0x62, 0xff];
    const NEAR: [u8; 4] = [0xe7, 0x82, 0x62, 0xfe];
    const NOP: [u8; 4] = [0x13, 0, 0, 0];
    let riscv64 = arch::backend("riscv64").unwrap();
    let text = include_str!("one-word.toml");
    let facts: Vec<_> = arch::BACKENDS.iter().map(|b| b.facts()).collect();
    let profile = tramptool_profiles::load(Source { name: "one-word.toml", text }, &facts).unwrap();
    let site = &profile.convention("riscv64").unwrap().site;
    let (f, ip, entry) = (0x40_1008, 0x40_100c, 0x48_0ffe);
    let spot = Spot { ip, has_op: false, toward: Some(entry), nop_op: None };
    let on = |target| SiteState::Enabled { target, op: Some(0x1234), jump: false };
    let pokes = |spot, state| site.poke(riscv64, spot, state).unwrap();
    let poke = |write| Poke { write, traps: false };

    assert_eq!(site.patch(riscv64, spot, SiteState::Disabled).unwrap(), [write(f, &AUIPC), write(ip, &NOP)]);
    assert_eq!(pokes(spot, SiteState::Disabled), [poke(write(ip, &NOP))]);
    assert_eq!(pokes(spot, on(entry)), [poke(write(ip, &JALR))]);
    let op = poke(write(0x40_1000, &[0x34, 0x12, 0, 0, 0, 0, 0, 0]));
    assert_eq!(pokes(Spot { has_op: true, ..spot }, on(entry)), [op, poke(write(ip, &JALR))]);
    // What is further than the JALR reaches is found by the entry trampoline.
    assert_eq!(pokes(spot, on(entry - 16)), [poke(write(ip, &NEAR))]);
    assert_eq!(pokes(spot, on(entry + 2047)), [poke(write(ip, &[0xe7, 0x82, 0x52, 0x7f]))]);
    assert_eq!(pokes(spot, on(entry + 2048)), [poke(write(ip, &JALR))]);
    assert_eq!(pokes(spot, on(entry - 2048)), [poke(write(ip, &JALR))]);
    // Within 2 KiB of the entry trampoline, and yet behind another AUIPC.
    let edge = Spot { toward: Some(f + 0x7_f7f0), ..spot };
    // `auipc t0, 0x7f; jalr t0, 0x7f0(t0)`: the other one would want AUIPC 0x80.
    assert_eq!(pokes(edge, on(f + 0x7_f810)), [poke(write(ip, &[0xe7, 0x82, 0x02, 0x7f]))]);
    assert_eq!(site.goes_to(riscv64, edge, f + 0x7_f810), f + 0x7_f7f0);
    assert_eq!(site.goes_to(riscv64, edge, f + 0x7_f7ff), f + 0x7_f7ff);
    let jumps = SiteState::Enabled { target: entry, op: None, jump: true };
    let refused = site.patch(riscv64, spot, jumps).unwrap_err().to_string();
    assert_eq!(refused, "the sites of this profile do not jump; valid: a profile with `jump` in [arch.riscv64.site]");
    // Without an entry trampoline the first word waits for what the site goes to.
    let alone = Spot { toward: None, ..spot };
    assert_eq!(site.patch(riscv64, alone, SiteState::Disabled).unwrap(), [write(ip, &NOP)]);
    assert_eq!(site.patch(riscv64, alone, on(entry)).unwrap(), [write(f, &AUIPC), write(ip, &JALR)]);
}

/// Every mistake in the table of sites is an error with its line, and what would be valid.
#[test]
fn mistakes_are_refused_with_their_line() {
    let facts: Vec<_> = arch::BACKENDS.iter().map(|b| b.facts()).collect();
    let refused = |line: &str| {
        let text = format!("name = \"x\"\nextends = \"linux-6.12\"\n[arch.riscv64.site]\n{line}\n");
        tramptool_profiles::load(Source { name: "x.toml", text: &text }, &facts).unwrap_err().to_string()
    };
    for (line, wanted) in [
        (r#"disabled = [{ insns = ["nop", "nap"] }]"#, "unknown instruction of sites of riscv64 'nap'; valid: nop"),
        (
            r#"disabled = [{ branch = "call" }]"#,
            "a site that is off goes nowhere; valid: `insns`, or `half = \"first\"`",
        ),
        (r#"call = [{ branch = "call", half = "third" }]"#, "unknown half 'third'; valid: first, second"),
        (r#"call = [{ half = "first" }]"#, "valid: one of `insns`, `branch`, which may have a `half`, and `op`"),
        (r#"call = [{ op = true }]"#, "writes the `ftrace_ops`; valid: with `op-literal`"),
        (
            r#"disabled = [{ nop-op = "n" }]"#,
            "`nop-op` is written alone, by a site that is off; valid: in `disabled`, with `op-literal`",
        ),
        (r#"breakpoint = "int3""#, "unknown instruction of sites of riscv64 'int3'; valid: nop"),
    ] {
        assert_eq!(refused(line), format!("x.toml:4: {wanted}"));
    }
}
