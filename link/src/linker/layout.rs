//! The layout of the image: an address for each section of the objects.

use codegen::words::error::{Error, Result};
use object::elf;
use object::read::SectionIndex;
use object::read::elf::SectionHeader as _;
use rustc_hash::FxHashMap;

use super::objects::Object;
use crate::elf::{LE, LIMIT, damaged, section_name};
use crate::image::{Access, PAGE, Section, Segment};
use crate::options::Options;

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
pub(super) fn lay_out(objects: &mut [Object], options: &Options) -> Result<(Vec<Segment>, Vec<Section>)> {
    let Options { base, skip, code_align, .. } = *options;
    if !base.is_multiple_of(PAGE) {
        return Err(Error::new(format!("base address {base:#x}; valid: a multiple of {PAGE:#x}")));
    }
    let mut outputs = collect(objects)?;
    outputs.sort_by_key(|o| (o.access, o.zeroed));

    // No more than the files have: all of it is theirs.
    let contents = |access| {
        outputs.iter().filter(|o| o.access == access && !o.zeroed).fold(0_u64, |all, o| all.saturating_add(o.size))
    };
    let room = [Access::Execute, Access::Read, Access::Write].map(contents);
    let (mut segments, mut sections): (Vec<Segment>, Vec<Section>) = Default::default();
    let mut end = base;
    for output in outputs {
        let open = segments.last().is_some_and(|s| s.access == output.access);
        if !open && output.size > 0 {
            end = end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
            let (first, address) = (segments.is_empty(), end);
            let bytes = Vec::with_capacity(room[output.access as usize].min(LIMIT) as usize);
            segments.push(Segment { address, bytes, mem_size: 0, access: output.access });
            if first {
                end = end.saturating_add(skip);
            }
        }
        let most = code_align.filter(|_| output.access == Access::Execute).unwrap_or(u64::MAX);
        end = end.checked_next_multiple_of(output.align.min(most)).unwrap_or(u64::MAX);
        let start = end;
        for (o, index) in output.parts {
            let Some(object) = objects.get_mut(o) else {
                continue;
            };
            let fail = damaged(object.name);
            let section = object.sections.section(SectionIndex(index)).map_err(&fail)?;
            let size = section.sh_size(LE);
            let at = end.checked_next_multiple_of(section.sh_addralign(LE).max(1).min(most));
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
    let mut known = FxHashMap::default();
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
            if flags.contains(elf::SHF_TLS) && object.glance {
                continue;
            }
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
