//! Relocations: their targets, and their application to the image.

use codegen::arch::patch::{Patch, Relocation};
use codegen::words::error::{Error, Result};
use object::elf;
use object::read::SectionIndex;
use object::read::elf::{Rela as _, SectionHeader as _};
use rustc_hash::FxHashSet;

use super::got::Got;
use super::objects::Object;
use super::symbols::Globals;
use crate::elf::{LE, damaged};
use crate::image::Image;
use crate::options::Options;
use crate::patching::goes_on;

/// A relocation with its addresses known.
pub(super) struct PendingReloc {
    /// Address of the field.
    pub(super) place: u64,
    /// Symbol plus addend.
    pub(super) value: u64,
    addend: i64,
    pub(super) r_type: u32,
    /// Number of the object, and those of the section and the symbol in it.
    object: u32,
    section: u32,
    symbol: u32,
    /// Bytes from the field to the end of the section that the object has there.
    room: u32,
}

impl PendingReloc {
    /// The place of the relocation and its target, for messages.
    fn place(&self, objects: &[Object]) -> String {
        let Some(object) = objects.get(self.object as usize) else {
            return String::new();
        };
        let start = object.at.get(self.section as usize).copied().flatten();
        let offset = self.place.wrapping_sub(start.unwrap_or(0));
        let section = object.section_name(self.section as usize);
        let place = format!("{}: {section}+{offset:#x}", object.name);
        match object.symbol(self.symbol as usize) {
            Ok(symbol) => format!("{place}: {}", symbol.name.escape_debug()),
            Err(_) => place,
        }
    }
}

/// Apply all relocations; returns the applied ones if [`Options::references`] is set.
pub(super) fn relocate(
    image: &mut Image,
    backend: &dyn Patch,
    objects: &[Object],
    (globals, mut got): (&Globals, Got),
    options: &Options,
) -> Result<Vec<Relocation>> {
    let mut all = pending(objects, globals, options.first)?;
    all.retain(|reloc| !(options.stub.is_some() && backend.is_padding(reloc.r_type)));
    for reloc in &mut all {
        if let Some(direct) = backend.through_got(reloc.r_type).filter(|_| !options.glance) {
            // The addend is the distance from the field to what counts it, not from the symbol.
            let word = got.word(image, reloc.value.wrapping_add_signed(-reloc.addend))?;
            (reloc.r_type, reloc.value) = (direct, word.wrapping_add_signed(reloc.addend));
        }
    }
    // A low part names the instruction of its high part, not the target; the target is that instruction's.
    let low = |reloc: &&PendingReloc| backend.refers_to_high(reloc.r_type);
    let others = if all.iter().any(|reloc| low(&reloc)) { &all[..] } else { &[] };
    let mut highs: Vec<&PendingReloc> = others.iter().filter(|reloc| reloc.symbol != 0 && !low(reloc)).collect();
    highs.sort_by_key(|reloc| reloc.place);
    let high = |place: u64| {
        let first = highs.partition_point(|reloc| reloc.place < place);
        highs.get(first).filter(|reloc| reloc.place == place).map(|reloc| reloc.value)
    };
    let mut applied = Vec::new();
    for reloc in &all {
        let place = || reloc.place(objects);
        let mut rel = Relocation { r_type: reloc.r_type, place: reloc.place, value: reloc.value, high: 0 };
        if low(&reloc) {
            rel.high = reloc.value;
            rel.value = match high(rel.high) {
                Some(value) => value,
                None if options.glance => 0,
                None => return Err(Error::Unpaired { high: rel.high }.at(place())),
            };
        }
        let field = image
            .bytes_mut(reloc.place, reloc.room as usize)
            .ok_or_else(|| Error::new("the section has no contents to relocate").at(place()))?;
        match backend.relocate(&rel, field) {
            Err(e) if !options.glance => return Err(e.at(place())),
            _ => {}
        }
        if options.references || goes_on(options) {
            applied.push(rel);
        }
    }
    Ok(applied)
}

/// All relocations of the sections that are in the image. What the objects before number `first` define, those from it on do not.
fn pending(objects: &[Object], globals: &Globals, first: usize) -> Result<Vec<PendingReloc>> {
    let mut all = Vec::new();
    let (mut missing, mut seen) = (Vec::new(), FxHashSet::default());
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
            all.reserve(relocations.len());
            for rela in relocations {
                let offset = rela.r_offset(LE);
                let Some(room) = size.checked_sub(offset) else {
                    let what = format!("a relocation at {name}+{offset:#x}, but {name} has {size:#x} bytes");
                    return Err(Error::damaged(what).at(object.name));
                };
                let symbol = rela.r_sym(LE, false);
                let address = if symbol == 0 {
                    0
                } else {
                    let index = symbol as usize;
                    let found = object.found(index)?;
                    // There are many: of what no other object can have, not even the name is read.
                    let wins = found.address.is_some() && !found.weak && (first == 0 || o < first);
                    let global = if found.local || wins { None } else { globals.get(object.symbol(index)?.name) };
                    let address = global.map(|g| g.address).or(found.address);
                    match address {
                        Some(address) => address,
                        None if found.weak => 0,
                        // Thread-local data.
                        None if object.glance => continue,
                        None => {
                            let symbol = object.symbol(index)?.name;
                            if seen.insert((o, symbol)) {
                                let place = format!("{} at {name}+{offset:#x}", object.name);
                                missing.push((symbol.escape_debug().to_string(), place));
                            }
                            continue;
                        }
                    }
                };
                all.push(PendingReloc {
                    object: o as u32,
                    section: section as u32,
                    symbol,
                    r_type: rela.r_type(LE, false).0,
                    place: base.wrapping_add(offset),
                    // What is laid out is smaller.
                    room: room.min(u32::MAX.into()) as u32,
                    // Addresses are modulo 2^64; whether the result fits is for the field to say.
                    value: address.wrapping_add_signed(rela.r_addend(LE)),
                    addend: rela.r_addend(LE),
                });
            }
        }
    }
    if missing.is_empty() {
        return Ok(all);
    }
    Err(Error::Undefined { symbols: missing })
}
