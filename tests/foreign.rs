//! Trampolines that others wrote: text of our own, assembled by GNU as, and the kernel's objects where they were built.

use std::path::Path;
use std::process::{Command, Output};

use tramptool::contracts::CONTRACTS;

use common::{CONTRACT, kernel_cache};

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

/// An entry trampoline, whose callback hooks the return, and the trampoline of a kretprobe.
const RETHOOK: &str = "
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
    .type   my_rethook, @function
my_rethook:
    push    $0
    pushf
    .irp    reg, rdi, rsi, rdx, rcx, rax, r8, r9, r10, r11, rbx, rbp, r12, r13, r14, r15
    push    %\\reg
    .endr
    mov     %rsp, %rdi
    call    my_c
    .irp    reg, r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi
    pop     %\\reg
    .endr
    popf
    ret
    .size   my_rethook, . - my_rethook
    .type   my_c, @function
my_c:
    jmp     my_handler
    .size   my_c, . - my_c
";

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

/// What docs/findings.md says is what its commands print.
#[test]
#[ignore = "needs the kernel's objects: cargo xtask kernel-objects"]
fn the_findings_are_shown_by_their_commands() {
    let cache = kernel_cache();
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
    let cache = kernel_cache();
    for (name, _) in CONTRACTS {
        let objects = std::fs::read_dir(cache.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut tool = Command::new(env!("CARGO_BIN_EXE_tramptool"));
        tool.args(["check", "--contract", name, "--object"]).args(objects.map(|o| o.unwrap().path()));
        let (code, out, err) = text(tool.output().unwrap());
        assert_eq!((code, err.as_str()), (Some(0), ""), "{name}\n{out}");
        assert!(out.contains("deviations, as the contracts say"), "{name}");
    }
}
