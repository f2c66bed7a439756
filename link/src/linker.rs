//! The linker pass: relocatable objects to an image at fixed addresses, with its function entries patched.
//!
//! It links our own objects and those of gcc, GNU as and clang. It knows ELF and nothing of an instruction set:
//! what a relocation, a site or a call slot looks like in bytes, it asks [`Patch`].

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use object::elf;
use object::read::elf::{
    FileHeader as _, ProgramHeader as _, Rela as _, SectionHeader as _, SectionTable, Sym as _, SymbolTable,
};
use object::read::{SectionIndex, SymbolIndex};
use object::write::elf::{FileHeader, ProgramHeader, SectionHeader, SinglePhaseWriter, Sym};
use object::{Endianness, LittleEndian};

use crate::raw::{self, Call, Raw};
use codegen::error::{Error, Result};
use codegen::patch::{Patch, Relocation, SiteState, Write};

/// Segments begin on a page of their own, so that an emulator can protect them separately.
const PAGE: u64 = 4096;

/// No image is larger. It keeps a damaged section size from exhausting memory.
const LIMIT: u64 = 256 << 20;

/// No name is longer; the kernel's own tables end at half of it. Symbols may share the bytes of a name, so that without
/// an end to names a small file could ask for any amount of memory.
const LONGEST: usize = 1024;

/// The list of patchable entries as `-mrecord-mcount` names it. An object that has it may have the other list too,
/// which then says where to put padding, not what to trace.
pub(crate) const MCOUNT_LOC: &str = "__mcount_loc";

/// The list of patchable entries as `-fpatchable-function-entry` names it.
pub(crate) const PATCHABLE: &str = "__patchable_function_entries";

/// Where [`Image::to_elf`] keeps (list entry, site) pairs: the list alone does not tell where the sites are, and
/// the code does not any more once it is patched.
const SITES: &str = ".ftrace_sites";

pub(crate) const LE: LittleEndian = LittleEndian;

pub(crate) type Header = elf::FileHeader64<LittleEndian>;

/// A file to link.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// What messages call it.
    pub name: &'a str,
    /// Its contents.
    pub bytes: &'a [u8],
}

/// The section of the functions that stand in for undefined symbols.
pub const STUBS: &str = ".stubs";

/// How to link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Address of the image.
    pub base: u64,
    /// Traced functions whose site goes to a trampoline: (function, trampoline). All other sites do nothing.
    pub patch: Vec<(String, String)>,
    /// The same by a jump, for paired trampolines.
    pub jump: Vec<(String, String)>,
    /// Call slots that call something else than they were assembled with: (label of the slot, function).
    pub calls: Vec<(String, String)>,
    /// Symbols that no input defines, with their addresses.
    pub define: Vec<(String, u64)>,
    /// The first so many inputs come before the others: what both define is theirs.
    pub first: usize,
    /// For objects that are judged as they are, not built into anything: undefined symbols name functions with these
    /// bytes, and padding that a relaxing linker would shorten stays.
    pub stub: Option<&'static [u8]>,
}

impl Default for Options {
    fn default() -> Options {
        let none = Vec::new;
        Options {
            base: 0x40_0000,
            patch: none(),
            jump: none(),
            calls: none(),
            define: Vec::new(),
            first: 0,
            stub: None,
        }
    }
}

/// What may be done with a part of memory. The order is that of the image.
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
    /// What may be done with it.
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
    /// What may be done with it.
    pub access: Access,
    /// Zeroed memory without contents in the file.
    pub zeroed: bool,
}

/// What a symbol names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SymbolKind {
    /// A function.
    Function,
    /// Data.
    Object,
    /// Not told: a label.
    NoType,
}

/// A symbol of the image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: u64,
    /// Its size in bytes; 0 if not told.
    pub size: u64,
    /// What it names.
    pub kind: SymbolKind,
    /// Other files do not see it.
    pub local: bool,
    /// Index of the input that defines it; `None` once the image was read back from a file.
    pub input: Option<usize>,
}

/// A patchable function entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SiteEntry {
    /// The address that the kernel records for it.
    pub ip: u64,
    /// The function that it is in; empty if in none, as after a weak function lost to another definition.
    pub function: String,
    /// Address of that function; `ip` if in none.
    pub start: u64,
    /// The address in the compiler's list.
    pub entry: u64,
    /// The function has room for the address of an `ftrace_ops` before its first instruction.
    pub has_op: bool,
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
    /// What the memory consists of, by ascending address.
    pub sections: Vec<Section>,
    /// The symbols, local ones first.
    pub symbols: Vec<Symbol>,
    /// The patchable entries, by ascending address.
    pub sites: Vec<SiteEntry>,
}

/// `e_machine` of an object, to find the backend that can link it.
///
/// # Errors
/// Not a little-endian ELF64 file.
pub fn machine(input: &Input) -> Result<u16> {
    Ok(header(input)?.e_machine(LE).0)
}

/// Link `inputs`.
///
/// # Errors
/// A damaged or foreign file, mixed machines or float ABIs, unresolved or doubly defined symbols, a relocation or a
/// patched instruction that does not reach, a name in `options` that nothing defines.
pub fn link(backend: &dyn Patch, inputs: &[Input], options: &Options) -> Result<Image> {
    let mut objects = inputs.iter().map(Object::read).collect::<Result<Vec<_>>>()?;
    let (machine, e_flags) = agree(backend, &objects)?;
    let (mut segments, mut sections) = lay_out(&mut objects, options.base)?;
    let (mut symbols, mut globals) = define(&objects, options.first)?;
    for (name, address) in &options.define {
        globals.entry(name).or_insert(Global { object: 0, address: *address, weak: false });
    }
    if let Some(stub) = options.stub {
        let missing = undefined(&objects, &globals)?;
        add_stubs(stub, &missing, (&mut segments, &mut sections, &mut symbols), &mut globals)?;
    }
    let mut image = Image { machine, e_flags, segments, sections, symbols, sites: Vec::new() };
    image.relocate(backend, &objects, &globals, options.stub.is_some())?;
    image.find_sites(backend)?;
    image.patch(backend, options)?;
    Ok(image)
}

