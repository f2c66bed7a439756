//! Applying the alternatives with which a kernel replaces its own instructions when it boots. Their list is a section of the
//! object; the profile describes the layout of an entry.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use codegen::arch::patch::AlternativeEntry;
use codegen::listing::pattern::PatternTable;
use codegen::words::error::{Error, Result};
use object::endian::U64;
use object::read::elf::{FileHeader as _, Rela as _, SectionHeader as _, Sym as _};
use object::read::{SectionIndex, SymbolIndex};
use object::{LittleEndian, elf, pod};

use crate::elf::{Input, LE, damaged};
use crate::linker::Object;

/// The section with the list of instructions that the kernel may replace, on all architectures.
pub const ALTERNATIVES: &str = ".altinstructions";

type Rela = elf::Rela64<LittleEndian>;

/// The object with every alternative applied, whatever its condition; of several for one place, the last. `None` if the
/// object has no list of alternatives.
///
/// # Errors
/// A damaged file, and an alternative that is not a copy of instructions.
pub fn with_alternatives(input: &Input, entry: &AlternativeEntry, patterns: &PatternTable) -> Result<Option<Vec<u8>>> {
    let object = Object::read(input)?;
    let sections = object.sections.len();
    let Some(list) = (1..sections).find(|&i| object.section_name(i) == ALTERNATIVES) else { return Ok(None) };
    let list = Part::of(&object, list)?;
    let (mut sources, mut changed) = (BTreeMap::new(), BTreeMap::new());
    for number in 0..list.code.len().div_ceil(entry.size) {
        let start = number * entry.size;
        let fail = |e: Error| e.at(format_args!("{}: {ALTERNATIVES}, entry {number}", input.name));
        let damaged = |what| fail(Error::damaged(what));
        let Some(bytes) = list.code.get(start..start + entry.size) else { return Err(damaged("it is cut off")) };
        if entry.special.is_some_and(|(field, mask)| field.of(bytes) & mask != 0) {
            return Err(fail(Error::new("the kernel computes what it writes there; valid: a copy of instructions")));
        }
        let (was, becomes) = (entry.length.of(bytes), entry.replacement_length.of(bytes));
        let ((to, at), (from, source)) = (list.target(&object, start)?, list.target(&object, start + 4)?);
        let replacement = Part::kept(&object, &mut sources, from)?.cut(source..source.saturating_add(becomes));
        let mut replacement = replacement.ok_or_else(|| damaged("its instructions end behind their section"))?;
        let fill = was.checked_sub(becomes).and_then(|room| patterns.fill(room)).ok_or_else(|| {
            fail(Error::new(format!("{becomes} bytes replace {was}; valid: as many, or fewer by whole NOPs")))
        })?;
        replacement.code.extend(fill);
        let part = Part::kept(&object, &mut changed, to)?;
        part.put(at, replacement).ok_or_else(|| damaged("what it replaces ends behind its section"))?;
    }
    let mut bytes = input.bytes.to_vec();
    for (section, part) in changed {
        part.write(&object, section, &mut bytes)?;
    }
    Ok(Some(bytes))
}

/// A section, or a piece of one, with its relocations, sorted by place; those of one place keep their order.
struct Part {
    code: Vec<u8>,
    relocations: BTreeMap<(u64, usize), Rela>,
}

impl Part {
    fn of(object: &Object, section: usize) -> Result<Part> {
        let fail = damaged(object.name);
        let header = object.sections.section(SectionIndex(section)).map_err(&fail)?;
        let code = header.data(LE, object.bytes).map_err(&fail)?.to_vec();
        let all = match table_of(object, section) {
            Some((_, table)) => table.rela(LE, object.bytes).map_err(&fail)?.map_or(&[][..], |(all, _)| all),
            None => &[],
        };
        let relocations = all.iter().enumerate().map(|(n, rela)| ((rela.r_offset(LE), n), *rela)).collect();
        Ok(Part { code, relocations })
    }

