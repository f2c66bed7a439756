//! What a contract states of the site, of the callee's arguments and of how the callee is found: each word holds for a sound
//! trampoline, and fails for one that breaks just that.

use crate::case::Case;
use crate::common::tools_of;

/// Called in the middle of a function; calls by the first of two variables that is not NULL.
const SLED: &str = "
    .globl  my_sled, first, second
    .type   my_sled, @function
my_sled:
    .irp reg, rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11
    push    %\\reg
    .endr
    sub     $136, %rsp
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7
    movups  %xmm\\n, 16*\\n(%rsp)
    .endr
    mov     first(%rip), %rax
    test    %rax, %rax
    jne     1f
    mov     second(%rip), %rax
    test    %rax, %rax
    je      2f
1:  mov     %r10d, %edi
    mov     $3, %esi
    mov     8(%rbp), %rdx
    call    *%rax
2:
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7
    movups  16*\\n(%rsp), %xmm\\n
    .endr
    add     $136, %rsp
    .irp reg, r11, r10, r9, r8, rdi, rsi, rdx, rcx, rax
    pop     %\\reg
    .endr
    ret
    .size   my_sled, . - my_sled
    .data
first: .quad 0
second: .quad 0
";

const SLED_CONTRACT: &str = r#"
arch = "x86_64"
about = "a sled"

[[trampoline]]
symbol = "my_sled"
kind = "sled"
calls-through = [{ variable = "first", calls = "one" }, { variable = "second", calls = "other" }]
may-be-null = true
arguments = [{ value = "r10", bits = 32 }, "3", "[rbp+8]"]
site = { sp = [0], clear-flags = ["df", "ac"], holds = { rbp = "sp+24", "[sp+32]" = "0x1234" } }
handlers = "any"
stack-align = 16
"#;

/// Jumped to with two words pushed; goes where its callee says, with these gone.
const RESOLVER: &str = "
    .globl  my_resolver
    .type   my_resolver, @function
my_resolver:
    .irp reg, rax, rcx, rdx, rsi, rdi, r8, r9, r10
    push    %\\reg
    .endr
    mov     64(%rsp), %rdi
    mov     72(%rsp), %rsi
    sub     $8, %rsp
    call    resolve
    add     $8, %rsp
    mov     %rax, %r11
    .irp reg, r10, r9, r8, rdi, rsi, rdx, rcx, rax
    pop     %\\reg
    .endr
    add     $16, %rsp
    jmp     *%r11
    .size   my_resolver, . - my_resolver
";

const RESOLVER_CONTRACT: &str = r#"
arch = "x86_64"
about = "a lazy binding"

[[trampoline]]
symbol = "my_resolver"
kind = "sled"
calls = "resolve"
goes-to = "result"
arguments = ["[sp]", "[sp+8]"]
site = { sp = [0], clear-flags = ["df", "ac"], pushed = 16 }
loses = ["r11"]
stack-align = 8
"#;

/// An entry trampoline with two calls.
const TWICE: &str = "
    .globl  my_entry, my_call, my_graph_call, ftrace_stub
    .type   my_entry, @function
my_entry:
    sub     $72, %rsp
    .set offset, 0
    .irp reg, rdi, rsi, rdx, rcx, r8, r9, rax
    mov     %\\reg, offset(%rsp)
    .set offset, offset + 8
    .endr
    mov     72(%rsp), %rdi
    mov     %rdi, 56(%rsp)
    sub     $5, %rdi
    mov     80(%rsp), %rsi
    mov     %rsp, %rdx
my_call:
    call    ftrace_stub
    mov     72(%rsp), %rdi
    sub     $5, %rdi
    mov     80(%rsp), %rsi
    mov     %rsp, %rdx
my_graph_call:
    call    ftrace_stub
9:
    .set offset, 0
    .irp reg, rdi, rsi, rdx, rcx, r8, r9, rax
    mov     offset(%rsp), %\\reg
    .set offset, offset + 8
    .endr
    push    56(%rsp)
    pop     72(%rsp)
    add     $72, %rsp
    ret
    .size   my_entry, . - my_entry
    .type   ftrace_stub, @function
ftrace_stub:
    ret
    .size   ftrace_stub, . - ftrace_stub
";

const TWICE_CONTRACT: &str = r#"
arch = "x86_64"
about = "an entry trampoline with two calls"

[frame.args]
struct = "args"
size = 64
field = [
    { member = "di", offset = 0, holds = "rdi", stores = "take-effect" },
    { member = "ip", offset = 56, holds = "pc", stores = "take-effect" },
]

