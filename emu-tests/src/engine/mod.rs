//! The emulated machine and what is read from code without one: CPU, decoder, unwind tables, call sites, return prediction.

pub mod call_sites;
pub mod cpu;
pub mod disasm;
pub mod emulator;
pub mod flow;
pub mod interface;
pub mod lent;
pub mod load;
pub mod memory;
pub mod process;
pub mod registers;
pub mod rng;
pub mod shadow_stack;
pub mod unicorn;
pub mod unwind;
