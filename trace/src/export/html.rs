//! A page with a flame graph, which needs no network.

use std::fmt::Write as _;
use std::io::Write;

use askama::Template;
use codegen::words::error::{Error, Result};
use codegen::words::shown::printable;
use rustc_hash::FxHashMap;
use serde_json::json;

use crate::recording::{Recording, Unit};
use crate::text::{duration, written};
use crate::tree::Tree;
use crate::view::Report;

/// The page.
#[derive(Template)]
#[template(path = "flame.html")]
struct Page<'p> {
    title: &'p str,
    /// The recording, in a sentence.
    about: String,
    notes: Vec<String>,
    /// The functions with the most time of their own.
    rows: Vec<Line>,
    timed: bool,
    /// The tree, as the script reads it.
    data: String,
    style: &'static str,
    script: &'static str,
}

/// A line of the table.
struct Line {
    total: String,
    own: String,
    calls: u64,
    function: String,
}

/// Write the page: the tree, and a table of the functions that the report begins with.
///
/// # Errors
/// The output has one.
pub fn html<R>(recording: &Recording<R>, tree: &Tree, report: &Report, out: &mut dyn Write) -> Result<()> {
    /// Rows of the table.
    const ROWS: usize = 20;
    let unit = recording.unit();
    let title = printable(&recording.session.command.join(" "));
    let line = |row: &crate::view::Row| Line {
        total: duration(row.total, unit).trim().to_owned(),
        own: duration(row.own, unit).trim().to_owned(),
        calls: row.calls,
        function: printable(&row.function),
    };
    let threads = if report.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", report.threads) };
    let page = Page {
        title: if title.is_empty() { "A trace" } else { &title },
        about: format!("{} calls of {} functions in {threads}.", grouped(report.calls), report.rows.len()),
        notes: report.notes(),
        rows: report.rows.iter().take(ROWS).map(line).collect(),
        timed: unit != Unit::Order,
        data: data(recording, tree),
        style: include_str!("../../templates/flame.css"),
        script: include_str!("../../templates/flame.js"),
    };
    let text = page.render().map_err(|e| Error::new(format!("page: {e}")))?;
    written(out.write_all(text.as_bytes()))
}

/// A number with commas.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `{unit, names, nodes}`, a node as its depth, the index of its name, its calls, total and own time, callers before callees.
fn data<R>(recording: &Recording<R>, tree: &Tree) -> String {
    let mut names: Vec<String> = Vec::new();
    let mut index: FxHashMap<u32, usize> = FxHashMap::default();
    let mut nodes = String::new();
    for node in tree.walk() {
        let node = &tree.nodes[node];
        let name = *index.entry(node.function).or_insert_with(|| {
            names.push(printable(recording.name(node.function)));
            names.len() - 1
        });
        // Writing to a String cannot fail.
        let _ = write!(nodes, "{},{name},{},{},{},", node.depth, node.calls, node.total, node.own);
    }
    let unit = match recording.unit() {
        Unit::Nanoseconds => "ns",
        Unit::Ticks => "ticks",
        Unit::Order => "calls",
    };
    let nodes = nodes.trim_end_matches(',');
    // A `<` in a name would end the script.
    format!("{{\"unit\":\"{unit}\",\"names\":{},\"nodes\":[{nodes}]}}", json!(names)).replace('<', "\\u003c")
}
