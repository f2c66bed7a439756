//! What of a function is code: by mapping symbols, and by where control goes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use codegen::words::error::Result;

/// The meaning of a mapping symbol of the psABIs of arm64 and RISC-V; `None` if the name is not one.
pub fn mark(name: &str) -> Option<Mark> {
    match name.strip_prefix('$')?.split_at_checked(1)? {
        ("x", _) => Some(Mark::Code),
        ("d", more) if more.is_empty() || more.starts_with('.') => Some(Mark::Data),
        _ => None,
    }
}

/// The contents behind a mapping symbol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// Instructions.
    Code,
    /// Literals.
    Data,
}

/// How an instruction goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The addresses of its bytes.
    pub at: Range<u64>,
    /// Where it goes, if it says so itself.
    pub to: Option<u64>,
    /// What is behind it can be next.
    pub falls: bool,
}

/// The parts of a function's `range` that are code. A function begins with code, and mapping symbols say what follows. Assemblers mark as
/// data what `.byte` and `.word` make; where control comes to it from the beginning, it is code all the same. `steps` decodes a part.
///
/// # Errors
/// Those of `steps`.
pub fn code_in<'s>(
    symbols: impl Iterator<Item = (&'s str, u64)>,
    range: Range<u64>,
    steps: &dyn Fn(Range<u64>) -> Result<Vec<Step>>,
) -> Result<Vec<Range<u64>>> {
    let (mut parts, gaps) = marked(symbols, &range);
    if gaps.is_empty() {
        return Ok(parts);
    }
    let mut known = BTreeMap::new();
    for part in parts.iter().cloned() {
        known.extend(steps(part)?.into_iter().map(|step| (step.at.start, step)));
    }
    let (mut open, mut seen) = (vec![range.start], BTreeSet::new());
    while let Some(at) = open.pop() {
        let gap = gaps.iter().find(|gap| gap.contains(&at));
        if let Some(gap) = gap.filter(|_| !known.contains_key(&at)) {
            for step in steps(at..gap.end)? {
                known.entry(step.at.start).or_insert(step);
            }
        }
        let Some(step) = known.get(&at).filter(|_| seen.insert(at)) else { continue };
        open.extend(step.to.into_iter().chain(step.falls.then_some(step.at.end)).filter(|to| range.contains(to)));
        parts.extend(gap.map(|_| step.at.clone()));
    }
    Ok(joined(parts))
}

/// What mapping symbols say is code, and what they say is data.
fn marked<'s>(symbols: impl Iterator<Item = (&'s str, u64)>, range: &Range<u64>) -> (Vec<Range<u64>>, Vec<Range<u64>>) {
    let inside = symbols.filter(|(_, at)| range.contains(at));
    let mut marks: Vec<(u64, Mark)> = inside.filter_map(|(name, at)| Some((at, mark(name)?))).collect();
    marks.sort_by_key(|(at, _)| *at);
    marks.insert(0, (range.start, Mark::Code));
    let ends = marks.iter().skip(1).map(|(at, _)| *at).chain([range.end]);
    let (mut code, mut data) = (Vec::new(), Vec::new());
    for (&(start, mark), end) in marks.iter().zip(ends) {
        let part = start..end;
        match mark {
            _ if part.is_empty() => {}
            Mark::Code => code.push(part),
            Mark::Data => data.push(part),
        }
    }
    (joined(code), data)
}

/// Ranges in order, with neighbours as one.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut all: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match all.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => all.push(range),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four bytes an instruction: those at `returns` return, those at `jumps` go to an address.
    fn code(symbols: &[(&str, u64)], returns: &[u64], jumps: &[(u64, u64)]) -> Vec<[u64; 2]> {
        let step = |at: u64| Step {
            at: at..at + 4,
            to: jumps.iter().find(|(from, _)| *from == at).map(|(_, to)| *to),
            falls: !returns.contains(&at),
        };
        let steps = |part: Range<u64>| Ok(part.step_by(4).map(step).collect());
        let parts = code_in(symbols.iter().copied(), 0..32, &steps).unwrap();
        parts.into_iter().map(|part| [part.start, part.end]).collect()
    }

    #[test]
    fn literals_behind_a_return_are_data() {
        let all = [("$x", 0), ("$d", 16), ("$x", 24)];
        assert_eq!(code(&all, &[12], &[]), [[0, 16], [24, 32]]);
        assert_eq!(code(&all[..2], &[12], &[]), [[0, 16]]);
        assert_eq!(code(&[], &[12], &[]), [[0, 32]]);
    }

    #[test]
    fn what_control_falls_into_is_code_up_to_its_end() {
        let all = [("$x", 0), ("$d", 8), ("$x", 24)];
        assert_eq!(code(&all, &[28], &[]), [[0, 32]]);
        assert_eq!(code(&all, &[12, 28], &[]), [[0, 16], [24, 32]]);
    }

    #[test]
    fn what_is_jumped_to_is_code() {
        assert_eq!(code(&[("$x", 0), ("$d", 8)], &[4, 20], &[(0, 16)]), [[0, 8], [16, 24]]);
    }

    #[test]
    fn a_function_that_begins_with_data_begins_with_code() {
        assert_eq!(code(&[("$d", 0), ("$x", 8)], &[4], &[]), [[0, 32]]);
        assert_eq!(code(&[("$d", 0)], &[4], &[]), [[0, 8]]);
    }
}
