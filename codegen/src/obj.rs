//! Assembly to ELF64 relocatable object, byte-identical on every run.
//!
//! The sections stand in the order in which GNU as writes them. Relocation types are the raw numbers of the psABI.

use std::borrow::Cow;
use std::io;

use object::Endianness;
use object::elf;
use object::write::elf::{FileHeader, Rel, SectionHeader, SectionIndex, Sym, Writer};
use object::write::{StreamingBuffer, StringId, WritableBuffer};

use crate::assembly::Assembly;
use crate::error::{Error, Result};
use crate::facts::Facts;
use crate::harden::TypeWord;
use crate::lsda::{self, Tables};
use crate::objtool::SECTIONS;
use crate::reloc::{Reloc, RelocTarget};
use crate::target::Target;

/// The name of labels that only unwind tables refer to, as GNU as has it.
const UNWIND_LABEL: &[u8] = b".L0 \0";

/// What marks data in code, in the psABIs that mark code.
const DATA: &[u8] = b"$d\0";

const SYMBOL_BYTES: u64 = 24;

/// Write `assembly` as an object file.
///
/// # Errors
/// The object would not fit the format's 32-bit counts.
pub fn write(assembly: &Assembly, target: &Target) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    emit(assembly, target, &mut bytes).map_err(|e| Error::new(format!("object file: {e}")))?;
    Ok(bytes)
}

/// The same to where there is no need to have all of it in memory.
///
/// # Errors
/// As [`write`], and those of `to`.
pub fn write_to(assembly: &Assembly, target: &Target, to: impl io::Write) -> Result<()> {
    const BUFFER: usize = 1 << 16;
    let mut buffer = StreamingBuffer::new(io::BufWriter::with_capacity(BUFFER, to));
    emit(assembly, target, &mut buffer).map_err(|e| Error::new(format!("object file: {e}")))?;
    buffer.flush().map_err(|e| Error::new(format!("object file: {e}")))
}

fn emit(assembly: &Assembly, target: &Target, buffer: &mut dyn WritableBuffer) -> object::write::Result<()> {
    let contents = contents(assembly, target);
    let numbers = SymbolNumbers::new(assembly, target.facts);
    let (names, last_names) = (assembly.string_table().as_bytes(), LastNames::new(assembly, target.facts));
    let mut w = Writer::new(Endianness::Little, true, buffer);
    w.reserve_file_header();
    let sections: Vec<Section> = contents.iter().map(|c| reserve_contents(&mut w, c)).collect();
    w.reserve_null_symbol_index();
    for _ in 1..numbers.end {
        w.reserve_symbol_index(None);
    }
    let symtab_index = w.reserve_symtab_section_index();
    w.reserve_symtab();
    w.reserve_section_index();
    let strings = (names.len() + last_names.bytes.len()) as u64;
    let strtab_offset = w.reserve(strings, 1);
    let table_names = [".symtab", ".strtab"].map(|name| w.add_section_name(name.as_bytes()));
    w.reserve_shstrtab_section_index();
    w.reserve_shstrtab()?;
    w.reserve_section_headers();

    w.write_file_header(&FileHeader {
        os_abi: elf::ELFOSABI_NONE,
        abi_version: 0,
        e_type: elf::ET_REL,
        e_machine: elf::Machine(target.facts.machine),
        e_entry: 0,
        e_flags: elf::FileFlags(target.e_flags),
    })?;
    contents.iter().for_each(|c| write_contents(&mut w, c, &numbers));
    let number = |name| 1 + contents.iter().take_while(|c| c.name.0 != name).map(Contents::headers).sum::<u32>();
    let of_labels = [EXPORTS.0, lsda::POINTER, lsda::TABLES].map(number);
    let symtab = SectionHeader {
        sh_type: elf::SHT_SYMTAB,
        sh_offset: w.write_null_symbol(),
        sh_size: u64::from(numbers.end) * SYMBOL_BYTES,
        sh_link: symtab_index.0 + 1,
        sh_info: numbers.global,
        sh_addralign: 8,
        sh_entsize: SYMBOL_BYTES,
        ..PROGBITS
    };
    write_symbols(&mut w, assembly, target.facts, &last_names, of_labels);
    w.write(names);
    w.write(&last_names.bytes);
    let strtab = SectionHeader { sh_type: elf::SHT_STRTAB, sh_offset: strtab_offset, sh_size: strings, ..PROGBITS };
    w.write_shstrtab();
    write_headers(&mut w, sections, symtab_index, table_names.into_iter().zip([symtab, strtab]));
    Ok(())
}

