//! Contracts that are written out say what the generator's own contracts say, and both ways to a verdict agree.

use std::collections::BTreeSet;
use std::fs;

use codegen::arch::harden::ReturnStyle;
use codegen::ask::frame::{Content, Field, Stores};
use codegen::ask::live::Live;
use codegen::ask::option::Choices;
use codegen::ask::spec::{Kind, Programs, Spec};
use codegen::backend::Backend;
use codegen::contract::Contract;
use codegen::profile::Convention;
use codegen::profile::target::Target;
use codegen::words::abi::RegSet;
use common::Bench;
use common::expected::{contract, expected, my_tramp};
use emu_tests::{Clause, Configuration, Filter, Foreign, Report, Suite, Verdict};
use tool::kernel::Tree;
use tool::suite::{contract_file, specs, suite_of_specs, trampolines};

mod common;

/// The trampolines that were generated, and the object with the contract that was written beside it.
fn both(backend: &'static dyn Backend, target: &Target, specs: &[Spec]) -> (Suite, Suite) {
    let generated = suite_of_specs(backend, target, specs).unwrap();
    let text = contract_file(backend, specs, &backend.assemble(specs, target).unwrap(), target).unwrap();
    let named = emu_tests::contract_profile(&text).unwrap();
    let foreign = Foreign::new("written.toml", &text, generated.objects.clone(), tool::profile(&named).unwrap());
    let read = emu_tests::foreign_suites(&foreign, tool::BACKENDS).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let [read] = <[_; 1]>::try_from(read).ok().unwrap();
    (generated, read)
}

/// What the judge asks of a contract, in a form that two of them can be compared in.
fn asked(c: &Contract) -> String {
    let member = |f: &&Field| !f.member.is_empty() && !matches!(f.content, Content::Result(_));
    let told: Vec<_> =
        c.frame.fields.iter().filter(member).map(|f| (f.member, f.offset, f.content, f.stores)).collect();
    // What may be rewritten, wherever it is.
    let takes_effect = |f: &&Field| f.stores == Stores::TakeEffect && !f.in_record;
    let attaches_and_rewrites = c.kind.traits().gives != codegen::ask::kind::Gives::Arguments;
    let mut written: Vec<_> = c.frame.fields.iter().filter(takes_effect).map(|f| format!("{:?}", f.content)).collect();
    written.sort();
    written.dedup();
    written.retain(|content| attaches_and_rewrites && (content.starts_with("Re") || !content.contains("Vector")));
    // Where the function is not called, nobody asks for its result.
    let result = |programs: Programs| if programs.call_orig { programs.result } else { Live::default() };
    // Of the trampoline's own registers, a file states those that the function finds.
    let own = RegSet::EMPTY;
    let kind = c.kind.programs().map_or(c.kind, |p| Kind::Programs(Programs { result: result(p), own, ..p }));
    let s = &c.stated;
    let around = (&s.around_programs, &s.around_function, s.own, s.ip_is_start);
    let records: Vec<_> = c.frame.records.iter().map(|r| r.ret).collect();
    let traced = c.traced.as_ref().map(|t| (&t.function, t.resume, c.kind.around().map(|_| &t.exit)));
    format!(
        "{} {:?}\ncalls {:?} {traced:?} {:?}\n{} of {} bytes\n{told:?}\nwritten {written:?}\n{records:?}\nkept {:?}\n\
         clobbered {:?}\nflags {} direct {} {} {:?} early {} align {} pad {} {} type {:?} returns {:?} \
         unpaired {} mispredicted {} marks {} around {around:?}",
        c.name,
        kind,
        // The profile's callback is called through its slot, or by its name.
        if c.kind.calls_back() { "" } else { &c.callee },
        c.programs,
        c.frame.c_struct,
        c.frame.c_size,
        c.kept,
        c.clobbered,
        c.flags_kept,
        c.direct,
        c.direct_jumps,
        if c.direct { Some(c.direct_lost) } else { None },
        c.early_direct,
        c.stack_align,
        c.landing_pad,
        c.entry_pad,
        c.type_before,
        c.returns.and_then(ReturnStyle::name),
        c.unpaired,
        // Where a return was redirected, the call that it belonged to is lost whatever the trampoline does.
        if c.kind.returned_to() { 0 } else { c.mispredicted },
        c.marks_regs,
    )
}

