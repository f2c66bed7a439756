//! The global offset table: a word with the address of each symbol that code reaches through one.

use codegen::arch::patch::Patch;
use codegen::words::error::{Error, Result};
use object::read::elf::SectionHeader as _;
use rustc_hash::FxHashMap;

use super::objects::Object;
use crate::elf::{LE, damaged};
use crate::image::{Access, Image, PAGE, Section, Segment};

/// The table's section.
const GOT: &str = ".got";
/// Bytes of a word.
const WORD: u64 = 8;

/// The table while relocations are applied: its words are given out in their order.
#[derive(Default)]
pub(super) struct Got {
    next: u64,
    words: FxHashMap<u64, u64>,
}

impl Got {
    /// The address of the word that holds this one.
    ///
    /// # Errors
    /// None, as the table has room for each relocation that asks for a word.
    pub(super) fn word(&mut self, image: &mut Image, address: u64) -> Result<u64> {
        if let Some(known) = self.words.get(&address) {
            return Ok(*known);
        }
        let at = self.next;
        let field = image.bytes_mut(at, WORD as usize);
        field.ok_or_else(|| Error::new("the table of addresses is full"))?.copy_from_slice(&address.to_le_bytes());
        self.next += WORD;
        self.words.insert(address, at);
        Ok(at)
    }
}

/// Make room for a word for each relocation that goes through the table, behind all other sections.
pub(super) fn add_got(
    backend: &dyn Patch,
    objects: &[Object],
    (segments, sections): (&mut Vec<Segment>, &mut Vec<Section>),
) -> Result<Got> {
    let mut count = 0;
    for object in objects {
        for section in object.sections.iter() {
            let relocations = section.rela(LE, object.bytes).map_err(damaged(object.name))?;
            let through = |r_type: u32| backend.through_got(r_type).is_some();
            let all = relocations.map_or(&[][..], |(all, _)| all);
            count += all.iter().filter(|rela| through(rela.r_type(LE, false).0)).count() as u64;
        }
    }
    if count == 0 {
        return Ok(Got::default());
    }
    let end = segments.iter().map(|s| s.address + s.mem_size).max().unwrap_or(PAGE);
    let size = count * WORD;
    let start = end.checked_next_multiple_of(PAGE).filter(|start| start.checked_add(size).is_some());
    let start = start.ok_or_else(|| Error::new(format!("no room above {end:#x} for the table of addresses")))?;
    let (access, name) = (Access::Write, GOT.to_owned());
    segments.push(Segment { address: start, bytes: vec![0; size as usize], mem_size: size, access });
    sections.push(Section { name, address: start, size, align: WORD, access, zeroed: false });
    Ok(Got { next: start, words: FxHashMap::default() })
}
