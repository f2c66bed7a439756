//! Loads and stores of an instruction: RISC-V unprivileged manual, "RV32/64G Instruction Set Listings", "C".

use codegen::arch::bare::Decoded;
use codegen::words::error::{Error, Result};

/// The names of the registers, as programs have them.
const NAMES: [&str; 32] = [
    "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "fp", "s1", "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "s2",
    "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6",
];
/// sp.
const SP: u32 = 2;

/// What an instruction does.
///
/// # Errors
/// It loads or stores, and is none of those that are known here.
pub fn decode(bytes: &[u8], at: u64, register: &dyn Fn(&str) -> u64) -> Result<Decoded> {
    // What lies across the end of memory is not fetched.
    let Some(low) = bytes.first_chunk().map(|half| u16::from_le_bytes(*half)) else { return Ok(Decoded::default()) };
    let (size, known) = match (low & 3, bytes.first_chunk().map(|word| u32::from_le_bytes(*word))) {
        (3, None) => return Ok(Decoded::default()),
        (3, Some(word)) => (4, full(word)),
        _ => (2, Some(compressed(u32::from(low)))),
    };
    let Some(access) = known else {
        return Err(Error::new(format!("what the instruction at {at:#x} loads or stores is not known here")));
    };
    let accesses = access.map_or(Vec::new(), |Access { base, offset, bytes, reads, writes }| {
        let base = NAMES.get(base as usize).map_or(0, |name| register(name));
        let at = base.wrapping_add(offset);
        [(reads, false), (writes, true)]
            .iter()
            .filter(|(does, _)| *does)
            .map(|(_, store)| (at, bytes, *store))
            .collect()
    });
    Ok(Decoded { bytes: size, accesses })
}

/// Register and offset of the address, and what is done there.
struct Access {
    base: u32,
    offset: u64,
    bytes: usize,
    reads: bool,
    writes: bool,
}

impl Access {
    fn of(base: u32, offset: u32, shift: u32, writes: bool) -> Access {
        Access { base, offset: u64::from(offset), bytes: 1 << shift, reads: !writes, writes }
    }
}

/// So many bits of a word, from this one on.
fn bits(word: u32, from: u32, count: u32) -> u32 {
    word >> from & ((1 << count) - 1)
}

/// One of 32 bits: what it does, if it does something; none if that is not known.
fn full(word: u32) -> Option<Option<Access>> {
    let (width, base) = (bits(word, 12, 3), bits(word, 15, 5));
    let (load, store) = ((word as i32 >> 20) as u64, (word as i32 >> 25 << 5) as u64 | u64::from(bits(word, 7, 5)));
    let (offset, shift, reads, writes) = match bits(word, 0, 7) {
        // LOAD, of which the upper half is unsigned.
        0x03 => (load, width & 3, true, false),
        // LOAD-FP and STORE-FP; the other widths are those of vectors.
        0x07 if matches!(width, 1..=4) => (load, width, true, false),
        0x27 if matches!(width, 1..=4) => (store, width, false, true),
        0x07 | 0x27 => return None,
        0x23 => (store, width & 3, false, true),
        // AMO: LR and SC are its functions 2 and 3, loads and stores in order 6 and 7. An SC may come to nothing.
        0x2f => (0, width, !matches!(bits(word, 27, 5), 3 | 7), !matches!(bits(word, 27, 5), 2 | 6)),
        // HLV, HLVX and HSV.
        0x73 if width == 4 && bits(word, 28, 4) == 0b0110 => return None,
        // CBO.ZERO.
        0x0f if width == 2 && bits(word, 20, 12) == 4 => return None,
        _ => return Some(None),
    };
    Some(Some(Access { base, offset, bytes: 1 << shift, reads, writes }))
}

/// One of 16 bits.
fn compressed(word: u32) -> Option<Access> {
    let (width, base) = (bits(word, 13, 3), 8 + bits(word, 7, 3));
    let place = |parts: &[(u32, u32, u32)]| {
        parts.iter().fold(0, |offset, (from, count, to)| offset | bits(word, *from, *count) << to)
    };
    // The lower two bits; the width, whose upper bit is that of a store, and else 1 is D's, 2 a word, 3 a double word.
    match (word & 3, width & 3, width & 4 != 0) {
        // Zcb: C.LBU, C.LH and C.LHU, C.SB, C.SH.
        (0, 0, true) if bits(word, 12, 1) == 0 => match bits(word, 10, 1) {
            0 => Some(Access::of(base, place(&[(6, 1, 0), (5, 1, 1)]), 0, bits(word, 11, 1) == 1)),
            _ => Some(Access::of(base, place(&[(5, 1, 1)]), 1, bits(word, 11, 1) == 1)),
        },
        (_, 0, _) => None,
        (0, 2, store) => Some(Access::of(base, place(&[(6, 1, 2), (10, 3, 3), (5, 1, 6)]), 2, store)),
        (0, _, store) => Some(Access::of(base, place(&[(10, 3, 3), (5, 2, 6)]), 3, store)),
        (2, 2, false) => Some(Access::of(SP, place(&[(4, 3, 2), (12, 1, 5), (2, 2, 6)]), 2, false)),
        (2, _, false) => Some(Access::of(SP, place(&[(5, 2, 3), (12, 1, 5), (2, 3, 6)]), 3, false)),
        (2, 2, true) => Some(Access::of(SP, place(&[(9, 4, 2), (7, 2, 6)]), 2, true)),
        (2, _, true) => Some(Access::of(SP, place(&[(10, 3, 3), (7, 3, 6)]), 3, true)),
        _ => None,
    }
}