/// A relocation of an object, as its image has it.
#[derive(Clone, Copy, Debug)]
pub struct Reference {
    /// Address of the field.
    pub place: u64,
    /// The ELF relocation type.
    pub r_type: u32,
    /// Symbol plus addend.
    pub value: u64,
}

/// An object by itself, with functions of the bytes `stub` for all that it leaves undefined, and what its code refers to.
///
/// # Errors
/// As [`link`].
pub fn examine(backend: &dyn Patch, input: &Input, stub: &'static [u8]) -> Result<(Image, Vec<Reference>)> {
    let options = Options { stub: Some(stub), ..Options::default() };
    let image = link(backend, &[*input], &options)?;
    let mut objects = vec![Object::read(input)?];
    lay_out(&mut objects, options.base)?;
    let all: Vec<(&str, u64)> =
        image.symbols.iter().filter(|s| !s.local).map(|s| (s.name.as_str(), s.address)).collect();
    let globals = all.into_iter().map(|(name, address)| (name, Global { object: 0, address, weak: false })).collect();
    let reference = |job: Job| Reference { place: job.place, r_type: job.r_type, value: job.value };
    let references = jobs(&objects, &globals)?.into_iter().map(reference).collect();
    Ok((image, references))
}

impl Image {
    /// The symbol called `name`. A global one is preferred.
    pub fn symbol(&self, name: &str) -> Option<&Symbol> {
        self.symbols.iter().filter(|s| s.name == name).min_by_key(|s| s.local)
    }

    /// The `len` bytes at `address`, if the image has contents there.
    pub fn bytes(&self, address: u64, len: usize) -> Option<&[u8]> {
        self.segments.iter().find_map(|s| {
            let at = usize::try_from(address.checked_sub(s.address)?).ok()?;
            s.bytes.get(at..at.checked_add(len)?)
        })
    }

    /// As [`Image::bytes`], to change them.
    fn bytes_mut(&mut self, address: u64, len: usize) -> Option<&mut [u8]> {
        self.segments.iter_mut().find_map(|s| {
            let at = usize::try_from(address.checked_sub(s.address)?).ok()?;
            s.bytes.get_mut(at..at.checked_add(len)?)
        })
    }

    /// Put bytes in place, as live patching does: access rights do not matter.
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

    /// Apply all relocations.
    fn relocate(
        &mut self,
        backend: &dyn Patch,
        objects: &[Object],
        globals: &HashMap<&str, Global>,
        keep_padding: bool,
    ) -> Result<()> {
        let mut jobs = jobs(objects, globals)?;
        jobs.retain(|job| !(keep_padding && backend.is_padding(job.r_type)));
        // A low part names the instruction of its high part, not the target; the target is that instruction's.
        let low = |job: &&Job| backend.refers_to_high(job.r_type);
        let others = if jobs.iter().any(|job| low(&job)) { &jobs[..] } else { &[] };
        let mut highs: Vec<&Job> = others.iter().filter(|job| job.symbol != 0 && !low(job)).collect();
        highs.sort_by_key(|job| job.place);
        let high = |place: u64| {
            let first = highs.partition_point(|job| job.place < place);
            highs.get(first).filter(|job| job.place == place).map(|job| job.value)
        };
        for job in &jobs {
            let place = || job.place(objects);
            let mut rel = Relocation { r_type: job.r_type, place: job.place, value: job.value, high: 0 };
            if low(&job) {
                rel.high = job.value;
                rel.value = high(rel.high).ok_or_else(|| {
                    let what = "there is no high part at the label that this low part names";
                    Error::new(format!("{what}; it must be the label of the instruction with %pcrel_hi")).at(place())
                })?;
            }
            let field = self
                .bytes_mut(job.place, job.room)
                .ok_or_else(|| Error::new("the section has no contents to relocate").at(place()))?;
            backend.relocate(&rel, field).map_err(|e| e.at(place()))?;
        }
        Ok(())
    }

    /// Fill in `sites` from the compiler's list.
    fn find_sites(&mut self, backend: &dyn Patch) -> Result<()> {
        let has = |name| self.sections.iter().any(|s| s.name == name);
        let list = if has(MCOUNT_LOC) { MCOUNT_LOC } else { PATCHABLE };
        let functions = self.functions();
        let starts = |at: u64| functions.binary_search_by_key(&at, |f| f.address).is_ok();
        let word = |at| Some(u32::from_le_bytes(self.bytes(at, 4)?.try_into().ok()?));
        let mut pairs = Vec::new();
        for section in self.sections.iter().filter(|s| s.name == list) {
            let bytes = usize::try_from(section.size)
                .ok()
                .and_then(|size| self.bytes(section.address, size))
                .ok_or_else(|| Error::new(format!("section {list} has no contents")))?;
            let (entries, rest) = bytes.as_chunks();
            if !rest.is_empty() {
                return Err(Error::new(format!("section {list} has {} bytes; valid: a multiple of 8", bytes.len())));
            }
            for entry in entries.iter().map(|e| u64::from_le_bytes(*e)) {
                // Only before a function's start is there room for an address. Elsewhere the words at an entry
                // are shown to nobody: a loop aligned with NOPs right after the site looks just the same.
                let before = starts(entry.wrapping_add(8));
                let ip = backend.site_ip(entry, &|at| if before { word(at) } else { None });
                if entry != 0 {
                    pairs.push((entry, ip));
                }
            }
        }
        self.set_sites(&pairs);
        Ok(())
    }

