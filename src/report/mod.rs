//! What a check found, in the forms that people and programs read. JSON is the report itself; the others are
//! rendered from it.

mod document;
mod expect;
mod grid;
mod human;
mod junit;
mod ktap;
mod lines;
pub mod page;
mod promises;
mod rows;
pub mod sarif;

use codegen::words::error::{Error, Result};
use emu_tests::{Report, Verdict};

pub use crate::printed::{cleaned, json, printable};
pub use document::{ContractFile, Document, Saved, Scope, SuiteName, lines_of};
pub use expect::Expectations;
pub use human::Palette;
pub use lines::{COLUMNS, columns, paragraph};

/// How a report is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// For reading.
    Human,
    /// Everything, for programs: see docs/report.md.
    Json,
    /// XML for continuous integration.
    Junit,
    /// KTAP version 1, for the kernel's tools.
    Ktap,
    /// SARIF 2.1.0, for code review.
    Sarif,
    /// A page for a browser.
    Html,
}

impl Format {
    /// All of them, with their names on the command line and what they are for.
    pub const ALL: [(&'static str, &'static str, Format); 6] = [
        ("human", "For reading", Format::Human),
        ("json", "Everything, for programs: see docs/report.md", Format::Json),
        ("junit", "XML for continuous integration", Format::Junit),
        ("ktap", "KTAP version 1, for the kernel's tools", Format::Ktap),
        ("sarif", "SARIF 2.1.0, for code review", Format::Sarif),
        ("html", "A page for a browser, in one file", Format::Html),
    ];
}

/// What does not depend on the format.
#[derive(Clone, Copy)]
pub struct Style {
    /// Colours, which only [`Format::Human`] has.
    pub palette: Palette,
    /// Columns of a line, which only [`Format::Human`] obeys.
    pub width: usize,
    /// Show what passes one by one; JSON, JUnit and KTAP always do.
    pub verbose: bool,
}

/// The document in a format; only JSON tells its scope.
///
/// # Errors
/// None that a report causes.
pub fn render(document: &Document, format: Format, style: Style) -> Result<String> {
    let mut out = String::new();
    let refused = |e: &dyn std::fmt::Display| Error::new(format!("cannot render the report: {e}"));
    let cleaned = match format {
        Format::Json | Format::Html => None,
        Format::Human | Format::Ktap | Format::Junit | Format::Sarif => Some(cleaned(&document.report)?),
    };
    let report = cleaned.as_ref().unwrap_or(&document.report);
    match format {
        Format::Human => {
            human::write(report, style.palette, style.width, style.verbose, &mut out).map_err(|e| refused(&e))?
        }
        Format::Ktap => ktap::write(report, &mut out).map_err(|e| refused(&e))?,
        Format::Junit => out = junit::document(report).to_string().map_err(|e| refused(&e))?,
        Format::Json => out = json(document)?,
        Format::Html => out = page::of_check(document)?,
        Format::Sarif => out = json(&sarif::document(report, &document.scope, style.verbose))?,
    }
    Ok(out)
}

/// Count what was not checked as failed.
pub fn refuse_skips(report: &mut Report) {
    for row in report.results.iter_mut().filter(|r| r.verdict == Verdict::Skip) {
        row.verdict = Verdict::Fail;
        row.reason = format!("not checked, which --strict refuses: {}", row.reason);
    }
    report.recount();
}