#[test]
fn a_contract_that_is_written_and_read_asks_the_same_under_every_option() {
    for backend in tool::BACKENDS {
        for target in common::targets(*backend) {
            let all = trampolines(&target).unwrap();
            let (generated, read) = both(*backend, &target, &specs(&all));
            assert_eq!(generated.contracts.len(), read.contracts.len());
            for (ours, theirs) in generated.contracts.iter().zip(&read.contracts) {
                assert_eq!(asked(ours), asked(theirs), "{} {}", target.facts.name, target.describe());
            }
            assert_eq!(generated.slots, read.slots);
            assert_eq!(generated.op_offsets, read.op_offsets);
        }
    }
}

/// Clause by clause: the verdict, why, and how much was checked. That is not the same of `varied` ones: the judge of a contract that
/// is read runs them with those functions alone that they do not lead back to the site of, and the other one moves functions.
fn verdicts(report: &Report, varied: &BTreeSet<String>) -> Vec<String> {
    let row = |r: &emu_tests::Row| {
        let checks = if varied.contains(&r.trampoline) { u64::from(r.checks > 0) } else { r.checks };
        format!("{} {}: {:?}, {checks} checks; {}", r.trampoline, r.clause, r.verdict, r.reason)
    };
    report.results.iter().map(row).collect()
}

/// For every trampoline.
fn both_ways_agree(backend: &'static dyn Backend, target: &Target, filter: &Filter) {
    let all = trampolines(target).unwrap();
    let (generated, read) = both(backend, target, &specs(&all));
    let traced = generated.contracts.iter().filter(|c| c.traced.is_some());
    let varied: BTreeSet<String> = traced.map(|c| c.name.to_string()).collect();
    let judged = |suite| verdicts(&emu_tests::check(&[suite], filter, 1, &|_, _| {}).unwrap(), &varied);
    let (generated, read) = (judged(generated), judged(read));
    assert!(!generated.is_empty());
    let what = format!("{} {} [{}]", target.facts.name, target.convention.profile, target.describe());
    for (ours, theirs) in generated.iter().zip(&read) {
        assert_eq!(ours, theirs, "{what}");
    }
    assert_eq!(generated.len(), read.len(), "{what}");
}

/// What every profile offers for every architecture.
fn conventions() -> impl Iterator<Item = (&'static dyn Backend, &'static Convention)> {
    let of = |backend: &'static dyn Backend| {
        let profiles = profiles::names().into_iter().map(|name| tool::profile(name).unwrap());
        profiles.filter_map(move |profile| Some((backend, profile.convention(backend.facts().name).ok()?)))
    };
    tool::BACKENDS.iter().copied().flat_map(of)
}

/// Few sets of options, the default first: each value of each option stands in one of them.
fn each_value(convention: &Convention) -> Vec<Choices> {
    let all = convention.combinations(|_| true);
    let values = |choices: &Choices| -> BTreeSet<(usize, usize)> {
        convention.offered().map(|(rule, _)| (rule.index, choices.get(rule.index))).collect()
    };
    let mut open: BTreeSet<_> = all.iter().flat_map(values).collect();
    let mut chosen = Vec::new();
    let mut next = all.first();
    while let Some(choices) = next {
        open = &open - &values(choices);
        chosen.push(*choices);
        next = all.iter().max_by_key(|c| values(c).intersection(&open).count()).filter(|_| !open.is_empty());
    }
    chosen
}

/// Under every set of options they ask the same, says the test above; here each value of each option is run.
#[test]
fn both_ways_to_a_verdict_agree_under_each_value_of_each_option() {
    for (backend, convention) in conventions() {
        // Of older kernels, the default alone.
        let each = [profiles::DEFAULT, profiles::USER].contains(&convention.profile);
        let sets = if each { each_value(convention) } else { vec![convention.defaults()] };
        for (rule, option) in convention.offered().filter(|_| each) {
            let chosen: BTreeSet<usize> = sets.iter().map(|c| c.get(rule.index)).collect();
            assert_eq!(chosen.len(), option.values.len(), "{}: {}", backend.facts().name, option.name);
        }
        for choices in sets {
            // What takes longest is done under the default only.
            let closely = (choices != convention.defaults()).then_some(false);
            let filter = Filter { closely, ..Filter::default() };
            both_ways_agree(backend, &backend.target(convention, choices).unwrap(), &filter);
        }
    }
}