    /// Fill in `sites` from (list entry, site) pairs.
    fn set_sites(&mut self, pairs: &[(u64, u64)]) {
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

    /// The functions by ascending address; of several at one address the first global one comes last.
    fn functions(&self) -> Vec<&Symbol> {
        let mut all: Vec<(usize, &Symbol)> = self.symbols.iter().enumerate().collect();
        all.retain(|(_, s)| s.kind == SymbolKind::Function);
        all.sort_by_key(|(i, s)| (s.address, !s.local, Reverse(*i)));
        all.into_iter().map(|(_, s)| s).collect()
    }

    /// Disable all sites, as the kernel does at boot, then enable and redirect what is asked for.
    fn patch(&mut self, backend: &dyn Patch, options: &Options) -> Result<()> {
        // Without a copy of their names: nothing looks at them until they are back.
        let sites = std::mem::take(&mut self.sites);
        let needed = |image: &Image, name: &str, what: &str| {
            let symbol = image.symbol(name).map(|s| s.address);
            symbol.ok_or_else(|| Error::new(format!("no symbol '{name}' {what}; link the object that defines it")))
        };
        for site in &sites {
            self.put(backend, site, SiteState::Disabled)?;
        }
        if !options.patch.is_empty() || !options.jump.is_empty() {
            let symbols = std::mem::take(&mut self.symbols);
            let patches = options.patch.iter().map(|p| (p, false)).chain(options.jump.iter().map(|p| (p, true)));
            self.enable(backend, &symbols, &sites, patches)?;
            self.symbols = symbols;
        }
        for (slot, callee) in &options.calls {
            let at = needed(self, slot, "to patch")?;
            let target = needed(self, callee, &format!("for {slot} to call"))?;
            let patched = backend.patch_call(at, target);
            patched
                .and_then(|write| self.write(&write))
                .map_err(|e| e.at(format_args!("call of {callee} at {slot}")))?;
        }
        self.sites = sites;
        Ok(())
    }

    /// Switch sites on: (function, trampoline), and whether by a jump. There may be as many as there are functions, so
    /// names are looked up in tables.
    fn enable<'o>(
        &mut self,
        backend: &dyn Patch,
        symbols: &[Symbol],
        sites: &[SiteEntry],
        wanted: impl Iterator<Item = (&'o (String, String), bool)>,
    ) -> Result<()> {
        // The first symbol of each name, and to each symbol the next of its name.
        let mut first: HashMap<&str, usize> = HashMap::with_capacity(symbols.len());
        let mut next = vec![None; symbols.len()];
        for ((i, s), next) in symbols.iter().enumerate().zip(&mut next).rev() {
            *next = first.insert(&s.name, i);
        }
        let follow = |&i: &usize| next.get(i).copied().flatten();
        let all = |name: &str| std::iter::successors(first.get(name).copied(), follow).filter_map(|i| symbols.get(i));
        let mut by_start: Vec<&SiteEntry> = sites.iter().collect();
        by_start.sort_by_key(|s| s.start);
        let starting = |start: u64| {
            let from = by_start.partition_point(|s| s.start < start);
            by_start.iter().skip(from).take_while(move |s| s.start == start)
        };
        let op = all("ops").min_by_key(|s| s.local).map_or(0, |s| s.address);
        for ((function, trampoline), jump) in wanted {
            let target = all(trampoline).min_by_key(|s| s.local).map(|s| s.address).ok_or_else(|| {
                let what = format!("no symbol '{trampoline}' for {function} to go to");
                Error::new(format!("{what}; link the object that defines it"))
            })?;
            let mut found = false;
            for site in all(function).flat_map(|s| starting(s.address)) {
                self.put(backend, site, SiteState::Enabled { target, op, jump })?;
                found = true;
            }
            if !found {
                let mut valid: Vec<&str> = sites.iter().map(|s| s.function.as_str()).collect();
                valid.retain(|f| !f.is_empty());
                if valid.is_empty() {
                    valid.push("none, for no input lists patchable entries");
                }
                return Err(Error::unknown("patchable function", function, valid));
            }
        }
        Ok(())
    }

    /// Put one site into a state.
    fn put(&mut self, backend: &dyn Patch, site: &SiteEntry, state: SiteState) -> Result<()> {
        let writes = backend.patch_site(site.ip, state, site.has_op);
        writes
            .and_then(|writes| writes.iter().try_for_each(|write| self.write(write)))
            .map_err(|e| e.at(format_args!("site {:#x} of {}", site.ip, site.function)))
    }

    /// The image as an ELF executable.
    ///
    /// # Errors
    /// More sections or longer names than ELF can hold.
    pub fn to_elf(&self) -> Result<Vec<u8>> {
        let refused = |e: object::write::Error| Error::new(format!("cannot write the image: {e}"));
        let (mut out, mut head) = (Vec::new(), Vec::new());
        let mut w = SinglePhaseWriter::new_single_phase(Endianness::Little, true, &mut out);
        let header = FileHeader {
            e_type: elf::ET_EXEC,
            e_machine: elf::Machine(self.machine),
            e_flags: elf::FileFlags(self.e_flags),
            ..FileHeader::default()
        };
        w.write_file_header(&header).map_err(refused)?;
        w.write_program_headers_placeholder(self.segments.len() as u32 + 1);

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
        let file_offset = |address: u64| {
            let program = programs.iter().rfind(|p| p.p_vaddr <= address && address - p.p_vaddr <= p.p_memsz);
            program.map_or(0, |p| p.p_offset + (address - p.p_vaddr).min(p.p_filesz))
        };
        let mut headers: Vec<SectionHeader> = (self.sections.iter())
            .map(|s| SectionHeader {
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
            })
            .collect();
        programs.push(ProgramHeader {
            p_type: elf::PT_GNU_STACK,
            p_flags: elf::PF_R | elf::PF_W,
            p_offset: 0,
            p_vaddr: 0,
            p_paddr: 0,
            p_filesz: 0,
            p_memsz: 0,
            p_align: 16,
        });

        if !self.sites.is_empty() {
            let id = w.add_section_name(SITES.as_bytes());
            headers.push(SectionHeader {
                sh_name: w.section_name_offset(Some(id)),
                sh_type: elf::SHT_PROGBITS,
                sh_offset: w.write_align(8),
                sh_size: self.sites.len() as u64 * 16,
                sh_addralign: 8,
                sh_entsize: 16,
                ..SectionHeader::default()
            });
            for site in &self.sites {
                w.write(&site.entry.to_le_bytes());
                w.write(&site.ip.to_le_bytes());
            }
        }

        w.write_null_symbol();
        for symbol in &self.symbols {
            let bind = if symbol.local { elf::STB_LOCAL } else { elf::STB_GLOBAL };
            // A label at the end of a section belongs to it unless another section begins there.
            let section = (self.sections.iter())
                .rposition(|s| s.address <= symbol.address && symbol.address - s.address <= s.size);
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
        w.write_strtab().map_err(refused)?;
        w.write_shstrtab().map_err(refused)?;
        w.write_null_section_header();
        for header in &headers {
            w.write_section_header(header);
        }
        let locals = self.symbols.iter().filter(|s| s.local).count();
        w.write_strtab_section_header();
        w.write_symtab_section_header(locals as u32 + 1);
        w.write_shstrtab_section_header();
        w.write_headers_to(&mut head, &programs).map_err(refused)?;
        if let Some(place) = out.get_mut(..head.len()) {
            place.copy_from_slice(&head);
        }
        Ok(out)
    }

    /// Read back what [`Image::to_elf`] wrote.
    ///
    /// # Errors
    /// Not such a file, or a damaged one.
    pub fn from_elf(bytes: &[u8]) -> Result<Image> {
        let input = Input { name: "image", bytes };
        let header = header(&input)?;
        if header.e_type(LE) != elf::ET_EXEC {
            return Err(Error::new(format!(
                "image: ELF type {}; valid: an executable at fixed addresses (2), as link makes it",
                header.e_type(LE).0
            )));
        }
        let mut segments: Vec<Segment> = Vec::new();
        let mut end = 0;
        let programs = header.program_headers(LE, bytes).map_err(damaged("image"))?;
        apart(&input, programs.iter().map(|p| p.p_filesz(LE)))?;
        for program in programs {
            if program.p_type(LE) != elf::PT_LOAD {
                continue;
            }
            let address = program.p_vaddr(LE);
            let refuse = |what: &str| {
                let place = format!("image: segment at {address:#x}");
                Err(Error::new(format!("{place} {what}; link the image again")))
            };
            let contents = match program.data(LE, bytes) {
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

        let table = header.sections(LE, bytes).map_err(damaged("image"))?;
        apart(&input, table.iter().skip(1).filter_map(|s| Some(s.file_range(LE)?.1)))?;
        let (mut sections, mut pairs) = (Vec::new(), Vec::new());
        for section in table.iter().skip(1) {
            let name = section_name(&table, section).map_err(|e| e.at("image"))?;
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
                let list = section.data(LE, bytes).map_err(damaged("image"))?;
                let words = list.as_chunks().0.iter().map(|w| u64::from_le_bytes(*w));
                let words: Vec<u64> = words.collect();
                pairs.extend(words.as_chunks().0.iter().map(|[entry, ip]| (*entry, *ip)));
            }
        }
        let table = table.symbols(LE, bytes, elf::SHT_SYMTAB).map_err(damaged("image"))?;
        let mut symbols = Vec::new();
        for symbol in table.iter().skip(1) {
            let name = table.symbol_name(LE, symbol).map_err(damaged("image"))?;
            symbols.push(Symbol {
                name: utf8(name, "symbol").map_err(|e| e.at("image"))?.to_owned(),
                address: symbol.st_value(LE),
                size: symbol.st_size(LE),
                kind: SymbolKind::of(symbol.st_type()),
                local: symbol.is_local(),
                input: None,
            });
        }
        let mut image = Image {
            machine: header.e_machine(LE).0,
            e_flags: header.e_flags(LE).0,
            segments,
            sections,
            symbols,
            sites: Vec::new(),
        };
        image.set_sites(&pairs);
        Ok(image)
    }
}

impl Access {
    fn of(flags: elf::SectionFlags) -> Access {
        if flags.contains(elf::SHF_EXECINSTR) {
            Access::Execute
        } else if flags.contains(elf::SHF_WRITE) {
            Access::Write
        } else {
            Access::Read
        }
    }

    fn section_flags(self) -> elf::SectionFlags {
        match self {
            Access::Execute => elf::SHF_ALLOC | elf::SHF_EXECINSTR,
            Access::Read => elf::SHF_ALLOC,
            Access::Write => elf::SHF_ALLOC | elf::SHF_WRITE,
        }
    }

    fn program_flags(self) -> elf::ProgramFlags {
        match self {
            Access::Execute => elf::PF_R | elf::PF_X,
            Access::Read => elf::PF_R,
            Access::Write => elf::PF_R | elf::PF_W,
        }
    }
}

impl SymbolKind {
    fn of(st_type: elf::SymbolType) -> SymbolKind {
        match st_type {
            elf::STT_FUNC => SymbolKind::Function,
            elf::STT_OBJECT => SymbolKind::Object,
            _ => SymbolKind::NoType,
        }
    }

    fn symbol_type(self) -> elf::SymbolType {
        match self {
            SymbolKind::Function => elf::STT_FUNC,
            SymbolKind::Object => elf::STT_OBJECT,
            SymbolKind::NoType => elf::STT_NOTYPE,
        }
    }
}

/// An input as ELF.
struct Object<'a> {
    name: &'a str,
    bytes: &'a [u8],
    header: &'a Header,
    sections: SectionTable<'a, Header>,
    symbols: SymbolTable<'a, Header>,
    /// Where each section is put; `None` for those that are not.
    at: Vec<Option<u64>>,
}

/// A symbol of an input.
struct Definition<'a> {
    name: &'a str,
    st_type: elf::SymbolType,
    local: bool,
    weak: bool,
    /// Its address, if the input defines it.
    address: Option<u64>,
    size: u64,
}

impl<'a> Object<'a> {
    fn read(input: &Input<'a>) -> Result<Object<'a>> {
        let &Input { name, bytes } = input;
        let header = header(input)?;
        if header.e_type(LE) != elf::ET_REL {
            return Err(Error::new(format!(
                "{name}: ELF type {}; valid: a relocatable object (1), as `gcc -c` and `gen --emit obj` make it",
                header.e_type(LE).0
            )));
        }
        let sections = header.sections(LE, bytes).map_err(damaged(name))?;
        apart(input, sections.iter().skip(1).filter_map(|s| Some(s.file_range(LE)?.1)))?;
        let symbols = sections.symbols(LE, bytes, elf::SHT_SYMTAB).map_err(damaged(name))?;
        let at = vec![None; sections.len()];
        Ok(Object { name, bytes, header, sections, symbols, at })
    }

    fn section_name(&self, index: usize) -> &'a str {
        (self.sections.section(SectionIndex(index)).ok())
            .and_then(|s| section_name(&self.sections, s).ok())
            .unwrap_or("?")
    }

