//! `tramptool check --marks`: what objects of real assemblers and compilers promise in their notes, and whether it is true.

use std::collections::BTreeSet;
use std::fs;

use codegen::arch::facts::Promise;
use common::{Bench, arches};
use object::{Object, ObjectSection};
use serde_json::Value;

mod common;

/// What breaks a promise, by function: the kind of the promise, and is it certain?
type Broken = (&'static str, &'static str, bool);

/// Of tests/marks/*.S. Functions that are not here keep every promise.
const BROKEN: &[Broken] = &[
    ("pushes_and_returns", "returns", true),
    ("overwrites", "returns", true),
    ("jumps_back", "returns", true),
    ("learns_its_place", "returns", true),
    ("other_stack", "returns", true),
    ("moves_shadow", "returns", false),
    ("off_by_a_word", "returns", false),
    ("unsigned", "signed", true),
    ("not_checked", "signed", true),
    ("other_key", "signed", true),
    ("other_sp", "signed", true),
    ("signs_late", "signed", true),
    ("signs_late", "returns", false),
    ("checks_unsigned", "signed", true),
    ("checks_unsigned", "returns", false),
    ("without_pad", "pads", false),
    ("taken", "pads", true),
    ("jumps_inside", "pads", false),
];

/// What each mark promises.
const MARKS: &[(&str, &str)] = &[
    ("IBT", "pads"),
    ("SHSTK", "returns"),
    ("BTI", "pads"),
    ("PAC", "signed"),
    ("GCS", "returns"),
    ("Zicfilp", "pads"),
    ("Zicfiss", "signed"),
];

fn promise(mark: &Value) -> &'static str {
    MARKS.iter().find(|(name, _)| mark["name"] == *name).unwrap().1
}

/// The objects of a report that fits its schema. The exit code says whether every mark is right.
fn judged(bench: &Bench, files: &[&str]) -> Vec<Value> {
    let out = bench.run(&[&["check", "--format", "json", "--marks"], files].concat());
    let report: Value = serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out:?}"));
    let schema = serde_json::from_str(&bench.ok(&["report", "schema", "marks"])).unwrap();
    jsonschema::validate(&schema, &report).unwrap();
    let units = report["units"].as_array().unwrap();
    let objects: Vec<Value> = units.iter().flat_map(|unit| unit["objects"].as_array().unwrap().clone()).collect();
    let right = objects.iter().flat_map(verdicts).all(|(_, verdict)| verdict == "right");
    assert_eq!(out.status.code(), Some(i32::from(!right)), "{report:#}");
    objects
}

/// The marks of an object, each with its verdict.
fn verdicts(object: &Value) -> Vec<(&'static str, &str)> {
    object["marks"].as_array().unwrap().iter().map(|mark| (promise(mark), mark["verdict"].as_str().unwrap())).collect()
}

#[test]
fn each_function_that_breaks_a_promise_is_named_and_no_other() {
    for (arch, tools) in arches() {
        let bench = Bench::new();
        let source = fs::read_to_string(format!("{}/tests/marks/{arch}.S", env!("CARGO_MANIFEST_DIR"))).unwrap();
        fs::write(bench.path("own.S"), &source).unwrap();
        bench.tool(&format!("{tools}gcc"), &["-c", "own.S", "-o", "own.o"]);
        let [object] = &judged(&bench, &["own.o"])[..] else { panic!("{arch}") };
        let mut found = BTreeSet::new();
        for mark in object["marks"].as_array().unwrap() {
            assert_eq!(mark["verdict"], "false", "{arch}: {mark:#}");
            for reason in mark["reasons"].as_array().unwrap() {
                let function = reason["function"].as_str().unwrap().to_owned();
                // Of a jump inside of a function, relocations may say more than that there is one.
                let certain = reason["certain"].as_bool().unwrap() && function != "jumps_inside";
                found.insert((function, promise(mark).to_owned(), certain));
            }
        }
        let there = |(name, kind, _): &&Broken| {
            let has = source.contains(&format!("function {name}")) || source.contains(&format!("{name}:"));
            has && object["marks"].as_array().unwrap().iter().any(|mark| promise(mark) == *kind)
        };
        // Returns are checked by riscv64's shadow stack only where code asks for it.
        let expected: BTreeSet<_> = BROKEN
            .iter()
            .filter(there)
            .map(|(name, kind, certain)| ((*name).to_owned(), (*kind).to_owned(), *certain))
            .collect();
        assert_eq!(found, expected, "{arch}");
    }
}

