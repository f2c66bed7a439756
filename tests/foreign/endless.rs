//! Runs that do not end: a short verdict, in little memory.

use crate::case::{Case, TRAMPOLINE, flat};
use crate::common::{Bench, CONTRACT};

/// `recurse` goes as deep as its first argument says: one that is the same each time never ends.
#[test]
fn a_lost_first_argument_gives_a_short_verdict_in_little_memory() {
    let lost = TRAMPOLINE.replace("pop     %rdi", "pop     %rax\n    mov     $3, %edi");
    assert_ne!(lost, TRAMPOLINE);
    // It stores to its own stack without end.
    let stores = TRAMPOLINE.replace("leave", "1: push %rax\n    dec     %r11\n    jnz     1b\n    leave");
    assert_ne!(stores, TRAMPOLINE);
    for (text, found) in [
        (lost, ["FAIL P1 of", "does not end: the function calls itself again and again"]),
        (stores, ["FAIL P9 of", "access to unmapped memory"]),
    ] {
        let case = Case::new(&text, CONTRACT);
        // The address space has what the engine reserves too: with Unicorn's default, 1 GiB, the engine would end the process.
        let command = format!(
            "ulimit -v 1000000; RAYON_NUM_THREADS=1 {} check --object t.o --contract t.toml",
            env!("CARGO_BIN_EXE_tramptool")
        );
        let (code, out, err) = case.run("sh", &["-c", &command]);
        assert_eq!((code, err.as_str()), (Some(1), ""), "{out}");
        for part in found {
            assert!(flat(&out).contains(part), "{part}: {out}");
        }
        assert!(!out.contains("stopped before the exit"), "a run ends once: {out}");
    }
}

/// Only the outermost call gets arguments stored: the inner ones end.
#[test]
fn programs_that_store_arguments_let_a_recursion_end() {
    for &backend in tool::BACKENDS {
        let (b, arch) = (Bench::new(), backend.facts().name);
        let sig = "void f(long a, long b)";
        b.ok(&["gen", "programs", "--sig", sig, "--fentry", "before", "--arch", arch, "--emit", "obj,contract"]);
        let (object, contract) = (format!("{arch}.o"), format!("{arch}.toml"));
        for seed in ["1", "2", "3", "4", "5", "6", "7", "8"] {
            b.ok(&["check", "--object", &object, "--contract", &contract, "--seed", seed]);
        }
    }
}
