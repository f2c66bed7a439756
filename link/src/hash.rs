//! Names by their hash.

use std::hash::BuildHasher as _;

use rustc_hash::FxBuildHasher;

/// The hash of a name, for tables that have numbers of names in place of the names: they are small enough for a cache.
pub(crate) fn hash(name: &str) -> u64 {
    FxBuildHasher.hash_one(name)
}
