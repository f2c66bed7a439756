//! What a compiler does in all functions of a shared library: of that, no single function is to be blamed.

use std::collections::BTreeMap;

use super::claim::{Claim, Kind};
use super::function::Judged;
use super::members::Boundary;

/// So many functions of a library, and one of so many, show a compiler's way.
const SEVERAL: usize = 8;
const SHARE: usize = 4;

/// Of libraries many of whose functions have wrong rows where they end, drop those: Clang has none there for RISC-V. Returns how many
/// functions have such.
pub(super) fn without_ends(functions: &mut [Judged]) -> usize {
    let mut libraries: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    let is_end = |claim: &Claim| claim.kind == Kind::C5 && claim.at_end;
    let has = |function: &Judged| function.claims.iter().any(is_end);
    for function in functions.iter().filter(|f| f.boundary == Boundary::Exported && f.not_judged.is_none()) {
        let [all, wrong] = libraries.entry(function.member.clone()).or_default();
        (*all, *wrong) = (*all + 1, *wrong + usize::from(has(function)));
    }
    libraries.retain(|_, [all, wrong]| *wrong >= SEVERAL && SHARE * *wrong >= *all);
    let mut dropped = 0;
    for function in functions.iter_mut().filter(|f| has(f) && libraries.contains_key(&f.member)) {
        function.claims.retain(|claim| !is_end(claim));
        dropped += 1;
    }
    dropped
}