/// The options that hold without, and each other value of each option by itself, with the number of that option.
fn one_by_one(convention: &Convention) -> Vec<(Choices, Option<usize>)> {
    let defaults = convention.defaults();
    let others = convention.offered().flat_map(|(rule, option)| {
        let values = (0..option.values.len()).filter(|value| *value != rule.default);
        values.map(|value| (defaults.with(rule.index, value), Some(rule.index)))
    });
    [(defaults, None)].into_iter().chain(others).collect()
}

/// Whatever it takes to lead to it, or where it leads: the judge stands in for what was not given.
#[test]
fn each_trampoline_is_judged_by_itself_under_each_option_that_changes_it() {
    for (backend, convention) in conventions() {
        for (choices, changed) in one_by_one(convention) {
            let target = backend.target(convention, choices).unwrap();
            let changes = |kind| {
                let of = changed.and_then(|index| convention.offered().find(|(rule, _)| rule.index == index));
                of.is_none_or(|(_, option)| convention.changes(option, kind))
            };
            for spec in convention.specs().filter(|spec| changes(spec.kind)) {
                let (_, alone) = both(backend, &target, &[spec]);
                let report = emu_tests::check(&[alone], &Filter::default(), 1, &|_, _| {}).unwrap();
                let what = format!("{} of {} [{}]", spec.name, convention.argument, target.describe());
                for row in &report.results {
                    assert_ne!(row.verdict, Verdict::Fail, "{what}: {} {}", row.clause, row.reason);
                }
                let covered = report.results.iter().find(|row| row.clause == Clause::Coverage).unwrap();
                assert_eq!(covered.verdict, Verdict::Pass, "{what}: {}", covered.reason);
            }
        }
    }
}

/// As a user does it: the files of one run go together, under the profile that the contract names.
#[test]
fn the_object_and_the_contract_of_one_run_go_together() {
    let b = Bench::new();
    let arch = tool::BACKENDS[0].facts().name;
    let gen_all = ["gen", "--all", "--arch", arch, "--profile", "bare", "--emit", "obj,contract"];
    b.ok(&[&gen_all[..], &["--stem", "all", "-o", "."]].concat());
    let text = std::fs::read_to_string(b.path("all.toml")).unwrap();
    let profile = text.lines().find(|line| line.starts_with("profile")).unwrap();
    assert_eq!(profile, "profile = \"bare\"");
    let check = ["check", "--contract", "all.toml", "--object", "all.o"];
    let report = b.ok(&[&check[..], &["-v"]].concat());
    assert!(report.contains("trace_caller"), "{report}");
    b.refuses(&[&check[..], &["--profile", "linux-6.12"]].concat(), &["all.toml:3: is for profile bare"]);
    // One fault: the contract is the same, and the object breaks it.
    let convention = tool::profile("bare").unwrap().convention(arch).unwrap();
    let target = tool::BACKENDS[0].target(convention, convention.defaults()).unwrap();
    let spec = convention.specs().next().unwrap();
    let mutants = tool::BACKENDS[0].mutants(&spec, &target).unwrap();
    let fault = mutants.iter().find(|mutant| mutant.operator.name() == "DROP_RESTORE").unwrap();
    b.ok(&[&gen_all[..], &["--stem", "faulty", "-o", ".", "--fault", &format!("{}:{fault}", spec.name)]].concat());
    assert_eq!(std::fs::read_to_string(b.path("faulty.toml")).unwrap(), text);
    let report = b.ends(1, &["check", "--contract", "faulty.toml", "--object", "faulty.o"]);
    assert!(report.contains("FAIL "), "{report}");
}

