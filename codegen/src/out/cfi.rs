//! Call frame information, derived from what the listing's instructions do to SP and to saved registers.

use crate::arch::harden::{ReturnGuard, scs};
use crate::ask::spec::Spec;
use crate::effect::action::Action;
use crate::effect::effects::{CfiEntry, Effects, Flow, Moves, SpEffect};
use crate::effect::faults::Misstated;
use crate::profile::target::Target;
use crate::words::abi::{Reg, RegSet};
use crate::words::error::{Error, Result};
use crate::words::step::{Local, Mark};

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
    /// The register is unchanged, in a column whose first rule was another one.
    SameValue(u16),
    /// The column's value cannot be told.
    Undefined(u16),
    /// From here on the return address is signed, or, if it was, it is not.
    Signed,
    /// The column's value is that of the column itself plus this: the shadow call stack's pointer, which has moved.
    Moved(u16, i32),
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
    /// The return address is undefined, so rules for its column are not emitted.
    lost: bool,
    /// The return address is signed.
    signed: bool,
    /// Bytes by which the shadow call stack's pointer has moved.
    scs: i32,
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
    /// The register with the return address, where trampolines may sign that.
    link: Option<Reg>,
    /// The shadow call stack's pointer, where trampolines move it, and its column.
    scs: Option<(Reg, u16)>,
    /// What became of the return address on its way to memory.
    pub stored: StoredReturn,
    /// Rules that change after the line just seen.
    pub ops: Vec<CfiOp>,
}

/// What became of return addresses on their way to memory.
#[derive(Clone, Copy, Default, Debug)]
pub struct StoredReturn {
    /// One was signed.
    pub signed: bool,
    /// One was stored as it is, or one was authenticated that another has signed.
    pub plain: bool,
}

impl StoredReturn {
    /// Of code with this and the other.
    pub fn and(self, other: StoredReturn) -> StoredReturn {
        StoredReturn { signed: self.signed || other.signed, plain: self.plain || other.plain }
    }

    /// Is each signed, so that the property note says so?
    pub fn all_signed(self) -> bool {
        self.signed && !self.plain
    }
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
        if let crate::words::abi::Loc::Reg(pc) = target.convention.site.pc
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
        let state = State {
            holders,
            cfa: (abi.sp, entry.cfa_offset),
            sp: entry.cfa_offset,
            columns,
            saved: 0,
            lost: false,
            signed: false,
            scs: 0,
        };
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
            link: abi.link.filter(|_| target.harden.guard == Some(ReturnGuard::Signed)),
            scs: scs(target.harden.guard, abi).map(|reg| (reg, named(reg))),
            stored: StoredReturn::default(),
            ops: Vec::new(),
        })
    }

    /// Set the rules before the first instruction that depend on this trampoline, not only on its kind.
    pub(crate) fn start(&mut self, spec: &Spec) {
        if spec.body.signed && spec.kind.names_body() {
            self.set_signed(true);
            self.stored.plain = true;
        }
    }

    /// Begin again, for a trampoline of the same kind.
    pub(crate) fn restart(&mut self) {
        self.state = self.initial;
        self.at_branch.clear();
        self.copies = None;
        self.spare = None;
        self.reachable = true;
        self.stored = StoredReturn::default();
        self.ops.clear();
    }

    /// Unwinders find the shadow call stack's pointer by the column of its register.
    fn set_scs(&mut self, bytes: i32) {
        if let (Some((_, column)), true) = (self.scs, self.state.scs != bytes) {
            self.state.scs = bytes;
            self.ops.push(if bytes == 0 { CfiOp::Restore(column) } else { CfiOp::Moved(column, -bytes) });
        }
    }

    fn set_signed(&mut self, signed: bool) {
        if self.state.signed != signed {
            self.state.signed = signed;
            self.ops.push(CfiOp::Signed);
        }
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
        let Some(column) = self.state.columns[i].filter(|_| !(self.state.lost && number == self.returns_in)) else {
            return;
        };
        self.ops.push(match place {
            Place::Saved(offset) => CfiOp::Offset(number, offset),
            Place::Register(reg) if Some(reg) != column.home => CfiOp::Register(number, reg),
            Place::Register(_) if self.moved.iter().any(|m| m.0 == number) => CfiOp::SameValue(number),
            Place::Register(_) => CfiOp::Restore(number),
        });
    }

    /// Make the return address undefined from here on.
    pub(crate) fn lose_return(&mut self) {
        self.state.lost = true;
        self.ops.push(CfiOp::Undefined(self.returns_in));
    }

    /// Set the return address's rule to that of the entry.
    pub(crate) fn find_return(&mut self) {
        self.state.lost = false;
        let moved = self.moved.iter().any(|m| m.0 == self.returns_in);
        self.ops.push(if moved { CfiOp::SameValue(self.returns_in) } else { CfiOp::Restore(self.returns_in) });
    }

    /// Say something wrong of CFA or of what is saved, for a mutant.
    pub(crate) fn misstate(&mut self, misstated: Misstated) {
        match misstated {
            Misstated::Cfa(by) => {
                let (reg, offset) = self.state.cfa;
                self.set_cfa((reg, offset + by));
            }
            Misstated::Slot(by) => {
                let saved = self.state.columns.iter().flatten().find_map(|c| match c.place {
                    Place::Saved(at) => Some(CfiOp::Offset(c.number, at + by)),
                    Place::Register(_) => None,
                });
                self.ops.extend(saved);
            }
            Misstated::Signed => self.ops.push(CfiOp::Signed),
            _ => {}
        }
    }

    /// A label: the rules are those of the branch that leads here.
    pub(crate) fn at_label(&mut self, local: Local) {
        if local == Local::Mark(Mark::End) {
            // The unwinder does not come back.
            self.reachable = false;
            return;
        }
        if self.reachable {
            if local == Local::Mark(Mark::Called) {
                // The unwinder goes there with the frame as it is here.
                self.at_branch.push((Local::Mark(Mark::Pad), self.state));
            }
            return;
        }
        let there = self.at_branch.iter().find(|(to, _)| *to == local).map(|(_, state)| *state);
        if let Some(there) = there {
            self.set_cfa(there.cfa);
            self.set_signed(there.signed);
            self.set_scs(there.scs);
            self.state.sp = there.sp;
            if there.lost && !self.state.lost {
                self.lose_return();
            } else if self.state.lost && !there.lost {
                self.find_return();
            }
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
        if let (Moves::Store(slots), Some(link), false) = (effects.moves, self.link, self.state.signed) {
            self.stored.plain |= slots.iter().any(|(reg, _)| reg == link);
        }
        match effects.action {
            Action::Sign { .. } => {
                self.stored.signed = true;
                self.set_signed(true);
            }
            Action::Authenticate { .. } => self.set_signed(false),
            Action::PushScs { by, .. } | Action::PopScs { by, .. } => self.set_scs(self.state.scs + by),
            Action::Add { dst, src, add } if dst == src && self.scs.is_some_and(|(reg, _)| reg == dst) => {
                self.set_scs(self.state.scs + add);
            }
            _ => {}
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

#[cfg(test)]
mod tests;