    fn symbol(&self, index: usize) -> Result<Definition<'a>> {
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
                None => return refuse("is in a section that does not exist; the file is damaged"),
            },
            (None, elf::SHN_UNDEF) => None,
            (None, elf::SHN_ABS) => Some(symbol.st_value(LE)),
            (None, elf::SHN_COMMON) if name == "__gnu_lto_slim" => {
                return refuse("says that there is bytecode only; compile without -flto");
            }
            (None, elf::SHN_COMMON) => {
                return refuse("is a common symbol; compile with -fno-common");
            }
            (None, _) => return refuse("is in a reserved section that has no meaning here"),
        };
        match symbol.st_type() {
            elf::STT_TLS => return refuse("is thread-local, which an image cannot have"),
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
            address,
            size: symbol.st_size(LE),
        })
    }
}

/// The header of a little-endian ELF64 file.
pub(crate) fn header<'a>(input: &Input<'a>) -> Result<&'a Header> {
    let wrong = |what: &str| {
        let name = input.name;
        Err(Error::new(format!("{name}: {what}; valid: a little-endian ELF64 file")))
    };
    match *input.bytes {
        [0x7f, b'E', b'L', b'F', 2, 1, 1, ..] => {}
        [0x7f, b'E', b'L', b'F', 1, ..] => return wrong("ELF32"),
        [0x7f, b'E', b'L', b'F', 2, 2, ..] => return wrong("big-endian ELF64"),
        [b'B', b'C', 0xc0, 0xde, ..] => return wrong("LLVM bitcode; compile without -flto"),
        [0x7f, b'E', b'L', b'F', ..] => return wrong("ELF of an unknown class, order or version"),
        [] => return wrong("empty"),
        _ => return wrong("not ELF"),
    }
    Header::parse(input.bytes).map_err(damaged(input.name))
}

