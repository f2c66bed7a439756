//! What objects of kernels have that a test's own has not.

use crate::case::{Case, flat};
use crate::common::expected::{Unprepared, contract, expected, my_tramp};

/// An alternative, data of their own and of a CPU, a part in another section, a return through a thunk.
#[test]
fn what_kernels_objects_have_is_run_or_named() {
    let alternative = "
        .pushsection .altinstructions, \"a\"
        .4byte 661b - .
        .4byte 663f - .
        .byte 0, 1, 0, 0, 4, 4
        .popsection
        .pushsection .altinstr_replacement, \"ax\"
    663: .4byte 0
        .popsection";
    let data = "
        .data
        .balign 8
    number: .quad 0x1234
    pointer: .quad other_helper";
    for &backend in tool::BACKENDS {
        let (facts, Unprepared { text, place, astray }) = (backend.facts(), expected(backend).unprepared);
        let arch = facts.name;
        let case = Case::new("", &contract(backend));
        let check = |body: &str| {
            let text = my_tramp(&body.replace("ALT", alternative));
            std::fs::write(case.dir.path().join("t.S"), format!("{text}{data}\n")).unwrap();
            let (code, _, err) = case.run(facts.assembler, &["t.S", "-o", "t.o"]);
            assert_eq!(code, Some(0), "{arch}: {err}");
            case.check()
        };
        let (code, out, err) = check(&text);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{arch}: {out}");
        assert!(flat(&out).contains(&format!("may be patched in when the kernel boots, at {place}")), "{arch}: {out}");
        assert!(out.contains("stands in for ") && out.contains("other_helper"), "{arch}: {out}");
        // Calls and returns are counted through all of it.
        let calls = expected(backend).by_hand.calls;
        let unpaired = text.replacen(&format!("{calls} other_helper"), &format!("{calls} 3f\n 3:"), 1);
        assert_ne!(unpaired, text);
        let (code, out, _) = check(&unpaired);
        assert!(code == Some(1) && out.contains("FAIL P14"), "{arch}: {out}");
        assert!(text.contains(&astray.0));
        let (code, out, _) = check(&text.replace(&astray.0, &astray.1));
        assert!(
            code == Some(1) && out.contains("access to unmapped memory") && flat(&out).contains(", at my_tramp+"),
            "{arch}: {out}"
        );
    }
}
