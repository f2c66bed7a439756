//! Boundaries of C: closures, callbacks, stubs of system calls, switches. Each demand holds for a sound one, and fails for one that breaks
//! just that.

use crate::case::Case;
use crate::common::tools_of;
use crate::stated::{breaks, failing};

/// Shows six registers and a vector to `my_c`, which says by a number where the result goes that it stores.
const CLOSURE: &str = "
    .globl  my_closure
    .type   my_closure, @function
my_closure:
    .cfi_startproc
    sub     $72, %rsp
    .cfi_adjust_cfa_offset 72
    .set offset, 0
    .irp reg, rdi, rsi, rdx, rcx, r8, r9
    mov     %\\reg, offset(%rsp)
    .set offset, offset + 8
    .endr
    movq    %xmm0, 48(%rsp)
    mov     8(%r10), %rdi
    lea     56(%rsp), %rsi
    mov     %rsp, %rdx
    call    my_c
    test    %eax, %eax
    jne     1f
    mov     56(%rsp), %rax
1:  movq    56(%rsp), %xmm0
    add     $72, %rsp
    .cfi_adjust_cfa_offset -72
    ret
    .cfi_endproc
    .size   my_closure, . - my_closure
";

const CLOSURE_CONTRACT: &str = r#"
arch = "x86_64"
profile = "bare"
about = "a closure"

[frame.args]
struct = "struct args"
size = 56
field = [
    { member = "rdi", offset = 0, holds = "rdi" },
    { member = "rsi", offset = 8, holds = "rsi" },
    { member = "r9", offset = 40, holds = "r9" },
    { member = "xmm0", offset = 48, holds = "xmm0" },
]

[[trampoline]]
symbol = "my_closure"
kind = "closure"
calls = "my_c"
frame = "args"
arguments = ["[r10+8]", "sp-16", "frame"]
site = { holds = { r10 = "block" } }
results = [
    { returns = 0, stores = ["[rsi]"], gives = { rax = "stored1" } },
    { returns = 1, stores = ["[rsi]"], gives = { xmm0 = "stored1" } },
]
stack-align = 16
"#;

/// The state of a runtime goes into r15, and its code runs on another stack.
const CALLBACK: &str = "
    .globl  my_callback
    .type   my_callback, @function
my_callback:
    .irp reg, rbp, rbx, r12, r13, r14, r15
    push    %\\reg
    .endr
    mov     %rdi, %r15
    mov     %rsp, 8(%r15)
    mov     (%r15), %rsp
    mov     %rsi, %rax
    call    my_code
    mov     8(%r15), %rsp
    .irp reg, r15, r14, r13, r12, rbx, rbp
    pop     %\\reg
    .endr
    ret
    .size   my_callback, . - my_callback
";

const CALLBACK_CONTRACT: &str = r#"
arch = "x86_64"
profile = "bare"
about = "a callback"

[[trampoline]]
symbol = "my_callback"
kind = "callback"
calls = "my_code"
site = { holds = { rdi = "block", "[block]" = "other-stack" } }
passes = { r15 = "rdi", rax = "rsi", rsp = "other-stack-8", "[block+8]" = "sp-48" }
callee-keeps = ["r15"]
gives = { rax = "result", "[block+16]" = "[rdi+16]" }
stack-align = 16
"#;

const SYSCALL: &str = "
    .globl  my_call, my_errno
    .type   my_call, @function
my_call:
    mov     $275, %eax
    mov     %rcx, %r10
    syscall
    cmp     $-4095, %rax
    jae     1f
    ret
1:  neg     %eax
    mov     %eax, my_errno(%rip)
    mov     $-1, %rax
    ret
    .size   my_call, . - my_call
    .data
my_errno: .quad 0
";

const SYSCALL_CONTRACT: &str = r#"
arch = "x86_64"
profile = "bare"
about = "a stub"

[[trampoline]]
symbol = "my_call"
kind = "syscall"
number = 275
args = 6
errno = "my_errno"
stack-align = 16
"#;

/// Stores its SP where rdi says, and goes on at the one in rsi.
const SWITCH: &str = "
    .globl  my_switch, my_make
    .type   my_switch, @function
