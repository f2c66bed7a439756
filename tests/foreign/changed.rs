//! Trampolines as they are generated, changed at one place: what each check of records, and of what is patched into programs, notices
//! that no other check does.

use crate::case::ARCH;
use crate::common::Bench;

const AROUND: &str = "around --profile bare --call before --exit after";
const BOTH: &str = "record --profile bare --events both --clock none";
const FLOATING: &str = "direct --profile bare --call before";
const DETACHED: &str = "programs --profile linux-7.3 --fentry before --fexit after";
const RETIRED: &str = "programs --profile linux-6.12 --fentry before --fexit after";
const COUNT: &str = "record --profile bare --events count";
const REFILLED: &str = "record --profile bare --events both --clock none --refill refill --unwind";
const SHADOW: &str = "record --profile bare --events both --clock none --form shadow";
const UNWOUND: &str = "record --profile bare --events both --clock none --unwind";

/// A trampoline with these arguments, as text; its contract is `t.toml`.
fn generated(b: &Bench, words: &str) -> String {
    let kind = ["gen", "--name", "mine", "--arch", ARCH];
    let goes_on: &[&str] = if words == FLOATING { &[] } else { &["--function", "f+5"] };
    let calls = !(words.contains("count") || words.contains("shadow"));
    let signature = ["--sig", if words == FLOATING { "double f(double a)" } else { "long f(long a)" }];
    let signature = if calls { &signature[..] } else { &[] };
    let to = ["--emit", "asm,contract", "--stem", "t", "-o", "."];
    b.ok(&[&kind, goes_on, &*words.split(' ').collect::<Vec<_>>(), signature, &to].concat());
    std::fs::read_to_string(b.path("t.S")).unwrap()
}

/// What the checks say of this text, in one line.
fn judged(b: &Bench, text: &str) -> String {
    std::fs::write(b.path("t.S"), text).unwrap();
    b.tool("x86_64-linux-gnu-as", &["t.S", "-o", "t.o"]);
    told(b, &[])
}

