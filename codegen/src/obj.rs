//! Assembly to ELF64 relocatable object, byte-identical on every run.
//!
//! The sections stand in the order in which GNU as writes them. Relocation types are the raw numbers of the psABI.

use std::borrow::Cow;

use object::Endianness;
use object::elf;
use object::write::elf::{FileHeader, Rel, SectionHeader, SectionIndex, SinglePhase, Sym, Writer};

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
const DATA: &str = "$d";

const HEADER_BYTES: usize = 64;
const SYMBOL_BYTES: u64 = 24;
const RELA_BYTES: usize = 24;

/// Write `assembly` as an object file.
///
/// # Errors
/// The object would not fit the format's 32-bit counts.
pub fn write(assembly: &Assembly, target: &Target) -> Result<Vec<u8>> {
    let exports = assembly.exports.len();
    let marked = marks(assembly, target.facts).count();
    let symbols = assembly.globals.len() + assembly.locals.len() + assembly.eh_frame.labels.len() + exports + marked;
    let notes = assembly.notes.iter().map(|(_, relocs)| relocs.len()).sum::<usize>();
    let relocs = assembly.relocs.len() + assembly.eh_frame.relocs.len() + exports + notes;
    let tables = assembly.tables.bytes.len() + RELA_BYTES * assembly.tables.relocs.len();
    let contents = assembly.text().len() + assembly.eh_frame.bytes.len() + tables + assembly.string_table().len();
    let mut bytes = Vec::with_capacity(contents + SYMBOL_BYTES as usize * symbols + RELA_BYTES * relocs + 4096);
    let headers = write_body(assembly, target, &mut bytes).map_err(|e| Error::new(format!("object file: {e}")))?;
    bytes[..headers.len()].copy_from_slice(&headers);
    Ok(bytes)
}

