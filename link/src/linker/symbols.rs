//! Who defines which name.

use std::collections::hash_map::Entry;

use codegen::error::{Error, Result};
use object::elf;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::objects::{Definition, Object};
use crate::image::{Access, PAGE, Section, Segment, Symbol, SymbolKind};

/// The section of the functions that stand in for undefined symbols.
pub const STUBS: &str = ".stubs";

/// Who defines a name that other files see.
pub(super) struct Global {
    pub(super) object: usize,
    pub(super) address: u64,
    pub(super) weak: bool,
}

/// The symbols of the image, local ones first, and the global ones by name. `mark` is the psABI's mark of code.
pub(super) fn define<'a>(
    objects: &[Object<'a>],
    first: usize,
    mark: &str,
) -> Result<(Vec<Symbol>, FxHashMap<&'a str, Global>)> {
    let most = objects.iter().map(|o| o.symbols.len()).sum();
    let mut all = Vec::with_capacity(most);
    let mut globals: FxHashMap<&str, Global> = FxHashMap::with_capacity_and_hasher(most, FxBuildHasher);
    let mut twice = false;
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
                match globals.entry(name) {
                    Entry::Vacant(free) => {
                        free.insert(new);
                    }
                    Entry::Occupied(mut known) => {
                        twice = true;
                        let old = known.get();
                        let earlier = old.object < first && object >= first;
                        if !earlier && !old.weak && !weak {
                            let other = objects.get(old.object).map_or("?", |o| o.name);
                            return Err(Error::Duplicate {
                                symbol: name.escape_debug().to_string(),
                                places: format!(
                                    "in {other} and in {}; keep one, or make one weak or static",
                                    file.name
                                ),
                            });
                        }
                        if !earlier && old.weak && !weak {
                            known.insert(new);
                        }
                    }
                }
            }
            all.push((object, address, symbol));
        }
    }
    // The assembler's own labels name nothing for a reader. A weak definition that lost is not there.
    all.retain(|(object, _, s)| match s.local {
        false => !twice || globals.get(s.name).is_some_and(|global| global.object == *object),
        true => !s.name.is_empty() && !s.name.starts_with(".L"),
    });
    let ordered = [true, false].into_iter().flat_map(|local| all.iter().filter(move |(_, _, s)| s.local == local));
    let symbols = ordered.map(|&(object, address, ref s)| Symbol {
        // The mark of code may name an instruction set, and objdump would keep to it in the objects after this one.
        name: match s.local && !mark.is_empty() && s.name.starts_with(mark) {
            true => mark.to_owned(),
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
pub(super) fn undefined<'a>(objects: &[Object<'a>], globals: &FxHashMap<&str, Global>) -> Result<Vec<&'a str>> {
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
    Ok(missing)
}

/// Define `missing` in a section of its own, behind all others.
pub(super) fn add_stubs<'a>(
    stub: &[u8],
    missing: &[&'a str],
    (segments, sections, symbols): (&mut Vec<Segment>, &mut Vec<Section>, &mut Vec<Symbol>),
    globals: &mut FxHashMap<&'a str, Global>,
) -> Result<()> {
    /// Room for a stub, or for data where the name turns out to be of a variable.
    const ROOM: usize = 64;
    if missing.is_empty() {
        return Ok(());
    }
    let end = segments.iter().map(|s| s.address + s.mem_size).max().unwrap_or(PAGE);
    let size = (missing.len() * ROOM + ROOM) as u64;
    let start = end.checked_next_multiple_of(PAGE).filter(|start| start.checked_add(size).is_some());
    let start = start.ok_or_else(|| {
        Error::new(format!("no room above {end:#x} for {} undefined symbols; link at a lower address", missing.len()))
    })?;
    // None is where a page begins: half of its address would be all of it.
    let mut bytes = vec![0; ROOM];
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stubs_need_room_above() {
        let at_end = |address| Segment { address, bytes: Vec::new(), mem_size: PAGE - 1, access: Access::Write };
        for (address, fits) in [(0_u64.wrapping_sub(2 * PAGE), true), (0_u64.wrapping_sub(PAGE), false)] {
            let (mut segments, mut sections, mut symbols) = (vec![at_end(address)], Vec::new(), Vec::new());
            let added = add_stubs(b"", &["f"], (&mut segments, &mut sections, &mut symbols), &mut FxHashMap::default());
            assert_eq!(added.is_ok(), fits, "{address:#x}: {added:?}");
            assert_eq!(symbols.len(), usize::from(fits));
        }
    }
}
