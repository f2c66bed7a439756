//! Registers and stack slots in which a call passes values. Each psABI has its own rules; the counting is common.

use crate::ask::live::{Live, MOST_WORDS, Word};
use crate::ask::spec::{Direct, Programs};
use crate::words::abi::{Abi, Reg, RegSet};
use crate::words::error::Result;
use crate::words::proto::{Prototype, Type};

/// The location of a piece of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In a general register.
    Reg(Reg),
    /// In the vector register with this index in the machine's table.
    Vector(u8),
    /// So many bytes above the first stack argument.
    Stack(u32),
}

/// Bytes of a value that are in one place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The location of these bytes.
    pub place: Place,
    /// The offset of the piece in the value, in bytes.
    pub offset: u32,
    /// The number of bytes.
    pub size: u32,
}

/// The location of a result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Returned {
    /// The function has no result.
    Nothing,
    /// In registers.
    Registers(Vec<Piece>),
    /// In memory; the caller passes its address in [`crate::words::abi::Abi::sret`].
    Memory,
}

/// The locations of arguments when a function is entered, and of its result when it has returned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// The pieces of each argument.
    pub args: Vec<Vec<Piece>>,
    /// The result.
    pub returned: Returned,
    /// Bytes of stack arguments.
    pub stack: u32,
}

impl Placement {
    /// The direct call of a callee with the same prototype as the function: all values live at the function's entry.
    ///
    /// `others` are live besides; `general_callee` says that the callee leaves vector registers alone.
    pub fn direct(&self, abi: &Abi, others: RegSet, general_callee: bool) -> Direct {
        let mut live = self.live(abi, general_callee);
        live.regs = live.regs.union(others);
        let last = abi.args.iter().rposition(|&r| live.regs.contains(r));
        Direct { args: last.map_or(0, |i| i as u8 + 1), ip: false, live: Some(live), jumped: false }
    }

    fn live(&self, abi: &Abi, general_callee: bool) -> Live {
        let carried = carried(self.args.iter().flatten(), abi.vector_args);
        let sret = match self.returned {
            Returned::Memory => RegSet::of(&[abi.sret]),
            _ => RegSet::EMPTY,
        };
        Live { regs: carried.regs.union(sret), stack: (self.stack / 8) as u8, general_callee, ..carried }
    }

    /// The values that programs attached to a function of this prototype get. `others` are live too, but no words of the
    /// context; `general_callee` says that programs leave vector registers alone. The caller sets the flags.
    ///
    /// # Errors
    /// A result in memory: neither BPF nor this shows programs one.
    pub fn programs(&self, proto: &Prototype, abi: &Abi, others: RegSet, general_callee: bool) -> Result<Programs> {
        let result = match &self.returned {
            Returned::Memory => {
                return Err(proto.refuse(None, "a result in memory cannot be shown to programs; valid: up to 16 bytes"));
            }
            Returned::Nothing => Live::default(),
            Returned::Registers(pieces) => Live { general_callee, ..carried(pieces.iter(), abi.vector_rets) },
        };
        let words = self.args.iter().flatten().flat_map(|piece| match piece.place {
            Place::Reg(reg) => vec![Word::Reg(reg)],
            Place::Vector(_) => Vec::new(),
            Place::Stack(at) => (at / 8..(at + piece.size).div_ceil(8)).map(|n| Word::Stack(n as u8)).collect(),
        });
        let mut all = [None; MOST_WORDS];
        all.iter_mut().zip(words).for_each(|(slot, word)| *slot = Some(word));
        let live = self.direct(abi, others, general_callee).live.unwrap_or_default();
        Ok(Programs { live, words: all, result, ..Programs::default() })
    }
}

/// The registers that hold these pieces; `vectors` are the vector registers that can carry one, in order.
fn carried<'p>(pieces: impl Iterator<Item = &'p Piece>, vectors: &[u8]) -> Live {
    let mut live = Live::default();
    for piece in pieces {
        match piece.place {
            Place::Reg(reg) => live.regs = live.regs.union(RegSet::of(&[reg])),
            Place::Vector(v) => {
                let behind = vectors.iter().position(|&i| i == v).map_or(0, |i| i as u8 + 1);
                live.vectors = live.vectors.max(behind);
            }
            Place::Stack(_) => {}
        }
    }
    live
}

/// The places that are still free while values are placed one after the other.
pub struct Places {
    regs: &'static [Reg],
    vectors: &'static [u8],
    /// Bytes of stack already in use.
    pub stack: u32,
}

impl Places {
    /// The places for arguments.
    pub fn args(abi: &'static Abi) -> Places {
        Places { regs: abi.args, vectors: abi.vector_args, stack: 0 }
    }

    /// The places for a result.
    pub fn results(abi: &'static Abi) -> Places {
        Places { regs: abi.rets, vectors: abi.vector_rets, stack: 0 }
    }

    /// The number of free general registers.
    pub fn regs(&self) -> usize {
        self.regs.len()
    }

    /// The number of free vector registers.
    pub fn vectors(&self) -> usize {
        self.vectors.len()
    }

    /// Leave out the next `count` general registers.
    pub fn skip_regs(&mut self, count: usize) {
        self.regs = self.regs.get(count..).unwrap_or_default();
    }

    /// Leave out the next `count` vector registers.
    pub fn skip_vectors(&mut self, count: usize) {
        self.vectors = self.vectors.get(count..).unwrap_or_default();
    }

    /// The next general register, or none, for bytes of a value.
    pub fn reg(&mut self, offset: u32, size: u32) -> Option<Piece> {
        let (&reg, rest) = self.regs.split_first()?;
        self.regs = rest;
        Some(Piece { place: Place::Reg(reg), offset, size })
    }

    /// The next vector register, or none, for bytes of a value.
    pub fn vector(&mut self, offset: u32, size: u32) -> Option<Piece> {
        let (&vector, rest) = self.vectors.split_first()?;
        self.vectors = rest;
        Some(Piece { place: Place::Vector(vector), offset, size })
    }

    /// The next stack slot for bytes of a value: whole words.
    pub fn slot(&mut self, offset: u32, size: u32, align: u32) -> Piece {
        let at = self.stack.next_multiple_of(align.max(8));
        self.stack = at + size.next_multiple_of(8);
        Piece { place: Place::Stack(at), offset, size }
    }

    /// The words of a value, each in a general register, or on the stack when there is none left.
    pub fn words(&mut self, value: &Type) -> Vec<Piece> {
        if self.regs() == 0 {
            return vec![self.slot(0, value.size(), value.align())];
        }
        let word = |offset: u32| (offset, (value.size() - offset).min(8));
        let words = (0..value.size()).step_by(8).map(word);
        words.map(|(offset, size)| self.reg(offset, size).unwrap_or_else(|| self.slot(offset, size, 8))).collect()
    }
}
