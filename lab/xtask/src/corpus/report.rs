// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tool says of a package.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::list::{Corpus, Given};
use crate::failure::Failure;
use crate::tools::{tramptool, write};

/// The sign of objects that nobody is known to have written, in archives without any that a compiler is known to have made.
const NO_SIGN: &str = "it has nothing that compilers add";

/// A package that was audited.
pub struct Row {
    pub package: String,
    pub arch: String,
    /// Objects with code, those by hand, functions, those that were judged.
    pub counts: [u64; 4],
    /// Why functions were not judged, and how many.
    pub reasons: BTreeMap<String, u64>,
    /// Each finding by its name.
    pub findings: BTreeMap<String, Finding>,
}

/// A finding.
pub struct Finding {
    pub tier: String,
    /// The function that is run, and the run, if one shows it.
    pub run: Option<(String, u64)>,
}

/// The report on a package, or why it is refused: as it was kept, or else made.
pub fn kept_in(
    kept: Option<&Path>,
    package: &str,
    arch: &str,
    files: impl Fn() -> Result<Given, Failure>,
) -> Result<String, Failure> {
    let place = kept.map(|dir| dir.join(format!("{package}-{arch}.json")));
    if let Some(said) = place.as_deref().and_then(|place| fs::read_to_string(place).ok()) {
        return Ok(said);
    }
    eprintln!("{arch} {package}");
    let mut tool = tramptool();
    let said = tool.arg("audit").args(&files()?.files).args(["--format", "json"]).output();
    let said = said.map_err(|e| Failure::new(package, e.to_string(), "build the tool"))?;
    let said = String::from_utf8_lossy(if said.stdout.is_empty() { &said.stderr } else { &said.stdout }).into_owned();
    if let Some(place) = place {
        write(&place, said.as_bytes())?;
    }
    Ok(said)
}

/// What a report says of a package, or why it was refused.
pub fn audited(package: &str, arch: &str, said: &str) -> Result<Row, String> {
    let report: Value = serde_json::from_str(said).map_err(|_| said.trim().to_owned())?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let (mut counts, mut reasons) = ([0; 4], BTreeMap::new());
    for unit in list(&report["units"]) {
        let functions = list(&unit["functions"]);
        let judged = functions.iter().filter(|function| function["not_judged"].is_null()).count();
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let signs = unit["by_hand"].as_object().into_iter().flatten();
        let by_hand: u64 = signs.filter(|(sign, _)| *sign != NO_SIGN).map(|(_, count)| number(count)).sum();
        let more = [number(&unit["objects"]), by_hand, functions.len() as u64, judged as u64];
        for why in functions.iter().filter_map(|function| function["not_judged"].as_str()) {
            *reasons.entry(why.to_owned()).or_default() += 1;
        }
        counts.iter_mut().zip(more).for_each(|(all, more)| *all += more);
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let run = |finding: &Value| Some((text(&finding["function"]), finding["seed"].as_u64()?));
    let finding = |f: &Value| (together(&text(&f["finding"])), Finding { tier: text(&f["tier"]), run: run(f) });
    let findings = list(&report["findings"]).iter().map(finding).collect();
    Ok(Row { package: package.to_owned(), arch: arch.to_owned(), counts, reasons, findings })
}

/// The claim of a finding.
pub fn kind(finding: &str) -> &str {
    finding.split(' ').next().unwrap_or_default()
}

/// Marks are an archive's: one that one object lacks is lost to all of it.
fn together(finding: &str) -> String {
    match (finding.split_once(':'), finding.rsplit_once(' ')) {
        (Some((archive, _)), Some((_, place @ ".note.gnu.property"))) => format!("{archive} {place}"),
        _ => finding.to_owned(),
    }
}

impl Row {
    /// Has the package assembly? Of a shared library, its sources say so.
    pub fn has_assembly(&self, corpus: &Corpus) -> bool {
        let [_, by_hand, functions, _] = self.counts;
        by_hand > 0 || functions > 0 && corpus.libraries.contains(&self.package)
    }
}
