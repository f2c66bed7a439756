// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which images are judged on all functions, and which on those of one fixture: what the others would show of one, they show of another
//! of its shape.
//!
//! Every image is run. Fixtures differ in how functions and their sites are compiled, and distances in where calls lead; a trampoline
//! meets either by the function's prototype and by how it enters and leaves, not by the programs in between. So the first image of each
//! prototype with each set of flags is judged on all, and the first of each set of kinds of programs. Some of the others are too, so
//! that it shows if this is not so.

use std::collections::BTreeSet;

use super::harness::Written;
use super::judge::Verdict;
use crate::damage::Rng;

/// One of so many images whose shape is known is judged on all functions.
const SAMPLE: usize = 200;

/// The shapes that were seen.
#[derive(Default)]
pub struct Shapes {
    known: BTreeSet<Vec<String>>,
}

impl Shapes {
    /// Is this the first of a shape?
    pub fn is_new(&mut self, written: &Written, contract: &str) -> bool {
        let at = format!("{:#x}", written.at);
        let (programs, others): (Vec<&str>, Vec<&str>) =
            contract.lines().partition(|line| line.starts_with("    { attach"));
        let kinds: BTreeSet<&str> = programs.iter().filter_map(|line| line.split('"').nth(1)).collect();
        let flags = others.iter().copied().filter(|line| line.starts_with("flags"));
        let of_programs = kinds.into_iter().chain(flags).chain([&*at]).map(str::to_owned).collect();
        let others = others.iter().copied().filter(|line| !line.starts_with("labels"));
        let of_others = others.chain([&*at]).map(str::to_owned).collect();
        // Both are noted.
        self.known.insert(of_programs) | self.known.insert(of_others)
    }
}

/// Is one whose shape is known judged on all functions too?
pub fn is_sampled(rng: &mut Rng) -> bool {
    rng.below(SAMPLE) == 0
}

/// What one fixture did not show.
pub fn unlike(one: &Verdict, all: &Verdict) -> Option<String> {
    (one != all).then(|| format!("one fixture shows {one:?}, all show {all:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTRACT: &str = concat!(
        "words = [\"rdi\"]\nflags = [\"CALL_ORIG\"]\nprograms = [\n",
        "    { attach = \"fentry\", cookie = 7 },\n]\nlabels = { a = \"0x1\" }\n"
    );

    fn written(at: u64) -> Written {
        let (flags, programs, labels) = (Vec::new(), [const { Vec::new() }; 3], Vec::new());
        Written { at, code: Vec::new(), flags, programs, im: 0, tramp_enter: 0, tramp_exit: 0, labels }
    }

    #[test]
    fn a_shape_is_new_by_its_prototype_its_flags_its_place_and_its_kinds_of_programs() {
        let mut shapes = Shapes::default();
        let mut is_new = |at, contract: &str| shapes.is_new(&written(at), contract);
        assert!(is_new(1, CONTRACT));
        assert!(!is_new(1, &CONTRACT.replace("cookie = 7", "cookie = 8").replace("0x1", "0x2")), "a constant");
        assert!(is_new(1, &CONTRACT.replace("rdi", "rsi")));
        assert!(is_new(1, &CONTRACT.replace("CALL_ORIG", "IP_ARG")));
        assert!(is_new(1, &CONTRACT.replace("fentry", "fexit")));
        assert!(is_new(2, CONTRACT));
        assert!(!is_new(2, CONTRACT));
    }

    #[test]
    fn what_another_fixture_shows_is_told() {
        let fails = Verdict::Fails(vec!["P16 pc".to_owned()]);
        assert_eq!(unlike(&Verdict::Known, &Verdict::Known), None);
        assert!(unlike(&Verdict::Holds, &Verdict::Known).is_some());
        assert!(unlike(&Verdict::Holds, &fails).is_some_and(|told| told.contains("P16 pc")));
    }
}
