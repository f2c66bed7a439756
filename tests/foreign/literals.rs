//! Data between the instructions of a trampoline, as compilers for arm64 and RISC-V put literals there.

use crate::case::Case;
use crate::common::CONTRACT;
use crate::common::expected::expected;

/// A word that is a call when it is taken for an instruction, and one that is none, before the last instruction.
#[test]
fn literals_are_no_instructions() {
    for (arch, prefix, jump, word) in
        [("arm64", "aarch64-linux-gnu-", "b", "0x97ffffff"), ("riscv64", "riscv64-linux-gnu-", "j", "0xffdff0ef")]
    {
        let by_hand = expected(tool::backend(arch).unwrap()).by_hand;
        let (align, body) = (by_hand.align, by_hand.text.trim_end());
        let (rest, last) = body.rsplit_once('\n').unwrap();
        let contract = CONTRACT.replace("x86_64", arch).replace("stack-align = 8", &format!("stack-align = {align}"));
        let case = Case::new("", &contract);
        let check = |literal: &str, behind: &str| {
            let text = format!(
                ".globl my_tramp\n.type my_tramp, %function\nmy_tramp:\n{rest}\n{jump} 9f\n{literal}\n9: {last}\n{behind}\n\
                 .size my_tramp, . - my_tramp\n"
            );
            std::fs::write(case.dir.path().join("t.S"), text).unwrap();
            let (code, _, err) = case.run(&format!("{prefix}as"), &["t.S", "-o", "t.o"]);
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
        let (code, out, _) =
            check(&format!(".inst {word}").replace(".inst", if arch == "arm64" { ".inst" } else { ".insn" }), "");
        assert!(code == Some(1) && out.contains("FAIL coverage"), "{arch}: {out}");
    }
}
