//! A direct-call trampoline, judged: what holds, what does not, and what its contract expects.

use crate::case::{Case, TRAMPOLINE, flat};
use crate::common::CONTRACT;
use crate::returns::RETHOOK;

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
    assert!(flat(&out).contains("rsi was expected to deviate and does not: known"), "{out}");
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
    // By what the numbers of registers are, where no header says it.
    let contract = format!("profile = \"linux-6.12\"\n{CONTRACT}");
    let (code, out, err) = Case::new(&(TRAMPOLINE.to_owned() + &orc(16)), &contract).check();
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    let decided = |more: &str| {
        let args = ["check", "-v", "--object", "t.o", "--contract", "t.toml"];
        Case::new(&(TRAMPOLINE.to_owned() + more), &contract).tool(&args).1.contains("  ok P12 ")
    };
    assert!(decided(&orc(16)) && !decided(""), "P12 was not decided");
    let broken = Case::new(&(TRAMPOLINE.to_owned() + &orc(24)), &contract);
    let (code, out, _) = broken.check();
    assert_eq!(code, Some(1));
    assert!(out.contains("FAIL P12") && out.contains("\n  CFA by the unwind table: "), "{out}");
    // Expected at one instruction, it is still a failure at the others.
    let expecting = |place: &str| {
        let known = format!("deviation = [{{ clause = \"P12\", place = \"{place}\", reason = \"known\" }}]\n");
        broken.contract(&format!("{contract}{known}"));
        broken.check()
    };
    assert_eq!(expecting("unwind:*").0, Some(0));
    let (code, out, _) = expecting("unwind:*@my_tramp+0x4");
    assert_eq!(code, Some(1));
    assert!(out.contains("at my_tramp+0x5") && !out.contains("at my_tramp+0x4\n"), "{out}");
}

/// Behind the way out, code that nothing reaches.
fn with_more_behind() -> String {
    TRAMPOLINE.replacen("    ret\n", "    ret\n    inc     %rsi\n    ret\n", 1)
}

#[test]
fn code_that_is_never_executed_can_be_a_deviation_as_long_as_it_is_not() {
    let (code, out, _) = Case::new(&with_more_behind(), CONTRACT).check();
    let missed = out.split("\n\n").find(|p| p.starts_with("FAIL coverage")).unwrap_or_else(|| panic!("{code:?} {out}"));
    let missed = flat(missed);
    let at: Vec<&str> = missed.split("not executed: ").nth(1).unwrap().split(' ').collect();
    assert_eq!((code, at.len()), (Some(1), 2), "{missed}");
    let expecting = |text: &str, places: &[String]| {
        let places = places.iter().map(|place| format!("\"{place}\"")).collect::<Vec<_>>().join(", ");
        let known = format!("{{ clause = \"coverage\", place = [{places}], reason = \"for others\" }}");
        Case::new(text, &format!("{CONTRACT}deviation = [{known}]\n")).check()
    };
    let place = |at: &str| format!("never-executed@my_tramp+{at}");
    let (code, out, _) = expecting(&with_more_behind(), &[place(at[0]), place(at[1])]);
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("coverage my_tramp: ") && flat(&out).contains(": for others"), "{out}");
    // Of the other instruction nobody said so.
    let (code, out, _) = expecting(&with_more_behind(), &[place(at[0])]);
    assert_eq!(code, Some(1));
    assert!(flat(&out).contains(&format!("not executed: {} ", at[1])), "{out}");
    let (code, out, _) = expecting(TRAMPOLINE, &[place(at[0])]);
    assert_eq!(code, Some(1));
    assert!(flat(&out).contains("was expected to deviate and does not: for others"), "{out}");
}

#[test]
fn a_deviation_may_be_of_one_way_out_or_of_one_value() {
    let broken = TRAMPOLINE.replace("    pop     %rsi\n", "    add     $8, %rsp\n");
    let expecting = |which: &str| {
        let known = format!("{{ clause = \"P1\", place = \"rsi\", {which}, reason = \"known\" }}");
        Case::new(&broken, &format!("{CONTRACT}deviation = [{known}]\n")).check()
    };
    let (_, out, _) = expecting("way = \"function\"");
    assert!(out.contains("P1   my_tramp: rsi on the way back into the traced function: known"), "{out}");
    for (which, told) in [("way = \"direct\"", "on the way to a direct trampoline"), ("by = 8", "by +8")] {
        let (code, out, _) = expecting(which);
        assert_eq!(code, Some(1));
        assert!(out.contains("FAIL P1") && out.contains("\n  rsi: expected"), "{told}: {out}");
    }
    let (code, _, err) = expecting("way = \"down\"");
    assert_eq!(code, Some(2));
    assert!(err.contains("unknown variant `down`"), "{err}");
}

