//! The checker is checked: every fault is noticed, every bug of the corpus by its property.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::process::Command;

use codegen::backend::Backend;
use codegen::contract::Contract;
use codegen::effect::faults::Operator;
use codegen::out::obj;
use common::expected::{ByHand, contract, expected, my_tramp};
use common::{Bench, any, blessed, blessed_block};
use emu_tests::places;
use serde_json::Value;
use tool::mutate::bugs::Known;
use tool::mutate::subject::MutationSubject;
use wildmatch::WildMatch;

mod common;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn clauses(result: &Value) -> impl Iterator<Item = &str> {
    result["clauses"].as_array().unwrap().iter().map(|clause| clause.as_str().unwrap())
}

/// Did only those clauses notice that are judged where the first failure is the end?
fn noticed_early(results: &[Value]) -> bool {
    results.iter().flat_map(clauses).all(|clause| !["P16", "P17", "P18", "P19"].contains(&clause))
}

/// The page with the table.
const PAGE: &str = "docs/mutants.md";

/// Killed of the mutants of each operator on each architecture, and the four clauses that notice most often, as Markdown.
fn table(scores: &[Value]) -> String {
    let arches: Vec<&str> = tool::BACKENDS.iter().map(|b| b.facts().name).collect();
    let mut out =
        format!("| operator | {} | noticed by |\n|---|{}---|\n", arches.join(" | "), "--:|".repeat(arches.len()));
    for name in Operator::ALL.iter().map(|o| Some(o.name())).chain([None]) {
        let of_name = |s: &&Value| name.is_none_or(|name| s["operator"] == name);
        let cells: Vec<String> = arches
            .iter()
            .map(|&arch| {
                let sum = |of: &str| -> u64 {
                    let scores = scores.iter().filter(of_name).filter(|s| s["arch"] == arch);
                    scores.map(|s| s[of].as_u64().unwrap()).sum()
                };
                let of = sum("mutants") - sum("equivalent");
                if of == 0 { "-".to_owned() } else { format!("{}/{of}", sum("killed")) }
            })
            .collect();
        let mut by: BTreeMap<&str, u64> = BTreeMap::new();
        for (clause, n) in
            scores.iter().filter(of_name).filter(|_| name.is_some()).flat_map(|s| s["by"].as_object().unwrap())
        {
            *by.entry(clause).or_default() += n.as_u64().unwrap();
        }
        let mut by: Vec<_> = by.into_iter().collect();
        by.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        let by: Vec<String> = by.iter().take(4).map(|(clause, n)| format!("{clause} {n}")).collect();
        if cells.iter().any(|cell| cell != "-") {
            writeln!(out, "| {} | {} | {} |", name.unwrap_or("all"), cells.join(" | "), by.join(", ")).unwrap();
        }
    }
    out
}

/// How many mutants there are.
const COUNTS: &str = "tests/mutants.expected";

/// Killed of each operator on each architecture, and those that are equivalent.
fn counts(scores: &[Value]) -> String {
    let arches: Vec<&str> = tool::BACKENDS.iter().map(|b| b.facts().name).collect();
    let mut out = String::from(
        "Mutants of everything that is generated with the default options, and of what records under profile bare, by operator and\n\
         architecture: how many a clause notices, +n: and how many more do what the original does. Written by\n\
         `cargo xtask bless mutants`.\n\n",
    );
    let mut row = |name: &str, cells: Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!("{cell:>10}")).collect();
        writeln!(out, "{name:22}{cells}").unwrap();
    };
    row("operator", arches.iter().map(|&arch| arch.to_owned()).collect());
    for name in Operator::ALL.iter().map(|o| Some(o.name())).chain([None]) {
        let sum = |arch: &str, of: &str| -> u64 {
            let scores = scores.iter().filter(|s| s["arch"] == arch && name.is_none_or(|name| s["operator"] == name));
            scores.map(|s| s[of].as_u64().unwrap()).sum()
        };
        let cell = |arch: &&str| match (sum(arch, "killed"), sum(arch, "equivalent")) {
            (0, 0) => "-".to_owned(),
            (killed, 0) => killed.to_string(),
            (killed, equivalent) => format!("{killed}+{equivalent}"),
        };
        row(name.unwrap_or("all"), arches.iter().map(cell).collect());
    }
    out
}

/// What `mutate` says of the default profile and of the trampolines that record, which only profile bare has.
struct Reports {
    results: Vec<Value>,
    scores: Vec<Value>,
    mutants: u64,
    equivalent: u64,
    killed: u64,
}

/// The trampolines that only profiles with threads of programs have.
fn of_threads() -> Vec<String> {
    let backend = tool::BACKENDS[0];
    let bare = tool::profile("bare").unwrap().convention(backend.facts().name).unwrap();
    let target = backend.target(bare, bare.defaults()).unwrap();
    let all = tool::suite::trampolines(&target).unwrap();
    all.into_iter()
        .filter(|(_, kind)| kind.recorder().is_some() || kind.is_in_the_middle())
        .map(|(name, _)| name)
        .collect()
}

