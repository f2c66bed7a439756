// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults that were mended in the field: of the package before the fix they are to be found, of the one behind it they are not.

use std::fmt::Write as _;

use serde_json::Value;

use super::list::{Corpus, Fixed, fetched};
use crate::failure::Failure;
use crate::tools::tramptool;
use wildmatch::WildMatch;

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
        let before = found(fixed, corpus, &fixed.before)?;
        let after = found(fixed, corpus, &fixed.after)?;
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

/// How many such findings the package of a suite has.
fn found(fixed: &Fixed, corpus: &Corpus, suite: &str) -> Result<usize, Failure> {
    let Some((_, file)) = fetched(&[fixed.package.clone()].into(), &fixed.arch, suite)?.pop() else {
        return Err(Failure::new(&fixed.package, format!("{suite} has it no more"), "take it off the list"));
    };
    let given = corpus.files(&fixed.package, &file)?;
    let mut tool = tramptool();
    tool.args(["audit", "--format", "json"]).args(&given.files);
    tool.args(fixed.functions.iter().flat_map(|function| ["--function", function]));
    let said = tool.output().map_err(|e| Failure::new(&fixed.package, e.to_string(), "build the tool"))?;
    let Ok(report) = serde_json::from_slice::<Value>(&said.stdout) else {
        return Err(Failure::new(&fixed.package, String::from_utf8_lossy(&said.stderr).trim(), "see what it says"));
    };
    let findings = report["findings"].as_array().into_iter().flatten().filter_map(|f| f["finding"].as_str());
    Ok(findings.filter(|finding| WildMatch::new(&fixed.finding).matches(finding)).count())
}
