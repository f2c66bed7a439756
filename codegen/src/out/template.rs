//! Templates: the bytes of a trampoline that records, or of a sled, and the fields that a program fills in to make one for each
//! function at run time. They are those that the trampoline's relocations have, and those with the function's number.

use crate::ask::spec::Spec;
use crate::out::assembly::{Assembly, NumberField};
use crate::profile::target::Target;
use crate::words::error::{Error, Result};
use crate::words::reloc::{Reloc, RelocTarget};

/// What a field depends on: S in the psABI's formulas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filled {
    /// The number of the function, shifted left by 8 bits.
    Id,
    /// The address of the function.
    Function,
    /// The address of the variable that has the time.
    Clock,
    /// The address of the routine that makes room.
    Refill,
    /// The address of the C function that a sled calls.
    Callee,
    /// The offset of the thread's words from the thread pointer.
    Tls,
}

impl Filled {
    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Filled::Id => "id",
            Filled::Function => "function",
            Filled::Clock => "clock",
            Filled::Refill => "refill",
            Filled::Callee => "callee",
            Filled::Tls => "tls",
        }
    }
}

/// A field to be filled in, as a relocation has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FixUp {
    /// Offset of the field.
    pub at: u32,
    /// ELF relocation type.
    pub r_type: u32,
    /// S.
    pub of: Filled,
    /// Offset of P. For the low part of a distance, that is where its high part is.
    pub place: u32,
    /// A.
    pub addend: i64,
}

/// A trampoline as a template.
#[derive(Debug)]
pub struct Template<'a> {
    /// The trampoline's symbol.
    pub name: &'a str,
    /// The bytes. Relocated fields are as in an object, and numbers those of the trampoline itself.
    pub bytes: &'a [u8],
    /// Offset of its first instruction.
    pub entry: u32,
    /// What is to be filled in, lowest offset first.
    pub fix_ups: Vec<FixUp>,
}

impl<'a> Template<'a> {
    /// The one trampoline of this assembly.
    ///
    /// # Errors
    /// It is neither one that records nor a sled, or not the only one, or needs more than a function, a number, a clock and a routine.
    pub fn of(assembly: &'a Assembly, specs: &[Spec<'a>], target: &Target) -> Result<Template<'a>> {
        const VALID: &str = "one of `gen record` or `gen sled`";
        let refused = |what: &str, valid: &str| Error::new(format!("--emit template: {what}; valid: {valid}"));
        let [spec] = specs else {
            return Err(refused(&format!("{} trampolines", specs.len()), VALID));
        };
        if spec.kind.recorder().is_none() && !spec.kind.is_sled() {
            return Err(refused(&format!("{} neither records nor is a sled", spec.name), VALID));
        }
        if spec.kind.recorder().is_some_and(|recorder| recorder.unwind) {
            return Err(refused(
                "unwinders find the landing pad of --unwind by a table, and a copy has none",
                "without --unwind, or --emit obj",
            ));
        }
        let defined = assembly.globals.iter().find(|s| s.function && assembly.name(s) == spec.name);
        let found = defined.and_then(|s| {
            let entry = s.offset?;
            Some((entry, assembly.text().get(..(entry + s.size) as usize)?))
        });
        let (entry, bytes) =
            found.ok_or_else(|| refused(&format!("no trampoline {}", spec.name), "the assembly of these specs"))?;
        let number =
            |n: &NumberField| FixUp { at: n.at, r_type: n.r_type, of: Filled::Id, place: n.at, addend: n.low.into() };
        let mut fix_ups: Vec<FixUp> = assembly.numbers.iter().map(number).collect();
        for reloc in assembly.relocs.iter() {
            fix_ups.extend(fix_up(*reloc, assembly, spec, target)?);
        }
        fix_ups.sort_by_key(|f| f.at);
        Ok(Template { name: spec.name, bytes, entry, fix_ups })
    }
}

/// What has to be done about a relocation. Distances to labels of the trampoline are in its bytes already.
fn fix_up(reloc: Reloc, assembly: &Assembly, spec: &Spec, target: &Target) -> Result<Option<FixUp>> {
    let (of, place) = match reloc.to {
        RelocTarget::Global(_) => (reloc, reloc.at),
        RelocTarget::Local(n) if target.facts.low_parts.contains(&reloc.r_type) => {
            let label = assembly.locals.get(n as usize).and_then(|label| label.offset);
            let at = label.ok_or(Error::Unpaired { high: reloc.at.into() })?;
            let high = assembly.relocs.iter().copied().find(|r| r.at == at && matches!(r.to, RelocTarget::Global(_)));
            (high.ok_or(Error::Unpaired { high: at.into() })?, at)
        }
        _ => return Ok(None),
    };
    let RelocTarget::Global(symbol) = of.to else { return Ok(None) };
    let name = assembly.globals.get(symbol as usize).map_or("", |s| assembly.name(s));
    let filled = if name == spec.body.function {
        Filled::Function
    } else if spec.kind.recorder().is_some_and(|recorder| recorder.tls) && name == spec.tls {
        Filled::Tls
    } else if Some(name) == target.convention.clock {
        Filled::Clock
    } else if spec.kind.recorder().is_some_and(|recorder| recorder.refill) && name == spec.callee {
        Filled::Refill
    } else if spec.kind.is_sled() && name == spec.callee {
        Filled::Callee
    } else {
        return Err(Error::new(format!(
            "--emit template: {} refers to {name}; valid: options with which it refers to its function, the clock and the routine alone",
            spec.name
        )));
    };
    Ok(Some(FixUp { at: reloc.at, r_type: reloc.r_type, of: filled, place, addend: of.addend }))
}
