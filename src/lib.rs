//! tramptool: one description of a trampoline becomes text, an object, and a proof by execution.

pub mod args;
pub mod contracts;
pub mod explain;
pub mod handler;
pub mod kernel;
pub mod minimise;
pub mod mutate;
pub mod partition;
mod programs;
pub mod report;
pub mod request;
pub mod settings;
pub mod spending;
pub mod suite;

pub use arch::{BACKENDS, backend};
use codegen::backend::Backend;
use codegen::error::{Error, Result};
use link::Input;

/// The architecture that a file is for.
///
/// # Errors
/// Not a little-endian ELF64 file, or for another machine; the message lists those that there are.
pub fn backend_of(file: &Input) -> Result<&'static dyn Backend> {
    let machine = link::machine(file)?;
    BACKENDS.iter().find(|b| b.facts().machine == machine).copied().ok_or_else(|| {
        let known = BACKENDS.iter().map(|b| format!("{} ({})", b.facts().name, b.facts().machine));
        let known: Vec<String> = known.collect();
        Error::new(format!("{}: for ELF machine {machine}; valid: {}", file.name, known.join(", ")))
    })
}
