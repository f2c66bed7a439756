//! The traceable sites that a file lists: a kernel, a module, an object, or a program.
//!
//! [`Patch`] gives the forms of a site's bytes; this module decides whether the site can be patched.

use std::cell::Cell;
use std::ops::Range;

use codegen::arch::patch::{Patch, SiteForm};
use codegen::words::error::{Error, Result};
use object::elf;
use object::read::SymbolIndex;
use object::read::elf::{FileHeader as _, Rela as _, SectionHeader as _, SectionTable, Sym as _};
use serde::Serialize;

use crate::elf::{Header, Input, LE, MCOUNT_LOC, PATCHABLE, beginning, damaged, header, parts_fit_file, section_name};

/// The section with the list of sleds of `-fxray-instrument`.
const XRAY: &str = "xray_instr_map";

/// Bytes of an entry of the XRay map: site, function, kind, always, version, padding.
const XRAY_ENTRY: usize = 32;

/// The names of the kinds of XRay sleds, by number.
const XRAY_KINDS: [&str; 6] = ["entry", "exit", "tail call", "entry with arguments", "custom event", "typed event"];

/// The symbols around the list in a linked kernel, where it is in another section.
const KERNEL: [&str; 2] = ["__start_mcount_loc", "__stop_mcount_loc"];

/// The fewest entries by which a list is recognised without symbols: words that ascend and point to sites.
const LEAST: usize = 100;

/// One entry of a list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ListedSite<'a> {
    /// The list, by the name of its section in objects.
    pub list: &'static str,
    /// The kind of site: `entry`, or the kind in the XRay map.
    pub kind: &'static str,
    /// The section that contains the site, for relocatable files.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub section: &'a str,
    /// The recorded address of the site; in relocatable files, the offset in the section.
    pub address: u64,
    /// The function that contains the site; empty if unknown.
    pub function: &'a str,
    /// Bytes from the function's start.
    pub offset: u64,
    /// The site's bytes.
    pub bytes: Vec<u8>,
    /// The function's code before the site.
    #[serde(skip)]
    pub ahead: &'a [u8],
    /// The form of the bytes; empty if unknown.
    pub form: &'static str,
    /// The reason why the site cannot be patched; `None` if it can.
    pub refused: Option<&'static str>,
}

/// The reason why an entry of 0 cannot be patched.
pub const DROPPED: &str = "the entry is 0: the linker dropped its function, for one that is not weak";
const OUTSIDE: &str = "outside the contents of the file";
const STRANGE: &str = "these bytes are none that are left at a site";
const ORPHAN: &str = "in no function: another one took the place of its function, which was weak";
const BEFORE: &str = "before its function, where no call comes by: compile with all NOPs behind the entry \
                      (-fpatchable-function-entry=N)";
const MISALIGNED: &str = "the NOPs before the function, which are to hold op, are not at a multiple of 8, and are read in \
                          one piece: align the function to 8 bytes (-falign-functions=8, or where -Os and cold code \
                          ignore that -fmin-function-alignment=8)";
const MAY_BE_MISALIGNED: &str = "the function's section is aligned to fewer than 8 bytes, so that a linker may put the NOPs \
                                 before it, which are to hold op, at no multiple of 8: align the function to 8 bytes \
                                 (-falign-functions=8, or where -Os and cold code ignore that \
                                 -fmin-function-alignment=8)";

/// A place: in relocatable files, a section's index and an offset; else index 0 and an address.
type Place = (usize, u64);

/// The sites that `input` lists, each list by ascending address.
///
/// # Errors
/// Not a little-endian ELF64 file, a damaged one, one without lists.
pub fn sites<'a>(backend: &dyn Patch, input: &Input<'a>) -> Result<Vec<ListedSite<'a>>> {
    let file = File::read(backend, input)?;
    let mut all = Vec::new();
    for list in file.lists(backend)? {
        let mut sites = file.listed(backend, &list)?;
        // Sites are large: each is moved once.
        sites.sort_by_cached_key(|(place, _)| *place);
        let sites: Vec<ListedSite> = sites.into_iter().map(|(_, site)| site).collect();
        if all.is_empty() { all = sites } else { all.extend(sites) }
    }
    Ok(all)
}

/// A list of sites: its name, its place, its bytes.
struct List<'a> {
    name: &'static str,
    at: Place,
    bytes: &'a [u8],
}

