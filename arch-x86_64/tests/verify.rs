//! The symbolic checker on listings of this architecture.

#[path = "../../codegen/tests/verify/mod.rs"]
mod verify;

use codegen::ask::option::{Choice, Choices};
use codegen::ask::spec::{Body, Kind, Regs, Spec};
use codegen::backend;
use codegen::listing::Line;
use codegen::listing::isa::Architecture;
use codegen::verify::Property;
use codegen::words::recorder::{Clock, Events, Recorder};
use codegen::words::step::Disp;
use tramptool_x86_64::X86_64;
use tramptool_x86_64::insn::Insn;
use tramptool_x86_64::option::Return;

#[test]
fn a_dropped_restore_is_found() {
    verify::dropped_restore::<X86_64>();
}

#[test]
fn a_slot_that_is_read_before_it_is_written_is_found() {
    verify::unwritten_slot::<X86_64>();
}

#[test]
fn sp_that_is_not_where_it_was_is_found() {
    verify::unbalanced_sp::<X86_64>();
}

#[test]
fn exchanged_arguments_are_found() {
    verify::exchanged_arguments::<X86_64>();
}

#[test]
fn ways_that_lead_nowhere_are_found() {
    verify::ways::<X86_64>();
}

#[test]
fn a_label_that_is_nowhere_is_found() {
    verify::label_that_is_nowhere::<X86_64>();
}

#[test]
fn a_way_in_a_circle_is_found() {
    verify::circle::<X86_64>();
}

#[test]
fn steps_in_the_wrong_order_are_found() {
    verify::order_of_plans::<X86_64>();
}

/// A store behind both records of a slot is found.
#[test]
fn a_store_behind_a_pair_of_records_is_found() {
    let convention = profiles::convention("bare", X86_64::FACTS).unwrap();
    let target = X86_64::target(convention, convention.defaults()).unwrap();
    let recorder = Recorder { pair: true, ..Recorder::new(Events::Both, Clock::None, 1) };
    let body = Body { function: "traced", resume: 5, exit: "", signed: false };
    let spec = Spec { body, ..Spec::of("record", Kind::Record(recorder)) };
    let faults = backend::verify::<X86_64>(&spec, &target, |listing| {
        let store = listing.lines.iter().position(|line| matches!(line, Line::Insn(Insn::StoreSlotImm { .. }, _)));
        let store = store.expect("a record has words");
        let Line::Insn(Insn::StoreSlotImm { imm, .. }, comment) = listing.lines[store] else { unreachable!() };
        let behind = Insn::StoreSlotImm { imm, at: Recorder::LARGEST_PAIR };
        listing.lines.insert(store, Line::Insn(behind, comment));
        Ok(())
    });
    assert!(faults.unwrap().iter().any(|fault| fault.property == Property::Record));
}

/// A jump to what does not return in its place is no return.
#[test]
fn a_return_by_another_function_is_found() {
    let convention = profiles::default_convention(&tramptool_x86_64::FACTS).unwrap();
    let thunk = Choices::default().with(Return::INDEX, Return::Thunk as usize);
    let target = X86_64::target(convention, thunk).unwrap();
    let spec = Spec::of("t", Kind::Entry(Regs::Args));
    let faults = backend::verify::<X86_64>(&spec, &target, |listing| {
        listing
            .symbols
            .iter_mut()
            .filter(|symbol| symbol.name == "__x86_return_thunk")
            .for_each(|s| s.name = "another");
        Ok(())
    });
    assert!(faults.unwrap().iter().any(|fault| fault.property == Property::Way));
}

/// A trampoline under another `return` than the default, with what `change` makes of its instructions: how often its returns are
/// found wrong.
fn wrong_returns(style: Return, change: impl Fn(Insn) -> Option<Insn>) -> usize {
    let convention = profiles::default_convention(&tramptool_x86_64::FACTS).unwrap();
    let target = X86_64::target(convention, Choices::default().with(Return::INDEX, style as usize)).unwrap();
    let faults = backend::verify::<X86_64>(&Spec::of("t", Kind::Entry(Regs::Args)), &target, |listing| {
        listing.lines.retain_mut(|line| match line {
            Line::Insn(insn, _) => change(*insn).is_some_and(|new| {
                *insn = new;
                true
            }),
            _ => true,
        });
        Ok(())
    });
    faults.unwrap().iter().filter(|fault| fault.property == Property::Returns).count()
}

#[test]
fn a_return_that_is_not_as_asked_is_found() {
    for style in [Return::Ret, Return::Int3, Return::Thunk] {
        assert_eq!(wrong_returns(style, Some), 0, "{style:?}");
    }
    assert_eq!(wrong_returns(Return::Int3, |insn| (insn != Insn::Int3).then_some(insn)), 1);
    let bare = |insn| Some(if matches!(insn, Insn::JmpReturn { .. }) { Insn::Ret } else { insn });
    assert_eq!(wrong_returns(Return::Thunk, bare), 1);
}

/// The CPU's state is lost below SP: a handler of a signal stores there.
#[test]
fn state_that_lay_below_sp_is_not_loaded_again() {
    let convention = profiles::convention("bare", X86_64::FACTS).unwrap();
    let target = X86_64::target(convention, convention.defaults()).unwrap();
    let spec = Spec { callee: "handler", ..Spec::of("sled", Kind::Sled) };
    let faults = |by: i32| {
        backend::verify::<X86_64>(&spec, &target, |listing| {
            let load = listing.lines.iter().position(|line| matches!(line, Line::Insn(Insn::Xrstor, _)));
            let imm = Disp::number(by);
            let around = [Insn::AddSp { imm }, Insn::SubSp { imm }].map(|insn| Line::Insn(insn, ""));
            let load = load.expect("a sled loads the CPU's state");
            listing.lines.splice(load..load, around);
            Ok(())
        })
        .unwrap()
    };
    assert!(faults(0).is_empty(), "{:?}", faults(0));
    assert!(faults(64).iter().any(|fault| fault.property == Property::Slots));
}
