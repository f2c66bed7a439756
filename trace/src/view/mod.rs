//! A recording as people read it.

mod graph;
mod replay;
mod report;

pub use graph::graph;
pub use replay::replay;
pub use report::{Key, Report, Row};
