//! The registers of an architecture, and what they hold at one moment.

use std::ops::{Index, IndexMut};

use codegen::arch::machine::Machine;
use codegen::words::abi::{Abi, Reg, RegSet};
use codegen::words::error::{Error, Result};

/// What a [`Snapshot`] has room for: general registers, control words, vector registers, bytes of one.
pub(crate) const GENERAL: usize = 32;
pub(crate) const CONTROL: usize = 2;
pub(crate) const VECTORS: usize = 32;
pub(crate) const VECTOR: usize = 16;

/// All general registers that a snapshot has room for.
const ALL: RegSet = {
    let (mut all, mut n) = ([Reg(0); GENERAL], 0);
    while n < GENERAL {
        all[n] = Reg(n as u8);
        n += 1;
    }
    RegSet::of(&all)
};

/// The registers at one moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Snapshot {
    pub(crate) gpr: [u64; GENERAL],
    pub(crate) flags: u64,
    pub(crate) control: [u64; CONTROL],
    pub(crate) vectors: [[u8; VECTOR]; VECTORS],
}

impl Snapshot {
    /// The general registers that hold the same in both.
    pub(crate) fn same(&self, other: &Snapshot) -> RegSet {
        let mut same = ALL;
        let fours = self.gpr.as_chunks::<4>().0.iter().zip(other.gpr.as_chunks::<4>().0);
        // Nearly all are the same: four at once.
        for (n, (ours, theirs)) in (0..).step_by(4).zip(fours).filter(|(_, (ours, theirs))| ours != theirs) {
            for (n, _) in (n..).zip(ours.iter().zip(theirs)).filter(|(_, (a, b))| a != b) {
                same = same.minus(RegSet::of(&[Reg(n)]));
            }
        }
        same
    }
}

impl Index<Reg> for Snapshot {
    type Output = u64;

    fn index(&self, reg: Reg) -> &u64 {
        &self.gpr[usize::from(reg.0)]
    }
}

impl IndexMut<Reg> for Snapshot {
    fn index_mut(&mut self, reg: Reg) -> &mut u64 {
        &mut self.gpr[usize::from(reg.0)]
    }
}

/// What is read of a CPU besides general registers: each has what the one before it has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Besides {
    /// No other register.
    Nothing,
    /// The flags.
    Flags,
    /// Control words.
    Control,
    /// Vector registers.
    All,
}

/// What reading and writing registers needs.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    pub(crate) machine: &'static Machine,
    pub(crate) abi: &'static Abi,
}

impl Registers {
    /// Those of an architecture.
    ///
    /// # Errors
    /// It has more, or larger ones, than a snapshot has room for.
    pub(crate) fn of(machine: &'static Machine, abi: &'static Abi) -> Result<Registers> {
        for (what, n, most) in [
            ("general registers", abi.regs.len(), GENERAL),
            ("control words", machine.control.len(), CONTROL),
            ("vector registers", machine.vectors.len(), VECTORS),
            ("bytes of a vector register", abi.vector_bytes, VECTOR),
        ] {
            if n > most {
                return Err(Error::new(format!("emulator: {n} {what}; valid: at most {most}")));
            }
        }
        Ok(Registers { machine, abi })
    }
}
