//! Instructions that the checker runs in the engine's place: the engine has all of them that trampolines need.

use codegen::machine::Lent;

/// None.
pub(crate) const LENT: Lent = Lent::NONE;