/// Turn a reader's error into ours.
pub(crate) fn damaged(name: &str) -> impl Fn(object::read::Error) -> Error {
    move |e| Error::new(format!("{name}: {e}; the file is damaged or cut off"))
}

/// Refuse a file whose parts, of these sizes, cannot all have bytes of their own: they could be many times as large as
/// the file.
pub(crate) fn apart(input: &Input, sizes: impl Iterator<Item = u64>) -> Result<()> {
    let file = input.bytes.len() as u64;
    let parts = sizes.fold(0, u64::saturating_add);
    if parts <= file {
        return Ok(());
    }
    Err(Error::new(format!(
        "{}: its parts have {parts} bytes together, but it has {file}; the file is damaged or cut off",
        input.name
    )))
}

pub(crate) fn utf8<'a>(name: &'a [u8], what: &str) -> Result<&'a str> {
    if name.len() > LONGEST {
        return Err(Error::new(format!("the name of a {what} has {} bytes; valid: at most {LONGEST}", name.len())));
    }
    std::str::from_utf8(name).map_err(|_| {
        let name = String::from_utf8_lossy(name);
        Error::new(format!("{what} {name:?} is not UTF-8"))
    })
}

pub(crate) fn section_name<'a>(
    sections: &SectionTable<'a, Header>,
    section: &elf::SectionHeader64<LittleEndian>,
) -> Result<&'a str> {
    let name = sections.section_name(LE, section).map_err(|e| Error::new(e.to_string()))?;
    utf8(name, "section")
}

