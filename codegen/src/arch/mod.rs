//! What an architecture is, as data: facts, relocations, the sites of functions, what an emulator must know.

pub mod entry;
pub mod facts;
pub mod harden;
pub mod machine;
pub mod patch;
pub mod site;
