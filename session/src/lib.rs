//! Records what the functions of a process do. The process loads a library of ours, which says where everything is, and does what
//! this crate orders: it maps trampolines, and writes to sites. Records come through memory that both share.

pub mod agent;
pub mod attach;
pub mod clock;
pub mod debug_info;
pub mod drain;
mod entries;
pub mod forms;
pub mod function;
pub mod loader;
pub mod maps;
pub mod object;
pub mod objects;
pub mod pool;
pub mod program;
pub mod protocol;
pub mod prototypes;
pub mod run;
pub mod signature;
pub mod sink;
