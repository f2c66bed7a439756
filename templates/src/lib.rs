//! The text around the instruction lines. No template here contains a mnemonic: lines arrive finished.

mod asm;
mod show;

pub use asm::{asm, line_of};
pub use show::show;
