//! Shared libraries as objects.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use codegen::arch::patch::Patch;
use codegen::words::error::{Error, Result};
use object::elf;
use object::read::elf::{FileHeader as _, ProgramHeader as _, Rela as _, SectionHeader as _, Sym as _};
use object::read::{SectionIndex, SymbolIndex};

use crate::elf::{Header, Input, LE, LIMIT, damaged, header, utf8};
use crate::image::{Access, Image, PAGE, Segment};
use crate::raw::{self, Call, Raw};

/// The symbol by which relocations refer to the library itself. No C symbol has a blank.
const START: &str = "start of the library";
/// The unwind table. It is not linked again, because it contains only distances from itself.
const UNWIND: &str = ".eh_frame";

/// A shared library as an object, or the object itself. Its dynamic relocations become relocations for this linker. Its
/// sections keep their distances, because its code relies on them.
///
/// # Errors
/// A damaged file, an executable, or a relocation that only a running program can have.
pub fn relocatable<'a>(backend: &dyn Patch, input: &Input<'a>) -> Result<Cow<'a, [u8]>> {
    let running = |r_type| {
        Err(Error::new(format!(
            "{}: dynamic relocation of type {r_type}, which only a running program can resolve; link without thread-local \
             data and indirect functions, or give the objects",
            input.name
        )))
    };
    match Library::read(input)? {
        Some(library) => library.object(backend, &running).map(Cow::Owned),
        None => Ok(Cow::Borrowed(input.bytes)),
    }
}

/// Is it an executable, whose code runs at its own address only?
pub fn is_executable(input: &Input) -> bool {
    header(input).is_ok_and(|header| header.e_type(LE) == elf::ET_EXEC)
}

/// An object that functions are run from, whatever the rest of it needs.
#[derive(Debug)]
pub struct Runnable<'a> {
    /// The object.
    pub bytes: Cow<'a, [u8]>,
    /// What is known of it, if it is a shared library, which is linked by itself.
    pub shared: Option<Shared>,
}

/// What is known of a shared library.
#[derive(Debug)]
pub struct Shared {
    /// What is writable, in bytes from its start. Objects have sections for that.
    writable: Vec<Range<u64>>,
    /// The names that it exports.
    pub exported: HashSet<String>,
}

/// The same, where what only a running program can resolve stays as the file has it.
///
/// # Errors
/// A damaged file, or an executable.
pub fn runnable<'a>(backend: &dyn Patch, input: &Input<'a>) -> Result<Runnable<'a>> {
    let Some(library) = Library::read(input)? else {
        return Ok(Runnable { bytes: Cow::Borrowed(input.bytes), shared: None });
    };
    let bytes = Cow::Owned(library.object(backend, &|_| Ok(()))?);
    let exported = library.exported()?;
    Ok(Runnable { bytes, shared: Some(Shared { writable: library.writable, exported }) })
}

impl Shared {
    /// Where the library begins in the image that was linked of it alone.
    pub fn start(&self, image: &Image) -> Option<u64> {
        image.symbol(START).map(|symbol| symbol.address)
    }

    /// Let the image that was linked of it alone have writable memory where the library has.
    pub fn with_data(&self, image: &mut Image) {
        let Some(start) = self.start(image) else { return };
        for data in &self.writable {
            let Some(cut) = start.checked_add(data.start) else { continue };
            let Some(number) = image.segments.iter().position(|s| cut.wrapping_sub(s.address) < s.mem_size) else {
                continue;
            };
            let whole = image.segments.remove(number);
            let size = (data.end - data.start).min(whole.mem_size - (cut - whole.address));
            for (at, size, access) in [
                (whole.address, cut - whole.address, whole.access),
                (cut, size, Access::Write),
                (cut + size, whole.address + whole.mem_size - cut - size, whole.access),
            ] {
                let from = ((at - whole.address) as usize).min(whole.bytes.len());
                let end = from.saturating_add(size as usize).min(whole.bytes.len());
                let bytes = whole.bytes[from..end].to_vec();
                if size > 0 {
                    image.segments.push(Segment { address: at, bytes, mem_size: size, access });
                }
            }
            image.segments.sort_by_key(|segment| segment.address);
        }
    }
}

/// A shared library.
struct Library<'a> {
    input: Input<'a>,
    header: &'a Header,
    /// Its memory, from address 0.
    memory: Vec<u8>,
    writable: Vec<Range<u64>>,
}

