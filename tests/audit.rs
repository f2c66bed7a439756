//! `tramptool audit`: functions that keep C's convention and functions that each break it in one way, by real assemblers and
//! compilers.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use codegen::arch::facts::Promise;
use common::{Bench, arches};
use serde_json::Value;

#[path = "common/upload.rs"]
mod upload;

mod common;

/// Functions, and what is to be claimed of each.
const CLAIMS: [(&str, &[&str]); 31] = [
    ("good", &[]),
    ("private", &[]),
    ("got", &[]),
    ("led_astray", &[]),
    ("unlike", &[]),
    ("lost", &["C1"]),
    ("lost_vector", &["C1"]),
    ("misaligned", &["C2"]),
    ("depends", &["C3"]),
    ("row_at_call", &["C4"]),
    ("row_through", &["C4"]),
    ("row", &["C5"]),
    ("no_row", &["C6"]),
    ("below", &["C7"]),
    ("across", &["C7"]),
    ("freed_early", &["C7"]),
    ("elsewhere", &["C3"]),
    ("timed", &["C3"]),
    ("above", &["C10"]),
    ("above_wide", &["C10"]),
    ("control", &["C9"]),
    ("row_vector", &["C4"]),
    ("shown_late", &["C5"]),
    ("passes", &["C3"]),
    ("reloads", &["C3"]),
    ("restores", &[]),
    ("needed_late", &["C3"]),
    ("dropped", &["C12"]),
    ("kept_1", &[]),
    ("kept_2", &[]),
    ("kept_less", &["C13"]),
];

/// Functions that need a register which their callee may have changed, and that register; one instruction names it behind the call.
const NEEDS: [(&str, [(&str, &str); 3]); 4] = [
    ("depends", [("x86_64", "r10"), ("arm64", "x10"), ("riscv64", "t3")]),
    ("passes", [("x86_64", "r10"), ("arm64", "x10"), ("riscv64", "t1")]),
    ("needed_late", [("x86_64", "r10"), ("arm64", "x10"), ("riscv64", "t1")]),
    ("reloads", [("x86_64", "rcx"), ("arm64", "x9"), ("riscv64", "t1")]),
];

/// What one architecture has and others cannot have: a red zone, instructions that differ each time, vector registers that C keeps.
const OF_ONE: [(&str, &[&str]); 3] = [
    ("x86_64", &["across", "unlike", "timed"]),
    ("arm64", &["lost_vector", "row_vector"]),
    ("riscv64", &["lost_vector", "row_vector"]),
];

/// An archive of assembly, and of C that calls what the assembly has.
fn archive(bench: &Bench, arch: &str, tools: &str, flags: &[&str]) -> Vec<String> {
    let source = fs::read_to_string(format!("{}/tests/audit/{arch}.S", env!("CARGO_MANIFEST_DIR"))).unwrap();
    fs::write(bench.path("hand.S"), &source).unwrap();
    let of = |arch: &str| OF_ONE.iter().find(|(of, _)| *of == arch).unwrap().1;
    let elsewhere = |name: &str| OF_ONE.iter().any(|(_, names)| names.contains(&name)) && !of(arch).contains(&name);
    let names: Vec<&str> = CLAIMS.iter().map(|(name, _)| *name).filter(|name| !elsewhere(name)).collect();
    let called = names.iter().filter(|name| **name != "private");
    let (mut externs, mut calls) = (String::new(), String::new());
    for name in called {
        externs += &format!("long {name}(long *);\n");
        calls += &format!("    n += {name}(&n);\n");
    }
    let c = format!(
        "#include <stdio.h>\n{externs}long use(long n) {{\n{calls}    printf(\"%ld\", n);\n    return n;\n}}\n"
    );
    fs::write(bench.path("use.c"), c).unwrap();
    let gcc = format!("{tools}gcc");
    bench.tool(&gcc, &[&["-c", "-O1", "-fasynchronous-unwind-tables", "use.c", "-o", "use.o"], flags].concat());
    bench.tool(&gcc, &["-c", "hand.S", "-o", "hand.o"]);
    bench.tool(&format!("{tools}ar"), &["rcs", "libhand.a", "use.o", "hand.o"]);
    names.into_iter().map(str::to_owned).collect()
}

/// A report, which fits its schema.
fn report(bench: &Bench, code: i32, more: &[&str]) -> Value {
    let text = bench.ends(code, &[&["audit", "--format", "json"], more].concat());
    let report = serde_json::from_str(&text).unwrap();
    let schema = serde_json::from_str(&bench.ok(&["report", "schema", "audit"])).unwrap();
    jsonschema::validate(&schema, &report).unwrap();
    report
}

/// The number of objects by hand.
fn signs(unit: &Value) -> u64 {
    unit["by_hand"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
}

/// The claims of each function.
fn claims(report: &Value) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for finding in report["findings"].as_array().unwrap() {
        let function = finding["function"].as_str().unwrap_or_default().to_owned();
        let kinds = all.entry(function).or_default();
        kinds.push(finding["kind"].as_str().unwrap().to_owned());
        kinds.sort();
        kinds.dedup();
    }
    all
}