struct Function<'a> {
    start: Place,
    size: u64,
    global: bool,
    /// The raw name. Only names of functions with sites are decoded, as a program may have names of any length.
    name: &'a [u8],
}

/// A file with the tables needed to find its sites.
struct File<'a> {
    input: Input<'a>,
    relocatable: bool,
    sections: SectionTable<'a, Header>,
    /// Contents in memory by ascending place: place, whether it is code, bytes.
    contents: Vec<(Place, bool, &'a [u8])>,
    /// The functions by ascending place; of several at one place, the global one comes last.
    functions: Vec<Function<'a>>,
    /// The relocations of code in relocatable files, and how many bytes of padding are at those that a linker makes shorter.
    relocations: Vec<(Place, Option<u64>)>,
    /// The last result of [`File::begun`]: the next site of a list is most often the next function's.
    last: Cell<usize>,
}

impl<'a> File<'a> {
    fn read(backend: &dyn Patch, input: &Input<'a>) -> Result<File<'a>> {
        let header = header(input)?;
        let fail = damaged(input.name);
        let sections = header.sections(LE, input.bytes).map_err(&fail)?;
        parts_fit_file(input, sections.iter().skip(1).filter_map(|s| Some(s.file_range(LE)?.1)))?;
        let relocatable = header.e_type(LE) == elf::ET_REL;
        let place = |section: usize, address| if relocatable { (section, address) } else { (0, address) };
        let mut contents = Vec::new();
        for (index, section) in sections.enumerate().filter(|(_, s)| s.sh_flags(LE).contains(elf::SHF_ALLOC)) {
            let data = section.data(LE, input.bytes).map_err(&fail)?;
            let code = section.sh_flags(LE).contains(elf::SHF_EXECINSTR);
            contents.push((place(index.0, section.sh_addr(LE)), code, data));
        }
        contents.sort_by_key(|(at, ..)| *at);
        let symbols = sections.symbols(LE, input.bytes, elf::SHT_SYMTAB).map_err(&fail)?;
        let mut functions = Vec::new();
        for (index, symbol) in symbols.enumerate().filter(|(_, s)| s.st_type() == elf::STT_FUNC) {
            if let Some(section) = symbols.symbol_section(LE, symbol, index).map_err(&fail)? {
                functions.push(Function {
                    start: place(section.0, symbol.st_value(LE)),
                    size: symbol.st_size(LE),
                    global: !symbol.is_local(),
                    name: symbols.symbol_name(LE, symbol).map_err(&fail)?,
                });
            }
        }
        functions.sort_by_key(|f| (f.start, f.global));
        let mut relocations = Vec::new();
        for section in sections.iter().filter(|_| relocatable) {
            let of = section.info_link(LE);
            let is_code = |s: &elf::SectionHeader64<_>| s.sh_flags(LE).contains(elf::SHF_EXECINSTR);
            let Some((list, _)) = section.rela(LE, input.bytes).map_err(&fail)? else { continue };
            if !sections.section(of).is_ok_and(is_code) {
                continue;
            }
            relocations.extend(list.iter().map(|rela| {
                let padding = backend.is_padding(rela.r_type(LE, false).0).then(|| rela.r_addend(LE) as u64);
                ((of.0, rela.r_offset(LE)), padding)
            }));
        }
        Ok(File { input: *input, relocatable, sections, contents, functions, relocations, last: Cell::new(0) })
    }

    /// All lists, found by sections, by symbols, or by their contents.
    fn lists(&self, backend: &dyn Patch) -> Result<Vec<List<'a>>> {
        let fail = damaged(self.input.name);
        let mut lists = Vec::new();
        for (index, section) in self.sections.enumerate() {
            // A file without a name for a section has no list there.
            let named = section_name(&self.sections, section).unwrap_or_default();
            if let Some(name) = [MCOUNT_LOC, PATCHABLE, XRAY].into_iter().find(|n| *n == named) {
                let at = if self.relocatable { (index.0, 0) } else { (0, section.sh_addr(LE)) };
                lists.push(List { name, at, bytes: section.data(LE, self.input.bytes).map_err(&fail)? });
            }
        }
        // Of any number of empty ones there would be no end.
        lists.retain(|l| !l.bytes.is_empty());
        // As in the linker: a file with both lists traces the sites of the first.
        if lists.iter().any(|l| l.name == MCOUNT_LOC) {
            lists.retain(|l| l.name != PATCHABLE);
        }
        if lists.is_empty() && !self.relocatable {
            let range = self.between(KERNEL)?.or_else(|| self.search(backend));
            let bytes =
                range.clone().and_then(|r| Some((r.start, self.bytes((0, r.start), r.end.checked_sub(r.start)?)?)));
            lists.extend(bytes.map(|(start, bytes)| List { name: MCOUNT_LOC, at: (0, start), bytes }));
        }
        if !lists.is_empty() {
            return Ok(lists);
        }
        Err(Error::new(format!(
            "{}: no list of sites; valid: a file with {MCOUNT_LOC}, {PATCHABLE} or {XRAY} (compile with -pg -mfentry \
             -mrecord-mcount, -fpatchable-function-entry or -fxray-instrument), or a kernel's vmlinux",
            self.input.name
        )))
    }

