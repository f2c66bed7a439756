//! Hooked returns: the trampoline of a kretprobe, and the return-address stack.

use crate::case::{Case, TRAMPOLINE};
use crate::common::CONTRACT;

/// An entry trampoline, whose callback hooks the return, and the trampoline of a kretprobe.
pub const RETHOOK: &str = concat!(
    "
    .globl  my_entry, my_call, my_rethook
    .type   my_entry, @function
my_entry:
    sub     $72, %rsp
    mov     %rdi, (%rsp)
    mov     %rsi, 8(%rsp)
    mov     %rdx, 16(%rsp)
    mov     %rcx, 24(%rsp)
    mov     %r8, 32(%rsp)
    mov     %r9, 40(%rsp)
    mov     %rax, 48(%rsp)
    mov     72(%rsp), %rdi
    sub     $5, %rdi
    mov     80(%rsp), %rsi
    lea     ops(%rip), %rdx
    mov     %rsp, %rcx
my_call:
    call    ftrace_stub
    mov     (%rsp), %rdi
    mov     8(%rsp), %rsi
    mov     16(%rsp), %rdx
    mov     24(%rsp), %rcx
    mov     32(%rsp), %r8
    mov     40(%rsp), %r9
    mov     48(%rsp), %rax
    add     $72, %rsp
    ret
    .size   my_entry, . - my_entry
",
    include_str!("../common/rethook.S"),
    "    .type   my_c, @function
my_c:
    jmp     my_handler
    .size   my_c, . - my_c
"
);

const RETHOOK_CONTRACT: &str = r#"
arch = "x86_64"
about = "a kretprobe's trampoline"

[frame.rethook]
struct = "pt_regs"
size = 136
field = [
    { member = "r15", offset = 0, holds = "r15", stores = "take-effect" },
    { member = "bx", offset = 40, holds = "rbx", stores = "take-effect" },
    { member = "r11", offset = 48, holds = "r11", stores = "take-effect" },
    { member = "ax", offset = 80, holds = "rax", stores = "take-effect" },
    { member = "flags", offset = 120, holds = "flags", stores = "take-effect" },
    { member = "return", offset = 128, holds = "parent-ip", stores = "take-effect" },
]

[[trampoline]]
symbol = "my_entry"
kind = "entry"
slot = "my_call"
stack-align = 8

[[trampoline]]
symbol = "my_rethook"
kind = "rethook"
calls = "my_handler"
frame = "rethook"
keeps-flags = true
unpaired = 1
stack-align = 8
"#;

#[test]
fn a_kretprobes_trampoline_keeps_every_register_and_gives_every_change_back() {
    let (code, out, err) = Case::new(RETHOOK, RETHOOK_CONTRACT).check();
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    let fails = |change: (&str, &str), parts: &[&str]| {
        assert!(RETHOOK.contains(change.0), "{change:?}");
        let case = Case::new(&RETHOOK.replace(change.0, change.1), RETHOOK_CONTRACT);
        let (code, out, _) = case.check();
        assert_eq!(code, Some(1), "{change:?}: {out}");
        // The command names the trampoline that fails, besides the one at the site.
        let joined = out.replace(" \\\n      ", " ");
        let again = joined.lines().find_map(|l| l.trim().strip_prefix("again: tramptool ")).unwrap();
        let (_, again, _) = case.tool(&again.split(' ').collect::<Vec<_>>());
        assert!(again.contains(parts[0]), "{change:?}: no {} in {again}", parts[0]);
        for part in parts {
            assert!(out.contains(part), "{change:?}: no {part} in {out}");
        }
    };
    // A scratch register, which return_to_handler might lose.
    fails(("rbp, rbx, r11, r10", "rbp, rbx, r10, r10"), &["FAIL P5 of x86_64 my_rethook", "\n  r11: expected"]);
    fails(("    popf\n", "    add $8, %rsp\n"), &["FAIL P6 of x86_64 my_rethook"]);
    fails(("    pushf\n", "    push $2\n"), &["FAIL P10 of x86_64 my_rethook", "fregs->flags: "]);
    fails(("    jmp     my_handler\n", "    ret\n    jmp     my_handler\n"), &["FAIL P9"]);
    // It puts back what it kept elsewhere, not what the handler left.
    fails(
        ("    mov     %rsp, %rdi\n    call    my_c\n", "    mov %rsp, %rdi\n    call my_c\n    mov %rbx, 40(%rsp)\n"),
        &["FAIL P11", "result in rbx: "],
    );
}

