// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many faults were put, and what came of them.

use std::collections::BTreeMap;

/// What came of a fault.
#[derive(Default)]
pub struct Count {
    pub put: usize,
    /// Something was claimed.
    pub noticed: usize,
    /// What the fault is was claimed.
    pub named: usize,
    pub missed: Vec<String>,
    of_package: BTreeMap<String, usize>,
}

/// Counts, by fault and architecture.
pub struct Counts {
    /// So many of each are enough, and so many of one package.
    pub functions: usize,
    pub of_one: usize,
    pub all: BTreeMap<(String, String), Count>,
}

impl Counts {
    /// Is there enough of a fault, at all or of a package?
    pub fn is_full(&self, (fault, arch): (&str, &str), package: &str) -> bool {
        let count = self.all.get(&(fault.to_owned(), arch.to_owned()));
        let of_one = |count: &Count| count.of_package.get(package).is_some_and(|n| *n >= self.of_one);
        count.is_some_and(|count| count.put >= self.functions || of_one(count))
    }

    /// A fault was put somewhere in a package; these were claimed, and one of them is what it is.
    pub fn add(&mut self, (fault, arch): (&str, &str), package: &str, place: &str, claimed: &[String], is_named: bool) {
        let count = self.all.entry((fault.to_owned(), arch.to_owned())).or_default();
        count.put += 1;
        *count.of_package.entry(package.to_owned()).or_default() += 1;
        count.noticed += usize::from(!claimed.is_empty());
        if is_named {
            count.named += 1;
        } else {
            eprintln!("not claimed: {fault}: {place}");
            count.missed.push(format!("{package} {place}: {}", claimed.join(", ")));
        }
    }
}
