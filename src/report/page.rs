//! Reports as pages for a browser.

mod check;
mod cost;
mod mutants;
mod views;
mod words;

use codegen::words::error::{Error, Result};
use templates::page::{Link, page};

use super::document::{Document, Saved};
use crate::mutate::report::Report as Mutants;
use crate::printed::cleaned;

/// A report as a part of a page.
pub struct Sheet {
    /// What kind of report it is: a name for files and places.
    kind: &'static str,
    /// The title.
    title: String,
    /// What it comes to, as words.
    verdict: String,
    body: String,
}

/// A file of a set of pages.
pub struct PageFile {
    /// Its name.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// A page with one report of `check`.
///
/// # Errors
/// None that a report causes.
pub fn of_check(document: &Document) -> Result<String> {
    single(sheet_of_check(document, "check")?)
}

/// A page with one report of `mutate`.
///
/// # Errors
/// None that a report causes.
pub fn of_mutants(report: &Mutants) -> Result<String> {
    single(sheet_of_mutants(report, "mutants")?)
}

/// A page with what `cost --format json` writes.
///
/// # Errors
/// It is not that.
pub fn of_costs(entries: serde_json::Value) -> Result<String> {
    single(sheet_of_costs(entries, "cost")?)
}

/// One page with all of them.
///
/// # Errors
/// None that a report causes.
pub fn together(sheets: &[Sheet]) -> Result<String> {
    let links: Vec<Link> = sheets.iter().enumerate().map(|(i, s)| link(format!("#{}", id(i)), s)).collect();
    let bodies: Vec<String> = sheets.iter().map(|s| s.body.clone()).collect();
    page("Report of a run", &links, &bodies)
}

/// A page for each, and one that leads to them.
///
/// # Errors
/// None that a report causes.
pub fn apart(sheets: Vec<Sheet>) -> Result<Vec<PageFile>> {
    let mut files = Vec::new();
    let mut links = vec![Link { href: "index.html".to_owned(), text: "All parts".to_owned() }];
    for (i, sheet) in sheets.into_iter().enumerate() {
        let name = format!("{}-{}.html", i + 1, sheet.kind);
        links.push(link(name.clone(), &sheet));
        let here =
            vec![Link { href: "index.html".to_owned(), text: "All parts".to_owned() }, link(name.clone(), &sheet)];
        files.push(PageFile { name, text: page(&sheet.title, &here, &[sheet.body])? });
    }
    let text = page("Report of a run", &links, &[])?;
    files.push(PageFile { name: "index.html".to_owned(), text });
    Ok(files)
}

/// The reports in these files, each with its name.
///
/// # Errors
/// A file is no report.
pub fn sheets(files: &[(String, String)]) -> Result<Vec<Sheet>> {
    let (mut checks, mut mutants, mut costs) = (Vec::new(), Vec::new(), Vec::new());
    for (name, text) in files {
        if text.trim_start().starts_with('[') {
            let entries =
                serde_json::from_str(text).map_err(|e| Error::new(format!("{e}; valid: a report")).at(name))?;
            costs.push((name.clone(), entries));
            continue;
        }
        match Saved::parse(text).map_err(|e| e.at(name))? {
            Saved::Check(document) => checks.push(document),
            Saved::Mutants(report) => mutants.push(report),
        }
    }
    let mut sheets = Vec::new();
    for document in checks {
        sheets.push(sheet_of_check(&document, &id(sheets.len()))?);
    }
    for report in mutants {
        sheets.push(sheet_of_mutants(&report, &id(sheets.len()))?);
    }
    for (name, entries) in costs {
        sheets.push(sheet_of_costs(entries, &id(sheets.len())).map_err(|e| e.at(&name))?);
    }
    Ok(sheets)
}

/// What ids of a part begin with.
fn id(number: usize) -> String {
    format!("r{}", number + 1)
}

fn link(href: String, sheet: &Sheet) -> Link {
    Link { href, text: format!("{}: {}", sheet.title, sheet.verdict) }
}

fn single(sheet: Sheet) -> Result<String> {
    page(&sheet.title, &[], &[sheet.body])
}

fn sheet_of_check(document: &Document, id: &str) -> Result<Sheet> {
    let report = cleaned(&document.report)?;
    let (title, verdict, body) = check::part(&report, id)?;
    Ok(Sheet { kind: "check", title, verdict, body })
}

fn sheet_of_mutants(report: &Mutants, id: &str) -> Result<Sheet> {
    let (title, verdict, body) = mutants::part(&cleaned(report)?, id)?;
    Ok(Sheet { kind: "mutants", title, verdict, body })
}

fn sheet_of_costs(entries: serde_json::Value, id: &str) -> Result<Sheet> {
    let (title, body) = cost::part(entries, id)?;
    Ok(Sheet { kind: "cost", title, verdict: "counted".to_owned(), body })
}
