//! Differences that are one change: the same thing of several registers or words.

use super::difference::{Difference, Found};
use super::spot::Spot;

/// Each change once. What is different alike in several registers or words names them all.
pub(super) fn merged(all: Vec<Difference>) -> Vec<Difference> {
    let mut merged: Vec<Difference> = Vec::new();
    for d in all {
        match merged.iter_mut().find(|known| is_one_change(known, &d)) {
            Some(known) => known.spots.extend(d.spots),
            None => merged.push(d),
        }
    }
    merged
}

fn is_one_change(known: &Difference, d: &Difference) -> bool {
    let [Some((l, lname)), Some((r, rname))] = [known, d].map(subject) else { return false };
    let same = |l: &Found, r: &Found| l == r || l.left_in(&lname).is_some_and(|left| Some(left) == r.left_in(&rname));
    std::mem::discriminant(l) == std::mem::discriminant(r)
        && (known.severity, known.better) == (d.severity, d.better)
        && same(&known.was, &d.was)
        && same(&known.is, &d.is)
        && known.when.len() == d.when.len()
        && known.when.iter().zip(&d.when).all(|(l, r)| l.is_about_the_same(&lname, r, &rname))
}

/// The register or the word of the caller that a difference is about, and its name.
fn subject(d: &Difference) -> Option<(&Spot, String)> {
    let spot = d.spots.first()?;
    match spot {
        Spot::Register(name) => Some((spot, (*name).to_owned())),
        Spot::CallerWord(at) => Some((spot, format!("[stack+{at}]"))),
        _ => None,
    }
}
