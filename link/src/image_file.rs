//! Images as ELF executables, and back.

use codegen::words::error::{Error, Result};
use object::elf;
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _, SectionTable, Sym as _};
use object::write::elf::{FileHeader, ProgramHeader, SectionHeader, SinglePhaseWriter, Sym};
use object::{Endianness, write};

use crate::elf::{Header, Input, LE, LIMIT, damaged, header, parts_fit_file, section_name, utf8};
use crate::image::{Access, Image, PAGE, Section, Segment, Symbol, SymbolKind};

/// The section in which [`Image::to_elf`] stores (list entry, site) pairs. They cannot be computed from the list alone, nor
/// from patched code.
const SITES: &str = ".ftrace_sites";

/// The name of the file in messages.
const IMAGE: &str = "image";

impl Image {
    /// The image as an ELF executable.
    ///
    /// # Errors
    /// More sections or longer names than ELF can hold.
    pub fn to_elf(&self) -> Result<Vec<u8>> {
        self.to_file().map_err(|e| Error::new(format!("cannot write the image: {e}")))
    }

    fn to_file(&self) -> write::Result<Vec<u8>> {
        let (mut out, mut head) = (Vec::new(), Vec::new());
        let mut w = SinglePhaseWriter::new_single_phase(Endianness::Little, true, &mut out);
        let header = FileHeader {
            e_type: elf::ET_EXEC,
            e_machine: elf::Machine(self.machine),
            e_flags: elf::FileFlags(self.e_flags),
            ..FileHeader::default()
        };
        w.write_file_header(&header)?;
        w.write_program_headers_placeholder(self.segments.len() as u32 + 1);
        let mut programs = self.write_segments(&mut w);
        let mut headers = self.section_headers(&mut w, &programs);
        programs.push(stack());
        headers.extend(self.write_sites(&mut w));
        self.write_symbols(&mut w);
        w.write_strtab()?;
        w.write_shstrtab()?;
        w.write_null_section_header();
        for header in &headers {
            w.write_section_header(header);
        }
        let locals = self.symbols.iter().filter(|s| s.local).count();
        w.write_strtab_section_header();
        w.write_symtab_section_header(locals as u32 + 1);
        w.write_shstrtab_section_header();
        w.write_headers_to(&mut head, &programs)?;
        if let Some(place) = out.get_mut(..head.len()) {
            place.copy_from_slice(&head);
        }
        Ok(out)
    }

    /// Write the contents of memory; returns the program headers for the loader.
    fn write_segments(&self, w: &mut SinglePhaseWriter<'_>) -> Vec<ProgramHeader> {
        let mut programs = Vec::new();
        for segment in &self.segments {
            // Loaders map pages: offset and address agree modulo a page.
            let page = w.write_align(PAGE);
            w.pad_until(page + segment.address % PAGE);
            programs.push(ProgramHeader {
                p_type: elf::PT_LOAD,
                p_flags: segment.access.program_flags(),
                p_offset: w.offset(),
                p_vaddr: segment.address,
                p_paddr: segment.address,
                p_filesz: segment.bytes.len() as u64,
                p_memsz: segment.mem_size,
                p_align: PAGE,
            });
            w.write(&segment.bytes);
        }
        programs
    }