fn reports(how: &[&str]) -> Reports {
    let b = Bench::new();
    let names = of_threads();
    let mut records: Vec<&str> = names.iter().map(String::as_str).collect();
    records.extend(["--profile", "bare"]);
    let [mut results, mut scores] = [Vec::new(), Vec::new()];
    let mut sums = [0; 3];
    for of in [&[][..], &records[..]] {
        b.ok(&[&["mutate", "--format", "json", "-o", "mutants.json"], of, how].concat());
        let report = json(&std::fs::read_to_string(b.path("mutants.json")).unwrap());
        results.extend(report["results"].as_array().unwrap().iter().cloned());
        scores.extend(report["scores"].as_array().unwrap().iter().cloned());
        let of = ["mutants", "equivalent", "killed"].map(|of| report[of].as_u64().unwrap());
        sums.iter_mut().zip(of).for_each(|(sum, n)| *sum += n);
    }
    let [mutants, equivalent, killed] = sums;
    Reports { results, scores, mutants, equivalent, killed }
}

/// There are as many mutants as the file says, of each operator on each architecture; and of each some, by the hash of their
/// names, are noticed. In place of the next test, where time is short.
#[test]
fn a_sample_of_the_mutants_is_killed() {
    let mut there: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for backend in tool::BACKENDS {
        let bare = tool::profile("bare").unwrap().convention(backend.facts().name).unwrap();
        for (convention, records) in [(tool::convention(*backend).unwrap(), false), (bare, true)] {
            let subject = MutationSubject::new(*backend, convention, &[]).unwrap();
            for candidate in subject.mutants(|name| !records || of_threads().contains(&name.to_owned())).unwrap() {
                *there.entry((candidate.mutant.operator.name(), candidate.arch())).or_default() += 1;
            }
        }
    }
    let blessed = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mutants.expected")).unwrap();
    let mut rows = blessed.lines().skip_while(|l| !l.starts_with("operator")).map(|l| l.split_whitespace());
    let arches: Vec<&str> = rows.next().unwrap().skip(1).collect();
    for mut row in rows {
        let operator = row.next().unwrap();
        for (arch, cell) in arches.iter().zip(row) {
            let told: usize = cell.split('+').map(|n| n.parse().unwrap_or(0)).sum();
            let known = there.iter().filter(|((o, a), _)| [o, "all"].contains(&operator) && a == arch);
            let known: usize = known.map(|(_, n)| n).sum();
            assert_eq!(told, known, "{COUNTS}, or the mutants there are: {operator} on {arch}");
        }
    }
    let report = reports(&["--sample", "6"]);
    let results = report.results;
    let sampled = |(operator, arch): (&str, &str)| {
        results.iter().filter(|r| r["operator"] == operator && r["arch"] == arch).count()
    };
    assert!(there.iter().all(|(&class, &n)| sampled(class) >= n.min(6)));
    assert!(results.iter().all(|r| r["outcome"] != "survived"));
    common::blessed(PLACES, &told(&results));
}

/// Where mutants fail.
const PLACES: &str = "tests/places.expected";

/// How many of these mutants fail at each clause and place.
fn told(results: &[Value]) -> String {
    let patterns: Vec<(String, String)> = places().into_iter().map(|(id, _)| (id.clone(), pattern(&id))).collect();
    let named = |at: &Value| {
        let place = at["place"].as_str().unwrap();
        let fits = patterns.iter().filter(|(_, pattern)| WildMatch::new(pattern).matches(place));
        let (id, _) = fits.max_by_key(|(_, pattern)| pattern.trim_matches('*').len()).unwrap();
        (at["clause"].as_str().unwrap().to_owned(), id.clone())
    };
    let mut all: BTreeMap<(String, String), usize> = BTreeMap::new();
    for result in results {
        let of: BTreeSet<_> = result["places"].as_array().into_iter().flatten().map(named).collect();
        of.into_iter().for_each(|key| *all.entry(key).or_default() += 1);
    }
    let mut out = String::from(
        "Six mutants of each operator and architecture: where the judge says that they fail, in the first case in which they do, and\n\
         how many. A check that is gone, or that nothing comes to, changes the numbers. Written by `cargo xtask bless places`.\n\n",
    );
    for ((clause, place), of) in all {
        writeln!(out, "{clause:10}{place:36}{of:>6}").unwrap();
    }
    out
}

/// What fits the id of a place, whose parts in braces vary.
fn pattern(id: &str) -> String {
    let parts = id.split('{').map(|part| part.split_once('}').map_or(part, |(_, rest)| rest));
    parts.collect::<Vec<_>>().join("*")
}

