//! Numbers that one seed decides.

/// splitmix64.
pub struct Chance(u64);

impl Chance {
    /// For a part of what the seed decides.
    pub fn of(seed: u64, parts: &[u64]) -> Chance {
        let mut chance = Chance(seed);
        for part in parts {
            chance.0 = chance.next().wrapping_add(part.wrapping_mul(0xd134_2543_de82_ef95));
        }
        chance
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Less than `most`.
    pub fn below(&mut self, most: usize) -> usize {
        (self.next() % most as u64) as usize
    }

    /// Once in so many times.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}
