//! The checker must notice. Every instruction of the trampolines is replaced by a NOP, one at a time, in the object;
//! each such object must fail a clause. Unlike the mutants of `tests/mutate.rs`, these need nothing of the generator.

use codegen::ask::spec::{Kind, Regs};
use emu_tests::{Clause, Filter, Row, Suite, Verdict};
use object::{Object, ObjectSection, ObjectSymbol};
use serde_json::Value;

use common::Bench;
use common::expected::expected;

mod common;

/// An instruction that no relocation changes.
struct Instruction {
    /// Offset in the file.
    at: usize,
    /// Offset in the trampoline.
    offset: usize,
    len: usize,
    text: String,
}

fn instructions(suite: &Suite, listing: &codegen::out::text::TextListing) -> Vec<Instruction> {
    let file = object::File::parse(&*suite.objects[0].1).unwrap();
    let text = file.section_by_name(".text").unwrap();
    let base = text.file_range().unwrap().0 as usize;
    let symbol = file.symbols().find(|s| s.name() == Ok(listing.name.as_str())).unwrap();
    let start = symbol.address() as usize;
    let relocated: Vec<usize> = text.relocations().map(|(at, _)| at as usize).collect();
    let code = listing.lines.iter().filter(|l| l.kind == codegen::out::text::LineKind::Insn);
    code.filter(|l| {
        let range = start + l.offset..start + l.offset + l.bytes.len();
        !relocated.iter().any(|r| range.contains(r))
    })
    .map(|l| Instruction {
        at: base + start + l.offset,
        offset: l.offset,
        len: l.bytes.len(),
        text: l.text.replace('\t', " "),
    })
    .collect()
}

#[test]
fn the_checker_notices_every_missing_instruction() {
    let mut survivors = Vec::new();
    for backend in tool::BACKENDS {
        let target = tool::default_target(*backend).unwrap();
        let nop: &[u8] = match target.facts.fill.0 {
            [0xcc] => &[0x90],
            fill => fill,
        };
        let trampolines = tool::suite::trampolines(&target).unwrap();
        let mut suites = [tool::suite::suite_of(*backend, &target, &trampolines).unwrap()];
        for spec in tool::suite::specs(&trampolines) {
            let named = [Kind::Entry(Regs::Args), Kind::Entry(Regs::All), Kind::Return, Kind::StubDirect];
            if !named.contains(&spec.kind) && spec.name != "direct_3" {
                continue;
            }
            let listing = backend.text(&spec, &target).unwrap();
            let instructions = instructions(&suites[0], &listing);
            assert!(!instructions.is_empty(), "{}: no instructions", spec.name);
            for Instruction { at, offset, len, text } in instructions {
                let was = suites[0].objects[0].1[at..at + len].to_vec();
                for (byte, fill) in suites[0].objects[0].1[at..at + len].iter_mut().zip(nop.iter().cycle()) {
                    *byte = *fill;
                }
                let concerning = Some(spec.name.to_owned());
                let filter = Filter { function: Some("args3".into()), concerning, ..Filter::default() };
                let report =
                    emu_tests::check(&suites, &filter, 1, &|_, _| {}).unwrap_or_else(|e| panic!("{text}: {e}"));
                suites[0].objects[0].1[at..at + len].copy_from_slice(&was);
                let fails = |r: &Row| r.verdict == Verdict::Fail && r.clause != Clause::Coverage;
                if !report.results.iter().any(fails) {
                    survivors.push((target.facts.name, spec.name.to_owned(), offset));
                }
            }
        }
    }
    let known = tool::BACKENDS.iter().flat_map(|&backend| {
        let survivors = expected(backend).survivor.into_iter();
        survivors.map(|s| (backend.facts().name, s.trampoline, s.offset))
    });
    let known: Vec<_> = known.collect();
    assert_eq!(survivors, known, "not noticed, and known");
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
            let report: Value = serde_json::from_str(&b.ok(&args)).unwrap();
            let wrong = |r: &&Value| r["operator"].as_str().unwrap().starts_with("TYPE_");
            let typed: Vec<&Value> = report["results"].as_array().unwrap().iter().filter(wrong).collect();
            assert_eq!(typed.len(), 6, "{arch} {set:?}");
            let noticed = |r: &Value| r["clauses"].as_array().unwrap().contains(&"P13".into());
            assert!(typed.into_iter().all(noticed), "{arch} {set:?}: {report}");
        }
    }
}
