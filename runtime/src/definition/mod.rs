//! Probe definitions as text: `p SYM[+offs|-offs]|ADDR`, `r SYM[+0]`, `f SYM[%return]`, with arguments.
//!
//! The kernel's `kprobe_events` and `dynamic_events`, with the same limits, names of errors and columns, but without features
//! that need type information. An offset may be negative, as in the interface's first version; Linux now refuses that.

mod argument;
mod line;
mod machine;
mod problem;
mod table;

pub use argument::{Argument, Base, Kind, NESTED};
pub use line::{Definition, Name, ProbeKind};
pub use machine::{Machine, Symbol};
pub use problem::{Problem, Refused};
pub use table::{Definitions, Done};
