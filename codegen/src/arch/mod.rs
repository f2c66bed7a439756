//! Architectures as data: facts, relocations, the sites of functions, data for emulators.

pub mod bare;
pub mod branch;
pub mod entry;
pub mod facts;
pub mod harden;
pub mod machine;
pub mod moves;
pub mod pads;
pub mod patch;
pub mod site;
