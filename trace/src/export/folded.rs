//! Stacks in one line each, as flamegraph.pl and inferno read them.

use std::io::Write;

use codegen::words::error::Result;
use codegen::words::shown::printable;

use crate::recording::{Recording, Unit};
use crate::text::written;
use crate::tree::Tree;

/// Write each way to a function with the time that it took without its callees; without a clock, with the number of calls.
///
/// # Errors
/// The output has one.
pub fn folded<R>(recording: &Recording<R>, tree: &Tree, out: &mut dyn Write) -> Result<()> {
    let timed = recording.unit() != Unit::Order;
    let mut path: Vec<String> = Vec::new();
    for node in tree.walk() {
        let node = &tree.nodes[node];
        path.truncate(node.depth);
        // It separates the functions.
        path.push(printable(recording.name(node.function)).replace(';', ":"));
        let weight = if timed { node.own } else { node.calls };
        if weight > 0 {
            written(writeln!(out, "{} {weight}", path.join(";")))?;
        }
    }
    Ok(())
}
