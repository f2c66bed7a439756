//! Shared libraries as objects.

use std::borrow::Cow;
use std::collections::HashSet;

use codegen::arch::patch::Patch;
use codegen::words::error::{Error, Result};
use object::elf;
use object::read::SymbolIndex;
use object::read::elf::{FileHeader as _, ProgramHeader as _, Rela as _, SectionHeader as _, Sym as _};

use crate::elf::{Input, LE, LIMIT, damaged, header, utf8};
use crate::image::PAGE;
use crate::raw::{self, Call, Raw};

/// A shared library as an object, or the object itself. Its dynamic relocations become relocations for this linker. Its
/// sections keep their distances, because its code relies on them.
///
/// # Errors
/// A damaged file, an executable, or a relocation that only a running program can have.
pub fn relocatable<'a>(backend: &dyn Patch, input: &Input<'a>) -> Result<Cow<'a, [u8]>> {
    /// The symbol by which relocations refer to the library itself. No C symbol has a blank.
    const START: &str = "start of the library";
    /// The unwind table. It is not linked again, because it contains only distances from itself.
    const UNWIND: &str = ".eh_frame";
    let &Input { name, bytes } = input;
    let header = header(input)?;
    match header.e_type(LE) {
        elf::ET_DYN => {}
        elf::ET_EXEC => {
            return Err(Error::new(format!(
                "{name}: an executable's code runs at its own address only; valid: its objects, a module (.ko), a shared \
                 library, or its bytes with --raw"
            )));
        }
        _ => return Ok(Cow::Borrowed(bytes)),
    }
    let fail = damaged(name);
    let mut code = Vec::new();
    for program in header.program_headers(LE, bytes).map_err(&fail)? {
        let end = program.p_vaddr(LE).checked_add(program.p_memsz(LE)).filter(|end| *end <= LIMIT);
        let (true, Some(end)) = (program.p_type(LE) == elf::PT_LOAD, end) else {
            continue;
        };
        let contents =
            program.data(LE, bytes).map_err(|()| Error::damaged("a segment ends behind the file").at(name))?;
        let start = program.p_vaddr(LE) as usize;
        code.resize(code.len().max(end as usize), 0);
        let place = code.get_mut(start..).and_then(|part| part.get_mut(..contents.len()));
        place.ok_or_else(|| Error::damaged("a segment is larger than its memory").at(name))?.copy_from_slice(contents);
    }
    let sections = header.sections(LE, bytes).map_err(&fail)?;
    let dynamic = sections.symbols(LE, bytes, elf::SHT_DYNSYM).map_err(&fail)?;
    let mut symbols = vec![(START.to_owned(), 0, 0)];
    let mut seen = HashSet::new();
    for table in [&sections.symbols(LE, bytes, elf::SHT_SYMTAB).map_err(&fail)?, &dynamic] {
        for symbol in table.iter().filter(|s| s.st_shndx(LE) != elf::SHN_UNDEF && s.st_value(LE) < code.len() as u64) {
            let symbol_name = utf8(table.symbol_name(LE, symbol).map_err(&fail)?, "symbol").map_err(|e| e.at(name))?;
            let names_code = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_OBJECT | elf::STT_NOTYPE);
            if names_code && !symbol_name.is_empty() && !symbol_name.starts_with('$') && seen.insert(symbol_name) {
                symbols.push((symbol_name.to_owned(), symbol.st_value(LE), symbol.st_size(LE)));
            }
        }
    }
    let mut calls = Vec::new();
    let [word, relative, table, function] = backend.facts().dynamic;
    for section in sections.iter().filter(|s| s.sh_flags(LE).contains(elf::SHF_ALLOC)) {
        let Some((relocations, _)) = section.rela(LE, bytes).map_err(&fail)? else {
            continue;
        };
        for rela in relocations {
            let r_type = rela.r_type(LE, false).0;
            let target = match r_type {
                0 => continue,
                _ if r_type == relative => START.to_owned(),
                _ if [word, table, function].contains(&r_type) => {
                    let symbol = dynamic.symbol(SymbolIndex(rela.r_sym(LE, false) as usize)).map_err(&fail)?;
                    utf8(dynamic.symbol_name(LE, symbol).map_err(&fail)?, "symbol").map_err(|e| e.at(name))?.to_owned()
                }
                _ => {
                    return Err(Error::new(format!(
                        "{name}: dynamic relocation of type {r_type}, which only a running program can resolve; \
                         link without thread-local data and indirect functions, or give the objects"
                    )));
                }
            };
            calls.push(Call { offset: rela.r_offset(LE), r_type: word, addend: rela.r_addend(LE), target });
        }
    }
    let mut tables = Vec::new();
    for section in sections.iter() {
        if sections.section_name(LE, section).map_err(&fail)? == UNWIND.as_bytes() {
            tables.push((UNWIND, section.sh_addr(LE), section.sh_size(LE)));
        }
    }
    let (machine, e_flags) = (header.e_machine(LE).0, header.e_flags(LE).0);
    raw::object(&Raw { machine, e_flags, code: &code, align: PAGE, symbols, tables, calls, ..Raw::default() })
        .map(Cow::Owned)
}
