//! `--handler`: what gcc compiles is read, and a proof is one that a link cannot undo.

use std::fs;

use crate::common::Bench;
use crate::common::expected::{RefusedHandler, expected, tools, words};

/// What the handler `h` does, and why nothing is proven of it, if so.
const HANDLERS: &[(&str, &str, Option<&str>)] = &[
    ("general", "void h(long a, double x) { static volatile long n; n += a; }", None),
    ("outside", "extern long n; extern char s[]; void h(long a, double x) { n += a; s[a] = 1; }", None),
    // Before h, so that it lies at the first bytes of .text.
    (
        "first",
        "static void __attribute__((noinline)) f(void) { asm(\"nop\"); } void h(long a, double x) { f(); f(); }",
        None,
    ),
    (
        "hidden",
        "__attribute__((noinline, visibility(\"hidden\"))) void g(void) { asm(\"nop\"); } \
      void h(long a, double x) { g(); g(); }",
        None,
    ),
    ("loop", "void h(long a, double x) { volatile long n; for (n = 0; n < a; n++) if (n > 9) n += a; }", None),
    ("vector", "void h(long a, double x) { static volatile double n; n += x; }", Some("at h+0x")),
    ("beside", "volatile double n; void g(void) { n += 1; } void h(long a, double x) { }", Some("at g+0x")),
    (
        "calls",
        "void other(void); void h(long a, double x) { other(); other(); }",
        Some("`other`, which is not in this object"),
    ),
    ("tail", "void other(void); void h(long a, double x) { other(); }", Some("`other`, which is not in this object")),
    ("pointer", "void (*other)(void); void h(long a, double x) { other(); other(); }", Some("a register or memory")),
    ("asm", "void h(long a, double x) { asm(JUMP); }", Some("a register or memory")),
    (
        "weak",
        "__attribute__((weak)) void g(void) { } void h(long a, double x) { g(); g(); }",
        Some("`g`, which is weak"),
    ),
    ("weakly", "__attribute__((weak)) void h(long a, double x) { }", Some("weak: the link")),
    (
        "preempted",
        "__attribute__((noinline)) void g(void) { asm(\"nop\"); } void h(long a, double x) { g(); g(); }",
        Some("`g`, which another definition may replace"),
    ),
];

#[test]
fn what_gcc_compiles_is_proven_or_not() {
    for &backend in tool::BACKENDS {
        let (name_of, gcc, arch) = (backend.facts().name, format!("{}gcc", tools(backend)), expected(backend).handler);
        let b = Bench::new();
        for (name, source, why) in HANDLERS {
            fs::write(b.path("h.c"), source.replace("JUMP", &format!("\"{}\"", arch.jump))).unwrap();
            // Debian's gcc has -fPIE on by itself.
            for pic in ["-fno-pic", "-fPIE", "-fPIC"] {
                b.tool(&gcc, &["-O1", pic, "-ffreestanding", &arch.abi, "-c", "h.c", "-o", "h.o"]);
                let sig = ["--sig", "void traced(long a, double x)", "--call", "h", "--handler", "h.o"];
                let run = b.run(
                    &[&["show", "direct", "--profile", "linux-6.12", "--arch", name_of, "--set", &arch.set][..], &sig]
                        .concat(),
                );
                let (text, told) = (String::from_utf8(run.stdout).unwrap(), String::from_utf8(run.stderr).unwrap());
                let what = format!("{} {name} {pic}: {told}{text}", name_of);
                assert!(run.status.success(), "{what}");
                assert_eq!(text.contains(&arch.saves), why.is_some(), "{what}");
                // Where it may be replaced, gcc may have its address from the GOT.
                let from_got = |told: &str| pic == "-fPIC" && told.contains("a register or memory");
                let tells = |told: &str| why.is_none_or(|why| told.contains(why) || from_got(told));
                assert_eq!(told.contains("h.o: "), why.is_some(), "{what}");
                assert!(tells(&told), "{what}");
                // Forms that keep nothing for their handlers refuse, and give the same reason.
                let around = ["--call", "h", "--exit", "h", "--function", "f", "--name", "t"];
                let sig = ["--sig", "void f(long a, double x)", "--handler", "h.o", "--set", &arch.set];
                let all =
                    [&["show", "around", "--profile", "linux-6.12", "--arch", name_of][..], &around, &sig].concat();
                let run = b.run(&all);
                let told = String::from_utf8(run.stderr).unwrap();
                assert_eq!(run.status.code(), Some(if why.is_some() { 2 } else { 0 }), "{what}: {told}");
                assert!(tells(&told) && told.contains("`programs`") == why.is_some(), "{what}: {told}");
            }
        }
    }
}

#[test]
fn objects_that_cannot_be_handlers_are_refused() {
    for &backend in tool::BACKENDS {
        let (name_of, gcc, arch) = (backend.facts().name, format!("{}gcc", tools(backend)), expected(backend).handler);
        let b = Bench::new();
        for (name, source, _) in HANDLERS {
            fs::write(b.path("h.c"), source.replace("JUMP", &format!("\"{}\"", arch.jump))).unwrap();
            let object = format!("{name}.o");
            b.tool(&gcc, &["-O1", "-fno-pic", "-ffreestanding", &arch.abi, "-c", "h.c", "-o", &object]);
        }
        let refused = |more: &[&str], parts: &[&str]| {
            let show = ["show", "direct", "--profile", "linux-6.12", "--arch", name_of];
            let all = [&show[..], &["--sig", "void h(long a, double x)"], more].concat();
            b.refuses(&all, parts);
        };
        refused(&["--call", "k", "--handler", "general.o", "--set", &arch.set], &["unknown handler", "'k'", "h"]);
        fs::write(b.path("text.o"), "no object").unwrap();
        refused(&["--call", "h", "--handler", "text.o", "--set", &arch.set], &["text.o", "valid: an object for"]);
        if let Some(RefusedHandler { object, says }) = &arch.refused {
            refused(&["--call", "h", "--handler", object], &words(says));
        }
    }
}
