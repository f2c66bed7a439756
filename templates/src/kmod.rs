//! The source of a kernel module around a direct-call trampoline.

use askama::Template;
use codegen::words::error::{Error, Result};

/// What the module is for.
#[derive(Template)]
#[template(path = "kmod.c")]
pub struct Kmod<'a> {
    /// The version of the tool.
    pub version: &'a str,
    /// The module.
    pub name: &'a str,
    /// The C function that is called.
    pub callee: &'a str,
    /// The symbol of the trampoline.
    pub tramp: &'a str,
    /// The site jumps to the trampoline.
    pub jumped: bool,
    /// The traced function.
    pub function: &'a str,
    /// The parameters of both functions, with their parentheses.
    pub params: &'a str,
    /// Types that the parameters name: `struct file`.
    pub tags: &'a [String],
}

#[derive(Template)]
#[template(path = "Kbuild.mk")]
struct Kbuild<'a> {
    name: &'a str,
    object: bool,
}

#[derive(Template)]
#[template(path = "Makefile.mk")]
struct Makefile<'a> {
    kernel: &'a str,
}

/// The files of a module besides the trampoline, which is to be in `NAME_tramp.S`, and with `object` assembled for the
/// kernel in `NAME_tramp.o_shipped`. `kernel` is the directory in which the kernel was built.
///
/// # Errors
/// The template engine's; there is no input that causes one.
pub fn kmod(module: &Kmod, object: bool, kernel: &str) -> Result<[(String, String); 3]> {
    let name = module.name;
    let fail = |e: askama::Error| Error::new(format!("kmod: {e}"));
    Ok([
        (format!("{name}_main.c"), module.render().map_err(fail)?),
        ("Kbuild".to_owned(), Kbuild { name, object }.render().map_err(fail)?),
        ("Makefile".to_owned(), Makefile { kernel }.render().map_err(fail)?),
    ])
}