/// Alone at the edge of what a site reaches, it must still reach the function from its own last instruction.
#[test]
fn one_that_goes_on_in_the_function_is_judged_alone() {
    let around = ["around", "--form", "fregs", "--call", "trace_entry", "--exit", "trace_exit"];
    let record = ["record", "--events", "both", "--clock", "none", "--sig", "long f(long a)"];
    for arch in tool::BACKENDS.iter().map(|backend| backend.facts().name) {
        for kind in [&around[..], &record[..]] {
            let b = Bench::new();
            let place = ["--arch", arch, "--profile", "bare", "--function", "traced_function+8", "--name", "mine"];
            b.ok(&[&["gen"], kind, &place, &["--emit", "obj,contract", "--stem", "m"]].concat());
            let out = b.ok(&["check", "--object", "m.o", "--contract", "m.toml"]);
            assert!(out.contains(" 0 fail, "), "{out}");
        }
    }
}

#[test]
fn a_slot_where_no_call_begins_is_an_error_that_says_where_calls_are() {
    let mut seen = 0;
    for (arch, _) in common::arches() {
        let b = Bench::new();
        let generated = ["gen", "ftrace_caller", "--arch", arch, "--profile", "linux-6.12", "--stem", "t"];
        b.ok(&[&generated[..], &["--emit", "obj,contract"]].concat());
        let contract = fs::read_to_string(b.path("t.toml")).unwrap();
        // Where the site says whom to call, there is none.
        if !contract.contains("slot = \"ftrace_call\"\n") {
            continue;
        }
        seen += 1;
        for (slot, message) in [("nowhere", "no object has this label"), ("ftrace_caller", "no call begins there")] {
            fs::write(b.path("other.toml"), contract.replace("\"ftrace_call\"", &format!("{slot:?}"))).unwrap();
            let words = ["check", "--object", "t.o", "--contract", "other.toml"];
            b.refuses(
                &words,
                &["other.toml:", &format!("slot = {slot:?} of ftrace_caller"), message, "ftrace_caller+0x"],
            );
        }
        b.ok(&["check", "--object", "t.o", "--contract", "t.toml", "--function", "args2", "--situation", "plain"]);
    }
    assert!(seen > 1, "{seen}");
}

