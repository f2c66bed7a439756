//! What a traced program has recorded: its file, the calls in it, reports of them, and the formats of other tools.
//!
//! [`file::Writer`] writes while the program runs.

pub mod file;
