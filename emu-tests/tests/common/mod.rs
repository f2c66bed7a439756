//! The profile and the targets that the tests of this folder generate for.

use arch::BACKENDS;
use codegen::backend::Backend;
use codegen::profile::Profile;
use codegen::target::Target;

/// The profile that holds without another.
pub fn profile() -> &'static Profile {
    let facts: Vec<_> = BACKENDS.iter().map(|b| b.facts()).collect();
    profiles::find(profiles::DEFAULT, &facts).unwrap()
}

/// An architecture with all defaults of that profile.
pub fn target(backend: &dyn Backend) -> Target {
    target_under(profile(), backend)
}

/// The same of another.
pub fn target_under(profile: &'static Profile, backend: &dyn Backend) -> Target {
    let convention = profile.convention(backend.facts().name).unwrap();
    backend.target(convention, convention.defaults()).unwrap()
}