/// All mutants of all trampolines: none survives, what is called equivalent is needed, and docs/mutants.md has the figures.
#[test]
fn every_mutant_is_killed() {
    let report = reports(&[]);
    let results = &report.results;
    assert!(results.iter().all(|r| r["outcome"] != "survived"));
    blessed(COUNTS, &counts(&report.scores));
    assert!(noticed_early(results));
    equivalents_are_needed(results, |known| !is_for_6_12(known));
    let (of, killed) = (report.mutants - report.equivalent, report.killed);
    let total = format!("{killed} of {of} mutants killed, 100.0 %; {} more are equivalent; seed 1", report.equivalent);
    blessed_block(PAGE, "<!-- begin mutants -->", &format!("{}\n{total}\n", table(&report.scores)));
}

/// What is called equivalent, without a contract of others, survives.
fn equivalents_are_needed(results: &[Value], of_these: impl Fn(&Known) -> bool) {
    let table = tool::mutate::bugs::table().unwrap();
    for known in table.equivalent.iter().filter(|known| known.contract.is_empty() && of_these(known)) {
        assert!(known.reason.len() > 20, "{}: say why", known.operator);
        let needed = results.iter().any(|r| {
            r["outcome"] == "equivalent" && r["reason"] == known.reason.as_str() && r["arch"] == known.arch.as_str()
        });
        assert!(needed, "src/mutants.toml: {} of {} is noticed, or is gone", known.operator, known.trampoline);
    }
}

/// Trampolines of profile linux-6.12 that are not the same under linux-7.3, code and contract; without those that there are, `alone`.
fn only_6_12_has(backend: &'static dyn Backend, alone: bool) -> Vec<String> {
    let [before, now] = ["linux-6.12", "linux-7.3"].map(|profile| {
        let convention = tool::profile(profile).unwrap().convention(backend.facts().name).unwrap();
        let target = backend.target(convention, convention.defaults()).unwrap();
        let trampolines = tool::suite::trampolines(&target).unwrap();
        let told = |spec: &codegen::ask::spec::Spec| {
            let object = obj::write(&backend.assemble(std::slice::from_ref(spec), &target).unwrap(), &target).unwrap();
            (object, Contract::of(spec, &target).unwrap().sentences())
        };
        let specs = tool::suite::specs(&trampolines);
        specs.iter().map(|spec| (spec.name.to_owned(), told(spec))).collect::<BTreeMap<_, _>>()
    });
    let other = |(name, told)| now.get(name).is_none_or(|now| !alone && now != told);
    before.iter().filter(|&(name, told)| other((name, told))).map(|(name, _)| name.clone()).collect()
}

/// An entry for one that linux-7.3 has not.
fn is_for_6_12(known: &Known) -> bool {
    let of = tool::BACKENDS.iter().filter(|backend| backend.facts().name == known.arch);
    of.flat_map(|backend| only_6_12_has(*backend, true)).any(|name| name == known.trampoline)
}

/// All mutants of what is not the same there: none survives. The others are those of the test before.
#[test]
fn every_mutant_of_what_is_other_under_6_12_is_killed() {
    let b = Bench::new();
    let mut results = Vec::new();
    for backend in tool::BACKENDS {
        let names = only_6_12_has(*backend, false);
        eprintln!("{}: as under linux-7.3, and not run again, but for {}", backend.facts().name, names.join(", "));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let of = ["--arch", backend.facts().name, "--profile", "linux-6.12", "--format", "json"];
        let report = json(&b.ok(&[&["mutate"], &names[..], &of].concat()));
        results.extend(report["results"].as_array().unwrap().iter().cloned());
    }
    assert!(results.len() > 2000 && results.iter().all(|r| r["outcome"] != "survived"), "{}", results.len());
    equivalents_are_needed(&results, is_for_6_12);
}

/// The symbolic checker notices all that it can see, without running anything, and says what it cannot.
#[test]
fn the_symbolic_checker_notices_what_it_can_see() {
    let b = Bench::new();
    // Exit code 1: some survive.
    let report = json(&b.ends(1, &["mutate", "--by", "verify", "--format", "json"]));
    let results = report["results"].as_array().unwrap();
    let survivors: Vec<&Value> = results.iter().filter(|r| r["outcome"] == "survived").collect();
    for survivor in &survivors {
        assert!(survivor["reason"].is_string(), "{survivor}");
    }
    for known in &tool::mutate::bugs::table().unwrap().unseen {
        let needed = survivors.iter().any(|r| r["reason"] == known.reason.as_str());
        assert!(needed, "src/mutants.toml: {} is noticed, or is gone", known.operator);
    }
    // Of code, that is: it reads no unwind tables.
    let of_code = |r: &&Value| !r["operator"].as_str().unwrap().starts_with("CFI_");
    let (missed, of) = (survivors.into_iter().filter(of_code).count(), results.iter().filter(of_code).count());
    assert!(missed * 100 < of * 2, "{missed} of {of}");
    // Both, side by side.
    let both = b.ok(&["mutate", "return_to_handler", "--sample", "1", "--by", "both"]);
    assert!(both.contains("by verify") && both.contains("noticed by the symbolic checker"), "{both}");
    b.refuses(&["mutate", "bug:F1", "--by", "verify"], &["bug:F1", "--by emulator"]);
}

