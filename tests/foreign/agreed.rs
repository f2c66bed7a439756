//! What only a comparison with the function's unpatched run notices.

use crate::case::ARCH;
use crate::common::Bench;

/// The caller's stack belongs to the traced function, which reads arguments there, and to its caller.
#[test]
fn a_word_of_the_callers_stack_that_is_overwritten_is_told_where_it_is_missed() {
    let b = Bench::new();
    let words = "gen direct --args 2 --call f --name mine --emit asm,contract --stem t -o . --arch";
    b.ok(&words.split(' ').chain([ARCH]).collect::<Vec<_>>());
    let text = std::fs::read_to_string(b.path("t.S")).unwrap();
    // Above the return addresses into the function and to its caller.
    std::fs::write(b.path("t.S"), text.replacen("\tendbr64\n", "\tendbr64\n\tmovq $0, 16(%rsp)\n", 1)).unwrap();
    b.tool("x86_64-linux-gnu-as", &["t.S", "-o", "t.o"]);
    let report = b.ends(1, &["check", "--object", "t.o", "--contract", "t.toml"]);
    let report = report.split_whitespace().collect::<Vec<_>>().join(" ");
    // What is wrong anyway is no fault of how the site is switched.
    assert!(!report.contains("FAIL P18"), "{report}");
    for (clause, place) in [
        ("P5", "rbx after the function, against the unpatched run"),
        ("P7", "stack+0x8, against the unpatched run"),
        ("P11", "rax after the function, against the unpatched run"),
    ] {
        let told = report.split_once(&format!("FAIL {clause} of")).unwrap_or_else(|| panic!("no {clause} in {report}"));
        assert!(told.1.contains(place), "{clause} {place}: {report}");
    }
}
