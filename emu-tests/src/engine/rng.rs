//! Seeded values: a failure must come again with its seed.

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators").
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// A generator for one purpose of one case.
    pub fn new(seed: u64, purpose: u64) -> Rng {
        let mut rng = Rng(seed ^ purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        rng.next();
        rng
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A value whose halves differ and are neither 0 nor all ones: truncation and extension show.
    pub fn canary(&mut self) -> u64 {
        loop {
            let value = self.next();
            let (high, low) = ((value >> 32) as u32, value as u32);
            if high != low && ![0, u32::MAX].contains(&high) && ![0, u32::MAX].contains(&low) {
                return value;
            }
        }
    }

    pub fn vector(&mut self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.canary().to_le_bytes());
        bytes[8..].copy_from_slice(&self.canary().to_le_bytes());
        bytes
    }
}
