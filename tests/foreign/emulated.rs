//! Trampolines with instructions that the engine lacks.

use crate::case::Case;

/// One that stores vector registers by XSAVEC, as the GNU C library's ways to functions do.
const SLED: &str = "
    .globl  my_sled
    .type   my_sled, @function
my_sled:
    .irp reg, rbp, rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11
    push    %\\reg
    .endr
    mov     %rsp, %rbp
    and     $-64, %rsp
    sub     $640, %rsp
    xor     %edx, %edx
    .irp at, 528, 536, 544, 552, 560, 568
    mov     %rdx, \\at(%rsp)
    .endr
    mov     $7, %eax
    xsavec  (%rsp)
    cld
    call    my_c
    mov     $7, %eax
    xor     %edx, %edx
    xrstor  (%rsp)
    mov     %rbp, %rsp
    .irp reg, r11, r10, r9, r8, rdi, rsi, rdx, rcx, rax, rbp
    pop     %\\reg
    .endr
    ret
    .size   my_sled, . - my_sled
";

const CONTRACT: &str = "
arch = \"x86_64\"
profile = \"bare\"
about = \"a sled\"

[[trampoline]]
symbol = \"my_sled\"
kind = \"sled\"
calls = \"my_c\"
handlers = \"any\"
site = { clear-flags = [\"df\", \"ac\"] }
stack-align = 16
keeps = [\"xmm8\", \"xmm15\"]
";

#[test]
fn what_xsavec_stores_survives_and_what_it_does_not_is_lost() {
    let judge = |from: &str, to: &str| {
        assert!(SLED.contains(from), "{from}");
        Case::new(&SLED.replacen(from, to, 1), CONTRACT).check()
    };
    let (code, out, err) = judge("", "");
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    let fails = |(from, to): (&str, &str), parts: &[&str]| {
        let (code, out, _) = judge(from, to);
        assert!(code == Some(1) && parts.iter().all(|part| out.contains(part)), "no {parts:?} in {out}");
    };
    // No SSE state, neither stored nor loaded; and loaded only, so that it is set to what it is initially.
    fails(("$7, %eax\n    xor", "$1, %eax\n    xor"), &["FAIL P2 of x86_64 my_sled", "\n  xmm0: expected"]);
    fails(("$7, %eax\n    xsavec", "$1, %eax\n    xsavec"), &["FAIL P2 of x86_64 my_sled", "found 0x0"]);
    // The rest of the header must be 0, and nobody else has written it.
    fails((" 560, 568\n", " 560\n"), &["load of a slot never written"]);
    fails(
        ("    mov     %rdx, \\at(%rsp)\n", "    movq $1, \\at(%rsp)\n"),
        &["bytes 16 to 63 of the XSAVE header are not all 0"],
    );
    fails(("    and     $-64, %rsp\n", "    and     $-64, %rsp\n    sub $16, %rsp\n"), &["not aligned to 64 bytes"]);
    // An area that is too small: the way back is lost.
    fails(("    sub     $640, %rsp\n", "    sub     $512, %rsp\n"), &["FAIL "]);
    // Below SP, where a signal would overwrite it.
    fails(("xsavec  (%rsp)", "xsavec  -640(%rsp)"), &["store below sp"]);
    // What the trampoline itself loads of the x87 shows in its control word.
    fails(
        ("    xrstor  (%rsp)\n", "    movw $0x37f, (%rsp)\n    xrstor  (%rsp)\n"),
        &["FAIL P6 of x86_64 my_sled", "fpcw: "],
    );
    fails(
        ("    xrstor  (%rsp)\n", "    movl $0x1f80, 24(%rsp)\n    xrstor  (%rsp)\n"),
        &["FAIL P6 of x86_64 my_sled", "mxcsr: "],
    );
}