    /// The section with this index, which is read only once.
    fn kept<'p>(object: &Object, known: &'p mut BTreeMap<usize, Part>, section: usize) -> Result<&'p mut Part> {
        Ok(match known.entry(section) {
            Entry::Vacant(new) => new.insert(Part::of(object, section)?),
            Entry::Occupied(part) => part.into_mut(),
        })
    }

    /// The section that a field refers to, and the offset in it. Where a relocation subtracts the field's own address, the
    /// one before it adds the target's.
    fn target(&self, object: &Object, field: usize) -> Result<(usize, usize)> {
        let fail = || Error::damaged(format!("{ALTERNATIVES}+{field:#x} refers to nothing")).at(object.name);
        let (_, rela) = self.inside(field..field + 1).next().ok_or_else(fail)?;
        let (index, damage) = (SymbolIndex(rela.r_sym(LE, false) as usize), damaged(object.name));
        let symbol = object.symbols.symbol(index).map_err(&damage)?;
        let section = object.symbols.symbol_section(LE, symbol, index).map_err(&damage)?.ok_or_else(fail)?;
        let offset = symbol.st_value(LE).wrapping_add_signed(rela.r_addend(LE));
        Ok((section.0, usize::try_from(offset).map_err(|_| fail())?))
    }

    /// The relocations at these offsets.
    fn inside(&self, piece: Range<usize>) -> impl Iterator<Item = (&(u64, usize), &Rela)> {
        self.relocations.range((piece.start as u64, 0)..(piece.end as u64, 0))
    }

    /// A piece, with its places counted from its beginning.
    fn cut(&self, piece: Range<usize>) -> Option<Part> {
        let code = self.code.get(piece.clone())?.to_vec();
        let start = piece.start as u64;
        let relocations = self.inside(piece).map(|((at, n), rela)| ((at - start, *n), *rela)).collect();
        Some(Part { code, relocations })
    }

    /// Replace the bytes and relocations at offset `at`.
    fn put(&mut self, at: usize, new: Part) -> Option<()> {
        let place = at..at.checked_add(new.code.len())?;
        self.code.get_mut(place.clone())?.copy_from_slice(&new.code);
        let old: Vec<_> = self.inside(place).map(|(key, _)| *key).collect();
        for key in old {
            self.relocations.remove(&key);
        }
        self.relocations.extend(new.relocations.into_iter().map(|((offset, n), rela)| ((offset + at as u64, n), rela)));
        Some(())
    }

    /// Write the part over a section of the file. Its relocations are appended to the file, as there may be more than before.
    fn write(self, object: &Object, section: usize, bytes: &mut Vec<u8>) -> Result<()> {
        let name = object.section_name(section);
        let fail = |why: &str| Error::new(format!("{}: {name} {why}; leave out --alternatives", object.name));
        let header = object.sections.section(SectionIndex(section)).map_err(damaged(object.name))?;
        let start = header.sh_offset(LE) as usize;
        let place = bytes.get_mut(start..).and_then(|rest| rest.get_mut(..self.code.len()));
        place.ok_or_else(|| fail("has no contents"))?.copy_from_slice(&self.code);
        let moved = |((at, _), rela): ((u64, usize), Rela)| Rela { r_offset: U64::new(LE, at), ..rela };
        let relocations: Vec<Rela> = self.relocations.into_iter().map(moved).collect();
        let Some((table, mut header)) = table_of(object, section).map(|(table, header)| (table, *header)) else {
            let none = relocations.is_empty().then_some(());
            return none.ok_or_else(|| fail("has no relocations, and its alternatives have"));
        };
        bytes.resize(bytes.len().next_multiple_of(align_of::<u64>()), 0);
        header.sh_offset = U64::new(LE, bytes.len() as u64);
        header.sh_size = U64::new(LE, size_of_val(&relocations[..]) as u64);
        bytes.extend(pod::bytes_of_slice(&relocations));
        let at = object.header.e_shoff(LE) as usize + table * usize::from(object.header.e_shentsize(LE));
        let place = bytes.get_mut(at..).and_then(|rest| rest.get_mut(..size_of_val(&header)));
        place.ok_or_else(|| fail("has relocations that nothing describes"))?.copy_from_slice(pod::bytes_of(&header));
        Ok(())
    }
}

/// The table of a section's relocations: its number and header.
fn table_of<'a>(object: &Object<'a>, section: usize) -> Option<(usize, &'a elf::SectionHeader64<LittleEndian>)> {
    let mut tables = object.sections.iter().enumerate();
    tables.find(|(_, header)| header.sh_type(LE) == elf::SHT_RELA && header.info_link(LE).0 == section)
}
