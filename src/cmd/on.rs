//! The part of `compose` that runs code of a machine.

use std::path::Path;

use codegen::backend::Backend;
use codegen::error::{Error, Result};
use codegen::profile::Convention;
use compose::cross::{CROSS, directory};
use compose::{OURS, Subject};
use emu_tests::Composed;
use tool::suite::suite_of_composed;

/// What a profile says of an architecture, if its trampolines call what the core's layer has.
fn kernel(backend: &dyn Backend, profile: &str) -> Result<&'static Convention> {
    let (name, known) = (backend.facts().name, tool::convention(backend)?);
    let of = |profile: &str| tool::profile(profile)?.convention(name);
    let fits = |convention: &&Convention| convention.exit_handler == known.exit_handler;
    let convention = of(profile)?;
    if fits(&convention) {
        return Ok(convention);
    }
    let valid: Vec<&str> =
        profiles::names().into_iter().filter(|name| of(name).ok().is_some_and(|c| fits(&c))).collect();
    let (handler, valid) = (convention.exit_handler, valid.join(", "));
    Err(Error::new(format!(
        "--profile {profile}: its trampolines call {handler}, which the core has not; valid: {valid}"
    )))
}

/// The core on the machine, with all of its functions in turn, or those that are chosen.
///
/// # Errors
/// No such machine or functions, no objects for it, or they do not go together.
pub fn machine(
    arch: &str,
    objects: Option<&Path>,
    profile: Option<&str>,
    signature: Option<&str>,
    judge: &mut dyn FnMut(&Subject, &str) -> Result<()>,
) -> Result<()> {
    let backend = tool::backend(arch)?;
    let name = backend.facts().name;
    let cross = CROSS.into_iter().find(|cross| cross.arch == name);
    let dir = objects.map(Path::to_owned).or_else(directory).unwrap_or_default();
    let profile = profile.unwrap_or(profiles::DEFAULT);
    let convention = kernel(backend, profile)?;
    let op = convention.site.protocol.literal.is_some();
    let found = cross.and_then(|cross| Some((cross.resume(op), cross.read(op, &dir).ok()?)));
    let (resume, objects) = found.ok_or_else(|| {
        let dir = dir.display();
        Error::new(format!("no core for {name} in '{dir}'; valid: after `cargo xtask core-objects {dir}`"))
    })?;
    let composed = Composed::new(
        suite_of_composed(backend, &backend.target(convention, convention.defaults())?, resume)?,
        &objects,
    )?;
    let names: Vec<&str> = composed.functions().iter().map(|functions| functions.name).collect();
    if let Some(wanted) = signature.filter(|wanted| !names.contains(wanted)) {
        return Err(Error::unknown("signature", wanted, names));
    }
    let chosen = |(_, name): &(usize, &str)| signature.is_none_or(|wanted| wanted == *name);
    for (family, signature) in names.into_iter().enumerate().filter(chosen) {
        let (run, supports) = (|case: &_| composed.run(case, family), |case: &_| composed.supports(case, family));
        let called = format!("runtime on {name}, {signature}");
        judge(&OURS.limited(&supports, Some).elsewhere(&called, &run), signature)?;
    }
    Ok(())
}