my_switch:
    .irp reg, rbp, rbx, r12, r13, r14, r15
    push    %\\reg
    .endr
    sub     $8, %rsp
    stmxcsr (%rsp)
    fnstcw  4(%rsp)
    mov     %rsp, (%rdi)
    mov     %rsi, %rsp
    mov     %rdx, %rax
    ldmxcsr (%rsp)
    fldcw   4(%rsp)
    add     $8, %rsp
    .irp reg, r15, r14, r13, r12, rbx, rbp
    pop     %\\reg
    .endr
    ret
    .size   my_switch, . - my_switch
    .type   my_make, @function
my_make:
    lea     -88(%rdi), %rax
    stmxcsr (%rax)
    fnstcw  4(%rax)
    mov     %rsi, 56(%rax)
    lea     1f(%rip), %rdx
    mov     %rdx, 64(%rax)
    ret
1:  call    my_exit
    .size   my_make, . - my_make
";

const SWITCH_CONTRACT: &str = r#"
arch = "x86_64"
profile = "bare"
about = "a switch"

[[trampoline]]
symbol = "my_switch"
kind = "switch"
calls = "my_function"
from = "[rdi]"
to = "rsi"
switches-control = true
site = { holds = { rdi = "block+16" } }
passes = { rax = "rdx" }
stack-align = 16

[trampoline.fresh]
made-by = "my_make"
holds = { rdi = "other-stack", rsi = "&my_function" }
passes = { rdx = "rdx" }
ends-in = "my_exit"
"#;

#[test]
fn a_closure_shows_its_arguments_and_returns_what_is_stored() {
    let closure = |from: &str, to: &str, clauses: &[&str]| breaks(CLOSURE, CLOSURE_CONTRACT, from, to, clauses);
    closure("", "", &[]);
    closure("rdx, rcx, r8, r9\n", "rdx, rcx, r8, r8\n", &["P10"]);
    closure("movq    %xmm0, 48(%rsp)", "movq    %xmm1, 48(%rsp)", &["P10"]);
    closure("mov     8(%r10), %rdi", "mov     16(%r10), %rdi", &["P10"]);
    closure("    mov     56(%rsp), %rax\n", "    mov     %rbx, %rax\n", &["P11"]);
    closure("1:  movq    56(%rsp), %xmm0", "1:  movq    48(%rsp), %xmm0", &["P11"]);
    closure("mov     8(%r10), %rdi", "mov     8(%r10), %rbx\n mov %rbx, %rdi", &["P5", "P12"]);
    closure("    .cfi_adjust_cfa_offset 72\n", "", &["P12"]);
    closure("    test    %eax, %eax\n    jne     1f\n", "    test %eax, %eax\n    jmp 1f\n", &["P11", "coverage"]);
    // C may have changed it.
    closure("call    my_c\n", "mov %rdi, %r11\n    call my_c\n    mov (%r11), %r11\n", &["P9", "coverage"]);
    closure("stack-align = 16", "stack-align = 32", &["P8"]);
    closure("call    my_c\n", "std\n    call my_c\n    cld\n", &["P6"]);
    // A result in a register that C keeps, if the contract says so. The unwind table says otherwise.
    let kept = CLOSURE.replace("mov     56(%rsp), %rax", "mov     56(%rsp), %rbx");
    let case = Case::new(&kept, &CLOSURE_CONTRACT.replace("rax = \"stored1\"", "rbx = \"stored1\""));
    assert_eq!(failing(&case), ["P12"], "{}", case.check().1);
    // What C may change is nobody's.
    closure("    ret\n", "    xor %r11d, %r11d\n    pxor %xmm7, %xmm7\n    ret\n", &[]);
}

#[test]
fn a_callback_leads_to_another_stack_and_back() {
    let callback = |from: &str, to: &str, clauses: &[&str]| breaks(CALLBACK, CALLBACK_CONTRACT, from, to, clauses);
    callback("", "", &[]);
    callback("mov     %rdi, %r15\n", "mov %rdi, %r15\n    mov %rdi, %r14\n", &[]);
    // That code keeps nothing but r15.
    callback("mov     8(%r15), %rsp\n", "mov 8(%r14), %rsp\n", &["P9", "coverage"]);
    callback("r13, r14, r15\n    push", "r13, r14, r14\n    push", &["P5"]);
    callback("mov     (%r15), %rsp", "mov     (%r15), %rsp\n    push %rax", &["P8", "P10"]);
    callback("mov     %rsi, %rax", "mov     %rdx, %rax", &["P10"]);
    callback("    ret\n", "    xor %eax, %eax\n    ret\n", &["P11"]);
    callback("    call    my_code\n", "    call my_code\n    mov %rax, 16(%r15)\n", &["P11"]);
    // On the stack of C it is as before.
    callback("    mov     (%r15), %rsp\n", "    sub $8, %rsp\n", &["P10"]);
    // A C function keeps more.
    callback("callee-keeps = [\"r15\"]\n", "", &[]);
}