/// Each fault in what saves vector registers is noticed by both. Only profile bare has that, so no other test sees them.
#[test]
fn no_fault_of_saved_vector_registers_survives() {
    let b = Bench::new();
    for backend in tool::BACKENDS {
        let what = ["mutate", "trace_caller", "trace_return", "direct_2", "around_frame_1", "around_fregs"];
        let how = ["--arch", backend.facts().name, "--profile", "bare", "--format", "json"];
        for by in ["emulator", "verify"] {
            let out = b.run(&[&what[..], &how, &["--by", by]].concat()).stdout;
            let report = json(&String::from_utf8(out).unwrap());
            let of_vectors = |r: &&Value| {
                let diff = r["diff"].as_array().unwrap();
                diff.iter().any(|line| line.as_str().unwrap().contains("VEC"))
            };
            let results: Vec<&Value> = report["results"].as_array().unwrap().iter().filter(of_vectors).collect();
            assert!(results.len() > 100, "{by}: {}", results.len());
            let survivors: Vec<&&Value> = results.iter().filter(|r| r["outcome"] != "killed").collect();
            assert!(survivors.is_empty(), "{by}: {survivors:?}");
        }
    }
}

#[test]
fn every_bug_is_noticed_by_its_property() {
    let b = Bench::new();
    let report = json(&b.ok(&["mutate", "bug:all", "--format", "json"]));
    let results = report["results"].as_array().unwrap();
    let bugs = &tool::mutate::bugs::table().unwrap().bug;
    assert!(bugs.len() >= 30);
    for bug in bugs {
        let rebuilt = results.iter().filter(|r| r["bug"][0] == bug.id.as_str());
        let noticed = |r: &Value| clauses(r).any(|c| c == bug.property);
        assert!(rebuilt.clone().count() > 0 && rebuilt.clone().all(noticed), "{}", bug.id);
    }
    // A bug's page has what the table says, the fault as `mutate` makes it, and the command that runs it.
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let list = b.ok(&["explain", "bug:all"]);
    // What does not fit the line goes on in the next, behind blanks.
    assert_eq!(list.lines().filter(|line| !line.starts_with(' ')).count(), bugs.len());
    for bug in bugs {
        assert!(list.contains(&format!("bug:{} ({}, {} ", bug.id, bug.property, bug.arch)), "{list}");
        let page = b.ok(&["explain", &format!("bug:{}", bug.id.to_lowercase())]);
        assert!(page.lines().all(|l| l.chars().count() <= 100), "{page}");
        let page = one_line(&page);
        let run = format!("How to run it tramptool mutate bug:{}", bug.id);
        for part in [&bug.about, &run, &format!("tramptool explain {}", bug.property), &bug.set.join(" ")] {
            assert!(page.contains(part.as_str()), "no {part:?} in {page}");
        }
        for result in results.iter().filter(|r| r["bug"][0] == bug.id.as_str()) {
            let diff = result["diff"].as_array().unwrap().iter().map(|l| l.as_str().unwrap());
            for line in diff.chain([result["mutant"].as_str().unwrap()]) {
                assert!(page.contains(&one_line(line)), "no {line:?} in {page}");
            }
        }
    }
    b.refuses(&["explain", "bug:Z9"], &["unknown bug 'Z9'", "A1, A4", "all"]);
    assert!(b.ok(&["mutate", "bug:f1"]).contains("noticed by their property, 1 of 1: F1"));
    b.refuses(&["mutate", "bug:Z9"], &["unknown bug 'Z9'", "A1", "all"]);
}

/// A sample covers every operator, and is the same for the same seed.
#[test]
fn samples() {
    let b = Bench::new();
    let run = |more: &[&str]| -> Vec<String> {
        let args = [&["mutate", "--arch", any(), "--format", "json", "--sample", "1"], more].concat();
        let report = json(&b.ok(&args));
        let name = |r: &Value| format!("{} {}", r["trampoline"], r["mutant"]);
        report["results"].as_array().unwrap().iter().map(name).collect()
    };
    let whole = run(&[]);
    assert_eq!(run(&[]), whole);
    let all = json(&b.ok(&["mutate", "return_to_handler", "--arch", any(), "--format", "json"]));
    for score in all["scores"].as_array().unwrap() {
        let operator = score["operator"].as_str().unwrap();
        assert!(whole.iter().any(|m| m.contains(operator)), "{operator}");
    }
}

