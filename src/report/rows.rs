//! Rows as all formats need them: in groups, and in lines of text.

use emu_tests::{Failure, Row, Summary, Verdict};

/// Rows that go together, in order of first appearance.
pub struct Group<'r> {
    /// What they have in common.
    pub name: String,
    /// The rows.
    pub rows: Vec<&'r Row>,
}

/// Put rows of the same name together.
pub fn groups<'r>(rows: Vec<&'r Row>, name: impl Fn(&Row) -> String) -> Vec<Group<'r>> {
    let mut groups: Vec<Group> = Vec::new();
    for row in rows {
        let name = name(row);
        // Rows of one group follow each other, but for reports that were put together from others.
        match groups.iter_mut().rev().find(|g| g.name == name) {
            Some(group) => group.rows.push(row),
            None => groups.push(Group { name, rows: vec![row] }),
        }
    }
    groups
}

/// Each name once, in order of first appearance.
pub fn unique<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

/// A row's failures in lines.
pub fn details(row: &Row) -> impl Iterator<Item = String> {
    row.failures.iter().flat_map(explain)
}

/// A failure in lines: what, who wrote it, the code around it, and how to see it again.
pub fn explain(f: &Failure) -> impl Iterator<Item = String> {
    let context = f.context.iter().map(|line| format!("  {line}"));
    std::iter::once(what(f)).chain(writer(f)).chain(context).chain([format!("again: {}", f.replay)])
}

/// What failed.
pub fn what(f: &Failure) -> String {
    format!("{}: expected {}, found {}, at {}", f.place, f.expected, f.found, f.at)
}

/// Who wrote it last, if anybody did.
pub fn writer(f: &Failure) -> Option<String> {
    (!f.last_writer.is_empty()).then(|| format!("last written by {}", f.last_writer))
}

/// How many clauses fare how, in words.
pub fn counts(Summary { pass, fail, deviates, skip, open }: Summary) -> String {
    let left = if open > 0 { format!(", {open} not decided") } else { String::new() };
    format!("{pass} pass, {fail} fail{left}, {deviates} deviate, {skip} not applicable")
}

/// The worst verdict of several option sets: a failure anywhere is a failure.
pub fn worst<'r>(rows: impl Iterator<Item = &'r Row>) -> Option<Verdict> {
    let rank = |v: &Verdict| match v {
        Verdict::Fail => 4,
        Verdict::Open => 3,
        Verdict::Deviates => 2,
        Verdict::Pass => 1,
        Verdict::Skip => 0,
    };
    rows.map(|r| r.verdict).max_by_key(rank)
}
