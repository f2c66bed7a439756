//! Source lines of instructions, where objects have line tables.

use std::collections::HashMap;
use std::path::PathBuf;

use gimli::{Dwarf, DwarfSections, EndianSlice, LineProgramHeader, LittleEndian, Relocate, RelocateReader, Unit};
use object::read::elf::{ElfFile64, ElfSection64};
use object::{
    Object as _, ObjectKind, ObjectSection as _, ObjectSymbol as _, RelocationKind, RelocationTarget, SectionKind,
};
use schemars::JsonSchema;
use serde::Serialize;
use tool::printed::printable;

type Reader<'a> = RelocateReader<EndianSlice<'a, LittleEndian>, &'a Moves>;

/// A line of a source file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Line {
    /// The file, from the compiler's directory.
    pub file: PathBuf,
    /// From 1.
    pub number: u64,
}

impl Line {
    /// For people.
    pub fn shown(&self) -> String {
        format!("{}:{}", printable(&self.file.to_string_lossy()), self.number)
    }
}

/// The values of a section's relocations, by offset.
#[derive(Default, Debug)]
struct Moves(HashMap<usize, u64>);

impl Relocate for &Moves {
    fn relocate_address(&self, offset: usize, value: u64) -> gimli::Result<u64> {
        Ok(self.0.get(&offset).copied().unwrap_or(value))
    }

    fn relocate_offset(&self, offset: usize, value: usize) -> gimli::Result<usize> {
        Ok(self.0.get(&offset).map_or(value, |value| *value as usize))
    }
}

/// Which source line an instruction is of: `offset` bytes into a function of an object. `None` if the object does not tell. The line
/// tables of riscv64 tell nothing: they are complete once a linker has moved the code.
pub fn line_of(bytes: &[u8], function: &str, offset: u64) -> Option<Line> {
    let file: ElfFile64<object::LittleEndian> = ElfFile64::parse(bytes).ok()?;
    let symbol = file.symbols().find(|symbol| symbol.is_definition() && symbol.name() == Ok(function))?;
    let relocatable = file.kind() == ObjectKind::Relocatable;
    let section = if relocatable { symbol.section_index()?.0 } else { 0 };
    let wanted = address(section, symbol.address().checked_add(offset)?);
    let loaded = DwarfSections::load(|id| {
        let Some(section) = file.section_by_name(id.name()) else { return Ok(<(&[u8], Moves)>::default()) };
        section.data().ok().zip(moves(&file, &section)).ok_or(())
    });
    let loaded = loaded.ok()?;
    let dwarf = loaded.borrow(|(data, moves)| RelocateReader::new(EndianSlice::new(data, LittleEndian), moves));
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        let found = dwarf.unit(header).ok().and_then(|unit| in_unit(&dwarf, &unit, wanted));
        if found.is_some() {
            return found;
        }
    }
    None
}

/// An address in a section, as the sections of an object have none yet.
fn address(section: usize, offset: u64) -> u64 {
    (section as u64) << 40 | offset
}

/// The relocations of a section of debug information; `None` if some are of another kind than a symbol's address.
fn moves<'a>(
    file: &ElfFile64<'a, object::LittleEndian>,
    section: &ElfSection64<'a, '_, object::LittleEndian>,
) -> Option<Moves> {
    let mut moves = Moves::default();
    for (offset, relocation) in section.relocations() {
        let RelocationTarget::Symbol(index) = relocation.target() else { return None };
        let symbol = file.symbol_by_index(index).ok().filter(|_| relocation.kind() == RelocationKind::Absolute)?;
        // Code is told apart by its section; an offset into other debug information is an offset.
        let code = symbol
            .section_index()
            .filter(|index| file.section_by_index(*index).is_ok_and(|section| section.kind() == SectionKind::Text));
        let value = symbol.address().wrapping_add_signed(relocation.addend());
        moves.0.insert(usize::try_from(offset).ok()?, address(code.map_or(0, |index| index.0), value));
    }
    Some(moves)
}

/// The line of an address, if the unit has it.
fn in_unit(dwarf: &Dwarf<Reader>, unit: &Unit<Reader>, wanted: u64) -> Option<Line> {
    let program = unit.line_program.clone()?;
    let (mut rows, mut before) = (program.rows(), None);
    while let Ok(Some((header, row))) = rows.next_row() {
        let row = *row;
        if let Some((from, file, number)) = before
            && (from..row.address()).contains(&wanted)
        {
            return Some(Line { file: path(dwarf, unit, header, file)?, number });
        }
        let begins = (!row.end_sequence()).then_some(row.address());
        before = begins.and_then(|from| Some((from, row.file_index(), row.line()?.get())));
    }
    None
}

/// The path of a file in a line table.
fn path(dwarf: &Dwarf<Reader>, unit: &Unit<Reader>, header: &LineProgramHeader<Reader>, file: u64) -> Option<PathBuf> {
    let text = |reader: Reader| Some(PathBuf::from(std::str::from_utf8(reader.inner().slice()).ok()?));
    let file = header.file(file)?;
    let mut path = unit.comp_dir.clone().and_then(text).unwrap_or_default();
    if let Some(folder) = file.directory(header).and_then(|folder| dwarf.attr_string(unit, folder).ok()) {
        path.push(text(folder)?);
    }
    path.push(text(dwarf.attr_string(unit, file.path_name()).ok()?)?);
    Some(path)
}
