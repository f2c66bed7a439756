//! The checker must notice. Every instruction of the trampolines is replaced by a NOP, one at a time, in the object;
//! each such object must fail a clause. Unlike the mutants of `tests/mutate.rs`, these need nothing of the generator.

use codegen::spec::{Kind, Regs};
use emu_tests::{Clause, Filter, Suite, Verdict};
use object::{Object, ObjectSection, ObjectSymbol};

/// Offset in the file, length and relocation-freedom of each instruction of `symbol`.
fn instructions(suite: &Suite, listing: &codegen::text::TextListing) -> Vec<(usize, usize, String)> {
    let file = object::File::parse(&*suite.objects[0].1).unwrap();
    let text = file.section_by_name(".text").unwrap();
    let base = text.file_range().unwrap().0 as usize;
    let symbol = file.symbols().find(|s| s.name() == Ok(listing.name.as_str())).unwrap();
    let start = symbol.address() as usize;
    let relocated: Vec<usize> = text.relocations().map(|(at, _)| at as usize).collect();
    let code = listing.lines.iter().filter(|l| l.kind == codegen::text::LineKind::Insn);
    code.filter(|l| {
        let range = start + l.offset..start + l.offset + l.bytes.len();
        !relocated.iter().any(|r| range.contains(r))
    })
    .map(|l| (base + start + l.offset, l.bytes.len(), l.text.replace('\t', " ")))
    .collect()
}

/// The late direct path falls into the same instruction of the early one.
const MAY_SURVIVE: &str = "br x17";

#[test]
fn the_checker_notices_every_missing_instruction() {
    let mut survivors = Vec::new();
    let (mut killed, mut excused) = (0, 0);
    for backend in tramptool::BACKENDS {
        let target = tramptool::default_target(*backend).unwrap();
        let nop: &[u8] = match target.facts.fill.0 {
            [0xcc] => &[0x90],
            fill => fill,
        };
        let direct = Kind::Direct(codegen::spec::Direct { args: 3, ..Default::default() });
        let kinds = [Kind::Entry(Regs::Args), Kind::Entry(Regs::All), Kind::Return, Kind::StubDirect, direct];
        for kind in kinds {
            let spec = match kind {
                Kind::Direct(d) => codegen::spec::Spec::direct("direct_3", d, "direct_func"),
                kind => target.convention.specs().find(|s| s.kind == kind).unwrap(),
            };
            let listing = backend.text(&spec, &target).unwrap();
            let whole = tramptool::suite::suite(*backend, &target).unwrap();
            for (at, len, text) in instructions(&whole, &listing) {
                let mut suite = tramptool::suite::suite(*backend, &target).unwrap();
                for (i, byte) in suite.objects[0].1[at..at + len].iter_mut().enumerate() {
                    *byte = nop[i % nop.len()];
                }
                let filter = Filter { function: Some("args3".into()), ..Filter::default() };
                let report = emu_tests::check(&[suite], &filter, 1, &|_, _| {});
                let noticed = match &report {
                    Ok(report) => {
                        report.results.iter().any(|r| r.verdict == Verdict::Fail && r.clause != Clause::Coverage)
                    }
                    Err(e) => panic!("{text}: {e}"),
                };
                match noticed {
                    true => killed += 1,
                    false if text.contains(MAY_SURVIVE) => excused += 1,
                    false => survivors.push(format!("{} {}: {text}", target.facts.name, spec.name)),
                }
            }
        }
    }
    eprintln!("{killed} noticed, {excused} excused");
    assert!(survivors.is_empty(), "not noticed:\n{}", survivors.join("\n"));
    assert!(killed > 200 && excused == 1);
}
