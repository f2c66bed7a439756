//! Call frame information as a section.
//!
//! The tables are encoded as GNU as encodes the `.cfi_*` directives of the text, so that both ways to an object give
//! the same bytes. (gimli's writer pads entries differently and knows no RISC-V difference relocations; gimli reads
//! the result in the tests instead.)

use crate::effect::effects::CfiEntry;
use crate::effect::faults::Misstated;
use crate::out::cfi::{CfiOp, entry_ops};
use crate::profile::lsda::{PERSONALITY_ENCODING, TABLE_ENCODING};
use crate::profile::target::Target;
use crate::words::abi::Reg;
use crate::words::reloc::{Reloc, RelocTarget};

/// A CIE: its return address column, whether it is of signal frames, the rules that it begins with besides a C function's, its offset.
#[derive(Debug)]
struct CieEntry {
    column: u16,
    signal: bool,
    /// Unwinders ask a function about its frames.
    asks: bool,
    ops: Vec<CfiOp>,
    at: u32,
}

/// The table of call sites of a trampoline: its number, and where it begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub number: u32,
    pub start: u32,
}

/// The rules of a trampoline, encoded. Offsets count from where its code does.
#[derive(Default, Debug)]
pub(crate) struct Rules {
    bytes: Vec<u8>,
    /// The distances that are the linker's to know.
    distances: Vec<Distance>,
    last: u32,
    opaque: bool,
    /// In a mutant's table, the column of the return address and what is said in its place.
    renamed: Option<(u16, u16)>,
}

/// A distance between two places of the code, stored in a field of the rules.
#[derive(Clone, Copy, Debug)]
struct Distance {
    field: u32,
    /// Which of [`Lengths::advance`](crate::arch::facts::Lengths::advance).
    size: usize,
    from: u32,
    to: u32,
}

/// The entry of a trampoline.
pub(crate) struct Fde<'t> {
    /// The start of the described range in `.text`.
    pub start: u32,
    /// The end of the described range in `.text`.
    pub end: u32,
    /// The offset in `.text` from which the offsets of the rules count.
    pub base: u32,
    /// The rules at the start.
    pub entry: &'t CfiEntry,
    /// And from there on.
    pub rules: &'t Rules,
}

/// An `.eh_frame` section under construction.
#[derive(Default, Debug)]
pub struct EhFrame {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The relocations.
    pub relocs: Vec<Reloc>,
    /// Offsets in `.text` to which lengths refer. As GNU as does, each is a label of its own: GNU ld 2.40 adds the
    /// addend of a difference's second half where the psABI subtracts it, so both halves must have none.
    pub labels: Vec<u32>,
    cies: Vec<CieEntry>,
    /// The offset of the last entry in `bytes`.
    fde: usize,
}

const DW_CFA_ADVANCE_LOC: u8 = 0x40;
const DW_CFA_OFFSET: u8 = 0x80;
const DW_CFA_RESTORE: u8 = 0xc0;
const DW_CFA_ADVANCE_LOC1: u8 = 0x02;
const DW_CFA_ADVANCE_LOC2: u8 = 0x03;
const DW_CFA_OFFSET_EXTENDED: u8 = 0x05;
const DW_CFA_RESTORE_EXTENDED: u8 = 0x06;
const DW_CFA_UNDEFINED: u8 = 0x07;
const DW_CFA_SAME_VALUE: u8 = 0x08;
const DW_CFA_REGISTER: u8 = 0x09;
const DW_CFA_DEF_CFA: u8 = 0x0c;
const DW_CFA_DEF_CFA_REGISTER: u8 = 0x0d;
const DW_CFA_DEF_CFA_OFFSET: u8 = 0x0e;
/// Whether the return address is signed changes: of the one psABI that signs it.
const DW_CFA_NEGATE_RA_STATE: u8 = 0x2d;
const DW_CFA_VAL_EXPRESSION: u8 = 0x16;
/// The value of column 0 plus a number; those of the others follow.
const DW_OP_BREG0: u8 = 0x70;
/// DW_EH_PE_pcrel | DW_EH_PE_sdata4.
const POINTER_ENCODING: u8 = 0x1b;

/// Encodes rules, where each column may be known by another number.
struct Encoder<'b> {
    bytes: &'b mut Vec<u8>,
    renamed: Option<(u16, u16)>,
}

/// The rule of a column whose value is its register plus a number of -64 to 63; its column is one of the first 32 (DWARF 5, 2.5.1.2).
pub(crate) fn moved(column: u16, by: i32) -> impl Iterator<Item = u8> {
    debug_assert!(column < 32 && (-64..64).contains(&by), "{column} {by}");
    [DW_CFA_VAL_EXPRESSION, column as u8, 2, DW_OP_BREG0 + column as u8, by as u8 & 0x7f].into_iter()
}

/// The number by which a column is known.
fn named(column: u16, renamed: Option<(u16, u16)>) -> u16 {
    renamed.filter(|(own, _)| *own == column).map_or(column, |(_, other)| other)
}

