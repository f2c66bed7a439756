//! Trampolines with memory of their own, which a signal's handler that is traced too overwrites.

use crate::case::{Case, flat};
use crate::common::expected::{contract, expected, my_tramp};

#[test]
fn what_is_kept_in_a_variable_is_lost_to_a_signals_handler() {
    for &backend in tool::BACKENDS {
        let (facts, by_hand) = (backend.facts(), expected(backend).by_hand);
        let case = Case::new("", &contract(backend));
        for (kept, code, told) in [("", 0, "holds"), (by_hand.kept.as_str(), 1, "FAIL P25 of")] {
            let text = my_tramp(&[kept, "\n", &by_hand.text].concat());
            std::fs::write(case.dir.path().join("t.S"), format!("{text}.comm stash, 8, 8\n")).unwrap();
            let (assembled, _, err) = case.run(facts.assembler, &["t.S", "-o", "t.o"]);
            assert_eq!(assembled, Some(0), "{}: {err}", facts.name);
            let (ended, out, err) = case.check();
            assert!(ended == Some(code) && out.contains(told), "{}: {kept}: {out}{err}", facts.name);
            // No other check is for that.
            let fails = flat(&out).matches("FAIL P").count();
            assert_eq!(fails, code as usize, "{}: {kept}: {out}", facts.name);
        }
    }
}
