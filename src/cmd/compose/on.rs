//! The part of `compose` that runs code of a machine.

use std::path::Path;

use codegen::backend::Backend;
use codegen::profile::Convention;
use codegen::words::error::{Error, Result};
use compose::cross::{CROSS, directory};
use compose::{OURS, Subject};
use emu_tests::{Composed, FUNCTIONS_UNDER_TRACE};
use tool::suite::suite_of_composed;

/// The profiles whose trampolines call what the core's layer has, and of which this holds.
fn profiles_where(backend: &dyn Backend, such: impl Fn(&Convention) -> bool) -> Result<Vec<&'static str>> {
    let known = tool::convention(backend)?;
    let of = |profile: &str| tool::profile(profile).ok()?.convention(backend.facts().name).ok();
    let fits = |c: &Convention| c.exit_handler == known.exit_handler && such(c);
    Ok(profiles::names().into_iter().filter(|name| of(name).is_some_and(fits)).collect())
}

/// What a profile says of an architecture, if its trampolines call what the core's layer has.
fn kernel(backend: &dyn Backend, profile: &str) -> Result<&'static Convention> {
    let convention = tool::profile(profile)?.convention(backend.facts().name)?;
    if convention.exit_handler == tool::convention(backend)?.exit_handler {
        return Ok(convention);
    }
    let (handler, valid) = (convention.exit_handler, profiles_where(backend, |_| true)?.join(", "));
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
        if !FUNCTIONS_UNDER_TRACE.iter().any(|functions| functions.name == wanted) {
            return Err(Error::unknown("signature", wanted, names));
        }
        let jumps = profiles_where(backend, |c| !c.site.protocol.jump.is_empty())?.join(", ");
        return Err(Error::new(format!(
            "--signature {wanted}: sites of {profile} do not jump on {name}, so nothing enters a paired trampoline; \
             valid: {}, or --profile with one of {jumps}",
            names.join(", ")
        )));
    }
    let chosen = |(_, name): &(usize, &str)| signature.is_none_or(|wanted| wanted == *name);
    for (family, signature) in names.into_iter().enumerate().filter(chosen) {
        let (run, supports) = (|case: &_| composed.run(case, family), |case: &_| composed.supports(case, family));
        let called = format!("runtime on {name}, {signature}");
        judge(&OURS.limited(&supports, Some).elsewhere(&called, &run), signature)?;
    }
    Ok(())
}
