//! What a caller of the library may ask for too much of is refused: the numbers in a listing have eight bits.

use std::borrow::Cow;

use codegen::ask::kind::{Kind, Programs};
use codegen::ask::spec::{Attach, Body, Program, Spec};
use tramptool_arch::BACKENDS;

/// Trampolines with so many programs, each another function.
#[track_caller]
fn programs(n: usize) -> Vec<Result<(), String>> {
    let program = |i| Program { attach: Attach::Fentry, symbol: Cow::Owned(format!("program{i}")), cookie: 0 };
    let programs: Vec<Program> = (0..n).map(program).collect();
    let body = Body { function: "f", resume: 0, ..Body::default() };
    let spec = Spec { body, programs: &programs, ..Spec::of("trampoline", Kind::Programs(Programs::default())) };
    let assembled = BACKENDS.iter().map(|backend| {
        let convention = profiles::convention("linux-6.12", backend.facts()).unwrap();
        let target = backend.target(convention, convention.defaults()).unwrap();
        backend.assemble(&[spec], &target).map(drop).map_err(|e| e.to_string())
    });
    assembled.collect()
}

#[test]
fn as_many_programs_as_bpf_has() {
    assert!(programs(Program::MOST).iter().all(Result::is_ok));
    for n in [Program::MOST + 1, 256, 300] {
        for refused in programs(n) {
            assert!(refused.unwrap_err().ends_with(&format!("there are {n} programs; valid: up to 38, as for BPF")));
        }
    }
}
