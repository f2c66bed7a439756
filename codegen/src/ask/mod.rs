//! The request: kinds of trampoline, values live at their entry, their frames, options.

pub mod frame;
pub mod kind;
pub mod live;
pub mod option;
pub mod place;
pub mod spec;
