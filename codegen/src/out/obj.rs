//! Assembly to ELF64 relocatable object, byte-identical on every run.
//!
//! The sections stand in the order in which GNU as writes them. Relocation types are the raw numbers of the psABI.

use std::borrow::Cow;
use std::io;

use object::Endianness;
use object::elf;
use object::write::elf::{FileHeader, SectionHeader, SectionIndex, Writer};
use object::write::{StreamingBuffer, StringId, WritableBuffer};

use crate::arch::facts::Facts;
use crate::arch::harden::TypeWord;
use crate::out::assembly::{Assembly, Symbol};
use crate::out::objtool::SECTIONS;
use crate::profile::lsda::{self, Tables};
use crate::profile::target::Target;
use crate::words::error::{Error, Result};
use crate::words::reloc::{Reloc, RelocTarget};

/// The name of labels that only unwind tables refer to, as GNU as has it.
const UNWIND_LABEL: &[u8] = b".L0 \0";

/// The name of the mapping symbol for data in code.
const DATA: &[u8] = b"$d\0";

const SYMBOL_BYTES: u64 = 24;

/// Bytes that are written at once.
const BUFFER: usize = 1 << 16;

/// Write `assembly` as an object file.
///
/// # Errors
/// The object would not fit the format's 32-bit counts.
pub fn write(assembly: &Assembly, target: &Target) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    emit(assembly, target, &mut bytes).map_err(|e| Error::new(format!("object file: {e}")))?;
    Ok(bytes)
}

/// Write an object to a stream, without keeping all of it in memory.
///
/// # Errors
/// As [`write`], and the errors of `to`.
pub fn write_to(assembly: &Assembly, target: &Target, to: impl io::Write) -> Result<()> {
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

/// The number of `.text`.
const TEXT: u32 = 1;

/// The places of mapping symbols in `.text`: the offset, and whether data begins there.
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
    data: Cow<'d, [u8]>,
    relocs: Cow<'d, [Reloc]>,
    align: u64,
    flags: elf::SectionFlags,
    /// Bytes of an entry, where the section says so.
    entry: u64,
    kind: elf::SectionType,
}

impl Contents<'_> {
    /// How many section headers it takes.
    fn headers(&self) -> u32 {
        1 + u32::from(!self.relocs.is_empty())
    }
}

const EXPORTS: (&str, &str) = (".export_symbol", ".rela.export_symbol");

/// The contents of sections, in the order of GNU as.
fn contents<'d>(assembly: &'d Assembly, target: &'d Target) -> Vec<Contents<'d>> {
    let section = |name, data: &'d [u8], relocs: &'d [Reloc], align, flags| {
        let (data, relocs) = (Cow::Borrowed(data), Cow::Borrowed(relocs));
        Contents { name, data, relocs, align, flags, entry: 0, kind: elf::SHT_PROGBITS }
    };
    let (none, alloc) = (elf::SectionFlags(0), elf::SHF_ALLOC);
    let exec = elf::SectionFlags(alloc.0 | elf::SHF_EXECINSTR.0);
    let align = u64::from(target.facts.align);
    let text = section((".text", ".rela.text"), assembly.text(), &assembly.relocs, align, exec);
    let mut all = vec![text, section((".note.GNU-stack", ""), &[], &[], 1, none)];
    if !assembly.exports.is_empty() {
        all.push(Contents {
            data: vec![0; assembly.exports.len() * Assembly::EXPORT].into(),
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
    if let Some(mut note) = assembly.property_note(target) {
        let (without, with) = assembly.marks;
        note[6] = note[6] & !without | with;
        let data = note.into_iter().flat_map(u32::to_le_bytes).collect();
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
            data: vec![0; 8].into(),
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
    w.write(&contents.data);
    if contents.relocs.is_empty() {
        return;
    }
    w.write_align_relocation();
    let mut records = Records::new(w);
    for r in contents.relocs.iter() {
        let info = u64::from(numbers.of(r.to)) << 32 | u64::from(r.r_type);
        records.words([u64::from(r.at), info, r.addend as u64]);
    }
    records.end();
}

/// Writes many small records at once.
struct Records<'w, 'd> {
    w: &'w mut Writer<'d>,
    bytes: Vec<u8>,
}

impl<'w, 'd> Records<'w, 'd> {
    fn new(w: &'w mut Writer<'d>) -> Records<'w, 'd> {
        Records { w, bytes: Vec::with_capacity(BUFFER + 64) }
    }

    /// A relocation or a symbol: three words, the first byte first.
    fn words(&mut self, words: [u64; 3]) {
        let mut record = [0; SYMBOL_BYTES as usize];
        for (bytes, word) in record.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        self.bytes.extend_from_slice(&record);
        if self.bytes.len() >= BUFFER {
            self.write();
        }
    }

    fn write(&mut self) {
        self.w.write(&self.bytes);
        self.bytes.clear();
    }

    /// Write what is left.
    fn end(mut self) {
        self.write();
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
    let mut records = Records::new(w);
    let mut symbol = |name: u32, info: elf::SymbolInfo, other: u8, section: u32, value: u32, size: u32| {
        // st_name, st_info, st_other and st_shndx; st_value; st_size.
        let first = u64::from(name) | u64::from(info.0) << 32 | u64::from(other) << 40 | u64::from(section) << 48;
        records.words([first, value.into(), size.into()]);
    };
    let local = |st_type| elf::SymbolInfo::new(elf::STB_LOCAL, st_type);
    let function = |symbol: &Symbol| if symbol.function { elf::STT_FUNC } else { elf::STT_NOTYPE };
    symbol(0, local(elf::STT_SECTION), 0, TEXT, 0, 0);
    for (offset, data) in marks(assembly, facts) {
        let name = if data { names.data } else { names.code };
        symbol(name, local(elf::STT_NOTYPE), 0, TEXT, offset, 0);
    }
    for of in &assembly.locals {
        symbol(assembly.name_offset(of), local(function(of)), 0, TEXT, of.offset.unwrap_or(0), of.size);
    }
    assembly.eh_frame.labels.iter().for_each(|&at| symbol(names.label, local(elf::STT_NOTYPE), 0, TEXT, at, 0));
    for (of, _) in &assembly.exports {
        let name = assembly.name_offset(of);
        symbol(name, local(elf::STT_NOTYPE), 0, export_section, of.offset.unwrap_or(0), 0);
    }
    let named = facts.lengths.is_some();
    for (section, offset) in exception_labels(assembly, facts) {
        let kind = if named { elf::STT_NOTYPE } else { elf::STT_SECTION };
        let name = if named { names.label } else { 0 };
        symbol(name, local(kind), 0, of_exceptions[section], offset, 0);
    }
    for of in &assembly.globals {
        let kind = if of.tls { elf::STT_TLS } else { function(of) };
        let info = elf::SymbolInfo::new(elf::STB_GLOBAL, kind);
        let visibility = if of.protected { elf::STV_PROTECTED } else { elf::STV_DEFAULT };
        let other = elf::SymbolOther::default().with_visibility(visibility).0;
        let section = if of.offset.is_some() { TEXT } else { 0 };
        symbol(assembly.name_offset(of), info, other, section, of.offset.unwrap_or(0), of.size);
    }
    records.end();
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
