//! The symbolic checker on everything that is generated: no false alarm, and how long it takes.

use std::time::{Duration, Instant};

use codegen::ask::spec::{Body, Kind, Spec};
use codegen::backend::Backend;
use codegen::effect::faults::Operator;
use codegen::profile::target::Target;
use tool::suite;

/// An architecture under every set of options of every profile.
fn targets(backend: &dyn Backend) -> Vec<Target> {
    let every: Vec<_> = tool::BACKENDS.iter().map(|b| b.facts()).collect();
    let profiles = profiles::names().into_iter().map(|name| profiles::find(name, &every).unwrap());
    let conventions = profiles.filter_map(|profile| profile.convention(backend.facts().name).ok());
    let targets = conventions.flat_map(|convention| {
        let choices = convention.combinations(|_| true).into_iter();
        choices.map(move |choices| backend.target(convention, choices).unwrap())
    });
    targets.collect()
}

/// Every trampoline of every kind, under every set of options.
#[test]
fn nothing_that_is_generated_has_a_fault() {
    let mut wrong = Vec::new();
    for backend in tool::BACKENDS {
        let (mut spent, mut count) = (Duration::ZERO, 0);
        for target in targets(*backend) {
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
