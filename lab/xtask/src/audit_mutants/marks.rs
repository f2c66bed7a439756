// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults of landing pads and of marks, in an archive: what C and assembly say of each other shows only there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget, SectionKind, elf};
use serde_json::Value;

use super::counts::Counts;
use crate::failure::Failure;
use crate::tools::{call, name, tramptool, write};

/// A pad does nothing any more.
const PAD: &str = "a landing pad whose address C takes is a NOP";
/// An object by hand has no mark any more.
const MARK: &str = "the marks of an object are gone";

/// Archives with fewer objects show no custom.
const SEVERAL: usize = 10;

/// A landing pad of an architecture, as many bytes that do nothing, and the property with its marks (GNU_PROPERTY_X86_FEATURE_1_AND,
/// GNU_PROPERTY_AARCH64_FEATURE_1_AND).
fn pads(arch: &str) -> Option<([u8; 4], [u8; 4], u32)> {
    match arch {
        "amd64" => Some(([0xf3, 0x0f, 0x1e, 0xfa], [0x0f, 0x1f, 0x40, 0x00], 0xc000_0002)),
        // `bti c`.
        "arm64" => Some(([0x5f, 0x24, 0x03, 0xd5], [0x1f, 0x20, 0x03, 0xd5], 0xc000_0000)),
        _ => None,
    }
}

/// Let a property have no bits: four bytes behind its type and size. Has the object one?
fn without_marks(object: &mut [u8], note: Option<(u64, u64)>, property: u32) -> bool {
    let range = note.map_or(0..0, |(at, size)| at as usize..(at + size) as usize);
    let Some(note) = object.get_mut(range) else { return false };
    let head = [property.to_le_bytes(), 4_u32.to_le_bytes()].concat();
    let found = note.windows(head.len()).position(|bytes| bytes == head);
    let bits = found.and_then(|at| note.get_mut(at + head.len()..at + head.len() + 4));
    let has = bits.as_deref().is_some_and(|bits| bits.iter().any(|byte| *byte != 0));
    bits.into_iter().for_each(|bits| bits.fill(0));
    has
}

/// Put such faults into objects of an archive, whose objects lie unpacked beside it.
///
/// # Errors
/// The tool or a program cannot be run.
pub(super) fn put(
    arch: &str,
    package: &str,
    (archive, members): (&Path, &[PathBuf]),
    counts: &mut Counts,
) -> Result<(), Failure> {
    let Some((pad, nop, property)) = pads(arch) else { return Ok(()) };
    if members.len() < SEVERAL {
        return Ok(());
    }
    let Some(report) = audited(archive, &[])? else { return Ok(()) };
    let known = kinds(&report);
    let mut by_hand = BTreeSet::new();
    for unit in report["units"].as_array().into_iter().flatten() {
        let functions = unit["functions"].as_array().into_iter().flatten();
        by_hand.extend(functions.filter_map(|function| function["member"].as_str()).map(str::to_owned));
    }
    let taken = taken(members);
    let room = |counts: &Counts, fault: &str| !counts.is_full((fault, arch), package);
    for member in members {
        let object = fs::read(member).map_err(|e| Failure::at(member, e, "see that it is there"))?;
        let Ok(file) = object::File::parse(&*object) else { continue };
        let Some(note) = file.section_by_name(".note.gnu.property") else { continue };
        if room(counts, MARK) && by_hand.contains(name(member)) && !known.iter().any(|f| is_of(f, member)) {
            let mut changed = object.clone();
            if without_marks(&mut changed, note.file_range(), property) {
                let found = with(archive, member, &changed, &object, &[])?;
                let claimed: Vec<String> = found.difference(&known).cloned().collect();
                let is_named = claimed.iter().any(|f| f.ends_with(".note.gnu.property") && is_of(f, member));
                let place = format!("{} {}", name(archive), name(member));
                counts.add((MARK, arch), package, &place, &claimed, is_named);
            }
        }
        for symbol in file.symbols().filter(|symbol| symbol.is_global() && symbol.is_definition()) {
            let (Ok(function), Some(section)) = (symbol.name(), symbol.section_index()) else { continue };
            let Ok(section) = file.section_by_index(section) else { continue };
            let begin = section.file_range().map_or(0, |(at, _)| (at + symbol.address() - section.address()) as usize);
            let has_pad = section.kind() == SectionKind::Text && object.get(begin..begin + 4) == Some(&pad);
            if !room(counts, PAD) || !has_pad || !taken.contains(function) || symbol.size() == 0 {
                continue;
            }
            let mut changed = object.clone();
            changed[begin..begin + 4].copy_from_slice(&nop);
            let found = with(archive, member, &changed, &object, &["--all", "--function", function])?;
            let claimed: Vec<String> =
                found.into_iter().filter(|f| f.split(' ').any(|word| word == function)).collect();
            let is_named = claimed.iter().any(|f| f.ends_with(&format!("the landing pad of {function}")));
            let place = format!("{} {} {function}", name(archive), name(member));
            counts.add((PAD, arch), package, &place, &claimed, is_named);
        }
    }
    Ok(())
}

/// Is a finding about this object of an archive?
fn is_of(finding: &str, member: &Path) -> bool {
    finding.contains(&format!(":{} ", name(member)))
}

/// The functions of which a table in some object has the address.
fn taken(members: &[PathBuf]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for bytes in members.iter().filter_map(|member| fs::read(member).ok()) {
        let Ok(file) = object::File::parse(&*bytes) else { continue };
        for section in file.sections().filter(|section| section.kind() != SectionKind::Text) {
            for (_, relocation) in section.relocations() {
                let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
                let is_address = [elf::R_X86_64_64, elf::R_AARCH64_ABS64].contains(&r_type);
                let RelocationTarget::Symbol(symbol) = relocation.target() else { continue };
                let symbol = file.symbol_by_index(symbol).ok().filter(|s| is_address && s.is_undefined());
                all.extend(symbol.and_then(|symbol| Some(symbol.name().ok()?.to_owned())));
            }
        }
    }
    all
}

/// What is found in the archive with an object changed, which is put back.
fn with(
    archive: &Path,
    member: &Path,
    changed: &[u8],
    object: &[u8],
    more: &[&str],
) -> Result<BTreeSet<String>, Failure> {
    let replace = |bytes: &[u8]| {
        write(member, bytes)?;
        call(Command::new("ar").arg("r").arg(archive).arg(member))
    };
    replace(changed)?;
    let report = audited(archive, more)?;
    replace(object)?;
    Ok(report.map(|report| kinds(&report)).unwrap_or_default())
}

/// The names of findings.
fn kinds(report: &Value) -> BTreeSet<String> {
    let findings = report["findings"].as_array().into_iter().flatten();
    findings.filter_map(|finding| finding["finding"].as_str()).map(str::to_owned).collect()
}

/// The report on an archive; none where the tool refuses it.
fn audited(archive: &Path, more: &[&str]) -> Result<Option<Value>, Failure> {
    let said = tramptool().arg("audit").arg(archive).args(["--format", "json"]).args(more).output();
    let said = said.map_err(|e| Failure::at(archive, e, "build the tool"))?;
    Ok(serde_json::from_slice(&said.stdout).ok())
}
