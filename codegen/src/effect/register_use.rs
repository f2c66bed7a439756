//! Which registers an instruction reads and writes: what follows from its effects.

use crate::effect::action::{Action, Cell, Stored};
use crate::effect::effects::{Effects, Flow, Moves, SpEffect};
use crate::words::abi::{Abi, Reg, RegSet};

/// Registers that an instruction reads, or those that it writes.
///
/// SP is one of them: it is read where an address is computed from it, and read and written where an instruction moves
/// it, a call that pushes and a return that pops included. The link register of a call is one. What the called function
/// does is no effect of the call. The zero register and the program counter are never among them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Touched {
    /// General registers, by their index in [`Abi::regs`].
    pub general: RegSet,
    /// Vector registers, by their index in the machine's table; any part of one counts.
    pub vectors: RegSet,
    /// The flags, as one register: any bit of them counts.
    pub flags: bool,
}

impl Touched {
    fn add(&mut self, reg: Reg) {
        self.general = self.general.union(RegSet::of(&[reg]));
    }

    /// Where registers are moved, the zero register's number is never that of SP.
    fn moved(&mut self, reg: Reg, abi: &Abi) {
        if abi.zero != Some(reg) {
            self.add(reg);
        }
    }

    fn add_vectors(&mut self, first: u8, second: Option<u8>) {
        for vector in std::iter::once(first).chain(second) {
            self.vectors = self.vectors.union(RegSet::of(&[Reg(vector)]));
        }
    }
}

impl Effects {
    /// The registers that it reads, and those that it writes.
    pub fn touched(&self, abi: &Abi) -> (Touched, Touched) {
        let (mut reads, mut writes) = (Touched::default(), Touched::default());
        match self.sp {
            SpEffect::None => {}
            SpEffect::Move(_) => {
                reads.add(abi.sp);
                writes.add(abi.sp);
            }
            // Whatever it is rounded from, or loaded from, is an action.
            SpEffect::Realign => writes.add(abi.sp),
            SpEffect::CopyTo(dst, _) => {
                reads.add(abi.sp);
                writes.moved(dst, abi);
            }
            SpEffect::CopyFrom(src, _) => {
                reads.moved(src, abi);
                writes.add(abi.sp);
            }
        }
        match self.moves {
            Moves::None => {}
            Moves::Store(slots) => {
                reads.add(abi.sp);
                slots.iter().for_each(|(reg, _)| reads.moved(reg, abi));
            }
            Moves::Load(slots) => {
                reads.add(abi.sp);
                slots.iter().for_each(|(reg, _)| writes.moved(reg, abi));
            }
            Moves::Copy { dst, src } => {
                reads.moved(src, abi);
                writes.moved(dst, abi);
            }
        }
        act(self.action, abi, &mut reads, &mut writes);
        if self.flow == Flow::Call {
            if abi.link.is_none() {
                reads.add(abi.sp);
            }
            writes.add(abi.link.unwrap_or(abi.sp));
        }
        writes.flags |= self.changes_flags;
        (reads, writes)
    }
}

/// Adds a register, unless it is always zero. SP is SP here, whatever number the zero register has.
fn adding(abi: &Abi) -> impl Fn(&mut Touched, Reg) + use<> {
    let zero = abi.zero.filter(|zero| *zero != abi.sp);
    move |set, reg| {
        if Some(reg) != zero {
            set.add(reg);
        }
    }
}