/// Functions as compilers make them: a switch, an array on the stack, callbacks, tail calls, an exception.
const COMPILED: &str = r#"
struct word { int n; ~word(); };
int elsewhere(int);
extern int (*pointer)(int);
static int inside(int n) { return n * 2; }
int (*table[])(int) = { elsewhere, inside };
int chosen(int n) {
    switch (n) {
    case 0: return elsewhere(1);
    case 1: return elsewhere(7) + 1;
    case 2: return elsewhere(9) * 3;
    case 3: return elsewhere(11) - n;
    case 4: return elsewhere(0) / 7;
    case 5: throw n;
    }
    return inside(n);
}
int array(int n) { char some[n]; return elsewhere((int)(long)some) + some[0]; }
int tail(int n) { return pointer(n + 1); }
int caught(int n) { word w{n}; try { return chosen(n) + tail(n); } catch (int other) { return other; } }
int large(int n) { char some[20000]; return elsewhere((int)(long)some) + some[n]; }
"#;

#[test]
fn what_compilers_promise_is_true() {
    let mut protected = 0;
    for (arch, tools) in arches() {
        let bench = Bench::new();
        let compiler = format!("{tools}g++");
        fs::write(bench.path("c.cpp"), COMPILED).unwrap();
        let flag = bench.protection(&compiler);
        for level in ["-O0", "-O1", "-O2", "-Os", "-O3"] {
            bench.tool(&compiler, &[&["-c", level, "c.cpp", "-o", "c.o"][..], &Vec::from_iter(flag)].concat());
            let [object] = &judged(&bench, &["c.o"])[..] else { panic!("{arch}") };
            let noted = object["marks"].as_array().unwrap().iter().filter(|mark| mark["noted"] == true);
            for mark in noted {
                assert_eq!(
                    (&mark["verdict"], &mark["holds"]),
                    (&"right".into(), &"yes".into()),
                    "{arch} {level}: {object:#}"
                );
                protected += 1;
            }
        }
    }
    assert!(protected > 0);
}

/// What is true and not promised is missing; where nothing in an object has to do with a promise, only if another one makes it.
#[test]
fn a_promise_that_could_be_made_is_missed() {
    for (arch, tools) in arches() {
        let bench = Bench::new();
        let gcc = format!("{tools}gcc");
        let Some(flag) = bench.protection(&gcc) else { continue };
        fs::write(bench.path("code.c"), "int g(int);\nint f(int n) { return g(n) + 1; }\n").unwrap();
        fs::write(bench.path("data.S"), ".globl word\n.data\nword: .quad 0\n").unwrap();
        bench.tool(&gcc, &["-c", "-O2", flag, "code.c", "-o", "code.o"]);
        bench.tool(&gcc, &["-c", "data.S", "-o", "data.o"]);
        let alone = judged(&bench, &["data.o"]);
        assert!(verdicts(&alone[0]).iter().all(|(_, verdict)| *verdict == "right"), "{arch}: {alone:#?}");
        bench.tool(&format!("{tools}ar"), &["rcs", "lib.a", "code.o", "data.o"]);
        let both = judged(&bench, &["lib.a"]);
        let promised = |n: usize| both[0]["marks"][n]["noted"] == true;
        for (n, (promise, verdict)) in verdicts(&both[1]).into_iter().enumerate() {
            assert_eq!(verdict, if promised(n) { "missing" } else { "right" }, "{arch}: {promise}");
        }
        let text = bench.ends(1, &["check", "--marks", "lib.a"]);
        assert!(text.contains("is true, and not promised") && text.contains("data.o"), "{text}");
    }
}

