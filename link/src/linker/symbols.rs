//! Global symbols, and the objects that define them.

use codegen::words::error::{Error, Result};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use object::elf;

use super::objects::{Definition, Object};
use crate::hash::hash;
use crate::image::{Access, PAGE, Section, Segment, Symbol, SymbolKind};

/// The section of the functions that stand in for undefined symbols.
pub const STUBS: &str = ".stubs";

/// The definition of a symbol that is visible to other files.
#[derive(Clone, Copy)]
pub(super) struct Global {
    pub(super) address: u64,
    pub(super) object: u32,
    pub(super) weak: bool,
}

/// The global definitions by name. The hash table has only numbers: there are many names, and a table of names would not stay
/// in a cache.
#[derive(Default)]
pub(super) struct Globals<'a> {
    all: Vec<(&'a str, Global)>,
    numbers: HashTable<u32>,
}

impl<'a> Globals<'a> {
    fn with_capacity(most: usize) -> Globals<'a> {
        Globals { all: Vec::with_capacity(most), numbers: HashTable::with_capacity(most) }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Global> {
        let number = self.numbers.find(hash(name), |&number| self.all[number as usize].0 == name)?;
        Some(&self.all[*number as usize].1)
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The definition of this name; `new` if there was none.
    fn entry(&mut self, name: &'a str, new: Global) -> (bool, &mut Global) {
        let Globals { all, numbers } = self;
        let hash_of = |number: &u32| hash(all[*number as usize].0);
        let entry = numbers.entry(hash(name), |number| all[*number as usize].0 == name, hash_of);
        let vacant = matches!(entry, Entry::Vacant(_));
        let number = *entry.or_insert(all.len() as u32).get();
        if vacant {
            all.push((name, new));
        }
        (vacant, &mut all[number as usize].1)
    }

    /// Define a name, and replace any other definition.
    pub(super) fn insert(&mut self, name: &'a str, new: Global) {
        *self.entry(name, new).1 = new;
    }
}

/// The symbols of the image, local ones first, and the global ones by name. `mark` is the psABI's mark of code.
pub(super) fn define<'a>(objects: &[Object<'a>], first: usize, mark: &str) -> Result<(Vec<Symbol>, Globals<'a>)> {
    let most = objects.iter().map(|o| o.symbols.len()).sum();
    let mut all = Vec::with_capacity(most);
    let mut globals = Globals::with_capacity(most);
    let mut twice = false;
    let of_objects =
        || objects.iter().enumerate().flat_map(|(o, file)| (1..file.symbols.len()).map(move |i| (o, file, i)));
    for of_local in [true, false] {
        for (object, file, index) in of_objects() {
            if file.is_local(index)? != of_local {
                continue;
            }
            let Definition { name, st_type, local, weak, hidden, address, size } = file.symbol(index)?;
            let Some(address) = address.filter(|_| !matches!(st_type, elf::STT_SECTION | elf::STT_FILE)) else {
                continue;
            };
            // Labels that the assembler made are of no use to readers.
            if local && (name.is_empty() || name.starts_with(".L")) {
                continue;
            }
            if !local {
                twice |= !define_one((objects, first), &mut globals, (object, name), (address, weak))?;
            }
            all.push(Symbol {
                // The mark of code may name an instruction set, and objdump would keep to it in the objects after this one.
                name: match local && !mark.is_empty() && name.starts_with(mark) {
                    true => mark.to_owned(),
                    false => name.to_owned(),
                },
                address,
                size,
                kind: SymbolKind::of(st_type),
                local,
                hidden,
                input: Some(object),
            });
        }
    }
    // A weak definition that lost is not in the image.
    let lost = |s: &Symbol| globals.get(&s.name).is_none_or(|global| Some(global.object as usize) != s.input);
    all.retain(|s| !twice || s.local || !lost(s));
    Ok((all, globals))
}

/// Define a name in this object; returns false if another object defines it too.
fn define_one<'a>(
    (objects, first): (&[Object<'a>], usize),
    globals: &mut Globals<'a>,
    (object, name): (usize, &'a str),
    (address, weak): (u64, bool),
) -> Result<bool> {
    let new = Global { object: object as u32, address, weak };
    let (only, known) = globals.entry(name, new);
    if only {
        return Ok(true);
    }
    let old = known.object as usize;
    let earlier = old < first && object >= first;
    if !earlier && !known.weak && !weak {
        let [ours, other] = [object, old].map(|o| objects.get(o).map_or("?", |o| o.name));
        return Err(Error::Duplicate {
            symbol: name.escape_debug().to_string(),
            places: format!("in {other} and in {ours}; keep one, or make one weak or static"),
        });
    }
    if !earlier && known.weak && !weak {
        *known = new;
    }
    Ok(false)
}

/// The names of global symbols that an object refers to and none defines.
pub(super) fn undefined<'a>(objects: &[Object<'a>], globals: &Globals) -> Result<Vec<&'a str>> {
    let mut missing = Vec::new();
    for object in objects {
        for index in 1..object.symbols.len() {
            let found = object.found(index)?;
            if found.local || found.weak || found.address.is_some() {
                continue;
            }
            let name = object.symbol(index)?.name;
            if !name.is_empty() && !globals.contains(name) {
                missing.push(name);
            }
        }
    }
    Ok(missing)
}

/// Define the symbols `missing` in a section of their own, behind all others.
pub(super) fn add_stubs<'a>(
    stub: &[u8],
    missing: &[&'a str],
    (segments, sections, symbols): (&mut Vec<Segment>, &mut Vec<Section>, &mut Vec<Symbol>),
    globals: &mut Globals<'a>,
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
        globals.insert(name, Global { object: u32::MAX, address, weak: false });
        let kind = SymbolKind::NoType;
        symbols.push(Symbol {
            name: name.to_owned(),
            address,
            size: ROOM as u64,
            kind,
            local: false,
            hidden: false,
            input: None,
        });
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
            let added = add_stubs(b"", &["f"], (&mut segments, &mut sections, &mut symbols), &mut Globals::default());
            assert_eq!(added.is_ok(), fits, "{address:#x}: {added:?}");
            assert_eq!(symbols.len(), usize::from(fits));
        }
    }
}