fn write_body(assembly: &Assembly, target: &Target, bytes: &mut Vec<u8>) -> object::write::Result<Vec<u8>> {
    let mut w = Writer::new_single_phase(Endianness::Little, true, bytes);
    w.write_file_header(&FileHeader {
        os_abi: elf::ELFOSABI_NONE,
        abi_version: 0,
        e_type: elf::ET_REL,
        e_machine: elf::Machine(target.facts.machine),
        e_entry: 0,
        e_flags: elf::FileFlags(target.e_flags),
    })?;
    let numbers = SymbolNumbers::new(assembly, target.facts);
    let contents = contents(assembly, target);
    let sections: Vec<Section> = contents.iter().map(|c| write_contents(&mut w, c, &numbers)).collect();
    let number = |name| 1 + contents.iter().take_while(|c| c.name.0 != name).map(Contents::headers).sum::<u32>();
    let of_labels = [EXPORTS.0, lsda::POINTER, lsda::TABLES].map(number);

    let symtab_offset = w.write_null_symbol();
    write_symbols(&mut w, assembly, target.facts, of_labels);
    let strtab_offset = w.offset();
    write_strings(&mut w, assembly, target.facts);
    let symtab = SectionHeader {
        sh_type: elf::SHT_SYMTAB,
        sh_offset: symtab_offset,
        sh_size: u64::from(numbers.end) * SYMBOL_BYTES,
        sh_info: numbers.global,
        sh_addralign: 8,
        sh_entsize: SYMBOL_BYTES,
        ..PROGBITS
    };
    let strtab = SectionHeader {
        sh_type: elf::SHT_STRTAB,
        sh_offset: strtab_offset,
        sh_size: w.offset() - strtab_offset,
        ..PROGBITS
    };
    write_headers(&mut w, &sections, symtab, strtab)?;
    let mut headers = Vec::with_capacity(HEADER_BYTES);
    w.write_file_header_to(&mut headers)?;
    Ok(headers)
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

/// What goes into sections, in the order of GNU as.
fn contents<'d>(assembly: &'d Assembly, target: &'d Target) -> Vec<Contents<'d>> {
    let section = |name, data: &'d [u8], relocs: &'d [Reloc], align, flags| {
        let (data, relocs) = (Cow::Borrowed(data), Cow::Borrowed(relocs));
        Contents { name, data, relocs, align, flags, entry: 0, kind: elf::SHT_PROGBITS }
    };
    let (none, alloc) = (elf::SectionFlags(0), elf::SHF_ALLOC);
    let exec = elf::SectionFlags(alloc.0 | elf::SHF_EXECINSTR.0);
    let align = u64::from(target.facts.align);
    let mut all = vec![
        section((".text", ".rela.text"), assembly.text(), &assembly.relocs, align, exec),
        section((".note.GNU-stack", ""), &[], &[], 1, none),
    ];
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
    if let Some(note) = target.landing_pads_note() {
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

/// A section that was written, and its relocations: where, and how many.
struct Section {
    name: (&'static str, &'static str),
    header: SectionHeader,
    relocs: Option<(u64, usize)>,
}

fn write_contents(w: &mut Writer<'_, SinglePhase>, contents: &Contents, numbers: &SymbolNumbers) -> Section {
    let header = SectionHeader {
        sh_type: contents.kind,
        sh_flags: contents.flags,
        sh_offset: w.write_align(contents.align),
        sh_size: contents.data.len() as u64,
        sh_addralign: contents.align,
        sh_entsize: contents.entry,
        ..PROGBITS
    };
    w.write(&contents.data);
    let relocs = (!contents.relocs.is_empty()).then(|| {
        let at = w.write_align_relocation();
        for r in &*contents.relocs {
            let (r_sym, r_type) = (numbers.of(r.to), elf::RelocationType(r.r_type));
            w.write_relocation(true, &Rel { r_offset: u64::from(r.at), r_sym, r_type, r_addend: r.addend });
        }
        (at, contents.relocs.len())
    });
    Section { name: contents.name, header, relocs }
}

/// All but the null symbol, in the order of [`SymbolNumbers`].
fn write_symbols(
    w: &mut Writer<'_, SinglePhase>,
    assembly: &Assembly,
    facts: &Facts,
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
    let code_name = assembly.string_table().len();
    let data_name = code_name + facts.mapping.len() + 1;
    for (offset, data) in marks(assembly, facts) {
        let name = if data { data_name } else { code_name };
        w.write_symbol(&Sym { st_value: offset.into(), ..local(name as u32, elf::STT_NOTYPE) });
    }
    for symbol in &assembly.locals {
        let kind = if symbol.function { elf::STT_FUNC } else { elf::STT_NOTYPE };
        let (st_value, st_size) = (u64::from(symbol.offset.unwrap_or(0)), u64::from(symbol.size));
        w.write_symbol(&Sym { st_value, st_size, ..local(assembly.name_offset(symbol), kind) });
    }
    let data_bytes = if assembly.data.is_empty() { 0 } else { DATA.len() + 1 };
    let label_name = (data_name + data_bytes) as u32;
    for &offset in &assembly.eh_frame.labels {
        w.write_symbol(&Sym { st_value: u64::from(offset), ..local(label_name, elf::STT_NOTYPE) });
    }
    for (symbol, _) in &assembly.exports {
        let st_value = u64::from(symbol.offset.unwrap_or(0));
        let label = local(assembly.name_offset(symbol), elf::STT_NOTYPE);
        w.write_symbol(&Sym { section: Some(export_section), st_value, ..label });
    }
    let named = facts.lengths.is_some();
    for (section, offset) in exception_labels(assembly, facts) {
        let kind = if named { elf::STT_NOTYPE } else { elf::STT_SECTION };
        let name = if named { label_name } else { 0 };
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

/// The assembly keeps its names as a string table; only those of mapping symbols and of unwind labels come after them.
fn write_strings(w: &mut Writer<'_, SinglePhase>, assembly: &Assembly, facts: &Facts) {
    w.write(assembly.string_table().as_bytes());
    w.write(facts.mapping.as_bytes());
    w.write(&[0]);
    if !assembly.data.is_empty() {
        w.write(DATA.as_bytes());
        w.write(&[0]);
    }
    if !assembly.eh_frame.labels.is_empty() {
        w.write(UNWIND_LABEL);
    }
}

fn write_headers(
    w: &mut Writer<'_, SinglePhase>,
    sections: &[Section],
    symtab: SectionHeader,
    strtab: SectionHeader,
) -> object::write::Result<()> {
    // A relocation section names the symbol table by index: all the others precede it, and its strings follow it.
    let index = SectionIndex(1 + sections.iter().map(|s| 1 + u32::from(s.relocs.is_some())).sum::<u32>());
    let (symtab_name, strtab_name) = (w.add_section_name(b".symtab"), w.add_section_name(b".strtab"));
    let names: Vec<_> = sections
        .iter()
        .map(|Section { name: (name, rela), relocs, .. }| {
            (w.add_section_name(name.as_bytes()), relocs.map(|_| w.add_section_name(rela.as_bytes())))
        })
        .collect();
    w.write_shstrtab()?;
    w.write_null_section_header();
    for (section, (name, rela)) in sections.iter().zip(names) {
        let sh_name = w.section_name_offset(Some(name));
        let of = w.write_section_header(&SectionHeader { sh_name, ..section.header.clone() });
        if let (Some((at, count)), Some(rela)) = (section.relocs, rela) {
            w.write_relocation_section_header(rela, of, index, at, count, true);
        }
    }
    let sh_name = w.section_name_offset(Some(symtab_name));
    w.write_section_header(&SectionHeader { sh_name, sh_link: index.0 + 1, ..symtab });
    let sh_name = w.section_name_offset(Some(strtab_name));
    w.write_section_header(&SectionHeader { sh_name, ..strtab });
    w.write_shstrtab_section_header();
    Ok(())
}