#[test]
fn what_is_said_of_unwind_tables_is_true_of_the_object() {
    // With -v every reason is told.
    let said = |more: &str| {
        let args = ["check", "-v", "--object", "t.o", "--contract", "t.toml"];
        flat(&Case::new(&(TRAMPOLINE.to_owned() + more), CONTRACT).tool(&args).1)
    };
    assert!(said("").contains("neither .eh_frame nor ORC describes it, and its contract has no frame records"));
    // An entry of which nothing can be compared: the end of all stacks.
    let ends =
        "    .section .orc_unwind_ip, \"a\"\n    .long my_tramp - .\n    .section .orc_unwind, \"a\"\n    .zero 6\n";
    assert!(said(ends).contains("what its unwind table says cannot be compared"));
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
    assert!(out.contains("FAIL P10") && out.contains("calls of what it calls: expected 0x1, found 0x0"), "{out}");
    let (code, out, _) = Case::new(TRAMPOLINE, &contract).check();
    assert!(
        code == Some(1) && out.contains("FAIL P10") && out.contains("stands in for my_func, other_helper"),
        "{out}"
    );
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
    let contract = CONTRACT.replace("symbol", "object = \"t.o\"\nsymbol") + &more;
    let case = Case::new(TRAMPOLINE, &contract);
    let text = TRAMPOLINE.replace("my_direct_func", "direct_func");
    case.assemble("u", &text);
    let both = ["check", "--object", "t.o", "u.o", "--contract", "t.toml"];
    let (code, out, err) = case.tool(&both);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    let counts: Vec<&str> = out.lines().nth(2).unwrap().split_whitespace().skip(1).take(2).collect();
    // One name, under two sets of options: one for each file.
    assert!(counts == ["1", "2"] && out.contains("rcx, rdx: not saved"), "{out}");
    let (code, out, _) = case.check();
    assert_eq!(code, Some(1), "one of them: {out}");
    assert!(flat(&out).contains("u.o, which has it by the contract, is not given"), "{out}");
    case.contract(&format!("several-objects = true\n{contract}"));
    let (code, out, _) = case.check();
    assert_eq!(code, Some(0), "one of them: {out}");
    assert!(!out.contains("not saved"), "{out}");
    // Both places of one deviation are expected.
    let saves = text.replace("push    %rsi", "push    %rsi\n    push    %rdx");
    case.assemble("u", &saves.replace("pop     %rsi", "pop     %rdx\n    pop     %rsi"));
    let (code, out, _) = case.tool(&both);
    assert_eq!(code, Some(1));
    assert!(flat(&out).contains("rdx was expected to deviate and does not: not saved"), "{out}");
    case.assemble("v", TRAMPOLINE);
    let (code, _, err) = case.tool(&["check", "--object", "v.o", "--contract", "t.toml"]);
    assert_eq!((code, err.as_str()), (Some(2), "tramptool: t.toml has nothing for v.o; valid: t.o, u.o\n"));
}

#[test]
fn vector_state_that_the_engine_lacks_is_looked_for_and_named() {
    let verbose = ["check", "--object", "t.o", "--contract", "t.toml", "-v"];
    let (_, out, _) = Case::new(TRAMPOLINE, CONTRACT).tool(&verbose);
    let holds = "ok P2-wide x86_64 my_tramp [t.toml], 10 checks: engine lacks ymm, zmm and mask registers, but";
    assert!(flat(&out).contains(holds), "{out}");
    let ends = |more: &str| TRAMPOLINE.replace("    leave\n    ret\n", &format!("    leave\n    ret\n{more}"));
    let (_, out, _) = Case::new(&ends("    vmovdqu %ymm0, (%rsp)\n    vzeroupper\n"), CONTRACT).tool(&verbose);
    let named = "- P2-wide x86_64 my_tramp [t.toml], 12 checks: engine lacks ymm, zmm and mask registers, and vmovdqu";
    assert!(flat(&out).contains(named), "{out}");
    // What nothing has stored is lost.
    let (_, out, _) = Case::new(&ends("    vzeroupper\n    vmovdqu %ymm0, (%rsp)\n"), CONTRACT).tool(&verbose);
    let lost = "vzeroupper at +0x14 may change ymm, zmm and mask registers, and nothing stores them before";
    assert!(flat(&out).contains(lost) && out.contains("FAIL P2-wide of x86_64 my_tramp"), "{out}");
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

#[test]
fn a_first_contract_is_written_from_what_the_object_shows() {
    let case = Case::new(TRAMPOLINE, CONTRACT);
    let init = |symbol| case.tool(&["contract", "init", "--object", "t.o", "--symbol", symbol, "-o", "t.toml"]);
    let written = || std::fs::read_to_string(case.dir.path().join("t.toml")).unwrap();
    // Two arguments are saved, the others are a question, and the psABI's alignment is not met at both parities of the stack.
    assert_eq!(init("my_tramp"), (Some(0), String::new(), String::new()));
    for line in
        ["arch = \"x86_64\"", "kind = \"direct\"", "# args = 2", "calls = \"direct_func\"", "direct_func, other_helper"]
    {
        assert!(written().contains(line), "{line}: {}", written());
    }
    for line in ["stack-align = 8", "# Argument registers that change: r8 r9 rcx rdx."] {
        assert!(written().contains(line), "{line}: {}", written());
    }
    // Nobody has said how many arguments there are.
    let (code, _, err) = case.check();
    assert!(code == Some(2) && err.contains("my_tramp is of kind direct: give args, 0 to 6"), "{err}");
    let answered = written().replace("# args = 2", "args = 2");
    case.contract(&answered.replace("args = 2", "args = 6"));
    let (code, out, _) = case.check();
    assert!(code == Some(1) && out.contains("FAIL P1") && out.contains("\n  rdx: expected"), "{out}");
    case.contract(&answered);
    assert_eq!(case.check().0, Some(0));
    case.contract(&answered.replace("stack-align = 8", "stack-align = 16"));
    let (code, out, _) = case.check();
    assert!(code == Some(1) && out.contains("FAIL P8") && !out.contains("FAIL P1"), "{out}");
    let (code, _, err) = init("your_tramp");
    assert_eq!(code, Some(2));
    assert!(err.contains("unknown symbol 'your_tramp'; valid: my_tramp"), "{err}");
    // What never comes back promises nothing.
    case.assemble(
        "t",
        ".globl my_tramp\n.type my_tramp, @function\nmy_tramp: jmp my_tramp\n.size my_tramp, . - my_tramp\n",
    );
    let (code, _, err) = init("my_tramp");
    assert!(code == Some(1) && err.contains("never comes back"), "{err}");
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
