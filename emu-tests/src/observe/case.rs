//! What is different in a run from the plain one.

use std::fmt;

use codegen::words::term::{Root, Term};

use super::value::{Offset, Place, Value, text};

/// One thing that is different.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Variation {
    /// A register, or a word of memory, is 0 at the entry.
    Zero(Value),
    /// The call with this number, from 1, returns 0.
    Returns(u16),
    /// That call stores a number to a word; an odd one, if so.
    Stores(u16, Place, bool),
    /// That call stores 0 to it.
    Clears(u16, Place),
}

/// All that is different, in the order in which it was tried; nothing in the plain run.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Case(Vec<Variation>);

impl Variation {
    /// The same where a layout has other numbers for its words.
    fn is_alike(&self, other: &Variation) -> bool {
        match (self, other) {
            (Variation::Zero(l), Variation::Zero(r)) => {
                matches!(l.term().root, Root::Content(_)) && alike(l.term(), r.term())
            }
            (Variation::Stores(l, Place::Stack(_), lodd), Variation::Stores(r, Place::Stack(_), rodd)) => {
                (l, lodd) == (r, rodd)
            }
            (Variation::Clears(l, Place::Stack(_)), Variation::Clears(r, Place::Stack(_))) => l == r,
            _ => false,
        }
    }
}

/// Words that are read in the same way, at other offsets.
fn alike(left: &Term, right: &Term) -> bool {
    match (&left.root, &right.root) {
        (Root::Content(l), Root::Content(r)) => {
            left.part == right.part && l.add.signum() == r.add.signum() && (l.root == r.root || alike(l, r))
        }
        (l, r) => l == r,
    }
}

impl Case {
    /// The plain run.
    pub(super) const PLAIN: Case = Case(Vec::new());

    /// Nothing is unusual.
    pub fn is_plain(&self) -> bool {
        self.0.is_empty()
    }

    /// One thing more.
    pub(super) fn and(&self, variation: Variation) -> Case {
        Case(self.0.iter().cloned().chain([variation]).collect())
    }

    /// Without the last thing; `None` if there is none.
    pub(super) fn base(&self) -> Option<Case> {
        self.0.split_last().map(|(_, base)| Case(base.to_vec()))
    }

    /// What was tried last.
    pub(super) fn last(&self) -> Option<&Variation> {
        self.0.last()
    }

    /// What comes on top of another case; `None` if that is no part of it.
    pub(super) fn after(&self, other: &Case) -> Option<Case> {
        self.0.strip_prefix(other.0.as_slice()).map(|rest| Case(rest.to_vec()))
    }

    /// Does it come on top of another one?
    pub(super) fn is_beyond(&self, other: &Case) -> bool {
        self.0.len() > other.0.len() && self.0.starts_with(&other.0)
    }

    /// A called function brings it about, by a store.
    pub(super) fn is_by_store(&self) -> bool {
        matches!(self.last(), Some(Variation::Stores(..) | Variation::Clears(..)))
    }

    /// Something is 0 in it: then another name is in its place.
    pub(super) fn is_zero(&self) -> bool {
        matches!(self.last(), Some(Variation::Zero(_) | Variation::Returns(_)))
    }

    /// The word of a frame that is stored to, and by which call.
    pub(super) fn field(&self) -> Option<(u16, Offset)> {
        match self.last()? {
            Variation::Stores(call, Place::Frame(at), _) | Variation::Clears(call, Place::Frame(at)) => {
                Some((*call, *at))
            }
            _ => None,
        }
    }

    /// The same with another word of the frame.
    pub(super) fn with_field(&self, at: Offset) -> Case {
        let mut all = self.0.clone();
        if let Some(Variation::Stores(_, place, _) | Variation::Clears(_, place)) = all.last_mut() {
            *place = Place::Frame(at);
        }
        Case(all)
    }

    /// The same words where a layout has other numbers for them: each but those is the same.
    pub(super) fn is_alike(&self, other: &Case) -> bool {
        let pairs = || self.0.iter().zip(&other.0);
        self.0.len() == other.0.len()
            && pairs().all(|(l, r)| l == r || l.is_alike(r))
            && pairs().any(|(l, r)| l.is_alike(r))
    }

    /// The same, whichever word of the frame or register of the entry it is about: `it` is that register.
    pub(super) fn is_about_the_same(&self, it: &str, other: &Case, its: &str) -> bool {
        let same = |l: &Variation, r: &Variation| match (l, r) {
            (Variation::Zero(l), Variation::Zero(r)) => {
                let names = (l.to_string() == it && r.to_string() == its) || (l.is_on_stack() && r.is_on_stack());
                l == r || names
            }
            (Variation::Stores(l, _, lodd), Variation::Stores(r, _, rodd)) => (l, lodd) == (r, rodd),
            (Variation::Clears(l, _), Variation::Clears(r, _)) => l == r,
            (l, r) => l == r,
        };
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(|(l, r)| same(l, r))
    }
}

impl fmt::Display for Variation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, f.alternate()) {
            (Variation::Zero(value), false) => write!(f, "{value} is 0"),
            (Variation::Zero(value), true) => write!(f, "{value:#}=0"),
            (Variation::Returns(call), false) => write!(f, "call {call} returns 0"),
            (Variation::Returns(call), true) => write!(f, "call{call}=0"),
            (Variation::Stores(call, place, false), false) => write!(f, "call {call} stores to {place}"),
            (Variation::Stores(call, place, true), false) => write!(f, "call {call} stores an odd number to {place}"),
            (Variation::Stores(call, place, odd), true) => {
                write!(f, "call{call}.{place:#}=stored{}", if *odd { "+0x1" } else { "" })
            }
            (Variation::Clears(call, place), false) => write!(f, "call {call} clears {place}"),
            (Variation::Clears(call, place), true) => write!(f, "call{call}.{place:#}=0"),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_plain() {
            return f.write_str("plainly");
        }
        for (n, variation) in self.0.iter().enumerate() {
            match (n, f.alternate()) {
                (0, _) => {}
                (_, true) => f.write_str(",")?,
                (_, false) => f.write_str(", and ")?,
            }
            variation.fmt(f)?;
        }
        Ok(())
    }
}

text!(Case);
