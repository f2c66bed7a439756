//! The shadow call stack of a thread: where code that is compiled for Clang's ShadowCallStack has its return addresses.

use codegen::contract::Contract;
use codegen::words::error::Result;

use crate::engine::cpu::words;
use crate::engine::interface::{Cpu, Holds};
use crate::engine::rng::Rng;
use crate::run::case::Case;

/// Where its register points when a function is called.
pub(crate) const POINTER: u64 = 0x6a_4b57_1000;
/// Bytes of memory on each side.
const SIDE: u64 = 0x1000;
/// Bytes of the callers' entries, which lie below, and of what a call leaves behind above.
pub(crate) const BYTES: usize = 64;

/// Map it, if one of these trampolines uses it.
///
/// # Errors
/// The engine does not.
pub(crate) fn map_for<D>(uc: &mut Cpu<'_, D>, contracts: &[Contract]) -> Result<()> {
    let used = contracts.iter().any(|contract| contract.scs().is_some());
    if used { uc.map(POINTER - SIDE, 2 * SIDE, Holds::Data) } else { Ok(()) }
}

/// The callers' entries.
fn entries(case: &Case) -> Vec<u64> {
    let mut rng = Rng::new(case.seed, 0x5c5);
    (0..BYTES / 8).map(|_| rng.canary()).collect()
}

/// The stack as it is before a run.
pub(crate) fn prepare<D>(case: &Case, uc: &mut Cpu<'_, D>) {
    let bytes: Vec<u8> = entries(case).into_iter().flat_map(u64::to_le_bytes).collect();
    uc.store(POINTER - BYTES as u64, &bytes);
}

/// The first of the callers' entries that a run has changed: what it was, and what it is.
pub(crate) fn changed<D>(case: &Case, uc: &Cpu<'_, D>) -> Option<(u64, u64)> {
    let now = words(uc, POINTER - BYTES as u64, BYTES);
    entries(case).into_iter().zip(now).find(|(before, now)| before != now)
}