[[trampoline]]
symbol = "my_entry"
kind = "entry"
slot = ["my_call", "my_graph_call"]
frame = "args"
arguments = ["pc - 5", "parent-ip", "frame"]
unpaired = 0
stack-align = 8

[[trampoline]]
symbol = "ftrace_stub"
kind = "stub"
stack-align = 8
"#;

/// Finds a variable of a thread, by a call or without one; what it saves first lies in the red zone.
const FINDER: &str = "
    .globl  my_finder, limit
    .type   my_finder, @function
my_finder:
    mov     %rdi, -8(%rsp)
    mov     8(%rax), %rdi
    mov     limit+8(%rip), %r11
    cmp     %r11, %fs:0
    je      1f
    mov     (%rdi), %rax
    mov     -8(%rsp), %rdi
    ret
1:  sub     $24, %rsp
    call    find
    mov     16(%rsp), %rdi
    add     $24, %rsp
    sub     %fs:8, %rax
    ret
    .size   my_finder, . - my_finder
    .data
limit: .quad 0, 0
";

const FINDER_CONTRACT: &str = r#"
arch = "x86_64"
about = "a variable of a thread"

[[trampoline]]
symbol = "my_finder"
kind = "sled"
calls = "find"
arguments = ["sp+40"]
gives = { rax = "result - sp - 64" }
uncalled = { holds = { "[sp+64]" = "6" }, gives = { rax = "0x77" } }
memory = { "limit+8" = 5 }
loses = ["rcx", "rdx", "rsi", "r8", "r9", "r10", "r11"]
stack-align = 16

[trampoline.site]
sp = [8]
clear-flags = ["df", "ac"]
thread = "sp+64"
red-zone = 128
holds = { rax = "sp+16", "[sp+24]" = "sp+40", "[sp+40]" = "0x77", "[sp+64]" = "5", "[sp+72]" = "sp+64" }
"#;

/// The clauses that fail.
pub fn failing(case: &Case) -> Vec<String> {
    let (code, out, err) = case.check();
    assert_eq!(err, "", "{out}");
    let clauses: Vec<String> =
        out.lines().filter_map(|l| l.strip_prefix("FAIL ")?.split(' ').next().map(str::to_owned)).collect();
    assert_eq!(code, Some(i32::from(!clauses.is_empty())), "{out}");
    clauses
}

/// This text holds, and with a change that breaks just this, these clauses fail.
pub fn breaks(text: &str, contract: &str, from: &str, to: &str, clauses: &[&str]) {
    assert!(text.contains(from) || contract.contains(from), "{from}");
    let case = Case::new(&text.replace(from, to), &contract.replace(from, to));
    assert_eq!(failing(&case), clauses, "{from:?} to {to:?}: {}", case.check().1);
}

fn sled(from: &str, to: &str, clauses: &[&str]) {
    breaks(SLED, SLED_CONTRACT, from, to, clauses);
}

fn resolver(from: &str, to: &str, clauses: &[&str]) {
    breaks(RESOLVER, RESOLVER_CONTRACT, from, to, clauses);
}

#[test]
fn a_callee_is_one_of_two_or_none() {
    sled("", "", &[]);
    // It calls NULL.
    sled("    je      2f\n", "", &["P9"]);
    // The second one first.
    sled("mov     first(%rip)", "mov     second(%rip)", &["P10"]);
    sled("may-be-null = true\n", "", &[]);
    // Nobody is called, though somebody is there.
    sled("    call    *%rax\n", "    jmp 2f\n    call *%rax\n", &["P10", "coverage"]);
}

#[test]
fn arguments_are_what_the_contract_says() {
    sled("$3, %esi", "$4, %esi", &["P10"]);
    sled("mov     8(%rbp), %rdx", "mov     16(%rbp), %rdx", &["P10"]);
    sled("mov     %r10d, %edi", "mov     %r10, %rdi", &[]);
    sled("mov     %r10d, %edi", "mov     %r10w, %di", &["P10"]);
    sled("{ value = \"r10\", bits = 32 }", "\"r10\"", &["P10"]);
    sled("\"[rbp+8]\"", "\"0x1234\"", &[]);
    sled("\"[rbp+8]\"", "\"2*[rbp+8] - 0x1234\"", &[]);
    sled("\"[rbp+8]\"", "\"2*[rbp+8] - 0x1235\"", &["P10"]);
}