#[test]
fn a_stub_gives_the_kernel_its_arguments_and_tells_errors_from_results() {
    let stub = |from: &str, to: &str, clauses: &[&str]| breaks(SYSCALL, SYSCALL_CONTRACT, from, to, clauses);
    stub("", "", &[]);
    stub("number = 275", "number = 274", &["P10"]);
    // The instruction overwrites rcx.
    stub("    mov     %rcx, %r10\n", "", &["P10"]);
    stub("    ret\n1:", "    mov %rcx, %rdx\n    ret\n1:", &[]);
    stub("$-4095", "$-4096", &["P11"]);
    stub("$-4095", "$-4094", &["P11"]);
    stub("cmp     $-4095, %rax", "cmp     $-4095, %eax", &["P11"]);
    stub("neg     %eax", "nop", &["P11"]);
    stub("    mov     $-1, %rax\n", "", &["P11"]);
    stub("errno = \"my_errno\"\n", "", &["P11"]);
    // It is an int, and has no error where there is none.
    stub("mov     %eax, my_errno", "mov     %rax, my_errno", &["P11"]);
    stub("    syscall\n", "    movl $0, my_errno(%rip)\n    syscall\n", &["P11"]);
    stub("errno = \"my_errno\"\n", "errno = \"my_errno\"\nkeeps = [\"xmm0\"]\n", &[]);
    let halved = SYSCALL.replace("    syscall\n", "    syscall\n    movq %xmm0, %xmm0\n");
    let case = Case::new(&halved, &SYSCALL_CONTRACT.replace("args = 6", "args = 6\nkeeps = [\"xmm0\"]"));
    assert_eq!(failing(&case), ["P5"], "{}", case.check().1);
    stub("    syscall\n", "    push %rax\n    syscall\n    pop %rdx\n", &[]);
    stub("    syscall\n", "    mov %rcx, -136(%rsp)\n    syscall\n", &["P7"]);
    let none = Case::new(&SYSCALL.replace("    syscall\n", "    nop\n"), SYSCALL_CONTRACT);
    assert_eq!(failing(&none), ["P10", "P11", "coverage"], "{}", none.check().1);
}

#[test]
fn costs_that_nobody_counts_are_not_told() {
    let (code, out, err) =
        Case::new(SYSCALL, SYSCALL_CONTRACT).tool(&["cost", "--object", "t.o", "--contract", "t.toml"]);
    assert!(code == Some(2) && err.contains("my_call, of kind syscall: no traced function leads to it"), "{out}{err}");
}

/// A stub is a function of its architecture.
#[test]
fn stubs_of_other_architectures_are_judged_too() {
    for (arch, number, code, wrong) in [
        ("arm64", 63, "mov x8, #63\n svc #0\n ret", "mov x7, #63\n svc #0\n ret"),
        ("riscv64", 63, "li a7, 63\n ecall\n ret", "li a7, 64\n ecall\n ret"),
    ] {
        let contract = format!(
            "arch = \"{arch}\"\nprofile = \"bare\"\nabout = \"a stub\"\n\n[[trampoline]]\nsymbol = \"my_read\"\nkind = \"syscall\"\n\
             number = {number}\nargs = 3\nstack-align = 16\n"
        );
        let judge = |code: &str| {
            let text =
                format!(".globl my_read\n.type my_read, %function\nmy_read:\n{code}\n.size my_read, . - my_read\n");
            let case = Case::new("", &contract);
            std::fs::write(case.dir.path().join("t.S"), text).unwrap();
            let (done, _, err) = case.run(&format!("{}as", tools_of(arch)), &["t.S", "-o", "t.o"]);
            assert_eq!(done, Some(0), "{err}");
            failing(&case)
        };
        assert_eq!(judge(code), [""; 0], "{arch}");
        assert_eq!(judge(wrong), ["P10"], "{arch}");
        assert_eq!(judge(&code.replace("\n ret", "\n nop\n ret")), [""; 0], "{arch}");
    }
}

