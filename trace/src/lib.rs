//! The recording of a traced program: its file, its calls, reports of them, and the formats of other tools.
//!
//! [`file::Writer`] writes while the program runs. [`recording::Recording`] is such a file as a whole, [`steps::Steps`] are the
//! calls of a thread, [`view`] shows them, and [`export`] writes them for other tools. Nothing here holds all records in
//! memory.

pub mod calls;
mod clock;
pub mod export;
pub mod file;
pub mod filter;
mod names;
pub mod recording;
mod records;
pub mod steps;
mod text;
pub mod tree;
pub mod values;
pub mod view;
