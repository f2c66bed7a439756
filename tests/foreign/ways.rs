//! Every way out is judged, and a failure names the instruction that did it.

use serde_json::Value;

use crate::case::{ARCH, Case, TRAMPOLINE, flat};
use crate::common::{Bench, CONTRACT};
use crate::values::{ENTRY, ENTRY_CONTRACT};

/// The rows of the JSON report.
fn rows(case: &Case) -> Vec<Value> {
    let args = ["check", "--object", "t.o", "--contract", "t.toml", "--format", "json"];
    let (_, out, err) = case.tool(&args);
    let report: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {err}"));
    report["results"].as_array().unwrap().clone()
}

/// One clause of one trampoline.
fn row(case: &Case, trampoline: &str, clause: &str) -> Value {
    let is = |row: &&Value| row["trampoline"] == trampoline && row["clause"] == clause;
    rows(case).iter().find(is).unwrap().clone()
}

/// Where nothing goes a way out that the contract has, what must hold there is not passed.
#[test]
fn what_must_hold_on_a_way_that_nothing_goes_is_not_decided() {
    let decided = |case: &Case, clause: &str| {
        let row = row(case, "my_entry", clause);
        (row["verdict"].as_str().unwrap().to_owned(), row["reason_id"].clone(), row["reason"].clone())
    };
    let sound = Case::new(ENTRY, ENTRY_CONTRACT);
    let never = Case::new(&ENTRY.replace("    jz      1b\n", "    jmp     1b\n"), ENTRY_CONTRACT);
    let reason = "not decided on the way to a direct trampoline";
    for clause in ["P1", "P5", "P14"] {
        assert_eq!(decided(&sound, clause).0, "pass", "{clause}");
        assert_eq!(decided(&never, clause), ("skip".to_owned(), "way-not-taken".into(), reason.into()), "{clause}");
    }
    assert_eq!(decided(&never, "P11").0, "fail");
    assert_eq!(never.check().0, Some(1));
}

#[test]
fn calls_and_returns_are_paired_on_the_way_to_a_direct_trampoline() {
    let with = |way: &str| ENTRY.replace("    jmp     *%r11\n", way);
    let sound = Case::new(&with("    jmp *%r11\n"), ENTRY_CONTRACT);
    assert_eq!(row(&sound, "my_entry", "P14")["verdict"], "pass");
    let unpaired = Case::new(&with("    call 3f\n3:  add $8, %rsp\n    jmp *%r11\n"), ENTRY_CONTRACT);
    let p14 = row(&unpaired, "my_entry", "P14");
    assert_eq!(p14["verdict"], "fail");
    assert!(p14["failures"][0]["last_writer"].as_str().unwrap().contains(": call "), "{p14}");
    // A return needs a call of its own, or it takes that of the site; where it goes is predicted wrong, as a contract may say.
    let contract = ENTRY_CONTRACT.replacen("stack-align", "direct-mispredicted = 1\nstack-align", 1);
    let returns = Case::new(&with("    push %r11\n    ret\n"), &contract);
    let p14 = row(&returns, "my_entry", "P14");
    assert_eq!((&p14["verdict"], &p14["failures"][0]["place_id"]), (&"fail".into(), &"return-stack:calls".into()));
    let paired = Case::new(&with("    call 3f\n    int3\n3:  mov %r11, (%rsp)\n    ret\n"), &contract);
    assert_eq!(row(&paired, "my_entry", "P14")["verdict"], "pass");
    paired.contract(ENTRY_CONTRACT);
    let p14 = row(&paired, "my_entry", "P14");
    assert_eq!(p14["failures"][0]["place_id"], "return-stack:mispredicted");
    sound.contract(&contract);
    assert_eq!(row(&sound, "my_entry", "P14")["verdict"], "fail");
}

#[test]
fn calls_and_returns_are_paired_where_the_function_goes_on_elsewhere() {
    let field = "{ member = \"ip\", offset = 64, holds = \"pc\", stores = \"take-effect\" }";
    let contract =
        ENTRY_CONTRACT.replace("field = [", &format!("field = [{field}, ")).replace("size = 64", "size = 72");
    let with = |way: &str| {
        let text = ENTRY.replace("$72", "$80").replace("72(%rsp), %rdi\n", "80(%rsp), %rdi\n    mov %rdi, 64(%rsp)\n");
        let text = text.replace("mov     80(%rsp), %rsi", "mov     88(%rsp), %rsi");
        Case::new(&text.replace("    add     $80, %rsp\n", way), &contract)
    };
    let sound = with("    mov 64(%rsp), %r10\n    mov %r10, 80(%rsp)\n    add $80, %rsp\n");
    assert_eq!(sound.check().0, Some(0), "{}", sound.check().1);
    let jumps = "    mov 64(%rsp), %r10\n    cmp %r10, 80(%rsp)\n    je 4f\n    test %r11, %r11\n    jnz 5f\n    add $88, %rsp\n    jmp *%r10\n5:  mov %r10, 80(%rsp)\n4:  add $80, %rsp\n";
    let p14 = row(&with(jumps), "my_entry", "P14");
    assert_eq!(p14["verdict"], "fail", "{p14}");
}

