//! The checker is checked: each fault that [`codegen::mutate`] puts into a trampoline must fail a clause.
//!
//! [`emu_tests::check`] sees the object and the contracts, as always; that one is faulty it must find out by itself.

pub mod bugs;
pub mod by;
pub mod report;
pub mod run;
pub mod selftests;
pub mod subject;
