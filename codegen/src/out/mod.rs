//! Outputs made from a listing: bytes and relocations, unwind tables, objects, templates, text, costs, differences.

pub mod assembly;
pub mod cfi;
pub mod cost;
pub mod diff;
pub mod eh_frame;
pub mod obj;
pub mod objtool;
pub(crate) mod shape;
pub mod template;
pub mod text;