/// What the checks with these arguments say.
fn told(b: &Bench, more: &[&str]) -> String {
    let out = b.run(&[&["check", "--object", "t.o", "--contract", "t.toml"], more].concat());
    let report = String::from_utf8([out.stdout, out.stderr].concat()).unwrap();
    assert_eq!(out.status.code(), Some(i32::from(!report.starts_with("holds"))), "{report}");
    report.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn those_of_each_form_hold() {
    let others = [
        "record --profile bare --events entry --clock tsc",
        "record --profile bare --events both --clock word --pair",
        "record --profile bare --events both --clock stamp8",
    ];
    for words in [AROUND, BOTH, COUNT, DETACHED, FLOATING, REFILLED, RETIRED, SHADOW, UNWOUND].into_iter().chain(others)
    {
        let b = Bench::new();
        let text = generated(&b, words);
        let report = judged(&b, &text);
        assert!(report.starts_with("holds"), "{words}: {report}");
        // What is patched into programs is asked of programs alone, whatever labels others have.
        if words == AROUND {
            let labels = "mine_epilogue:\n\tret\nmine_after_call:\n";
            let report = judged(&b, &text.replacen("\tret\n", labels, 1));
            assert!(report.starts_with("holds"), "{labels}: {report}");
        }
        if !words.starts_with("record") {
            continue;
        }
        // A signal's handler has room for the struct that it asks for.
        let report = told(&b, &["--function", "big"]);
        assert!(report.starts_with("holds"), "{words}: {report}");
    }
}

/// A fault in a trampoline.
struct Fault {
    /// The arguments that it is generated with.
    of: &'static str,
    /// What the line says behind which the place is.
    behind: &'static str,
    /// What is there, and what is there instead.
    changes: &'static [(&'static str, &'static str)],
    /// The clause, and what the checks say of it.
    told: &'static str,
}

const fn fault(
    of: &'static str,
    behind: &'static str,
    changes: &'static [(&'static str, &'static str)],
    told: &'static str,
) -> Fault {
    Fault { of, behind, changes, told }
}

const ENTRY: &str = "# the record of the entry";
const STOPS: &[(&str, &str)] = &[("movq\t$1,", "ud2\nmovq $1,")];
const RETURN: &str = "# the record of the return";
const PAD: &str = "# landing pad";
const RECORD: &str = "# the record of the exception";

/// The slot is taken, and then the cursor is read again: one slot more where a signal came between.
const TAKEN: &[(&str, &str)] = &[(
    "\tcmp\t%fs:RECORD_LIMIT, %r11",
    "
    add $16, %r11
    cmp %fs:RECORD_CURSOR, %r11
    je 1f
    addq $16, %fs:RECORD_CURSOR
1:  sub $16, %r11
    cmp %fs:RECORD_LIMIT, %r11",
)];
const NOT_AT_ONCE: &[(&str, &str)] = &[(
    "\tmov\t$16, %r11d\n\txadd\t%r11, %fs:RECORD_CURSOR",
    "
    mov %fs:RECORD_CURSOR, %r11
    addq $16, %fs:RECORD_CURSOR",
)];

const FAULTS: &[Fault] = &[
    // What is in the buffer at the end, and beside it.
    fault(BOTH, RETURN, &[("mov\t$16,", "mov\t$32,")], "P24 where the thread's next record begins"),
    fault(
        SHADOW,
        "mine:",
        &[
            ("mov\t%rsp, -8(%r11)", "mov %rsp, -8(%r11)\nincq -16(%r11)"),
            ("pushq\t0(%r11)", "decq (%r11)\npushq (%r11)"),
        ],
        "P24 parent_ip in the function's entry of the shadow stack",
    ),
    // A signal at any place.
    // Whose entry it is, another word says.
    fault(
        SHADOW,
        "mine:",
        &[
            ("mov\t%rsp, -8(%r11)", "mov %rsp, -8(%r11)\nmov %rsp, stash(%rip)\n.comm stash, 8"),
            ("cmp\t8(%r11), %rsp", "cmp stash(%rip), %rsp"),
        ],
        "P24 a stop where the function's entry",
    ),
    fault(BOTH, ENTRY, STOPS, "P9 emulator"),
    fault(
        COUNT,
        "mine:",
        &[("incq\t%fs:RECORD_COUNT", "mov %fs:RECORD_COUNT, %r11\ninc %r11\nmov %r11, %fs:RECORD_COUNT")],
        "P25 the thread's counter",
    ),
    fault(BOTH, ENTRY, TAKEN, "P25 bytes that records took"),
    fault(BOTH, ENTRY, NOT_AT_ONCE, "P25 the records of both, with a signal here"),
    fault(
        BOTH,
        RETURN,
        &[("", "mov %rax, stash(%rip)\nmov stash(%rip), %rax\n.comm stash, 8\n")],
        "P25 what differs from the unpatched run, with a signal here",
    ),
    // Room is made.
    fault(
        REFILLED,
        "# no room for the record of the entry",
        &[(
            "call\trefill",
            "
            sub $8, %rsp
            .cfi_adjust_cfa_offset 8
            call refill
            add $8, %rsp
            .cfi_adjust_cfa_offset -8",
        )],
        "P8 sp of the function against its caller's",
    ),
    fault(AROUND, "# exit(results)", &[("and\t$-16", "movq $0, RECORD_PC + 8(%rsp)\nand $-16")], "P12 frame record 0"),
    // The function may leave anything in a scratch register.
    fault(
        AROUND,
        "# the traced function, which returns here",
        &[("call\tf+5", "mov %rsp, %r9\ncall f+5\ncmp %rsp, %r9\nje 9f\nud2\n9:")],
        "P9 emulator",
    ),
    // The flags, and what lies below SP, may be changed by it.
    fault(
        REFILLED,
        "# no room for the record of the entry",
        &[("call\trefill", "cmp %rsp, %rsp\ncall refill\nje 9f\nud2\n9:")],
        "P9 emulator",
    ),
    fault(
        REFILLED,
        "# no room for the record of the entry",
        &[("call\trefill", "movq $7, -64(%rsp)\ncall refill\ncmpq $7, -64(%rsp)\nje 9f\nud2\n9:")],
        "P9 emulator",
    ),
    // The frame record that an unwinder finds has another return address.
    fault(
        REFILLED,
        "# no room for the record of the entry",
        &[
            (
                "push\t%rbp\n\t.cfi_def_cfa_offset 16\n\t.cfi_offset %rbp, -16\n",
                "push $0\n.cfi_def_cfa_offset 16\npush $0\n.cfi_def_cfa_offset 24\n\
                 push %rbp\n.cfi_def_cfa_offset 32\n.cfi_offset %rbp, -32\n",
            ),
            ("pop\t%rbp\n", "pop %rbp\n.cfi_def_cfa_offset 24\nadd $16, %rsp\n"),
        ],
        "P12 frame record 0",
    ),
    // Or leads nowhere.
    fault(
        REFILLED,
        "# no room for the record of the entry",
        &[
            (
                "push\t%rbp\n\t.cfi_def_cfa_offset 16\n\t.cfi_offset %rbp, -16\n",
                "mov %rbp, %r11\n.cfi_register %rbp, %r11\npush $0\n.cfi_def_cfa_offset 16\n",
            ),
            ("pop\t%rbp\n", "mov %r11, %rbp\nadd $8, %rsp\n"),
        ],
        "P12 frame pointer behind the records",
    ),
    // An exception leaves the function.
    fault(
        REFILLED,
        "# no room for the record of the exception",
        &[("call\trefill", "call refill\ncall refill")],
        "P23 after an exception: calls of the routine that makes room",
    ),
    fault(
        REFILLED,
        "# no room for the record of the exception",
        &[(
            "call\trefill",
            "lea 9f(%rip), %r11\npush %r11\n.cfi_adjust_cfa_offset 8\njmp refill\n9:\n.cfi_adjust_cfa_offset -8",
        )],
        "P23 returns without a call",
    ),
    fault(
        REFILLED,
        PAD,
        &[("mov\t$16,", "mov\t$32,")],
        "P23 after an exception: where the thread's next record begins",
    ),
    fault(UNWOUND, PAD, &[("movq\t$3,", "movq $2,")], "P23 after an exception: the thread's buffer"),
    fault(UNWOUND, PAD, NOT_AT_ONCE, "P25 the records of both"),
    fault(UNWOUND, PAD, TAKEN, "P25 bytes that records took"),
    fault(UNWOUND, ".Lpersonality:", &[("__gcc_", "__other_")], "P23 whom unwinders ask about the frame"),
    fault(UNWOUND, PAD, &[("endbr64", "")], "P23 landing pad for indirect branches, where unwinders go"),
    // What the call has left below SP may be gone.
    fault(
        UNWOUND,
        PAD,
        &[(RECORD, "lea .Lmine_called(%rip), %rcx\ncmp %rcx, -8(%rsp)\njne .Lmine_unwound #")],
        "P23 after an exception: where the thread's next record begins",
    ),
    // Tables that are right again at the end.
    fault(
        UNWOUND,
        PAD,
        &[(RECORD, ".cfi_adjust_cfa_offset 8\nnop\n.cfi_adjust_cfa_offset -8 #")],
        "P23 CFA by the unwind table",
    ),
    fault(
        UNWOUND,
        PAD,
        &[(RECORD, ".cfi_offset %rip, -24\nnop\n.cfi_offset %rip, -8 #")],
        "P23 return address by the unwind table",
    ),
    fault(
        UNWOUND,
        PAD,
        &[(RECORD, ".cfi_same_value %rbp\nnop\n.cfi_offset %rbp, -16 #")],
        "P23 rbp by the unwind table",
    ),
    fault(
        UNWOUND,
        PAD,
        &[(".Lmine_pad:", ".Lmine_go_on:"), (".cfi_endproc", ".cfi_endproc\n.Lmine_pad:\nendbr64\njmp .Lmine_go_on")],
        "P23 CFA by the unwind table",
    ),
    fault(UNWOUND, "# the unwinder goes on", &[("call\t_Unwind_Resume", "ud2")], "P23 where the landing pad ends"),
    fault(
        UNWOUND,
        "# the unwinder goes on",
        &[("mov\t%rax, %rdi", "sub $16, %rsp\n.cfi_adjust_cfa_offset 16\nmov %rax, %rdi")],
        "P23 sp when the exception is handed back",
    ),
    // The function is called in the trampoline.
    fault(
        AROUND,
        "# the traced function",
        &[(
            "call\tf+5",
            "lea 1f(%rip), %r11\npush %r11\n.cfi_adjust_cfa_offset 8\njmp f+5\n1:\n.cfi_adjust_cfa_offset -8",
        )],
        "P14 return address of the function, and its call",
    ),
    fault(
        AROUND,
        "# the traced function",
        &[("call\tf+5", "sub $8, %rsp\n.cfi_adjust_cfa_offset 8\ncall f+5\nadd $8, %rsp\n.cfi_adjust_cfa_offset -8")],
        "P8 sp of the function against its caller's",
    ),
    fault(AROUND, "mine:", &[("call\tbefore", "nop")], "P10 calls before the function"),
    fault(FLOATING, "mine:", &[("call\tbefore", "pxor %xmm0, %xmm0\ncall before")], "P10 xmm0"),
    fault(AROUND, "# exit(results)", &[("call\tafter", "nop")], "P10 calls after the function"),
    // What the kernel patches into programs: jumps past them.
    fault(
        RETIRED,
        "mine:",
        &[("mine_after_call:\n\t{disp8} nopl\t0(%rax, %rax)", "mine_after_call:")],
        "P9 end of the gap behind the traced function",
    ),
    fault(RETIRED, "mine:", &[("mine_after_call", "there"), ("mine_after_call", "there")], "P9 labels"),
    fault(
        DETACHED,
        "mine:",
        &[("mine_skip_0:\n\t{disp8} nopl\t0(%rax, %rax)", "mine_skip_0:")],
        "P9 bytes of the instruction before a program",
    ),
    fault(
        DETACHED,
        "mine:",
        &[("mine_skip_1", "there"), ("mine_skip_1", "there")],
        "P9 labels for programs that are detached",
    ),
];

#[test]
fn each_fault_is_told_as_what_it_is() {
    for Fault { of, behind, changes, told } in FAULTS {
        let b = Bench::new();
        let report = judged(&b, &changed(&generated(&b, of), behind, changes));
        let (clause, place) = told.split_once(' ').unwrap();
        let fails = report.split_once(&format!("FAIL {clause} of")).is_some_and(|(_, of)| of.contains(place));
        assert!(fails, "{told} for {changes:?} in {report}");
    }
}

/// A text with other instructions behind the line that says something.
fn changed(text: &str, behind: &str, changes: &[(&str, &str)]) -> String {
    let line = text.find(behind).unwrap_or_else(|| panic!("{behind:?} in {text}"));
    let (before, rest) = text.split_at(line + text[line..].find('\n').unwrap() + 1);
    let changed = changes.iter().fold(rest.to_owned(), |rest, (from, to)| {
        assert!(rest.contains(from), "{from:?} in {rest}");
        rest.replacen(from, to, 1)
    });
    [before, &*changed].concat()
}

/// What only an engine that enforces decides is no deviation that is gone.
#[test]
fn what_nobody_stops_may_be_a_deviation() {
    let b = Bench::new();
    let text = generated(&b, FLOATING);
    let contract = std::fs::read_to_string(b.path("t.toml")).unwrap();
    let deviation = "deviation = [{ clause = \"P26\", place = \"engine:returns\", reason = \"RET without CALL\" }]";
    let stated = contract.replacen("symbol = \"mine\"\n", &format!("symbol = \"mine\"\n{deviation}\n"), 1);
    assert_ne!(stated, contract);
    std::fs::write(b.path("t.toml"), &stated).unwrap();
    let report = judged(&b, &text);
    assert!(report.starts_with("holds"), "{report}");
    // Of another clause it is.
    std::fs::write(b.path("t.toml"), stated.replace("P26", "P8").replace("engine:returns", "sp-align")).unwrap();
    let report = judged(&b, &text);
    assert!(report.contains("FAIL P8") && report.contains("was expected to deviate"), "{report}");
}

/// It stops where there is room. That it does other things where there is none is no fault of a signal's.
#[test]
fn what_stops_with_room_is_no_fault_of_a_signals_without() {
    let b = Bench::new();
    judged(&b, &changed(&generated(&b, BOTH), ENTRY, STOPS));
    let report = told(&b, &["--situation", "full"]);
    assert!(report.contains("FAIL P16") && !report.contains("FAIL P25"), "{report}");
}