/// What a run saved is read again, in each format; what cannot be read is refused.
#[test]
fn saved_runs_are_read_again() {
    let b = Bench::new();
    let run = ["mutate", "bug:F1", "bug:c1", "bug:E1", "bug:A1"];
    let text = b.ok(&[&run[..], &["--format", "json"]].concat());
    let write = ["report", "write", "run.json"];
    let save = |text: &str| std::fs::write(b.path("run.json"), text).unwrap();
    save(&text);
    assert_eq!(b.ok(&[&write[..], &["--format", "json"]].concat()), text);
    assert_eq!(b.ok(&write), b.ok(&run));
    // Nothing would be killed, and nothing survive.
    b.refuses(&["mutate", "bug:F1", "--sample", "0"], &["--sample"]);
    b.refuses(&[&write[..], &["--format", "sarif"]].concat(), &["of `mutate`", "human, json or html"]);
    b.refuses(&[&write[..], &["--strict"]].concat(), &["of `mutate`", "--strict"]);
    save(&text.replace("\"version\": 1", "\"version\": 2"));
    b.refuses(&write, &["run.json: a report of version 2", "valid: 1"]);
    // One that survives fails the saved run too, and is told with its diff.
    // The counts are those of what is in it.
    let mut report: Value = serde_json::from_str(&text).unwrap();
    report["equivalent"] = 5.into();
    save(&report.to_string());
    let uneven = ["run.json: its counts are not those of its \"results\"", "mutate"];
    b.refuses(&["report", "html", "run.json", "-o", "run.html"], &uneven);
    b.refuses(&write, &uneven);
    report["equivalent"] = 0.into();
    report["killed"] = 0.into();
    let scores = report["scores"].as_array_mut().unwrap();
    scores.iter_mut().for_each(|score| score["killed"] = 0.into());
    let results = report["results"].as_array_mut().unwrap();
    results.iter_mut().for_each(|result| result["outcome"] = "survived".into());
    save(&report.to_string());
    assert!(b.ends(1, &write).contains("  tramptool mutate bug:"));
}

/// What libgcc, libunwind and frame pointers met in trampolines as they were once: the listing as it was then, assembled by GNU
/// as and held against the contract that comes with it.
#[test]
fn faults_of_unwinding_that_were_are_noticed() {
    type Edits<'e> = &'e [(&'e str, &'e str)];
    let programs = ["programs", "--own-form", "--sig", "int f(int)", "--fentry", "before"];
    let apart = [("RECORD_PARENT", "RECORD_X"), ("RECORD_PC", "RECORD_PARENT"), ("RECORD_X", "RECORD_PC")];
    let column = [
        ("_column 17", "_column 32"),
        (".cfi_register x17", ".cfi_register 32"),
        (".cfi_offset x17", ".cfi_offset 32"),
    ];
    let lead = "_undefined x30\n\t// An unwinder looks up the address before the one that a function returns to.\n\tnop\n\tnop\n";
    let cases: [(&str, &[&str], Edits, &str); 6] = [
        ("arm64", &["ftrace_caller"], &column, "unwind:return-column"),
        ("arm64", &["ftrace_caller"], &[("\t.cfi_signal_frame\n", "")], "unwind:signal-frame"),
        ("riscv64", &["ftrace_caller"], &[("\t.cfi_signal_frame\n", "")], "unwind:signal-frame"),
        ("x86_64", &["ftrace_caller", "return_to_handler"], &[("\t.skip\t16, 0x90\n", "")], "unwind:before-return"),
        ("arm64", &["ftrace_caller", "return_to_handler"], &[(lead, "_undefined x30\n")], "unwind:before-return"),
        ("x86_64", &programs, &apart, "frame-record:1:rises"),
    ];
    for (arch, trampolines, edits, place) in cases {
        let backend = tool::BACKENDS.iter().find(|b| b.facts().name == arch).unwrap();
        let b = Bench::new();
        b.ok(&[&["gen"], trampolines, &["--arch", arch, "--stem", "t", "--emit", "asm,contract", "-o", "."]].concat());
        let text = std::fs::read_to_string(b.path("t.S")).unwrap();
        // Where a record lies is said once; what is said of it is what changes places.
        let (numbers, code) = text.split_at(text.find("\t.text\n").unwrap());
        let found = |code: &str| {
            std::fs::write(b.path("t.S"), format!("{numbers}{code}")).unwrap();
            b.tool(backend.facts().assembler, &["t.S", "-o", "t.o"]);
            let args = ["check", "--object", "t.o", "--contract", "t.toml", "--format", "json"];
            let report = json(&String::from_utf8(b.run(&args).stdout).unwrap());
            let rows = report["results"].as_array().unwrap().iter().filter(|r| r["clause"] == "P12");
            let places = rows.clone().filter_map(|r| r["places"].as_array()).flatten();
            let places: Vec<String> = places.map(|p| p.as_str().unwrap().to_owned()).collect();
            assert!(rows.clone().any(|r| r["checks"].as_u64() > Some(0)), "{arch} {trampolines:?}");
            places
        };
        assert_eq!(found(code), [""; 0], "{arch} {trampolines:?}");
        let mut faulty = code.to_owned();
        for (new, old) in edits {
            assert!(faulty.contains(new), "{arch} {trampolines:?}: {new}");
            faulty = faulty.replace(new, old);
        }
        let places = found(&faulty);
        let told = places.iter().any(|at| at.split('@').next() == Some(place));
        assert!(told, "{arch} {trampolines:?}: {place}: {places:?}");
    }
}