const PROGBITS: SectionHeader = SectionHeader {
    sh_name: 0,
    sh_type: elf::SHT_PROGBITS,
    sh_flags: elf::SectionFlags(0),
    sh_addr: 0,
    sh_offset: 0,
    sh_size: 0,
    sh_link: 0,
    sh_info: 0,
    sh_addralign: 1,
    sh_entsize: 0,
};

/// Where code and data begin in `.text`, for the symbols that say so: the offset, and whether it is data.
fn marks(assembly: &Assembly, facts: &Facts) -> impl Iterator<Item = (u32, bool)> {
    let data = assembly.data.iter().flat_map(|&at| [(at, true), (at + TypeWord::BYTES as u32, false)]);
    let first = (assembly.data.first() != Some(&0)).then_some((0, false));
    first.into_iter().chain(data).filter(|_| !facts.mapping.is_empty())
}

/// The first number of each kind of symbol: after the null symbol come that of `.text`, the mapping symbols, local labels,
/// labels of the unwind table, labels of exports, what unwinders read for exceptions, globals.
struct SymbolNumbers {
    local: u32,
    label: u32,
    exception: u32,
    global: u32,
    end: u32,
}

impl SymbolNumbers {
    const TEXT: u32 = 1;

    fn new(assembly: &Assembly, facts: &Facts) -> SymbolNumbers {
        let local = SymbolNumbers::TEXT + 1 + marks(assembly, facts).count() as u32;
        let label = local + assembly.locals.len() as u32;
        let exception = label + (assembly.eh_frame.labels.len() + assembly.exports.len()) as u32;
        let global = exception + exception_labels(assembly, facts).len() as u32;
        SymbolNumbers { local, label, exception, global, end: global + assembly.globals.len() as u32 }
    }

    fn of(&self, to: RelocTarget) -> u32 {
        match to {
            RelocTarget::Text => SymbolNumbers::TEXT,
            RelocTarget::Local(i) => self.local + i,
            RelocTarget::Unwind(i) => self.label + i,
            RelocTarget::Personality => self.exception,
            RelocTarget::Tables => self.exception + 1,
            RelocTarget::Table(i) => self.exception + 1 + i,
            RelocTarget::Global(i) => self.global + i,
        }
    }
}

/// What refers to the pointer to the personality and to tables of call sites: (which of the two sections, offset). GNU as
/// takes the symbol of the section, but where the linker may change distances.
fn exception_labels(assembly: &Assembly, facts: &Facts) -> Vec<(usize, u32)> {
    let tables = &assembly.tables.starts;
    match (assembly.personality, facts.lengths) {
        (None, _) => Vec::new(),
        (Some(_), None) => vec![(0, 0), (1, 0)],
        (Some(_), Some(_)) => std::iter::once((0, 0)).chain(tables.iter().map(|start| (1, *start))).collect(),
    }
}

/// A section as it is asked for. The second name is that of its relocations.
struct Contents<'d> {
    name: (&'static str, &'static str),
    data: Data<'d>,
    relocs: Cow<'d, [Reloc]>,
    align: u64,
    flags: elf::SectionFlags,
    /// Bytes of an entry, where the section says so.
    entry: u64,
    kind: elf::SectionType,
}

/// The bytes of a section.
enum Data<'d> {
    Bytes(Cow<'d, [u8]>),
    /// Those of `.text`.
    Text(&'d Assembly),
}

impl Data<'_> {
    fn len(&self) -> usize {
        match self {
            Data::Bytes(bytes) => bytes.len(),
            Data::Text(assembly) => assembly.text_len(),
        }
    }

    fn write(&self, w: &mut Writer) {
        /// Bytes that are written at once, of pieces that repeat.
        const AT_ONCE: usize = 1 << 16;
        match self {
            Data::Bytes(bytes) => w.write(bytes),
            Data::Text(assembly) => {
                for (piece, times) in assembly.text_runs() {
                    let some = times.min(AT_ONCE / piece.len().max(1)).max(1);
                    let (all, one) = (piece.repeat(some), piece.len());
                    (0..times / some).for_each(|_| w.write(&all));
                    w.write(&all[..times % some * one]);
                }
            }
        }
    }
}

impl Contents<'_> {
    /// How many section headers it takes.
    fn headers(&self) -> u32 {
        1 + u32::from(!self.relocs.is_empty())
    }
}

const EXPORTS: (&str, &str) = (".export_symbol", ".rela.export_symbol");

