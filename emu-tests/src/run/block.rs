//! Memory of boundaries that is no stack of theirs: what a closure, a runtime or a saved context has; and a second stack.

use codegen::contract::Contract;
use codegen::words::error::Result;

use crate::engine::interface::{Cpu, Holds};
use crate::engine::rng::Rng;

/// Where it begins. As every address of data here it has bits set in both halves.
pub(crate) const BLOCK: u64 = 0x67_8d81_0000;
/// Bytes of it.
pub(crate) const BYTES: u64 = 0x1000;
/// Bytes of the second half, which is the other context's where one has a block of its own.
pub(crate) const HALF: u64 = BYTES / 2;
/// The end of the second stack.
pub(crate) const OTHER_STACK: u64 = 0x67_8d83_0000;
/// Bytes of it.
pub(crate) const STACK: u64 = 0x1_0000;

/// Memory as it was at the call: pieces, each from its address on.
#[derive(Clone, Default, Debug)]
pub(crate) struct Before(Vec<(u64, Vec<u8>)>);

impl Before {
    /// Keep what is in the block, and in these pieces of memory.
    pub(crate) fn of<D>(uc: &Cpu<'_, D>, pieces: impl Iterator<Item = (u64, usize)>) -> Before {
        let kept = |(at, bytes)| {
            let mut all = vec![0; bytes];
            uc.load(at, &mut all).then_some((at, all))
        };
        Before([(BLOCK, BYTES as usize)].into_iter().chain(pieces).filter_map(kept).collect())
    }

    /// The 8 bytes there; `None` if nothing is kept of them.
    pub(crate) fn word(&self, at: u64) -> Option<u64> {
        self.0.iter().find_map(|(from, bytes)| {
            let from = usize::try_from(at.wrapping_sub(*from)).ok()?;
            Some(u64::from_le_bytes(*bytes.get(from..)?.first_chunk()?))
        })
    }
}

/// Map both, if one of these trampolines is a boundary.
///
/// # Errors
/// The engine does not.
pub(crate) fn map_for<D>(uc: &mut Cpu<'_, D>, contracts: &[Contract]) -> Result<()> {
    if !contracts.iter().any(|contract| contract.kind.is_boundary()) {
        return Ok(());
    }
    uc.map(BLOCK, BYTES, Holds::Data)?;
    uc.map(OTHER_STACK - STACK, STACK, Holds::Data)
}

/// What is in both now.
pub(crate) fn take<D>(uc: &Cpu<'_, D>) -> [Vec<u8>; 2] {
    let mut both = [vec![0; BYTES as usize], vec![0; STACK as usize]];
    uc.load(BLOCK, &mut both[0]);
    uc.load(OTHER_STACK - STACK, &mut both[1]);
    both
}

/// Put that back.
pub(crate) fn put<D>(uc: &mut Cpu<'_, D>, [block, stack]: &[Vec<u8>; 2]) {
    uc.store(BLOCK, block);
    uc.store(OTHER_STACK - STACK, stack);
}

/// Is this an address in the second stack, or its end?
pub(crate) fn is_other_stack(at: u64) -> bool {
    OTHER_STACK.wrapping_sub(at) <= STACK
}

/// Fill the block with words that are all different, and the stack with garbage; then put these words, by their offsets, into the block.
pub(crate) fn fill<D>(uc: &mut Cpu<'_, D>, seed: u64, words: &[(u64, u64)]) {
    let mut rng = Rng::new(seed, 0x600);
    let mut bytes = |count: u64| (0..count / 8).flat_map(|_| rng.canary().to_le_bytes()).collect::<Vec<u8>>();
    let (block, stack) = (bytes(BYTES), bytes(STACK));
    uc.store(BLOCK, &block);
    uc.store(OTHER_STACK - STACK, &stack);
    for (offset, value) in words {
        uc.store(BLOCK + offset, &value.to_le_bytes());
    }
}
