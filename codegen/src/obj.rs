//! Assembly to ELF64 relocatable object, byte-identical on every run.
//!
//! The sections stand in the order in which GNU as writes them. Relocation types are the raw numbers of the psABI.

use object::Endianness;
use object::elf;
use object::write::elf::{FileHeader, Rel, SectionHeader, SectionIndex, Sym, Writer};

use crate::assembly::Assembly;
use crate::error::{Error, Result};
use crate::objtool::SECTIONS;
use crate::reloc::{Reloc, RelocTarget};
use crate::target::Target;

/// The name of labels that only unwind tables refer to, as GNU as has it.
const UNWIND_LABEL: &[u8] = b".L0 \0";

const HEADER_BYTES: usize = 64;
const SYMBOL_BYTES: u64 = 24;
const RELA_BYTES: usize = 24;

struct Section {
    name: &'static [u8],
    header: SectionHeader,
    relocs: Option<(&'static [u8], u64, usize)>,
}

/// Write `assembly` as an object file.
///
/// # Errors
/// The object would not fit the format's 32-bit counts.
pub fn write(assembly: &Assembly, target: &Target) -> Result<Vec<u8>> {
    let exports = assembly.exports.len();
    let symbols = assembly.globals.len() + assembly.locals.len() + assembly.eh_frame.labels.len() + exports;
    let notes = assembly.notes.iter().map(|(_, relocs)| relocs.len()).sum::<usize>();
    let relocs = assembly.relocs.len() + assembly.eh_frame.relocs.len() + exports + notes;
    let contents = assembly.text().len() + assembly.eh_frame.bytes.len() + assembly.string_table().len();
    let mut bytes = Vec::with_capacity(contents + SYMBOL_BYTES as usize * symbols + RELA_BYTES * relocs + 4096);
    let headers = write_body(assembly, target, &mut bytes).map_err(|e| Error::new(format!("object file: {e}")))?;
    bytes[..headers.len()].copy_from_slice(&headers);
    Ok(bytes)
}

fn write_body(assembly: &Assembly, target: &Target, bytes: &mut Vec<u8>) -> object::write::Result<Vec<u8>> {
    let facts = target.facts;
    let mut w = Writer::new_single_phase(Endianness::Little, true, bytes);
    w.write_file_header(&FileHeader {
        os_abi: elf::ELFOSABI_NONE,
        abi_version: 0,
        e_type: elf::ET_REL,
        e_machine: elf::Machine(facts.machine),
        e_entry: 0,
        e_flags: elf::FileFlags(target.e_flags),
    })?;

    let progbits = SectionHeader {
        sh_name: 0,
        sh_type: elf::SHT_PROGBITS,
        sh_flags: elf::SectionFlags::default(),
        sh_addr: 0,
        sh_offset: 0,
        sh_size: 0,
        sh_link: 0,
        sh_info: 0,
        sh_addralign: 1,
        sh_entsize: 0,
    };
    let mut sections: Vec<Section> = Vec::new();
    // Symbol order: null, .text, mapping symbols and local labels, labels of exports, then globals.
    let text_symbol = 1;
    let first_local = text_symbol + 1 + u32::from(!facts.mapping.is_empty());
    let first_label = first_local + assembly.locals.len() as u32;
    let first_export = first_label + assembly.eh_frame.labels.len() as u32;
    let first_global = first_export + assembly.exports.len() as u32;
    let symbol_of = |to: RelocTarget| match to {
        RelocTarget::Text => text_symbol,
        RelocTarget::Local(i) => first_local + i,
        RelocTarget::Unwind(i) => first_label + i,
        RelocTarget::Global(i) => first_global + i,
    };
    let mut contents =
        |w: &mut Writer<_>, name, rela, data: &[u8], relocs: &[Reloc], align: u64, flags: elf::SectionFlags, kind| {
            let sh_offset = w.write_align(align);
            w.write(data);
            let mut section = Section {
                name,
                header: SectionHeader {
                    sh_type: kind,
                    sh_flags: flags,
                    sh_offset,
                    sh_size: data.len() as u64,
                    sh_addralign: align,
                    ..progbits
                },
                relocs: None,
            };
            if !relocs.is_empty() {
                let at = w.write_align_relocation();
                for r in relocs {
                    w.write_relocation(
                        true,
                        &Rel {
                            r_offset: u64::from(r.at),
                            r_sym: symbol_of(r.to),
                            r_type: elf::RelocationType(r.r_type),
                            r_addend: r.addend,
                        },
                    );
                }
                section.relocs = Some((rela, at, relocs.len()));
            }
            sections.push(section);
        };
    let (none, alloc, exec) =
        (elf::SectionFlags::default(), elf::SHF_ALLOC, elf::SectionFlags(elf::SHF_ALLOC.0 | elf::SHF_EXECINSTR.0));
    let align = u64::from(facts.align);
    contents(&mut w, b".text", b".rela.text", assembly.text(), &assembly.relocs, align, exec, elf::SHT_PROGBITS);
    contents(&mut w, b".note.GNU-stack", b"", &[], &[], 1, none, elf::SHT_PROGBITS);
    let (exports, export_section) = (&assembly.exports, 3 + u32::from(!assembly.relocs.is_empty()));
    if !exports.is_empty() {
        let data = vec![0; exports.len() * Assembly::EXPORT];
        let words: Vec<Reloc> = exports.iter().map(|(_, word)| *word).collect();
        let (name, rela) = (b".export_symbol", b".rela.export_symbol");
        contents(&mut w, name, rela, &data, &words, 8, alloc, elf::SHT_PROGBITS);
    }
    for (&(name, rela, align), (bytes, relocs)) in SECTIONS.iter().zip(&assembly.notes) {
        if !bytes.is_empty() {
            let (name, rela) = (name.as_bytes(), rela.as_bytes());
            // Without flags: with them, the kernel's linker would keep what objtool does not see.
            contents(&mut w, name, rela, bytes, relocs, align, none, elf::SHT_PROGBITS);
        }
    }
    let eh = &assembly.eh_frame;
    if !eh.bytes.is_empty() {
        contents(&mut w, b".eh_frame", b".rela.eh_frame", &eh.bytes, &eh.relocs, 8, alloc, elf::SHT_PROGBITS);
    }
    if let Some((name, kind, data)) = &target.attributes {
        contents(&mut w, name.as_bytes(), b"", data, &[], 1, none, elf::SectionType(*kind));
    }

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
    let symtab_offset = w.write_null_symbol();
    w.write_symbol(&local(0, elf::STT_SECTION));
    // The assembly keeps its names as a string table; only the mapping symbol's comes after them.
    let names = assembly.string_table();
    if !facts.mapping.is_empty() {
        w.write_symbol(&local(names.len() as u32, elf::STT_NOTYPE));
    }
    for symbol in &assembly.locals {
        let st_value = u64::from(symbol.offset.unwrap_or(0));
        w.write_symbol(&Sym { st_value, ..local(assembly.name_offset(symbol), elf::STT_NOTYPE) });
    }
    let label_name = (names.len() + facts.mapping.len() + 1) as u32;
    for &offset in &eh.labels {
        w.write_symbol(&Sym { st_value: u64::from(offset), ..local(label_name, elf::STT_NOTYPE) });
    }
    for (symbol, _) in exports {
        let st_value = u64::from(symbol.offset.unwrap_or(0));
        let label = local(assembly.name_offset(symbol), elf::STT_NOTYPE);
        w.write_symbol(&Sym { section: Some(export_section), st_value, ..label });
    }
    for symbol in &assembly.globals {
        let kind = if symbol.function { elf::STT_FUNC } else { elf::STT_NOTYPE };
        let name = assembly.name_offset(symbol);
        w.write_symbol(&Sym {
            section: symbol.offset.and(text_section),
            st_info: elf::SymbolInfo::new(elf::STB_GLOBAL, kind),
            st_value: u64::from(symbol.offset.unwrap_or(0)),
            st_size: u64::from(symbol.size),
            ..local(name, kind)
        });
    }
    let symbols = u64::from(first_global) + assembly.globals.len() as u64;
    let strtab_offset = w.offset();
    w.write(names.as_bytes());
    w.write(facts.mapping.as_bytes());
    w.write(&[0]);
    if !eh.labels.is_empty() {
        w.write(UNWIND_LABEL);
    }
    let strtab_size = w.offset() - strtab_offset;

    // A relocation section names the symbol table by index: all the others precede it, and its strings follow it.
    let symtab = SectionIndex(1 + sections.iter().map(|s| 1 + u32::from(s.relocs.is_some())).sum::<u32>());
    let (symtab_name, strtab_name) = (w.add_section_name(b".symtab"), w.add_section_name(b".strtab"));
    let names: Vec<_> = sections
        .iter()
        .map(|s| (w.add_section_name(s.name), s.relocs.map(|(rela, ..)| w.add_section_name(rela))))
        .collect();
    w.write_shstrtab()?;
    w.write_null_section_header();
    for (section, (name, rela)) in sections.iter().zip(names) {
        let sh_name = w.section_name_offset(Some(name));
        let index = w.write_section_header(&SectionHeader { sh_name, ..section.header.clone() });
        if let (Some((_, at, count)), Some(rela)) = (section.relocs, rela) {
            w.write_relocation_section_header(rela, index, symtab, at, count, true);
        }
    }
    let sh_name = w.section_name_offset(Some(symtab_name));
    w.write_section_header(&SectionHeader {
        sh_name,
        sh_type: elf::SHT_SYMTAB,
        sh_offset: symtab_offset,
        sh_size: symbols * SYMBOL_BYTES,
        sh_link: symtab.0 + 1,
        sh_info: first_global,
        sh_addralign: 8,
        sh_entsize: SYMBOL_BYTES,
        ..progbits
    });
    let sh_name = w.section_name_offset(Some(strtab_name));
    w.write_section_header(&SectionHeader {
        sh_name,
        sh_type: elf::SHT_STRTAB,
        sh_offset: strtab_offset,
        sh_size: strtab_size,
        ..progbits
    });
    w.write_shstrtab_section_header();
    let mut headers = Vec::with_capacity(HEADER_BYTES);
    w.write_file_header_to(&mut headers)?;
    Ok(headers)
}
