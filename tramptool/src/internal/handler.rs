//! Handlers in objects, and whether a trampoline must save vector registers for them.

use std::path::Path;

use codegen::ask::kind::Kind;
use codegen::profile::target::Target;
#[cfg(not(feature = "judge"))]
use codegen::words::error::Error;
use codegen::words::error::Result;

pub use super::proof::Proof;

/// Try to prove that all these functions of the object at `path` leave vector registers alone. `None` without an object.
/// `form` is the kind of trampoline that calls them; `None` stands for any.
///
/// # Errors
/// The object cannot be read, is for another target, or does not have these functions. Without the feature `judge`, any
/// object is an error: nothing here disassembles it.
pub fn all_general(
    path: Option<&Path>,
    callees: &[&str],
    form: Option<Kind>,
    target: &Target,
) -> Result<Option<Proof>> {
    let Some(path) = path else { return Ok(None) };
    #[cfg(feature = "judge")]
    return super::vectors::all_general(path, callees, form, target).map(Some);
    #[cfg(not(feature = "judge"))]
    Err(Error::new(format!(
        "{}: nothing proves {} of {} for {}: this build has no disassembler; valid: one with the feature `judge`",
        path.display(),
        callees.join(", "),
        target.facts.name,
        form.map_or("any trampoline", |kind| kind.traits().word)
    )))
}