/// What goes into sections, in the order of GNU as.
fn contents<'d>(assembly: &'d Assembly, target: &'d Target) -> Vec<Contents<'d>> {
    let section = |name, data: &'d [u8], relocs: &'d [Reloc], align, flags| {
        let (data, relocs) = (Data::Bytes(Cow::Borrowed(data)), Cow::Borrowed(relocs));
        Contents { name, data, relocs, align, flags, entry: 0, kind: elf::SHT_PROGBITS }
    };
    let (none, alloc) = (elf::SectionFlags(0), elf::SHF_ALLOC);
    let exec = elf::SectionFlags(alloc.0 | elf::SHF_EXECINSTR.0);
    let align = u64::from(target.facts.align);
    let text = section((".text", ".rela.text"), &[], &assembly.relocs, align, exec);
    let mut all =
        vec![Contents { data: Data::Text(assembly), ..text }, section((".note.GNU-stack", ""), &[], &[], 1, none)];
    if !assembly.exports.is_empty() {
        all.push(Contents {
            data: Data::Bytes(vec![0; assembly.exports.len() * Assembly::EXPORT].into()),
            relocs: assembly.exports.iter().map(|(_, word)| *word).collect(),
            ..section(EXPORTS, &[], &[], 8, alloc)
        });
    }
    for (of, (bytes, relocs)) in SECTIONS.iter().zip(&assembly.notes) {
        if !bytes.is_empty() {
            // In no memory: else the kernel's linker would keep what objtool does not see.
            let flags = if of.entry == 0 { none } else { elf::SHF_MERGE };
            all.push(Contents { entry: of.entry, ..section(of.name, bytes, relocs, of.align, flags) });
        }
    }
    if let Some(note) = target.landing_pads_note() {
        let data = Data::Bytes(note.into_iter().flat_map(u32::to_le_bytes).collect());
        let section = section((".note.gnu.property", ""), &[], &[], 8, alloc);
        all.push(Contents { data, kind: elf::SHT_NOTE, ..section });
    }
    if let Some(personality) = assembly.personality {
        let Tables { bytes, relocs, .. } = &assembly.tables;
        all.push(section((lsda::TABLES, ".rela.gcc_except_table"), bytes, relocs, lsda::ALIGN as u64, alloc));
        let to = RelocTarget::Global(personality);
        let pointer = Reloc { at: 0, r_type: target.facts.dynamic[0], to, addend: 0 };
        let write = elf::SectionFlags(alloc.0 | elf::SHF_WRITE.0);
        all.push(Contents {
            data: Data::Bytes(vec![0; 8].into()),
            relocs: vec![pointer].into(),
            ..section((lsda::POINTER, ".rela.data.rel.ro.personality"), &[], &[], 8, write)
        });
    }
    let eh = &assembly.eh_frame;
    if !eh.bytes.is_empty() {
        all.push(section((".eh_frame", ".rela.eh_frame"), &eh.bytes, &eh.relocs, 8, alloc));
    }
    if let Some((name, kind, data)) = &target.attributes {
        all.push(Contents { kind: elf::SectionType(*kind), ..section((name, ""), data, &[], 1, none) });
    }
    all
}

/// The header of a section with its name, and that of its relocations: where they are, and how many.
struct Section {
    name: StringId,
    header: SectionHeader,
    relocs: Option<(StringId, u64, usize)>,
}

fn reserve_contents<'d>(w: &mut Writer<'d>, contents: &Contents) -> Section {
    w.reserve_section_index();
    let bytes = contents.data.len() as u64;
    let header = SectionHeader {
        sh_type: contents.kind,
        sh_flags: contents.flags,
        sh_offset: w.reserve(bytes, contents.align),
        sh_size: bytes,
        sh_addralign: contents.align,
        sh_entsize: contents.entry,
        ..PROGBITS
    };
    let (name, rela) = contents.name;
    let relocs = (!contents.relocs.is_empty()).then(|| {
        w.reserve_section_index();
        let count = contents.relocs.len();
        (w.add_section_name(rela.as_bytes()), w.reserve_relocations(count, true), count)
    });
    Section { name: w.add_section_name(name.as_bytes()), header, relocs }
}

fn write_contents(w: &mut Writer, contents: &Contents, numbers: &SymbolNumbers) {
    w.write_align(contents.align);
    contents.data.write(w);
    if !contents.relocs.is_empty() {
        w.write_align_relocation();
    }
    for r in &*contents.relocs {
        let (r_sym, r_type) = (numbers.of(r.to), elf::RelocationType(r.r_type));
        w.write_relocation(true, &Rel { r_offset: u64::from(r.at), r_sym, r_type, r_addend: r.addend });
    }
}

