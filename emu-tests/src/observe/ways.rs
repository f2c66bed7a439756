//! Ways of two trampolines that belong together, where one has a way that the other has not.

use std::collections::BTreeSet;

use super::difference::{Difference, Severity};
use super::observed::{Observed, Way};

/// What is called so when nothing is unusual.
const PLAINLY: &str = "plainly";

/// One of the two as it is where it does not take the way that only it has, and what is to be said of that way.
pub(super) struct Apart {
    /// It is the right one.
    pub right: bool,
    /// Without that way.
    pub observed: Observed,
    /// Cases in which it takes that way all the same.
    pub taken: BTreeSet<String>,
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
    let start = format!("{base}, and ");
    let mut taken = BTreeSet::new();
    let mut kept = |ways: &[Way]| -> Vec<Way> {
        let each = ways.iter().filter_map(|way| {
            let when = if way.when == base { PLAINLY } else { way.when.strip_prefix(&start)? }.to_owned();
            if way.call.is_empty() {
                taken.insert(when);
                return None;
            }
            Some(Way { when, ..way.clone() })
        });
        each.collect()
    };
    let observed = Observed { path: kept(&fewer.path), variants: kept(&fewer.variants), ..fewer.clone() };
    let goes = format!("it goes to {} by {}, and calls nothing", past.leave.to, past.leave.by);
    let text = if is_right {
        format!("unless {base}, {goes}: a way that was not there. All else is compared without it")
    } else {
        format!("a way is gone: unless {base}, {goes}. All else is compared without it")
    };
    let at = Some(past.leave.at);
    let (left, right) = if is_right { (None, at) } else { (at, None) };
    let severity = Severity::BreaksTracedCode;
    let difference = Difference { severity, better: false, when: Vec::new(), text, left, right };
    Some(Apart { right: is_right, observed, taken, difference })
}
