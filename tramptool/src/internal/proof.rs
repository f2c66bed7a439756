//! What is proven of handlers.

/// What is known of a function and vector registers.
pub enum Proof {
    /// Nothing that it may run touches one.
    Holds,
    /// Something may, and what.
    Fails(String),
}

impl Proof {
    /// Is it proven? Without an object it is not.
    pub fn holds(proof: Option<&Proof>) -> bool {
        matches!(proof, Some(Proof::Holds))
    }
}
