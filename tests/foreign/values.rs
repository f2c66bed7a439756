//! What registers and control words hold in runs: faults that depend on it show whatever the seed is.

use crate::case::Case;
use crate::common::CONTRACT;
use crate::common::expected::{Behind, Platform, contract, expected, my_tramp};

/// Faults that show in control words, in flags, and where memory is accessed by SP.
#[test]
fn what_stands_behind_a_call_is_judged() {
    for &backend in tool::BACKENDS {
        let (facts, by_hand) = (backend.facts(), expected(backend).by_hand);
        assert!(by_hand.behind.iter().any(|b| b.fails.is_none()) && by_hand.behind.len() > 2, "{}", facts.name);
        for Behind { code, fails, says } in &by_hand.behind {
            let case = Case::new("", &contract(backend));
            std::fs::write(case.dir.path().join("t.S"), my_tramp(&by_hand.with(code))).unwrap();
            let (ended, _, err) = case.run(facts.assembler, &["t.S", "-o", "t.o"]);
            assert_eq!(ended, Some(0), "{}: {err}", facts.name);
            let (ended, out, err) = case.check();
            assert_eq!(err, "", "{}: {code}", facts.name);
            assert_eq!(ended, Some(i32::from(fails.is_some())), "{}: {code}: {out}", facts.name);
            let failing = fails.as_ref().map(|clause| format!("FAIL {clause} of {} my_tramp", facts.name));
            assert!(failing.is_none_or(|failing| out.contains(&failing)), "{}: {code}: {out}", facts.name);
            assert!(out.contains(says), "{}: {code}: {out}", facts.name);
        }
    }
}

/// A register of the platform may be another CPU's when the callee returns. Whoever saves it must not load it again, but where the
/// contract says that it holds something of the function.
#[test]
fn a_register_of_the_platform_is_not_loaded_again() {
    let mut registers = 0;
    for &backend in tool::BACKENDS {
        let (facts, by_hand) = (backend.facts(), expected(backend).by_hand);
        let names: Vec<&str> = by_hand.platform.iter().map(|p| p.register.as_str()).collect();
        let all: Vec<&str> = facts.abi.platform.iter().map(|reg| facts.abi.name(reg)).collect();
        assert_eq!(names, all, "{}", facts.name);
        for Platform { register, save, leave, reload } in &by_hand.platform {
            let check = |behind: &str, more: &str| {
                let case = Case::new("", &format!("{}{more}", contract(backend)));
                std::fs::write(case.dir.path().join("t.S"), my_tramp(&by_hand.around(save, behind))).unwrap();
                let (ended, _, err) = case.run(facts.assembler, &["t.S", "-o", "t.o"]);
                assert_eq!(ended, Some(0), "{}: {err}", facts.name);
                case.check()
            };
            let (ended, out, err) = check(leave, "");
            assert_eq!(ended, Some(0), "{register}: {out}{err}");
            let (ended, out, err) = check(reload, "");
            assert_eq!(ended, Some(1), "{register}: {out}{err}");
            assert!(out.contains(&format!("FAIL P5 of {} my_tramp", facts.name)), "{out}");
            assert!(out.contains(&format!("  {register}: expected ")), "{out}");
            let (ended, out, err) = check(reload, &format!("keeps = [\"{register}\"]\n"));
            assert_eq!(ended, Some(0), "{register}: {out}{err}");
            registers += 1;
        }
    }
    assert!(registers > 0);
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

/// A function in C leaves other flags than it found, whether or not the trampoline touches them.
#[test]
fn flags_that_only_the_callee_changes_are_not_kept() {
    let text = crate::case::TRAMPOLINE;
    assert_eq!(Case::new(text, CONTRACT).check().0, Some(0));
    let keeps = format!("{CONTRACT}keeps-flags = true\n");
    let (code, out, _) = Case::new(text, &keeps).check();
    assert!(code == Some(1) && out.contains("FAIL P6") && out.contains("\n  rflags: "), "{out}");
    let saves = text.replace("    push    %rsi\n", "    push %rsi\n    sub $8, %rsp\n    pushfq\n");
    let saves = saves.replace("    pop     %rsi\n", "    popfq\n    lea 8(%rsp), %rsp\n    pop %rsi\n");
    let (code, out, _) = Case::new(&saves.replace("sub $8, %rsp", "lea -8(%rsp), %rsp"), &keeps).check();
    assert_eq!(code, Some(0), "{out}");
    let (code, out, _) = Case::new(&saves, &keeps).check();
    assert!(code == Some(1) && out.contains("FAIL P6"), "{out}");
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

#[test]
fn what_is_lost_on_the_way_to_a_direct_trampoline_is_no_fault_of_that_one() {
    let case = Case::new(&ENTRY.replace("    jmp     *%r11\n", "    mov $1, %esi\n    jmp *%r11\n"), ENTRY_CONTRACT);
    let (code, out, _) = case.check();
    assert!(code == Some(1) && out.contains("FAIL P1 of x86_64 my_entry"), "{out}");
    assert!(!out.contains("of x86_64 my_direct"), "{out}");
}

/// The callback is called again where it has stored a direct trampoline: only there is it called too often.
#[test]
fn on_the_way_to_a_direct_trampoline_callbacks_are_counted() {
    let again = [
        ("    movq    $0, 56(%rsp)\n", "    movq $0, 56(%rsp)\n    movq $0, 64(%rsp)\nagain:\n"),
        (
            "    call    ftrace_stub\n",
            "    call ftrace_stub\n    cmpq $0, 56(%rsp)\n    je 3f\n    incq 64(%rsp)\n    cmpq $1, 64(%rsp)\n    je again\n3:\n",
        ),
    ];
    let jumps = ("    jmp     *%r11\n", "    btr $0, %r11\n    jnc 4f\n    mov %r11, (%rsp)\n    ret\n4:  jmp *%r11\n");
    let (contract, _) = ENTRY_CONTRACT.split_once("[[trampoline]]\nsymbol = \"my_direct\"").unwrap();
    let by_jump = contract.replace("slot =", "direct-jumps = true\nslot =");
    for (changes, contract) in [(&[][..], contract), (&[jumps][..], &by_jump)] {
        let text =
            |changes: &[(&str, &str)]| changes.iter().fold(ENTRY.to_owned(), |text, (from, to)| text.replace(from, to));
        let (code, out, err) = Case::new(&text(changes), contract).check();
        assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
        let (code, out, _) = Case::new(&text(&[changes, &again].concat()), contract).check();
        assert!(code == Some(1) && out.contains("FAIL P10") && out.contains("\n  calls of what it calls"), "{out}");
    }
}
