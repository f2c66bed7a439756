//! What instructions do: to values, to SP and control, to registers; and how that can be wrong.

pub mod action;
pub mod effects;
pub mod faults;
pub mod register_use;
