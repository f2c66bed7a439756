//! A trampoline that writes to the code of functions is judged, and those after it are judged as if it had not been there.

use crate::common::{Bench, tools_of};

const CONTRACT: &str = "arch = \"riscv64\"\nabout = \"two direct-call trampolines\"\n";

/// A trampoline that keeps two arguments, with more instructions before its call; t0 is the address behind the site.
fn trampoline(name: &str, more: &str) -> String {
    format!(
        "    .globl {name}\n    .type {name}, @function\n{name}:\n    addi sp, sp, -32\n    sd a0, 0(sp)\n    sd a1, 8(sp)\n    \
         sd t0, 16(sp)\n    sd ra, 24(sp)\n{more}    call direct_func\n    ld ra, 24(sp)\n    ld t0, 16(sp)\n    \
         ld a1, 8(sp)\n    ld a0, 0(sp)\n    addi sp, sp, 32\n    jr t0\n    .size {name}, . - {name}\n"
    )
}

#[test]
fn what_overwrites_functions_has_a_verdict_and_so_has_the_next_one() {
    let b = Bench::new();
    let stores =
        [0x40, 0x80, 0xc0, 0x100, -0x40, -0x80, 0x200, 0x300].map(|at| format!("    sw zero, {at}(t0)\n")).concat();
    std::fs::write(b.path("t.S"), trampoline("my_tramp", &stores) + &trampoline("other_tramp", "")).unwrap();
    b.tool(&format!("{}as", tools_of("riscv64")), &["t.S", "-o", "t.o"]);
    let contract = |name: &str| {
        format!(
            "\n[[trampoline]]\nsymbol = \"{name}\"\nkind = \"direct\"\nargs = 2\ncalls = \"direct_func\"\nstack-align = 16\n"
        )
    };
    std::fs::write(b.path("t.toml"), [CONTRACT, &contract("my_tramp"), &contract("other_tramp")].concat()).unwrap();
    let out = b.ends(1, &["check", "--object", "t.o", "--contract", "t.toml"]);
    assert!(out.contains("\nFAIL P17 of riscv64 my_tramp "), "{out}");
    assert!(!out.lines().any(|line| line.starts_with("FAIL ") && line.contains("other_tramp")), "{out}");
}