/// Without a direct trampoline in the contract, the judge stands in for one.
#[test]
fn a_clause_is_decided_on_the_way_to_a_direct_trampoline_that_nobody_gave() {
    let contract = ENTRY_CONTRACT.split("\n[[trampoline]]\nsymbol = \"my_direct\"").next().unwrap();
    let case = Case::new(ENTRY, contract);
    for clause in ["P1", "P5", "P6", "P7", "P9", "P14"] {
        let row = row(&case, "my_entry", clause);
        assert_eq!(row["verdict"], "pass", "{clause}: {row}");
        assert!(row["checks"].as_u64().unwrap() > 0, "{clause}");
    }
    assert_eq!(row(&case, "my_entry", "coverage")["verdict"], "pass");
    // What is lost on that way only is noticed there.
    for (lost, clause) in [("inc %rdi", "P1"), ("inc %rbx", "P5"), ("push %r11", "P7")] {
        let text = ENTRY.replace("    jmp     *%r11", &format!("    {lost}\n    jmp     *%r11"));
        let row = row(&Case::new(&text, contract), "my_entry", clause);
        assert_eq!(row["verdict"], "fail", "{lost}: {row}");
    }
}

/// What a contract says is lost on that way is lost behind it too: the site's function goes on without it.
#[test]
fn what_the_way_to_a_direct_trampoline_may_lose_is_not_compared_behind_it() {
    let b = Bench::new();
    let made = ["gen", "ftrace_regs_caller", "--arch", ARCH, "--profile", "linux-6.12", "--emit", "asm,contract"];
    b.ok(&[&made[..], &["--stem", "t", "-o", "."]].concat());
    let [text, contract] = ["t.S", "t.toml"].map(|file| std::fs::read_to_string(b.path(file)).unwrap());
    let (before, way) = text.split_once(".Lftrace_regs_caller_direct:").unwrap();
    let way = way.replacen("mov\tPT_R11(%rsp), %r11", "inc %r11", 1);
    let case = Case::new(&[before, ".Lftrace_regs_caller_direct:", &*way].concat(), &contract);
    let failing = |case: &Case| -> Vec<Value> {
        rows(case).into_iter().filter(|row| row["verdict"] == "fail").map(|row| row["clause"].clone()).collect()
    };
    assert_eq!(failing(&case), ["P4"]);
    case.contract(&contract.replacen("keeps-flags", "direct-loses = [\"r11\"]\nkeeps-flags", 1));
    assert_eq!(failing(&case), [""; 0]);
}

#[test]
fn runs_that_do_not_come_back_are_cut_off() {
    let case = Case::new(&ENTRY.replace("1:  ret", "1:  jmp 1b"), ENTRY_CONTRACT);
    let coverage = row(&case, "my_entry", "coverage");
    let told = (&coverage["verdict"], &coverage["reason"]);
    assert_eq!(told, (&"skip".into(), &"runs were left out: too many did not come back".into()));
    let p9 = row(&case, "my_entry", "P9");
    assert_eq!(p9["verdict"], "fail");
    assert!(p9["failures"].to_string().contains("loop"), "{p9}");
}

/// A trampoline that only another one leads to is not judged if that one does not come back: this is no pass.
#[test]
fn what_is_not_decided_is_no_pass() {
    let b = Bench::new();
    let fault = "ftrace_caller:TEARDOWN_MISMATCH(+8)@0xb7";
    let names = ["ftrace_caller", "return_to_handler", "ftrace_stub", "--arch", ARCH];
    b.ok(&[&["gen"], &names[..], &["--fault", fault, "--emit", "obj,contract", "--stem", "t"]].concat());
    let check = ["check", "return_to_handler", "--object", "t.o", "--contract", "t.toml"];
    let out = flat(&b.ends(1, &check));
    assert!(out.starts_with("not decided: 1 trampoline, "), "{out}");
    let cause = "return_to_handler (t.toml): ftrace_caller leads here and fails: P7 sp, at ";
    assert!(out.contains(&format!("NOT DECIDED of x86_64 {cause}")), "{out}");
    for (format, part) in [
        ("json", "\"verdict\": \"open\""),
        ("junit", "<error message=\"ftrace_caller leads here"),
        ("ktap", "not ok 1 x86_64"),
        ("sarif", "ftrace_caller leads here and fails"),
        ("html", "clauses not decided"),
    ] {
        let out = b.ends(1, &[&check[..], &["--format", format]].concat());
        assert!(out.contains(part), "{format}: {out}");
    }
    // Of those that are judged with it, the cause comes first.
    let out = b.ends(1, &["check", "--object", "t.o", "--contract", "t.toml"]);
    assert!(out.starts_with("fails: ") && out.find("FAIL ") < out.find("NOT DECIDED"), "{out}");
}

