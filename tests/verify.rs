//! The symbolic checker on everything that is generated: no false alarm, and how long it takes.

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use codegen::ask::spec::{Body, Kind, Spec};
use codegen::backend::Backend;
use codegen::contract::Contract;
use codegen::effect::faults::Operator;
use codegen::plan::Plan;
use codegen::profile::target::Target;
use codegen::verify::{self, Property};
use codegen::words::step::Step;
use tool::suite;

/// Every trampoline of every kind, under every set of options.
#[test]
fn nothing_that_is_generated_has_a_fault() {
    let mut wrong = Vec::new();
    for backend in tool::BACKENDS {
        let (mut spent, mut count) = (Duration::ZERO, 0);
        for target in common::targets(*backend) {
            let trampolines = suite::trampolines(&target).unwrap();
            for spec in suite::specs(&trampolines) {
                let from = Instant::now();
                let faults = backend.verify(&spec, &target, None).unwrap();
                (spent, count) = (spent + from.elapsed(), count + 1);
                let options = target.describe();
                wrong.extend(faults.iter().map(|f| format!("{} {} {options}: {f}", backend.facts().name, spec.name)));
            }
        }
        let each = spent.as_secs_f64() * 1e6 / f64::from(count);
        println!("{}: {count} trampolines generated and checked, {each:.1} us each", backend.facts().name);
    }
    assert!(wrong.is_empty(), "{} false alarms, such as\n{}", wrong.len(), wrong[..wrong.len().min(60)].join("\n"));
}

/// Where a return address comes signed, the trampolines that go on at a copy of the function authenticate it first. One that does not,
/// or that moves SP before, has a fault.
#[test]
fn a_signed_return_address_is_authenticated() {
    let mut checked = 0;
    for backend in tool::BACKENDS {
        let bare = tool::profile("bare").unwrap().convention(backend.facts().name).unwrap();
        let target = backend.target(bare, bare.defaults()).unwrap();
        let body = Body { function: "copy", resume: 0, exit: "exit", signed: true };
        let kinds = suite::trampolines(&target).unwrap().into_iter().map(|(_, kind)| kind);
        for kind in kinds.filter(|kind: &Kind| kind.recorder().is_some() || kind.around().is_some()) {
            let spec = Spec { callee: "callee", body, ..Spec::of("tramp", kind) };
            let Ok(mutants) = backend.mutants(&spec, &target) else { continue };
            assert_eq!(backend.verify(&spec, &target, None).unwrap(), [], "{kind:?}");
            let first = |mutant: &&codegen::mutate::Mutant| mutant.offset == 4;
            for mutant in
                mutants.iter().filter(first).filter(|m| matches!(m.operator, Operator::CheckMissing | Operator::Swap))
            {
                let faults = backend.verify(&spec, &target, Some(mutant)).unwrap();
                assert!(!faults.is_empty(), "{kind:?}: {mutant}");
                checked += 1;
            }
        }
    }
    assert!(checked > 10, "{checked}");
}

/// What is found in the mutants of everything that is generated under one set of options, or in one of `step`.
#[derive(Default)]
struct Found {
    mutants: usize,
    unnoticed: usize,
    faults: BTreeMap<Property, usize>,
}

impl Found {
    fn add(&mut self, backend: &dyn Backend, target: &Target, step: usize) {
        for spec in suite::specs(&suite::trampolines(target).unwrap()) {
            for mutant in backend.mutants(&spec, target).unwrap().iter().step_by(step) {
                let faults = backend.verify(&spec, target, Some(mutant)).unwrap();
                self.mutants += 1;
                self.unnoticed += usize::from(faults.is_empty());
                faults.iter().for_each(|fault| *self.faults.entry(fault.property).or_default() += 1);
            }
        }
    }
}

/// A change of a plan's steps, at one of them.
type Edit = fn(&mut Vec<Step>, usize);