/// The names that come after those of the assembly, which keeps its own as a string table; and where each begins.
struct LastNames {
    bytes: Vec<u8>,
    code: u32,
    data: u32,
    label: u32,
}

impl LastNames {
    fn new(assembly: &Assembly, facts: &Facts) -> LastNames {
        let mut bytes = Vec::new();
        let mut add = |name: &[u8], wanted: bool| {
            let at = assembly.string_table().len() + bytes.len();
            bytes.extend_from_slice(if wanted { name } else { &[] });
            at as u32
        };
        let code = add(facts.mapping.as_bytes(), true);
        add(&[0], true);
        let data = add(DATA, !assembly.data.is_empty());
        let label = add(UNWIND_LABEL, !assembly.eh_frame.labels.is_empty());
        LastNames { bytes, code, data, label }
    }
}

/// All but the null symbol, in the order of [`SymbolNumbers`].
fn write_symbols(
    w: &mut Writer,
    assembly: &Assembly,
    facts: &Facts,
    names: &LastNames,
    [export_section, of_exceptions @ ..]: [u32; 3],
) {
    let text_section = Some(1);
    let local = |name, st_type| Sym {
        section: text_section,
        st_name: name,
        st_info: elf::SymbolInfo::new(elf::STB_LOCAL, st_type),
        st_other: elf::SymbolOther::default(),
        st_shndx: elf::SymbolSection::default(),
        st_value: 0,
        st_size: 0,
    };
    w.write_symbol(&local(0, elf::STT_SECTION));
    for (offset, data) in marks(assembly, facts) {
        let name = if data { names.data } else { names.code };
        w.write_symbol(&Sym { st_value: offset.into(), ..local(name, elf::STT_NOTYPE) });
    }
    for symbol in &assembly.locals {
        let kind = if symbol.function { elf::STT_FUNC } else { elf::STT_NOTYPE };
        let (st_value, st_size) = (u64::from(symbol.offset.unwrap_or(0)), u64::from(symbol.size));
        w.write_symbol(&Sym { st_value, st_size, ..local(assembly.name_offset(symbol), kind) });
    }
    for &offset in &assembly.eh_frame.labels {
        w.write_symbol(&Sym { st_value: u64::from(offset), ..local(names.label, elf::STT_NOTYPE) });
    }
    for (symbol, _) in &assembly.exports {
        let st_value = u64::from(symbol.offset.unwrap_or(0));
        let label = local(assembly.name_offset(symbol), elf::STT_NOTYPE);
        w.write_symbol(&Sym { section: Some(export_section), st_value, ..label });
    }
    let named = facts.lengths.is_some();
    for (section, offset) in exception_labels(assembly, facts) {
        let kind = if named { elf::STT_NOTYPE } else { elf::STT_SECTION };
        let name = if named { names.label } else { 0 };
        let section = Some(of_exceptions[section]);
        w.write_symbol(&Sym { section, st_value: u64::from(offset), ..local(name, kind) });
    }
    for symbol in &assembly.globals {
        let kind = if symbol.function { elf::STT_FUNC } else { elf::STT_NOTYPE };
        let visibility = if symbol.protected { elf::STV_PROTECTED } else { elf::STV_DEFAULT };
        w.write_symbol(&Sym {
            st_other: elf::SymbolOther::default().with_visibility(visibility),
            section: symbol.offset.and(text_section),
            st_info: elf::SymbolInfo::new(elf::STB_GLOBAL, kind),
            st_value: u64::from(symbol.offset.unwrap_or(0)),
            st_size: u64::from(symbol.size),
            ..local(assembly.name_offset(symbol), kind)
        });
    }
}

fn write_headers(
    w: &mut Writer,
    sections: Vec<Section>,
    symtab: SectionIndex,
    tables: impl Iterator<Item = (StringId, SectionHeader)>,
) {
    w.write_null_section_header();
    for Section { name, header, relocs } in sections {
        let sh_name = w.section_name_offset(Some(name));
        let of = w.write_section_header(&SectionHeader { sh_name, ..header });
        if let Some((rela, at, count)) = relocs {
            w.write_relocation_section_header(rela, of, symtab, at, count, true);
        }
    }
    for (name, header) in tables {
        let sh_name = w.section_name_offset(Some(name));
        w.write_section_header(&SectionHeader { sh_name, ..header });
    }
    w.write_shstrtab_section_header();
}
