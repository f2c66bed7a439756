//! What each property means, the bug behind it, and how it is decided here or why it is not. The text is data.

use std::fmt::Write;

use codegen::words::error::{Error, Result};
use emu_tests::Clause;
use serde::Deserialize;

use crate::mutate::bugs::{self, BUG, Bug};
use crate::mutate::subject::MutationSubject;
use crate::report::paragraph;

/// The texts, one table per property.
const TEXT: &str = include_str!("clauses.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pages {
    clause: Vec<Page>,
}

/// What there is to say of a property.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// P1 to P28, or `coverage`.
    pub name: String,
    /// In a line; in the text, only of what `check` does not decide.
    #[serde(default)]
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
    let titled = |page: Page| match Clause::ALL.iter().find(|c| c.name() == page.name) {
        Some(clause) => Page { title: clause.about().to_owned(), ..page },
        None => page,
    };
    Ok(pages.clause.into_iter().map(titled).collect())
}

/// The page on a property, on a bug (`bug:F1`), or a list of the bugs (`bug:all`), in lines of so many columns.
///
/// # Errors
/// There is no such property or bug.
pub fn page(name: &str, width: usize) -> Result<String> {
    if let Some(id) = name.strip_prefix(BUG) {
        let found = bugs::find(id)?;
        if id == "all" {
            return Ok(found.into_iter().map(|bug| paragraph(&in_a_line(bug), width, "", "  ")).collect());
        }
        // Some were rebuilt on several architectures.
        return Ok(found.into_iter().map(|bug| of_bug(bug, width)).collect::<Result<Vec<_>>>()?.join("\n"));
    }
    let pages = pages()?;
    let page = pages.iter().find(|p| p.name.eq_ignore_ascii_case(name));
    let page = page.ok_or_else(|| Error::unknown("clause", name, pages.iter().map(|p| p.name.as_str())))?;
    let mut out = format!("{}: {}\n", page.name, page.title);
    let decided = if page.checked() { "How it is decided" } else { "Not checked here" };
    let bug = format!("{}\n({})", page.bug.trim_end(), page.reference);
    for (title, text) in [("What it means", &page.means), ("Why it matters", &bug), (decided, &page.decided)] {
        section(title, text, width, &mut out);
    }
    let must_notice: Vec<&Bug> = bugs::find("all")?.into_iter().filter(|b| b.property == page.name).collect();
    if !must_notice.is_empty() {
        let lines: Vec<String> = must_notice.into_iter().map(in_a_line).collect();
        section("Bugs of the field that it must notice", &lines.join("\n"), width, &mut out);
    }
    Ok(out)
}

/// A bug in a line.
fn in_a_line(b: &Bug) -> String {
    format!("{BUG}{} ({}, {} {}): {}", b.id, b.property, b.arch, b.trampoline, b.about)
}

/// The page on a bug: what happened, and how it happens here.
fn of_bug(bug: &'static Bug, width: usize) -> Result<String> {
    let subject = MutationSubject::of_bug(bug)?;
    let mut out = format!("{BUG}{}: to be noticed by {}\n", bug.id, bug.property);
    section("What happened", &bug.about, width, &mut out);
    let property = pages()?.into_iter().find(|p| p.name == bug.property).map_or(String::new(), |p| p.title);
    section(
        "What does not hold",
        &format!("{}: {property}; see `tramptool explain {}`", bug.property, bug.property),
        width,
        &mut out,
    );
    let set = if bug.set.is_empty() { String::new() } else { format!(" with {}", bug.set.join(" ")) };
    section("How it is rebuilt", &format!("in {} {}{set}", bug.arch, bug.trampoline), width, &mut out);
    for candidate in subject.rebuilt(bug)? {
        let mutant = &candidate.mutant;
        out += &paragraph(&format!("{mutant}: {}", mutant.operator.about()), width, "  ", "  ");
        mutant.diff.iter().for_each(|line| out.extend(["    ", line, "\n"]));
    }
    section("How to run it", &format!("tramptool mutate {BUG}{}", bug.id), width, &mut out);
    Ok(out)
}

fn section(title: &str, text: &str, width: usize, out: &mut String) {
    out.extend(["\n", title, "\n"]);
    for line in text.trim().lines() {
        *out += &paragraph(line, width, "  ", "  ");
    }
}

/// Every property in a line.
///
/// # Errors
/// As [`pages`].
pub fn list() -> Result<String> {
    let mut out = String::new();
    for page in pages()? {
        let state = if page.checked() { "checked " } else { "not here" };
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{:<9} {state}  {}", page.name, page.title);
    }
    Ok(out)
}