    /// The addresses of two symbols, if both are defined.
    fn between(&self, names: [&str; 2]) -> Result<Option<Range<u64>>> {
        let fail = damaged(self.input.name);
        let symbols = self.sections.symbols(LE, self.input.bytes, elf::SHT_SYMTAB).map_err(&fail)?;
        let mut found = [None; 2];
        for symbol in symbols.iter() {
            let name = symbols.symbol_name(LE, symbol).map_err(&fail)?;
            if let Some(i) = names.iter().position(|n| n.as_bytes() == name) {
                found[i] = Some(symbol.st_value(LE));
            }
        }
        Ok(found[0].zip(found[1]).map(|(start, end)| start..end))
    }

    /// The longest run of words that ascend and point to patchable sites, with the zeros before it: a sorted list begins with
    /// its zeros.
    fn search(&self, backend: &dyn Patch) -> Option<Range<u64>> {
        let of_code = || self.contents.iter().filter(|(_, code, _)| *code);
        let ends = of_code().map(|((_, start), _, bytes)| start.saturating_add(bytes.len() as u64));
        let code = of_code().next()?.0.1..ends.max()?;
        let mut best = 0_u64..0;
        for ((_, start), _, bytes) in self.contents.iter().filter(|(_, code, _)| !code) {
            let (words, _) = bytes.as_chunks();
            let (mut zeros, mut run, mut last) = (0, 0, 0);
            for (i, word) in words.iter().map(|w| u64::from_le_bytes(*w)).enumerate() {
                let site = word > last && code.contains(&word) && self.form(backend, false, (0, word)).is_some();
                run = if site { run + 1 } else { 0 };
                if !site {
                    zeros = if word == 0 { zeros + 1 } else { 0 };
                }
                last = if site { word } else { 0 };
                let (from, to) = (i + 1 - run - zeros, i + 1);
                if run >= LEAST && 8 * (to - from) as u64 > best.end.saturating_sub(best.start) {
                    best = start.wrapping_add(8 * from as u64)..start.wrapping_add(8 * to as u64);
                }
            }
        }
        (!best.is_empty()).then_some(best)
    }