#[test]
fn bad_requests_are_refused() {
    let b = Bench::new();
    b.refuses(&["mutate", "--only", "DROP_EVERYTHING"], &["unknown mutant", "DROP_SAVE"]);
    b.refuses(&["mutate", "ftrace_caller", "bug:A1"], &["one or the other"]);
    b.refuses(&["mutate", "no_such"], &["unknown trampoline 'no_such'", "ftrace_caller"]);
    b.refuses(&["mutate", "-o", "no/such/place.json"], &["no/such/place.json"]);
    let help = Command::new(env!("CARGO_BIN_EXE_tramptool")).args(["mutate", "--help"]).output().unwrap();
    assert!(String::from_utf8(help.stdout).unwrap().contains("CFI_OFFBY"));
}

/// Faults in objects that others wrote: every instruction but NOPs has some, and all are noticed.
#[test]
fn faults_in_other_peoples_objects_are_noticed() {
    for &backend in tool::BACKENDS {
        let (arch, assembler) = (backend.facts().name, backend.facts().assembler);
        let ByHand { scratch, text: body, call: called, .. } = expected(backend).by_hand;
        let b = Bench::new();
        // Behind the end is one more call, which nothing reaches.
        let call = body.lines().find(|line| line.contains("call") || line.contains("bl")).unwrap();
        let text = my_tramp(&format!("{body}\n{call}"));
        std::fs::write(b.path("t.S"), text).unwrap();
        b.tool(assembler, &["t.S", "-o", "t.o"]);
        let contract = contract(backend);
        std::fs::write(b.path("t.toml"), &contract).unwrap();
        let place = ["--object", "t.o", "--contract", "t.toml"];
        let run = |more: &[&str]| -> Value {
            let args = [&["mutate", "--format", "json"], more, &place].concat();
            json(&String::from_utf8(b.run(&args).stdout).unwrap())
        };
        let report = run(&[]);
        let results = report["results"].as_array().unwrap();
        let survivors: Vec<&Value> = results.iter().filter(|r| r["outcome"] != "killed").collect();
        assert!(survivors.is_empty(), "{arch}: {survivors:#?}");
        for (n, line) in body.lines().enumerate() {
            let mnemonic = match line.split_whitespace().next().unwrap() {
                "call" => &called,
                mnemonic => mnemonic,
            };
            let gone = |r: &&Value| r["diff"].as_array().unwrap().iter().all(|l| l.as_str().unwrap().starts_with('-'));
            let touched = results.iter().filter(gone).any(|r| r["diff"].to_string().contains(mnemonic));
            assert!(touched, "{arch}: line {n}, {line}: nothing is without it");
        }
        let kinds: Vec<&str> =
            report["scores"].as_array().unwrap().iter().map(|s| s["operator"].as_str().unwrap()).collect();
        for kind in ["DROP_SAVE", "DROP_RESTORE", "SWAP_SAVE", "NARROW_SAVE", "SLOT_OFFSET", "DROP_CALL", "DROP_LEAVE"]
        {
            assert!(kinds.contains(&kind), "{arch}: no {kind} in {kinds:?}");
        }
        let missed: Vec<&str> = report["missed"].as_array().unwrap().iter().map(|m| m.as_str().unwrap()).collect();
        assert!(missed.first().is_some_and(|m| m.starts_with(&format!("{arch} my_tramp+0x"))), "{arch}: {missed:?}");
        std::fs::write(b.path("run.json"), report.to_string()).unwrap();
        assert!(b.ok(&["report", "write", "run.json"]).contains(&format!("without mutants: {}", missed[0])));
        // What is printed runs this one again.
        let one = &results[0];
        let replay = one["replay"].as_str().unwrap().replace("tramptool mutate ", "").replace('\'', "");
        let words: Vec<&str> = replay.split(' ').collect();
        let again = json(&b.ok(&[&["mutate", "--format", "json"], &words[..]].concat()));
        assert_eq!(again["results"], Value::Array(vec![one.clone()]), "{replay}");
        b.refuses(&[&["mutate", "bug:all"], &place[..]].concat(), &["one or the other"]);
        // What is wrong already would be noticed with any fault; what the contract expects to be wrong hides none.
        std::fs::write(b.path("t.toml"), format!("{contract}keeps = [\"{scratch}\"]\n")).unwrap();
        b.refuses(
            &[&["mutate"], &place[..]].concat(),
            &["my_tramp fails P4 without a fault", "tramptool check my_tramp"],
        );
        let expected = format!("deviation = [{{ clause = \"P4\", place = \"{scratch}*\", reason = \"known\" }}]\n");
        std::fs::write(b.path("t.toml"), format!("{contract}keeps = [\"{scratch}\"]\n{expected}")).unwrap();
        let report = run(&[]);
        let results = report["results"].as_array().unwrap();
        let survivors: Vec<&Value> = results.iter().filter(|r| r["outcome"] != "killed").collect();
        assert!(survivors.is_empty() && noticed_early(results), "{arch}: {results:#?}");
    }
}

