//! Instructions of which only the operands are known: none. What the engine lacks is not run.

use codegen::arch::machine::Lent;

/// The emulation of these instructions.
pub(crate) const OPAQUE: Lent = Lent::NONE;
