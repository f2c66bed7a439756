//! Trampolines that others wrote: text of our own, assembled by GNU as, and the kernel's objects where they were built.

use std::path::Path;
use std::process::{Command, Output};

use tramptool::contracts::CONTRACTS;

use common::CONTRACT;

mod common;

/// A direct-call trampoline that keeps two argument registers.
const TRAMPOLINE: &str = "
    .globl  my_tramp
    .type   my_tramp, @function
my_tramp:
    push    %rbp
    mov     %rsp, %rbp
    push    %rdi
    push    %rsi
    call    my_direct_func
    call    other_helper
    pop     %rsi
    pop     %rdi
    leave
    ret
    .size   my_tramp, . - my_tramp
";

struct Case {
    dir: tempfile::TempDir,
}

impl Case {
    fn new(text: &str, contract: &str) -> Case {
        let case = Case { dir: tempfile::tempdir().unwrap() };
        case.contract(contract);
        case.assemble("t", &text.replace("my_direct_func", "direct_func"));
        case
    }

    fn contract(&self, text: &str) {
        std::fs::write(self.dir.path().join("t.toml"), text).unwrap();
    }

    fn run(&self, program: &str, args: &[&str]) -> (Option<i32>, String, String) {
        text(Command::new(program).args(args).current_dir(&self.dir).output().unwrap())
    }

    fn assemble(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(format!("{name}.S")), text).unwrap();
        let out = format!("{name}.o");
        let (code, _, err) = self.run("x86_64-linux-gnu-as", &[&format!("{name}.S"), "-o", &out]);
        assert_eq!(code, Some(0), "{err}");
    }

    fn tool(&self, args: &[&str]) -> (Option<i32>, String, String) {
        self.run(env!("CARGO_BIN_EXE_tramptool"), args)
    }

    fn check(&self) -> (Option<i32>, String, String) {
        self.tool(&["check", "--object", "t.o", "--contract", "t.toml"])
    }
}

fn text(run: Output) -> (Option<i32>, String, String) {
    let utf8 = |bytes| String::from_utf8(bytes).unwrap();
    (run.status.code(), utf8(run.stdout), utf8(run.stderr))
}

#[test]
fn a_sound_trampoline_passes() {
    let (code, out, err) = Case::new(TRAMPOLINE, CONTRACT).check();
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.contains("stands in for other_helper"), "{out}");
}

#[test]
fn a_lost_register_is_found_and_named() {
    let broken = TRAMPOLINE.replace("    pop     %rsi\n", "    add     $8, %rsp\n");
    let (code, out, _) = Case::new(&broken, CONTRACT).check();
    assert_eq!(code, Some(1));
    assert!(out.contains("FAIL P1 of x86_64 my_tramp") && out.contains("\n  rsi: expected"), "{out}");
}

#[test]
fn an_expected_deviation_is_told_and_one_that_is_gone_fails() {
    let expecting = format!("{CONTRACT}deviation = [{{ clause = \"P1\", place = \"rsi\", reason = \"known\" }}]\n");
    let broken = TRAMPOLINE.replace("    pop     %rsi\n", "    add     $8, %rsp\n");
    // What was lost shows again after the function, against the unpatched run: the same register, clause P5.
    let (_, out, _) = Case::new(&broken, &expecting).check();
    assert!(out.contains("P1   my_tramp: rsi: known"), "{out}");
    assert!(!out.contains("FAIL P1"), "{out}");
    let (code, out, _) = Case::new(TRAMPOLINE, &expecting).check();
    assert_eq!(code, Some(1));
    assert!(out.contains("rsi was expected to deviate and does not: known"), "{out}");
}

/// What objtool says of [`TRAMPOLINE`]: the CFA and the slot of rbp from each instruction that changes either. Numbers of
/// registers and types are those of kernel arch/x86/include/asm/orc_types.h.
fn orc(frame: i16) -> String {
    // Address, CFA minus its base, slot of rbp below CFA, base and how rbp is found, type.
    let frame = frame.to_string();
    let entries = [
        ("my_tramp", "8", "0", "0x05", "2"),
        ("my_tramp + 1", "16", "-16", "0x15", "2"),
        ("my_tramp + 4", &frame, "-16", "0x14", "2"),
        ("my_tramp + 0x13", "8", "0", "0x05", "2"),
        ("my_tramp + 0x14", "0", "0", "0x00", "0"),
    ];
    let ips = entries.map(|(at, ..)| format!("    .long {at} - .\n")).concat();
    let rules = entries.map(|(_, cfa, bp, base, kind)| format!("    .short {cfa}, {bp}\n    .byte {base}, {kind}\n"));
    format!("    .section .orc_unwind_ip, \"a\"\n{ips}    .section .orc_unwind, \"a\"\n{}", rules.concat())
}

