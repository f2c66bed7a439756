//! Landing pads, and the indirect branches that check for them.

/// The type of an indirect branch that a landing pad checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IndirectBranch {
    /// A call.
    Call,
    /// A jump.
    Jump,
    /// A jump through a register that linkers use for long calls (arm64: x16, x17).
    Veneer,
}

/// A landing pad.
#[derive(Debug)]
pub struct Pad {
    /// The instruction.
    pub bytes: &'static [u8],
    /// The indirect branches that may reach the landing pad.
    pub lets: &'static [IndirectBranch],
}
