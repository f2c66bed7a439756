//! Signs in an object of who wrote it, a compiler or a person, and what it says of its protection.
//!
//! Package builders strip line tables and names of sources from archives. What stays is the order of the sections that compilers
//! end a file with, their comment, and that compilers give each function a type and a size.

use codegen::arch::facts::Marks;
use codegen::arch::machine::Machine;
use codegen::backend::Backend;
use codegen::words::error::Result;
use object::elf;
use object::read::elf::{FileHeader as _, SectionHeader as _, SectionTable, Sym as _};
use object::read::{SectionIndex, SymbolIndex};
use rustc_hash::FxHashMap;

use crate::elf::{Header, Input, LE, beginning, damaged, header};
use crate::linker::Object;

/// The sections that say of a file what its code does not.
const NOTES: [&str; 4] = [".comment", ".note.GNU-stack", ".note.gnu.property", ".eh_frame"];

/// Beginnings of the names of sections that compilers alone make.
const COMPILED: [&str; 7] =
    [".comment", ".rodata.str", ".text.unlikely", ".text.startup", ".data.rel.ro", ".gcc_except_table", ".text.hot"];

/// Beginnings and ends of the names of symbols that other compilers make: ocamlopt, for each module.
const OTHERS: [(&str, &str); 1] = [("caml", "code_begin")];

/// Ends of the names of files that assemblers make, where a build names them by their sources.
const ASSEMBLED: [&str; 3] = [".S.o", ".s.o", ".asm.o"];

/// Ends of the names of files that compilers make, in the same way.
const FROM_SOURCES: [&str; 5] = [".c.o", ".cc.o", ".cpp.o", ".cxx.o", ".rs.o"];

/// The signs of one object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// It has instructions.
    pub has_code: bool,
    /// It has an unwind table.
    pub has_table: bool,
    /// The numbers of [`NOTES`] that it has, in the order of its sections.
    pub notes: Vec<usize>,
    /// A section that only compilers make.
    pub compiled: bool,
    /// The source's name says that it is assembly.
    pub assembled: bool,
    /// A function without a size, or with a label's type.
    pub untyped: bool,
    /// A symbol that a compiler with a convention of its own makes.
    pub other: bool,
    /// It is a shared library.
    pub linked: bool,
    /// The bits of the property note: landing pads, shadow stack; `None` without one.
    pub protection: Option<u32>,
    /// The names that it refers to.
    pub references: Vec<Reference>,
    /// The global functions that it defines.
    pub functions: Vec<String>,
}

/// A reference to a symbol that the object does not define.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reference {
    /// The symbol.
    pub symbol: String,
    /// Some relocation is a call's or a jump's.
    pub is_call: bool,
    /// Some relocation is another one: it takes the address.
    pub is_address: bool,
}

/// Who wrote an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Author {
    /// A person, by this sign.
    Person(&'static str),
    /// A compiler of C's family.
    Compiler,
    /// A compiler whose functions keep a convention of their own.
    Other,
    /// A linker: of what is in a shared library, nobody knows any more who wrote it.
    Linker,
    /// Nobody: it has no code.
    Nobody,
}

/// Read the signs of an object.
///
/// # Errors
/// A damaged file, or none that a linker takes.
pub fn origin(backend: &dyn Backend, input: &Input) -> Result<Origin> {
    let machine = backend.machine();
    let object = Object::read(input)?;
    let mut origin = Origin {
        has_code: false,
        has_table: false,
        notes: Vec::new(),
        compiled: FROM_SOURCES.iter().any(|end| input.name.ends_with(end)),
        assembled: ASSEMBLED.iter().any(|end| input.name.ends_with(end)),
        untyped: false,
        other: false,
        linked: false,
        protection: None,
        references: Vec::new(),
        functions: Vec::new(),
    };
    let mut executable = vec![false; object.sections.len()];
    for (index, section) in object.sections.enumerate() {
        let name = object.section_name(index.0);
        let code = section.sh_flags(LE).contains(elf::SHF_EXECINSTR) && section.sh_size(LE) > 0;
        origin.has_code |= code;
        origin.has_table |= name == ".eh_frame";
        executable[index.0] = code;
        origin.compiled |= COMPILED.iter().any(|start| name.starts_with(start));
        origin.notes.extend(NOTES.iter().position(|note| *note == name));
    }
    if let Some(marks) = &backend.facts().marks {
        origin.protection = protection(marks, input, &object.sections)?;
    }
    let referred = referred(machine, &object)?;
    for index in 1..object.symbols.len() {
        let fail = damaged(input.name);
        let symbol = object.symbols.symbol(SymbolIndex(index)).map_err(fail)?;
        let section = usize::from(symbol.st_shndx(LE).0);
        let (is_call, is_address) = referred.get(&index).copied().unwrap_or_default();
        if symbol.st_type() == elf::STT_FILE || symbol.is_local() {
            continue;
        }
        let name = object.symbols.symbol_name(LE, symbol).map_err(damaged(input.name))?;
        // Names of C++ may be of any length, and differ in their beginnings.
        let name = beginning(name);
        if section == 0 && (is_call || is_address) {
            origin.references.push(Reference { symbol: name.to_owned(), is_call, is_address });
        }
        origin.other |=
            section != 0 && OTHERS.iter().any(|(start, end)| name.starts_with(start) && name.ends_with(end));
        let function = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_NOTYPE);
        if function && executable.get(section) == Some(&true) {
            origin.untyped |= symbol.st_size(LE) == 0 || symbol.st_type() == elf::STT_NOTYPE;
            origin.functions.push(name.to_owned());
        }
    }
    Ok(origin)
}

