//! The result of linking: code and data at fixed addresses, with symbols and sites.

use std::cmp::Reverse;

use codegen::arch::patch::{Relocation, Write};
use codegen::arch::site::Spot;
use codegen::words::error::{Error, Result};
use object::elf;

/// Segments begin on a page of their own, so that an emulator can protect them separately.
pub const PAGE: u64 = 4096;

/// The access rights of a part of memory, in the order of the image.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Access {
    /// Read and execute.
    Execute,
    /// Read.
    Read,
    /// Read and write.
    Write,
}

/// Memory with the same access rights.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Address of the first byte.
    pub address: u64,
    /// Its contents.
    pub bytes: Vec<u8>,
    /// Its size in memory; what `bytes` does not cover is zero.
    pub mem_size: u64,
    /// The access rights.
    pub access: Access,
}

/// The sections of one name, put together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// Address of the first byte.
    pub address: u64,
    /// Size in bytes.
    pub size: u64,
    /// Alignment in bytes.
    pub align: u64,
    /// The access rights.
    pub access: Access,
    /// Zeroed memory without contents in the file.
    pub zeroed: bool,
}

/// The kind of a symbol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SymbolKind {
    /// A function.
    Function,
    /// Data.
    Object,
    /// Not specified: a label.
    NoType,
}

/// A symbol of the image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: u64,
    /// The symbol's size in bytes; 0 if not specified.
    pub size: u64,
    /// The kind of the symbol.
    pub kind: SymbolKind,
    /// The symbol is not visible to other files.
    pub local: bool,
    /// The symbol is visible to other files of the same program or library only.
    pub hidden: bool,
    /// Index of the input that defines it; `None` once the image was read back from a file.
    pub input: Option<usize>,
}

/// A patchable function entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SiteEntry {
    /// The address that the kernel records for the site.
    pub ip: u64,
    /// The function that contains the site; empty if none does, as when a weak function lost to another definition.
    pub function: String,
    /// The address of the function; `ip` if there is none.
    pub start: u64,
    /// The address in the compiler's list.
    pub entry: u64,
    /// The function has room for the address of an `ftrace_ops` before its first instruction.
    pub has_op: bool,
}

impl SiteEntry {
    /// The site for patching; the entry trampoline is at `toward`, the `ftrace_ops` that does nothing at `nop_op`.
    pub fn spot(&self, toward: Option<u64>, nop_op: Option<u64>) -> Spot {
        Spot { ip: self.ip, has_op: self.has_op, toward, nop_op }
    }
}

/// Linked code and data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Image {
    /// `e_machine`.
    pub machine: u16,
    /// `e_flags`.
    pub e_flags: u32,
    /// Memory, by ascending address.
    pub segments: Vec<Segment>,
    /// The sections of the memory, by ascending address.
    pub sections: Vec<Section>,
    /// The symbols, local ones first.
    pub symbols: Vec<Symbol>,
    /// The patchable entries, by ascending address.
    pub sites: Vec<SiteEntry>,
    /// The relocations of the inputs, if [`Options::references`](crate::Options::references) is set. Files do not contain them.
    pub references: Vec<Relocation>,
}

impl Image {
    /// The symbol called `name`. A global one is preferred.
    pub fn symbol(&self, name: &str) -> Option<&Symbol> {
        self.symbols.iter().filter(|s| s.name == name).min_by_key(|s| s.local)
    }

    /// The section with this address in it.
    pub fn section_at(&self, address: u64) -> Option<&Section> {
        let behind = self.sections.partition_point(|section| section.address <= address);
        let before = self.sections.get(behind.checked_sub(1)?)?;
        (address - before.address < before.size).then_some(before)
    }

    /// The `len` bytes at `address`, if the image has contents there.
    pub fn bytes(&self, address: u64, len: usize) -> Option<&[u8]> {
        self.segments.iter().find_map(|s| {
            let at = usize::try_from(address.checked_sub(s.address)?).ok()?;
            s.bytes.get(at..at.checked_add(len)?)
        })
    }

