//! The branches that a tracer writes.

/// One instruction of a branch that has two.
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
    /// At a site, with a return address where trampolines expect it.
    SiteCall,
    /// At a site, without a return address.
    SiteJump,
    /// In a call slot, as a C function is called.
    Slot,
    /// Inside a trampoline, past some of its instructions.
    Past,
    /// To any address, from a place of its own at a multiple of 8. Clobbers the scratch register of the psABI's linkage code.
    Far,
}
