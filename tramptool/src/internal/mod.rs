//! Items that the program `tramptool` and this repository's tests share with the library. They can change with any version.

pub mod asked;
pub mod handler;
mod missing;
mod paired;
mod programs;
mod proof;
mod recorder;
pub mod request;
pub mod settings;
#[cfg(feature = "judge")]
pub mod suite;
#[cfg(feature = "judge")]
mod vectors;

pub use arch::{BACKENDS, backend};
use codegen::backend::Backend;
use codegen::profile::target::Target;
use codegen::profile::{Convention, Profile};
use codegen::words::error::Result;
use link::Input;

/// The profile called `name`, or the one in the file of that name.
///
/// # Errors
/// There is no such profile or file; a file that cannot be read, or is no profile.
pub fn profile(name: &str) -> Result<&'static Profile> {
    let facts: Vec<_> = BACKENDS.iter().map(|b| b.facts()).collect();
    profiles::find(name, &facts)
}

/// The default profile's convention for an architecture.
///
/// # Errors
/// The default profile does not support the architecture.
pub fn convention(backend: &dyn Backend) -> Result<&'static Convention> {
    profile(profiles::DEFAULT)?.convention(backend.facts().name)
}

/// An architecture with all defaults.
///
/// # Errors
/// The default profile does not support the architecture.
pub fn default_target(backend: &dyn Backend) -> Result<Target> {
    let convention = convention(backend)?;
    backend.target(convention, convention.defaults())
}

/// The architecture that a file is for.
///
/// # Errors
/// Not a little-endian ELF64 file, or a file for an unknown machine; the message lists the known ones.
pub fn backend_of(file: &Input) -> Result<&'static dyn Backend> {
    link::backend_of(file, BACKENDS)
}