    fn section_headers<'a>(&'a self, w: &mut SinglePhaseWriter<'a>, programs: &[ProgramHeader]) -> Vec<SectionHeader> {
        let place = Places::new(programs.iter().map(|p| (p.p_vaddr, p.p_memsz)));
        let file_offset = |address: u64| {
            let program = place.last_with(address).and_then(|i| programs.get(i));
            program.map_or(0, |p| p.p_offset + (address - p.p_vaddr).min(p.p_filesz))
        };
        let header = |s: &'a Section| SectionHeader {
            sh_name: {
                let id = w.add_section_name(s.name.as_bytes());
                w.section_name_offset(Some(id))
            },
            sh_type: if s.zeroed { elf::SHT_NOBITS } else { elf::SHT_PROGBITS },
            sh_flags: s.access.section_flags(),
            sh_addr: s.address,
            sh_offset: file_offset(s.address),
            sh_size: s.size,
            sh_addralign: s.align,
            ..SectionHeader::default()
        };
        self.sections.iter().map(header).collect()
    }

    /// Write the list of [`SITES`], if there are any.
    fn write_sites(&self, w: &mut SinglePhaseWriter<'_>) -> Option<SectionHeader> {
        if self.sites.is_empty() {
            return None;
        }
        let id = w.add_section_name(SITES.as_bytes());
        let header = SectionHeader {
            sh_name: w.section_name_offset(Some(id)),
            sh_type: elf::SHT_PROGBITS,
            sh_offset: w.write_align(8),
            sh_size: self.sites.len() as u64 * 16,
            sh_addralign: 8,
            sh_entsize: 16,
            ..SectionHeader::default()
        };
        for site in &self.sites {
            w.write(&site.entry.to_le_bytes());
            w.write(&site.ip.to_le_bytes());
        }
        Some(header)
    }

    fn write_symbols<'a>(&'a self, w: &mut SinglePhaseWriter<'a>) {
        w.write_null_symbol();
        let place = Places::new(self.sections.iter().map(|s| (s.address, s.size)));
        for symbol in &self.symbols {
            let bind = if symbol.local { elf::STB_LOCAL } else { elf::STB_GLOBAL };
            // A label at the end of a section belongs to it unless another section begins there.
            let section = place.last_with(symbol.address);
            let name = w.add_string(symbol.name.as_bytes());
            w.write_symbol(&Sym {
                section: section.map(|i| i as u32 + 1),
                st_name: w.string_offset(Some(name)),
                st_info: bind | symbol.kind.symbol_type(),
                st_other: elf::SymbolOther::default(),
                st_shndx: elf::SHN_ABS,
                st_value: symbol.address,
                st_size: symbol.size,
            });
        }
    }

    /// Read back what [`Image::to_elf`] wrote.
    ///
    /// # Errors
    /// Not a file of [`Image::to_elf`], or a damaged one.
    pub fn from_elf(bytes: &[u8]) -> Result<Image> {
        let input = Input { name: IMAGE, bytes };
        let header = header(&input)?;
        if header.e_type(LE) != elf::ET_EXEC {
            return Err(Error::new(format!(
                "{IMAGE}: ELF type {}; valid: an executable at fixed addresses (2), as link makes it",
                header.e_type(LE).0
            )));
        }
        let segments = read_segments(&input, header)?;
        let table = header.sections(LE, bytes).map_err(damaged(IMAGE))?;
        parts_fit_file(&input, table.iter().skip(1).filter_map(|s| Some(s.file_range(LE)?.1)))?;
        let (sections, pairs) = read_sections(&input, &table)?;
        let mut image = Image {
            machine: header.e_machine(LE).0,
            e_flags: header.e_flags(LE).0,
            segments,
            sections,
            symbols: read_symbols(&input, &table)?,
            sites: Vec::new(),
            references: Vec::new(),
        };
        image.set_sites(&pairs);
        Ok(image)
    }
}

/// The program header of a stack that is not executable.
fn stack() -> ProgramHeader {
    ProgramHeader {
        p_type: elf::PT_GNU_STACK,
        p_flags: elf::PF_R | elf::PF_W,
        p_offset: 0,
        p_vaddr: 0,
        p_paddr: 0,
        p_filesz: 0,
        p_memsz: 0,
        p_align: 16,
    }
}

/// Parts of memory that do not overlap, to find the one that contains an address.
struct Places {
    /// Start, size and number, by ascending start.
    all: Vec<(u64, u64, usize)>,
}

impl Places {
    fn new(parts: impl Iterator<Item = (u64, u64)>) -> Places {
        let mut all: Vec<(u64, u64, usize)> = parts.enumerate().map(|(i, (start, size))| (start, size, i)).collect();
        all.sort_by_key(|(start, ..)| *start);
        Places { all }
    }

    /// The number of the last part that begins at or before the address, if the address is in it or is its end.
    fn last_with(&self, address: u64) -> Option<usize> {
        let after = self.all.partition_point(|(start, ..)| *start <= address);
        let &(start, size, i) = self.all.get(after.checked_sub(1)?)?;
        (address - start <= size).then_some(i)
    }
}

