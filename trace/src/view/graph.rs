//! The graph of calls: who called whom, how often, and how long it took.

use std::io::Write;

use codegen::words::error::Result;
use codegen::words::shown::printable;

use crate::recording::{Recording, Unit};
use crate::text::{duration, written};
use crate::tree::Tree;

/// Write the tree.
///
/// # Errors
/// The output has one.
pub fn graph<R>(recording: &Recording<R>, tree: &Tree, out: &mut dyn Write) -> Result<()> {
    let unit = recording.unit();
    let times = |total: &str, own: &str| match unit {
        Unit::Order => String::new(),
        Unit::Nanoseconds | Unit::Ticks => format!("{total:>14}  {own:>14}  "),
    };
    written(writeln!(out, "{}{:>10}  FUNCTION", times("TOTAL", "SELF"), "CALLS"))?;
    for node in tree.walk() {
        let node = &tree.nodes[node];
        let (times, name) =
            (times(&duration(node.total, unit), &duration(node.own, unit)), recording.name(node.function));
        written(writeln!(
            out,
            "{times}{:>10}  {:indent$}{}",
            node.calls,
            "",
            printable(name),
            indent = 2 * node.depth
        ))?;
    }
    match tree.deeper {
        0 => Ok(()),
        deeper => written(writeln!(out, "# {deeper} calls lay deeper than {} and are not shown", Tree::DEEPEST)),
    }
}
