//! What is run: a case and its situation, a thread's memory, which cases are chosen, and the command that repeats one.

pub mod case;
pub mod filter;
pub mod raw;
pub mod replay;
pub mod situation;
pub mod thread;
