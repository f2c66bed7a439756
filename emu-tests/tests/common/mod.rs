//! The profile and the targets that the tests of this folder generate for.
#![allow(dead_code, reason = "each test file has its own copy, and not every one needs all of it")]

#[path = "../../../tests/common/expected.rs"]
pub mod expected;

use arch::BACKENDS;
use codegen::backend::Backend;
use codegen::profile::Profile;
use codegen::profile::target::Target;

/// A profile under which sites jump everywhere.
pub fn profile() -> &'static Profile {
    let facts: Vec<_> = BACKENDS.iter().map(|b| b.facts()).collect();
    profiles::find("linux-6.12", &facts).unwrap()
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

/// The contract of a direct-call trampoline, `my_tramp`.
pub const CONTRACT: &str = include_str!("../direct.toml");
