// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults that were mended in the field: of the package before the fix they are to be found, of the one behind it they are not.

use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::Value;

use super::{Corpus, fetched};
use crate::failure::Failure;
use crate::tools::tramptool;
use wildmatch::WildMatch;

/// A fault, and the suites of Debian that have the package with it and without it.
#[derive(Deserialize)]
pub(super) struct Fixed {
    /// Debian's architecture.
    arch: String,
    package: String,
    /// The suite with the fault.
    before: String,
    /// The suite without it.
    after: String,
    /// Patterns of the functions that are judged.
    functions: Vec<String>,
    /// The findings, as `tramptool audit` names them, with `*` behind what is alike.
    finding: String,
    /// What mended it.
    fix: String,
}

/// That part of the page.
///
/// # Errors
/// A package cannot be fetched, or the tool cannot be run.
pub(super) fn page(corpus: &Corpus) -> Result<String, Failure> {
    let mut out = String::from(
        "\n## Faults that were mended\n\nEach is to be found in the package before it was mended, and not in the one behind.\n\n\
         | package | finding | before | behind | what mended it |\n|---|---|---|---|---|\n",
    );
    for fixed in &corpus.fixed {
        let before = fixed.found(corpus, &fixed.before)?;
        let after = fixed.found(corpus, &fixed.after)?;
        let said = |count: usize, suite: &str| match count {
            0 => format!("{suite}: clean"),
            count => format!("{suite}: {count} found"),
        };
        let Fixed { package, arch, finding, fix, .. } = fixed;
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "| {package} ({arch}) | `{finding}` | {} | {} | {fix} |",
            said(before, &fixed.before),
            said(after, &fixed.after)
        );
    }
    Ok(out)
}

impl Fixed {
    /// How many such findings the package of a suite has.
    fn found(&self, corpus: &Corpus, suite: &str) -> Result<usize, Failure> {
        let Some((_, file)) = fetched(&[self.package.clone()].into(), &self.arch, suite)?.pop() else {
            return Err(Failure::new(&self.package, format!("{suite} has it no more"), "take it off the list"));
        };
        let given = corpus.files(&self.package, &file)?;
        let mut tool = tramptool();
        tool.args(["audit", "--format", "json"]).args(&given.files);
        tool.args(self.functions.iter().flat_map(|function| ["--function", function]));
        let said = tool.output().map_err(|e| Failure::new(&self.package, e.to_string(), "build the tool"))?;
        let Ok(report) = serde_json::from_slice::<Value>(&said.stdout) else {
            return Err(Failure::new(&self.package, String::from_utf8_lossy(&said.stderr).trim(), "see what it says"));
        };
        let findings = report["findings"].as_array().into_iter().flatten().filter_map(|f| f["finding"].as_str());
        Ok(findings.filter(|finding| WildMatch::new(&self.finding).matches(finding)).count())
    }
}
