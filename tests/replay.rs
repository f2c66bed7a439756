//! The command that a failure prints runs the one case that failed, and no other.

use serde_json::Value;

use common::{Bench, CONTRACT, any};

mod common;

/// A direct-call trampoline that loses rsi where SP is a multiple of 16 before its call, if its handler overwrote xmm15.
const IN_FEW_CASES: &str = "
    .globl  my_tramp
my_tramp:
    push    %rdi
    push    %rsi
    movq    %xmm15, %r11
    push    %r11
    call    direct_func
    pop     %r11
    pop     %rsi
    pop     %rdi
    movq    %xmm15, %r10
    cmp     %r10, %r11
    je      1f
    test    $8, %spl
    je      1f
    xor     %esi, %esi
1:  ret
    .size   my_tramp, . - my_tramp
";

/// One that loses rsi if its site is more than 256 MiB away.
const FAR: &str = "
    .globl  my_tramp
my_tramp:
    push    %rdi
    push    %rsi
    call    direct_func
    pop     %rsi
    pop     %rdi
    lea     my_tramp(%rip), %r10
    sub     (%rsp), %r10
    add     $0x10000000, %r10
    cmp     $0x20000000, %r10
    jb      1f
    xor     %esi, %esi
1:  ret
    .size   my_tramp, . - my_tramp
";

/// A directory that a shell does not read as one word.
const DIRECTORY: &str = "it's a directory";

/// Judge a trampoline of which no other than these cases may fail. Every printed command must run one scenario, in which the
/// trampoline fails in the same way; with another value for an option in `others`, it must not fail. Returns the
/// commands.
fn seen_again(source: &str, clause: &str, others: &[(&str, &[&str])]) -> Vec<String> {
    let b = Bench::new();
    std::fs::create_dir(b.path(DIRECTORY)).unwrap();
    let file = |name: &str| format!("{DIRECTORY}/{name}");
    std::fs::write(b.path(&file("t.S")), source).unwrap();
    std::fs::write(b.path(&file("t.toml")), CONTRACT).unwrap();
    b.tool("x86_64-linux-gnu-as", &[&file("t.S"), "-o", &file("t.o")]);
    let check = ["check", "--object", &file("t.o"), "--contract", &file("t.toml"), "--format", "json"];
    let found = failures(&b.ends(1, &check));
    assert!(found.iter().any(|f| f["clause"] == clause), "{found:?}");
    let replay = |f: &Value| f["replay"].as_str().unwrap().to_owned();
    for failure in &found {
        let command = format!("{} --format json", replay(failure));
        let report = b.shell(1, &command);
        assert_eq!(serde_json::from_str::<Value>(&report).unwrap()["scenarios"], 1, "{command}");
        assert!(failures(&report).contains(failure), "{command}: {failure}, not in {report}");
        for (option, values) in others {
            let (before, rest) = command.split_once(&format!(" {option} ")).unwrap();
            let (_, after) = rest.split_once(' ').unwrap();
            for value in *values {
                b.shell(0, &format!("{before} {option} {value} {after}"));
            }
        }
    }
    found.iter().map(replay).collect()
}

fn failures(report: &str) -> Vec<Value> {
    let report: Value = serde_json::from_str(report).unwrap();
    let rows = report["results"].as_array().unwrap().iter();
    rows.flat_map(|r| r["failures"].as_array().into_iter().flatten()).cloned().collect()
}

#[test]
fn the_handler_and_the_stack_are_named() {
    let others: [(&str, &[&str]); 2] = [("--handler", &["general"]), ("--entry-sp", &["8"])];
    for command in seen_again(IN_FEW_CASES, "P1", &others) {
        assert!(command.contains(" --handler any --entry-sp 0 --distance 0 "), "{command}");
    }
}

#[test]
fn the_distance_is_named() {
    let others: [(&str, &[&str]); 1] = [("--distance", &["0", "+1048576", "-1048576"])];
    for command in seen_again(FAR, "P16", &others) {
        assert!(command.contains(" --distance +2147450880 "), "{command}");
    }
}

/// Parts of a case that there are not.
#[test]
fn what_names_no_case_is_refused() {
    let b = Bench::new();
    let check = ["check", "ftrace_caller", "--arch", any()];
    let refused = |option: &[&str], parts: &[&str]| b.refuses(&[&check[..], option].concat(), parts);
    refused(&["--situation", "stub+args"], &["unknown situation 'stub+args'", "plain, args"]);
    refused(&["--situation", "early-direct"], &["unknown situation 'early-direct'", "plain, args"]);
    refused(&["--handler", "none"], &["unknown handler 'none'", "general, any"]);
    refused(&["--entry-sp", "4"], &["unknown entry SP '4'", "valid: 0"]);
    refused(&["--distance", "far"], &["distance \"far\"", "copy-4096"]);
    refused(&["--distance", "copy+0"], &["distance \"copy+0\"", "copy-4096"]);
    refused(
        &["--attached", "return_to_handler"],
        &["unknown trampoline at a site 'return_to_handler'", "ftrace_caller"],
    );
}

/// The lines of mutants are commands too.
#[test]
fn a_mutant_is_seen_again() {
    let b = Bench::new();
    std::fs::create_dir(b.path(DIRECTORY)).unwrap();
    let file = |name: &str| format!("{DIRECTORY}/{name}");
    let keeps = "push %rdi\npush %rsi\ncall direct_func\npop %rsi\npop %rdi\nret";
    let text = |body: &str| format!(".globl my_tramp\nmy_tramp:\n{body}\n.size my_tramp, . - my_tramp\n");
    let contract = CONTRACT.replace("args = 2", "args = 1");
    for (name, body) in [("t", keeps), ("fails", "call direct_func\nret")] {
        std::fs::write(b.path(&file(&format!("{name}.S"))), text(body)).unwrap();
        b.tool("x86_64-linux-gnu-as", &[&file(&format!("{name}.S")), "-o", &file(&format!("{name}.o"))]);
    }
    std::fs::write(b.path(&file("t.toml")), contract).unwrap();
    let mutate = |object: &str| {
        let out = b.run(&["mutate", "--object", &file(object), "--contract", &file("t.toml"), "--format", "json"]);
        (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
    };
    let report: Value = serde_json::from_str(&mutate("t.o").0).unwrap();
    // One argument is promised: what happens to the other one survives.
    let survivors = report["results"].as_array().unwrap().iter().filter(|m| m["outcome"] == "survived");
    let survivors: Vec<&Value> = survivors.collect();
    assert!(!survivors.is_empty(), "{report}");
    for mutant in survivors {
        let again = b.shell(1, &format!("{} --format json", mutant["replay"].as_str().unwrap()));
        let again: Value = serde_json::from_str(&again).unwrap();
        assert_eq!((&again["mutants"], &again["results"][0]["diff"]), (&1.into(), &mutant["diff"]), "{mutant}");
    }
    let told = mutate("fails.o").1;
    let command = told.split('`').nth(1).unwrap();
    assert!(b.shell(1, command).contains("my_tramp"), "{told}");
}