#[test]
fn what_the_site_says_of_sp_and_flags_may_be_relied_on() {
    sled("sub     $136", "sub     $128", &["P8", "P9"]);
    sled("sp = [0]", "sp = [0, 8]", &["P8"]);
    sled("sp = [0]", "sp = [8]", &["P8"]);
    sled("clear-flags = [\"df\", \"ac\"]", "clear-flags = [\"df\"]", &["P6"]);
    sled("clear-flags = [\"df\", \"ac\"], ", "", &["P6"]);
}

#[test]
fn what_handlers_may_do_to_vector_registers_is_stated() {
    let some = "    .irp n, 0, 1, 2, 3, 4, 5, 6, 7\n    movups  16*";
    sled(some, "    .irp n, 0, 1, 2, 3, 4, 5, 6\n    movups  16*", &["P2"]);
    let without = SLED.replace(some, "    .irp n, 0, 1, 2, 3, 4, 5, 6\n    movups  16*");
    let judge = |contract: &str| Case::new(&without, contract).check();
    let (code, out, _) = judge(&SLED_CONTRACT.replace("handlers = \"any\"", "handlers = \"general\""));
    assert!(code == Some(0) && !out.contains("deviations"), "{out}");
    let (code, out, _) = judge(&SLED_CONTRACT.replace("handlers = \"any\"\n", ""));
    assert!(code == Some(0) && out.contains("if handlers use general registers only"), "{out}");
    let (code, out, _) = judge(&SLED_CONTRACT.replace("stack-align", "loses = [\"xmm7\"]\nstack-align"));
    assert!(code == Some(0) && !out.contains("deviations"), "{out}");
}

#[test]
fn the_next_hop_may_be_the_callees_result() {
    resolver("", "", &[]);
    resolver("    add     $16, %rsp\n", "    add $8, %rsp\n", &["P7", "P9"]);
    resolver("pushed = 16", "pushed = 24", &["P7", "P9"]);
    resolver("mov     %rax, %r11", "lea     1(%rax), %r11", &["P9"]);
    resolver("mov     72(%rsp), %rsi", "mov     80(%rsp), %rsi", &["P10"]);
    // A return takes the call that belongs to the function's own.
    resolver("    jmp     *%r11\n", "    push %r11\n    ret\n", &["P14"]);
}

#[test]
fn a_sled_may_give_a_result_with_a_call_and_without() {
    let finder = |from: &str, to: &str, clauses: &[&str]| breaks(FINDER, FINDER_CONTRACT, from, to, clauses);
    finder("", "", &[]);
    finder("sub     %fs:8, %rax", "sub %fs:0, %rax", &["P11"]);
    finder("mov     (%rdi), %rax", "mov 8(%rdi), %rax", &["P11"]);
    finder("\"result - sp - 64\"", "\"result\"", &["P11"]);
    finder("rax = \"0x77\"", "rax = \"0x78\"", &["P11"]);
    // The other way is run only where the contract has it.
    finder("uncalled = { holds = { \"[sp+64]\" = \"6\" }, gives = { rax = \"0x77\" } }\n", "", &["coverage"]);
    // Without a red zone, a signal's handler takes what lies below SP.
    finder("red-zone = 128\n", "", &["P1", "P7"]);
    finder("red-zone = 128\n", "red-zone = 7\n", &["P1", "P7"]);
    finder("    mov     16(%rsp), %rdi\n", "    mov     8(%rsp), %rdi\n", &["P1", "P7"]);
    // And with one, whoever is called does.
    let reserved = "1:  sub     $24, %rsp\n    call    find\n    mov     16(%rsp), %rdi\n    add     $24, %rsp\n";
    let below = FINDER.replace("-8(%rsp)", "-24(%rsp)");
    let unreserved = "1:  sub $8, %rsp\n    call find\n    mov -16(%rsp), %rdi\n    add $8, %rsp\n";
    breaks(&below, FINDER_CONTRACT, reserved, unreserved, &["P1"]);
}

#[test]
fn what_a_trampoline_finds_by_symbol_is_there() {
    let finder = |from: &str, to: &str, clauses: &[&str]| breaks(FINDER, FINDER_CONTRACT, from, to, clauses);
    finder("limit+8(%rip)", "limit(%rip)", &["P10", "P11", "coverage"]);
    finder("\"limit+8\" = 5", "\"limit+8\" = 4", &["P10", "P11", "coverage"]);
    let (code, _, err) = Case::new(FINDER, &FINDER_CONTRACT.replace("limit+8", "limits+8")).check();
    assert!(code == Some(2) && err.contains("no memory at limits+0x8"), "{err}");
}