/// The note of our own objects is what their code keeps. Of what is returned to, an object does not say that nobody calls it.
#[test]
fn our_own_objects_promise_what_is_true() {
    for (arch, _) in arches() {
        for choices in [&[][..], &["--set", "lpad=on"], &["--set", "endbr=off"]] {
            let bench = Bench::new();
            let made = bench.run(
                &[&["gen", "--all", "--arch", arch, "--profile", "bare", "--emit", "obj", "-o", "."], choices].concat(),
            );
            if !made.status.success() {
                // Not every architecture has every option.
                assert!(!choices.is_empty(), "{arch}: {made:?}");
                continue;
            }
            let [object] = &judged(&bench, &[&format!("{arch}.o")])[..] else { panic!("{arch}") };
            for mark in object["marks"].as_array().unwrap().iter().filter(|mark| mark["verdict"] != "right") {
                assert_eq!(mark["verdict"], "not-decided", "{arch} {choices:?}: {mark:#}");
                let reasons = mark["reasons"].as_array().unwrap();
                assert!(
                    reasons.iter().all(|reason| reason["function"] == "trace_return"),
                    "{arch} {choices:?}: {mark:#}"
                );
            }
        }
    }
}

#[test]
fn what_has_no_note_of_its_own_is_refused() {
    let bench = Bench::new();
    fs::write(bench.path("c.c"), "int main(void) { return 0; }\n").unwrap();
    bench.tool("gcc", &["c.c", "-o", "linked"]);
    bench.refuses(&["check", "--marks", "linked"], &["valid: a relocatable object"]);
    fs::write(bench.path("empty.h"), "int f(void);\n").unwrap();
    bench.refuses(&["check", "--marks", "empty.h"], &["no object for a machine that is known here"]);
    bench.refuses(&["check", "--marks", "linked", "--arch", common::any()], &["--marks"]);
}

/// A trampoline's object and contract, with other bits in the note. Returns the places at which P27 fails.
fn with_bits(bench: &Bench, arch: &str, bits: u32) -> Vec<String> {
    let mut bytes = fs::read(bench.path("t.o")).unwrap();
    let note =
        object::File::parse(&*bytes).unwrap().section_by_name(".note.gnu.property").unwrap().file_range().unwrap();
    // The first property is the only one: its four bytes are behind its header and the note's.
    let at = note.0 as usize + 24;
    bytes[at..at + 4].copy_from_slice(&bits.to_le_bytes());
    fs::write(bench.path("changed.o"), bytes).unwrap();
    let args = ["check", "--object", "changed.o", "--contract", "t.toml", "--arch", arch, "--format", "json"];
    let report: Value = serde_json::from_slice(&bench.run(&args).stdout).unwrap();
    let failed = report["results"].as_array().unwrap().iter().filter(|row| row["verdict"] == "fail");
    let places =
        |row: &Value| row["places"].as_array().unwrap().iter().map(|at| at.as_str().unwrap().to_owned()).collect();
    failed
        .map(|row| (row["clause"].clone(), places(row)))
        .flat_map(|(clause, places): (Value, Vec<String>)| {
            assert_eq!(clause, "P27");
            places
        })
        .collect()
}

