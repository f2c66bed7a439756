//! What registers and control words hold in runs: faults that depend on it show whatever the seed is.

use crate::case::Case;
use crate::common::{CONTRACT, tools_of};

/// A direct-call trampoline of two arguments with `MORE` behind its call: architecture, alignment, text.
const WITH_MORE: [(&str, &str, &str); 3] = [
    (
        "x86_64",
        "8",
        "push %rbp
         mov %rsp, %rbp
         push %rdi
         push %rsi
         call direct_func
         sub $16, %rsp
         MORE
         add $16, %rsp
         pop %rsi
         pop %rdi
         leave
         ret",
    ),
    (
        "arm64",
        "16",
        "stp x9, x30, [sp, #-48]!
         stp x0, x1, [sp, #16]
         str x8, [sp, #32]
         bl direct_func
         MORE
         ldr x8, [sp, #32]
         ldp x0, x1, [sp, #16]
         ldp x30, x9, [sp], #48
         ret x9",
    ),
    (
        "riscv64",
        "16",
        "addi sp, sp, -32
         sd a0, 0(sp)
         sd a1, 8(sp)
         sd t0, 16(sp)
         sd ra, 24(sp)
         call direct_func
         MORE
         ld ra, 24(sp)
         ld t0, 16(sp)
         ld a1, 8(sp)
         ld a0, 0(sp)
         addi sp, sp, 32
         jr t0",
    ),
];

/// The exit code and the report, with this behind the call.
fn judged(arch: &str, more: &str, seed: &str) -> (Option<i32>, String) {
    let (_, align, body) = WITH_MORE.into_iter().find(|(name, ..)| *name == arch).unwrap();
    let contract = CONTRACT.replace("x86_64", arch).replace("stack-align = 8", &format!("stack-align = {align}"));
    let case = Case::new("", &contract);
    let text = format!(".globl my_tramp\n.type my_tramp, %function\nmy_tramp:\n{}\n", body.replace("MORE", more));
    std::fs::write(case.dir.path().join("t.S"), format!("{text}.size my_tramp, . - my_tramp\n")).unwrap();
    let (code, _, err) = case.run(&format!("{}as", tools_of(arch)), &["t.S", "-o", "t.o"]);
    assert_eq!(code, Some(0), "{arch}: {err}");
    let (code, out, err) = case.tool(&["check", "--object", "t.o", "--contract", "t.toml", "--seed", seed]);
    assert_eq!(err, "", "{arch}: {more}");
    (code, out)
}

#[test]
fn control_words_have_values_of_their_own() {
    let save = "stmxcsr (%rsp)\nfnstcw 4(%rsp)\n";
    for (arch, sound, faults) in [
        (
            "x86_64",
            format!("{save}ldmxcsr (%rsp)\nfldcw 4(%rsp)"),
            vec![
                // Exchanged, where both have room for the other.
                format!("{save}movzwl 4(%rsp), %eax\nmov %eax, 8(%rsp)\nldmxcsr 8(%rsp)"),
                format!("{save}fldcw (%rsp)"),
                // As they are when the processor starts.
                "movl $0x1f80, (%rsp)\nldmxcsr (%rsp)".to_owned(),
                "fninit".to_owned(),
            ],
        ),
        (
            "arm64",
            "mrs x10, fpcr\nmrs x11, fpsr\nmsr fpcr, x10\nmsr fpsr, x11".to_owned(),
            vec![
                "mrs x10, fpcr\nmrs x11, fpsr\nmsr fpcr, x11\nmsr fpsr, x10".to_owned(),
                "msr fpcr, xzr".to_owned(),
                "msr fpsr, xzr".to_owned(),
            ],
        ),
        ("riscv64", "frcsr t1\nfscsr t1".to_owned(), vec!["fscsr zero".to_owned(), "fsrmi 0".to_owned()]),
    ] {
        assert_eq!(judged(arch, &sound, "1").0, Some(0), "{arch}");
        for fault in faults {
            let (code, out) = judged(arch, &fault, "1");
            let failing = format!("FAIL P6 of {arch} my_tramp");
            assert!(code == Some(1) && out.contains(&failing), "{arch}: {fault}: {out}");
        }
    }
}

/// A vector register that a contract names survives every handler, one that it lets go survives none; so do control words.
#[test]
fn contracts_name_vector_registers_and_control_words() {
    let text = crate::case::TRAMPOLINE;
    let saves = text
        .replace("    push    %rsi\n", "    push %rsi\n    sub $16, %rsp\n    movups %xmm9, (%rsp)\n")
        .replace("    pop     %rsi\n", "    movups (%rsp), %xmm9\n    add $16, %rsp\n    pop %rsi\n");
    let keeps = format!("{CONTRACT}keeps = [\"xmm9\"]\nloses = [\"r10\"]\n");
    let case = Case::new(&saves, &keeps);
    assert_eq!(case.check().0, Some(0), "{}", case.check().1);
    let (code, out, _) = Case::new(text, &keeps).check();
    assert!(code == Some(1) && out.contains("FAIL P2 of x86_64 my_tramp") && out.contains("\n  xmm9: "), "{out}");
    // The upper half is part of it.
    let (code, out, _) = Case::new(&saves.replace("movups", "movsd"), &keeps).check();
    assert!(code == Some(1) && out.contains("in bits 64 to 127"), "{out}");
    let spoils = text.replace("    pop     %rsi\n", "    pop %rsi\n    pxor %xmm9, %xmm9\n    fninit\n");
    let (code, out, _) = Case::new(&spoils, CONTRACT).check();
    assert!(code == Some(1) && out.contains("FAIL P2") && out.contains("FAIL P6"), "{out}");
    let case = Case::new(&spoils, &format!("{CONTRACT}loses = [\"xmm9\", \"fpcw\"]\n"));
    assert_eq!(case.check().0, Some(0), "{}", case.check().1);
    let (code, _, err) = Case::new(text, &format!("{CONTRACT}keeps = [\"ymm9\"]\n")).check();
    assert!(code == Some(2) && err.contains("unknown register 'ymm9'"), "{err}");
}

#[test]
fn contracts_that_cannot_be_are_refused_with_their_line() {
    let refused = |from: &str, to: &str, message: &str| {
        assert!(ENTRY_CONTRACT.contains(from));
        let (code, _, err) = Case::new(ENTRY, &ENTRY_CONTRACT.replacen(from, to, 1)).check();
        assert!(code == Some(2) && err.contains(message), "{err}");
    };
    refused("slot = \"my_call\"\n", "", "t.toml:14: my_entry is of kind entry or regs: give slot");
    let twice = "field = [{ member = \"other\", offset = 56, holds = \"rdi\" }, ";
    refused("field = [", twice, "t.toml:14: its frame has other and direct both at offset 56");
}

/// No contract has to say that DF is clear where C goes on.
#[test]
fn flags_that_c_finds_clear_are_clear_on_every_way_out() {
    let (code, out) = judged("x86_64", "std", "1");
    assert!(code == Some(1) && out.contains("FAIL P6") && out.contains("flags that are clear where C"), "{out}");
}

/// Arm ARM D1.8.2: the hardware faults, whatever is accessed; not where SP is only computed with.
#[test]
fn sp_is_aligned_wherever_arm64_accesses_memory_by_it() {
    assert_eq!(judged("arm64", "sub sp, sp, #8\nadd sp, sp, #8", "1").0, Some(0));
    for access in ["str x10, [sp]", "ldur x10, [sp, #8]", "stp x10, x11, [sp, #8]", "ldr x10, [sp], #8\nsub sp, sp, #8"]
    {
        let (code, out) = judged("arm64", &format!("sub sp, sp, #8\n{access}\nadd sp, sp, #8"), "1");
        assert!(code == Some(1) && out.contains("FAIL P8 of arm64 my_tramp"), "{access}: {out}");
        assert!(out.contains("what the hardware asks where memory is accessed by it"), "{access}: {out}");
    }
}

/// An entry trampoline that goes to a direct trampoline, which stands right behind it.
pub const ENTRY: &str = "
    .globl  my_entry, my_call, my_direct
    .type   my_entry, @function
my_entry:
    sub     $72, %rsp
    .set offset, 0
    .irp reg, rdi, rsi, rdx, rcx, r8, r9, rax
    mov     %\\reg, offset(%rsp)
    .set offset, offset + 8
    .endr
    movq    $0, 56(%rsp)
    mov     72(%rsp), %rdi
    sub     $5, %rdi
    mov     80(%rsp), %rsi
    lea     ops(%rip), %rdx
    mov     %rsp, %rcx
my_call:
    call    ftrace_stub
    .set offset, 0
    .irp reg, rdi, rsi, rdx, rcx, r8, r9, rax, r11
    mov     offset(%rsp), %\\reg
    .set offset, offset + 8
    .endr
    add     $72, %rsp
    jmp     2f
1:  ret
2:  test    %r11, %r11
    jz      1b
    jmp     *%r11
    .size   my_entry, . - my_entry
    .type   my_direct, @function
my_direct:
    ret
    .size   my_direct, . - my_direct
";

pub const ENTRY_CONTRACT: &str = r#"
arch = "x86_64"
about = "an entry trampoline with a way to a direct one"

[frame.args]
struct = "args"
size = 64
field = [{ member = "direct", offset = 56, holds = "direct", stores = "take-effect" }]

[[trampoline]]
symbol = "my_entry"
kind = "entry"
slot = "my_call"
frame = "args"
stack-align = 8

[[trampoline]]
symbol = "my_direct"
kind = "stub-direct"
stack-align = 8
"#;

#[test]
fn a_direct_target_is_told_from_nothing_by_all_of_its_bits_and_by_no_other_register() {
    let judge = |to: &str, seed: &str| {
        let case = Case::new(&ENTRY.replace("test    %r11, %r11", to), ENTRY_CONTRACT);
        case.tool(&["check", "--object", "t.o", "--contract", "t.toml", "--seed", seed])
    };
    let (code, out, err) = judge("test %r11, %r11", "1");
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    for seed in ["1", "2", "3"] {
        for fault in ["test %r11d, %r11d", "test %r10, %r11", "test %rdi, %r11", "test %rbx, %r11", "test %rax, %r11"] {
            let (code, out, _) = judge(fault, seed);
            assert!(code == Some(1) && out.contains("\n  direct trampoline entered: "), "{fault}, seed {seed}: {out}");
        }
    }
}

#[test]
fn what_falls_into_a_direct_trampoline_has_not_gone_there() {
    let case = Case::new(&ENTRY.replace("    jmp     *%r11\n", ""), ENTRY_CONTRACT);
    let (code, out, _) = case.check();
    assert!(code == Some(1) && out.contains("FAIL P9") && out.contains("\n  direct trampoline: "), "{out}");
}
