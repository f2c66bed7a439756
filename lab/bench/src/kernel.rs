//! The kernel beside whose trampolines the figures stand. It stays the same, so that they can be compared with older ones.

use codegen::backend::Backend;
use codegen::profile::Convention;
#[cfg(feature = "check")]
use codegen::profile::Profile;
use codegen::profile::target::Target;

/// Its version.
pub const KERNEL: &str = "6.12";

/// Its profile.
#[cfg(feature = "check")]
pub fn profile() -> Result<&'static Profile, String> {
    let facts: Vec<_> = arch::BACKENDS.iter().map(|backend| backend.facts()).collect();
    profiles::find(&format!("linux-{KERNEL}"), &facts).map_err(|e| e.to_string())
}

/// What that says of an architecture.
pub fn convention(backend: &dyn Backend) -> Result<&'static Convention, String> {
    profiles::convention(&format!("linux-{KERNEL}"), backend.facts()).map_err(|e| e.to_string())
}

/// An architecture with all defaults.
pub fn default_target(backend: &dyn Backend) -> Result<Target, String> {
    let convention = convention(backend)?;
    backend.target(convention, convention.defaults()).map_err(|e| e.to_string())
}