    /// The bytes at a place.
    fn bytes(&self, (section, at): Place, len: u64) -> Option<&'a [u8]> {
        let after = self.contents.partition_point(|(start, ..)| *start <= (section, at));
        let ((of, start), _, bytes) = self.contents.get(after.checked_sub(1)?)?;
        let from = usize::try_from(at.checked_sub(*start)?).ok()?;
        (*of == section).then(|| bytes.get(from..from.checked_add(len as usize)?))?
    }

    /// The form of the bytes at a place, and the bytes.
    fn form(&self, backend: &dyn Patch, sled: bool, (section, at): Place) -> Option<(&'static SiteForm, &'a [u8])> {
        backend.site_forms().iter().filter(|form| form.sled == sled).find_map(|form| {
            let bytes = self.bytes((section, at.checked_sub(form.before)?), form.len() as u64)?;
            form.fits(bytes).then_some((form, bytes))
        })
    }

    /// The values that relocations write to a list, by ascending address.
    fn relocated(&self, backend: &dyn Patch, list: &List) -> Result<Vec<(u64, Place)>> {
        let fail = damaged(self.input.name);
        let end = list.at.1.saturating_add(list.bytes.len() as u64);
        let mut values = Vec::new();
        for section in self.sections.iter() {
            let of_list = match self.relocatable {
                true => section.info_link(LE).0 == list.at.0,
                false => section.sh_flags(LE).contains(elf::SHF_ALLOC),
            };
            if !of_list {
                continue;
            }
            let Some((relocations, table)) = section.rela(LE, self.input.bytes).map_err(&fail)? else {
                continue;
            };
            let symbols = match table.0 {
                0 => None,
                _ => Some(self.sections.symbol_table_by_index(LE, self.input.bytes, table).map_err(&fail)?),
            };
            for rela in relocations.iter().filter(|r| (list.at.1..end).contains(&r.r_offset(LE))) {
                let known = &backend.facts().dynamic[..2];
                if !self.relocatable && !known.contains(&rela.r_type(LE, false).0) {
                    continue;
                }
                let index = SymbolIndex(rela.r_sym(LE, false) as usize);
                let (section, value) = match &symbols {
                    Some(table) if index.0 != 0 => {
                        let symbol = table.symbol(index).map_err(&fail)?;
                        let section = table.symbol_section(LE, symbol, index).map_err(&fail)?.map_or(0, |s| s.0);
                        (if self.relocatable { section } else { 0 }, symbol.st_value(LE))
                    }
                    _ => (0, 0),
                };
                values.push((rela.r_offset(LE), (section, value.wrapping_add_signed(rela.r_addend(LE)))));
            }
        }
        // A difference has two relocations, and the first one is for the site.
        values.sort_by_key(|(at, _)| *at);
        values.dedup_by_key(|(at, _)| *at);
        Ok(values)
    }

    /// The entries of a list.
    fn listed(&self, backend: &dyn Patch, list: &List) -> Result<Vec<(Place, ListedSite<'a>)>> {
        let (sled, size) = if list.name == XRAY { (true, XRAY_ENTRY) } else { (false, 8) };
        let whole = list.bytes.len().is_multiple_of(size);
        if !whole {
            return Err(Error::new(format!(
                "{}: {} has {} bytes; valid: a multiple of {size}",
                self.input.name,
                list.name,
                list.bytes.len()
            )));
        }
        let relocated = self.relocated(backend, list)?;
        let mut sites = Vec::with_capacity(list.bytes.len() / size);
        for (i, entry) in list.bytes.chunks_exact(size).enumerate() {
            let at = list.at.1.wrapping_add((i * size) as u64);
            let word = entry.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            let &[kind, _, version] = entry.get(16..19).and_then(|k| k.first_chunk()).unwrap_or(&[0; 3]);
            let found = relocated.binary_search_by_key(&at, |(at, _)| *at).ok().and_then(|n| relocated.get(n));
            let place = match found {
                Some((_, place)) => *place,
                // From the second version on, an entry has distances.
                None if sled && version >= 2 => (0, word.wrapping_add(at)),
                None => (0, word),
            };
            let kind = if sled { XRAY_KINDS.get(kind as usize).copied().unwrap_or("unknown") } else { "entry" };
            sites.push(self.site(backend, (list.name, kind, sled), place));
        }
        Ok(sites)
    }

    /// One entry.
    fn site(
        &self,
        backend: &dyn Patch,
        (list, kind, sled): (&'static str, &'static str, bool),
        (section, entry): Place,
    ) -> (Place, ListedSite<'a>) {
        // A function that ends 8 bytes behind its site has its own NOPs in front of the next one.
        let has_op = !sled && self.starts((section, entry.wrapping_add(8))) && !self.covers((section, entry));
        let word = |at| Some(u32::from_le_bytes(self.bytes((section, at), 4)?.try_into().ok()?));
        let address = match (section, entry) {
            (0, 0) => 0,
            _ if sled => entry,
            _ => backend.site_ip(entry, &|at| if has_op { word(at) } else { None }),
        };
        let place = (section, address);
        let form = self.form(backend, sled, place);
        let after = self.begun(place);
        let function = after.checked_sub(1).and_then(|i| self.functions.get(i)).filter(|f| {
            let (of, start) = f.start;
            of == section && (f.size == 0 || address - start < f.size)
        });
        let refused = match form {
            _ if place == (0, 0) => Some(DROPPED),
            None if self.bytes(place, 1).is_none() => Some(OUTSIDE),
            _ if function.is_none() && self.before_function(after, place) => Some(BEFORE),
            None => Some(STRANGE),
            Some((form, _)) if !form.refused.is_empty() => Some(form.refused),
            _ if function.is_none() && !self.functions.is_empty() => Some(ORPHAN),
            _ if has_op => self.aligned((section, entry)),
            _ => None,
        };
        // Of bytes without a known form, print as many as the first form has.
        let shown = || {
            let form_of = |f: &&SiteForm| f.sled == sled && place != (0, 0);
            let form = backend.site_forms().iter().find(form_of)?;
            self.bytes((section, address.checked_sub(form.before)?), form.len() as u64)
        };
        let section = (self.relocatable && section != 0)
            .then(|| self.sections.section(object::read::SectionIndex(section)).ok())
            .flatten()
            .and_then(|s| section_name(&self.sections, s).ok());
        let site = ListedSite {
            list,
            kind,
            section: section.unwrap_or_default(),
            address,
            function: function.map_or("", |f| beginning(f.name)),
            offset: function.map_or(0, |f| address - f.start.1),
            ahead: function.and_then(|f| self.bytes(f.start, address - f.start.1)).unwrap_or_default(),
            bytes: form.map(|(_, bytes)| bytes).or_else(shown).unwrap_or_default().to_vec(),
            form: form.map_or("", |(form, _)| form.about),
            refused,
        };
        (place, site)
    }

    /// Is the code from this place to the start of the function one repeated instruction?
    fn before_function(&self, function: usize, (section, at): Place) -> bool {
        let next = self.functions.get(function).filter(|f| f.start.0 == section);
        let room = next.and_then(|f| self.bytes((section, at), f.start.1.checked_sub(at)?));
        let repeats = |bytes: &[u8], size: usize| bytes.chunks(size).all(|unit| Some(unit) == bytes.get(..size));
        room.is_some_and(|bytes| !bytes.is_empty() && [1, 2, 4].iter().any(|size| repeats(bytes, *size)))
    }

    /// Why NOPs that are to hold `op` may lie at no multiple of 8.
    fn aligned(&self, (section, at): Place) -> Option<&'static str> {
        let Some((padded, to)) = self.padded((section, at)) else {
            return match at.is_multiple_of(8) {
                false => Some(MISALIGNED),
                true => (self.relocatable && !self.alignment(section).is_multiple_of(8)).then_some(MAY_BE_MISALIGNED),
            };
        };
        // A linker may shorten any code that has relocations.
        let shortened = self.relocations.iter().any(|(place, _)| *place >= padded && *place < (section, at));
        match (at - padded.1).is_multiple_of(8) {
            _ if shortened || to < 8 => Some(MAY_BE_MISALIGNED),
            true => None,
            false => Some(MISALIGNED),
        }
    }

    /// Where the code begins that the last padding before a place puts at a multiple, and of what. A linker leaves as much of the padding
    /// as it takes, so that the place is not what the object says.
    fn padded(&self, (section, at): Place) -> Option<(Place, u64)> {
        let ends = self.relocations.iter().filter_map(|((of, start), padding)| {
            let end = start.checked_add((*padding)?)?;
            (*of == section && end <= at).then_some((end, (*padding)?))
        });
        // psABI: the least power of two that is more than the bytes of padding.
        let (end, padding) = ends.max()?;
        Some(((section, end), padding.checked_add(1)?.checked_next_power_of_two()?))
    }

    /// The alignment of a section; 1 if there is none of this index.
    fn alignment(&self, section: usize) -> u64 {
        let section = self.sections.section(object::read::SectionIndex(section));
        section.map_or(1, |section| section.sh_addralign(LE))
    }

    /// True if a function starts at `place`.
    fn starts(&self, place: Place) -> bool {
        let last = self.begun(place).checked_sub(1).and_then(|n| self.functions.get(n));
        last.is_some_and(|f| f.start == place)
    }

    /// True if a function starts at `place`, or has it in it.
    fn covers(&self, place: Place) -> bool {
        let last = self.begun(place).checked_sub(1).and_then(|n| self.functions.get(n));
        let covers = |f: &Function| f.start == place || place.1.wrapping_sub(f.start.1) < f.size;
        last.is_some_and(|f| f.start.0 == place.0 && covers(f))
    }

    /// The number of functions that start at `place` or before.
    fn begun(&self, place: Place) -> usize {
        let starts = |n: usize| self.functions.get(n).map(|f| f.start);
        let is = |n: &usize| {
            let (before, next) = (n.checked_sub(1).and_then(starts), starts(*n));
            (*n == 0 || before.is_some_and(|at| at <= place)) && next.is_none_or(|at| at > place)
        };
        let last = self.last.get();
        let found = (last..=last + 1).find(is).unwrap_or_else(|| self.functions.partition_point(|f| f.start <= place));
        self.last.set(found);
        found
    }
}