#[test]
fn orc_is_compared_with_the_stack_at_every_instruction() {
    let (code, out, err) = Case::new(&(TRAMPOLINE.to_owned() + &orc(16)), CONTRACT).check();
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    let row = |out: &str| out.lines().find(|l| l.trim_start().starts_with("my_tramp ")).unwrap_or_default().to_owned();
    let (_, without, _) = Case::new(TRAMPOLINE, CONTRACT).check();
    assert_ne!(row(&out), row(&without), "P12 was not decided");
    let broken = Case::new(&(TRAMPOLINE.to_owned() + &orc(24)), CONTRACT);
    let (code, out, _) = broken.check();
    assert_eq!(code, Some(1));
    assert!(out.contains("FAIL P12") && out.contains("\n  CFA by the unwind table: "), "{out}");
    // Expected at one instruction, it is still a failure at the others.
    let expecting = |place: &str| {
        let known = format!("deviation = [{{ clause = \"P12\", place = \"{place}\", reason = \"known\" }}]\n");
        broken.contract(&format!("{CONTRACT}{known}"));
        broken.check()
    };
    assert_eq!(expecting("* by the unwind table").0, Some(0));
    let (code, out, _) = expecting("* by the unwind table at my_tramp+0x4");
    assert_eq!(code, Some(1));
    assert!(out.contains("at my_tramp+0x5") && !out.contains("at my_tramp+0x4\n"), "{out}");
}

/// A function of the object itself, with a site and a body that cannot run here.
const OWN_FUNCTION: &str = "
    .globl  my_func
    .type   my_func, @function
my_func:
    call    __fentry__
    ud2
    .size   my_func, . - my_func
    .section __mcount_loc, \"a\", @progbits
    .quad   my_func
";

#[test]
fn a_function_that_the_object_brings_along_is_called_and_its_body_is_not_run() {
    let own = TRAMPOLINE.replace("my_direct_func", "my_func") + OWN_FUNCTION;
    let contract = CONTRACT.replace("direct_func", "my_func");
    let (code, out, err) = Case::new(&own, &contract).check();
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    // What it may overwrite, it overwrites; what it is given is looked at.
    let (_, out, _) = Case::new(&own.replace("    pop     %rsi\n", "    add     $8, %rsp\n"), &contract).check();
    assert!(out.contains("FAIL P1"), "{out}");
    let (_, out, _) =
        Case::new(&own.replace("    call    my_func\n", "    inc %rdi\n    call    my_func\n"), &contract).check();
    assert!(out.contains("FAIL P10") && out.contains("argument in rdi"), "{out}");
    let (_, out, _) = Case::new(&own.replace("    call    my_func\n", "    call    other\n"), &contract).check();
    assert!(out.contains("FAIL P10") && out.contains("calls of the callback: expected 0x1, found 0x0"), "{out}");
    let (code, _, err) = Case::new(TRAMPOLINE, &contract).check();
    assert_eq!(code, Some(2));
    assert!(err.contains("my_tramp calls my_func, says the contract; no object defines or calls it"), "{err}");
}

#[test]
fn of_two_trampolines_each_is_held_to_its_own_function() {
    let two = |second: &str| {
        let text =
            TRAMPOLINE.to_owned() + &TRAMPOLINE.replace("my_tramp", "my_tramp2").replace("my_direct_func", second);
        let more =
            CONTRACT[CONTRACT.find("[[").unwrap()..].replace("my_tramp", "my_tramp2").replace("direct_func", "other");
        Case::new(&text, &(CONTRACT.to_owned() + &more)).check()
    };
    let (code, out, _) = two("other");
    assert_eq!(code, Some(0), "{out}");
    let (code, out, _) = two("my_direct_func\n    call other");
    assert_eq!(code, Some(1));
    assert!(out.contains("FAIL P10 of x86_64 my_tramp2") && out.contains("\n  function that it calls: "), "{out}");
}

