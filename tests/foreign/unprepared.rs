//! What objects of kernels have that a test's own has not.

use crate::case::Case;
use crate::common::CONTRACT;

/// What objects of kernels have and nobody prepared for the judge: an alternative, data of their own and of a CPU, a part
/// in another section, a return through a thunk. By architecture: assembler, alignment, text, an access that cannot be
/// followed. `ALT` stands for the entry of an alternative to what label 661 names.
type Unprepared = (&'static str, &'static str, &'static str, &'static str, (&'static str, &'static str));

const UNPREPARED: [Unprepared; 3] = [
    (
        "x86_64",
        "x86_64-linux-gnu-as",
        "8",
        "push %rbp
         mov %rsp, %rbp
         push %rdi
         push %rsi
    661: call *pointer(%rip)
         ALT
         mov %gs:number(%rip), %rax
         mov number(%rip), %rax
         jmp 1f
         .pushsection .text.unlikely, \"ax\"
      1: call other_helper
         jmp 2f
         .popsection
      2: call direct_func
         pop %rsi
         pop %rdi
         leave
         jmp __x86_return_thunk",
        ("mov number(%rip), %rax", "mov %gs:-8, %rax"),
    ),
    (
        "arm64",
        "aarch64-linux-gnu-as",
        "16",
        "stp x9, x30, [sp, #-48]!
         stp x0, x1, [sp, #16]
         str x8, [sp, #32]
    661: ldr x10, =number
         ALT
         ldr x10, [x10]
         adrp x11, pointer
         ldr x11, [x11, #:lo12:pointer]
         mrs x12, tpidr_el1
         b 1f
         .pushsection .text.unlikely, \"ax\"
      1: bl other_helper
         cbnz x9, 2f
         b 2f
         .popsection
      2: bl direct_func
         ldr x8, [sp, #32]
         ldp x0, x1, [sp, #16]
         ldp x30, x9, [sp], #48
         ret x9",
        ("mrs x12, tpidr_el1", "mrs x12, tpidr_el1\n ldr x12, [x12]"),
    ),
    (
        "riscv64",
        "riscv64-linux-gnu-as",
        "16",
        "addi sp, sp, -32
         sd a0, 0(sp)
         sd a1, 8(sp)
         sd t0, 16(sp)
         sd ra, 24(sp)
    661: la t1, number
         ALT
         ld t1, 0(t1)
         j 1f
         .pushsection .text.unlikely, \"ax\"
      1: call other_helper
         bnez t0, 2f
         j 2f
         .popsection
      2: call direct_func
         ld ra, 24(sp)
         ld t0, 16(sp)
         ld a1, 8(sp)
         ld a0, 0(sp)
         addi sp, sp, 32
         jr t0",
        ("ld t1, 0(t1)", "ld t1, 0(tp)"),
    ),
];

#[test]
fn what_kernels_objects_have_is_run_or_named() {
    let alternative = "
        .pushsection .altinstructions, \"a\"
        .4byte 661b - .
        .4byte 663f - .
        .byte 0, 1, 0, 0, 4, 4
        .popsection
        .pushsection .altinstr_replacement, \"ax\"
    663: .4byte 0
        .popsection";
    let data = "
        .data
        .balign 8
    number: .quad 0x1234
    pointer: .quad other_helper";
    for (arch, assembler, align, body, (sound, astray)) in UNPREPARED {
        let contract = CONTRACT.replace("x86_64", arch).replace("stack-align = 8", &format!("stack-align = {align}"));
        let case = Case::new("", &contract);
        let check = |body: &str| {
            let body = body.replace("ALT", alternative);
            let text = format!(".globl my_tramp\n.type my_tramp, %function\nmy_tramp:\n{body}\n");
            let text = format!("{text}.size my_tramp, . - my_tramp\n.ltorg\n{data}\n");
            std::fs::write(
                case.dir.path().join("t.S"),
                text.replace(".ltorg", if arch == "arm64" { ".ltorg" } else { "" }),
            )
            .unwrap();
            let (code, _, err) = case.run(assembler, &["t.S", "-o", "t.o"]);
            assert_eq!(code, Some(0), "{arch}: {err}");
            case.check()
        };
        let (code, out, err) = check(body);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{arch}: {out}");
        let place = if arch == "x86_64" {
            "my_tramp+0x6"
        } else if arch == "arm64" {
            "my_tramp+0xc"
        } else {
            "my_tramp+0x14"
        };
        assert!(out.contains(&format!("may be patched in when the kernel boots, at {place}")), "{arch}: {out}");
        assert!(out.contains("stands in for ") && out.contains("other_helper"), "{arch}: {out}");
        // Calls and returns are counted through all of it.
        let (code, out, _) =
            check(&body.replacen("call other_helper", "call 3f\n 3:", 1).replacen("bl other_helper", "bl 3f\n 3:", 1));
        assert!(code == Some(1) && out.contains("FAIL P14"), "{arch}: {out}");
        assert!(body.contains(sound));
        let (code, out, _) = check(&body.replace(sound, astray));
        assert!(
            code == Some(1) && out.contains("memory that no object has") && out.contains(", at my_tramp+"),
            "{arch}: {out}"
        );
    }
}