    /// The `len` bytes at `address`, for changes, if the image has contents there.
    pub(crate) fn bytes_mut(&mut self, address: u64, len: usize) -> Option<&mut [u8]> {
        self.segments.iter_mut().find_map(|s| {
            let at = usize::try_from(address.checked_sub(s.address)?).ok()?;
            s.bytes.get_mut(at..at.checked_add(len)?)
        })
    }

    /// Write bytes to the image, whatever the access rights, as live patching does.
    ///
    /// # Errors
    /// The image has no contents there.
    pub fn write(&mut self, write: &Write) -> Result<()> {
        let field = self.bytes_mut(write.at, write.bytes.len()).ok_or_else(|| {
            Error::new(format!(
                "{} bytes to patch at {:#x} are not all inside a section with contents",
                write.bytes.len(),
                write.at
            ))
        })?;
        field.copy_from_slice(&write.bytes);
        Ok(())
    }

    /// Fill in `sites` from (list entry, site) pairs.
    pub(crate) fn set_sites(&mut self, pairs: &[(u64, u64)]) {
        let functions = self.functions();
        let site = |&(entry, ip): &(u64, u64)| {
            let after = functions.partition_point(|f| f.address <= ip);
            let function =
                after.checked_sub(1).and_then(|i| functions.get(i)).filter(|f| f.size == 0 || ip - f.address < f.size);
            SiteEntry {
                ip,
                function: function.map_or_else(String::new, |f| f.name.clone()),
                start: function.map_or(ip, |f| f.address),
                entry,
                has_op: function.is_some_and(|f| f.address == entry.wrapping_add(8)),
            }
        };
        let mut sites: Vec<SiteEntry> = pairs.iter().map(site).collect();
        sites.sort_by_key(|s| s.ip);
        self.sites = sites;
    }

    /// The functions by ascending address; of several at one address, the first global one comes last.
    pub(crate) fn functions(&self) -> Vec<&Symbol> {
        let mut all: Vec<(usize, &Symbol)> = self.symbols.iter().enumerate().collect();
        all.retain(|(_, s)| s.kind == SymbolKind::Function);
        all.sort_by_key(|(i, s)| (s.address, !s.local, Reverse(*i)));
        all.into_iter().map(|(_, s)| s).collect()
    }
}

impl Access {
    pub(crate) fn of(flags: elf::SectionFlags) -> Access {
        if flags.contains(elf::SHF_EXECINSTR) {
            Access::Execute
        } else if flags.contains(elf::SHF_WRITE) {
            Access::Write
        } else {
            Access::Read
        }
    }

    pub(crate) fn section_flags(self) -> elf::SectionFlags {
        match self {
            Access::Execute => elf::SHF_ALLOC | elf::SHF_EXECINSTR,
            Access::Read => elf::SHF_ALLOC,
            Access::Write => elf::SHF_ALLOC | elf::SHF_WRITE,
        }
    }

    pub(crate) fn program_flags(self) -> elf::ProgramFlags {
        match self {
            Access::Execute => elf::PF_R | elf::PF_X,
            Access::Read => elf::PF_R,
            Access::Write => elf::PF_R | elf::PF_W,
        }
    }
}

impl SymbolKind {
    pub(crate) fn of(st_type: elf::SymbolType) -> SymbolKind {
        match st_type {
            elf::STT_FUNC => SymbolKind::Function,
            elf::STT_OBJECT => SymbolKind::Object,
            _ => SymbolKind::NoType,
        }
    }

    pub(crate) fn symbol_type(self) -> elf::SymbolType {
        match self {
            SymbolKind::Function => elf::STT_FUNC,
            SymbolKind::Object => elf::STT_OBJECT,
            SymbolKind::NoType => elf::STT_NOTYPE,
        }
    }
}