#[test]
fn mistakes_in_contracts_of_trampolines_that_call_the_function_are_told_with_their_line() {
    const PROGRAMS: &str = "\
arch = \"arm64\"
about = \"programs\"

[[trampoline]]
symbol = \"t\"
kind = \"programs\"
live = { registers = [\"x0\"] }
words = [\"x0\", \"stack+0\"]
flags = [\"CALL_ORIG\"]
programs = [{ attach = \"fexit\", calls = \"p\" }]
function = \"f\"
resume = 8
stack-align = 16
";
    let read = |(old, new): (&str, &str)| {
        assert!(PROGRAMS.contains(old), "{old}");
        let text = PROGRAMS.replace(old, new);
        let profile = tool::profile(profiles::DEFAULT).unwrap();
        let (contract_name, objects) = ("t.toml", Vec::new());
        let foreign = Foreign::new(contract_name, &text, objects, profile);
        emu_tests::foreign_suites(&foreign, tool::BACKENDS).err().map(|e| e.to_string())
    };
    let refused = |change, message: &str| {
        let found = read(change).unwrap_or_default();
        assert!(found.starts_with(message), "{found}");
    };
    assert_eq!(read(("f", "f")), None);
    refused(("live = { registers = [\"x0\"] }\n", ""), "t.toml:12: t is of kind programs: give live");
    refused(("registers = [\"x0\"]", "registers = [\"x99\"]"), "t.toml:7: unknown register 'x99'");
    refused(("calls = \"p\"", "calls = \"p\\u0000q\""), "t.toml:10: a NUL ends every name; valid: strings without");
    refused(("stack+0", "stack+4"), "t.toml:8: unknown word 'stack+4'; valid: stack+0, stack+8, ...");
    refused(("[\"CALL_ORIG\"]", "[\"ORIG\"]"), "t.toml:9: unknown flag 'ORIG'; valid: CALL_ORIG");
    refused(("[\"CALL_ORIG\"]", "[]"), "t.toml:13: flags of t; valid: one of CALL_ORIG, RESTORE_REGS and INDIRECT");
    refused(("[\"CALL_ORIG\"]", "[\"RESTORE_REGS\"]"), "t.toml:11: function is for trampolines that call it");
    let around = "calls = \"p\", around = { enter = \"a\", exit = \"b\" } }, { attach = \"fexit\", calls = \"q\" }]";
    refused(("calls = \"p\" }]", around), "t.toml:10: 1 of 2 programs have `around`; valid: all, or none");
    let all = ("[[trampoline]]", "[[trampoline]]\naround = { enter = \"a\", exit = \"b\" }");
    refused(all, "t.toml:5: around all is for programs that have `around` too");
    let wide = ("calls = \"p\" }", "calls = \"p\", cookie = 4294967296 }");
    refused(wide, "t.toml:10: cookie = 4294967296; valid: -2147483648 to 2147483647");
    let bytes = ("\"stack+0\"", "{ at = \"stack+0\", bytes = 9 }");
    refused(bytes, "t.toml:8: bytes = 9 of stack+0; valid: 1 to 8");
    refused(("[\"x0\", \"stack+0\"]", "[{ at = \"x0\", bytes = 4 }]"), "t.toml:8: bytes = 4 of x0; valid: 1 to 8");
    let own = "resume = 8\nholds-own = [\"x0\"]";
    refused(("resume = 8", own), "t.toml:13: x0 is no callee-saved register");
    refused(
        ("resume = 8", "resume = 8\nfunction-align = 3"),
        "t.toml:13: function-align = 3; valid: a power of 2 to 64",
    );
    refused(
        ("resume = 8", "resume = 8\nip-is-start = true"),
        "t.toml:14: ip-is-start is for kind programs, with IP_ARG",
    );
    let direct = |more: &str| {
        let (head, tail) = (PROGRAMS.split("kind").next().unwrap(), "stack-align = 16\n");
        read((PROGRAMS, &format!("{head}kind = \"direct\"\nargs = 1\ncalls = \"p\"\n{more}{tail}"))).unwrap_or_default()
    };
    assert_eq!(direct(""), "");
    assert_eq!(direct("jump = true\nfunction = \"f\"\nresume = 8\n"), "");
    assert!(direct("jump = true\nresume = 8\n").starts_with("t.toml:11: t is of kind direct: give function"));
    assert!(direct("resume = 8\n").starts_with("t.toml:9: resume is for trampolines that call it, or jump there"));
    refused(("attach = \"fexit\"", "attach = \"after\""), "t.toml:10: unknown variant `after`");
    refused(("function = \"f\"\n", ""), "t.toml:12: t is of kind programs: give function");
    refused(("resume = 8\n", ""), "t.toml:12: t is of kind programs: give resume");
    refused(("stack-align", "form = \"frame\"\nstack-align"), "t.toml:13: form is for kind around, record only");
    refused(("stack-align", "exit = \"e\"\nstack-align"), "t.toml:13: exit is for kind around only");
    refused(
        ("stack-align", "direct-loses = [\"x9\"]\nstack-align"),
        "t.toml:13: direct-loses is for kind entry, regs only",
    );
    refused(("resume = 8", "resume = 8\nip = true"), "t.toml:14: ip is for kind direct only");
    refused(
        ("{ registers = [\"x0\"] }", "{ registers = [\"x0\"], vectors = 9 }"),
        "t.toml:7: vectors = 9; valid: 0 to 8",
    );
    refused(("about", "profile = \"bare\"\nabout"), "t.toml:2: is for profile bare; give --profile bare");
}

/// The contract that the configuration of a kernel chooses, of this version.
fn contract_for(version: &str, options: &[&str]) -> String {
    let set: String = options.iter().map(|option| format!("CONFIG_{option}=y\n")).collect();
    let config = format!("# Linux/any {version} Kernel Configuration\n{set}");
    let tree = Tree { config: (".config", &config), version: None };
    let profile = tree.profile().unwrap();
    tool::contracts::for_kernel(&tree, profile).map_or_else(|e| e.to_string(), |contract| contract.name)
}

#[test]
fn the_configuration_of_a_kernel_chooses_the_contract() {
    let orc = &["X86_64", "UNWINDER_ORC", "CC_IS_GCC"][..];
    let ibt = &["X86_64", "UNWINDER_ORC", "X86_KERNEL_IBT"][..];
    let cases: [(&str, &[&str], &str); 14] = [
        ("6.12.117", orc, "linux-6.12-x86_64-orc"),
        ("6.12.117", ibt, "linux-6.12-x86_64-debian"),
        ("6.12.117", &["X86_64", "UNWINDER_FRAME_POINTER", "X86_KERNEL_IBT"], "linux-6.12-x86_64-fp"),
        ("7.3.4", orc, "linux-7.3-x86_64-orc"),
        ("7.3.4", &["X86_64", "UNWINDER_GUESS"], "linux-7.3-x86_64-orc"),
        ("7.3.4", &["X86_64", "UNWINDER_ORC", "CFI"], "linux-7.3-x86_64-cfi"),
        ("7.3.4", &["ARM64", "DYNAMIC_FTRACE_WITH_CALL_OPS"], "linux-7.3-arm64-call-ops"),
        ("7.3.4", &["ARM64"], "linux-7.3-arm64"),
        ("7.3.4", &["ARM64", "CFI"], "linux-7.3-arm64-cfi"),
        ("7.3.4", &["ARCH_RV64I", "CC_IS_GCC"], "linux-7.3-riscv64-norvc"),
        ("7.3.4", &["ARCH_RV64I", "CC_IS_CLANG", "RISCV_ISA_C"], "linux-7.3-riscv64-clang"),
        ("7.3.4", &["ARCH_RV64I", "CC_IS_CLANG", "CFI"], "linux-7.3-riscv64-cfi"),
        ("6.12.117", &["ARCH_RV64I", "RISCV_ISA_C"], "linux-6.12-riscv64"),
        ("6.12.117", &["ARCH_RV64I", "RISCV_ISA_C", "FRAME_POINTER"], "linux-6.12-riscv64-debian"),
    ];
    for (version, options, expected) in cases {
        assert_eq!(contract_for(version, options), expected, "{version} {options:?}");
    }
    let none = contract_for("7.3.4", &["X86_64", "UNWINDER_FRAME_POINTER", "CFI"]);
    let parts = [".config: no contract", "linux-7.3-x86_64-orc (!UNWINDER_FRAME_POINTER !CFI)"];
    assert!(parts.iter().all(|part| none.contains(part)), "{none}");
}

/// A stated deviation that is not there fails where the configuration says that it must be there, and only there.
#[test]
fn what_deviates_in_one_configuration_only_is_expected_there_only() {
    for backend in tool::BACKENDS {
        let by_hand = expected(*backend).by_hand;
        let b = Bench::new();
        fs::write(b.path("t.S"), my_tramp(&by_hand.text)).unwrap();
        b.tool(backend.facts().assembler, &["t.S", "-o", "t.o"]);
        let object = fs::read(b.path("t.o")).unwrap();
        let deviation = "deviation = [{ clause = \"P7\", place = \"sp\", config = [\"OTHER\"], reason = \"known\" }]\n";
        let text = contract(*backend) + deviation;
        let verdict = |config: Option<&Configuration>| {
            let objects = vec![("t.o".to_owned(), object.clone())];
            let profile = tool::profile(profiles::DEFAULT).unwrap();
            let foreign = Foreign { config, ..Foreign::new("t.toml", &text, objects, profile) };
            let suites = emu_tests::foreign_suites(&foreign, tool::BACKENDS).unwrap();
            let report = emu_tests::check(&suites, &Filter::default(), 1, &|_, _| {}).unwrap();
            report.results.iter().any(|row| row.verdict == Verdict::Fail)
        };
        let arch = backend.facts().name;
        assert!(!verdict(None), "{arch}: it may be there or not");
        assert!(!verdict(Some(&Configuration::of("# CONFIG_OTHER is not set\n"))), "{arch}");
        assert!(verdict(Some(&Configuration::of("CONFIG_OTHER=y\n"))), "{arch}");
    }
}
