//! Data between the instructions of a trampoline, as compilers for arm64 and RISC-V put literals there.

use crate::case::Case;
use crate::common::expected::{Literal, contract, expected};

/// A word that is a call when it is taken for an instruction, and one that is none, before the last instruction.
#[test]
fn literals_are_no_instructions() {
    for backend in tool::BACKENDS {
        let (arch, by_hand) = (backend.facts().name, expected(*backend).by_hand);
        let Some(Literal { jump, word, insn }) = by_hand.literal else { continue };
        let (rest, last) = by_hand.text.trim_end().rsplit_once('\n').unwrap();
        let contract = contract(*backend);
        let case = Case::new("", &contract);
        let check = |literal: &str, behind: &str| {
            let text = format!(
                ".globl my_tramp\n.type my_tramp, %function\nmy_tramp:\n{rest}\n{jump} 9f\n{literal}\n9: {last}\n{behind}\n\
                 .size my_tramp, . - my_tramp\n"
            );
            std::fs::write(case.dir.path().join("t.S"), text).unwrap();
            let (code, _, err) = case.run(backend.facts().assembler, &["t.S", "-o", "t.o"]);
            assert_eq!(code, Some(0), "{err}");
            case.check()
        };
        for (literal, behind) in [("", ""), (".word", ""), ("", ".word"), (".word", ".word")] {
            let [literal, behind] =
                [literal, behind].map(|at| at.replace(".word", &format!(".word {word}, 0xffffffff")));
            let (code, out, err) = check(&literal, &behind);
            assert_eq!((code, err.as_str()), (Some(0), ""), "{arch} {literal}: {out}");
        }
        // Instructions that the same bytes are, and nothing jumps there.
        let (code, out, _) = check(&format!("{insn} {word}"), "");
        assert!(code == Some(1) && out.contains("FAIL coverage"), "{arch}: {out}");
    }
}

/// Assemblers mark what `.byte` and `.word` make as data: a trampoline of these is judged all the same, and its faults are found.
#[test]
fn what_is_executed_is_no_literal() {
    for backend in tool::BACKENDS {
        let (arch, by_hand) = (backend.facts().name, expected(*backend).by_hand);
        if by_hand.literal.is_none() {
            continue;
        }
        let case = Case::new("", &contract(*backend));
        let text = format!(
            ".globl my_tramp\n.type my_tramp, %function\nmy_tramp:\n{}\n.size my_tramp, . - my_tramp\n",
            by_hand.text
        );
        std::fs::write(case.dir.path().join("t.S"), text).unwrap();
        let (code, _, err) = case.run(backend.facts().assembler, &["t.S", "-o", "t.o"]);
        assert_eq!(code, Some(0), "{err}");
        let marked = case.check();
        assert_eq!(marked.0, Some(0), "{arch}: {}", marked.1);
        let mutants = case.tool(&["mutate", "--object", "t.o", "--contract", "t.toml"]);

        let object = case.dir.path().join("t.o");
        let mut bytes = std::fs::read(&object).unwrap();
        // Behind `$x`, the assembler for RISC-V writes the architecture.
        let at = bytes.windows(3).position(|name| name == b"\0$x").unwrap();
        bytes[at + 1..at + 4].copy_from_slice(b"$d\0");
        std::fs::write(&object, bytes).unwrap();
        assert_eq!(case.check(), marked, "{arch}");
        assert_eq!(case.tool(&["mutate", "--object", "t.o", "--contract", "t.toml"]), mutants, "{arch}");
    }
}
