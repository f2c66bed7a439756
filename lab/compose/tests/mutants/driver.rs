//! Judges the core that it is linked with: rare cases, some of all subsets, and random ones. Fails with the first failure.

use tramptool_compose::{OURS, SUBSETS, random, rare, subset};

fn main() {
    let some = (0..SUBSETS / 13).filter_map(|i| subset(i * 13 % SUBSETS, u64::MAX));
    for case in rare().into_iter().chain(some).chain((0..20_000).map(|seed| random(seed, u64::MAX))) {
        if let Some(failure) = OURS.judge(&case) {
            print!("{failure}");
            std::process::exit(1);
        }
    }
}
