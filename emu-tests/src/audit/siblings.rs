//! What functions beside a function do with registers that C lets them change: a family often has a convention of its own.

use std::collections::BTreeMap;

use super::claim::Claim;
use super::function::Judged;
use super::look::HABIT;

/// So many functions beside it have a habit before the lack of it is told.
const SEVERAL: usize = 2;
/// One that keeps so many registers is of such a family.
const SOME: usize = 2;

/// Claim of functions of an object what those beside them keep.
pub(super) fn beside(functions: &mut [Judged]) {
    let mut claims: Vec<(usize, Claim)> = Vec::new();
    for (n, function) in functions.iter().enumerate().filter(|(_, f)| f.habits.keeps.len() >= SOME) {
        let others = functions.iter().enumerate().filter(|(m, f)| *m != n && f.member == function.member);
        let others: Vec<&Judged> = others.map(|(_, f)| f).filter(|f| f.habits.is_habit()).collect();
        for (name, claim) in function.habits.changes.iter().filter(|_| others.len() >= SEVERAL) {
            if others.iter().all(|other| other.habits.keeps.contains(name)) {
                let names: Vec<&str> = others.iter().map(|other| other.symbol.as_str()).take(SEVERAL).collect();
                claims.push((n, Claim { callee: names.join(" and "), runs: 1, ..claim.clone() }));
            }
        }
    }
    for (n, claim) in claims {
        functions[n].claims.push(claim);
    }
}

/// Claim of functions that change many registers what those of the same name for other architectures keep. Each architecture comes with
/// its functions.
pub fn siblings(all: &mut [(&'static str, &mut [Judged])]) {
    let mut keepers: BTreeMap<String, &'static str> = BTreeMap::new();
    for (arch, functions) in all.iter() {
        let keeps = functions.iter().filter(|f| f.habits.is_habit() && f.habits.changes.is_empty());
        keepers.extend(keeps.map(|f| (f.symbol.clone(), *arch)));
    }
    for (arch, functions) in all {
        for function in functions.iter_mut() {
            let habits = &function.habits;
            let Some(other) = keepers.get(&function.symbol).filter(|other| *other != arch) else { continue };
            let Some(first) = habits.changes.values().min_by_key(|claim| claim.offset) else { continue };
            if habits.changes.len() < HABIT || !habits.keeps.is_empty() {
                continue;
            }
            let names: Vec<&str> = habits.changes.keys().copied().collect();
            let (want, got) = (format!("what {other} does, which keeps all"), names.join(", "));
            let claim = Claim { place: "scratch registers".to_owned(), want, got, runs: 1, ..first.clone() };
            function.claims.push(claim);
        }
    }
}
