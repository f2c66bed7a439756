//! Faults of the field with public fixes, rebuilt from what the fixes say: before one is found, and after it is clean.

use std::fs;

use common::{Bench, tools_of};
use serde::Deserialize;
use serde_json::Value;

mod common;

#[derive(Deserialize)]
struct Faults {
    fault: Vec<Fault>,
}

#[derive(Deserialize)]
struct Fault {
    project: String,
    fix: String,
    arch: String,
    /// The claim or clause, and the place.
    found: String,
    text: String,
    after: String,
    before: String,
    contract: Option<String>,
}

fn faults() -> Vec<Fault> {
    toml::from_str::<Faults>(include_str!("mended/faults.toml")).unwrap().fault
}

/// The note that promises landing pads, as the compiler writes it.
const NOTE: &str = "
    .section .note.gnu.property, \"a\"
    .balign 8
    .long   4, 16, 5
    .asciz  \"GNU\"
    .long   0xc0000000, 4, 1, 0
";

/// A function of an archive that C calls, and whose address it takes.
const USE: &str = "
long mended(long *);
void helper(void) { }
long (*volatile taken)(long *) = mended;
long use(long n) { return n ? mended(&n) + taken(&n) : 0; }
";

/// What is found in this text, with claim or clause and place.
fn found(fault: &Fault, text: &str) -> Vec<String> {
    let (bench, tools) = (Bench::new(), tools_of(&fault.arch));
    let marked = fault.arch == "arm64" && fault.contract.is_none() && !text.contains("NO NOTE");
    let note = if marked { NOTE } else { "" };
    let code = text.replace("NO NOTE", "").replace("NOTE", "");
    let source = format!(
        "    .globl mended\n    .type mended, %function\nmended:\n    .cfi_startproc\n{code}\n    .cfi_endproc\n    .size mended, . - mended\n    \
         .section .note.GNU-stack, \"\", %progbits\n{note}"
    );
    let source = source.replace("%function", "STT_FUNC");
    let rows = if fault.contract.is_some() {
        source.replace("    .cfi_startproc\n", "").replace("    .cfi_endproc\n", "")
    } else {
        source
    };
    fs::write(bench.path("hand.S"), rows).unwrap();
    let gcc = format!("{tools}gcc");
    bench.tool(&gcc, &["-c", "hand.S", "-o", "hand.o"]);
    let report = |args: &[&str]| -> Value {
        let run = bench.run(args);
        let told = String::from_utf8(run.stdout).unwrap();
        serde_json::from_str(&told)
            .unwrap_or_else(|e| panic!("{}: {e}: {}", fault.project, String::from_utf8_lossy(&run.stderr)))
    };
    match &fault.contract {
        None => {
            fs::write(bench.path("use.c"), USE).unwrap();
            let protection = if fault.arch == "arm64" { "-mbranch-protection=bti" } else { "-fcf-protection=none" };
            let protection = if fault.arch == "riscv64" { "-O1" } else { protection };
            bench.tool(&gcc, &["-c", "-O1", "-fasynchronous-unwind-tables", protection, "use.c", "-o", "use.o"]);
            bench.tool(&format!("{tools}ar"), &["rcs", "libhand.a", "use.o", "hand.o"]);
            let report = report(&["audit", "libhand.a", "--format", "json"]);
            // What is not judged is not clean.
            let functions =
                report["units"].as_array().unwrap().iter().flat_map(|unit| unit["functions"].as_array().unwrap());
            let judged = functions.filter(|f| f["symbol"] == "mended" && f["not_judged"].is_null());
            assert_eq!(judged.count(), 1, "{}: {report:#}", fault.project);
            let told = |f: &Value| format!("{} {}", f["kind"].as_str().unwrap(), f["place"].as_str().unwrap());
            report["findings"].as_array().unwrap().iter().map(told).collect()
        }
        Some(contract) => {
            let head = format!(
                "arch = \"{}\"\nprofile = \"bare\"\nabout = \"a fault\"\n\n[[trampoline]]\nsymbol = \"mended\"\n",
                fault.arch
            );
            fs::write(bench.path("hand.toml"), format!("{head}{contract}stack-align = 16\n")).unwrap();
            let report = report(&["check", "--object", "hand.o", "--contract", "hand.toml", "--format", "json"]);
            let results = report["results"].as_array().unwrap();
            let clause = fault.found.split(' ').next();
            let decided = |row: &Value| {
                row["clause"].as_str() == clause && ["pass", "fail"].contains(&row["verdict"].as_str().unwrap())
            };
            assert!(results.iter().any(decided), "{}: {report:#}", fault.project);
            let failing = results.iter().filter(|row| row["verdict"] == "fail");
            let told = failing.flat_map(|row| {
                let clause = row["clause"].as_str().unwrap().to_owned();
                row["failures"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(move |f| format!("{clause} {}", f["place_id"].as_str().unwrap()))
            });
            told.collect()
        }
    }
}

#[test]
fn what_was_mended_is_found_before_and_not_behind() {
    let faults = faults();
    assert!(faults.len() > 10, "{}", faults.len());
    let mut wrong = Vec::new();
    for fault in faults {
        let Fault { project, text, after, before, .. } = &fault;
        let text = format!("{text}{}", if after == "NOTE" { "NOTE" } else { "" });
        assert!(text.contains(after.as_str()), "{project}");
        let clean = found(&fault, &text);
        if !clean.is_empty() {
            wrong.push(format!("{project}: {clean:?} after the fix"));
        }
        let told = found(&fault, &text.replace(after.as_str(), before));
        if !told.iter().all(|f| f.starts_with(&fault.found)) || told.is_empty() {
            wrong.push(format!("{project}: not {}, but {told:?}", fault.found));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_page_has_each() {
    let page = include_str!("../docs/audit.md");
    for fault in faults() {
        let claim = fault.found.split(' ').next().unwrap();
        let row = format!("| [{}]({}) | {} | {claim} |", fault.project, fault.fix, fault.arch);
        assert!(page.contains(&row), "docs/audit.md lacks: {row}");
    }
}
