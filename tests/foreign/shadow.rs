//! A recorder of another hand, which keeps return addresses on a shadow stack of the thread.

use crate::case::Case;

/// Both records, and between them the function, which finds its stack as its caller left it.
const RECORDER: &str = "
    .macro  record what
    mov     $16, %r11d
    xadd    %r11, %fs:-24
    cmp     %fs:-16, %r11
    jae     1f
    movq    $0, (%r11)
    movq    $\\what, 8(%r11)
1:
    .endm

    .globl  my_record
    .type   my_record, @function
my_record:
    .cfi_startproc
    mov     %fs:-40, %r11
    cmp     %fs:-32, %r11
    jae     5f
    record  0x701
    mov     %fs:-40, %r11
    addq    $16, %fs:-40
    pop     (%r11)
    .cfi_def_cfa_offset 0
    .cfi_undefined %rip
    mov     %rsp, 8(%r11)
    call    traced_function + 5
    record  0x702
    mov     %fs:-40, %rcx
2:
    lea     -16(%rcx), %rcx
    cmp     8(%rcx), %rsp
    jne     4f
    push    (%rcx)
    .cfi_def_cfa_offset 8
    .cfi_restore %rip
    mov     %rcx, %fs:-40
    ret
    .cfi_def_cfa_offset 0
    .cfi_undefined %rip
4:
    cmpq    $0, 8(%rcx)
    jne     2b
    int3
    .cfi_def_cfa_offset 8
    .cfi_restore %rip
5:
    jmp     traced_function + 5
    .cfi_endproc
    .size   my_record, . - my_record
";

const CONTRACT: &str = r#"
arch = "x86_64"
profile = "bare"
about = "a recorder with a shadow stack"

[[trampoline]]
symbol = "my_record"
kind = "record"
form = "shadow"
events = "both"
clock = "none"
id = 7
function = "traced_function"
resume = 5
stack-align = 16
"#;

#[test]
fn each_call_has_its_own_entry_of_the_shadow_stack() {
    let judge = |changes: &[(&str, &str)]| {
        let text = changes.iter().fold(RECORDER.to_owned(), |text, (from, to)| {
            assert_eq!(text.matches(from).count(), 1, "{from}");
            text.replace(from, to)
        });
        Case::new(&text, CONTRACT).check()
    };
    let (code, out, err) = judge(&[]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    let take = "    addq    $16, %fs:-40\n";
    let store = "    pop     (%r11)\n    .cfi_def_cfa_offset 0\n    .cfi_undefined %rip\n    mov     %rsp, 8(%r11)\n";
    let back = "    mov     %rcx, %fs:-40\n";
    let question = "    jae     5f\n";
    let wrong: &[(&[(&str, &str)], &str)] = &[
        // Written before it is taken.
        (&[(take, ""), (store, &[store, take].concat())], "FAIL P25 of x86_64 my_record"),
        // Given back before it is read.
        (&[(back, ""), ("    push    (%rcx)\n", &[back, "    push    (%rcx)\n"].concat())], "FAIL P25"),
        // Nobody asks for room, or wrongly.
        (&[(question, "")], "FAIL P9"),
        (&[(question, "    ja      5f\n")], "FAIL P9"),
        (&[(question, "    je      5f\n")], "FAIL P9"),
        // Something is stored above the limit, or behind the entry.
        (&[(question, "    ja      5f\n"), (store, &["    movq    $0, 32(%r11)\n", store].concat())], "has besides"),
        // SP is another one.
        (
            &[("    mov     %rsp, 8(%r11)\n", "    lea     8(%rsp), %rcx\n    mov     %rcx, 8(%r11)\n")],
            "sp in the function",
        ),
        // The topmost entry is taken, whosever it is.
        (&[("    jne     4f\n", "")], "FAIL P9"),
        // Entries are left out.
        (&[("    lea     -16(%rcx), %rcx\n", "    sub     $16, %rcx\n    sub     $16, %rcx\n")], "FAIL P9"),
        // The search has no end.
        (&[("    cmpq    $0, 8(%rcx)\n    jne     2b\n", "    jmp     2b\n")], "a stop where the function's entry"),
        // Nothing is given back.
        (&[(back, "")], "next entry of the thread's shadow stack"),
    ];
    for (changes, part) in wrong {
        let (code, out, err) = judge(changes);
        assert!(code == Some(1) && out.contains(part), "no {part:?} for {changes:?} in {out}{err}");
    }
}
