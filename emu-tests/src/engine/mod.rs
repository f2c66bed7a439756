//! The emulated machine and what is read from code without one: CPU, decoder, unwind tables, call sites, return prediction.

pub mod call_sites;
pub mod cpu;
pub mod disasm;
pub mod flow;
pub mod lent;
pub mod rng;
pub mod shadow_stack;
pub mod unwind;
