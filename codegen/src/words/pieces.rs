//! Bytes in pieces, of which those that repeat are in memory once: trampolines that differ in their name alone have the same
//! code.

use std::sync::OnceLock;

/// Bytes that were appended in pieces.
#[derive(Default, Debug)]
pub(crate) struct Pieces {
    /// Each piece that is not the same as the one before it, one after the other; behind them what was appended since.
    bytes: Vec<u8>,
    runs: Vec<Run>,
    /// Bytes of all that has ended.
    ended: usize,
    /// All bytes, once somebody has asked for them where some repeat.
    whole: OnceLock<Vec<u8>>,
}

/// A piece that stands so many times in a row.
#[derive(Clone, Copy, Debug)]
struct Run {
    from: usize,
    to: usize,
    times: usize,
}

impl Pieces {
    /// How many bytes there are.
    pub(crate) fn len(&self) -> usize {
        self.ended + self.bytes.len() - self.begun()
    }

    /// Where the piece begins that has not ended.
    fn begun(&self) -> usize {
        self.runs.last().map_or(0, |run| run.to)
    }

    /// Append to the piece that has not ended.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Append this, again and again, until there are so many bytes.
    pub(crate) fn fill(&mut self, with: &[u8], len: usize) {
        let mut missing = len.saturating_sub(self.len());
        if let [byte] = with {
            return self.bytes.resize(self.bytes.len() + missing, *byte);
        }
        while missing > 0 && !with.is_empty() {
            let some = with.len().min(missing);
            self.bytes.extend_from_slice(&with[..some]);
            missing -= some;
        }
    }

    /// The piece ends here.
    pub(crate) fn end(&mut self) {
        let (from, to) = (self.begun(), self.bytes.len());
        self.ended += to - from;
        self.whole = OnceLock::new();
        match self.runs.last_mut() {
            Some(last) if self.bytes[last.from..last.to] == self.bytes[from..to] => {
                last.times += 1;
                self.bytes.truncate(from);
            }
            _ => self.runs.push(Run { from, to, times: 1 }),
        }
    }

    /// Make room for so many more bytes.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// Each piece, with how often it stands there. All have ended.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (&[u8], usize)> {
        self.runs.iter().map(|run| (&self.bytes[run.from..run.to], run.times))
    }

    /// All bytes. All pieces have ended.
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.runs.iter().all(|run| run.times == 1) {
            return &self.bytes;
        }
        self.whole.get_or_init(|| self.runs().map(|(piece, times)| piece.repeat(times)).collect::<Vec<_>>().concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_repeat_are_kept_once_and_all_bytes_are_there() {
        let (mut pieces, mut all) = (Pieces::default(), Vec::new());
        for piece in ["ab", "ab", "ab", "c", "", "", "ab", "abab"] {
            let (first, last) = piece.as_bytes().split_at(piece.len() / 2);
            pieces.extend(first);
            pieces.extend(last);
            all.extend_from_slice(piece.as_bytes());
            assert_eq!(pieces.len(), all.len());
            pieces.end();
            assert_eq!((pieces.len(), pieces.bytes()), (all.len(), &*all));
        }
        let runs: Vec<(&[u8], usize)> = pieces.runs().collect();
        assert_eq!(runs, [(&b"ab"[..], 3), (b"c", 1), (b"", 2), (b"ab", 1), (b"abab", 1)]);
    }
}
