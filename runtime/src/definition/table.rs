//! The probes that are defined.

use super::argument::number;
use super::line::{Definition, parse_names};
use super::machine::{Machine, words};
use super::problem::{Problem, Refused};

/// The effect of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done<'d> {
    /// Nothing: the line is empty, or a comment.
    Nothing,
    /// The line defined this probe.
    Defined(Definition<'d>),
    /// The line deleted this many probes.
    Deleted(usize),
}

/// The probes that are defined, in the order of their definition, up to `N`.
#[derive(Clone, Debug)]
pub struct Definitions<'d, const N: usize> {
    list: [Option<Definition<'d>>; N],
}

impl<const N: usize> Default for Definitions<'_, N> {
    fn default() -> Self {
        Self { list: [None; N] }
    }
}

impl<'d, const N: usize> Definitions<'d, N> {
    /// All probes.
    pub fn iter(&self) -> impl Iterator<Item = &Definition<'d>> {
        self.list.iter().flatten()
    }

    /// Delete all probes, as truncating the kernel's file does.
    pub fn clear(&mut self) {
        self.list = [None; N];
    }

    /// Execute a line: define or delete probes.
    ///
    /// # Errors
    /// The line is refused; the error has the problem and its column.
    pub fn line(&mut self, line: &'d str, machine: &dyn Machine) -> Result<Done<'d>, Refused> {
        let Some(head) = words(line).next() else { return Ok(Done::Nothing) };
        if let Some(names) = head.strip_prefix('-') {
            return self.delete(names).map(Done::Deleted);
        }
        let definition = Definition::parse(line, machine)?;
        let events = self.iter().filter(|d| d.event == definition.event && d.group == definition.group);
        for other in events {
            agree(other, &definition, machine)?;
        }
        let free = self.list.iter_mut().find(|d| d.is_none());
        *free.ok_or(Refused { problem: Problem::TooManyDefinitions, column: 0 })? = Some(definition);
        Ok(Done::Defined(definition))
    }

    fn delete(&mut self, names: &str) -> Result<usize, Refused> {
        let names = names.strip_prefix(':').ok_or(Refused { problem: Problem::NoType, column: 0 })?;
        let (group, event) = parse_names(names, 2)?;
        let before = self.iter().count();
        for place in &mut self.list {
            let is_it = |d: &Definition| group.is_none_or(|g| g == d.group) && event.is_none_or(|e| e == d.event);
            if place.as_ref().is_some_and(is_it) {
                *place = None;
            }
        }
        // The order of definition is the order of the list.
        let mut kept = 0;
        for place in 0..N {
            if self.list[place].is_some() {
                self.list.swap(kept, place);
                kept += 1;
            }
        }
        match before - kept {
            0 => Err(Refused { problem: Problem::UnknownEvent, column: 2 }),
            gone => Ok(gone),
        }
    }
}

/// May both probes have the same event?
fn agree(old: &Definition, new: &Definition, machine: &dyn Machine) -> Result<(), Refused> {
    let refused = |problem, column| Err(Refused { problem, column });
    if core::mem::discriminant(&old.kind) != core::mem::discriminant(&new.kind) {
        return refused(Problem::DiffProbeType, 0);
    }
    let end = new.argument_words().last().map_or(0, |(text, at)| at + text.len());
    let (mut olds, mut news) = (old.arguments(machine), new.arguments(machine));
    let (mut columns, mut index) = (new.argument_words(), 0);
    let mut same = true;
    loop {
        index += 1;
        let column = columns.next().map_or(end, |(_, at)| at);
        let (a, b) = match (olds.next(), news.next()) {
            (None, None) => break,
            (Some(a), Some(b)) => (a, b),
            _ => return refused(Problem::DiffArgType, column),
        };
        let name = |x: Option<&str>, y: Option<&str>| match (x, y) {
            (Some(x), Some(y)) => x == y,
            (None, None) => true,
            (Some(x), None) | (None, Some(x)) => x.strip_prefix("arg").and_then(number) == Some(index),
        };
        if !name(a.name, b.name) || a.kind != b.kind || a.array != b.array {
            return refused(Problem::DiffArgType, column);
        }
        same &= a.text == b.text;
    }
    match same && old.address == new.address {
        true => refused(Problem::SameProbe, 0),
        false => Ok(()),
    }
}
