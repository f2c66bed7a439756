//! Ways out that several trampolines share, behind a symbol of their own, as `ftrace_epilogue` was in Linux 4.

use crate::case::{Case, TRAMPOLINE, flat};
use crate::common::CONTRACT;

const OWN_END: &str = "    pop     %rsi\n    pop     %rdi\n    leave\n    ret\n";

/// The trampoline with its end behind a jump; twice.
fn shared(end: &str) -> String {
    assert!(TRAMPOLINE.contains(OWN_END));
    let one = TRAMPOLINE.replace(OWN_END, "    jmp     my_tail\n");
    let other = one.replace("my_tramp", "other_tramp");
    format!(
        "{one}{other}    .globl my_tail\n    .type my_tail, @function\nmy_tail:\n{end}    .size my_tail, . - my_tail\n"
    )
}

fn contract() -> String {
    let more = CONTRACT[CONTRACT.find("[[").unwrap()..].replace("my_tramp", "other_tramp");
    format!("{CONTRACT}{more}")
}

#[test]
fn what_trampolines_jump_to_is_their_own() {
    let check = |end: &str| Case::new(&shared(end), &contract()).check();
    let (code, out, err) = check(OWN_END);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    // An instruction that nothing reaches, told by the symbol that it is in.
    let (code, out, _) =
        check(&OWN_END.replace(
            "    pop     %rdi\n",
            "    pop     %rdi\n    test %rax, %rax\n    jo 2f\n    jmp 3f\n2:  ud2\n3:\n",
        ));
    assert_eq!(code, Some(1));
    assert!(
        out.contains("FAIL coverage of x86_64 other_tramp") && flat(&out).contains("not executed: my_tail+0x"),
        "{out}"
    );
    let (code, out, _) = check(&OWN_END.replace("    pop     %rsi\n", "    pop     %rcx\n"));
    assert_eq!(code, Some(1));
    assert!(out.contains("FAIL P1 of x86_64 my_tramp") && out.contains("FAIL P1 of x86_64 other_tramp"), "{out}");
    // A call there without a return is one of the trampoline's, and the instruction is named.
    let (code, out, _) = check(&OWN_END.replace("    leave\n", "    leave\n    call 1f\n1:  add $8, %rsp\n"));
    assert_eq!(code, Some(1));
    let told = out.contains("FAIL P14 of x86_64 my_tramp") && out.contains("my_tail+0x3: call");
    assert!(told && out.contains("=> my_tail+0x3"), "{out}");
}

#[test]
fn faults_in_what_trampolines_jump_to_are_noticed() {
    let case = Case::new(&shared(OWN_END), &contract());
    let args = ["mutate", "my_tramp", "--object", "t.o", "--contract", "t.toml", "--format", "json"];
    // Exit code 1: a call that it need not make may be missing.
    let (code, out, err) = case.tool(&args);
    assert_eq!((code, err.as_str()), (Some(1), ""), "{out}");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    let results = report["results"].as_array().unwrap();
    let tails: Vec<&str> =
        results.iter().filter_map(|r| r["mutant"].as_str().filter(|m| m.contains("@my_tail+0x"))).collect();
    let survived = results.iter().filter(|r| r["outcome"] == "survived").map(|r| r["mutant"].as_str().unwrap());
    assert!(survived.eq(["DROP_CALL@0xb"]), "{results:?}");
    assert!(tails.len() >= 4 && tails.contains(&"DROP_LEAVE@my_tail+0x3"), "{tails:?}");
    // Each is run again by its name.
    let (code, again, _) = case.tool(&[&args[..], &["--only", tails[0]]].concat());
    let again: serde_json::Value = serde_json::from_str(&again).unwrap();
    assert_eq!((code, again["results"].as_array().unwrap().len()), (Some(0), 1), "{again}");
}
