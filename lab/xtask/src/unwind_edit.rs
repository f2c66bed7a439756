// SPDX-License-Identifier: MIT OR Apache-2.0
//! The unwind entry of a function in an object, read and changed byte by byte (LSB, `.eh_frame`; DWARF 5, 6.4.2).

use std::ops::Range;

use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget};

/// Bytes of an entry before its augmentation: length, distance to its CIE, beginning and length of the code.
const HEAD: usize = 16;
const DEF_CFA: u8 = 0x0c;
const DEF_CFA_OFFSET: u8 = 0x0e;
/// The largest number that has one byte.
const SMALL: u8 = 0x7f;

/// The largest CFA that the entry states behind SP, in bytes.
pub fn depth(object: &[u8], symbol: &str) -> Option<u64> {
    let offsets = offsets(object, &entry(object, symbol)?);
    offsets.into_iter().map(|at| u64::from(object[at])).max()
}

/// The object with 8 bytes more in the first row that moves CFA.
pub fn other_rows(object: &[u8], symbol: &str) -> Option<Vec<u8>> {
    let at = *offsets(object, &entry(object, symbol)?).first()?;
    let mut changed = object.to_vec();
    changed[at] += 8;
    Some(changed).filter(|changed| changed[at] <= SMALL)
}

/// Where the instructions of the function's entry are in the file.
fn entry(object: &[u8], symbol: &str) -> Option<Range<usize>> {
    let file = object::File::parse(object).ok()?;
    let function = file.symbols().find(|s| s.name() == Ok(symbol) && s.section_index().is_some())?;
    let frames = file.section_by_name(".eh_frame")?;
    let (base, size) = frames.file_range()?;
    let (base, end) = (usize::try_from(base).ok()?, usize::try_from(base + size).ok()?);
    let heads = heads(object, base..end);
    let is_of_function = |at: usize, to: &object::Relocation| {
        let RelocationTarget::Symbol(index) = to.target() else { return false };
        let Ok(named) = file.symbol_by_index(index) else { return false };
        let address = named.address().wrapping_add_signed(to.addend());
        let is_it = named.section_index() == function.section_index() && address == function.address();
        is_it && heads.contains(&(base + at).saturating_sub(8))
    };
    let begins = frames.relocations().find(|(at, to)| usize::try_from(*at).is_ok_and(|at| is_of_function(at, to)));
    let head = base + usize::try_from(begins?.0).ok()? - 8;
    let length = word(object, head)? as usize;
    let augmentation = usize::from(*object.get(head + HEAD)?);
    Some(head + HEAD + 1 + augmentation..head + 4 + length).filter(|entry| entry.end <= object.len())
}

fn word(object: &[u8], at: usize) -> Option<u32> {
    object.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

/// Where the table's entries of functions begin in the file.
fn heads(object: &[u8], table: Range<usize>) -> Vec<usize> {
    let (mut found, mut at) = (Vec::new(), table.start);
    while let (Some(length), Some(cie)) = (word(object, at).filter(|n| *n != 0), word(object, at + 4)) {
        if cie != 0 {
            found.push(at);
        }
        at += 4 + length as usize;
        if at >= table.end {
            break;
        }
    }
    found
}

/// Where the entry has offsets of CFA, if each has one byte.
fn offsets(object: &[u8], entry: &Range<usize>) -> Vec<usize> {
    let (mut found, mut at) = (Vec::new(), entry.start);
    while at < entry.end {
        let operands = match object[at] {
            0x00 | 0x0a | 0x0b | 0x2d | 0x40..=0x7f | 0xc0..=0xff => 0,
            0x02 | 0x06..=0x08 | 0x0d | 0x80..=0xbf => 1,
            0x03 | 0x05 | 0x09 | 0x11 => 2,
            0x04 => 4,
            DEF_CFA => {
                found.push(at + 2);
                2
            }
            DEF_CFA_OFFSET => {
                found.push(at + 1);
                1
            }
            _ => break,
        };
        at += 1 + operands;
    }
    // Of a larger one, the first byte would not tell.
    if found.iter().any(|at| *at >= entry.end || object[*at] > SMALL) { Vec::new() } else { found }
}
