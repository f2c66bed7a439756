//! Names by their hash.

use std::hash::BuildHasher as _;

use rustc_hash::FxBuildHasher;

/// The hash of a name, for tables with numbers instead of names, which are small enough for a cache.
pub(crate) fn hash(name: &str) -> u64 {
    FxBuildHasher.hash_one(name)
}