#[test]
fn files_that_define_the_same_symbol_are_judged_one_by_one() {
    let more = CONTRACT[CONTRACT.find("[[").unwrap()..].replace("symbol", "object = \"u.o\"\nsymbol")
        + "keeps = [\"rcx\", \"rdx\"]\n"
        + "deviation = [{ clause = \"P1\", place = [\"rcx\", \"rdx\"], reason = \"not saved\" }]\n";
    let case = Case::new(TRAMPOLINE, &(CONTRACT.replace("symbol", "object = \"t.o\"\nsymbol") + &more));
    let text = TRAMPOLINE.replace("my_direct_func", "direct_func");
    case.assemble("u", &text);
    let both = ["check", "--object", "t.o", "u.o", "--contract", "t.toml"];
    let (code, out, err) = case.tool(&both);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.contains("over 2 sets of options") && out.contains("rcx, rdx: not saved"), "{out}");
    let (code, out, _) = case.check();
    assert_eq!(code, Some(0), "one of them: {out}");
    assert!(!out.contains("not saved"), "{out}");
    // Both places of one deviation are expected.
    let saves = text.replace("push    %rsi", "push    %rsi\n    push    %rdx");
    case.assemble("u", &saves.replace("pop     %rsi", "pop     %rdx\n    pop     %rsi"));
    let (code, out, _) = case.tool(&both);
    assert_eq!(code, Some(1));
    assert!(out.contains("rdx was expected to deviate and does not: not saved"), "{out}");
    case.assemble("v", TRAMPOLINE);
    let (code, _, err) = case.tool(&["check", "--object", "v.o", "--contract", "t.toml"]);
    assert_eq!((code, err.as_str()), (Some(2), "tramptool: t.toml has nothing for v.o; valid: t.o, u.o\n"));
}

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
        &["FAIL P10 of x86_64 my_sled", "calls of the callback: "],
    );
    fails(("    ret\n", "    ret $8\n"), &["FAIL P7 of x86_64 my_sled"]);
    let (_, out, err) = Case::new(SLED, &SLED_CONTRACT.replace("sled\"\ncalls", "sled\"\nargs = 2\ncalls")).check();
    assert!(err.contains("t.toml:8: args is for kind direct only"), "{out}{err}");
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

#[test]
fn vector_state_that_the_engine_lacks_is_looked_for_and_named() {
    let verbose = ["check", "--object", "t.o", "--contract", "t.toml", "-v"];
    let (_, out, _) = Case::new(TRAMPOLINE, CONTRACT).tool(&verbose);
    assert!(
        out.contains("ok P2-wide  x86_64 my_tramp [t.toml]: engine lacks ymm, zmm and mask registers, but"),
        "{out}"
    );
    let text = TRAMPOLINE.replace("    leave\n    ret\n", "    leave\n    ret\n    vzeroupper\n");
    let (_, out, _) = Case::new(&text, CONTRACT).tool(&verbose);
    let named =
        "- P2-wide  x86_64 my_tramp [t.toml]: engine lacks ymm, zmm and mask registers, and vzeroupper at +0x14";
    assert!(out.contains(named), "{out}");
}

#[test]
fn what_else_may_be_live_at_an_entry_has_a_name() {
    let keeping = |who: &str| Case::new(TRAMPOLINE, &format!("{CONTRACT}keeps = [\"{who}\"]\n")).check();
    let (code, out, _) = keeping("static-chain");
    assert!(
        code == Some(1) && out.contains("FAIL P4 of x86_64 my_tramp") && out.contains("\n  r10: expected"),
        "{out}"
    );
    let (code, out, _) = keeping("varargs");
    assert!(
        code == Some(1) && out.contains("FAIL P1 of x86_64 my_tramp") && out.contains("\n  rax: expected"),
        "{out}"
    );
    let (code, _, err) = keeping("fastcc");
    assert!(code == Some(2) && err.contains("unknown register 'fastcc'") && err.contains("static-chain"), "{err}");
}