impl Encoder<'_> {
    fn uleb(&mut self, mut value: u32) {
        loop {
            let more = value > 0x7f;
            self.bytes.push(value as u8 & 0x7f | (more as u8) << 7);
            value >>= 7;
            if !more {
                return;
            }
        }
    }

    fn encode(&mut self, op: CfiOp, target: &Target) {
        let abi = &target.facts.abi;
        let dwarf = |reg: Reg| u32::from(abi.regs.get(reg.0 as usize).map_or(0, |r| r.dwarf));
        match op {
            CfiOp::DefCfaOffset(offset) => {
                self.bytes.push(DW_CFA_DEF_CFA_OFFSET);
                self.uleb(offset as u32);
            }
            CfiOp::DefCfa(reg, offset) => {
                self.bytes.push(DW_CFA_DEF_CFA);
                self.uleb(dwarf(reg));
                self.uleb(offset as u32);
            }
            CfiOp::DefCfaRegister(reg) => {
                self.bytes.push(DW_CFA_DEF_CFA_REGISTER);
                self.uleb(dwarf(reg));
            }
            CfiOp::Offset(column, offset) => {
                let column = named(column, self.renamed);
                let factored = (offset / i32::from(target.facts.cie.data_align)) as u32;
                if column < 64 {
                    self.bytes.push(DW_CFA_OFFSET | column as u8);
                } else {
                    self.bytes.push(DW_CFA_OFFSET_EXTENDED);
                    self.uleb(u32::from(column));
                }
                self.uleb(factored);
            }
            CfiOp::Register(column, reg) => {
                self.bytes.push(DW_CFA_REGISTER);
                self.uleb(named(column, self.renamed).into());
                self.uleb(dwarf(reg));
            }
            CfiOp::Restore(column) => match named(column, self.renamed) {
                column @ ..64 => self.bytes.push(DW_CFA_RESTORE | column as u8),
                column => {
                    self.bytes.push(DW_CFA_RESTORE_EXTENDED);
                    self.uleb(column.into());
                }
            },
            CfiOp::Signed => self.bytes.push(DW_CFA_NEGATE_RA_STATE),
            CfiOp::Moved(column, by) => self.bytes.extend(moved(column, by)),
            CfiOp::SameValue(column) => {
                self.bytes.push(DW_CFA_SAME_VALUE);
                self.uleb(named(column, self.renamed).into());
            }
            CfiOp::Undefined(column) => {
                self.bytes.push(DW_CFA_UNDEFINED);
                self.uleb(named(column, self.renamed).into());
            }
        }
    }
}

impl Rules {
    /// Begin anew, at this offset.
    pub(crate) fn begin(&mut self, start: u32, entry: &CfiEntry, misstated: Option<Misstated>) {
        self.bytes.clear();
        self.distances.clear();
        self.last = start;
        self.opaque = false;
        self.renamed = match misstated {
            Some(Misstated::Column(other)) => Some((entry.column, other)),
            _ => None,
        };
    }

    /// From here on the distance to earlier addresses is the linker's to know.
    pub(crate) fn opaque(&mut self) {
        self.opaque = true;
    }

    /// These hold from `offset` on. `ops` is emptied.
    pub(crate) fn change(&mut self, offset: u32, ops: &mut Vec<CfiOp>, target: &Target) {
        if ops.is_empty() {
            return;
        }
        if offset != self.last {
            self.advance(offset, target);
        }
        let mut encoder = Encoder { bytes: &mut self.bytes, renamed: self.renamed };
        ops.drain(..).for_each(|op| encoder.encode(op, target));
    }

    fn advance(&mut self, offset: u32, target: &Target) {
        let delta = (offset - self.last) / u32::from(target.facts.cie.code_align);
        let size = if delta < 0x40 { 0 } else { 1 + (delta > 0xff) as usize };
        match size {
            0 => self.bytes.push(DW_CFA_ADVANCE_LOC | delta as u8),
            1 => self.bytes.extend_from_slice(&[DW_CFA_ADVANCE_LOC1, delta as u8]),
            _ => {
                self.bytes.push(DW_CFA_ADVANCE_LOC2);
                self.bytes.extend_from_slice(&(delta as u16).to_le_bytes());
            }
        }
        if self.opaque {
            let field = self.bytes.len() as u32 - [1, 1, 2][size];
            self.distances.push(Distance { field, size, from: self.last, to: offset });
        }
        self.last = offset;
        self.opaque = false;
    }
}

