//! Clauses that need runs of their own, or none.

pub mod compare;
pub mod displaced;
pub mod entered;
pub mod exceptions;
pub mod guard;
pub mod marks;
pub mod reach;
pub mod reading;
pub mod retire;
pub mod shadow_mismatch;
pub mod signals;
pub mod site;
pub mod size;
pub mod walk;
