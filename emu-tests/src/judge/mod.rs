//! The judge: suites are linked, loaded, run in all cases and held against their contracts.

pub mod cases;
pub mod cells;
pub mod check;
pub mod checks;
pub mod contexts;
mod copy;
pub mod cost;
pub mod explain;
pub mod fixture;
pub mod hooks;
pub mod image;
pub mod measure;
pub mod protocol;
pub mod rig;
pub mod suite;
pub mod tally;
pub mod trace;
pub mod variables;
pub mod verdict;
pub mod views;
