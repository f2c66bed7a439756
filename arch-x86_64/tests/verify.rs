//! The symbolic checker on listings of this architecture.

#[path = "../../codegen/tests/verify/mod.rs"]
mod verify;

use tramptool_x86_64::X86_64;

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
fn steps_in_the_wrong_order_are_found() {
    verify::order_of_plans::<X86_64>();
}
