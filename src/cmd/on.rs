//! The part of `compose` that runs code of a machine.

use std::path::Path;

use codegen::error::{Error, Result};
use compose::cross::{CROSS, directory};
use compose::{OURS, Subject};
use emu_tests::{COMPOSED_SIGNATURES, Composed};
use tool::suite::suite_of_composed;

/// The core on the machine, with functions of each signature in turn.
///
/// # Errors
/// No such machine or signature, no objects for it, or they do not go together.
pub fn machine(
    arch: &str,
    objects: Option<&Path>,
    signature: Option<&str>,
    judge: &mut dyn FnMut(&Subject, &str) -> Result<()>,
) -> Result<()> {
    let backend = tool::backend(arch)?;
    let name = backend.facts().name;
    let known = |s: &&str| signature.is_none_or(|signature| signature == *s);
    let signatures: Vec<(usize, &str)> =
        COMPOSED_SIGNATURES.into_iter().enumerate().filter(|(_, s)| known(s)).collect();
    if let ([], Some(signature)) = (&signatures[..], signature) {
        return Err(Error::unknown("signature", signature, COMPOSED_SIGNATURES));
    }
    let cross = CROSS.into_iter().find(|cross| cross.arch == name);
    let dir = objects.map(Path::to_owned).or_else(directory).unwrap_or_default();
    let found = cross.and_then(|cross| cross.read(&dir).ok()).ok_or_else(|| {
        let dir = dir.display();
        Error::new(format!("no core for {name} in '{dir}'; valid: after `cargo xtask core-objects {dir}`"))
    })?;
    let composed = Composed::new(suite_of_composed(backend, &tool::default_target(backend)?)?, &found)?;
    for (family, signature) in signatures {
        let (run, supports) = (|case: &_| composed.run(case, family), |case: &_| composed.supports(case, family));
        let called = format!("runtime on {name}, {signature}");
        judge(&OURS.limited(&supports, Some).elsewhere(&called, &run), signature)?;
    }
    Ok(())
}
