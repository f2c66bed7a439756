//! Relocatable objects as they are read.

use codegen::words::error::{Error, Result};
use object::elf;
use object::read::elf::{FileHeader as _, SectionHeader as _, SectionTable, Sym as _, SymbolTable};
use object::read::{SectionIndex, SymbolIndex};

use crate::elf::{Header, Input, LE, damaged, header, parts_fit_file, section_name, utf8};

/// An input as ELF.
pub(crate) struct Object<'a> {
    pub(crate) name: &'a str,
    pub(crate) bytes: &'a [u8],
    pub(crate) header: &'a Header,
    pub(crate) sections: SectionTable<'a, Header>,
    pub(crate) symbols: SymbolTable<'a, Header>,
    /// The address of each section; `None` for sections that are not in the image.
    pub(crate) at: Vec<Option<u64>>,
    /// It is judged by itself: what only a whole program has is undefined in it.
    pub(crate) alone: bool,
    /// It is laid out, and nothing else.
    pub(crate) glance: bool,
}

/// A symbol of an input.
pub(crate) struct Definition<'a> {
    pub(crate) name: &'a str,
    pub(crate) st_type: elf::SymbolType,
    pub(crate) local: bool,
    pub(crate) weak: bool,
    pub(crate) hidden: bool,
    /// The symbol's address, if the input defines it.
    pub(crate) address: Option<u64>,
    pub(crate) size: u64,
}

/// The properties of a symbol that do not need its name.
pub(crate) struct Found {
    pub(crate) local: bool,
    pub(crate) weak: bool,
    /// The symbol's address, if the input defines it.
    pub(crate) address: Option<u64>,
}

impl<'a> Object<'a> {
    pub(crate) fn read(input: &Input<'a>) -> Result<Object<'a>> {
        let &Input { name, bytes } = input;
        let header = header(input)?;
        if header.e_type(LE) != elf::ET_REL {
            return Err(Error::new(format!(
                "{name}: ELF type {}; valid: a relocatable object (1), as `gcc -c` and `gen --emit obj` make it",
                header.e_type(LE).0
            )));
        }
        let sections = header.sections(LE, bytes).map_err(damaged(name))?;
        parts_fit_file(input, sections.iter().skip(1).filter_map(|s| Some(s.file_range(LE)?.1)))?;
        let symbols = sections.symbols(LE, bytes, elf::SHT_SYMTAB).map_err(damaged(name))?;
        let at = vec![None; sections.len()];
        Ok(Object { name, bytes, header, sections, symbols, at, alone: false, glance: false })
    }

    pub(crate) fn section_name(&self, index: usize) -> &'a str {
        (self.sections.section(SectionIndex(index)).ok())
            .and_then(|s| section_name(&self.sections, s).ok())
            .unwrap_or("?")
    }

    /// Is this symbol local?
    pub(crate) fn is_local(&self, index: usize) -> Result<bool> {
        let symbol = self.symbols.symbol(SymbolIndex(index)).map_err(damaged(self.name))?;
        Ok(symbol.is_local())
    }

    /// The properties of a symbol, read without its name, which is far away in memory.
    pub(crate) fn found(&self, index: usize) -> Result<Found> {
        let symbol = self.symbols.symbol(SymbolIndex(index)).map_err(damaged(self.name))?;
        let section = symbol.st_shndx(LE);
        let usual = !matches!(symbol.st_type(), elf::STT_TLS | elf::STT_GNU_IFUNC) && section.0 < elf::SHN_LORESERVE;
        match self.at.get(usize::from(section.0)).filter(|_| usual && section != elf::SHN_UNDEF) {
            Some(at) => Ok(Found {
                local: symbol.is_local(),
                weak: symbol.is_weak(),
                address: at.map(|at| at.wrapping_add(symbol.st_value(LE))),
            }),
            None => {
                let Definition { local, weak, address, .. } = self.symbol(index)?;
                Ok(Found { local, weak, address })
            }
        }
    }

    pub(crate) fn symbol(&self, index: usize) -> Result<Definition<'a>> {
        let fail = damaged(self.name);
        let symbol = self.symbols.symbol(SymbolIndex(index)).map_err(&fail)?;
        let name = self.symbols.symbol_name(LE, symbol).map_err(&fail)?;
        let name = utf8(name, "symbol").map_err(|e| e.at(self.name))?;
        let section = self.symbols.symbol_section(LE, symbol, SymbolIndex(index)).map_err(&fail)?;
        let refuse = |what: &str| {
            let name = name.escape_debug();
            Err(Error::new(format!("{}: symbol {name} {what}", self.name)))
        };
        let address = match (section, symbol.st_shndx(LE)) {
            (Some(section), _) => match self.at.get(section.0) {
                // A section of at most LIMIT bytes may have a symbol outside; no harm is done by wrapping.
                Some(at) => at.map(|at| at.wrapping_add(symbol.st_value(LE))),
                None => {
                    let what = format!("symbol {} is in a section that does not exist", name.escape_debug());
                    return Err(Error::damaged(what).at(self.name));
                }
            },
            (None, elf::SHN_UNDEF) => None,
            (None, elf::SHN_ABS) => Some(symbol.st_value(LE)),
            (None, elf::SHN_COMMON) if name == "__gnu_lto_slim" => {
                return refuse("says that there is bytecode only; compile without -flto");
            }
            (None, elf::SHN_COMMON) if self.alone => None,
            (None, elf::SHN_COMMON) => {
                return refuse("is a common symbol; compile with -fno-common");
            }
            (None, _) => return refuse("is in a reserved section that has no meaning here"),
        };
        let resolved = symbol.st_type() == elf::STT_GNU_IFUNC && self.alone && !self.glance;
        let address = address.filter(|_| !resolved);
        match symbol.st_type() {
            elf::STT_GNU_IFUNC if resolved || self.glance => {}
            // An undefined one is defined elsewhere, with its place in threads' memory.
            elf::STT_TLS if address.is_some() => return refuse("is thread-local, which an image cannot have"),
            elf::STT_GNU_IFUNC => return refuse("is resolved at run time, which an image cannot"),
            _ => {}
        }
        Ok(Definition {
            name: match (name, section) {
                ("", Some(section)) => self.section_name(section.0),
                _ => name,
            },
            st_type: symbol.st_type(),
            local: symbol.is_local(),
            weak: symbol.is_weak(),
            hidden: matches!(symbol.st_visibility(), elf::STV_HIDDEN | elf::STV_INTERNAL),
            address,
            size: symbol.st_size(LE),
        })
    }
}