/// A register that is loaded twice: nobody finds that one of the loads is missing. Where it is stored to a variable in between, no clause
/// asks for that, but somebody could: the fault survives.
#[test]
fn only_what_nobody_can_find_is_equivalent() {
    for &backend in tool::BACKENDS {
        let facts = backend.facts();
        let (arch, by_hand) = (facts.name, expected(backend).by_hand);
        let b = Bench::new();
        std::fs::write(b.path("t.toml"), contract(backend)).unwrap();
        let without_a_load = |between: &str| -> Vec<String> {
            let behind = by_hand.text.lines().skip_while(|line| !line.starts_with(&by_hand.calls));
            let load = behind.skip(1).find(|line| line.contains(facts.abi.name(facts.abi.args[0]))).unwrap();
            let text = my_tramp(&by_hand.with(&format!("{load}\n{between}")));
            std::fs::write(b.path("t.S"), format!("{text}.bss\nstash: .quad 0\n")).unwrap();
            b.tool(facts.assembler, &["t.S", "-o", "t.o"]);
            let args = ["mutate", "--object", "t.o", "--contract", "t.toml", "--format", "json"];
            let report = json(&String::from_utf8(b.run(&args).stdout).unwrap());
            let loads = ["DROP_RESTORE", "RESTORE_ONE_PATH_ONLY"];
            let of_load = |r: &&Value| loads.iter().any(|load| r["operator"] == *load) && r["outcome"] != "killed";
            let results = report["results"].as_array().unwrap().iter().filter(of_load);
            results.map(|r| r["outcome"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(without_a_load(""), ["equivalent", "equivalent"], "{arch}");
        let (stores, _) = by_hand.kept.rsplit_once("; ").unwrap();
        assert_eq!(without_a_load(stores), ["survived", "equivalent"], "{arch}");
    }
}

/// The kernel's own objects, contract by contract: docs/findings.md has the figures, and what survives has a reason.
#[test]
#[ignore = "needs the kernel's objects: cargo xtask kernel-objects"]
fn faults_in_the_kernels_objects_are_noticed_or_known() {
    noticed_or_known(|name| name.starts_with("linux-"));
}

/// The same of those of Debian's packages.
#[test]
#[ignore = "needs objects of Debian's packages: cargo xtask package-objects"]
fn faults_in_the_objects_of_packages_are_noticed_or_known() {
    noticed_or_known(|name| !name.starts_with("linux-"));
}

fn noticed_or_known(wanted: impl Fn(&str) -> bool) {
    let b = Bench::new();
    let (table, findings) = (tool::mutate::bugs::table().unwrap(), include_str!("../docs/findings.md"));
    let mut reasons = Vec::new();
    for (name, _) in tool::contracts::CONTRACTS.iter().filter(|(name, _)| wanted(name)) {
        let objects = common::chosen(&kernel_cache::directory().unwrap().join(name));
        let mut args = vec!["mutate", "--format", "json", "--contract", name];
        args.extend(objects.iter().map(String::as_str));
        let report = json(&String::from_utf8(b.run(&args).stdout).unwrap());
        let results = report["results"].as_array().unwrap();
        let survived: Vec<&Value> = results.iter().filter(|r| r["outcome"] == "survived").collect();
        let unknown: Vec<&&Value> = survived.iter().filter(|r| r["reason"].is_null()).collect();
        assert!(unknown.is_empty(), "{name}: {unknown:#?}");
        let of = report["mutants"].as_u64().unwrap() - report["equivalent"].as_u64().unwrap();
        let row = format!("| `{name}` | {} of {of} | {} |", report["killed"], report["equivalent"]);
        assert!(findings.contains(&row), "docs/findings.md lacks: {row}");
        reasons.extend(results.iter().filter_map(|r| r["reason"].as_str().map(str::to_owned)));
    }
    for known in
        table.equivalent.iter().chain(&table.gap).filter(|known| !known.contract.is_empty() && wanted(&known.contract))
    {
        assert!(
            reasons.contains(&known.reason),
            "src/mutants.toml: {} of {} is noticed",
            known.operator,
            known.trampoline
        );
    }
}

/// Mutants of the kernel's 6.12 objects that `check` notices by a contract: `diff` without one notices each, or names it with the
/// reason, and that is so. README.md has the score.
#[test]
#[ignore = "needs the kernel's objects: cargo xtask kernel-objects"]
fn diff_sees_what_check_notices() {
    let b = Bench::new();
    let (mut noticed, mut seen, mut reasons) = (0, 0, Vec::new());
    for (name, _) in tool::contracts::CONTRACTS.iter().filter(|(name, _)| name.starts_with("linux-6.12-")) {
        let objects = common::chosen(&kernel_cache::directory().unwrap().join(name));
        let run = |by: &str| -> Vec<Value> {
            let mut args = vec!["mutate", "--format", "json", "--contract", name, "--by", by];
            args.extend(objects.iter().map(String::as_str));
            json(&String::from_utf8(b.run(&args).stdout).unwrap())["results"].as_array().unwrap().clone()
        };
        let (checked, observed) = (run("emulator"), run("observe"));
        assert!(!checked.is_empty() && checked.len() == observed.len(), "{name}");
        let killed = |(check, _): &(&Value, &Value)| check["outcome"] == "killed";
        let equivalent = |all: &[Value]| -> Vec<bool> { all.iter().map(|r| r["outcome"] == "equivalent").collect() };
        assert_eq!(equivalent(&checked), equivalent(&observed), "{name}");
        for (check, observe) in checked.iter().zip(&observed).filter(killed) {
            assert_eq!(check["mutant"], observe["mutant"], "{name}");
            noticed += 1;
            if !observe["verified"].as_array().unwrap().is_empty() {
                seen += 1;
                continue;
            }
            assert!(observe["outcome"] == "survived" && observe["reason"].is_string(), "{name}: {observe}");
            // What it names cannot be seen: the judge does not miss the instruction where it is left out.
            let place = |r: &Value| r["mutant"].as_str().unwrap().rsplit_once('@').unwrap().1.to_owned();
            let dropped = |r: &&Value| {
                (&r["trampoline"], place(r)) == (&check["trampoline"], place(check))
                    && r["operator"].as_str().unwrap().starts_with("DROP")
            };
            let outcome: Vec<&Value> = checked.iter().filter(dropped).map(|r| &r["outcome"]).collect();
            assert_eq!(outcome, ["equivalent"], "{name}: {check}");
            reasons.push(observe["reason"].as_str().unwrap().to_owned());
        }
    }
    let known = &tool::mutate::bugs::table().unwrap().unobserved;
    for known in known.iter().filter(|known| !known.contract.is_empty()) {
        assert!(
            reasons.contains(&known.reason),
            "src/mutants.toml: {} of {} is seen",
            known.operator,
            known.trampoline
        );
    }
    let text = format!(
        "- `tramptool diff`, without any contract, sees {seen} of the {noticed} single faults in Linux 6.12's own objects that\n  \
         `check` notices with one. It names the {} others, and why [running the code alone](docs/mutants.md) cannot show them.\n",
        reasons.len()
    );
    blessed_block("README.md", "<!-- begin observed -->", &text);
}

/// No type before a function, that of another, and one where callers do not look for it (Linux 883bbbffa5a4: one type for two
/// stubs).
#[test]
fn the_checker_notices_types_that_are_wrong() {
    let b = Bench::new();
    for backend in tool::BACKENDS {
        let arch = backend.facts().name;
        let types = expected(*backend).kernel_type;
        assert!(!types.is_empty());
        for set in types.iter().map(|of| &of.set) {
            let mut args = vec!["mutate", "ftrace_stub", "ftrace_stub_graph", "--format", "json", "--arch", arch];
            args.extend(set.iter().flat_map(|set| ["--set", set.as_str()]));
            let report = json(&b.ok(&args));
            let wrong = |r: &&Value| r["operator"].as_str().unwrap().starts_with("TYPE_");
            let typed: Vec<&Value> = report["results"].as_array().unwrap().iter().filter(wrong).collect();
            assert_eq!(typed.len(), 6, "{arch} {set:?}");
            let noticed = |r: &Value| r["clauses"].as_array().unwrap().contains(&"P13".into());
            assert!(typed.into_iter().all(noticed), "{arch} {set:?}: {report}");
        }
    }
}

/// A return instruction where the kernel has code in its place, and one without a trap behind it (Linux 1f001e9da6bb).
#[test]
fn the_checker_notices_returns_that_are_made_otherwise() {
    let b = Bench::new();
    let asks = |backend: &&&dyn Backend| backend.facts().options.iter().any(|option| option.name == "return");
    let those: Vec<_> = tool::BACKENDS.iter().filter(asks).collect();
    assert!(!those.is_empty());
    for backend in those {
        for (set, operator) in [("return=thunk", "RET_FOR_THUNK"), ("return=int3", "DROP_INT3")] {
            let how = ["--arch", backend.facts().name, "--set", set, "--only", operator, "--format", "json"];
            let report = json(&b.ok(&[&["mutate"][..], &how].concat()));
            let results = report["results"].as_array().unwrap();
            assert!(results.len() > 40, "{set}: {}", results.len());
            let noticed = |r: &Value| r["clauses"].as_array().unwrap().contains(&"P15".into());
            assert!(results.iter().all(noticed), "{set}: {report}");
        }
    }
}