/// What a call of AArch64 leaves room for behind it is stepped over.
#[test]
fn a_sled_may_go_on_behind_data() {
    let judge = |step: &str, resume: &str| {
        let contract = format!(
            "arch = \"arm64\"\nabout = \"a sled\"\n[[trampoline]]\nsymbol = \"my_sled\"\nkind = \"sled\"\n{resume}\
             calls = \"handler\"\narguments = [\"x17\"]\nloses = [\"x16\", \"x17\"]\nstack-align = 16\n"
        );
        let pairs = ["x0, x1", "x2, x3", "x4, x5", "x6, x7", "x8, x9", "x10, x11", "x12, x13", "x14, x15", "x29, x30"];
        let push: String = pairs.iter().map(|p| format!("stp {p}, [sp, #-16]!\n")).collect();
        let pop: String = pairs.iter().rev().map(|p| format!("ldp {p}, [sp], #16\n")).collect();
        let head = ".globl my_sled\n.type my_sled, %function\nmy_sled:\n";
        let text = format!("{head}{step}\n{push}mov x0, x17\nbl handler\n{pop}ret\n.size my_sled, . - my_sled\n");
        let case = Case::new("", &contract);
        std::fs::write(case.dir.path().join("t.S"), text).unwrap();
        let (code, _, err) = case.run(&format!("{}as", tools_of("arm64")), &["t.S", "-o", "t.o"]);
        assert_eq!(code, Some(0), "{err}");
        failing(&case)
    };
    assert_eq!(judge("add x30, x30, #12", "resume = 12\n"), [""; 0]);
    assert_eq!(judge("nop", ""), [""; 0]);
    assert_eq!(judge("nop", "resume = 12\n"), ["P9"]);
    assert_eq!(judge("add x30, x30, #8", "resume = 12\n"), ["P9"]);
    assert_eq!(judge("add x30, x30, #12", ""), ["P9"]);
}

#[test]
fn an_entry_trampoline_may_have_a_second_slot() {
    let entry = |from: &str, to: &str, clauses: &[&str]| breaks(TWICE, TWICE_CONTRACT, from, to, clauses);
    // Where the function goes on elsewhere, the return to there has the site's call.
    entry("", "", &[]);
    entry("my_call:\n    call    ftrace_stub\n", "my_call:\n    call ftrace_stub\n    jmp 9f\n", &["P10", "coverage"]);
    // What is not patched calls what it was assembled with.
    entry("slot = [\"my_call\", \"my_graph_call\"]", "slot = \"my_call\"", &["P9"]);
    entry("    mov     %rsp, %rdx\nmy_graph_call", "    lea 8(%rsp), %rdx\nmy_graph_call", &["P10"]);
    entry("arguments = [\"pc - 5\", \"parent-ip\"", "arguments = [\"pc\", \"parent-ip\"", &["P10"]);
}

/// A callback may be found by a variable, which holds the stub where none is attached.
#[test]
fn a_slot_may_be_a_variable() {
    let text = TWICE.split("    mov     72(%rsp), %rdi\n    sub     $5, %rdi\n    mov     80(%rsp), %rsi\n    mov     %rsp, %rdx\nmy_graph_call");
    let halves: Vec<&str> = text.collect();
    let [first, second] = halves[..] else { panic!("{}", halves.len()) };
    let second = second.strip_prefix(":\n    call    ftrace_stub\n9:\n").unwrap();
    let call = "    mov callback_var(%rip), %rax\n    test %rax, %rax\n    je 1f\n    call *%rax\n1:\n";
    let text = format!("{first}{second}    .data\ncallback_var: .quad 0\n    .globl callback_var\n");
    let text = text.replace("my_call:\n    call    ftrace_stub\n", call).replace("my_call, my_graph_call, ", "");
    let by_name = "slot = [\"my_call\", \"my_graph_call\"]";
    let contract = TWICE_CONTRACT.replace(by_name, "calls-through = \"callback_var\"\nmay-be-null = true");
    let judge = |from: &str, to: &str, clauses: &[&str]| breaks(&text, &contract, from, to, clauses);
    judge("", "", &[]);
    judge("    test %rax, %rax\n    je 1f\n", "", &["P9"]);
    judge("may-be-null = true", "", &[]);
    judge("    je 1f\n", "    jmp 1f\n", &["P10", "coverage", "coverage"]);
}

