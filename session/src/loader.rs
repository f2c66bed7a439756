//! The loader of a process: it says what it loads later.

use std::path::Path;

use codegen::arch::patch::{Branch, Patch};
use codegen::words::error::{Error, Result};
use codegen::words::input;

use crate::attach::written;
use crate::maps::Mapping;
use crate::object::Object;
use crate::protocol::{Hello, Order};

/// The order by which the loader comes to [`Hello::loaded`] when it has loaded something. It calls a function that does nothing then, for
/// debuggers (`r_brk` of `<link.h>`), before constructors of what it has loaded run. And whether indirect branches enter that file at
/// landing pads alone.
///
/// # Errors
/// That function has no room for a jump, or its file cannot be read.
pub fn tells(hello: &Hello, maps: &[Mapping], backend: &dyn Patch) -> Result<(Order, bool)> {
    let why = |what: &str| Error::new(format!("what is loaded by dlopen is not recorded: {what}"));
    let mapping = maps.iter().find(|m| m.range.contains(&hello.brk)).ok_or_else(|| why("the loader was not found"))?;
    let file = input::bytes(Path::new(&mapping.path)).map_err(|e| why(&format!("{}: {e}", mapping.path)))?;
    let at = (hello.brk - mapping.range.start).checked_add(mapping.offset).and_then(|at| usize::try_from(at).ok());
    let code = at.and_then(|at| file.get(at..)).unwrap_or_default();
    let form = backend.empty_functions().iter().find(|form| code.get(..form.len()).is_some_and(|code| form.fits(code)));
    let form = form.ok_or_else(|| why("the loader's function for debuggers has no room for a jump"))?;
    let address = hello.brk + form.before;
    let jump = backend.branch(Branch::SiteJump, address, hello.loaded).map_err(|e| why(&e.to_string()))?;
    let old = code.get(form.before as usize..).unwrap_or_default();
    let order = written(address, old, &jump);
    let order = order.ok_or_else(|| why("the loader's function for debuggers is too short"))?;
    Ok((order, Object::is_guarded(&file, backend)))
}
