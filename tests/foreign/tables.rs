//! Unwind tables of objtool: of kernels that wrote them in another form, and where there is none.

use crate::case::{Case, TRAMPOLINE, flat};
use crate::common::CONTRACT;

/// The rows of [`TRAMPOLINE`] as Linux 6.1 writes them (arch/x86/include/asm/orc_types.h there): two offsets, the bases, and a
/// byte in which a call is 0. Each holds from a label on.
const ROWS: [(&str, &str); 5] = [
    ("my_tramp", "8, 0; .byte 0x05, 0"),
    ("my_tramp + 1", "16, -16; .byte 0x15, 0"),
    ("my_tramp + 4", "16, -16; .byte 0x14, 0"),
    ("1f", "8, 0; .byte 0x05, 0"),
    ("2f", "0, 0; .byte 0, 0"),
];

/// The trampoline with this table.
fn with_orc(rows: &[(&str, &str)]) -> String {
    let text = TRAMPOLINE.replace("    call    other_helper\n", "").replace("    ret\n", "1:  ret\n2:\n");
    let rows = rows.iter().map(|(from, row)| {
        let from = from.replace('f', "b");
        format!("    .section .orc_unwind_ip, \"a\"\n    .long {from} - .\n    .section .orc_unwind, \"a\"\n    .2byte {row}\n")
    });
    text + &rows.collect::<String>()
}

#[test]
fn the_table_of_an_older_kernel_is_judged() {
    let case = Case::new(&with_orc(&ROWS), CONTRACT);
    let verdict = || {
        let (code, out, _) = case.tool(&["check", "--object", "t.o", "--contract", "t.toml", "--format", "json"]);
        let report: serde_json::Value = serde_json::from_str(&out).unwrap();
        let row = report["results"].as_array().unwrap().iter().find(|row| row["clause"] == "P12").unwrap().clone();
        (code, row["verdict"].as_str().unwrap().to_owned(), row["reason"].as_str().unwrap().to_owned())
    };
    assert_eq!(verdict(), (Some(0), "pass".to_owned(), String::new()));
    // A row that is wrong is noticed.
    let mut rows = ROWS;
    rows[2].1 = "24, -16; .byte 0x14, 0";
    case.assemble("t", &with_orc(&rows).replace("my_direct_func", "direct_func"));
    let (code, verdict, _) = verdict();
    assert_eq!((code, verdict.as_str()), (Some(1), "fail"));
}

/// Where objtool runs on the whole kernel only, an object has no table: what its contract says of that is open, and no more.
#[test]
fn an_object_without_the_table_of_its_contract_is_judged_in_all_else() {
    let deviates = "deviation = [{ clause = \"P12\", place = \"unwind:*@my_tramp+0x4\", reason = \"an old fault\" }]\n";
    let text = TRAMPOLINE.replace("    call    other_helper\n", "");
    let case = Case::new(&text, &format!("{CONTRACT}{deviates}"));
    let (code, out, err) = case.tool(&["check", "--object", "t.o", "--contract", "t.toml", "-v"]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(flat(&out).contains("the object has no unwind table, of which its contract speaks"), "{out}");
    // With a table, it is stale.
    let (code, out, _) = {
        case.assemble("t", &with_orc(&ROWS).replace("my_direct_func", "direct_func"));
        case.check()
    };
    assert!(code == Some(1) && flat(&out).contains("was expected to deviate and does not"), "{out}");
    // All else is decided.
    case.assemble(
        "t",
        &text.replace("my_direct_func", "direct_func").replace("    pop     %rsi\n", "    add     $8, %rsp\n"),
    );
    let (code, out, _) = case.check();
    assert!(code == Some(1) && out.contains("FAIL P1 ") && !out.contains("FAIL P12 "), "{out}");
}
