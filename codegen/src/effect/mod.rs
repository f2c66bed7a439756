//! Effects of instructions on values, SP, control and registers, and their faults.

pub mod action;
pub mod effects;
pub mod faults;
pub mod register_use;
