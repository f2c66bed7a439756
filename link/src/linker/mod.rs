//! The linker pass: relocatable objects to an image at fixed addresses, with its function entries patched.
//!
//! It links our own objects and those of gcc, GNU as and clang.

mod got;
mod layout;
mod objects;
mod relocs;
mod symbols;

use codegen::arch::facts::EFlags;
use codegen::arch::patch::Patch;
use codegen::words::error::{Error, Result};
use object::read::elf::FileHeader as _;

use self::got::add_got;
use self::layout::lay_out;
pub(crate) use self::objects::Object;
use self::relocs::relocate;
use self::symbols::{Global, add_stubs, define, undefined};
use crate::elf::{Input, LE};
use crate::image::{Image, Symbol};
use crate::options::Options;
use crate::patching::{find_sites, patch, ways_on};

pub use self::symbols::STUBS;

/// Link `inputs`.
///
/// # Errors
/// A damaged or foreign file, mixed machines or float ABIs, unresolved or doubly defined symbols, a relocation or a
/// patched instruction that does not reach, a name in `options` that nothing defines.
pub fn link(backend: &dyn Patch, inputs: &[Input], options: &Options) -> Result<Image> {
    let mut objects = inputs.iter().map(Object::read).collect::<Result<Vec<_>>>()?;
    objects.iter_mut().for_each(|object| (object.alone, object.glance) = (options.stub.is_some(), options.glance));
    let (machine, e_flags) = agree(backend, &objects)?;
    let (mut segments, mut sections) = lay_out(&mut objects, options)?;
    let (mut symbols, mut globals) = define(&objects, options.first, backend.facts().mapping)?;
    for (name, other) in &options.alias {
        // Definitions of inputs win; the other symbol of the alias may be undefined itself.
        if let (None, Some(&same)) = (globals.get(name), globals.get(other)) {
            symbols
                .extend(symbols.iter().find(|s| s.name == *other).map(|s| Symbol { name: name.clone(), ..s.clone() }));
            globals.insert(name, same);
        }
    }
    for (name, address) in &options.define {
        if !globals.contains(name) {
            globals.insert(name, Global { object: 0, address: *address, weak: false });
        }
    }
    if let Some(stub) = options.stub {
        let mut missing = undefined(&objects, &globals)?;
        missing.extend(options.wanted.iter().map(String::as_str).filter(|name| !globals.contains(name)));
        missing.sort_unstable();
        missing.dedup();
        add_stubs(stub, &missing, (&mut segments, &mut sections, &mut symbols), &mut globals)?;
    }
    // What is not applied needs no table.
    let through = if options.glance { &[] } else { &objects[..] };
    let got = add_got(backend, through, (&mut segments, &mut sections))?;
    let (sites, references) = (Vec::new(), Vec::new());
    let mut image = Image { machine, e_flags, segments, sections, symbols, sites, references };
    image.references = relocate(&mut image, backend, &objects, (&globals, got), options)?;
    find_sites(&mut image, backend, options.site)?;
    patch(&mut image, backend, options)?;
    ways_on(&image, backend, options)?;
    if !options.references {
        image.references = Vec::new();
    }
    Ok(image)
}

/// Link an object alone, with stub functions of the bytes `stub` for its undefined symbols, and keep its relocations.
///
/// # Errors
/// As [`link`].
pub fn examine(backend: &dyn Patch, input: &Input, stub: &'static [u8]) -> Result<Image> {
    link(backend, &[*input], &Options { stub: Some(stub), references: true, ..Options::default() })
}

/// The same, for looking at and not for running: the object may have relocations that are not known here, and thread-local data.
///
/// # Errors
/// As [`link`], but for these.
pub fn glance(backend: &dyn Patch, input: &Input, stub: &'static [u8]) -> Result<Image> {
    link(backend, &[*input], &Options { stub: Some(stub), references: true, glance: true, ..Options::default() })
}

/// `e_machine` and `e_flags` of the image, if the objects are compatible.
fn agree(backend: &dyn Patch, objects: &[Object]) -> Result<(u16, u32)> {
    let facts = backend.facts();
    let [first, ..] = objects else {
        return Err(Error::new("nothing to link; give at least one object"));
    };
    let mut merged = 0;
    for object in objects {
        let machine = object.header.e_machine(LE).0;
        if machine != facts.machine {
            let fits = |o: &&Object| o.header.e_machine(LE).0 == facts.machine;
            let other = objects.iter().find(fits).map_or("this link", |o| o.name);
            return Err(Error::new(format!(
                "{}: for machine {machine}, but {other} is for {} (machine {}); link objects of one machine",
                object.name, facts.name, facts.machine
            )));
        }
        // Bits for used features are ORed; bits for the ABI must agree.
        let EFlags { adds_up, words, remedy, .. } = facts.e_flags;
        let (ours, theirs) = (first.header.e_flags(LE).0, object.header.e_flags(LE).0);
        if (ours ^ theirs) & !adds_up != 0 {
            return Err(Error::new(format!(
                "{} is for {}, {} for {}; {remedy}",
                first.name,
                words(ours),
                object.name,
                words(theirs)
            )));
        }
        merged |= theirs;
    }
    Ok((facts.machine, merged))
}
