//! The text around the instruction lines. No template here contains a mnemonic: lines arrive finished.

mod asm;
mod header;
mod kmod;
pub mod page;
mod show;
mod template;

pub use asm::{asm, line_of, preprocessed};
pub use header::header;
pub use kmod::{Kmod, kmod};
pub use show::show;
pub use template::{is_identifier, template};
