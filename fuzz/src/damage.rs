//! Inputs that are nearly right: seeds, damaged at random but the same for the same number.

/// Choices that a number decides (SplitMix64).
pub struct Rng(pub u64);

impl Rng {
    /// A number below `n`; 0 if there is none.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }

    /// One to four times: cut off, flip a bit, put a number at an edge of its range, put in a part of another seed.
    pub fn damage(&mut self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            match self.below(8) {
                0 => bytes.truncate(at),
                1..4 => bytes.iter_mut().skip(at).take(1).for_each(|b| *b ^= 1 << self.below(8)),
                4..7 => {
                    let edge = [0, 1, 0x7fff_ffff, 0xffff_ffff, u64::MAX >> 1, u64::MAX - 7, u64::MAX][self.below(7)];
                    let field = bytes.iter_mut().skip(at & !7).take([1, 2, 4, 8][self.below(4)]);
                    field.zip(edge.to_le_bytes()).for_each(|(b, new)| *b = new);
                }
                _ => {
                    let other = &seeds[self.below(seeds.len())];
                    let from = self.below(other.len());
                    let part = &other[from..from + self.below(other.len() - from)];
                    let over = if self.below(2) == 0 { part.len().min(bytes.len() - at) } else { 0 };
                    bytes.splice(at..at + over, part.iter().copied());
                }
            }
        }
    }

    /// One to three times: a line goes, comes twice or comes from another seed; a number or a quoted word becomes another.
    pub fn damage_text(&mut self, text: &mut String, seeds: &[String]) {
        for _ in 0..=self.below(3) {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            let at = self.below(lines.len());
            let other: Vec<&str> = seeds[self.below(seeds.len())].lines().collect();
            match self.below(8) {
                0 if !lines.is_empty() => drop(lines.remove(at)),
                1 if !lines.is_empty() => lines.insert(at, lines[at].clone()),
                2 if !other.is_empty() => lines.insert(at, other[self.below(other.len())].to_owned()),
                _ => {
                    if let Some(line) = lines.get_mut(at) {
                        *line = self.reworded(line);
                    }
                }
            }
            *text = lines.join("\n") + "\n";
        }
    }

    /// A line with another value in it.
    fn reworded(&mut self, line: &str) -> String {
        const VALUES: [&str; 14] = [
            "0",
            "-1",
            "1",
            "255",
            "65536",
            "4294967295",
            "9223372036854775807",
            "18446744073709551615",
            "0x7fffffffffffffff",
            "\"\"",
            "\"a\\u0000b\"",
            "[]",
            "{}",
            "true",
        ];
        let is_word = |c: char| c.is_ascii_alphanumeric() || "_-\"".contains(c);
        let words: Vec<&str> = line.split(|c| !is_word(c)).filter(|word| !word.is_empty()).collect();
        match words.get(self.below(words.len())) {
            Some(word) => line.replacen(word, VALUES[self.below(VALUES.len())], 1),
            None => VALUES[self.below(VALUES.len())].to_owned(),
        }
    }
}
