//! Flags of users, as bits.

/// The flag of an fprobe with an exit handler.
pub(crate) const EXIT: u64 = 1;
/// The flag of an fprobe that is registered but not called.
pub(crate) const DISABLED: u64 = 2;

/// The properties of an ops, and the registers that it needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub(crate) u64);

impl Flags {
    /// The callback gets arguments only.
    pub const ARGS: Self = Self(0);
    /// The callback gets all registers.
    pub const REGS: Self = Self(1);
    /// The callback may change where the function goes on. A function can have only one such ops.
    pub const IPMODIFY: Self = Self(1 << 1);
    /// A direct call that continues at the address chosen by an IPMODIFY ops, so that both may be on one function.
    pub const SHARE_IPMODIFY: Self = Self(1 << 2);
    pub(crate) const DIRECT: Self = Self(1 << 3);
    pub(crate) const HIJACK: Self = Self(1 << 4);
    pub(crate) const GRAPH: Self = Self(1 << 5);
    pub(crate) const FPROBE: Self = Self(1 << 6);
    pub(crate) const KPROBE: Self = Self(1 << 7);
    /// The flags that a caller may set.
    pub(crate) const ASKED: u64 = Self::REGS.0 | Self::IPMODIFY.0 | Self::SHARE_IPMODIFY.0;

    /// The union of both sets of flags.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Are all flags of `other` set?
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}
