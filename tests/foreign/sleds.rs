//! Trampolines for the middle of a function.

use crate::case::Case;

/// A trampoline for the middle of a function, where everything is live, and flags are whatever they are.
const SLED: &str = "
    .globl  my_sled
    .type   my_sled, @function
my_sled:
    pushf
    push    $2
    popf
    .irp reg, rbp, rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11
    push    %\\reg
    .endr
    mov     %rsp, %rbp
    and     $-16, %rsp
    call    my_c
    mov     %rbp, %rsp
    .irp reg, r11, r10, r9, r8, rdi, rsi, rdx, rcx, rax, rbp
    pop     %\\reg
    .endr
    popf
    ret
    .size   my_sled, . - my_sled
";

const SLED_CONTRACT: &str = "
arch = \"x86_64\"
about = \"a sled\"

[[trampoline]]
symbol = \"my_sled\"
kind = \"sled\"
calls = \"my_c\"
keeps-flags = true
stack-align = 16
";

#[test]
fn in_the_middle_of_a_function_everything_is_live() {
    let judge = |from: &str, to: &str| Case::new(&SLED.replace(from, to), SLED_CONTRACT).check();
    let (code, out, err) = judge("", "");
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    let fails = |(from, to): (&str, &str), parts: &[&str]| {
        let (code, out, _) = judge(from, to);
        assert!(code == Some(1) && parts.iter().all(|part| out.contains(part)), "no {parts:?} in {out}");
    };
    fails(("r10, r11\n", "r10, r10\n"), &["FAIL P4 of x86_64 my_sled", "\n  r11: expected"]);
    fails(("rdx, rcx, rax, rbp\n", "rdx, rcx, rcx, rbp\n"), &["FAIL P1 of x86_64 my_sled", "\n  rax: expected"]);
    for but in ["", "    cld\n"] {
        fails(
            ("    push    $2\n    popf\n", but),
            &["FAIL P6 of x86_64 my_sled", "flags that are clear where C code begins: "],
        );
    }
    fails(("    popf\n    ret\n", "    add $8, %rsp\n    ret\n"), &["FAIL P6 of x86_64 my_sled", "rflags: "]);
    fails(("    and     $-16, %rsp\n", ""), &["FAIL P8 of x86_64 my_sled"]);
    fails(
        ("    call    my_c\n", "    jmp 1f\n    call my_c\n1:\n"),
        &["FAIL P10 of x86_64 my_sled", "calls of what it calls: "],
    );
    fails(("    ret\n", "    ret $8\n"), &["FAIL P7 of x86_64 my_sled"]);
    let (_, out, err) = Case::new(SLED, &SLED_CONTRACT.replace("sled\"\ncalls", "sled\"\nargs = 2\ncalls")).check();
    assert!(err.contains("t.toml:8: args is for kind direct, around, record, syscall only"), "{out}{err}");
}

/// DF may be set at a sled: that a trampoline clears it before C runs shows with every seed.
#[test]
fn flags_that_a_sled_may_have_do_not_depend_on_the_seed() {
    let case = Case::new(&SLED.replace("    push    $2\n    popf\n", ""), SLED_CONTRACT);
    for seed in ["1", "2", "3", "4", "5", "6", "7", "8"] {
        let (code, out, _) = case.tool(&["check", "--object", "t.o", "--contract", "t.toml", "--seed", seed]);
        assert!(code == Some(1) && out.contains("FAIL P6 of x86_64 my_sled"), "seed {seed}: {out}");
    }
}

/// LLVM's own sleds. That ADD behind POPF changes the flags is its b0cd143d4, mended after this release.
#[test]
#[ignore = "needs libclang-rt-14-dev"]
fn sleds_of_xray_lose_flags() {
    const LIBRARY: &str = "/usr/lib/llvm-14/lib/clang/14.0.6/lib/linux/libclang_rt.xray-x86_64.a";
    const OBJECT: &str = "xray_trampoline_x86_64.S.o";
    let contract = SLED_CONTRACT.replace("my_sled", "__xray_FunctionTailExit").replace("my_c", "direct_func")
        + "calls-through = \"_ZN6__xray19XRayPatchedFunctionE\"\n";
    let case = Case::new("", &contract);
    assert_eq!(case.run("ar", &["x", LIBRARY, OBJECT]).0, Some(0));
    let (code, out, _) = case.tool(&["check", "--object", OBJECT, "--contract", "t.toml"]);
    assert_eq!(code, Some(1));
    let failing: Vec<&str> = out.lines().filter(|l| l.starts_with("FAIL")).collect();
    let of = |clause: &str| format!("FAIL {clause} of x86_64 __xray_FunctionTailExit (t.toml): ");
    assert!(failing.len() == 2 && failing[0].starts_with(&of("P6")) && failing[1].starts_with(&of("P8")), "{out}");
    assert!(out.contains("\n  rflags: ") && out.contains("\n  sp modulo the promised alignment"), "{out}");
}
