//! What became of registers, and where they are promised.

use std::collections::BTreeSet;

use emu_tests::{RegisterFate, Report, Survival, Verdict};

use super::rows::unique;

/// Promised, and it had its value every time.
pub const KEPT: char = 'k';
/// Promised and lost, and a clause fails.
pub const LOST: char = 'L';
/// Promised and lost, as the contract says.
pub const DEVIATES: char = 'd';
/// Promised in some cases, and kept in those.
pub const SOMETIMES: char = 'o';
/// Not promised, and it changed.
const FREE: char = '.';
/// Not promised, and it did not change.
const SAME: char = '=';
/// Nothing ran.
const UNKNOWN: char = ' ';

/// The letters with what they mean.
pub const LEGEND: [(char, &str); 6] = [
    (KEPT, "promised, and had its value every time"),
    (LOST, "promised and lost: a clause fails"),
    (DEVIATES, "promised and lost, as the contract says with a reason"),
    (SOMETIMES, "promised in some cases, which are named, and kept in these"),
    (FREE, "the contract lets it go, and it changed"),
    (SAME, "the contract lets it go, and it did not change"),
];

/// What became of a register, as a letter.
pub fn letter(report: &Report, survival: &Survival, name: &str, fate: RegisterFate) -> char {
    let place = format!("{name}@");
    let fails = || {
        let of = report.results.iter().filter(|r| (&r.arch, &r.trampoline) == (&survival.arch, &survival.trampoline));
        let mut failing = of.filter(|r| r.verdict == Verdict::Fail);
        failing.any(|r| r.places.iter().any(|at| at.starts_with(&place)))
    };
    match fate {
        RegisterFate { kept: 0, changed: 0, .. } => UNKNOWN,
        RegisterFate { lost: 1.., .. } if fails() => LOST,
        RegisterFate { lost: 1.., .. } => DEVIATES,
        RegisterFate { promised: true, changed: 0, .. } => KEPT,
        RegisterFate { promised: true, .. } => SOMETIMES,
        RegisterFate { changed: 0, .. } => SAME,
        RegisterFate { .. } => FREE,
    }
}

/// Where a register is promised that is not promised everywhere: on which way out, under which options.
pub fn when(survival: &Survival, name: &str) -> String {
    let has = |registers: &str| registers.split(' ').any(|r| r == name);
    let mut told = Vec::new();
    let all: BTreeSet<&str> = survival.promises.iter().flat_map(|p| p.options.iter().map(String::as_str)).collect();
    let ways = unique(survival.promises.iter().map(|p| p.way.as_str()));
    for way in &ways {
        let of = || survival.promises.iter().filter(|p| p.way == *way);
        let with: BTreeSet<&str> = of().filter(|p| has(&p.registers)).flat_map(|p| &p.options).map(|o| &**o).collect();
        let without: BTreeSet<&str> =
            of().flat_map(|p| &p.options).map(|o| &**o).filter(|o| !with.contains(o)).collect();
        if with.is_empty() {
            continue;
        }
        let on = if ways.len() > 1 { format!("on the way {way}") } else { String::new() };
        let under = if without.is_empty() { String::new() } else { under(&with, &without, all.len()) };
        told.push([on, under].into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join(" "));
    }
    told.retain(|t| !t.is_empty());
    if told.is_empty() { "unless a trampoline before it lets it go".to_owned() } else { told.join(", and ") }
}

/// What sets of options have in common that the others have not.
fn under(with: &BTreeSet<&str>, without: &BTreeSet<&str>, all: usize) -> String {
    let values =
        |options: &str| options.split([' ', ',']).filter(|v| !v.is_empty()).map(str::to_owned).collect::<BTreeSet<_>>();
    let mut common = with.iter().map(|o| values(o));
    let first = common.next().unwrap_or_default();
    let common = common.fold(first, |common, next| common.intersection(&next).cloned().collect());
    let telling = common.iter().find(|value| without.iter().all(|o| !values(o).contains(*value)));
    match telling {
        Some(value) => format!("under {value}"),
        None => format!("under {} of {all} sets of options", with.len()),
    }
}

#[cfg(test)]
mod tests {
    use emu_tests::Promise;

    use super::*;

    fn survival(promises: &[(&str, &str, &[&str])]) -> Survival {
        let promise = |(way, registers, options): &(&str, &str, &[&str])| Promise {
            way: (*way).to_owned(),
            registers: (*registers).to_owned(),
            options: options.iter().map(|o| (*o).to_owned()).collect(),
        };
        let promises = promises.iter().map(promise).collect();
        Survival { arch: "x".to_owned(), trampoline: "t".to_owned(), registers: Default::default(), promises }
    }

    #[test]
    fn it_is_told_under_which_option_a_register_is_promised() {
        let two = survival(&[("on", "a0 a1", &["abi=lp64d x=1", "abi=lp64d x=2"]), ("on", "a0", &["abi=lp64 x=1"])]);
        assert_eq!(when(&two, "a1"), "under abi=lp64d");
        let mixed = survival(&[("on", "a0 a1", &["a=1 b=1", "a=2 b=2"]), ("on", "a0", &["a=1 b=2", "a=2 b=1"])]);
        assert_eq!(when(&mixed, "a1"), "under 2 of 4 sets of options");
    }

    #[test]
    fn it_is_told_on_which_way_a_register_is_promised() {
        let ways = survival(&[("to a direct trampoline", "rax", &["o=1"]), ("back", "r11 rax", &["o=1"])]);
        assert_eq!(when(&ways, "r11"), "on the way back");
        let both =
            survival(&[("there", "rax", &["o=1", "o=2"]), ("back", "r11 rax", &["o=2"]), ("back", "rax", &["o=1"])]);
        assert_eq!(when(&both, "r11"), "on the way back under o=2");
    }

    #[test]
    fn nothing_is_called_lost_where_nothing_failed() {
        let report = Report::empty(1);
        let fate = |promised, kept, changed, lost| RegisterFate { kept, changed, promised, lost };
        let letters = [(true, 1, 0, 0), (true, 1, 1, 0), (true, 1, 1, 1), (false, 0, 1, 0), (false, 1, 0, 0)];
        let shown: String =
            letters.iter().map(|&(p, k, c, l)| letter(&report, &survival(&[]), "r", fate(p, k, c, l))).collect();
        assert_eq!(shown, "kod.=");
    }
}
