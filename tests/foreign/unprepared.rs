//! What objects of kernels have that a test's own has not.

use codegen::backend::Backend;

use crate::case::{Case, flat};
use crate::common::expected::{ByHand, Replaced, Unprepared, contract, expected, my_tramp};

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

/// A direct-call trampoline that has the first of two instructions before its call, and the second as an alternative to it, with
/// these flags.
fn replaced(backend: &dyn Backend, was: &(String, usize), becomes: &(String, usize), flags: &str) -> String {
    let Replaced { entry, size, .. } = &expected(backend).replaced;
    let ByHand { text, calls, .. } = &expected(backend).by_hand;
    let entry = entry.join("\n").replace("SIZE", &size.to_string()).replace("LENGTH", &becomes.1.to_string());
    let (was, fill, becomes) = (&was.0, size - was.1, &becomes.0);
    let site = format!(
        "661: {was}
        .skip {fill}, 0x90
        .pushsection .altinstructions, \"a\"
        .4byte 661b - .
        .4byte 663f - .
        {}
        .popsection
        .pushsection .altinstr_replacement, \"ax\"
        .skip 32
        663: {becomes}
        .skip 32
        .popsection
        {calls} direct_func",
        entry.replace("FLAGS", flags),
    );
    my_tramp(&text.replacen(&format!("{calls} direct_func"), &site, 1))
}

/// An alternative runs in place of what it replaces, with what it refers to; what no copy of instructions makes is refused.
#[test]
fn alternatives_are_run_in_their_places() {
    for &backend in tool::BACKENDS {
        let (facts, Replaced { entry, size, computed, sound, wrong }) = (backend.facts(), &expected(backend).replaced);
        let arch = facts.name;
        let case = Case::new("", &contract(backend));
        let assemble = |text: &str| {
            std::fs::write(case.dir.path().join("t.S"), format!("{text}\n")).unwrap();
            let (code, _, err) = case.run(facts.assembler, &["t.S", "-o", "t.o"]);
            assert_eq!(code, Some(0), "{arch}: {err}");
        };
        let check = |more: &[&str]| {
            case.tool(&[&["check", "--object", "t.o", "--contract", "t.toml", "--alternatives"], more].concat())
        };
        assemble(&replaced(backend, wrong, sound, "0"));
        let (code, out, _) = case.check();
        assert!(code == Some(1) && out.contains("FAIL") && out.contains("not run (--alternatives"), "{arch}: {out}");
        let (code, out, err) = check(&[]);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{arch}: {out}");
        assert!(out.contains("alternatives: in place, and run, at my_tramp+0x"), "{arch}: {out}");
        assemble(&replaced(backend, sound, wrong, "0"));
        let (code, out, _) = case.check();
        assert_eq!(code, Some(0), "{arch}: {out}");
        let (code, out, _) = check(&[]);
        let again = flat(&out.replace("\\\n", " "));
        assert!(code == Some(1) && again.contains("--contract t.toml --alternatives"), "{arch}: {out}");
        let (code, _, err) = check(&["--profile", "bare"]);
        let refused = format!("profile bare does not say how .altinstructions of {arch} is laid out");
        assert!(code == Some(2) && flat(&err).contains(&refused), "{arch}: {err}");
        if let Some(flags) = computed {
            assemble(&replaced(backend, sound, wrong, flags));
            let (code, _, err) = check(&[]);
            let refused = "t.o: .altinstructions, entry 0: the kernel computes what it writes there";
            assert!(code == Some(2) && flat(&err).contains(refused), "{arch}: {err}");
        }
        let text = replaced(backend, sound, wrong, "0");
        let damaged = [
            ("663f - .", "663f + 0x1000 - .", "its instructions end behind their section; the file is damaged"),
            ("661b - .", "661b + 0x1000 - .", "what it replaces ends behind its section; the file is damaged"),
            ("663f - .", "663f - 64 - .", "its instructions end behind their section; the file is damaged"),
            (".4byte 663f - .", ".4byte 7", "refers to nothing; the file is damaged"),
            (".pushsection .altinstr_replacement", ".byte 0\n.pushsection .altinstr_replacement", "it is cut off"),
        ];
        let mut cases: Vec<_> = damaged.into_iter().map(|(from, to, why)| (text.replacen(from, to, 1), why)).collect();
        // Where one field says how long both are, none is longer.
        if entry.concat().contains("SIZE") {
            let long = (sound.0.clone(), size + 4);
            cases.push((replaced(backend, wrong, &long, "0"), "valid: as many, or fewer by whole NOPs"));
        }
        for (text, why) in cases {
            let text =
                text.replace(".byte 0\n.pushsection", ".section .altinstructions, \"a\"\n.byte 0\n.text\n.pushsection");
            assemble(&text);
            let (code, out, err) = check(&[]);
            assert!(code == Some(2) && flat(&err).contains(why), "{arch}, {why}: {err}{out}");
        }
        assemble(&my_tramp(&expected(backend).by_hand.text));
        let (code, _, err) = check(&[]);
        assert!(code == Some(2) && err.contains("no object has .altinstructions"), "{arch}: {err}");
    }
}