/// A shared library as an object, or the object itself. What it asks of the dynamic linker, the object asks of ours;
/// its parts keep their distances, for its code relies on them.
///
/// # Errors
/// A damaged file, an executable, or a relocation that only a running program can have.
pub fn relocatable<'a>(backend: &dyn Patch, input: &Input<'a>) -> Result<Cow<'a, [u8]>> {
    /// How relocations name the library itself. No symbol of C has a blank.
    const START: &str = "start of the library";
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
        let contents = program.data(LE, bytes).map_err(|()| Error::new(format!("{name}: a segment is cut off")))?;
        let start = program.p_vaddr(LE) as usize;
        code.resize(code.len().max(end as usize), 0);
        let place = code.get_mut(start..).and_then(|part| part.get_mut(..contents.len()));
        place
            .ok_or_else(|| Error::new(format!("{name}: a segment is larger than its memory")))?
            .copy_from_slice(contents);
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
    let (machine, e_flags) = (header.e_machine(LE).0, header.e_flags(LE).0);
    raw::object(&Raw { machine, e_flags, code: &code, align: PAGE, symbols, calls }).map(Cow::Owned)
}

/// `e_machine` and `e_flags` of the image, if the objects go together.
fn agree(backend: &dyn Patch, objects: &[Object]) -> Result<(u16, u32)> {
    let facts = backend.facts();
    let [first, ..] = objects else {
        return Err(Error::new("nothing to link; give at least one object"));
    };
    let mut merged = 0;
    for object in objects {
        let machine = object.header.e_machine(LE).0;
        if machine != facts.machine {
            let fits = |o: &&Object| o.header.e_machine(LE).0 == facts.machine;
            let other = objects.iter().find(fits).map_or("this link", |o| o.name);
            return Err(Error::new(format!(
                "{}: for machine {machine}, but {other} is for {} (machine {}); link objects of one machine",
                object.name, facts.name, facts.machine
            )));
        }
        // Flags that say what is used add up; the others say what callers may rely on and must agree. Of the
        // machines here only RISC-V has any.
        let adds_up = elf::EF_RISCV_RVC.0 | elf::EF_RISCV_TSO.0;
        let (ours, theirs) = (first.header.e_flags(LE).0, object.header.e_flags(LE).0);
        if (ours ^ theirs) & !adds_up != 0 {
            return Err(Error::new(format!(
                "{} is for {}, {} for {}; compile both with the same -mabi, and set `abi` alike when generating",
                first.name,
                abi(ours),
                object.name,
                abi(theirs)
            )));
        }
        merged |= theirs;
    }
    Ok((facts.machine, merged))
}

/// The ABI part of RISC-V's `e_flags` in words.
fn abi(e_flags: u32) -> String {
    let float = match elf::FileFlags(e_flags).riscv_float_abi() {
        elf::EF_RISCV_FLOAT_ABI_SOFT => "soft",
        elf::EF_RISCV_FLOAT_ABI_SINGLE => "single",
        elf::EF_RISCV_FLOAT_ABI_DOUBLE => "double",
        _ => "quad",
    };
    format!("the {float}-float ABI (e_flags {e_flags:#x})")
}

/// A section of the image while it is put together.
struct Output<'a> {
    name: &'a str,
    access: Access,
    zeroed: bool,
    align: u64,
    size: u64,
    /// Object and section indices.
    parts: Vec<(usize, usize)>,
}

/// Give every loaded section an address: same names together, code first, zeroed memory last.
fn lay_out(objects: &mut [Object], base: u64) -> Result<(Vec<Segment>, Vec<Section>)> {
    if !base.is_multiple_of(PAGE) {
        return Err(Error::new(format!("base address {base:#x}; valid: a multiple of {PAGE:#x}")));
    }
    let mut outputs = collect(objects)?;
    outputs.sort_by_key(|o| (o.access, o.zeroed));

    let (mut segments, mut sections): (Vec<Segment>, Vec<Section>) = Default::default();
    let mut end = base;
    for output in outputs {
        let open = segments.last().is_some_and(|s| s.access == output.access);
        if !open && output.size > 0 {
            end = end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
            segments.push(Segment { address: end, bytes: Vec::new(), mem_size: 0, access: output.access });
        }
        end = end.checked_next_multiple_of(output.align).unwrap_or(u64::MAX);
        let start = end;
        for (o, index) in output.parts {
            let Some(object) = objects.get_mut(o) else {
                continue;
            };
            let fail = damaged(object.name);
            let section = object.sections.section(SectionIndex(index)).map_err(&fail)?;
            let size = section.sh_size(LE);
            let at = end.checked_next_multiple_of(section.sh_addralign(LE).max(1));
            let room = at.and_then(|at| at.checked_add(size));
            end = room.filter(|end| end - base <= LIMIT).ok_or_else(|| {
                Error::new(format!(
                    "{}: section {} of {size} bytes at {start:#x}: an image from {base:#x} may have {} MiB at most",
                    object.name,
                    output.name,
                    LIMIT >> 20
                ))
            })?;
            let at = end - size;
            if let Some(place) = object.at.get_mut(index) {
                *place = Some(at);
            }
            if let Some(segment) = segments.last_mut().filter(|_| size > 0) {
                if !output.zeroed {
                    segment.bytes.resize((at - segment.address) as usize, 0);
                    let data = section.data(LE, object.bytes).map_err(&fail)?;
                    segment.bytes.extend_from_slice(data);
                }
                segment.mem_size = end - segment.address;
            }
        }
        if end > start {
            sections.push(Section {
                name: output.name.to_owned(),
                address: start,
                size: end - start,
                align: output.align,
                access: output.access,
                zeroed: output.zeroed,
            });
        }
    }
    Ok((segments, sections))
}

