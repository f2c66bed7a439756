//! What a listing says that its trampoline costs is what is counted while it runs.

use codegen::spec::{Choices, Kind};

#[test]
fn the_cost_that_is_told_is_the_cost_that_is_counted() {
    let mut compared = 0;
    for backend in tramptool::BACKENDS {
        for choices in Choices::all(backend.facts().options, |_| true) {
            let target = backend.target(choices);
            // What aligning SP takes is not known before it runs.
            if target.realign.is_some() {
                continue;
            }
            let suite = tramptool::suite::suite(*backend, &target).unwrap();
            let trampolines = tramptool::suite::trampolines(&target).unwrap();
            for spec in tramptool::suite::specs(&trampolines) {
                let (_, spent) = emu_tests::spent(&suite, spec.name).unwrap();
                let cost = backend.cost(&spec, &target).unwrap();
                let what = format!("{} {} {}", target.facts.name, spec.name, suite.options);
                if spent.is_empty() {
                    assert!(matches!(spec.kind, Kind::Stub | Kind::StubGraph), "{what}: never ran");
                }
                for s in &spent {
                    let counted = (s.executed, s.loads, s.stores);
                    let told = cost.paths.iter().map(|p| (p.executed, p.loads, p.stores));
                    let told: Vec<_> = told.collect();
                    assert!(told.contains(&counted), "{what}, {}: counted {counted:?} of {told:?}", s.situation);
                    compared += 1;
                }
                let deepest = spent.iter().map(|s| s.stack).max();
                assert!(deepest.is_none_or(|d| d == cost.stack as u32), "{what}: {deepest:?} of {}", cost.stack);
            }
        }
    }
    assert!(compared > 100, "{compared}");
}
