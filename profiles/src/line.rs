//! From a path inside a profile to the line of its text.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A step of a path: the key of a table, or the index into an array.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

impl From<&str> for Step {
    fn from(key: &str) -> Step {
        Step::Key(key.to_owned())
    }
}

impl From<usize> for Step {
    fn from(index: usize) -> Step {
        Step::Index(index)
    }
}

/// The line of `text`, from 1, with the value at `path`, and whether all of the path was found.
pub(crate) fn of(text: &str, path: &[Step]) -> Option<(usize, bool)> {
    let table = DeTable::parse(text).ok()?;
    let (mut at, mut found) = (0, 0);
    let mut inside = match path.first() {
        Some(Step::Key(key)) => entry(table.get_ref(), key),
        _ => None,
    };
    while let Some((start, value)) = inside {
        (at, found) = (start, found + 1);
        inside = match (path.get(found), value.get_ref()) {
            (Some(Step::Key(key)), DeValue::Table(table)) => entry(table, key),
            (Some(Step::Index(i)), DeValue::Array(array)) => array.get(*i).map(|v| (v.span().start, v)),
            _ => None,
        };
    }
    (found > 0).then(|| (line(text, at), found == path.len()))
}

/// The offset of an entry's key, and its value.
fn entry<'t, 'i>(table: &'t DeTable<'i>, key: &str) -> Option<(usize, &'t Spanned<DeValue<'i>>)> {
    table.iter().find(|(k, _)| k.get_ref() == key).map(|(k, v)| (k.span().start, v))
}

/// The line that byte `at` is in, from 1.
pub(crate) fn line(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|b| *b == b'\n').count() + 1
}
