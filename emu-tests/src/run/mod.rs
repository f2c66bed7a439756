//! The runs: a case and its situation, a thread's memory, the choice of cases, and the command that repeats one.

pub(crate) mod block;
pub mod case;
pub mod filter;
pub mod raw;
pub mod replay;
pub mod scs;
pub mod situation;
pub mod thread;