#[test]
fn each_breach_of_the_convention_is_claimed_and_nothing_else() {
    for (arch, tools) in arches() {
        let bench = Bench::new();
        let names = archive(&bench, arch, tools, &[]);
        let report = report(&bench, 1, &["libhand.a"]);
        let found = claims(&report);
        for (name, wanted) in CLAIMS.iter().filter(|(name, _)| names.iter().any(|known| known == name)) {
            let claimed = found.get(*name).cloned().unwrap_or_default();
            assert_eq!(claimed, *wanted, "{arch}: {name}: {report:#}");
        }
        for finding in report["findings"].as_array().unwrap() {
            let said = |key: &str| finding[key].as_str().is_some_and(|text| !text.is_empty());
            let shown = said("instruction") && said("want") && said("got") && finding["seed"].is_u64();
            let way = finding["path"].as_array().is_some_and(|path| !path.is_empty());
            assert!(shown && way && finding["context"].is_array(), "{arch}: {finding:#}");
        }
        for (name, needs) in NEEDS {
            let found = report["findings"].as_array().unwrap().iter().find(|f| f["function"] == name).unwrap();
            let says = found["instruction"].as_str().unwrap();
            let register = needs.iter().find(|(of, _)| *of == arch).unwrap().1;
            assert!(found["place"] == register && says.contains(register), "{arch}: {found:#}");
            let context: Vec<&str> =
                found["context"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
            let arrow = context.iter().position(|line| line.starts_with("=>")).unwrap();
            let call = ["call", "bl ", "jalr"].iter().any(|call| context[arrow - 1].contains(call));
            assert!(call || name == "depends", "{arch}: {found:#}");
        }
        let unit = &report["units"][0];
        assert_eq!((&signs(unit), &unit["private"], &unit["objects"]), (&1, &1.into(), &2.into()), "{arch}");
        let judged = |f: &&Value| f["not_judged"].is_null();
        let functions = unit["functions"].as_array().unwrap();
        assert_eq!(functions.iter().filter(judged).count(), names.len() - 1, "{arch}: {unit:#}");
    }
}

/// The number of a claim's run is enough to see it again.
#[test]
fn each_error_comes_again_by_its_number() {
    for (arch, tools) in arches() {
        let bench = Bench::new();
        archive(&bench, arch, tools, &[]);
        let all = report(&bench, 1, &["libhand.a"]);
        let errors =
            all["findings"].as_array().unwrap().iter().filter(|f| f["tier"] == "error" && !f["seed"].is_null());
        for error in errors.clone() {
            let (symbol, seed) = (error["function"].as_str().unwrap(), error["seed"].to_string());
            let again = report(&bench, 1, &["libhand.a", "--function", symbol, "--seed", &seed]);
            let told = again["findings"].as_array().unwrap().iter().any(|f| f["finding"] == error["finding"]);
            assert!(told, "{arch}: {error:#}");
        }
        assert!(errors.count() > 5, "{arch}");
    }
}

/// What assembly alone calls has no convention, unless somebody asks.
#[test]
fn a_private_function_is_judged_when_it_is_asked_for() {
    for (arch, tools) in arches() {
        let bench = Bench::new();
        archive(&bench, arch, tools, &[]);
        let report = report(&bench, 1, &["libhand.a", "--function", "priv*"]);
        assert_eq!(claims(&report), BTreeMap::from([("private".to_owned(), vec!["C1".to_owned()])]), "{arch}");
    }
}

/// Functions as compilers make them: loops, calls, callbacks, floating-point numbers, arrays on the stack, many variables.
const COMPILED: &str = r#"
#include <stdlib.h>
#include <string.h>
long sum(const long *p, long n) { long s = 0; for (long i = 0; i < n; i++) s += p[i]; return s; }
double scale(double *p, int n, double by) { double s = 0; for (int i = 0; i < n; i++) { p[i] *= by; s += p[i]; } return s; }
char *twice(const char *s) { size_t n = strlen(s) & 63; char *t = malloc(2 * n + 1); if (!t) return t; memcpy(t, s, n); memcpy(t + n, s, n); t[2 * n] = 0; return t; }
long each(long (*f)(long, void *), long n, void *p) { long s = 0; for (long i = 0; i < (n & 7); i++) s = s * 3 + f(i, p); return s; }
int digits(unsigned long n, char *out) { char all[32]; int k = 0; do all[k++] = '0' + n % 10; while (n /= 10); for (int i = 0; i < k; i++) out[i] = all[k - 1 - i]; return k; }
struct big { long a[6]; }; struct big copy(struct big *b, long n) { struct big r = *b; r.a[n % 6 < 0 ? 0 : n % 6] += n; return r; }
long deep(long n) { return n <= 0 ? 0 : (n & 15) + deep((n & 15) - 1); }
long other(long);
long tree(long n, long *p) { long s = other(n); n = n < 0 || n > 4 ? 4 : n; if (n > 0) { s += tree(n - 1, p) * tree(n / 3, p); s += other(s + n); } return s; }
struct padded { int a; long b; };
static __attribute__((noinline)) void put(struct padded *out, int a, long b) { struct padded one; one.a = a; one.b = b; *out = one; }
void padded(struct padded *out, long n) { put(out, other(n), n); }
void fatal(long) __attribute__((noreturn));
long checked(long n, long *p) { if (n >= 0 && n < 4) return other(n); *p = other(n + 1); fatal(n); }
void take(long *);
long late(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j) { i = a; take(&i); return j + i; }
"#;

/// Compilers keep the convention: of what they make nothing is claimed.
#[test]
fn of_compiled_code_nothing_is_claimed() {
    for (arch, tools) in arches() {
        let bench = Bench::new();
        fs::write(bench.path("c.c"), COMPILED).unwrap();
        for level in ["-O0", "-O1", "-O2", "-Os"] {
            let gcc = format!("{tools}gcc");
            bench.tool(&gcc, &["-c", level, "-fasynchronous-unwind-tables", "c.c", "-o", "c.o"]);
            let report = report(&bench, 0, &["c.o", "--all"]);
            assert_eq!(report["findings"].as_array().unwrap().len(), 0, "{arch} {level}: {report:#}");
            let functions = report["units"][0]["functions"].as_array().unwrap();
            let returned = functions.iter().filter(|f| f["returned"].as_u64().unwrap() > 2).count();
            assert_eq!((returned, functions.len()), (11, 11), "{arch} {level}: {report:#}");
        }
    }
}

/// Static data, data of threads, and a table.
const STATE: &str = "
static long count;
_Thread_local long of_thread;
static const char *const names[] = { \"one\", \"two\" };
long counts(long n) { of_thread += n; return ++count + of_thread; }
const char *named(long n) { return names[n & 1]; }
long other(long);
long once(long n) { static char done; if (done) return 0; done = 1; return other(n); }
static char zeros[1 << 24];
long seldom(long n) { volatile char *p = zeros + (1 << 20) + ((n & 255) << 12); while (*p) continue; ++*p; return other(n); }
long strays(long n, long m) { volatile long a[2]; a[n & 2] = 1; m += other(n); return m + a[0]; }
long picks(long n) { long (*volatile f[2])(long) = { other, other }; return f[n](n) + 1; }
#ifdef __aarch64__
typedef double pair __attribute__((vector_size(16)));
pair _ZGVnN2v_log2(pair) __attribute__((aarch64_vector_pcs));
void vectors(pair x, double *p) { pair y = x + x, z = _ZGVnN2v_log2(x); *p = y[1] + z[1]; }
#else
void vectors(double x, double *p) { *p = x; }
#endif
";

/// A function in which one of two ways ends in a call that does not return, so that other rows hold behind it.
const ENDS_INSIDE: [(&str, &str); 3] = [
    (
        "x86_64",
        "sub $24, %rsp\n .cfi_adjust_cfa_offset 24\n test %rdi, %rdi\n je 1f\n mov %rbx, 16(%rsp)\n .cfi_offset %rbx, -16
         mov %rdi, %rbx\n call quits@PLT\n1: .cfi_restore %rbx\n lea 1(%rsi), %rax\n add $24, %rsp
         .cfi_adjust_cfa_offset -24\n ret",
    ),
    (
        "arm64",
        "stp x29, x30, [sp, #-32]!\n .cfi_def_cfa_offset 32\n .cfi_offset x29, -32\n .cfi_offset x30, -24\n cbz x0, 1f
         str x19, [sp, #16]\n .cfi_offset x19, -16\n mov x19, x0\n bl quits\n1: .cfi_restore x19\n add x0, x1, #1
         ldp x29, x30, [sp], #32\n .cfi_restore x29\n .cfi_restore x30\n .cfi_def_cfa_offset 0\n ret",
    ),
    (
        "riscv64",
        "addi sp, sp, -16\n .cfi_def_cfa_offset 16\n sd ra, 8(sp)\n .cfi_offset ra, -8\n beqz a0, 1f\n sd s1, 0(sp)
         .cfi_offset s1, -16\n mv s1, a0\n call quits\n1: .cfi_restore s1\n addi a0, a1, 1\n ld ra, 8(sp)
         addi sp, sp, 16\n .cfi_restore ra\n .cfi_def_cfa_offset 0\n ret",
    ),
];

/// Of a shared library all functions are judged that it exports, whoever wrote them. Its data is no function, and changes.
#[test]
fn a_shared_library_is_judged_by_what_it_exports() {
    for (arch, tools) in arches() {
        let bench = Bench::new();
        let names = archive(&bench, arch, tools, &["-fPIC"]);
        fs::write(bench.path("state.c"), STATE).unwrap();
        fs::write(bench.path("version"), "HAND_1 { global: *; local: memory; };\n").unwrap();
        fs::create_dir(bench.path("lib")).unwrap();
        let gcc = format!("{tools}gcc");
        let (_, code) = ENDS_INSIDE.iter().find(|(name, _)| *name == arch).unwrap();
        let head = ".globl ends_inside\n .type ends_inside, %function\nends_inside: .cfi_startproc\n";
        let inside = format!(
            "{head}{code}\n .cfi_endproc\n .size ends_inside, . - ends_inside\n.section .note.GNU-stack,\"\",%progbits\n"
        );
        fs::write(bench.path("inside.s"), inside).unwrap();
        let objects = ["hand.o", "use.o", "state.c", "inside.s", "-o", "lib/libhand.so.1"];
        let how = ["-shared", "-nostdlib", "-fPIC", "-O1", "-ftls-model=initial-exec", "-Wl,--version-script=version"];
        let tables = ["-fasynchronous-unwind-tables"];
        bench.tool(&gcc, &[&how[..], &tables, &objects].concat());
        // Nobody asked for an executable that is called like a library.
        fs::write(bench.path("start.c"), "void _start(void) { for (;;); }\n").unwrap();
        bench.tool(&gcc, &["-static", "-nostdlib", "-no-pie", "start.c", "-o", "lib/start.so"]);
        let report = report(&bench, 1, &["lib"]);
        assert_eq!(report["foreign"], Value::from(["lib/start.so"]), "{arch}");
        let found = claims(&report);
        for (name, wanted) in CLAIMS.iter().filter(|(name, _)| names.iter().any(|known| known == name)) {
            let wanted = if *name == "private" { &["C1"] } else { *wanted };
            let claimed = found.get(*name).cloned().unwrap_or_default();
            assert_eq!(claimed, wanted, "{arch}: {name}: {report:#}");
        }
        let unit = &report["units"][0];
        assert_eq!((&unit["libraries"], &unit["objects"], signs(unit)), (&1.into(), &1.into(), 0), "{arch}");
        let mut judged: Vec<_> = unit["functions"].as_array().unwrap().iter().collect();
        assert!(judged.iter().all(|f| f["boundary"] == "exported"), "{arch}: {unit:#}");
        // It calls those that lose registers.
        judged.retain(|f| f["symbol"] != "use");
        assert!(judged.iter().all(|f| f["not_judged"].is_null()), "{arch}: {judged:#?}");
        let clean = ["counts", "named", "once", "seldom", "strays", "picks", "vectors", "ends_inside"];
        assert_eq!(judged.len(), names.len() + clean.len(), "{arch}: {judged:#?}");
        judged.retain(|f| clean.contains(&f["symbol"].as_str().unwrap()));
        assert!(judged.iter().all(|f| f["claims"].as_array().unwrap().is_empty()), "{arch}: {judged:#?}");
    }
}

/// Stripping leaves an unwind entry of a function that a library does not export, and no name.
#[test]
fn a_function_without_a_name_is_found_by_its_unwind_entry() {
    for (arch, tools) in arches() {
        let bench = Bench::new();
        let own = "static __attribute__((noinline, noclone)) long own(long n) { return n * n + 3; }\n";
        fs::write(bench.path("own.c"), format!("{own}long all(long n) {{ return own(n) + own(n + 1); }}\n")).unwrap();
        let how =
            ["-shared", "-nostdlib", "-fPIC", "-O1", "-fasynchronous-unwind-tables", "-s", "own.c", "-o", "libown.so"];
        bench.tool(&format!("{tools}gcc"), &how);
        let found = |more: &[&str]| {
            let report = report(&bench, 0, more);
            let functions = report["units"][0]["functions"].as_array().unwrap().clone();
            functions
                .iter()
                .map(|f| (f["symbol"].as_str().unwrap().to_owned(), f["boundary"].clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(found(&["libown.so"]), [("all".to_owned(), "exported".into())], "{arch}");
        let all = found(&["libown.so", "--all"]);
        let (name, boundary) = all.iter().find(|(name, _)| name != "all").unwrap();
        assert_eq!((all.len(), boundary), (2, &"unnamed".into()), "{arch}: {all:?}");
        assert_eq!(found(&["libown.so", "--function", name]), [(name.clone(), "unnamed".into())], "{arch}");
    }
}

/// A compiler that gives no rows where functions end does so in all of them: of a library, none is to be blamed for it.
#[test]
fn rows_that_a_compiler_leaves_out_are_no_claims() {
    for (arch, tools) in arches() {
        let (push, pop) = match arch {
            "x86_64" => ("push %rax", "pop %rcx"),
            "arm64" => ("sub sp, sp, #16", "add sp, sp, #16"),
            _ => ("addi sp, sp, -16", "addi sp, sp, 16"),
        };
        let by = if arch == "x86_64" { 8 } else { 16 };
        let bench = Bench::new();
        for count in [4, 8] {
            let functions = (0..count).map(|n| {
                let head = format!(".globl f{n}\n .type f{n}, %function\nf{n}: .cfi_startproc\n");
                format!(
                    "{head}{push}\n .cfi_adjust_cfa_offset {by}\n{pop}\n ret\n .cfi_endproc\n .size f{n}, . - f{n}\n"
                )
            });
            fs::write(bench.path("own.s"), functions.collect::<String>()).unwrap();
            bench.tool(&format!("{tools}gcc"), &["-shared", "-nostdlib", "own.s", "-o", "libown.so"]);
            let report = report(&bench, 0, &["libown.so"]);
            let claimed = claims(&report).len();
            let wrong = report["units"][0]["wrong_ends"].as_u64().unwrap();
            assert_eq!((claimed, wrong), if count < 8 { (4, 0) } else { (0, 8) }, "{arch}: {report:#}");
        }
    }
}

/// Functions that a library exports: one that is given something where C gives nothing, one that restores two registers in the wrong
/// order, one that changes a register in its place, one that frees more than its frame, and one that loses a register whose slot it has given up, and others have used.
const EXPORTED: [(&str, &str); 3] = [
    (
        "x86_64",
        "given: mov 8(%r11), %rbx\n ret\nswaps: push %rbx\n push %r12\n pop %rbx\n pop %r12\n ret\ncounts: inc %rbx\n ret
frees_more: ret $8\ngives_up: push %r12\n pop %r12\n call 1f\n xor %r12d, %r12d\n ret\n1: push %rax\n pop %rcx\n ret\n",
    ),
    (
        "arm64",
        "given: ldr x19, [x10, #8]\n ret\nswaps: mov x9, x19\n mov x19, x20\n mov x20, x9\n ret\ncounts: add x19, x19, #1\n ret
frees_more: add sp, sp, #16\n ret\ngives_up: str x19, [sp, #-16]!\n ldr x19, [sp], #16\n mov x9, x30\n bl 1f\n mov x19, xzr\n ret x9
1: str x0, [sp, #-16]!\n ldr x1, [sp], #16\n ret\n",
    ),
    (
        "riscv64",
        "given: ld s1, 8(t3)\n ret\nswaps: mv t1, s1\n mv s1, s2\n mv s2, t1\n ret\ncounts: addi s1, s1, 1\n ret
frees_more: addi sp, sp, 16\n ret\ngives_up: addi sp, sp, -16\n sd s1, 0(sp)\n ld s1, 0(sp)\n addi sp, sp, 16\n mv t3, ra\n jal 1f\n li s1, 0\n jr t3
1: addi sp, sp, -16\n sd a0, 0(sp)\n ld a1, 0(sp)\n addi sp, sp, 16\n ret\n",
    ),
];

/// A library exports what only its own assembly can call, too.
#[test]
fn what_takes_arguments_where_c_gives_none_is_not_judged() {
    for (arch, tools) in arches() {
        let bench = Bench::new();
        let (_, source) = EXPORTED.iter().find(|(name, _)| *name == arch).unwrap();
        let names = ["given", "swaps", "counts", "frees_more", "gives_up"];
        let types: String = names.map(|name| format!(".globl {name}\n.type {name}, %function\n")).concat();
        fs::write(bench.path("own.s"), format!("{types}{source}")).unwrap();
        bench.tool(&format!("{tools}gcc"), &["-shared", "-nostdlib", "own.s", "-o", "libown.so"]);
        let report = report(&bench, 1, &["libown.so"]);
        let wanted = ["counts", "frees_more", "gives_up", "swaps"].map(|name| (name.to_owned(), vec!["C1".to_owned()]));
        assert_eq!(claims(&report), wanted.into(), "{arch}: {report:#}");
        let functions = report["units"][0]["functions"].as_array().unwrap();
        let given = functions.iter().find(|function| function["symbol"] == "given").unwrap();
        assert_eq!(given["not_judged"], "it takes values in registers in which C gives none", "{arch}");
    }
}

/// The place of a claim is the instruction that does it, and its command repeats it.
#[test]
fn a_claim_names_the_instruction_and_comes_again() {
    for (arch, tools) in arches() {
        let bench = Bench::new();
        archive(&bench, arch, tools, &[]);
        let first = report(&bench, 1, &["libhand.a", "--function", "lost"]);
        let finding = &first["findings"][0];
        assert_eq!(finding["offset"], 0, "{arch}: {finding:#}");
        let text = bench.ends(1, &["audit", "libhand.a", "--function", "lost"]);
        let (_, again) = text.split_once("again: tramptool ").unwrap();
        let words: Vec<&str> = again.lines().next().unwrap().split(' ').collect();
        let again = bench.ends(1, &[&words[..], &["--format", "json"]].concat());
        let again: Value = serde_json::from_str(&again).unwrap();
        for member in ["finding", "want", "got", "offset", "seed"] {
            assert_eq!(again["findings"][0][member], finding[member], "{arch}");
        }
        assert_eq!(first, report(&bench, 1, &["libhand.a", "--function", "lost"]), "{arch}");
    }
}

/// What is accepted with a reason does not count; what is gone does.
#[test]
fn a_baseline_accepts_what_it_names_and_fails_when_that_is_gone() {
    let (arch, tools) = arches()[0];
    let bench = Bench::new();
    archive(&bench, arch, tools, &[]);
    let all = ["libhand.a", "--function", "lost", "--function", "good"];
    let text = bench.ends(1, &[&["audit", "--format", "baseline"], &all[..]].concat());
    fs::write(bench.path("b.toml"), &text).unwrap();
    bench.refuses(&[&["audit", "--baseline", "b.toml"], &all[..]].concat(), &["has no reason"]);
    fs::write(bench.path("b.toml"), text.replace("reason = \"\"", "reason = \"known\"")).unwrap();
    let accepted = report(&bench, 0, &[&all[..], &["--baseline", "b.toml"]].concat());
    assert_eq!(accepted["findings"][0]["accepted"], true);
    let gone = report(&bench, 1, &["libhand.a", "--function", "good", "--baseline", "b.toml"]);
    assert_eq!(gone["gone"].as_array().unwrap().len(), 1, "{gone:#}");
}

/// Code review shows a finding at the line of the source, where the object has line tables, and takes the file.
#[test]
fn code_review_shows_findings_in_the_source() {
    for (arch, tools) in arches() {
        let bench = Bench::new();
        archive(&bench, arch, tools, &[]);
        bench.tool(&format!("{tools}gcc"), &["-g", "-c", "hand.S", "-o", "hand.o"]);
        let sarif = |more: &[&str]| -> Value {
            let all = ["audit", "hand.o", "--function", "lost", "--format", "sarif"];
            let out = bench.run(&[&all, more].concat());
            serde_json::from_slice(&out.stdout).unwrap()
        };
        let shown = sarif(&[]);
        let schema = upload::schema();
        assert_eq!(schema.iter_errors(&shown).map(|e| e.to_string()).collect::<Vec<_>>(), [""; 0]);
        assert_eq!(upload::broken_rules(&shown), [""; 0]);
        upload::each_rule_can_be_broken(&shown);
        let result = &shown["runs"][0]["results"][0];
        let place = &result["locations"][0]["physicalLocation"];
        let source = fs::read_to_string(bench.path("hand.S")).unwrap();
        let behind = source.lines().position(|line| line == "begin lost").unwrap() + 2;
        let (uri, line) = (&place["artifactLocation"]["uri"], &place["region"]["startLine"]);
        // The tables of riscv64 are complete in linked files only.
        let wanted = if arch == "riscv64" { ("hand.o", 1) } else { ("hand.S", behind) };
        assert_eq!((uri, line), (&wanted.0.into(), &wanted.1.into()), "{arch}: {result:#}");

        let text = bench.ends(1, &["audit", "hand.o", "--function", "lost", "--format", "baseline"]);
        fs::write(bench.path("b.toml"), text.replace("reason = \"\"", "reason = \"known\"")).unwrap();
        let accepted = sarif(&["--baseline", "b.toml"]);
        assert_eq!(accepted["runs"][0]["results"][0]["suppressions"][0]["justification"], "known", "{arch}");
    }
}

/// A finding can be sent: what it is in, what happens, how it is seen again, what would mend it.
#[test]
fn a_finding_can_be_sent() {
    for (arch, tools) in arches() {
        let bench = Bench::new();
        archive(&bench, arch, tools, &[]);
        fs::create_dir(bench.path("usr")).unwrap();
        fs::rename(bench.path("libhand.a"), bench.path("usr/libhand.a")).unwrap();
        fs::write(bench.path("control"), "Package: libhand-dev\nVersion: 1.2-3\nArchitecture: any\n").unwrap();
        fs::write(bench.path("debian-binary"), "2.0\n").unwrap();
        bench.tool("tar", &["-cJf", "control.tar.xz", "./control"]);
        bench.tool("tar", &["-cJf", "data.tar.xz", "./usr/libhand.a"]);
        bench.tool("ar", &["rc", "hand.deb", "debian-binary", "control.tar.xz", "data.tar.xz"]);
        let sum = bench.tool("sha256sum", &["hand.deb"]);
        let found = report(&bench, 1, &["hand.deb", "--function", "lost"]);
        let (name, again) = (found["findings"][0]["finding"].as_str().unwrap(), "--function lost --seed 0");
        let letter = bench.ends(1, &["audit", "hand.deb", "--function", "lost", "--report", name]);
        let sum = sum.split(' ').next().unwrap();
        for part in ["Package: libhand-dev\n", "Version: 1.2-3\n", sum, "Function: lost\n", "=>", again, "would mend"] {
            assert!(letter.contains(part), "{arch}: {part}: {letter}");
        }
        assert!(letter.lines().all(|line| line.len() <= 80), "{arch}: {letter}");
        bench.refuses(&["audit", "hand.deb", "--function", "lost", "--report", "C1"], &["no such finding", name]);
    }
}

/// The block of a page in this language.
fn block(page: &str, language: &str) -> String {
    let page = fs::read_to_string(format!("{}/{page}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let (_, block) = page.split_once(&format!("```{language}\n")).unwrap();
    block.split_once("```").unwrap().0.to_owned()
}

/// CMake and Meson run the audit as a test, in the lines that the book shows: it fails on a new finding, and on nothing else.
#[test]
fn build_systems_run_it_as_a_test() {
    let (arch, _) = arches()[0];
    let bench = Bench::new();
    let hand = fs::read_to_string(format!("{}/tests/audit/{arch}.S", env!("CARGO_MANIFEST_DIR"))).unwrap();
    fs::write(bench.path("hand.S"), hand).unwrap();
    fs::write(bench.path("mine.h"), "long lost(long *);\n").unwrap();
    fs::write(bench.path("use.c"), "long good(long *);\nlong use(long n) { return good(&n) + n; }\n").unwrap();
    let cmake = block("docs/ci.md", "cmake");
    let cmake = format!(
        "cmake_minimum_required(VERSION 3.20)\nproject(mine C ASM)\nenable_testing()\nadd_library(mine STATIC hand.S use.c)\n{cmake}"
    );
    fs::write(bench.path("CMakeLists.txt"), cmake).unwrap();
    let meson = format!(
        "project('mine', 'c')\nlibmine = static_library('mine', 'hand.S', 'use.c')\n{}",
        block("docs/ci.md", "meson")
    );
    fs::write(bench.path("meson.build"), meson).unwrap();
    let tool = std::path::Path::new(env!("CARGO_BIN_EXE_tramptool")).parent().unwrap();
    let path = format!("{}:{}", tool.display(), std::env::var("PATH").unwrap());
    let run = |command: &[&str]| {
        let mut run = Command::new(command[0]);
        run.args(&command[1..]).current_dir(bench.path("")).env("PATH", &path);
        let out = run.output().unwrap_or_else(|e| panic!("{command:?}: {e}: install cmake and meson"));
        (out.status.success(), String::from_utf8_lossy(&out.stdout).into_owned())
    };
    fs::write(bench.path("audit.toml"), "").unwrap();
    for command in [["cmake", "-B", "cmake"], ["cmake", "--build", "cmake"], ["meson", "setup", "meson"]] {
        let (done, said) = run(&command);
        assert!(done, "{command:?}: {said}");
    }
    let tests: [&[&str]; 2] = [&["ctest", "--test-dir", "cmake"], &["meson", "test", "-C", "meson"]];
    for test in tests {
        let (passes, said) = run(test);
        assert!(!passes && said.contains("audit"), "{test:?}: {said}");
    }
    for library in ["cmake/libmine.a", "meson/libmine.a"] {
        let text = bench.ends(1, &["audit", library, "mine.h", "--format", "baseline"]);
        fs::write(bench.path("audit.toml"), text.replace("reason = \"\"", "reason = \"known\"")).unwrap();
        let test = tests[usize::from(library.starts_with("meson"))];
        let (passes, said) = run(test);
        assert!(passes, "{test:?}: {said}");
    }
}

/// The line of a job fails on a new finding, and on nothing else: not on what is accepted, and not on another build of the same sources.
#[test]
fn a_job_fails_on_a_new_finding_alone() {
    let page = fs::read_to_string(format!("{}/docs/ci.md", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let lines = page.lines().filter(|line| line.ends_with("audit libmine.a mine.h --baseline audit.toml"));
    let jobs: Vec<&str> = lines.map(|line| line.split_once("tramptool").unwrap().1).collect();
    assert_eq!(jobs.len(), 2, "GitHub's and GitLab's");
    for (arch, tools) in arches() {
        let bench = Bench::new();
        archive(&bench, arch, tools, &[]);
        let source = fs::read_to_string(bench.path("hand.S")).unwrap();
        fs::write(bench.path("mine.h"), "long lost(long *);\nlong more(long *);\n").unwrap();
        let build = |source: &str, how: &[&str]| {
            fs::write(bench.path("mine.S"), source).unwrap();
            let _ = fs::remove_file(bench.path("libmine.a"));
            for input in ["mine.S", "use.c"] {
                bench.tool(&format!("{tools}gcc"), &[&["-c", input], how].concat());
            }
            bench.tool(&format!("{tools}ar"), &["rcs", "libmine.a", "use.o", "mine.o"]);
        };
        let codes = || jobs.iter().map(|job| bench.run(&job.split_whitespace().collect::<Vec<_>>()).status.code());
        build(&source, &["-O1"]);
        fs::write(bench.path("audit.toml"), "").unwrap();
        assert!(codes().all(|code| code == Some(1)), "{arch}");
        let text = bench.ends(1, &["audit", "libmine.a", "mine.h", "--format", "baseline"]);
        fs::write(bench.path("audit.toml"), text.replace("reason = \"\"", "reason = \"known\"")).unwrap();
        for how in [&["-O1"][..], &["-O2", "-g"], &["-Os"]] {
            build(&source, how);
            assert!(codes().all(|code| code == Some(0)), "{arch} {how:?}");
        }
        // Code before the others moves them.
        let more = source.replacen("begin good", &source_of(&source, "lost").replace("lost", "more"), 1);
        build(&more.replacen("end more\n", "end more\n\nbegin good", 1), &["-O1"]);
        assert!(codes().all(|code| code == Some(1)), "{arch}");
        let found = report(&bench, 1, &["libmine.a", "mine.h", "--baseline", "audit.toml"]);
        let new = found["findings"].as_array().unwrap().iter().filter(|f| f["accepted"] == false);
        assert_eq!(new.map(|f| f["function"].as_str().unwrap()).collect::<Vec<_>>(), ["more"], "{arch}");
        assert_eq!(found["gone"].as_array().unwrap().len(), 0, "{arch}");
    }
}

/// A function of the source, with its beginning and end.
fn source_of(source: &str, name: &str) -> String {
    let (begin, end) = (format!("begin {name}\n"), format!("end {name}\n"));
    let from = source.find(&begin).unwrap();
    let to = from + source[from..].find(&end).unwrap() + end.len();
    source[from..to].to_owned()
}

/// Code that saves four scratch registers, that changes them, and that restores them: by architecture.
const SCRATCH: [(&str, [&str; 3]); 3] = [
    (
        "x86_64",
        [
            "push %rcx\n push %rsi\n push %r10\n push %r11\n",
            "xor %ecx, %ecx\n xor %esi, %esi\n xor %r10d, %r10d\n xor %r11d, %r11d\n",
            "pop %r11\n pop %r10\n pop %rsi\n pop %rcx\n",
        ],
    ),
    (
        "arm64",
        [
            "stp x9, x10, [sp, #-32]!\n stp x11, x12, [sp, #16]\n",
            "mov x9, #0\n mov x10, #0\n mov x11, #0\n mov x12, #0\n",
            "ldp x11, x12, [sp, #16]\n ldp x9, x10, [sp], #32\n",
        ],
    ),
    (
        "riscv64",
        [
            "addi sp, sp, -32\n sd t3, 24(sp)\n sd t4, 16(sp)\n sd t5, 8(sp)\n sd t6, 0(sp)\n",
            "li t3, 0\n li t4, 0\n li t5, 0\n li t6, 0\n",
            "ld t3, 24(sp)\n ld t4, 16(sp)\n ld t5, 8(sp)\n ld t6, 0(sp)\n addi sp, sp, 32\n",
        ],
    ),
];

/// What a function keeps on one architecture, that of the same name on another is asked about.
#[test]
fn siblings_of_other_architectures_are_compared() {
    let bench = Bench::new();
    for (arch, [save, change, restore]) in SCRATCH {
        let tools = arches().into_iter().find(|(name, _)| *name == arch).unwrap().1;
        for (how, body) in [("keeps", format!("{save} {change} {restore}")), ("changes", change.to_owned())] {
            let code =
                format!(".text\n.globl every\n.type every, %function\nevery:\n {body} ret\n.size every, . - every\n");
            fs::write(bench.path("every.s"), code).unwrap();
            bench.tool(&format!("{tools}gcc"), &["-c", "every.s", "-o", &format!("{arch}-{how}.o")]);
        }
    }
    for (one, _) in SCRATCH {
        for (other, _) in SCRATCH.iter().filter(|(other, _)| *other != one) {
            let files = |how: &str| [format!("{one}-keeps.o"), format!("{other}-{how}.o")];
            let both = report(&bench, 0, &files("keeps").each_ref().map(String::as_str));
            assert_eq!(claims(&both), BTreeMap::new(), "{one} {other}");
            let found = report(&bench, 0, &files("changes").each_ref().map(String::as_str));
            assert_eq!(claims(&found), BTreeMap::from([("every".to_owned(), vec!["C13".to_owned()])]), "{one} {other}");
            let finding = &found["findings"][0];
            let named = finding["finding"].as_str().unwrap().starts_with(&format!("C13 {other} "));
            assert!(named && finding["want"].as_str().unwrap().contains(one), "{finding:#}");
        }
    }
}

/// An object without the property note turns the protection of the whole program off.
#[test]
fn an_unprotected_object_among_protected_ones_is_claimed() {
    for (arch, tools) in arches() {
        let bench = Bench::new();
        let gcc = format!("{tools}gcc");
        let Some(flag) = bench.protection(&gcc) else { continue };
        archive(&bench, arch, tools, &[flag]);
        let report = report(&bench, 1, &["libhand.a"]);
        let marks = report["units"][0]["marks"].as_array().unwrap();
        assert_eq!((marks.len(), &marks[0]["member"]), (1, &"hand.o".into()), "{arch}: {report:#}");
    }
}

/// A function with a landing pad, one without, one that returns by a return to itself, one that jumps to where no landing pad is,
/// one that calls where a register says: by architecture.
const MARKED: [(&str, [&str; 5]); 3] = [
    (
        "x86_64",
        [
            "endbr64\n xor %eax, %eax\n ret",
            "xor %eax, %eax\n ret",
            "endbr64\n lea 1f(%rip), %rax\n push %rax\n ret\n1: ret",
            "endbr64\n lea 1f(%rip), %rax\n jmp *%rax\n1: ret",
            "endbr64\n sub $8, %rsp\n mov other@GOTPCREL(%rip), %rax\n call *%rax\n add $8, %rsp\n ret",
        ],
    ),
    (
        "arm64",
        [
            "hint #34\n mov x0, #0\n ret",
            "mov x0, #0\n ret",
            "hint #34\n adr x1, 1f\n ret x1\n1: ret",
            "hint #34\n adr x1, 1f\n br x1\n1: ret",
            "hint #34\n stp x29, x30, [sp, #-16]!\n adrp x1, :got:other\n ldr x1, [x1, :got_lo12:other]\n blr x1\n ldp x29, x30, [sp], #16\n ret",
        ],
    ),
    (
        "riscv64",
        [
            "auipc zero, 0\n li a0, 0\n ret",
            "li a0, 0\n ret",
            "auipc zero, 0\n lla t0, 1f\n jr t0\n1: ret",
            "auipc zero, 0\n lla t1, 1f\n jr t1\n1: ret",
            "auipc zero, 0\n addi sp, sp, -16\n sd ra, 8(sp)\n .option pic\n la t1, other\n jalr t1\n ld ra, 8(sp)\n addi sp, sp, 16\n ret",
        ],
    ),
];

/// A note is judged by what the code does: where its address is taken there is a landing pad, and its returns pass a shadow stack, if
/// the architecture's checks each return.
#[test]
fn a_note_that_promises_too_much_is_claimed() {
    for (arch, codes) in MARKED {
        let tools = arches().into_iter().find(|(name, _)| *name == arch).unwrap().1;
        let marks = tool::backend(arch).unwrap().facts().marks.as_ref().unwrap();
        let bench = Bench::new();
        let gcc = format!("{tools}gcc");
        let c = "long with(void), without(void), hops(void), jumps(void), calls(void);\nlong (*all[])(void) = { with, without };\nlong use(void) { return all[1]() + with() + hops() + jumps() + calls(); }\n";
        fs::write(bench.path("use.c"), c).unwrap();
        bench.tool(&gcc, &["-c", "use.c"]);
        let pads = marks.bits(Promise::Pads);
        let shadow_stack = marks.bits(Promise::Paired) | marks.bits(Promise::Guarded);
        for bits in [0, pads, shadow_stack, pads | shadow_stack] {
            let note = format!(
                ".section .note.gnu.property, \"a\"\n.balign 8\n.4byte 4, 16, 5\n.asciz \"GNU\"\n.4byte {:#x}, 4, {bits}, 0\n",
                marks.property
            );
            let functions = ["with", "without", "hops", "jumps", "calls"].iter().zip(codes).map(|(name, code)| {
                format!(".globl {name}\n.type {name}, %function\n{name}:\n {code}\n.size {name}, . - {name}\n")
            });
            fs::write(bench.path("hand.s"), format!(".text\n{}{note}", functions.collect::<String>())).unwrap();
            bench.tool(&gcc, &["-c", "hand.s"]);
            let _ = fs::remove_file(bench.path("libhand.a"));
            // Without an index: this ar warns of the note if it reads the object.
            bench.tool("ar", &["rcS", "libhand.a", "use.o", "hand.o"]);
            let out = bench.run(&["audit", "libhand.a", "--format", "json"]);
            let report: Value = serde_json::from_slice(&out.stdout).unwrap();
            let found = report["findings"].as_array().unwrap().iter();
            let found: Vec<&str> = found.filter(|f| f["kind"] == "C8").map(|f| f["place"].as_str().unwrap()).collect();
            let (mut found, mut wanted) = (found, Vec::new());
            found.sort_unstable();
            if bits & pads != 0 {
                wanted.extend(["a landing pad inside", "the landing pad of without"]);
            }
            if bits & marks.bits(Promise::Paired) != 0 {
                wanted.push("the shadow stack");
            }
            assert_eq!(found, wanted, "{arch} {bits}: {report:#}");
        }
    }
}

/// Memory that appears in the middle of a run leads Unicorn to nothing that it has freed: a loop over many pages takes long enough for
/// it to make its TLB smaller.
#[test]
#[ignore = "needs valgrind"]
fn memory_that_appears_is_no_trouble_under_valgrind() {
    let (_, tools) = arches()[0];
    let bench = Bench::new();
    let c = "void fill(char *to, const char *from, long n) { for (long i = 0; i < n; i += 16) __builtin_memcpy(to + i, from + i, 16); }\n";
    fs::write(bench.path("fill.c"), c).unwrap();
    bench.tool(&format!("{tools}gcc"), &["-c", "-O1", "-fasynchronous-unwind-tables", "fill.c"]);
    let mut run = Command::new("valgrind");
    // Translated code is written over.
    run.args(["--smc-check=all-non-file", "--error-exitcode=99", "--quiet", env!("CARGO_BIN_EXE_tramptool")]);
    run.args(["audit", "fill.o", "--all", "--sandbox", "off"]).current_dir(bench.path(""));
    let out = run.env("RAYON_NUM_THREADS", "1").output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    assert!(String::from_utf8_lossy(&out.stdout).contains("1 of 1 functions judged"));
}

/// Nothing is judged, and that is no pass.
#[test]
fn nothing_judged_is_no_pass() {
    let (arch, tools) = arches()[0];
    let bench = Bench::new();
    archive(&bench, arch, tools, &[]);
    let out = bench.run(&["audit", "use.o"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("no function was judged"));
    bench.refuses(&["audit", "hand.S"], &["hand.S", "not ELF"]);
    bench.refuses(&["audit", "none.a"], &["none.a"]);
}

/// Unicorn ends its process at some encodings: that is trouble with a reason, and no signal.
#[test]
fn where_the_emulator_gives_up_the_command_says_so() {
    let source = |arch: &str| format!("{}/tests/audit/{arch}-fatal.S", env!("CARGO_MANIFEST_DIR"));
    let known: Vec<_> = arches().into_iter().filter(|(arch, _)| fs::exists(source(arch)).unwrap()).collect();
    assert!(!known.is_empty());
    for (arch, tools) in known {
        let bench = Bench::new();
        bench.tool(&format!("{tools}gcc"), &["-c", &source(arch), "-o", "fatal.o"]);
        for sandbox in ["on", "off"] {
            let out = bench.run(&["audit", "fatal.o", "--sandbox", sandbox]);
            let said = String::from_utf8_lossy(&out.stderr);
            assert_eq!(out.status.code(), Some(2), "{said}");
            // Unicorn's own words are before it.
            assert!(
                said.ends_with("tramptool: the emulator gave up, for the reason above: it cannot run this code\n"),
                "{said}"
            );
            assert!(out.stdout.is_empty());
        }
    }
}
