//! Proofs about handlers and vector registers.

/// The result of an attempt to prove that a function leaves vector registers alone.
pub enum Proof {
    /// No code that it may run touches a vector register.
    Holds,
    /// Some code may touch one: the text says which.
    Fails(String),
}

impl Proof {
    /// Is it proven? Without an object there is no proof.
    pub fn holds(proof: Option<&Proof>) -> bool {
        matches!(proof, Some(Proof::Holds))
    }
}