/// The sections of the image in order of appearance, without addresses.
fn collect<'a>(objects: &[Object<'a>]) -> Result<Vec<Output<'a>>> {
    let mut outputs: Vec<Output> = Vec::new();
    let mut known = HashMap::new();
    for (o, object) in objects.iter().enumerate() {
        for (index, section) in object.sections.enumerate().skip(1) {
            let flags = section.sh_flags(LE);
            let sh_type = section.sh_type(LE);
            let name = section_name(&object.sections, section).map_err(|e| e.at(object.name))?;
            // Notes are for linkers and loaders, not for the code.
            if !flags.contains(elf::SHF_ALLOC) || sh_type == elf::SHT_NOTE || name.starts_with(".note.") {
                continue;
            }
            let refuse = |what: &str| Err(Error::new(format!("{}: section {name} {what}", object.name)));
            if flags.contains(elf::SHF_TLS) {
                return refuse("is thread-local, which an image cannot have");
            }
            if flags.contains(elf::SHF_WRITE | elf::SHF_EXECINSTR) {
                return refuse("is writable and executable; make it one or the other");
            }
            let align = section.sh_addralign(LE).max(1);
            if !align.is_power_of_two() {
                return refuse(&format!("has alignment {align}; valid: a power of two"));
            }
            let zeroed = sh_type == elf::SHT_NOBITS;
            let access = if zeroed { Access::Write } else { Access::of(flags) };
            let slot = *known.entry((name, access, zeroed)).or_insert_with(|| {
                outputs.push(Output { name, access, zeroed, align: 1, size: 0, parts: Vec::new() });
                outputs.len() - 1
            });
            if let Some(output) = outputs.get_mut(slot) {
                output.align = output.align.max(align);
                output.size = output.size.saturating_add(section.sh_size(LE));
                output.parts.push((o, index.0));
            }
        }
    }
    Ok(outputs)
}

/// Who defines a name that other files see.
struct Global {
    object: usize,
    address: u64,
    weak: bool,
}

/// The symbols of the image, local ones first, and the global ones by name.
fn define<'a>(objects: &[Object<'a>], first: usize) -> Result<(Vec<Symbol>, HashMap<&'a str, Global>)> {
    let most = objects.iter().map(|o| o.symbols.len()).sum();
    let mut all = Vec::with_capacity(most);
    let mut globals: HashMap<&str, Global> = HashMap::with_capacity(most);
    for (object, file) in objects.iter().enumerate() {
        for index in 1..file.symbols.len() {
            let symbol = file.symbol(index)?;
            let named = !matches!(symbol.st_type, elf::STT_SECTION | elf::STT_FILE);
            let Some(address) = symbol.address.filter(|_| named) else {
                continue;
            };
            let &Definition { name, weak, local, .. } = &symbol;
            if !local {
                let new = Global { object, address, weak };
                match globals.get(name) {
                    Some(old) if old.object < first && object >= first => {}
                    Some(old) if !old.weak && !weak => {
                        let other = objects.get(old.object).map_or("?", |o| o.name);
                        return Err(Error::new(format!(
                            "symbol {} is defined in {other} and in {}; keep one, or make one weak or static",
                            name.escape_debug(),
                            file.name
                        )));
                    }
                    Some(old) if old.weak <= weak => {}
                    _ => drop(globals.insert(name, new)),
                }
            }
            all.push((object, address, symbol));
        }
    }
    // The assembler's own labels name nothing for a reader. A weak definition that lost is not there.
    all.retain(|(object, _, s)| match globals.get(s.name) {
        Some(global) if !s.local => global.object == *object,
        _ => !s.name.is_empty() && !s.name.starts_with(".L"),
    });
    let ordered = [true, false].into_iter().flat_map(|local| all.iter().filter(move |(_, _, s)| s.local == local));
    let symbols = ordered.map(|&(object, address, ref s)| Symbol {
        // The mark of code may name an instruction set, and objdump would keep to it in the objects after this one.
        name: match s.local && s.name.starts_with("$x") {
            true => "$x".to_owned(),
            false => s.name.to_owned(),
        },
        address,
        size: s.size,
        kind: SymbolKind::of(s.st_type),
        local: s.local,
        input: Some(object),
    });
    Ok((symbols.collect(), globals))
}

/// The names of global symbols that an object refers to and none defines.
fn undefined<'a>(objects: &[Object<'a>], globals: &HashMap<&str, Global>) -> Result<Vec<&'a str>> {
    let mut missing = Vec::new();
    for object in objects {
        for index in 1..object.symbols.len() {
            let symbol = object.symbol(index)?;
            let named = !symbol.local && !symbol.weak && !symbol.name.is_empty();
            if named && symbol.address.is_none() && !globals.contains_key(symbol.name) {
                missing.push(symbol.name);
            }
        }
    }
    missing.sort_unstable();
    missing.dedup();
    Ok(missing)
}

/// Define `missing` in a section of its own, behind all others.
fn add_stubs<'a>(
    stub: &[u8],
    missing: &[&'a str],
    (segments, sections, symbols): (&mut Vec<Segment>, &mut Vec<Section>, &mut Vec<Symbol>),
    globals: &mut HashMap<&'a str, Global>,
) -> Result<()> {
    /// Room for a stub, or for data where the name turns out to be of a variable.
    const ROOM: usize = 64;
    if missing.is_empty() {
        return Ok(());
    }
    let end = segments.iter().map(|s| s.address + s.mem_size).max().unwrap_or(PAGE);
    let size = (missing.len() * ROOM) as u64;
    let start = end.checked_next_multiple_of(PAGE).filter(|start| start.checked_add(size).is_some());
    let start = start.ok_or_else(|| {
        Error::new(format!("no room above {end:#x} for {} undefined symbols; link at a lower address", missing.len()))
    })?;
    let mut bytes = Vec::new();
    for &name in missing {
        let address = start + bytes.len() as u64;
        bytes.extend_from_slice(stub);
        bytes.resize(bytes.len().next_multiple_of(ROOM), 0);
        globals.insert(name, Global { object: usize::MAX, address, weak: false });
        let kind = SymbolKind::NoType;
        symbols.push(Symbol { name: name.to_owned(), address, size: ROOM as u64, kind, local: false, input: None });
    }
    let (size, access) = (bytes.len() as u64, Access::Execute);
    segments.push(Segment { address: start, bytes, mem_size: size, access });
    sections.push(Section { name: STUBS.to_owned(), address: start, size, align: PAGE, access, zeroed: false });
    Ok(())
}

