//! Objects from bare code, so that a memory dump can be linked like an object.

use codegen::words::error::{Error, Result};
use object::Endianness;
use object::elf;
use object::write::elf::{FileHeader, Rel, SectionHeader, SectionIndex, SinglePhaseWriter, Sym};

/// A dump of code from memory.
#[derive(Default, Debug)]
pub struct Raw<'a> {
    /// `e_machine`.
    pub machine: u16,
    /// `e_flags`.
    pub e_flags: u32,
    /// The code.
    pub code: &'a [u8],
    /// Alignment of its first byte.
    pub align: u64,
    /// Functions in the dump: name, offset, and size (0 if unknown).
    pub symbols: Vec<(String, u64, u64)>,
    /// Other labels in the dump, with their offsets.
    pub labels: Vec<(String, u64)>,
    /// Tables and other data in the dump: name, offset and size.
    pub data: Vec<(String, u64, u64)>,
    /// References to targets outside of the dump.
    pub calls: Vec<Call>,
}

/// A field of an instruction with a target outside the dump.
#[derive(Debug)]
pub struct Call {
    /// The offset of the field.
    pub offset: u64,
    /// The ELF relocation type.
    pub r_type: u32,
    /// The addend to the target's address.
    pub addend: i64,
    /// The target's name.
    pub target: String,
}

/// Write an object with the dump as its `.text`.
///
/// # Errors
/// The object would exceed the format's 32-bit counts.
pub fn object(raw: &Raw) -> Result<Vec<u8>> {
    write(raw).map_err(|e| Error::new(format!("object file: {e}")))
}

fn write(raw: &Raw) -> object::write::Result<Vec<u8>> {
    let (mut out, mut head) = (Vec::new(), Vec::new());
    let mut w = SinglePhaseWriter::new_single_phase(Endianness::Little, true, &mut out);
    let machine = elf::Machine(raw.machine);
    w.write_file_header(&FileHeader {
        e_type: elf::ET_REL,
        e_machine: machine,
        e_flags: elf::FileFlags(raw.e_flags),
        ..FileHeader::default()
    })?;
    let sh_offset = w.write_align(raw.align);
    w.write(raw.code);
    let relocations = w.write_align_relocation();
    for (i, call) in raw.calls.iter().enumerate() {
        w.write_relocation(
            true,
            &Rel {
                r_offset: call.offset,
                // Each call has a symbol of its own, behind the null symbol, functions and labels.
                r_sym: (1 + raw.symbols.len() + raw.labels.len() + i) as u32,
                r_type: elf::RelocationType(call.r_type),
                r_addend: call.addend,
            },
        );
    }
    w.write_null_symbol();
    let symbol = |st_name, (section, kind), st_value, st_size| Sym {
        section,
        st_name,
        st_info: elf::SymbolInfo::new(elf::STB_GLOBAL, kind),
        st_other: elf::SymbolOther::default(),
        st_shndx: elf::SHN_UNDEF,
        st_value,
        st_size,
    };
    for (name, offset, size) in &raw.symbols {
        let id = w.add_string(name.as_bytes());
        w.write_symbol(&symbol(w.string_offset(Some(id)), (Some(1), elf::STT_FUNC), *offset, *size));
    }
    for (name, offset) in &raw.labels {
        let id = w.add_string(name.as_bytes());
        w.write_symbol(&symbol(w.string_offset(Some(id)), (Some(1), elf::STT_NOTYPE), *offset, 0));
    }
    for call in &raw.calls {
        let id = w.add_string(call.target.as_bytes());
        w.write_symbol(&symbol(w.string_offset(Some(id)), (None, elf::STT_NOTYPE), 0, 0));
    }
    for (name, offset, size) in &raw.data {
        let id = w.add_string(name.as_bytes());
        w.write_symbol(&symbol(w.string_offset(Some(id)), (Some(1), elf::STT_OBJECT), *offset, *size));
    }
    w.write_strtab()?;
    let (text, rela) = (w.add_section_name(b".text"), w.add_section_name(b".rela.text"));
    w.write_shstrtab()?;
    w.write_null_section_header();
    let index = w.write_section_header(&SectionHeader {
        sh_name: w.section_name_offset(Some(text)),
        sh_type: elf::SHT_PROGBITS,
        sh_flags: elf::SHF_ALLOC | elf::SHF_EXECINSTR,
        sh_offset,
        sh_size: raw.code.len() as u64,
        sh_addralign: raw.align,
        ..SectionHeader::default()
    });
    // .rela.text, .strtab and .symtab follow, in this order.
    w.write_relocation_section_header(rela, index, SectionIndex(4), relocations, raw.calls.len(), true);
    w.write_strtab_section_header();
    w.write_symtab_section_header(1);
    w.write_shstrtab_section_header();
    w.write_headers_to(&mut head, &[])?;
    if let Some(place) = out.get_mut(..head.len()) {
        place.copy_from_slice(&head);
    }
    Ok(out)
}