/// By symbol: is it called, is its address taken?
fn referred(machine: &Machine, object: &Object) -> Result<FxHashMap<usize, (bool, bool)>> {
    let mut all: FxHashMap<usize, (bool, bool)> = FxHashMap::default();
    for header in object.sections.iter() {
        let place = object.sections.section(SectionIndex(header.info_link(LE).0));
        // What is not loaded, as debug information, calls nothing; an unwind table takes no address for anybody.
        let loaded = place.is_ok_and(|place| place.sh_flags(LE).contains(elf::SHF_ALLOC));
        let table = object.section_name(header.info_link(LE).0) == ".eh_frame";
        let relocations = header.rela(LE, object.bytes).map_err(damaged(object.name))?;
        for rela in relocations.filter(|_| loaded && !table).map_or(&[][..], |(relocations, _)| relocations) {
            let r_type = rela.r_type(LE, false).0;
            let seen = all.entry(rela.r_sym(LE, false) as usize).or_default();
            let call = machine.calls.iter().any(|(known, ..)| *known == r_type);
            seen.0 |= call;
            seen.1 |= !call;
        }
    }
    Ok(all)
}

/// The bits of an object's property note that say which protection it is compiled for; `None` without a note.
///
/// # Errors
/// A damaged file.
pub fn noted(marks: &Marks, input: &Input) -> Result<Option<u32>> {
    let sections = header(input)?.sections(LE, input.bytes).map_err(damaged(input.name))?;
    protection(marks, input, &sections)
}

/// The same, of sections that were read.
fn protection(marks: &Marks, input: &Input, sections: &SectionTable<Header>) -> Result<Option<u32>> {
    let fail = damaged(input.name);
    for section in sections.iter() {
        let Some(mut notes) = section.notes(LE, input.bytes).map_err(&fail)? else { continue };
        while let Some(note) = notes.next().map_err(&fail)? {
            let Some(mut properties) = note.gnu_properties(LE) else { continue };
            while let Some(property) = properties.next().map_err(&fail)? {
                if property.pr_type().0 == marks.property {
                    return Ok(property.data_u32(LE).ok());
                }
            }
        }
    }
    Ok(None)
}

/// Who wrote each of these objects: what most that a compiler made have in common shows those that it did not make.
pub fn authors(all: &[Origin]) -> Vec<Author> {
    let made: Vec<&Origin> = all.iter().filter(|origin| origin.has_code && origin.compiled).collect();
    let mut orders: FxHashMap<&[usize], usize> = FxHashMap::default();
    for origin in &made {
        *orders.entry(&origin.notes).or_default() += 1;
    }
    let usual = orders.into_iter().max_by_key(|(order, count)| (*count, std::cmp::Reverse(*order)));
    let usual = usual.map(|(order, _)| order);
    let commented = !made.is_empty();
    let author = |origin: &Origin| {
        if !origin.has_code {
            Author::Nobody
        } else if origin.linked {
            Author::Linker
        } else if origin.other {
            Author::Other
        } else if origin.assembled {
            Author::Person("its name is that of an assembly source")
        } else if origin.untyped && !origin.compiled {
            Author::Person("a function has no size or no type")
        } else if origin.compiled {
            Author::Compiler
        } else if usual.is_some_and(|usual| usual != origin.notes) {
            Author::Person("its notes are in another order than the compiler's")
        } else if commented {
            Author::Compiler
        } else {
            Author::Person("it has nothing that compilers add")
        }
    };
    all.iter().map(author).collect()
}
