//! What an instruction does to the stack pointer and to return addresses. Whoever follows these moves along a function's paths knows
//! where each return leads, without a run.

use crate::words::abi::Reg;

/// One effect of an instruction; an instruction has as many as it takes, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// `to` becomes `from` plus a number.
    Add {
        /// The register that is written.
        to: Reg,
        /// The register that is read.
        from: Reg,
        /// The number.
        plus: i64,
    },
    /// `to` becomes a number.
    Number {
        /// The register that is written.
        to: Reg,
        /// The number.
        value: i64,
    },
    /// `to` becomes `from` plus or minus another register.
    Sum {
        /// The register that is written.
        to: Reg,
        /// The register that is read.
        from: Reg,
        /// The register that is added or taken away.
        by: Reg,
        /// It is taken away.
        minus: bool,
    },
    /// The register is rounded down to a multiple.
    Align(Reg),
    /// `to` becomes eight bytes of memory.
    Load {
        /// The register that is written.
        to: Reg,
        /// The register with an address.
        at: Reg,
        /// Bytes from there.
        plus: i64,
    },
    /// Bytes of memory are written.
    Store {
        /// All eight bytes of this register; `None` if other bytes are.
        what: Option<Reg>,
        /// The register with an address.
        at: Reg,
        /// Bytes from there.
        plus: i64,
        /// How many are written.
        bytes: u8,
    },
    /// Two registers change places.
    Swap(Reg, Reg),
    /// The register gets a value that is not followed.
    Lose(Reg),
    /// The return address in the register is signed.
    Sign(Reg, Seal),
    /// Its signature is checked and taken away.
    Authenticate(Reg, Seal),
    /// The register is pushed onto the shadow stack too.
    Push(Reg),
    /// What the shadow stack has last is popped and compared with the register.
    PopCheck(Reg),
    /// The register is stored to the shadow call stack.
    PushScs(Reg),
    /// The register gets what the shadow call stack has last.
    PopScs(Reg),
    /// The shadow stack's pointer is moved, or the stack is written to.
    ShadowPointer,
    /// The shadow stack's pointer is read.
    ShadowRead,
    /// Nothing comes behind the instruction: it traps or stops.
    Stop,
}

/// What guards a return address: where it is checked with another seal, the check fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seal {
    /// The key of the signature.
    pub key: Key,
    /// What else it is made of.
    pub modifier: Modifier,
}

/// One of the keys for instruction addresses: Arm ARM D8.10.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are the manual's")]
pub enum Key {
    A,
    B,
}

/// What a signature is made of besides the address and the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Modifier {
    /// SP.
    Sp,
    /// 0.
    Zero,
    /// A general register, whichever.
    Register,
}

/// A number as Capstone writes it: those below ten without 0x, those of some architectures behind #.
pub fn number(text: &str) -> Option<i64> {
    let text = text.strip_prefix('#').unwrap_or(text);
    let (text, negative) = text.strip_prefix('-').map_or((text, false), |text| (text, true));
    let value = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?.cast_signed(),
        None => text.parse().ok()?,
    };
    Some(if negative { value.wrapping_neg() } else { value })
}