/// An entry trampoline, whose callback hooks the return, and the trampoline of a kretprobe.
const RETHOOK: &str = concat!(
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
    include_str!("common/rethook.S"),
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
        let again = out.lines().find_map(|l| l.trim().strip_prefix("again: tramptool ")).unwrap();
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
fn a_first_contract_is_written_from_what_the_object_shows() {
    let case = Case::new(TRAMPOLINE, CONTRACT);
    let init = |symbol| case.tool(&["contract", "init", "--object", "t.o", "--symbol", symbol, "-o", "t.toml"]);
    let written = || std::fs::read_to_string(case.dir.path().join("t.toml")).unwrap();
    // Two arguments are saved, and the psABI's alignment is not met at both parities of the stack.
    assert_eq!(init("my_tramp"), (Some(0), String::new(), String::new()));
    for line in
        ["arch = \"x86_64\"", "kind = \"direct\"", "args = 2", "calls = \"direct_func\"", "direct_func, other_helper"]
    {
        assert!(written().contains(line), "{line}: {}", written());
    }
    let (code, out, _) = case.check();
    assert!(code == Some(1) && out.contains("FAIL P8") && !out.contains("FAIL P1"), "{out}");
    std::fs::write(case.dir.path().join("t.toml"), written().replace("stack-align = 16", "stack-align = 8")).unwrap();
    assert_eq!(case.check().0, Some(0));
    let (code, _, err) = init("your_tramp");
    assert_eq!(code, Some(2));
    assert!(err.contains("unknown symbol 'your_tramp'; valid: my_tramp"), "{err}");
    // An entry trampoline by its call slot, and a kretprobe's by its name.
    case.assemble("t", RETHOOK);
    for (symbol, lines) in [
        ("my_entry", ["kind = \"entry\"", "slot = \"my_call\"", "# [frame.regs]"]),
        ("my_rethook", ["kind = \"rethook\"", "calls = \"my_c\"", "kind entry or regs, to be added"]),
    ] {
        assert_eq!(init(symbol).0, Some(0));
        for line in lines {
            assert!(written().contains(line), "{line}: {}", written());
        }
        let (code, out, err) = case.check();
        assert!(code != Some(2), "{out}{err}");
    }
}

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

/// What was dumped from memory: the trampoline behind other bytes, its calls going elsewhere.
#[test]
fn a_dump_is_judged_as_an_object_and_its_calls_go_to_stubs() {
    let case = Case::new("", &CONTRACT.replace("\"direct_func\"", "\"0xffffffffa000114a\""));
    let dump = |text: &str| {
        let lead = "    .org    0x40, 0xcc\n";
        case.assemble("t", &(lead.to_owned() + &text.replace("my_direct_func", ". + 0x1004")));
        let (code, _, err) = case.run("x86_64-linux-gnu-objcopy", &["-O", "binary", "-j", ".text", "t.o", "t.bin"]);
        assert_eq!(code, Some(0), "{err}");
    };
    let check = |entry, arch| {
        let place = ["--base", "0xffffffffa0000100", "--entry", entry, "--arch", arch];
        case.tool(&[&["check", "--raw", "t.bin", "--contract", "t.toml"], &place[..]].concat())
    };
    let local = TRAMPOLINE.replace("    call    other_helper\n", "");
    dump(&local);
    let (code, out, err) = check("0xffffffffa0000140", "x86_64");
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.contains("stands in for 0xffffffffa000114a"), "{out}");
    dump(&local.replace("    pop     %rsi\n", "    add     $8, %rsp\n"));
    let (code, out, _) = check("0xffffffffa0000140", "x86_64");
    assert_eq!(code, Some(1));
    assert!(out.contains("\n  rsi: expected") && out.contains("--raw t.bin --base 0xffffffffa0000100"), "{out}");
    let refused = |entry, arch, part: &str| {
        let (code, _, err) = check(entry, arch);
        assert!(code == Some(2) && err.contains(part), "{err}");
    };
    refused("0x40", "x86_64", "--entry 0x40 is not in the dump; valid: 0xffffffffa0000100 to 0x");
    refused("0xffffffffa0000140", "arm64", "t.toml:2: is for x86_64; give --arch x86_64");
    let (code, _, err) = case.tool(&["check", "--raw", "t.bin", "--contract", "t.toml"]);
    assert!(code == Some(2) && err.contains("--base"), "{err}");
    let (code, _, err) = case.tool(&["check", "--contract", "t.toml"]);
    assert!(code == Some(2) && err.contains("give --object FILE or --raw FILE"), "{err}");
}