#[test]
fn what_cannot_be_stated_is_refused_with_its_line() {
    let refused = |contract: &str, from: &str, to: &str, message: &str| {
        assert!(contract.contains(from), "{from}");
        let case = Case::new(SLED, &contract.replacen(from, to, 1));
        let (code, out, err) = case.check();
        assert!(code == Some(2) && err.contains(message), "{from:?} to {to:?}: {out}{err}");
    };
    let sled = |from: &str, to: &str, message: &str| refused(SLED_CONTRACT, from, to, message);
    sled("sp = [0]", "sp = [4]", "t.toml:11: sp = 4; valid: 8, 0");
    sled("\"df\"", "\"of\"", "t.toml:11: unknown flag 'of'; valid: df, ac");
    sled("rbp = \"sp+24\"", "rbp = \"rax+8\"", "t.toml:11: 'rax+8'; valid: a number, sp to sp+");
    sled("rbp = \"sp+24\"", "rsp = \"sp\"", "t.toml:11: 'rsp'; valid: a register, or a word of the stack");
    sled("\"[sp+32]\"", "\"[sp+3]\"", "t.toml:11: '[sp+3]'; valid: a register, or a word of the stack");
    sled("holds = {", "pushed = 8, holds = {", "t.toml:11: pushed is for what goes to its result");
    sled("\"[rbp+8]\"", "\"rbp*2\"", "t.toml:10: 'rbp*2' is no sum of registers, words as [sp+8], numbers");
    sled("\"[rbp+8]\"", "\"frame\"", "t.toml:10: frame stands alone, and is for trampolines with a frame");
    sled("bits = 32", "bits = 65", "t.toml:10: bits = 65; valid: 1 to 64");
    sled("\"[rbp+8]\"", "1,2,3", "t.toml:10: expected a value, or { value, bits }");
    sled("calls-through = [", "calls = \"x\"\ncalls-through = [", "t.toml:9: two variables, each with what it calls");
    sled("may-be-null", "goes-to = \"site\"\nslot = \"s\"\nmay-be-null", ": slot is for kind entry, regs only");
    sled("handlers", "keeps = [\"rax\"]\nloses = [\"rax\"]\nhandlers", "t.toml:13: rax is among keeps and loses");
    sled("handlers", "goes-to = \"result\"\nresume = 4\nhandlers", "t.toml:13: resume is for what goes on at its site");
    sled("\"[rbp+8]\"", "\"result\"", "t.toml:10: 'result': kind sled has no result here");
    sled("handlers", "memory = { \"+8\" = 1 }\nhandlers", "t.toml:12: '+8'; valid: a symbol, or symbol+offset");
    sled("handlers", "gives = { r99 = \"1\" }\nhandlers", "t.toml:12: unknown register 'r99'");
    sled("handlers", "gives = { rax = \"ip\" }\nhandlers", "t.toml:12: no site has told it ip, op or frame");
    sled("holds = {", "red-zone = 1000, holds = {", "t.toml:11: red-zone = 1000; valid: 0 to 512");
    let again = format!("{SLED_CONTRACT}{}", &SLED_CONTRACT[SLED_CONTRACT.find("[[").unwrap()..]);
    refused(&again, "", "", "t.toml:22: my_sled has a contract already");
    let entry = |from: &str, to: &str, message: &str| refused(TWICE_CONTRACT, from, to, message);
    entry(", \"frame\"]", "]", "t.toml:18: none of the arguments is frame, the address of args");
    entry("frame = \"args\"", "frame = \"f\"", "t.toml:17: unknown frame 'f'");
    entry("unpaired = 0", "goes-to = \"site\"", "t.toml:19: goes-to is for kind sled only");
    entry(
        "unpaired = 0",
        "site = { pushed = 8 }",
        "t.toml:19: clear-flags, pushed, holds and thread are for kinds that no site goes to",
    );
    entry(
        "unpaired = 0",
        "gives = { rax = \"1\" }",
        "t.toml:19: gives and uncalled are for kinds that no site goes to",
    );
    entry("unpaired = 0", "site = { sp = [4] }", "t.toml:19: sp = 4; valid: 0, 8");
    entry("unpaired = 0", "may-be-null = true", "may-be-null is for what calls-through names");
    entry(
        "kind = \"stub\"",
        "kind = \"stub\"\nsite = {}",
        "t.toml:25: site is for kinds that a site goes to, not for stub",
    );
    entry(
        "kind = \"stub\"",
        "kind = \"stub\"\narguments = []",
        "t.toml:25: arguments is for kinds that call one function",
    );
    entry("kind = \"stub\"", "kind = \"stub\"\ncalls-through = \"v\"", "t.toml:25: calls-through is not for kind stub");
}
