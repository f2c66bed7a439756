//! Effects of instructions, for unwind tables, costs, mutants and the symbolic checker. Each architecture defines its own.

use crate::effect::action::Action;
use crate::words::abi::Reg;
use crate::words::step::Local;

/// The effect of an instruction on SP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpEffect {
    /// Nothing.
    None,
    /// SP moves by this many bytes.
    Move(i32),
    /// A register becomes SP plus this.
    CopyTo(Reg, i32),
    /// SP becomes a register plus this.
    CopyFrom(Reg, i32),
    /// SP is rounded down, or gets an unknown value: its distance from SP at the entry is no longer known.
    Realign,
}

/// Where control goes after an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// To the next line.
    Next,
    /// To the next line or to a label.
    Branch(Local),
    /// To a function that returns to the next line.
    Call,
    /// To a label.
    Jump(Local),
    /// Out of the trampoline.
    Leave,
    /// Nowhere: it stops speculation.
    Trap,
}

/// One register in a stack slot, or two in adjacent slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slots {
    /// The register in the lower slot.
    pub first: Reg,
    /// The register in the next slot.
    pub second: Option<Reg>,
    /// Bytes from SP to the lower slot.
    pub at: i32,
}

impl Slots {
    /// Each register with the bytes from SP to its slot.
    pub fn iter(self) -> impl Iterator<Item = (Reg, i32)> {
        std::iter::once((self.first, self.at)).chain(self.second.map(|r| (r, self.at + 8)))
    }
}

/// The registers that an instruction copies, unchanged, to other registers or to the stack, or loads from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moves {
    /// None.
    None,
    /// Registers stored to stack slots. Offsets are from SP after the instruction.
    Store(Slots),
    /// Registers loaded from stack slots. Offsets are from SP before the instruction.
    Load(Slots),
    /// To another register.
    Copy {
        /// The register that is written.
        dst: Reg,
        /// The register that is read.
        src: Reg,
    },
}

/// The effects of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effects {
    /// Effect on SP.
    pub sp: SpEffect,
    /// Registers stored to the stack, loaded from it, or copied.
    pub moves: Moves,
    /// 8-byte memory slots read, including a return's pop.
    pub loads: u16,
    /// 8-byte memory slots written, including a call's push.
    pub stores: u16,
    /// The flow of control after the instruction.
    pub flow: Flow,
    /// The number of instructions that the CPU executes: one line of assembly may be several.
    pub executed: u8,
    /// Other effects on values.
    pub action: Action,
    /// The instruction clobbers the flags.
    pub changes_flags: bool,
}

impl Effects {
    /// An instruction that touches registers only and goes on.
    pub const PLAIN: Effects = Effects {
        sp: SpEffect::None,
        moves: Moves::None,
        loads: 0,
        stores: 0,
        flow: Flow::Next,
        executed: 1,
        action: Action::None,
        changes_flags: false,
    };

    /// [`Effects::PLAIN`] with another flow.
    pub const fn flow(flow: Flow) -> Effects {
        Effects { flow, ..Effects::PLAIN }
    }

    /// [`Effects::PLAIN`] with another effect on SP.
    pub const fn sp(sp: SpEffect) -> Effects {
        Effects { sp, ..Effects::PLAIN }
    }

    /// A copy of one register to another.
    pub const fn copy(dst: Reg, src: Reg) -> Effects {
        Effects { moves: Moves::Copy { dst, src }, ..Effects::PLAIN }
    }

    /// A store of one register to the stack.
    pub const fn store(reg: Reg, at: i32) -> Effects {
        Effects { moves: Moves::Store(Slots { first: reg, second: None, at }), stores: 1, ..Effects::PLAIN }
    }

    /// A load of one register from the stack.
    pub const fn load(reg: Reg, at: i32) -> Effects {
        Effects { moves: Moves::Load(Slots { first: reg, second: None, at }), loads: 1, ..Effects::PLAIN }
    }

    /// A store of two registers to adjacent slots.
    pub const fn store2(a: Reg, b: Reg, at: i32) -> Effects {
        Effects { moves: Moves::Store(Slots { first: a, second: Some(b), at }), stores: 2, ..Effects::PLAIN }
    }

    /// A load of two registers from adjacent slots.
    pub const fn load2(a: Reg, b: Reg, at: i32) -> Effects {
        Effects { moves: Moves::Load(Slots { first: a, second: Some(b), at }), loads: 2, ..Effects::PLAIN }
    }
}

impl Effects {
    /// [`Effects::PLAIN`] with this action.
    pub const fn action(action: Action) -> Effects {
        Effects { action, ..Effects::PLAIN }
    }

    /// These effects, and this action.
    pub const fn and(self, action: Action) -> Effects {
        Effects { action, ..self }
    }

    /// These effects, and clobbered flags.
    pub const fn changing_flags(self) -> Effects {
        Effects { changes_flags: true, ..self }
    }
}

/// The unwind rules at a trampoline's first instruction, if they differ from those of a C function.
#[derive(Clone, Copy, Default, Debug)]
pub struct CfiEntry {
    /// The column of the return address.
    pub column: u16,
    /// CFA minus SP at entry.
    pub cfa_offset: i32,
    /// Columns whose value is in another register at entry: (column, register).
    pub moved: &'static [(u16, Reg)],
    /// The return address is undefined.
    pub undefined: bool,
    /// The return address is not behind a call, but the address where the function goes on: unwinders look up the address
    /// itself, not the one before it.
    pub signal: bool,
}
