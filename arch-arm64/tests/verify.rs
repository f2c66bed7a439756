//! The symbolic checker on listings of this architecture.

#[path = "../../codegen/tests/verify/mod.rs"]
mod verify;

use tramptool_arm64::Arm64;

#[test]
fn a_dropped_restore_is_found() {
    verify::dropped_restore::<Arm64>();
}

#[test]
fn a_slot_that_is_read_before_it_is_written_is_found() {
    verify::unwritten_slot::<Arm64>();
}

#[test]
fn sp_that_is_not_where_it_was_is_found() {
    verify::unbalanced_sp::<Arm64>();
}

#[test]
fn exchanged_arguments_are_found() {
    verify::exchanged_arguments::<Arm64>();
}

#[test]
fn ways_that_lead_nowhere_are_found() {
    verify::ways::<Arm64>();
}

#[test]
fn a_label_that_is_nowhere_is_found() {
    verify::label_that_is_nowhere::<Arm64>();
}

#[test]
fn a_way_in_a_circle_is_found() {
    verify::circle::<Arm64>();
}

#[test]
fn steps_in_the_wrong_order_are_found() {
    verify::order_of_plans::<Arm64>();
}