/// Trampolines as BPF's compilers write them into memory: every call and every pointer is a constant. By architecture:
/// assembler's prefix, alignment, how the last argument comes back, what is outside, a call that cannot be followed.
type Written = (&'static str, &'static str, &'static str, &'static str, &'static str, (&'static str, &'static str));
const BPF: [(Written, &str); 3] = [
    (
        (
            "x86_64",
            "x86_64-linux-gnu-",
            "8",
            "mov -8(%rbp), %rsi",
            "0xffffc90000123000 0xffffffffc0001000 0xffffffffa0",
            ("call *%rax", "btc $45, %rax\n call *%rax"),
        ),
        "push %rbp
         mov %rsp, %rbp
         sub $48, %rsp
         mov %rbx, -32(%rbp)
         movq $2, -24(%rbp)
         mov %rdi, -16(%rbp)
         mov %rsi, -8(%rbp)
         movabs $0xffffc90000123000, %rdi
         movabs $0xffffffffa0000000, %rdx
         lea -48(%rbp), %rsi
         call . + 0x100000
         mov %rax, %rbx
         test %rax, %rax
         je 1f
         lea -16(%rbp), %rdi
         movabs $0xffffffffc0001000, %rax
         call *%rax
     1:  movabs $0xffffc90000123000, %rdi
         mov %rbx, %rsi
         lea -48(%rbp), %rdx
         call . + 0x200000
         mov -16(%rbp), %rdi
         mov -8(%rbp), %rsi
         mov -32(%rbp), %rbx
         leave
         ret",
    ),
    (
        (
            "arm64",
            "aarch64-linux-gnu-",
            "16",
            "ldp x0, x1, [sp, #24]",
            "0xffff800080123000 0xffff800080001000 0xffffffffc0001000",
            ("blr x10\n         mov x20", "eor x10, x10, #1 << 45\n blr x10\n mov x20"),
        ),
        "stp x29, x9, [sp, #-16]!
         mov x29, sp
         stp x29, x30, [sp, #-16]!
         mov x29, sp
         sub sp, sp, #64
         mov x10, #2
         str x10, [sp, #16]
         stp x0, x1, [sp, #24]
         stp x19, x20, [sp, #40]
         movn x19, #0xcfff
         movk x19, #0x8012, lsl #16
         movk x19, #0x8000, lsl #32
         mov x0, x19
         mov x1, sp
         movn x10, #0xefff
         movk x10, #0x8000, lsl #16
         movk x10, #0x8000, lsl #32
         blr x10
         mov x20, x0
         cbz x0, 1f
         add x0, sp, #24
         movz x10, #0x1000
         movk x10, #0xc000, lsl #16
         movk x10, #0xffff, lsl #32
         movk x10, #0xffff, lsl #48
         blr x10
     1:  bl . + 0x100000
         ldp x0, x1, [sp, #24]
         ldp x19, x20, [sp, #40]
         mov sp, x29
         ldp x29, x30, [sp], #16
         ldp x29, x9, [sp], #16
         mov x10, x30
         mov x30, x9
         ret x10",
    ),
    (
        (
            "riscv64",
            "riscv64-linux-gnu-",
            "16",
            "ld a1, -24(s0)",
            "0xff60000001234000 0xffffffffc0001000 0xffffffff81234560 0xffffffffa0",
            ("jalr ra, 0x20(t1)", "sub t1, t1, sp\n jalr ra, 0x20(t1)"),
        ),
        "addi sp, sp, -16
         sd ra, 8(sp)
         sd s0, 0(sp)
         addi s0, sp, 16
         addi sp, sp, -64
         sd t0, 56(sp)
         sd s0, 48(sp)
         addi s0, sp, 64
         sd s1, 0(sp)
         sd a0, -32(s0)
         sd a1, -24(s0)
         li a0, 0xff60000001234000
         addi a1, sp, 8
         auipc ra, 0x100
         jalr ra, 0x10(ra)
         mv s1, a0
         beqz a0, 1f
         addi a0, s0, -32
         li t1, 0xffffffffc0001000
         jalr t1
     1:  lui a0, 0x81234
         addiw a0, a0, 0x560
         auipc t1, 0x200
         jalr ra, 0x20(t1)
         ld a0, -32(s0)
         ld a1, -24(s0)
         ld s1, 0(sp)
         ld t0, 56(sp)
         ld s0, 48(sp)
         addi sp, sp, 64
         ld ra, 8(sp)
         ld s0, 0(sp)
         addi sp, sp, 16
         jr t0",
    ),
];

#[test]
fn dumps_that_call_and_point_by_constants_are_followed() {
    for ((arch, prefix, align, reload, targets, jump), body) in BPF {
        let contract = CONTRACT
            .replace("x86_64", arch)
            .replace("\"direct_func\"", "\"0xffffffffc0001000\"")
            .replace("stack-align = 8", &format!("stack-align = {align}"));
        let lost = if arch == "arm64" { "loses = [\"x8\"]\n" } else { "" };
        let given = "deviation = [{ clause = \"P10\", place = \"argument*\", reason = \"it is given a context\" }]\n";
        let case = Case::new("", &format!("{contract}{lost}{given}"));
        let check = |text: &str| {
            std::fs::write(case.dir.path().join("t.S"), format!("{text}\n")).unwrap();
            for (tool, args) in
                [("as", &["t.S", "-o", "t.o"][..]), ("objcopy", &["-O", "binary", "-j", ".text", "t.o", "t.bin"][..])]
            {
                let (code, _, err) = case.run(&format!("{prefix}{tool}"), args);
                assert_eq!(code, Some(0), "{err}");
            }
            let base = "0xffffffffa0000000";
            let place = ["--base", base, "--entry", base, "--arch", arch, "--contract", "t.toml"];
            case.tool(&[&["check", "--raw", "t.bin"], &place[..]].concat())
        };
        let (code, out, err) = check(body);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{arch}: {out}");
        for target in targets.split(' ') {
            assert!(out.contains(target), "{arch}: nothing stands in for {target}: {out}");
        }
        // What the function behind the constant destroys, the trampoline must bring back.
        assert!(body.contains(reload));
        let (code, out, _) = check(&body.replace(reload, "nop"));
        assert!(code == Some(1) && out.contains("FAIL P1 "), "{arch}: {out}");
        // An address that no constant has: the run ends, and the place is told.
        let (code, out, err) = check(&body.replace(jump.0, jump.1));
        assert!(
            body.contains(jump.0) && code == Some(1) && out.contains("goes where no code is"),
            "{arch}: {out}{err}"
        );
        assert!(out.lines().any(|line| line.contains("=>")), "{arch}: {out}");
    }
}

/// What GNU as makes of a constant, our tables read as that constant.
#[test]
fn constants_are_read_as_gnu_as_writes_them() {
    let values =
        [0xff60_0000_0123_4000_u64, 0xffff_ffff_8123_4567, 0xffff_ffd8_1234_5678, 0x1f, 0x7fff_f000, 0x12_3456_789a];
    let li = |v: u64| format!("li a0, {v:#x}");
    let movs = |v: u64| {
        let part = |n: u64| format!("movk x0, #{}, lsl #{}", v >> (16 * n) & 0xffff, 16 * n);
        format!("movz x0, #{}\n{}\n{}\n{}", v & 0xffff, part(1), part(2), part(3))
    };
    type Text<'t> = &'t dyn Fn(u64) -> String;
    let cases: [(&str, &str, &str, Text); 4] = [
        ("riscv64", "riscv64-linux-gnu-", "-march=rv64g", &li),
        ("riscv64", "riscv64-linux-gnu-", "-march=rv64gc", &li),
        ("arm64", "aarch64-linux-gnu-", "-march=armv8-a", &movs),
        ("x86_64", "x86_64-linux-gnu-", "--64", &|v| format!("movabs ${v:#x}, %r10")),
    ];
    let case = Case::new("", "");
    for (arch, prefix, option, text) in cases {
        let backend = tramptool::backend(arch).unwrap();
        for value in values {
            std::fs::write(case.dir.path().join("t.S"), text(value) + "\n").unwrap();
            for (tool, args) in [
                ("as", &["t.S", option, "-o", "t.o"][..]),
                ("objcopy", &["-O", "binary", "-j", ".text", "t.o", "t.bin"][..]),
            ] {
                let (code, _, err) = case.run(&format!("{prefix}{tool}"), args);
                assert_eq!(code, Some(0), "{err}");
            }
            let code = std::fs::read(case.dir.path().join("t.bin")).unwrap();
            let read = codegen::form::Constant::read(backend.forms(), &code, 0x1000);
            let last = read.last().map(|c| (c.value, c.size));
            assert_eq!(last, Some((value, code.len())), "{arch} {option}: {value:#x}: {code:x?}");
        }
    }
}

#[test]
fn modules_and_shared_libraries_are_judged_too() {
    let case = Case::new(TRAMPOLINE, CONTRACT);
    let make = |program: &str, args: &[&str]| {
        let (code, _, err) = case.run(program, args);
        assert_eq!(code, Some(0), "{err}");
    };
    make("x86_64-linux-gnu-ld", &["-r", "t.o", "-o", "t.ko"]);
    make("x86_64-linux-gnu-ld", &["-shared", "t.o", "-o", "t.so"]);
    make("x86_64-linux-gnu-strip", &["t.so"]);
    for file in ["t.ko", "t.so"] {
        let (code, out, err) = case.tool(&["check", "--object", file, "--contract", "t.toml"]);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{file}: {out}");
        assert!(out.contains("stands in for other_helper"), "{file}: {out}");
    }
    make("x86_64-linux-gnu-ld", &["t.o", "--defsym=direct_func=0", "--defsym=other_helper=0", "-e0", "-o", "t.exe"]);
    let (code, _, err) = case.tool(&["check", "--object", "t.exe", "--contract", "t.toml"]);
    assert!(code == Some(2) && err.contains("t.exe: an executable's code runs at its own address only"), "{err}");
    std::fs::write(case.dir.path().join("t.bc"), b"BC\xc0\xde").unwrap();
    let (code, _, err) = case.tool(&["check", "--object", "t.bc", "--contract", "t.toml"]);
    assert!(code == Some(2) && err.contains("LLVM bitcode; compile without -flto"), "{err}");
    // Whatever the damage, there is an answer.
    let whole = std::fs::read(case.dir.path().join("t.so")).unwrap();
    let backend = tramptool::backend("x86_64").unwrap();
    for at in 0..whole.len().min(4096) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0xff;
        for bytes in [&damaged[..], &whole[..at]] {
            let _ = codegen::link::relocatable(backend, &codegen::link::Input { name: "t.so", bytes });
        }
    }
}

#[test]
#[ignore = "needs clang-14"]
fn objects_of_clang_are_judged_too() {
    let case = Case::new(TRAMPOLINE, CONTRACT);
    let (code, _, err) = case.run("clang-14", &["--target=x86_64-linux-gnu", "-c", "t.S", "-o", "t.o"]);
    assert_eq!((code, case.check().0), (Some(0), Some(0)), "{err}");
}

#[test]
#[ignore = "needs llvm-mc-14"]
fn objects_of_llvm_mc_are_judged_too() {
    let case = Case::new(TRAMPOLINE, CONTRACT);
    let args = ["--triple=x86_64-linux-gnu", "-filetype=obj", "t.S", "-o", "t.o"];
    let (code, _, err) = case.run("llvm-mc-14", &args);
    assert_eq!((code, case.check().0), (Some(0), Some(0)), "{err}");
}

#[test]
fn a_wrong_contract_is_refused_with_its_line_and_what_is_valid() {
    let refused = |change: (&str, &str), line: u32, parts: &[&str]| {
        let (code, out, err) = Case::new(TRAMPOLINE, &CONTRACT.replace(change.0, change.1)).check();
        assert_eq!((code, out.as_str()), (Some(2), ""), "{change:?}");
        for part in parts.iter().map(|p| (*p).to_owned()).chain([format!("t.toml:{line}: ")]) {
            assert!(err.contains(&part), "{change:?}: no '{part}' in {err}");
        }
        assert_eq!(err.lines().count(), 1, "{err}");
    };
    refused(("\"x86_64\"", "\"vax\""), 2, &["unknown architecture 'vax'", "arm64, riscv64"]);
    refused(("\"direct\"", "\"detour\""), 7, &["unknown variant `detour`", "`rethook`", "`stub-direct`"]);
    refused(("args = 2", "args = 7"), 8, &["args = 7; valid: 0 to 6"]);
    refused(("stack-align = 8", "stack-align = 12"), 10, &["stack-align = 12; valid: a power of 2"]);
    refused(("stack-align = 8", "stack-align = 8\nkeeps = [\"r99\"]"), 11, &["unknown register 'r99'", "r15"]);
    refused(("stack-align = 8", "stack-align = 8\nframe = \"f\""), 11, &["unknown frame 'f'"]);
    refused(("stack-align = 8", "stack-align = 8\nsite = 1"), 11, &["unknown field `site`", "`slot`"]);
    let place = "stack-align = 8\ndeviation = [{ clause = \"P1\", place = 3, reason = \"\" }]";
    refused(("stack-align = 8", place), 11, &["expected a place, or a list of places"]);
    refused(("about = \"a direct-call trampoline\"", ""), 1, &["missing field `about`"]);
    let deviation = "stack-align = 8\ndeviation = [{ clause = \"P99\", place = \"*\", reason = \"\" }]";
    refused(("stack-align = 8", deviation), 11, &["unknown clause 'P99'", "P19, coverage"]);
}

#[test]
fn objects_that_do_not_fit_are_refused() {
    let case = Case::new(TRAMPOLINE, &CONTRACT.replace("my_tramp", "your_tramp"));
    let (code, _, err) = case.check();
    assert_eq!(code, Some(2));
    assert!(err.contains("does not define your_tramp"), "{err}");
    let case = Case::new(TRAMPOLINE, &CONTRACT.replace("x86_64", "arm64"));
    let (code, _, err) = case.check();
    assert_eq!(code, Some(2));
    assert!(err.contains("machine 62"), "{err}");
}

#[test]
fn every_contract_has_an_object_to_judge() {
    let list = include_str!("../xtask/kernel-objects.toml");
    for (name, text) in CONTRACTS {
        assert!(list.contains(&format!("contract = \"{name}\"")), "{name}");
        assert!(text.parse::<toml::Table>().is_ok(), "{name}");
    }
    assert_eq!(list.matches("contract = ").count(), CONTRACTS.len());
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("contracts");
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), CONTRACTS.len(), "a contract that src/contracts.rs forgot");
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

/// What docs/findings.md says is what its commands print.
#[test]
#[ignore = "needs the kernel's objects: cargo xtask kernel-objects"]
fn the_findings_are_shown_by_their_commands() {
    let cache = kernel_cache::directory().unwrap();
    let (mut said, mut shown) = (String::new(), 0);
    let (findings, _) = include_str!("../docs/findings.md").split_once("\n## ").unwrap();
    for row in findings.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        if let Some(command) = cells[3].strip_prefix("`tramptool ") {
            let command = format!("{} {}", env!("CARGO_BIN_EXE_tramptool"), command.trim_end_matches('`'));
            let (code, out, err) = text(Command::new("sh").args(["-c", &command]).env("K", &cache).output().unwrap());
            assert_eq!((code, err.as_str()), (Some(0), ""), "{command}\n{out}");
            said = out;
            continue;
        }
        let (clause, place) = cells[2].split_once(' ').unwrap();
        let trampoline = cells[1].trim_start_matches('`').split(['`', '*']).next().unwrap();
        let told = |line: &str| {
            let parts = [trampoline, place.trim_matches('`')];
            line.trim_start().starts_with(&format!("{clause} ")) && parts.iter().all(|part| line.contains(part))
        };
        assert!(said.lines().any(told), "{row}\n{said}");
        shown += 1;
    }
    assert!(shown > 25, "{shown}");
}

/// The kernel's own trampolines deviate as their contracts say, in no other way, and in no fewer.
#[test]
#[ignore = "needs the kernel's objects: cargo xtask kernel-objects"]
fn the_kernels_own_objects_deviate_as_expected() {
    let cache = kernel_cache::directory().unwrap();
    for (name, _) in CONTRACTS {
        let objects = std::fs::read_dir(cache.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut tool = Command::new(env!("CARGO_BIN_EXE_tramptool"));
        tool.args(["check", "--contract", name, "--object"]).args(objects.map(|o| o.unwrap().path()));
        let (code, out, err) = text(tool.output().unwrap());
        assert_eq!((code, err.as_str()), (Some(0), ""), "{name}\n{out}");
        assert!(out.contains("deviations, as the contracts say"), "{name}");
    }
}