#[test]
fn a_switch_leaves_one_context_as_it_was_and_goes_on_in_another() {
    let switch = |from: &str, to: &str, clauses: &[&str]| breaks(SWITCH, SWITCH_CONTRACT, from, to, clauses);
    switch("", "", &[]);
    let pops = "r15, r14, r13, r12, rbx, rbp\n    pop";
    switch(pops, "r15, r14, r12, r13, rbx, rbp\n    pop", &["P5"]);
    switch("    ldmxcsr (%rsp)\n", "    nop\n", &["P6"]);
    switch("    fldcw   4(%rsp)\n", "    nop\n", &["P6"]);
    switch("mov     %rdx, %rax", "mov     %rcx, %rax", &["P10"]);
    // An interrupt comes before it has gone.
    switch("    mov     %rsp, (%rdi)\n", "    add $200, %rsp\n    sub $200, %rsp\n    mov %rsp, (%rdi)\n", &["P9"]);
    switch("    mov     %rsp, (%rdi)\n", "    mov %rsp, 8(%rdi)\n", &["P9"]);
    // Of a context that has not run.
    switch("mov     %rdx, 64(%rax)", "mov     %rsi, 64(%rax)", &["P8", "P9"]);
    switch("-88(%rdi)", "-80(%rdi)", &["P8"]);
    switch("    mov     %rdx, %rax\n", "    mov %rdx, %rax\n    xor %edx, %edx\n", &["P10"]);
    // Every context calls it with SP as C has it.
    let by_sp = "    mov %esp, %eax\n    and $8, %eax\n    add %rax, %rsi\n    mov     %rsp, (%rdi)\n";
    switch("    mov     %rsp, (%rdi)\n", by_sp, &[]);
}

/// Words of memory have their stated values for each context, and for what makes one.
#[test]
fn each_context_has_its_own_words() {
    let holds = |code: [&str; 2], contract: [[&str; 2]; 2]| {
        let [from, to] = code;
        assert!(SWITCH.contains(from) && contract.iter().all(|[from, _]| SWITCH_CONTRACT.contains(from)));
        let stated = contract.iter().fold(SWITCH_CONTRACT.to_owned(), |text, [from, to]| text.replace(from, to));
        let case = Case::new(&SWITCH.replace(from, to), &stated);
        assert_eq!(failing(&case), [""; 0], "{}", case.check().1);
    };
    let store = ["mov     %rsp, (%rdi)", "mov 8(%rdi), %r8\n    mov     %rsp, (%r8)"];
    let site = ["rdi = \"block+16\"", "rdi = \"block+16\", \"[block+24]\" = \"block+64\""];
    holds(store, [["from = \"[rdi]\"", "from = \"[block+64]\""], site]);
    let made = "lea     -88(%rdi), %rax";
    for (from, stated) in [("8(%rsp)", "\"[sp+8]\""), ("8(%rcx)", "rcx = \"block\", \"[block+8]\"")] {
        let stated = format!("{stated} = \"&my_function\"");
        holds([made, &format!("mov {from}, %rsi\n    {made}")], [["rsi = \"&my_function\"", &stated], ["", ""]]);
    }
}

/// Whoever unwinds from a context's function comes to its end.
#[test]
fn nothing_called_the_function_of_a_fresh_context() {
    let goes_on = SWITCH.replace("1:  call", "    .cfi_startproc\n    nop\n1:  call") + "    .cfi_endproc\n";
    let case = Case::new(&goes_on, SWITCH_CONTRACT);
    assert_eq!(failing(&case), ["P12"], "{}", case.check().1);
    let ends = goes_on.replace("    .cfi_startproc\n", "    .cfi_startproc\n    .cfi_undefined rip\n");
    let case = Case::new(&ends, SWITCH_CONTRACT);
    assert_eq!(failing(&case), [""; 0], "{}", case.check().1);
}

