//! Trampolines with memory of their own, which a signal's handler that is traced too overwrites.

use crate::common::{Bench, arches};

/// The first argument is kept in a variable, from the entry to the next instruction or to the end.
const KEEPS: [(&str, &str, &str); 3] = [
    ("x86_64", "mov %rdi, stash(%rip)", "mov stash(%rip), %rdi"),
    (
        "arm64",
        "adrp x16, stash; add x16, x16, :lo12:stash; str x0, [x16]",
        "adrp x16, stash; add x16, x16, :lo12:stash; ldr x0, [x16]",
    ),
    ("riscv64", "la t3, stash; sd a0, 0(t3)", "la t3, stash; ld a0, 0(t3)"),
];

#[test]
fn what_is_kept_in_a_variable_is_lost_to_a_signals_handler() {
    let kinds = [
        "direct --args 2 --call f --name mine",
        "around --args 2 --call f --exit g --function h --name mine --profile bare",
    ];
    for (arch, prefix) in arches() {
        let (_, store, load) = KEEPS.into_iter().find(|(of, ..)| *of == arch).unwrap();
        for kind in kinds {
            let b = Bench::new();
            let words = format!("gen {kind} --arch {arch} --emit asm,contract --stem t -o .");
            b.ok(&words.split(' ').collect::<Vec<_>>());
            let text = std::fs::read_to_string(b.path("t.S")).unwrap();
            let begins = text.find("\nmine:\n").unwrap() + 1;
            let is_code = |line: &&str| line.starts_with('\t') && !line.starts_with("\t.");
            let first = text[begins..].lines().find(is_code).unwrap();
            // Behind the landing pad, if there is one.
            let pad = ["\tendbr64", "\tbti", "\thint", "\tlpad"].iter().any(|pad| first.starts_with(pad));
            let at = begins + text[begins..].find(first).unwrap() + if pad { first.len() + 1 } else { 0 };
            let (before, behind) = text.split_at(at);
            for (told, code) in [("holds", "nop".to_owned()), ("FAIL P25 of", format!("{store}; {load}"))] {
                let changed = format!("{before}\t{code}\n{behind}\n\t.bss\n\t.balign 8\nstash:\t.zero 8\n");
                std::fs::write(b.path("t.S"), changed).unwrap();
                b.tool(&format!("{prefix}as"), &["t.S", "-o", "t.o"]);
                let out = b.run(&["check", "--object", "t.o", "--contract", "t.toml"]);
                let report = String::from_utf8([out.stdout, out.stderr].concat()).unwrap();
                assert!(report.contains(told), "{arch} {kind} {code}: {report}");
            }
        }
    }
}
