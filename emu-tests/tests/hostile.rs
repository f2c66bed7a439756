//! Objects and contracts of others may say anything: the judge answers with a report or an error.

use codegen::ask::spec::{Direct, Spec};
use codegen::backend::Backend;
use codegen::out::obj;
use codegen::words::error::Result;
use tramptool_emu_tests::{Clause, Filter, Foreign, Report, Suite, Verdict, check, foreign_suites};

use common::{profile, target};

mod common;

fn backend() -> &'static dyn Backend {
    let arch = CONTRACT.lines().find_map(|line| line.strip_prefix("arch = ")).unwrap();
    arch::backend(arch.trim_matches('"')).unwrap()
}

const CONTRACT: &str = include_str!("direct.toml");

/// A sound object for [`CONTRACT`].
fn object() -> Vec<u8> {
    objects(&["my_tramp".to_owned()])
}

/// The same with trampolines of these names.
fn objects(names: &[String]) -> Vec<u8> {
    let target = target(backend());
    let direct = Direct { args: 2, ..Direct::default() };
    let specs: Vec<Spec> = names.iter().map(|name| Spec::direct(name, direct, "direct_func")).collect();
    obj::write(&backend().assemble(&specs, &target).unwrap(), &target).unwrap()
}

/// The same with the symbol in another section, at another offset, of another size.
fn moved(section: u16, value: u64, size: u64) -> Vec<u8> {
    let mut object = object();
    // Of a global function in section 1: st_info, st_other, st_shndx, then st_value and st_size.
    let at = object.windows(4).position(|w| w == [0x12, 0, 1, 0]).unwrap();
    object[at + 2..at + 4].copy_from_slice(&section.to_le_bytes());
    object[at + 4..at + 12].copy_from_slice(&value.to_le_bytes());
    object[at + 12..at + 20].copy_from_slice(&size.to_le_bytes());
    object
}

fn suite(contract: &str, object: Vec<u8>) -> Result<Suite> {
    let objects = vec![("t.o".to_owned(), object)];
    let foreign = Foreign::new("t.toml", contract, objects, profile());
    foreign_suites(&foreign, &[backend()]).map(|mut suites| suites.remove(0))
}

fn judged(contract: &str, object: Vec<u8>) -> Result<Report> {
    let filter = Filter { fixture: Some("plain".to_owned()), ..Filter::default() };
    check(&[suite(contract, object)?], &filter, 1, &|_, _| {})
}

fn refused(contract: &str, object: Vec<u8>, part: &str) {
    let e = judged(contract, object).map(|r| r.summary).unwrap_err().to_string();
    assert!(e.contains(part), "no '{part}' in {e}");
}

#[test]
fn a_symbol_may_be_anywhere() {
    const ABSOLUTE: u16 = 0xfff1;
    assert_eq!(judged(CONTRACT, object()).unwrap().summary.fail, 0);
    for (section, value) in [(ABSOLUTE, 0x10), (ABSOLUTE, 1 << 62), (ABSOLUTE, u64::MAX), (1, 0x10_0000)] {
        refused(CONTRACT, moved(section, value, 0), "is not inside the linked image");
    }
    // A size that is too large ends with the section.
    assert!(judged(CONTRACT, moved(1, 0, u64::MAX)).is_ok());
    // One that ends in the middle of an instruction is wrong.
    let failing = |size| {
        let report = judged(CONTRACT, moved(1, 0, size)).unwrap();
        report.results.iter().any(|r| r.clause == Clause::P19 && r.verdict == Verdict::Fail)
    };
    // ENDBR64 has four bytes.
    assert!(failing(3) && !failing(4));
}

#[test]
fn a_run_that_fails_with_every_instruction_is_told_in_few() {
    let mut object = object();
    let at = object.windows(4).position(|w| w == [0xf3, 0x0f, 0x1e, 0xfa]).unwrap();
    // 1: mov -8(%rsp), %rax; jmp 1b
    object[at..at + 7].copy_from_slice(&[0x48, 0x8b, 0x44, 0x24, 0xf8, 0xeb, 0xf9]);
    let report = judged(CONTRACT, object).unwrap();
    let p7 = report.results.iter().find(|r| r.clause == Clause::P7).unwrap();
    assert_eq!(p7.verdict, Verdict::Fail);
    let failures: u64 = p7.reason.trim_end_matches(" failures").parse().unwrap();
    assert!(failures <= 100 * report.scenarios, "{failures} in {} scenarios", report.scenarios);
}

#[test]
fn a_contract_may_ask_for_anything() {
    let (head, one) = CONTRACT.split_once("[[").unwrap();
    refused(&format!("{head}{}", format!("[[{one}").repeat(2)), object(), "t.toml:16: my_tramp has a contract already");
    let many = |count: usize| {
        let names: Vec<String> = (0..count).map(|i| format!("my_tramp_{i}")).collect();
        let each = names.iter().map(|name| format!("[[{}", one.replace("my_tramp", name)));
        (format!("{head}{}", each.collect::<String>()), objects(&names))
    };
    let (contract, object_of_64) = many(64);
    let summary = judged(&contract, object_of_64).unwrap().summary;
    assert!(summary.fail == 0 && summary.pass > 64, "{summary:?}");
    let (contract, object_of_65) = many(65);
    refused(&contract, object_of_65, "65 trampolines; valid: at most 64");
    // ip takes one of the six registers.
    refused(&CONTRACT.replace("args = 2", "args = 6\nip = true"), object(), "t.toml:8: args = 6; valid: 0 to 5");
    let returning = CONTRACT.replace("kind = \"direct\"\nargs = 2", "kind = \"return\"");
    for size in [-1, i32::MIN, 4097, i32::MAX] {
        let frame = format!("frame = \"f\"\n[frame.f]\nstruct = \"s\"\nsize = {size}\nfield = []\n");
        refused(&format!("{returning}{frame}"), object(), &format!("t.toml:13: size = {size}; valid: 0 to 4096"));
    }
    let ops = |text: &str| CONTRACT.replace("about", &format!("ftrace-ops = {{ {text} }}\nabout"));
    assert!(judged(&ops("func = 0x7fffffffffffffff, direct_call = 0"), object()).is_ok());
    refused(&ops("func = 0x7fffffffffffffff"), object(), "missing field `direct_call`");
}