#[test]
fn a_report_has_every_place_of_a_failure() {
    let lost = "xor %edi, %edi\n    xor %esi, %esi\n    xor %edx, %edx\n    xor %ecx, %ecx\n    xor %r8d, %r8d\n";
    let case = Case::new(&ENTRY.replace("    jmp     2f\n", &format!("    {lost}    jmp 2f\n")), ENTRY_CONTRACT);
    let p1 = row(&case, "my_entry", "P1");
    assert_eq!(p1["failures"].as_array().unwrap().len(), 3, "the first");
    let places: Vec<&str> = p1["places"].as_array().unwrap().iter().map(|p| p.as_str().unwrap()).collect();
    for register in ["rdi", "rsi", "rdx", "rcx", "r8"] {
        for at in ["args3+0x5", "args11+0x5", "my_direct+0x0"] {
            assert!(places.contains(&format!("{register}@{at}").as_str()), "{register} at {at}: {places:?}");
        }
    }
}

#[test]
fn a_failure_names_the_instruction_that_did_it() {
    let writer = |text: &str, contract: &str, (trampoline, clause): (&str, &str), place: &str, instruction: &str| {
        let row = row(&Case::new(text, contract), trampoline, clause);
        let failures = row["failures"].as_array().unwrap();
        let found = failures.iter().find(|f| f["place_id"] == place).unwrap_or_else(|| panic!("no {place} in {row}"));
        let writer = found["last_writer"].as_str().unwrap();
        assert!(writer.contains(instruction), "{clause} {place}: {writer:?}");
    };
    let p10 = ("my_entry", "P10");
    writer(&ENTRY.replace("$5, %rdi", "$4, %rdi"), ENTRY_CONTRACT, p10, "ip", "sub     rdi, 4");
    writer(
        &ENTRY.replace("movq    $0, 56", "movq    $8, 56"),
        ENTRY_CONTRACT,
        p10,
        "slot:direct",
        "mov     qword ptr [rsp + 0x38], 8",
    );
    let pads = ENTRY_CONTRACT.replacen("stack-align", "landing-pad = true\nstack-align", 1);
    let entry = ENTRY.replace("    sub     $72", "    endbr64\n    sub     $72");
    writer(&entry, &pads, ("my_entry", "P13"), "landing-pad:target", "jmp     r11");
    let vector =
        TRAMPOLINE.replace("    pop     %rsi\n", "    pxor %xmm3, %xmm3\n    pop %rsi\n    punpckhqdq %xmm5, %xmm5\n");
    writer(&vector, CONTRACT, ("my_tramp", "P2"), "xmm3", "pxor    xmm3, xmm3");
    writer(&vector, CONTRACT, ("my_tramp", "P2"), "xmm5", "punpckhqdq xmm5, xmm5");
    // A jump that went astray is the trampoline's own fault, whatever objects there are.
    let astray = ENTRY.replace("    jmp     2f\n", "    mov $0x666000, %r10d\n    jmp *%r10\n");
    let p9 = row(&Case::new(&astray, ENTRY_CONTRACT), "my_entry", "P9");
    let failure = &p9["failures"][0];
    assert_eq!(failure["place"], "the jump or call before this place goes where no code is");
    assert!(failure["last_writer"].as_str().unwrap().contains("jmp     r10"), "{failure}");
}

/// Addresses with one bit stand for what sites lead to. Who goes there without having been led there, stops.
#[test]
fn what_stands_for_another_trampoline_is_no_way_out() {
    for bit in 41..45 {
        let leaves = format!("    leave\n    movabs ${:#x}, %r11\n    jmp *%r11\n", 1_u64 << bit);
        let case = Case::new(&TRAMPOLINE.replace("    leave\n    ret\n", &leaves), CONTRACT);
        let failing: Vec<Value> = rows(&case).into_iter().filter(|row| row["verdict"] == "fail").collect();
        let clauses: Vec<&str> = failing.iter().filter_map(|row| row["clause"].as_str()).collect();
        assert_eq!(clauses, ["P9"], "{bit}: {failing:?}");
        let stopped = |failure: &Value| failure["place_id"] == "stopped";
        assert!(failing[0]["failures"].as_array().unwrap().iter().any(stopped), "{bit}: {failing:?}");
    }
}
