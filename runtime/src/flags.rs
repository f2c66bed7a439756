//! What users are, as bits.

/// An fprobe with an exit handler.
pub(crate) const EXIT: u64 = 1;
/// An fprobe that is there and not called.
pub(crate) const DISABLED: u64 = 2;

/// What an ops is and wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub(crate) u64);

impl Flags {
    /// Arguments only.
    pub const ARGS: Self = Self(0);
    /// All registers.
    pub const REGS: Self = Self(1);
    /// May change where the function goes on. One such ops a function.
    pub const IPMODIFY: Self = Self(1 << 1);
    /// A direct call that goes on where an IPMODIFY ops says, so that both may be on one function.
    pub const SHARE_IPMODIFY: Self = Self(1 << 2);
    pub(crate) const DIRECT: Self = Self(1 << 3);
    pub(crate) const HIJACK: Self = Self(1 << 4);
    pub(crate) const GRAPH: Self = Self(1 << 5);
    pub(crate) const FPROBE: Self = Self(1 << 6);
    pub(crate) const KPROBE: Self = Self(1 << 7);
    /// What a caller may ask for.
    pub(crate) const ASKED: u64 = Self::REGS.0 | Self::IPMODIFY.0 | Self::SHARE_IPMODIFY.0;

    /// Both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Is this one among them?
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}
