//! The symbolic checker on listings of this architecture.

#[path = "../../codegen/tests/verify/mod.rs"]
mod verify;

use codegen::ask::spec::{Body, Kind, Spec};
use codegen::backend;
use codegen::contract::Contract;
use codegen::contract::demand::Spot;
use codegen::listing::isa::Architecture;
use codegen::words::abi::RegSet;
use codegen::words::recorder::{Clock, Events, Recorder};
use codegen::words::term::{Root, Term};
use tramptool_riscv::Riscv64;

#[test]
fn a_dropped_restore_is_found() {
    verify::dropped_restore::<Riscv64>();
}

#[test]
fn a_slot_that_is_read_before_it_is_written_is_found() {
    verify::unwritten_slot::<Riscv64>();
}

#[test]
fn sp_that_is_not_where_it_was_is_found() {
    verify::unbalanced_sp::<Riscv64>();
}

#[test]
fn exchanged_arguments_are_found() {
    verify::exchanged_arguments::<Riscv64>();
}

#[test]
fn ways_that_lead_nowhere_are_found() {
    verify::ways::<Riscv64>();
}

#[test]
fn a_label_that_is_nowhere_is_found() {
    verify::label_that_is_nowhere::<Riscv64>();
}

#[test]
fn a_way_in_a_circle_is_found() {
    verify::circle::<Riscv64>();
}

#[test]
fn steps_in_the_wrong_order_are_found() {
    verify::order_of_plans::<Riscv64>();
}

/// `tail` goes through t1: a function that needs t1 cannot be gone on in so.
#[test]
fn a_tail_loses_the_register_that_it_goes_through() {
    let convention = profiles::convention("bare", Riscv64::FACTS).unwrap();
    let target = Riscv64::target(convention, convention.defaults()).unwrap();
    let body = Body { function: "traced", resume: 8, exit: "", signed: false };
    let recorder = Recorder::new(Events::Count, Clock::None, 1);
    let spec = Spec { body, ..Spec::of("record", Kind::Record(recorder)) };
    let t1 = Riscv64::FACTS.abi.find("t1").unwrap();
    let mut contract = Contract::of(&spec, &target).unwrap();
    contract.kept = contract.kept.union(RegSet::of(&[t1]));
    let mut faults = Vec::new();
    backend::verify::<Riscv64>(&spec, &target, |listing| {
        faults = codegen::verify::listing(listing, &contract, &target, Riscv64::MACHINE)?;
        Ok(())
    })
    .unwrap();
    let resumes = |root: &Root| matches!(root, Root::Symbol(name) if &**name == "traced");
    let found = faults.iter().filter_map(|fault| fault.broken.as_deref()).find(|b| b.demand.spot == Spot::Reg(t1));
    let found = found.and_then(|broken| broken.found.as_ref());
    assert!(matches!(found, Some(Term { root, add: 8, .. }) if resumes(root)), "{faults:#?}");
}