/// What the judge says of a note with a bit less, and of one with a bit that the trampoline breaks.
#[test]
fn a_note_with_other_bits_fails() {
    let mut changed = 0;
    for arch in tool::BACKENDS.iter().map(|backend| backend.facts()) {
        let marks = arch.marks.as_ref().unwrap();
        let protected = &common::expected::expected(tool::backend(arch.name).unwrap()).process.protected;
        for (trampoline, breaks) in [("trace_caller", &[][..]), ("trace_return", &[Promise::Paired])] {
            let bench = Bench::new();
            let set: Vec<&str> = protected.iter().flat_map(|set| ["--set", set]).collect();
            let gen_args = [
                "gen",
                trampoline,
                "--arch",
                arch.name,
                "--profile",
                "bare",
                "--emit",
                "obj,contract",
                "--stem",
                "t",
                "-o",
                ".",
            ];
            bench.ok(&[&gen_args[..], &set].concat());
            let [object] = &judged(&bench, &["t.o"])[..] else { panic!("{}", arch.name) };
            let bits = u32::try_from(object["noted"].as_u64().unwrap()).unwrap();
            assert!(with_bits(&bench, arch.name, bits).is_empty(), "{} {trampoline}", arch.name);
            for feature in marks.features {
                // Of what no code of an object has to do with, either is right.
                let idle = matches!(feature.promise, Promise::Signed | Promise::Guarded);
                if idle || bits & feature.bit == 0 && !breaks.contains(&feature.promise) {
                    continue;
                }
                let failed = with_bits(&bench, arch.name, bits ^ feature.bit);
                assert!(!failed.is_empty(), "{} {trampoline} {}", arch.name, feature.name);
                assert!(failed.iter().all(|place| place.starts_with("mark:")), "{failed:?}");
                changed += 1;
            }
        }
    }
    // Two bits less on two architectures and one on the third; where returns are all checked, of what is returned to one less and one
    // more; where they are not, one less.
    assert_eq!(changed, 10);
}

/// The rows of P27 in a report: their verdicts, each with the id of its reason.
fn of_notes(report: &str) -> Vec<(String, String)> {
    let report: Value = serde_json::from_str(report).unwrap();
    let rows = report["results"].as_array().unwrap().iter().filter(|row| row["clause"] == "P27");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    rows.map(|row| (text(&row["verdict"]), text(&row["reason_id"]))).collect()
}

/// Of a kernel's objects nobody reads the notes, and an object without one promises nothing.
#[test]
fn where_nobody_reads_a_note_nothing_is_asked_of_it() {
    for arch in tool::BACKENDS.iter().map(|backend| backend.facts()) {
        let bench = Bench::new();
        let checked = |profile: &str, keeps_note: bool| {
            let gen_ = ["gen", "--arch", arch.name, "--profile", profile, "--emit", "obj,contract", "--stem", "t"];
            let trampoline = if profile == "bare" { "trace_caller" } else { "ftrace_caller" };
            bench.ok(&[&gen_[..], &["-o", ".", trampoline]].concat());
            if !keeps_note {
                let objcopy = format!("{}objcopy", common::tools_of(arch.name));
                bench.tool(&objcopy, &["--remove-section", ".note.gnu.property", "t.o"]);
            }
            of_notes(&bench.ok(&["check", "--object", "t.o", "--contract", "t.toml", "--format", "json"]))
        };
        let unread = [("skip".to_owned(), "no-marks".to_owned())];
        assert_eq!(checked("linux-7.3", true), unread, "{}", arch.name);
        assert_eq!(checked("bare", false), unread, "{}", arch.name);
    }
}

/// Every mutant of a note is noticed, by P27 alone. Where another trampoline of the object breaks the promise, the object is the same.
#[test]
fn every_mutant_of_a_note_is_killed() {
    for backend in tool::BACKENDS {
        let arch = backend.facts().name;
        let protected = &common::expected::expected(*backend).process.protected;
        let set: Vec<&str> = protected.iter().flat_map(|set| ["--set", set]).collect();
        let bench = Bench::new();
        let args = ["mutate", "--profile", "bare", "--arch", arch, "--format", "json", "--only", "MARK_MISSING"];
        let report: Value = serde_json::from_str(&bench.ok(&[&args[..], &set].concat())).unwrap();
        let results = report["results"].as_array().unwrap();
        let killed: Vec<&Value> = results.iter().filter(|result| result["outcome"] == "killed").collect();
        assert!(
            killed.len() > 50 && killed.iter().all(|result| result["clauses"] == serde_json::json!(["P27"])),
            "{arch}"
        );
    }
}
