//! Nothing: what this crate depends on is what it is for.
