//! Templates: the bytes of a trampoline that records, or of a sled, and the fields that a program fills in to make one for each
//! function at run time. They are those that the trampoline's relocations have, and those with the function's number. Beside it
//! stands its unwind entry, with fields of the same sort.

use crate::arch::facts::Facts;
use crate::ask::spec::Spec;
use crate::out::assembly::{Assembly, NumberField};
use crate::profile::lsda::RESUME;
use crate::profile::target::Target;
use crate::words::error::{Error, Result};
use crate::words::reloc::{Reloc, RelocTarget};

/// The value on which a field depends: S in the psABI's formulas.
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
    /// The address of the copy.
    Copy,
    /// The address of the function that unwinders ask about a frame with a landing pad.
    Personality,
    /// The address of the function that a landing pad ends with.
    Resume,
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
            Filled::Copy => "copy",
            Filled::Personality => "personality",
            Filled::Resume => "resume",
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

/// Bytes with fields to be filled in.
#[derive(Default, Debug)]
pub struct Piece {
    /// The bytes. Relocated fields are as in an object.
    pub bytes: Vec<u8>,
    /// The fields to fill in, lowest offset first.
    pub fix_ups: Vec<FixUp>,
}

/// A trampoline as a template.
#[derive(Debug)]
pub struct Template<'a> {
    /// The trampoline's symbol.
    pub name: &'a str,
    /// The code, in which numbers are those of the trampoline itself; with a landing pad, what unwinders read of it comes behind.
    pub code: Piece,
    /// Offset of its first instruction.
    pub entry: u32,
    /// The unwind entry of a copy: a CIE and an FDE, as they stand in `.eh_frame`. Empty where objects have none.
    pub unwind: Piece,
}

/// Where in a copy lies what unwinders read of a landing pad.
#[derive(Clone, Copy)]
struct Exceptions {
    /// The pointer to the function that they ask.
    personality: u32,
    /// The table of call sites.
    table: u32,
}

impl<'a> Template<'a> {
    /// The one trampoline of this assembly.
    ///
    /// # Errors
    /// The trampoline is neither a recorder nor a sled, or not the only one, or refers to more than [`Filled`] has.
    pub fn of(assembly: &'a Assembly, specs: &[Spec<'a>], target: &Target) -> Result<Template<'a>> {
        const VALID: &str = "one of `gen record` or `gen sled`";
        let refused = |what: &str, valid: &str| Error::new(format!("--emit template: {what}; valid: {valid}"));
        let [spec] = specs else {
            return Err(refused(&format!("{} trampolines", specs.len()), VALID));
        };
        if spec.kind.recorder().is_none() && !spec.kind.is_in_the_middle() {
            return Err(refused(&format!("{} neither records nor is a sled", spec.name), VALID));
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
        let mut code = Piece { bytes: bytes.to_vec(), fix_ups };
        let exceptions = assembly.personality.map(|_| code.add_exceptions(assembly, target.facts)).transpose()?;
        code.fix_ups.sort_by_key(|f| f.at);
        let unwind = unwind(assembly, exceptions, target.facts)?;
        Ok(Template { name: spec.name, code, entry, unwind })
    }
}

impl Piece {
    /// Append the pointer to the function that unwinders ask, and the table of call sites.
    fn add_exceptions(&mut self, assembly: &Assembly, facts: &Facts) -> Result<Exceptions> {
        const POINTER: usize = 8;
        self.bytes.resize(self.bytes.len().next_multiple_of(POINTER), 0);
        let personality = self.bytes.len() as u32;
        let r_type = facts.dynamic[0];
        self.fix_ups.push(FixUp { at: personality, r_type, of: Filled::Personality, place: personality, addend: 0 });
        self.bytes.extend([0; POINTER]);
        let mut table = assembly.tables.bytes.clone();
        for reloc in &assembly.tables.relocs {
            let Some(known) = place(reloc.to, assembly, None) else {
                return Err(Error::Unpaired { high: reloc.at.into() });
            };
            count(reloc, known, &mut table, facts);
        }
        let exceptions = Exceptions { personality, table: self.bytes.len() as u32 };
        self.bytes.extend(table);
        Ok(exceptions)
    }
}

/// The unwind entry. Distances within the code are known: a copy is of one piece.
fn unwind(assembly: &Assembly, exceptions: Option<Exceptions>, facts: &Facts) -> Result<Piece> {
    let mut entry = Piece { bytes: assembly.eh_frame.bytes.clone(), fix_ups: Vec::new() };
    for reloc in &assembly.eh_frame.relocs {
        let Some(known) = place(reloc.to, assembly, exceptions) else {
            return Err(Error::Unpaired { high: reloc.at.into() });
        };
        if !count(reloc, known, &mut entry.bytes, facts) {
            let (at, addend) = (reloc.at, i64::from(known) + reloc.addend);
            entry.fix_ups.push(FixUp { at, r_type: reloc.r_type, of: Filled::Copy, place: at, addend });
        }
    }
    entry.fix_ups.sort_by_key(|f| f.at);
    Ok(entry)
}

/// The offset in a copy of the target of its unwind entry's relocation.
fn place(to: RelocTarget, assembly: &Assembly, exceptions: Option<Exceptions>) -> Option<u32> {
    match to {
        RelocTarget::Text => Some(0),
        RelocTarget::Local(n) => assembly.locals.get(n as usize)?.offset,
        RelocTarget::Unwind(n) => assembly.eh_frame.labels.get(n as usize).copied(),
        RelocTarget::Personality => exceptions.map(|e| e.personality),
        RelocTarget::Table(_) | RelocTarget::Tables => exceptions.map(|e| e.table),
        RelocTarget::Global(_) => None,
    }
}

/// Put a part of a distance into its field, if the relocation is one. Where an advance is stored, the distance stands there already.
fn count(reloc: &Reloc, known: u32, bytes: &mut [u8], facts: &Facts) -> bool {
    let Some(lengths) = facts.lengths else { return false };
    let (add, subtract) = lengths.range;
    let part = known.wrapping_add(reloc.addend as u32);
    let part = match reloc.r_type {
        r_type if r_type == add => part,
        r_type if r_type == subtract => part.wrapping_neg(),
        r_type => return lengths.advance.iter().any(|(set, sub)| [*set, *sub].contains(&r_type)),
    };
    let field = bytes.get_mut(reloc.at as usize..).and_then(|rest| rest.first_chunk_mut());
    field.into_iter().for_each(|field| *field = u32::from_le_bytes(*field).wrapping_add(part).to_le_bytes());
    true
}

/// The field for a relocation, if one is needed. Distances to labels of the trampoline are already in the bytes.
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
    } else if name == RESUME && assembly.personality.is_some() {
        Filled::Resume
    } else if spec.kind.is_in_the_middle() && name == spec.callee {
        Filled::Callee
    } else {
        return Err(Error::new(format!(
            "--emit template: {} refers to {name}; valid: options with which it refers to its function, the clock and the routine alone",
            spec.name
        )));
    };
    Ok(Some(FixUp { at: reloc.at, r_type: reloc.r_type, of: filled, place, addend: of.addend }))
}