fn read_segments(input: &Input, header: &Header) -> Result<Vec<Segment>> {
    let programs = header.program_headers(LE, input.bytes).map_err(damaged(IMAGE))?;
    parts_fit_file(input, programs.iter().map(|p| p.p_filesz(LE)))?;
    let mut segments: Vec<Segment> = Vec::new();
    let mut end = 0;
    for program in programs.iter().filter(|p| p.p_type(LE) == elf::PT_LOAD) {
        let address = program.p_vaddr(LE);
        let refuse = |what: &str| {
            let place = format!("{IMAGE}: segment at {address:#x}");
            Err(Error::new(format!("{place} {what}; link the image again")))
        };
        let contents = match program.data(LE, input.bytes) {
            Ok(contents) => contents,
            Err(()) => return refuse("is cut off"),
        };
        let mem_size = program.p_memsz(LE);
        if mem_size > LIMIT || (contents.len() as u64) > mem_size {
            return refuse("has an impossible size");
        }
        if address < end {
            return refuse("overlaps or precedes another");
        }
        end = match address.checked_add(mem_size) {
            Some(end) => end,
            None => return refuse("does not fit the address space"),
        };
        let flags = program.p_flags(LE);
        let access = match (flags.contains(elf::PF_W), flags.contains(elf::PF_X)) {
            (true, true) => return refuse("is writable and executable"),
            (true, false) => Access::Write,
            (false, true) => Access::Execute,
            (false, false) => Access::Read,
        };
        segments.push(Segment { address, bytes: contents.to_vec(), mem_size, access });
    }
    Ok(segments)
}

/// The sections that are in memory, and (list entry, site) pairs.
type Read = (Vec<Section>, Vec<(u64, u64)>);

fn read_sections(input: &Input, table: &SectionTable<Header>) -> Result<Read> {
    let (mut sections, mut pairs) = (Vec::new(), Vec::new());
    for section in table.iter().skip(1) {
        let name = section_name(table, section).map_err(|e| e.at(IMAGE))?;
        let flags = section.sh_flags(LE);
        if flags.contains(elf::SHF_ALLOC) {
            sections.push(Section {
                name: name.to_owned(),
                address: section.sh_addr(LE),
                size: section.sh_size(LE),
                align: section.sh_addralign(LE),
                access: Access::of(flags),
                zeroed: section.sh_type(LE) == elf::SHT_NOBITS,
            });
        } else if name == SITES {
            let list = section.data(LE, input.bytes).map_err(damaged(IMAGE))?;
            let words = list.as_chunks().0.iter().map(|w| u64::from_le_bytes(*w));
            let words: Vec<u64> = words.collect();
            pairs.extend(words.as_chunks().0.iter().map(|[entry, ip]| (*entry, *ip)));
        }
    }
    Ok((sections, pairs))
}

fn read_symbols(input: &Input, table: &SectionTable<Header>) -> Result<Vec<Symbol>> {
    let table = table.symbols(LE, input.bytes, elf::SHT_SYMTAB).map_err(damaged(IMAGE))?;
    let mut symbols = Vec::new();
    for symbol in table.iter().skip(1) {
        let name = table.symbol_name(LE, symbol).map_err(damaged(IMAGE))?;
        symbols.push(Symbol {
            name: utf8(name, "symbol").map_err(|e| e.at(IMAGE))?.to_owned(),
            address: symbol.st_value(LE),
            size: symbol.st_size(LE),
            kind: SymbolKind::of(symbol.st_type()),
            local: symbol.is_local(),
            hidden: false,
            input: None,
        });
    }
    Ok(symbols)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::backend_of;

    #[test]
    fn an_address_is_in_the_last_part_that_begins_before_it_or_nowhere() {
        let places = Places::new([(0x30, 8), (0x10, 0x10), (0x20, 4)].into_iter());
        let expected = [(0xf, None), (0x10, Some(1)), (0x1f, Some(1)), (0x20, Some(2)), (0x24, Some(2)), (0x25, None)];
        for (address, part) in expected.into_iter().chain([(0x38, Some(0)), (0x39, None), (u64::MAX, None)]) {
            assert_eq!(places.last_with(address), part, "{address:#x}");
        }
        assert_eq!(Places::new([].into_iter()).last_with(0), None);
    }

    #[test]
    fn what_is_not_elf_is_refused() {
        for (bytes, what) in [
            (&b""[..], "empty"),
            (b"#!/bin/sh", "not ELF"),
            (b"\x7fELF", "unknown class"),
            (b"\x7fELF\x01\x01\x01", "ELF32"),
            (b"\x7fELF\x02\x02\x01", "big-endian"),
            (b"\x7fELF\x02\x01\x01", "cut off"),
        ] {
            let Err(e) = backend_of(&Input { name: "a.o", bytes }, &[]) else { panic!("{what}") };
            assert!(e.to_string().starts_with("a.o: "), "{e}");
            assert!(e.to_string().contains(what), "{e}");
            assert!(Image::from_elf(bytes).is_err());
        }
    }
}