/// A relocation with its addresses known.
struct Job {
    object: usize,
    section: usize,
    symbol: usize,
    r_type: u32,
    /// Address of the field.
    place: u64,
    /// Bytes from there to the end of the section that the object has there.
    room: usize,
    /// Symbol plus addend.
    value: u64,
}

impl Job {
    /// Where it is and what it refers to, for messages.
    fn place(&self, objects: &[Object]) -> String {
        let Some(object) = objects.get(self.object) else {
            return String::new();
        };
        let start = object.at.get(self.section).copied().flatten();
        let offset = self.place.wrapping_sub(start.unwrap_or(0));
        let section = object.section_name(self.section);
        let place = format!("{}: {section}+{offset:#x}", object.name);
        match object.symbol(self.symbol) {
            Ok(symbol) => format!("{place}: {}", symbol.name.escape_debug()),
            Err(_) => place,
        }
    }
}

/// All relocations of the sections that are in the image.
fn jobs(objects: &[Object], globals: &HashMap<&str, Global>) -> Result<Vec<Job>> {
    let mut jobs = Vec::new();
    let (mut missing, mut seen) = (Vec::new(), HashSet::new());
    for (o, object) in objects.iter().enumerate() {
        let fail = damaged(object.name);
        for header in object.sections.iter() {
            let section = header.info_link(LE).0;
            let Some(base) = object.at.get(section).copied().flatten() else {
                continue;
            };
            let name = object.section_name(section);
            if matches!(header.sh_type(LE), elf::SHT_REL | elf::SHT_CREL) {
                return Err(Error::new(format!(
                    "{}: relocations of {name} are not in RELA form; compile for the 64-bit ABI without -Wa,--crel",
                    object.name
                )));
            }
            let Some((relocations, _)) = header.rela(LE, object.bytes).map_err(&fail)? else {
                continue;
            };
            let size = object.sections.section(SectionIndex(section));
            let size = size.map_err(&fail)?.sh_size(LE);
            for rela in relocations {
                let offset = rela.r_offset(LE);
                let Some(room) = size.checked_sub(offset) else {
                    return Err(Error::new(format!(
                        "{}: a relocation at {name}+{offset:#x}, but {name} has {size:#x} bytes; the file is damaged",
                        object.name
                    )));
                };
                let symbol = rela.r_sym(LE, false) as usize;
                let address = if symbol == 0 {
                    0
                } else {
                    let symbol = object.symbol(symbol)?;
                    let global = globals.get(symbol.name).filter(|_| !symbol.local);
                    let address = global.map(|g| g.address).or(symbol.address);
                    match address {
                        Some(address) => address,
                        None if symbol.weak => 0,
                        None => {
                            if seen.insert((o, symbol.name)) {
                                missing.push(format!(
                                    "{} (used by {} at {name}+{offset:#x})",
                                    symbol.name.escape_debug(),
                                    object.name
                                ));
                            }
                            continue;
                        }
                    }
                };
                jobs.push(Job {
                    object: o,
                    section,
                    symbol,
                    r_type: rela.r_type(LE, false).0,
                    place: base.wrapping_add(offset),
                    room: room as usize,
                    // Addresses are modulo 2^64; whether the result fits is for the field to say.
                    value: address.wrapping_add_signed(rela.r_addend(LE)),
                });
            }
        }
    }
    if missing.is_empty() {
        return Ok(jobs);
    }
    Err(Error::new(format!("undefined: {}; link the objects that define them", missing.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stubs_need_room_above() {
        let at_end = |address| Segment { address, bytes: Vec::new(), mem_size: PAGE - 1, access: Access::Write };
        for (address, fits) in [(0_u64.wrapping_sub(2 * PAGE), true), (0_u64.wrapping_sub(PAGE), false)] {
            let (mut segments, mut sections, mut symbols) = (vec![at_end(address)], Vec::new(), Vec::new());
            let added = add_stubs(b"", &["f"], (&mut segments, &mut sections, &mut symbols), &mut HashMap::new());
            assert_eq!(added.is_ok(), fits, "{address:#x}: {added:?}");
            assert_eq!(symbols.len(), usize::from(fits));
        }
    }

    #[test]
    fn parts_and_names_are_no_larger_than_files_can_have_them() {
        let input = Input { name: "a.o", bytes: &[0; 8] };
        assert!(apart(&input, [3, 5].into_iter()).is_ok());
        let e = apart(&input, [4, 5].into_iter()).unwrap_err();
        assert!(e.to_string().starts_with("a.o: its parts have 9 bytes together, but it has 8"), "{e}");
        assert!(apart(&input, [u64::MAX, u64::MAX].into_iter()).is_err());
        assert!(utf8(&[b'a'; LONGEST], "symbol").is_ok());
        assert!(utf8(&[b'a'; LONGEST + 1], "symbol").is_err());
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
            let e = machine(&Input { name: "a.o", bytes }).unwrap_err();
            assert!(e.to_string().starts_with("a.o: "), "{e}");
            assert!(e.to_string().contains(what), "{e}");
            assert!(Image::from_elf(bytes).is_err());
        }
    }
}