#[test]
fn what_cannot_be_stated_of_a_boundary_is_refused_with_its_line() {
    let refused = |contract: &str, from: &str, to: &str, message: &str| {
        assert!(contract.contains(from), "{from}");
        let case = Case::new(CLOSURE, &contract.replacen(from, to, 1));
        let (code, out, err) = case.check();
        assert!(code == Some(2) && err.contains(message), "{from:?} to {to:?}: {out}{err}");
    };
    let closure = |from: &str, to: &str, message: &str| refused(CLOSURE_CONTRACT, from, to, message);
    closure("calls = \"my_c\"\n", "", "t.toml:26: my_closure, of kind closure: give calls, the function");
    closure(
        "r10 = \"block\"",
        "r10 = \"[block]\"",
        "'[block]'; valid: a number, block to block+4095, other-stack-65536 to other-stack, &symbol",
    );
    closure("r10 = \"block\"", "\"[block+4]\" = \"1\"", "'[block+4]'; valid: a register, or a word of the stack");
    closure("\"[r10+8]\"", "\"&my_c\"", "'&my_c': a symbol is valid in holds, and in arguments of kind displaced");
    closure("[\"[rsi]\"]", "[\"rsi\"]", "'rsi'; valid: a word, as [rcx+8]");
    closure("xmm0 = \"stored1\"", "xmm99 = \"stored1\"", "unknown register 'xmm99'");
    closure("kind = \"closure\"", "kind = \"sled\"", "results is for kind closure, callback only");
    closure("holds = \"xmm0\"", "holds = \"xmm99\"", "unknown content 'xmm99'");
    closure("rax = \"stored1\"", "rax = \"stored2\"", "'stored2': kind closure has no stored2 here");
    closure("[\"[r10+8]\"", "[\"call1.rax\"", "'call1.rax': kind closure has no call1.rax here");
    closure("\"sp-16\"", "\"[block+4092]\"", "'[block+4092]': kind closure has no [block+0xffc] here");
    closure(
        "arguments = [\"[r10+8]\", \"sp-16\", \"frame\"]\n",
        "",
        "my_closure: what does a closure show? give frame and arguments",
    );
    closure(
        "holds = \"r9\"",
        "holds = \"r9\", stores = \"take-effect\"",
        "args: leave stores and result out of a closure's",
    );
    closure("r10 = \"block\"", "r10 = \"block+4096\"", "'block+4096'; valid: a number, block to block+4095");
    closure("r10 = \"block\"", "r10 = \"&nowhere\"", "the contract names &nowhere; the objects must refer to that");
    closure("xmm0 = \"stored1\"", "\"[&nowhere]\" = \"0\"", "the contract names &nowhere");
    closure("site = { ", "site = { clear-flags = [\"ac\"], ", "clear-flags, pushed and thread are for sleds");
    let many = format!("results = [{}", "{ returns = 0 },".repeat(40));
    closure("results = [", &many, "42 results; valid: at most 32");
    let stub = |from: &str, to: &str, message: &str| refused(SYSCALL_CONTRACT, from, to, message);
    stub("args = 6", "args = 7", "t.toml:10: args = 7; valid: 0 to 6");
    stub("args = 6", "args = 6\nuncalled = { holds = {}, gives = {} }", "t.toml:11: uncalled is for kind sled only");
    stub("args = 6", "args = 6\ngives = { rdx = \"result\" }", "'result': kind syscall has no result here");
    stub("number = 275\n", "", "my_call is of kind syscall: give number");
    stub("args = 6", "args = 6\ncalls = \"my_c\"", "my_call, of kind syscall: it calls no function: leave calls out");
    let switch = |from: &str, to: &str, message: &str| refused(SWITCH_CONTRACT, from, to, message);
    switch("from = \"[rdi]\"\n", "", "what names the context that is left? valid: from, or from-register");
    switch("to = \"rsi\"\n", "", "which register names the context that is entered? give to");
    switch("to = \"rsi\"", "to = \"esi\"", "unknown register 'esi'");
    switch("from = \"[rdi]\"", "from = \"stored1\"", "'stored1': kind switch has no stored1 here");
    switch("to = \"rsi\"", "to = \"rsi\"\ngives = { rcx = \"0\" }", "gives: what a switch returns is up to the other");
    switch("made-by = \"my_make\"", "made-by = \"\"", "made-by: which function makes a context?");
    switch("made-by = \"my_make\"", "made-by = \"my_c\"\nfrom-register = \"eax\"", "unknown register 'eax'");
}
