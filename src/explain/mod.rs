//! What each property means, the bug behind it, and how it is decided here or why it is not. The text is data.

use std::fmt::Write;

use codegen::error::{Error, Result};
use emu_tests::Clause;
use serde::Deserialize;

/// The texts, one table per property.
const TEXT: &str = include_str!("clauses.toml");
/// Columns of a page.
const WIDTH: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pages {
    clause: Vec<Page>,
}

/// What there is to say of a property.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// P1 to P23, or `coverage`.
    pub name: String,
    /// In a line.
    pub title: String,
    /// What it demands.
    pub means: String,
    /// What happened where it did not hold.
    pub bug: String,
    /// Where to read of that.
    pub reference: String,
    /// How it is decided here; or why it is not, and what would.
    pub decided: String,
}

impl Page {
    /// Does `check` decide it?
    pub fn checked(&self) -> bool {
        Clause::ALL.iter().any(|c| c.name() == self.name)
    }
}

/// All pages, in order.
///
/// # Errors
/// None: a test reads the text.
pub fn pages() -> Result<Vec<Page>> {
    let pages: Pages = toml::from_str(TEXT).map_err(|e| Error::new(format!("clauses.toml: {e}")))?;
    Ok(pages.clause)
}

/// The page on a property.
///
/// # Errors
/// There is no such property.
pub fn page(name: &str) -> Result<String> {
    let pages = pages()?;
    let page = pages.iter().find(|p| p.name.eq_ignore_ascii_case(name));
    let page = page.ok_or_else(|| Error::unknown("clause", name, pages.iter().map(|p| p.name.as_str())))?;
    let mut out = format!("{}: {}\n", page.name, page.title);
    let decided = if page.checked() { "How it is decided" } else { "Not checked yet" };
    let bug = format!("{}\n({})", page.bug.trim_end(), page.reference);
    for (title, text) in [("What it means", &page.means), ("Why it matters", &bug), (decided, &page.decided)] {
        out.extend(["\n", title, "\n"]);
        for paragraph in text.trim().lines() {
            wrap(paragraph, &mut out);
        }
    }
    Ok(out)
}

/// Every property in a line.
///
/// # Errors
/// As [`pages`].
pub fn list() -> Result<String> {
    let mut out = String::new();
    for page in pages()? {
        let state = if page.checked() { "checked" } else { "not yet" };
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{:<9} {state}  {}", page.name, page.title);
    }
    Ok(out)
}

fn wrap(paragraph: &str, out: &mut String) {
    let mut column = 0;
    for word in paragraph.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > WIDTH {
            out.push('\n');
            column = 0;
        }
        out.push_str(if column == 0 { "  " } else { " " });
        out.push_str(word);
        column += if column == 0 { 2 } else { 1 } + length;
    }
    out.push('\n');
}
