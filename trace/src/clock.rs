//! From the clock of records to nanoseconds.

use crate::file::ClockPair;

/// Pairs of the two clocks, ascending in both; two at least.
#[derive(Clone, Debug)]
pub struct Timeline {
    pairs: Vec<(u64, u64)>,
    /// Nanoseconds of a tick, from each pair but the last to the next.
    rates: Vec<f64>,
}

impl Timeline {
    /// The line through these pairs. None without two moments. All processes have the CPU's clock in common, so the pairs of all
    /// make one line.
    pub fn new(pairs: &[ClockPair]) -> Option<Timeline> {
        let mut sorted: Vec<(u64, u64)> = pairs.iter().map(|pair| (pair.ticks, pair.monotonic)).collect();
        sorted.sort_unstable();
        let mut pairs: Vec<(u64, u64)> = Vec::new();
        for (ticks, monotonic) in sorted {
            if pairs.last().is_none_or(|last| last.0 < ticks && last.1 < monotonic) {
                pairs.push((ticks, monotonic));
            }
        }
        let rate = |two: &[(u64, u64)]| (two[1].1 - two[0].1) as f64 / (two[1].0 - two[0].0) as f64;
        let rates: Vec<f64> = pairs.windows(2).map(rate).collect();
        (!rates.is_empty()).then_some(Timeline { pairs, rates })
    }

    /// Ticks in a second, between the first pair and the last.
    pub fn frequency(&self) -> u64 {
        let (Some(first), Some(last)) = (self.pairs.first(), self.pairs.last()) else { return 0 };
        let ticks = u128::from(last.0 - first.0) * 1_000_000_000;
        u64::try_from(ticks / u128::from(last.1 - first.1)).unwrap_or(u64::MAX)
    }

    /// Nanoseconds of CLOCK_MONOTONIC. Before the first pair and behind the last, the rate is that of the nearest two. `near` is
    /// the pair before the time that was asked for last: most often it is that of this one.
    pub fn nanoseconds(&self, ticks: u64, near: &mut usize) -> u64 {
        let between = self.pairs.get(*near..).and_then(|pairs| pairs.first_chunk());
        if !between.is_some_and(|[before, after]| before.0 <= ticks && ticks < after.0) {
            *near = self.pairs.partition_point(|pair| pair.0 <= ticks).clamp(1, self.rates.len()) - 1;
        }
        let ((t0, n0), rate) = (self.pairs[*near], self.rates[*near]);
        match ticks.checked_sub(t0) {
            Some(since) => n0.saturating_add((since as f64 * rate) as u64),
            None => n0.saturating_sub(((t0 - ticks) as f64 * rate) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(pairs: &[(u64, u64)]) -> Option<Timeline> {
        let pair = |&(ticks, monotonic): &(u64, u64)| ClockPair { pid: 1, ticks, monotonic };
        Timeline::new(&pairs.iter().map(pair).collect::<Vec<_>>())
    }

    #[test]
    fn between_pairs_it_is_linear_and_outside_it_goes_on() {
        let line = line(&[(3000, 2000), (1000, 1000), (4000, 4000)]).unwrap();
        let at = [0, 1000, 2000, 3000, 3500, 4000, 5000].map(|ticks| line.nanoseconds(ticks, &mut 0));
        assert_eq!(at, [500, 1000, 1500, 2000, 3000, 4000, 6000]);
        assert_eq!(line.frequency(), 1_000_000_000);
        assert_eq!(self::line(&[(0, 0), (21, 10), (63, 30)]).unwrap().frequency(), 2_100_000_000);
        let mut near = 0;
        assert_eq!(
            [3500, 3600, 4000, 5000, 1000, 0].map(|ticks| line.nanoseconds(ticks, &mut near)),
            [3000, 3200, 4000, 6000, 1000, 500]
        );
        assert_eq!(line.nanoseconds(u64::MAX, &mut 7), u64::MAX);
    }

    #[test]
    fn one_moment_has_no_rate() {
        assert!(line(&[]).is_none() && line(&[(1, 1), (1, 1)]).is_none() && line(&[(1, 5), (2, 5)]).is_none());
    }
}
