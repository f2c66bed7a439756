// SPDX-License-Identifier: MIT OR Apache-2.0
//! What came of a program under a tool.

use std::collections::BTreeMap;
use std::fmt;

/// Calls of each function.
pub type Calls = BTreeMap<String, u64>;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Code(i32),
    Signal(i32),
    TimedOut,
}

/// What a program did alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alone {
    pub text: String,
    pub calls: Calls,
}

/// In this order: whatever comes later is worse.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Right,
    /// How many functions of how many, and why the first one.
    Refuses(usize, usize, String),
    /// No hook was called, of those that come and go.
    Idle,
    /// Calls that are not in the recording, those that are there and were not made, and how many were made.
    Miscounts(u64, u64, u64),
    /// The exit code, if that is wrong too.
    Wrong(Option<i32>),
    Hangs,
    Crashes(i32),
}

impl Verdict {
    /// A series of runs ends with it.
    pub fn is_fatal(&self) -> bool {
        matches!(self, Verdict::Hangs | Verdict::Crashes(_))
    }

    /// Of a run: what it printed, the calls that the tool has (none where they say nothing), and why it refused which functions.
    pub fn of(
        alone: &Alone,
        ended: Ended,
        text: &str,
        calls: Option<&Calls>,
        refused: &BTreeMap<String, String>,
    ) -> Verdict {
        match ended {
            Ended::Signal(signal) => return Verdict::Crashes(signal),
            Ended::TimedOut => return Verdict::Hangs,
            Ended::Code(code) if code != 0 => return Verdict::Wrong(Some(code)),
            Ended::Code(_) if text != alone.text => return Verdict::Wrong(None),
            Ended::Code(_) => {}
        }
        let (mut lost, mut more) = (0, 0);
        let known = |name: &String| calls.is_some() && !refused.contains_key(name);
        for (name, made) in alone.calls.iter().filter(|(name, _)| known(name)) {
            let recorded = calls.and_then(|calls| calls.get(name)).copied().unwrap_or(0);
            lost += made.saturating_sub(recorded);
            more += recorded.saturating_sub(*made);
        }
        let mut whys = alone.calls.keys().filter_map(|name| refused.get(name));
        match whys.next() {
            _ if lost + more > 0 => Verdict::Miscounts(lost, more, alone.calls.values().sum()),
            Some(why) => Verdict::Refuses(1 + whys.count(), alone.calls.len(), why.clone()),
            None => Verdict::Right,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Right => write!(f, "right"),
            Verdict::Idle => write!(f, "calls no hook"),
            Verdict::Refuses(some, all, why) => write!(f, "refuses {some} of {all} functions: {why}"),
            Verdict::Miscounts(lost, 0, made) => write!(f, "calls lost ({lost} of {made})"),
            Verdict::Miscounts(0, more, made) => write!(f, "calls invented ({more} beside {made})"),
            Verdict::Miscounts(lost, more, made) => write!(f, "calls lost ({lost} of {made}) and invented ({more})"),
            Verdict::Wrong(None) => write!(f, "wrong output"),
            Verdict::Wrong(Some(code)) => write!(f, "wrong exit code: {code}"),
            Verdict::Hangs => write!(f, "hangs"),
            Verdict::Crashes(signal) => write!(f, "crashes: {}", name(*signal)),
        }
    }
}

/// Those by which programs die.
fn name(signal: i32) -> String {
    let known = [(4, "SIGILL"), (5, "SIGTRAP"), (6, "SIGABRT"), (7, "SIGBUS"), (8, "SIGFPE"), (11, "SIGSEGV")];
    known.iter().find(|(n, _)| *n == signal).map_or_else(|| format!("signal {signal}"), |(_, name)| (*name).to_owned())
}

/// The calls that a program has counted, by what it printed: a result, and a line for each function.
pub fn counted(text: &str) -> Option<Calls> {
    let mut lines = text.lines();
    lines.next()?.strip_prefix("result ")?;
    lines
        .map(|line| line.split_once(' ').and_then(|(name, calls)| Some((name.to_owned(), calls.parse().ok()?))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_the_worst_that_is_seen() {
        let text = "result 3\nleaf 10\nouter 5\n";
        let alone = Alone { text: text.to_owned(), calls: counted(text).unwrap() };
        assert_eq!(alone.calls.get("leaf"), Some(&10));
        let none = BTreeMap::new();
        let refused = BTreeMap::from([("leaf".to_owned(), "too short".to_owned())]);
        let said = |ended, text: &str, calls: Option<[(&str, u64); 2]>, refused: &BTreeMap<String, String>| {
            let calls: Option<Calls> = calls.map(|all| all.map(|(name, n)| (name.to_owned(), n)).into());
            Verdict::of(&alone, ended, text, calls.as_ref(), refused).to_string()
        };
        let all = Some([("leaf", 10), ("outer", 5)]);
        let good = Ended::Code(0);
        assert_eq!(said(good, text, all, &none), "right");
        assert_eq!(said(good, text, None, &none), "right");
        assert_eq!(said(good, text, Some([("leaf", 9), ("outer", 5)]), &none), "calls lost (1 of 15)");
        assert_eq!(
            said(good, text, Some([("other", 9), ("outer", 7)]), &none),
            "calls lost (10 of 15) and invented (2)"
        );
        assert_eq!(
            said(good, text, Some([("leaf", 0), ("outer", 5)]), &refused),
            "refuses 1 of 2 functions: too short"
        );
        assert_eq!(said(good, text, Some([("leaf", 0), ("outer", 4)]), &refused), "calls lost (1 of 15)");
        assert_eq!(said(good, "result 3\n", all, &none), "wrong output");
        assert_eq!(said(Ended::Code(1), text, all, &none), "wrong exit code: 1");
        assert_eq!(said(Ended::TimedOut, text, all, &none), "hangs");
        assert_eq!(said(Ended::Signal(11), text, all, &none), "crashes: SIGSEGV");
        assert!(Verdict::Crashes(6) > Verdict::Hangs && Verdict::Miscounts(1, 0, 2) < Verdict::Wrong(None));
    }
}