impl<'a> Library<'a> {
    /// Read its segments; `None` if it is an object.
    fn read(input: &Input<'a>) -> Result<Option<Library<'a>>> {
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
            _ => return Ok(None),
        }
        let mut library = Library { input: *input, header, memory: Vec::new(), writable: Vec::new() };
        for program in header.program_headers(LE, bytes).map_err(damaged(name))? {
            let start = program.p_vaddr(LE);
            let end = start.checked_add(program.p_memsz(LE)).filter(|end| *end <= LIMIT);
            let (true, Some(end)) = (program.p_type(LE) == elf::PT_LOAD, end) else {
                continue;
            };
            let contents =
                program.data(LE, bytes).map_err(|()| Error::damaged("a segment ends behind the file").at(name))?;
            let memory = &mut library.memory;
            memory.resize(memory.len().max(end as usize), 0);
            let place = memory.get_mut(start as usize..).and_then(|part| part.get_mut(..contents.len()));
            place
                .ok_or_else(|| Error::damaged("a segment is larger than its memory").at(name))?
                .copy_from_slice(contents);
            // Loaders map pages.
            let pages = start - start % PAGE..end.next_multiple_of(PAGE);
            library.writable.extend(program.p_flags(LE).contains(elf::PF_W).then_some(pages));
        }
        Ok(Some(library))
    }

    /// The names that it exports.
    fn exported(&self) -> Result<HashSet<String>> {
        let Input { name, bytes } = self.input;
        let fail = damaged(name);
        let sections = self.header.sections(LE, bytes).map_err(&fail)?;
        let dynamic = sections.symbols(LE, bytes, elf::SHT_DYNSYM).map_err(&fail)?;
        let here = dynamic.iter().filter(|symbol| symbol.st_shndx(LE) != elf::SHN_UNDEF && !symbol.is_local());
        let exported = |symbol| Ok(utf8(dynamic.symbol_name(LE, symbol).map_err(&fail)?, "symbol")?.to_owned());
        here.map(exported).collect::<Result<_>>().map_err(|e| e.at(name))
    }

    /// It as an object; `other` judges types of relocations that are not known here.
    fn object(&self, backend: &dyn Patch, other: &dyn Fn(u32) -> Result<()>) -> Result<Vec<u8>> {
        let Input { name, bytes } = self.input;
        let fail = damaged(name);
        let sections = self.header.sections(LE, bytes).map_err(&fail)?;
        let dynamic = sections.symbols(LE, bytes, elf::SHT_DYNSYM).map_err(&fail)?;
        let (mut symbols, mut data) = (Vec::new(), vec![(START.to_owned(), 0, 0)]);
        let mut seen = HashSet::new();
        for table in [&sections.symbols(LE, bytes, elf::SHT_SYMTAB).map_err(&fail)?, &dynamic] {
            let here = |symbol: &&elf::Sym64<_>| {
                let section = symbol.st_shndx(LE);
                section != elf::SHN_UNDEF && section != elf::SHN_ABS && symbol.st_value(LE) < self.memory.len() as u64
            };
            for symbol in table.iter().filter(here) {
                let symbol_name =
                    utf8(table.symbol_name(LE, symbol).map_err(&fail)?, "symbol").map_err(|e| e.at(name))?;
                let is_code = match symbol.st_type() {
                    elf::STT_FUNC | elf::STT_NOTYPE => {
                        let section = sections.section(SectionIndex(usize::from(symbol.st_shndx(LE).0)));
                        section.is_ok_and(|section| section.sh_flags(LE).contains(elf::SHF_EXECINSTR))
                    }
                    elf::STT_OBJECT => false,
                    _ => continue,
                };
                if !symbol_name.is_empty() && !symbol_name.starts_with('$') && seen.insert(symbol_name) {
                    let list = if is_code { &mut symbols } else { &mut data };
                    list.push((symbol_name.to_owned(), symbol.st_value(LE), symbol.st_size(LE)));
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
                        let symbol_name = dynamic.symbol_name(LE, symbol).map_err(&fail)?;
                        utf8(symbol_name, "symbol").map_err(|e| e.at(name))?.to_owned()
                    }
                    _ => {
                        other(r_type)?;
                        continue;
                    }
                };
                calls.push(Call { offset: rela.r_offset(LE), r_type: word, addend: rela.r_addend(LE), target });
            }
        }
        for section in sections.iter() {
            if sections.section_name(LE, section).map_err(&fail)? == UNWIND.as_bytes() {
                data.push((UNWIND.to_owned(), section.sh_addr(LE), section.sh_size(LE)));
            }
        }
        let (machine, e_flags) = (self.header.e_machine(LE).0, self.header.e_flags(LE).0);
        let code = &self.memory;
        raw::object(&Raw { machine, e_flags, code, align: PAGE, symbols, data, calls, ..Raw::default() })
    }
}