#[test]
fn the_handler_of_a_return_is_given_what_the_contract_says() {
    let contract = RETHOOK_CONTRACT.replace("keeps-flags", "arguments = [\"frame\", \"0x77\"]\nkeeps-flags");
    for (number, code) in [("0x77", 0), ("0x78", 1)] {
        let text =
            RETHOOK.replace("    mov     %rsp, %rdi\n", &format!("    mov %rsp, %rdi\n    mov ${number}, %esi\n"));
        let (ended, out, err) = Case::new(&text, &contract).check();
        assert_eq!((ended, err.as_str()), (Some(code), ""), "{out}");
        assert_eq!(out.contains("FAIL P10 of x86_64 my_rethook"), code == 1, "{out}");
    }
}

/// Three ways to end a hooked return, and what they do to the return-address stack. The figures were worked out by hand, and
/// agree with what each costs on a real processor: nothing is left over, or a caller's entry is gone.
#[test]
fn what_a_hooked_return_does_to_the_return_stack() {
    let ends = [
        ("    ret\n", 2, -1),
        ("    pop %r11\n    jmp *%r11\n", 1, 0),
        ("    pop %r11\n    call 1f\n    int3\n1:  mov %r11, (%rsp)\n    ret\n", 2, 0),
    ];
    for (end, mispredicted, left) in ends {
        let text = RETHOOK.replace("    popf\n    ret\n", &format!("    popf\n{end}"));
        let case = Case::new(&text, RETHOOK_CONTRACT);
        let args = ["cost", "--object", "t.o", "--contract", "t.toml", "--format", "json"];
        let (code, out, err) = case.tool(&args);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
        let rows: serde_json::Value = serde_json::from_str(&out).unwrap();
        let (entry, hooked) = (&rows[0]["ways"][0], &rows[1]["ways"][0]);
        assert_eq!((&entry["mispredicted_returns"], &entry["return_stack_imbalance"]), (&0.into(), &0.into()), "{out}");
        let told = (&hooked["mispredicted_returns"], &hooked["return_stack_imbalance"]);
        assert_eq!(told, (&mispredicted.into(), &left.into()), "{end}: {out}");
    }
}

/// How returns are made, as contracts may say.
#[test]
fn returns_are_made_as_the_contract_says() {
    let contract = |style: &str| format!("{CONTRACT}returns = \"{style}\"\n");
    let trapped = TRAMPOLINE.replace("    ret\n", "    ret\n    int3\n");
    let failing = |text: &str, style: &str| {
        let (code, out, err) = Case::new(text, &contract(style)).check();
        let clauses: Vec<&str> = out.lines().filter_map(|line| line.strip_prefix("FAIL ")?.split(' ').next()).collect();
        assert_eq!((code, err.as_str()), (Some(i32::from(!clauses.is_empty())), ""), "{out}");
        assert!(clauses.iter().all(|clause| *clause == "P15"), "{out}");
        !clauses.is_empty()
    };
    assert!(failing(TRAMPOLINE, "trap") && !failing(&trapped, "trap"));
    // A breakpoint behind the trampoline is no part of it.
    assert!(failing(&TRAMPOLINE.replace("my_tramp, . - my_tramp\n", "my_tramp, . - my_tramp\n    int3\n"), "trap"));
    assert!(failing(TRAMPOLINE, "thunk") && failing(&trapped, "thunk"));
    let (code, _, err) = Case::new(TRAMPOLINE, &contract("jump")).check();
    assert!(code == Some(2) && err.contains("returns: unknown value; valid: trap, thunk"), "{err}");
    let elsewhere = contract("trap").replace("arch = \"x86_64\"", "arch = \"arm64\"");
    let (code, _, err) = Case::new(TRAMPOLINE, &elsewhere).check();
    assert!(code == Some(2) && err.contains("returns is not for arm64"), "{err}");
}
