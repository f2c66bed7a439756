//! Call frame information as a section.
//!
//! The tables are encoded as GNU as encodes the `.cfi_*` directives of the text, so that both ways to an object give
//! the same bytes. (gimli's writer pads entries differently and knows no RISC-V difference relocations; gimli reads
//! the result in the tests instead.)

use crate::abi::Reg;
use crate::cfi::{CfiOp, entry_ops};
use crate::effects::CfiEntry;
use crate::faults::Misstated;
use crate::lsda::{PERSONALITY_ENCODING, TABLE_ENCODING};
use crate::reloc::{Reloc, RelocTarget};
use crate::target::Target;

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
    fde: u32,
    /// How many relocations there were behind the FDE's own first one.
    fde_relocs: usize,
    start: u32,
    last: u32,
    opaque: bool,
    /// In a mutant's table, the column of the return address and what is said in its place.
    renamed: Option<(u16, u16)>,
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
/// DW_EH_PE_pcrel | DW_EH_PE_sdata4.
const POINTER_ENCODING: u8 = 0x1b;

impl EhFrame {
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

    /// The number by which a column is known.
    fn named(&self, column: u16) -> u16 {
        self.renamed.filter(|(own, _)| *own == column).map_or(column, |(_, other)| other)
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
                let column = self.named(column);
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
                self.uleb(self.named(column).into());
                self.uleb(dwarf(reg));
            }
            CfiOp::Restore(column) => match self.named(column) {
                column @ ..64 => self.bytes.push(DW_CFA_RESTORE | column as u8),
                column => {
                    self.bytes.push(DW_CFA_RESTORE_EXTENDED);
                    self.uleb(column.into());
                }
            },
            CfiOp::SameValue(column) => {
                self.bytes.push(DW_CFA_SAME_VALUE);
                self.uleb(self.named(column).into());
            }
            CfiOp::Undefined(column) => {
                self.bytes.push(DW_CFA_UNDEFINED);
                self.uleb(self.named(column).into());
            }
        }
    }

    fn put32(&mut self, at: u32, value: u32) {
        let at = at as usize;
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    /// Pad the entry at `start` to a multiple of `align` and store its length.
    fn seal(&mut self, start: u32, align: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(align), 0);
        self.put32(start, self.bytes.len() as u32 - start - 4);
    }

    /// Begin the entry of a trampoline at this offset, with a CIE before it if none fits.
    pub(crate) fn open(
        &mut self,
        start: u32,
        entry: &CfiEntry,
        (table, misstated): (Option<Table>, Option<Misstated>),
        target: &Target,
    ) {
        let table = table.filter(|_| misstated != Some(Misstated::NoPersonality));
        let cie = &target.facts.cie;
        self.renamed = match misstated {
            Some(Misstated::Column(other)) => Some((entry.column, other)),
            _ => None,
        };
        let returns_in = self.named(entry.column);
        let ops = || entry_ops(entry, target);
        // As GNU as: the first CIE whose rules begin ours serves, and the rest of ours goes into the FDE.
        let begins = |rules: &[CfiOp]| ops().zip(rules).filter(|(a, b)| a == *b).count() == rules.len();
        let asks = table.is_some();
        let fits = |c: &&CieEntry| (c.column, c.signal, c.asks) == (returns_in, entry.signal, asks) && begins(&c.ops);
        let (cie_at, shared) = match self.cies.iter().find(fits) {
            Some(cie) => (cie.at, cie.ops.len()),
            None => {
                let at = self.bytes.len() as u32;
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
                ops().for_each(|op| self.encode(op, target));
                self.seal(at, 4);
                let cie = CieEntry { column: returns_in, signal: entry.signal, asks, ops: ops().collect(), at };
                let shared = cie.ops.len();
                self.cies.push(cie);
                (at, shared)
            }
        };
        self.fde = self.bytes.len() as u32;
        self.start = start;
        self.last = start;
        self.opaque = false;
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&(self.fde + 4 - cie_at).to_le_bytes());
        let (to, addend) = match target.facts.lengths {
            Some(_) => (self.label(start), 0),
            None => (RelocTarget::Text, i64::from(start)),
        };
        self.relocs.push(Reloc { at: self.fde + 8, r_type: cie.pcrel32, to, addend });
        self.fde_relocs = self.relocs.len();
        self.bytes.extend_from_slice(&[0; 8]);
        self.bytes.push(if asks { 4 } else { 0 });
        if let Some(table) = table {
            let (to, addend) = match target.facts.lengths {
                Some(_) => (RelocTarget::Table(table.number), 0),
                None => (RelocTarget::Tables, i64::from(table.start)),
            };
            self.relocs.push(Reloc { at: self.bytes.len() as u32, r_type: cie.pcrel32, to, addend });
            self.bytes.extend_from_slice(&[0; 4]);
        }
        ops().skip(shared).for_each(|op| self.encode(op, target));
    }

    /// From here on the distance to earlier addresses is the linker's to know.
    pub(crate) fn opaque(&mut self) {
        self.opaque = true;
    }

    /// These rules hold from `offset` on. `ops` is emptied.
    pub(crate) fn rules(&mut self, offset: u32, ops: &mut Vec<CfiOp>, target: &Target) {
        if ops.is_empty() {
            return;
        }
        if offset != self.last {
            self.advance(offset, target);
        }
        for op in ops.drain(..) {
            self.encode(op, target);
        }
    }

    fn advance(&mut self, offset: u32, target: &Target) {
        let delta = (offset - self.last) / u32::from(target.facts.cie.code_align);
        let lengths = target.facts.lengths.filter(|_| self.opaque);
        let size = if delta < 0x40 { 0 } else { 1 + (delta > 0xff) as usize };
        match size {
            0 => self.bytes.push(DW_CFA_ADVANCE_LOC | delta as u8),
            1 => self.bytes.extend_from_slice(&[DW_CFA_ADVANCE_LOC1, delta as u8]),
            _ => {
                self.bytes.push(DW_CFA_ADVANCE_LOC2);
                self.bytes.extend_from_slice(&(delta as u16).to_le_bytes());
            }
        }
        if let Some(lengths) = lengths {
            let at = self.bytes.len() as u32 - [1, 1, 2][size];
            let (set, sub) = lengths.advance[size];
            let (from, to) = (self.label(self.last), self.label(offset));
            self.difference(at, set, sub, to, from);
        }
        self.last = offset;
        self.opaque = false;
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

    /// End the entry.
    pub(crate) fn close(&mut self, end: u32, target: &Target) {
        let at = self.fde + 12;
        match target.facts.lengths {
            None => self.put32(at, end - self.start),
            Some(lengths) => {
                // GNU as orders them by the field, before those of the rules.
                let (add, sub) = lengths.range;
                let start = self.relocs[self.fde_relocs - 1].to;
                let end = self.label(end);
                self.difference(at, add, sub, end, start);
                self.relocs[self.fde_relocs..].rotate_right(2);
            }
        }
        self.seal(self.fde, 4);
    }

    /// End the section: GNU as lets the last entry fill it up to its alignment.
    pub(crate) fn finish(&mut self) {
        if !self.bytes.is_empty() {
            self.seal(self.fde, 8);
        }
    }
}
