//! Ways of two trampolines that belong together, where one has a way that the other has not.

use std::collections::BTreeSet;

use super::case::Case;
use super::difference::{Difference, Found, Severity};
use super::observed::{Observed, Way};
use super::spot::Spot;

/// One of the two as it is where it does not take the way that only it has, and what is to be said of that way.
pub(super) struct Apart {
    /// It is the right one.
    pub right: bool,
    /// Without that way.
    pub observed: Observed,
    /// Cases in which it takes that way all the same.
    pub taken: BTreeSet<Case>,
    /// What is to be said.
    pub difference: Difference,
}

/// A way that leads past all calls is no other version of one that makes some: it is one more.
pub(super) fn apart(left: &Observed, right: &Observed) -> Option<Apart> {
    let (l, r) = (left.path.first()?, right.path.first()?);
    let (more, fewer, is_right) = match (l.call.is_empty(), r.call.is_empty()) {
        (false, true) => (l, right, true),
        (true, false) => (r, left, false),
        _ => return None,
    };
    let past = fewer.path.first()?;
    let base = fewer.path.iter().find(|way| way.call.len() == more.call.len())?.when.clone();
    let mut taken = BTreeSet::new();
    let mut kept = |ways: &[Way]| -> Vec<Way> {
        let each = ways.iter().filter_map(|way| {
            let when = way.when.after(&base)?;
            if way.call.is_empty() {
                taken.insert(when);
                return None;
            }
            Some(Way { when, ..way.clone() })
        });
        each.collect()
    };
    let observed = Observed { path: kept(&fewer.path), variants: kept(&fewer.variants), ..fewer.clone() };
    let at = Some(past.leave.at);
    let (left, right) = if is_right { (None, at) } else { (at, None) };
    let goes = Found::End(past.leave.end.clone());
    let (was, is) = if is_right { (Found::Nothing, goes) } else { (goes, Found::Nothing) };
    let (severity, spots) = (Severity::BreaksTracedCode, vec![Spot::WayPast(base)]);
    let difference = Difference { spots, severity, better: false, when: Vec::new(), was, is, left, right };
    Some(Apart { right: is_right, observed, taken, difference })
}
