//! The symbolic checker on everything that is generated: no false alarm, and how long it takes.

use std::time::{Duration, Instant};

use codegen::backend::Backend;
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
