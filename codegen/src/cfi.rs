//! Call frame information, derived from what the listing's instructions do to SP and to saved registers.
//!
//! The tables are encoded as GNU as encodes the `.cfi_*` directives of the text, so that both ways to an object give
//! the same bytes. (gimli's writer pads entries differently and knows no RISC-V difference relocations; gimli reads
//! the result in the tests instead.)

use crate::abi::{Reg, RegSet};
use crate::effects::{CfiEntry, Effects, Flow, Moves, SpEffect};
use crate::error::{Error, Result};
use crate::faults::Misstated;
use crate::reloc::{Reloc, RelocTarget};
use crate::step::Local;
use crate::target::Target;

/// One rule, in the terms of DWARF 5, section 6.4.2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CfiOp {
    /// CFA = the same register plus this.
    DefCfaOffset(i32),
    /// CFA = this register plus this.
    DefCfa(Reg, i32),
    /// CFA = this register plus the same offset.
    DefCfaRegister(Reg),
    /// The column was saved at CFA plus this.
    Offset(u16, i32),
    /// The column's value is in a register.
    Register(u16, Reg),
    /// The column has its value again.
    Restore(u16),
    /// The same, where the first rule of the column was another one.
    SameValue(u16),
    /// The column's value cannot be told.
    Undefined(u16),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Register(Reg),
    Saved(i32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Column {
    number: u16,
    /// The register that the column names, if it is one of ours.
    home: Option<Reg>,
    place: Place,
}

const COLUMNS: usize = 20;

#[derive(Clone, Copy, Debug)]
struct State {
    /// Registers that hold a column's value now; most stores are of others.
    holders: RegSet,
    /// The register from which CFA is computed, and CFA minus it.
    cfa: (Reg, i32),
    /// CFA minus SP while SP is known.
    sp: i32,
    columns: [Option<Column>; COLUMNS],
    /// How many columns are saved in the frame; while none is, no load can restore one.
    saved: u32,
}

/// Follows a listing and says which rules change where.
#[derive(Debug)]
pub(crate) struct Tracker {
    sp_reg: Reg,
    initial: State,
    state: State,
    moved: &'static [(u16, Reg)],
    returns_in: u16,
    at_branch: Vec<(Local, State)>,
    /// A register that survives calls and holds SP as it was, and CFA minus it.
    copies: Option<(Reg, i32)>,
    survives: RegSet,
    /// The registers that columns name.
    homes: RegSet,
    /// A copy of a register that holds a column: (copy, original).
    spare: Option<(Reg, Reg)>,
    reachable: bool,
    /// Rules that change after the line just seen.
    pub ops: Vec<CfiOp>,
}

/// The rules that hold before the first instruction, besides those of a C function.
pub(crate) fn entry_ops(entry: &CfiEntry, target: &Target) -> impl Iterator<Item = CfiOp> {
    let moved = (entry.cfa_offset != target.facts.cie.cfa_offset).then_some(CfiOp::DefCfaOffset(entry.cfa_offset));
    let undefined = entry.undefined.then_some(CfiOp::Undefined(entry.column));
    let elsewhere = entry.moved.iter().map(|&(column, reg)| CfiOp::Register(column, reg));
    moved.into_iter().chain(elsewhere).chain(undefined)
}

impl Tracker {
    /// # Errors
    /// The architecture has more columns to follow than there is room for.
    pub(crate) fn new(entry: &CfiEntry, target: &Target) -> Result<Tracker> {
        let abi = &target.facts.abi;
        let named = |reg: Reg| abi.regs.get(reg.0 as usize).map_or(0, |r| r.dwarf);
        let link = abi.link.filter(|_| !entry.undefined);
        let own = abi.callee_saved.iter().chain(link).filter(|r| *r != abi.sp).map(|r| Column {
            number: named(r),
            home: Some(r),
            place: Place::Register(r),
        });
        let mut all: Vec<Column> = own.collect();
        for &(number, reg) in entry.moved {
            // A column that stands in for the return address never comes home.
            let kept = |reg: &Reg| abi.callee_saved.contains(*reg) || Some(*reg) == abi.link;
            let home = abi.regs.iter().position(|r| r.dwarf == number).map(|i| Reg(i as u8)).filter(kept);
            let column = Column { number, home, place: Place::Register(reg) };
            match all.iter_mut().find(|c| c.number == number) {
                Some(known) => *known = column,
                None => all.push(column),
            }
        }
        if let crate::abi::Loc::Reg(pc) = target.convention.site.pc
            && named(pc) == entry.column
            && !all.iter().any(|c| c.number == entry.column)
            && !entry.undefined
        {
            all.push(Column { number: entry.column, home: Some(pc), place: Place::Register(pc) });
        }
        if all.len() > COLUMNS {
            let (arch, n) = (target.facts.name, all.len());
            return Err(Error::new(format!("the unwind table of {arch} follows {n} columns; valid: up to {COLUMNS}")));
        }
        let columns = std::array::from_fn(|i| all.get(i).copied());
        let holders = columns.iter().flatten().filter_map(|c| match c.place {
            Place::Register(reg) => Some(reg),
            Place::Saved(_) => None,
        });
        let holders = RegSet::of(&holders.collect::<Vec<_>>());
        let homes = RegSet::of(&columns.iter().flatten().filter_map(|c| c.home).collect::<Vec<_>>());
        let state = State { holders, cfa: (abi.sp, entry.cfa_offset), sp: entry.cfa_offset, columns, saved: 0 };
        Ok(Tracker {
            sp_reg: abi.sp,
            initial: state,
            state,
            moved: entry.moved,
            returns_in: entry.column,
            at_branch: Vec::new(),
            copies: None,
            survives: abi.callee_saved,
            homes,
            spare: None,
            reachable: true,
            ops: Vec::new(),
        })
    }

    /// Begin again, for a trampoline of the same kind.
    pub(crate) fn restart(&mut self) {
        self.state = self.initial;
        self.at_branch.clear();
        self.copies = None;
        self.spare = None;
        self.reachable = true;
        self.ops.clear();
    }

    fn set_cfa(&mut self, cfa: (Reg, i32)) {
        let old = self.state.cfa;
        if old == cfa {
            return;
        }
        self.ops.push(match (old.0 == cfa.0, old.1 == cfa.1) {
            (true, _) => CfiOp::DefCfaOffset(cfa.1),
            (false, true) => CfiOp::DefCfaRegister(cfa.0),
            (false, false) => CfiOp::DefCfa(cfa.0, cfa.1),
        });
        self.state.cfa = cfa;
    }

    fn place(&mut self, i: usize, place: Place) {
        let Some(column) = &mut self.state.columns[i] else { return };
        if column.place == place {
            return;
        }
        let old = std::mem::replace(&mut column.place, place);
        let number = column.number;
        match (old, place) {
            (Place::Register(reg), _) => self.state.holders = self.state.holders.minus(RegSet::of(&[reg])),
            (Place::Saved(_), _) => self.state.saved -= 1,
        }
        match place {
            Place::Register(reg) => self.state.holders = self.state.holders.union(RegSet::of(&[reg])),
            Place::Saved(_) => self.state.saved += 1,
        }
        let Some(column) = &self.state.columns[i] else { return };
        self.ops.push(match place {
            Place::Saved(offset) => CfiOp::Offset(number, offset),
            Place::Register(reg) if Some(reg) != column.home => CfiOp::Register(number, reg),
            Place::Register(_) if self.moved.iter().any(|m| m.0 == number) => CfiOp::SameValue(number),
            Place::Register(_) => CfiOp::Restore(number),
        });
    }

    /// What the column of the return address holds cannot be told from here on.
    pub(crate) fn lose_return(&mut self) {
        for column in &mut self.state.columns {
            column.take_if(|c| c.number == self.returns_in);
        }
        self.ops.push(CfiOp::Undefined(self.returns_in));
    }

    /// Say something wrong of CFA, for a mutant.
    pub(crate) fn misstate(&mut self, misstated: Misstated) {
        if let Misstated::Cfa(by) = misstated {
            let (reg, offset) = self.state.cfa;
            self.set_cfa((reg, offset + by));
        }
    }

    /// A label: the rules are those of the branch that leads here.
    pub(crate) fn at_label(&mut self, local: Local) {
        if self.reachable {
            return;
        }
        let there = self.at_branch.iter().find(|(to, _)| *to == local).map(|(_, state)| *state);
        if let Some(there) = there {
            self.set_cfa(there.cfa);
            self.state.sp = there.sp;
            for i in 0..COLUMNS {
                if let Some(column) = there.columns[i] {
                    self.place(i, column.place);
                }
            }
        }
        self.reachable = true;
    }

    /// An instruction has executed.
    #[inline]
    pub(crate) fn after(&mut self, effects: &Effects) {
        let holds = |reg| self.state.holders.contains(reg);
        let rules_may_change = match effects.moves {
            Moves::None => false,
            Moves::Store(slots) => holds(slots.first) || slots.second.is_some_and(holds),
            Moves::Load(_) => self.state.saved > 0,
            Moves::Copy { dst, src } => holds(dst) || holds(src),
        };
        let goes_on = matches!(effects.flow, Flow::Next | Flow::Call);
        if rules_may_change || effects.sp != SpEffect::None || !goes_on {
            self.follow(effects);
        }
    }

    #[inline(never)]
    fn follow(&mut self, effects: &Effects) {
        let before_sp = self.state.sp;
        if effects.sp != SpEffect::None {
            self.sp_moved(effects.sp);
            if self.state.saved > 0 {
                self.forget_below_sp();
            }
        }
        match effects.moves {
            Moves::None => {}
            Moves::Store(slots) => {
                for (reg, at) in slots.iter() {
                    self.moved(Place::Register(reg), Place::Saved(at - self.state.sp));
                }
            }
            Moves::Load(slots) => {
                for (reg, at) in slots.iter() {
                    self.loaded(at - before_sp, reg);
                }
            }
            Moves::Copy { dst, src } => self.copied(dst, src),
        }
        match effects.flow {
            Flow::Next | Flow::Call => {}
            Flow::Leave | Flow::Trap => self.reachable = false,
            Flow::Branch(local) | Flow::Jump(local) => {
                if !self.at_branch.iter().any(|(to, _)| *to == local) {
                    self.at_branch.push((local, self.state));
                }
                self.reachable = matches!(effects.flow, Flow::Branch(_));
            }
        }
    }

    /// A column may be in two slots, of which one is known: what is loaded into its home is that column all the same.
    fn loaded(&mut self, offset: i32, reg: Reg) {
        let columns = &self.state.columns;
        let known = columns.iter().position(|c| c.as_ref().is_some_and(|c| c.place == Place::Saved(offset)));
        let saved = |c: &Column| c.home == Some(reg) && matches!(c.place, Place::Saved(_));
        let home = || {
            let may_be = self.homes.contains(reg);
            may_be.then(|| columns.iter().position(|c| c.as_ref().is_some_and(saved))).flatten()
        };
        if let Some(i) = known.or_else(home) {
            self.place(i, Place::Register(reg));
        }
    }

    /// A column goes along with a copy when it comes home, or when the original is overwritten.
    fn copied(&mut self, dst: Reg, src: Reg) {
        if let Some((copy, _)) = self.spare.take_if(|(_, original)| *original == dst) {
            self.moved(Place::Register(dst), Place::Register(copy));
        }
        let held = self.state.columns.iter().flatten().find(|c| c.place == Place::Register(src));
        match held {
            Some(column) if column.home == Some(dst) => self.moved(Place::Register(src), Place::Register(dst)),
            Some(_) => self.spare = Some((dst, src)),
            None => {}
        }
    }

    fn moved(&mut self, from: Place, to: Place) {
        if let Some(i) = self.state.columns.iter().position(|c| c.as_ref().is_some_and(|c| c.place == from)) {
            self.place(i, to);
        }
    }

    /// An interrupt may overwrite what is below SP. What a call keeps is still in its register.
    fn forget_below_sp(&mut self) {
        for i in 0..COLUMNS {
            if let Some(Column { home: Some(home), place: Place::Saved(offset), .. }) = self.state.columns[i]
                && offset < -self.state.sp
                && self.survives.contains(home)
            {
                self.place(i, Place::Register(home));
            }
        }
    }

    fn sp_moved(&mut self, effect: SpEffect) {
        match effect {
            SpEffect::None => {}
            SpEffect::Move(by) => {
                self.state.sp -= by;
                if self.state.cfa.0 == self.sp_reg {
                    self.set_cfa((self.sp_reg, self.state.sp));
                }
            }
            SpEffect::CopyTo(reg, add) if self.survives.contains(reg) => {
                self.copies = Some((reg, self.state.sp - add));
            }
            SpEffect::CopyTo(..) => {}
            SpEffect::Realign => {
                if let Some((reg, distance)) = self.copies {
                    self.set_cfa((reg, distance));
                }
            }
            SpEffect::CopyFrom(_, add) => {
                if let Some((_, distance)) = self.copies {
                    self.state.sp = distance - add;
                    self.set_cfa((self.sp_reg, self.state.sp));
                }
            }
        }
    }
}

/// A CIE: its return address column, whether it is of signal frames, the rules that it begins with besides a C function's, its offset.
#[derive(Debug)]
struct CieEntry {
    column: u16,
    signal: bool,
    ops: Vec<CfiOp>,
    at: u32,
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
    pub(crate) fn open(&mut self, start: u32, entry: &CfiEntry, misstated: Option<Misstated>, target: &Target) {
        let cie = &target.facts.cie;
        self.renamed = match misstated {
            Some(Misstated::Column(other)) => Some((entry.column, other)),
            _ => None,
        };
        let returns_in = self.named(entry.column);
        let ops = || entry_ops(entry, target);
        // As GNU as: the first CIE whose rules begin ours serves, and the rest of ours goes into the FDE.
        let begins = |rules: &[CfiOp]| ops().zip(rules).filter(|(a, b)| a == *b).count() == rules.len();
        let fits = |c: &&CieEntry| c.column == returns_in && c.signal == entry.signal && begins(&c.ops);
        let (cie_at, shared) = match self.cies.iter().find(fits) {
            Some(cie) => (cie.at, cie.ops.len()),
            None => {
                let at = self.bytes.len() as u32;
                self.bytes.extend_from_slice(&[0; 8]);
                self.bytes.push(cie.version);
                self.bytes.extend_from_slice(if entry.signal { b"zRS\0" } else { b"zR\0" });
                self.bytes.extend_from_slice(&[cie.code_align, cie.data_align as u8 & 0x7f]);
                self.bytes.extend_from_slice(&[returns_in as u8, 1, POINTER_ENCODING]);
                self.bytes.extend_from_slice(cie.initial);
                ops().for_each(|op| self.encode(op, target));
                self.seal(at, 4);
                let cie = CieEntry { column: returns_in, signal: entry.signal, ops: ops().collect(), at };
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
        self.bytes.extend_from_slice(&[0; 9]);
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

#[cfg(test)]
mod tests;