/// What was done to the steps of plans.
const EDITS: [(&str, Edit); 4] = [
    ("without", |steps, at| {
        steps.remove(at);
    }),
    ("twice", |steps, at| steps.insert(at, steps[at])),
    ("swapped", |steps, at| {
        let to = (at + 1).min(steps.len() - 1);
        steps.swap(at, to);
    }),
    ("at the end", |steps, at| steps[at..].rotate_left(1)),
];

impl Found {
    /// The same in plans of which every step in turn is edited so.
    fn add_plans(&mut self, target: &Target, edit: Edit) {
        for spec in suite::specs(&suite::trampolines(target).unwrap()) {
            let contract = Contract::of(&spec, target).unwrap();
            let mut plan = Plan::default();
            plan.make(&spec, target).unwrap();
            assert_eq!(verify::plan::plan(&plan, &contract), [], "{}", spec.name);
            let steps = plan.steps.clone();
            for at in 0..steps.len() {
                plan.steps.clone_from(&steps);
                edit(&mut plan.steps, at);
                let faults = verify::plan::plan(&plan, &contract);
                self.mutants += 1;
                self.unnoticed += usize::from(faults.is_empty());
                faults.iter().for_each(|fault| *self.faults.entry(fault.property).or_default() += 1);
            }
        }
    }
}

/// What was found in each of a few sets, as a table.
fn table(name: &str, columns: &[(&str, Found)]) -> String {
    let mut out = String::new();
    let names: String = columns.iter().map(|(name, _)| format!("{name:>11}")).collect();
    writeln!(out, "\n{name:11}{names}").unwrap();
    let mut row = |name: &str, cell: &dyn Fn(&Found) -> usize| {
        let cells: String = columns.iter().map(|(_, found)| format!("{:>11}", cell(found))).collect();
        writeln!(out, "{name:11}{cells}").unwrap();
    };
    row("mutants", &|found| found.mutants);
    row("unnoticed", &|found| found.unnoticed);
    for property in Property::ALL {
        row(property.name(), &|found| found.faults.get(property).copied().unwrap_or(0));
    }
    out
}

/// Each check of the symbolic checker finds as many faults in the mutants as before: `cargo xtask checker verify` takes one check
/// away after the other, and this test must notice. The numbers are our own. The emulator says that mutants under default options have
/// faults (tests/mutate.rs); nothing else says so of those under other options, and of plans.
#[test]
fn as_many_faults_are_found_as_before() {
    let mut out = String::from(
        "Faults that the symbolic checker finds in mutants of everything that is generated, by property. Under \"options\": of one\n\
         mutant in seven, with one option that is not its default. Then those that it finds in plans, of all architectures, with\n\
         one step edited. Written by `cargo xtask bless verify`.\n",
    );
    for profile in ["linux-6.12", "linux-7.3", "bare"] {
        let mut columns = Vec::new();
        let mut plans = EDITS.map(|(name, _)| (name, Found::default()));
        for backend in tool::BACKENDS {
            let convention = tool::profile(profile).unwrap().convention(backend.facts().name).unwrap();
            let target = backend.target(convention, convention.defaults()).unwrap();
            let mut found = Found::default();
            found.add(*backend, &target, 1);
            columns.push((backend.facts().name, found));
            plans.iter_mut().zip(EDITS).for_each(|((_, found), (_, edit))| found.add_plans(&target, edit));
            let mut found = Found::default();
            for (_, option) in convention.offered() {
                for choices in convention.combinations(|o| o.name == option.name).into_iter().skip(1) {
                    let target = backend.target(convention, choices).unwrap();
                    found.add(*backend, &target, 7);
                    plans.iter_mut().zip(EDITS).for_each(|((_, found), (_, edit))| found.add_plans(&target, edit));
                }
            }
            columns.push(("options", found));
        }
        out += &table(profile, &columns);
        out += &table(&format!("{profile}, plans"), &plans);
    }
    common::blessed("tests/verify.expected", &out);
}