impl EhFrame {
    /// Pad the entry at `at` to a multiple of `align` and store its length.
    fn seal(&mut self, at: usize, align: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(align), 0);
        let length = (self.bytes.len() - at - 4) as u32;
        self.bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// The CIE for entries that begin like this: its offset, and how many of the rules it has.
    fn cie(&mut self, entry: &CfiEntry, asks: bool, renamed: Option<(u16, u16)>, target: &Target) -> (u32, usize) {
        let cie = &target.facts.cie;
        let returns_in = named(entry.column, renamed);
        let ops = || entry_ops(entry, target);
        // As GNU as: the last CIE whose rules begin ours serves, and the rest of ours goes into the FDE.
        let begins = |rules: &[CfiOp]| ops().zip(rules).filter(|(a, b)| a == *b).count() == rules.len();
        let fits = |c: &&CieEntry| (c.column, c.signal, c.asks) == (returns_in, entry.signal, asks) && begins(&c.ops);
        if let Some(cie) = self.cies.iter().rev().find(fits) {
            return (cie.at, cie.ops.len());
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 8]);
        self.bytes.push(cie.version);
        self.bytes.extend_from_slice(match (asks, entry.signal) {
            (true, true) => b"zPLRS\0",
            (true, false) => b"zPLR\0",
            (false, true) => b"zRS\0",
            (false, false) => b"zR\0",
        });
        self.bytes.extend_from_slice(&[cie.code_align, cie.data_align as u8 & 0x7f, returns_in as u8]);
        if asks {
            self.bytes.extend_from_slice(&[7, PERSONALITY_ENCODING]);
            self.relocs.push(Reloc {
                at: self.bytes.len() as u32,
                r_type: cie.pcrel32,
                to: RelocTarget::Personality,
                addend: 0,
            });
            self.bytes.extend_from_slice(&[0, 0, 0, 0, TABLE_ENCODING, POINTER_ENCODING]);
        } else {
            self.bytes.extend_from_slice(&[1, POINTER_ENCODING]);
        }
        self.bytes.extend_from_slice(cie.initial);
        let mut encoder = Encoder { bytes: &mut self.bytes, renamed };
        ops().for_each(|op| encoder.encode(op, target));
        self.seal(start, 4);
        let cie = CieEntry { column: returns_in, signal: entry.signal, asks, ops: ops().collect(), at: start as u32 };
        let shared = cie.ops.len();
        self.cies.push(cie);
        (start as u32, shared)
    }

    /// Append the entry of a trampoline, with a CIE before it if none fits.
    pub(crate) fn add(&mut self, of: &Fde, (table, misstated): (Option<Table>, Option<Misstated>), target: &Target) {
        let table = table.filter(|_| misstated != Some(Misstated::NoPersonality));
        let cie = &target.facts.cie;
        let renamed = of.rules.renamed;
        let (cie_at, shared) = self.cie(of.entry, table.is_some(), renamed, target);
        self.fde = self.bytes.len();
        let fde = self.fde as u32;
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&(fde + 4 - cie_at).to_le_bytes());
        let (to, addend) = match target.facts.lengths {
            Some(_) => (self.label(of.start), 0),
            None => (RelocTarget::Text, i64::from(of.start)),
        };
        self.relocs.push(Reloc { at: fde + 8, r_type: cie.pcrel32, to, addend });
        let (from, relocs) = (to, self.relocs.len());
        let range = if target.facts.lengths.is_none() { of.end - of.start } else { 0 };
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&range.to_le_bytes());
        self.bytes.push(if table.is_some() { 4 } else { 0 });
        if let Some(table) = table {
            let (to, addend) = match target.facts.lengths {
                Some(_) => (RelocTarget::Table(table.number), 0),
                None => (RelocTarget::Tables, i64::from(table.start)),
            };
            self.relocs.push(Reloc { at: self.bytes.len() as u32, r_type: cie.pcrel32, to, addend });
            self.bytes.extend_from_slice(&[0; 4]);
        }
        let mut encoder = Encoder { bytes: &mut self.bytes, renamed };
        entry_ops(of.entry, target).skip(shared).for_each(|op| encoder.encode(op, target));
        let rules = self.bytes.len() as u32;
        self.bytes.extend_from_slice(&of.rules.bytes);
        if let Some(lengths) = target.facts.lengths {
            for distance in &of.rules.distances {
                let (set, sub) = lengths.advance[distance.size];
                let (from, to) = (self.label(of.base + distance.from), self.label(of.base + distance.to));
                self.difference(rules + distance.field, set, sub, to, from);
            }
            // GNU as orders them by the field, before those of the rules.
            let (add, sub) = lengths.range;
            let end = self.label(of.end);
            self.difference(fde + 12, add, sub, end, from);
            self.relocs[relocs..].rotate_right(2);
        }
        self.seal(self.fde, 4);
    }

    /// Make room for `count` entries like those that are here.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.bytes.reserve(self.bytes.len() * count);
        self.relocs.reserve(self.relocs.len() * count);
        self.labels.reserve(self.labels.len() * count);
    }

    fn label(&mut self, offset: u32) -> RelocTarget {
        if self.labels.last() != Some(&offset) {
            self.labels.push(offset);
        }
        RelocTarget::Unwind(self.labels.len() as u32 - 1)
    }

    fn difference(&mut self, at: u32, plus: u32, minus: u32, to: RelocTarget, from: RelocTarget) {
        self.relocs.push(Reloc { at, r_type: plus, to, addend: 0 });
        self.relocs.push(Reloc { at, r_type: minus, to: from, addend: 0 });
    }

    /// End the section: GNU as lets the last entry fill it up to its alignment.
    pub(crate) fn finish(&mut self) {
        if !self.bytes.is_empty() {
            self.seal(self.fde, 8);
        }
    }
}
