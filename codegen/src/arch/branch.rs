//! The branches that a tracer writes.

/// Of a branch of two instructions, one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Half {
    /// The first.
    First,
    /// The second.
    Second,
}

/// A branch that a tracer writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Branch {
    /// At a site, with the link that trampolines expect.
    SiteCall,
    /// At a site, without one.
    SiteJump,
    /// In a call slot, as a C function is called.
    Slot,
    /// Inside a trampoline, past some of its instructions.
    Past,
    /// To anywhere, from a place of its own at a multiple of 8. The scratch register of the psABI's linkage code is lost.
    Far,
}
