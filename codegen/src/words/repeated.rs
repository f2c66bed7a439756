//! Items in a row of which some are those before them again, only further on: what trampolines that differ in their name
//! alone have for relocations and labels. They are in memory once.

/// How much further on the items of the next trampoline are than those of the one before it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Step {
    /// Bytes in the section of the items.
    pub bytes: u32,
    /// Bytes in `.text`.
    pub text: u32,
    /// Local labels.
    pub locals: u32,
    /// Labels of the unwind table.
    pub labels: u32,
}

/// What can stand further on.
pub trait Further: Copy {
    /// The same item, so many steps further on.
    fn further(self, step: &Step, times: u32) -> Self;
}

/// Items, in the order in which they were appended.
#[derive(Debug)]
pub struct Repeated<T> {
    /// All but what is there again.
    items: Vec<T>,
    runs: Vec<Run>,
    /// All that are there again.
    again: usize,
}

/// Items that stand there so many times more, each time a step further on.
#[derive(Clone, Copy, Debug)]
struct Run {
    from: usize,
    to: usize,
    step: Step,
    more: u32,
}

impl<T> Default for Repeated<T> {
    fn default() -> Repeated<T> {
        Repeated { items: Vec::new(), runs: Vec::new(), again: 0 }
    }
}

impl<T: Further> Repeated<T> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.items.len() + self.again
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// All of them, in their order.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        let begins = std::iter::once(0).chain(self.runs.iter().map(|run| run.to));
        let runs = begins.zip(&self.runs).flat_map(move |(begin, run)| {
            let again = (1..=run.more).flat_map(move |times| {
                self.items[run.from..run.to].iter().map(move |item| item.further(&run.step, times))
            });
            self.items[begin..run.to].iter().copied().chain(again)
        });
        runs.chain(self.items[self.runs.last().map_or(0, |run| run.to)..].iter().copied())
    }

    /// How many are in memory: the number in memory of what is appended next.
    pub(crate) fn kept(&self) -> usize {
        self.items.len()
    }

    /// Append one.
    pub(crate) fn push(&mut self, item: T) {
        self.items.push(item);
    }

    /// The last.
    pub(crate) fn last(&self) -> Option<T> {
        let last = *self.items.last()?;
        Some(match self.runs.last() {
            Some(run) if run.to == self.items.len() => last.further(&run.step, run.more),
            _ => last,
        })
    }

    /// Those that were appended from this one in memory on, which are not repeated yet.
    pub(crate) fn kept_from(&mut self, from: usize) -> &mut [T] {
        &mut self.items[from..]
    }

    /// Make room for so many more.
    pub(crate) fn reserve(&mut self, items: usize) {
        self.items.reserve(items);
    }

    /// What was appended from this one in memory on is there once more, a step further on than the last time. The step is the
    /// same each time.
    pub(crate) fn repeat(&mut self, from: usize, step: Step) {
        let to = self.items.len();
        if from == to {
            return;
        }
        self.again += to - from;
        match self.runs.last_mut() {
            Some(last) if last.to == to => last.more += 1,
            _ => self.runs.push(Run { from, to, step, more: 1 }),
        }
    }
}

/// An offset in `.text`.
impl Further for u32 {
    fn further(self, step: &Step, times: u32) -> u32 {
        self + step.text * times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repeats_is_where_it_would_be() {
        let step = Step { text: 16, ..Step::default() };
        let mut labels = Repeated::default();
        [0, 16, 20].into_iter().for_each(|label| labels.push(label));
        (0..2).for_each(|_| labels.repeat(1, step));
        assert_eq!((labels.kept(), labels.last()), (3, Some(52)));
        labels.push(64);
        labels.repeat(4, step);
        labels.repeat(3, Step { text: 1, ..step });
        assert_eq!(labels.last(), Some(65));
        labels.push(99);
        let all: Vec<u32> = labels.iter().collect();
        assert_eq!(all, [0, 16, 20, 32, 36, 48, 52, 64, 65, 99]);
        assert_eq!(labels.len(), all.len());
        assert_eq!(labels.last(), Some(99));
        assert_eq!(Repeated::<u32>::default().iter().count(), 0);
    }
}