fn act(action: Action, abi: &Abi, reads: &mut Touched, writes: &mut Touched) {
    let add = adding(abi);
    match action {
        Action::None
        | Action::StoreHalf
        | Action::LandingPad
        | Action::Control
        | Action::PopOver
        | Action::PushNext
        | Action::PushSymbol { .. }
        | Action::CallSymbol { .. } => {}
        Action::Sign { reg } | Action::Authenticate { reg } => {
            reads.add(abi.sp);
            add(reads, reg);
            add(writes, reg);
        }
        Action::Add { dst, src, .. } | Action::RoundDown { dst, src, .. } | Action::BitToSign { dst, src, .. } => {
            add(reads, src);
            add(writes, dst);
        }
        Action::Set { dst, .. }
        | Action::SetWide { dst, .. }
        | Action::Address { dst, .. }
        | Action::LinkNext { dst }
        | Action::High { dst, .. }
        | Action::LoadSymbol { dst, .. } => add(writes, dst),
        Action::SetBits { dst, .. } | Action::ShiftLeft { dst, .. } | Action::AddWord { dst, .. } => {
            add(reads, dst);
            add(writes, dst);
        }
        Action::Low { dst, base, .. } | Action::LoadLow { dst, base, .. } | Action::LoadAt { dst, base, .. } => {
            add(reads, base);
            add(writes, dst);
        }
        Action::PushAt { base, .. } => add(reads, base),
        Action::StoreVectors { first, second, .. } => {
            reads.add(abi.sp);
            reads.add_vectors(first, second);
        }
        Action::LoadVectors { first, second, .. } => {
            reads.add(abi.sp);
            writes.add_vectors(first, second);
        }
        Action::StoreState(area) | Action::LoadState(area) => {
            reads.add(abi.sp);
            area.mask.into_iter().for_each(|reg| add(reads, reg));
        }
        Action::PushFlags => reads.flags = true,
        Action::PopFlags => writes.flags = true,
        Action::Test { reg } | Action::TestLowBit { reg } | Action::TestBit { reg, .. } => {
            add(reads, reg);
            writes.flags = true;
        }
        Action::PushGuard { reg } | Action::PopGuard { reg } => add(reads, reg),
        Action::PushScs { reg, by } | Action::PopScs { reg, by } => {
            abi.scs.into_iter().for_each(|pointer| reads.add(pointer));
            abi.scs.filter(|_| by != 0).into_iter().for_each(|pointer| writes.add(pointer));
            add(if matches!(action, Action::PushScs { .. }) { reads } else { writes }, reg);
        }
        Action::StoreNumber { .. } => reads.add(abi.sp),
        // The others are of branches, and of records.
        _ => {
            of_branch(action, abi, reads, writes);
            of_record(action, abi, reads, writes);
        }
    }
}

/// What branches take.
fn of_branch(action: Action, abi: &Abi, reads: &mut Touched, writes: &mut Touched) {
    let add = adding(abi);
    match action {
        Action::BranchIf { reg, .. }
        | Action::BranchIfBit { reg, .. }
        | Action::BranchIfNegative { reg }
        | Action::CallRegister { reg }
        | Action::LeaveBy { reg } => add(reads, reg),
        Action::BranchIfFlags { .. } | Action::BranchIfNotBelow | Action::BranchIfSigned => reads.flags = true,
        Action::BranchIfRegNotBelow { reg, with }
        | Action::BranchIfRegSigned { reg, with }
        | Action::BranchIfRegsDiffer { reg, with } => {
            add(reads, reg);
            add(reads, with);
        }
        Action::LeaveFor { through, .. } => through.into_iter().for_each(|reg| add(writes, reg)),
        // A function that returns in its place pops.
        Action::Return { thunk: None } => {
            reads.add(abi.sp);
            writes.add(abi.sp);
        }
        _ => {}
    }
}

/// The register that an address is computed from.
fn in_cell(cell: Cell) -> Option<Reg> {
    if let Cell::At(base) = cell { Some(base) } else { None }
}

/// What records take.
fn of_record(action: Action, abi: &Abi, reads: &mut Touched, writes: &mut Touched) {
    let add = adding(abi);
    match action {
        Action::ThreadPointer { dst, .. } | Action::LoadThread { dst, .. } => add(writes, dst),
        Action::StoreThread { src, .. } => add(reads, src),
        Action::AddRegs { dst, src, add: added } => {
            add(reads, src);
            add(reads, added);
            add(writes, dst);
        }
        Action::AtomicAdd { dst, add: added, cell } => {
            add(reads, added);
            in_cell(cell).into_iter().for_each(|base| add(reads, base));
            add(writes, dst);
        }
        Action::AddToMemory { cell, .. } => in_cell(cell).into_iter().for_each(|base| add(reads, base)),
        Action::StoreAt { base, stored, .. } => {
            add(reads, base);
            if let Stored::Reg(reg) = stored {
                reads.moved(reg, abi);
            }
        }
        Action::CompareCell { reg, cell } => {
            add(reads, reg);
            in_cell(cell).into_iter().for_each(|base| add(reads, base));
            writes.flags = true;
        }
        Action::ReadClock { low, high } => {
            add(writes, low);
            high.into_iter().for_each(|high| add(writes, high));
        }
        Action::LowBits { dst, src, .. } | Action::OffsetHigh { dst, src, .. } | Action::OffsetLow { dst, src, .. } => {
            add(reads, src);
            add(writes, dst);
        }
        Action::StoreHalfAt { base, src, .. } => {
            add(reads, base);
            add(reads, src);
        }
        Action::CompareAt { reg, base, .. } => {
            add(reads, reg);
            add(reads, base);
            writes.flags = true;
        }
        Action::TestAt { base, .. } => {
            add(reads, base);
            writes.flags = true;
        }
        Action::CompareNumber { reg, .. } => {
            add(reads, reg);
            writes.flags = true;
        }
        Action::Compare { reg, with } => {
            add(reads, reg);
            add(reads, with);
            writes.flags = true;
        }
        _ => {}
    }
}
