// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings that another engine is to show too.

use serde_json::Value;

use super::list::{Corpus, fetched};
use super::report::{Finding, Row};
use crate::failure::Failure;
use crate::tools::tramptool;
use crate::tree::cache;

/// Which engine shows a finding too, or that it does not; nothing of one that no run shows.
///
/// # Errors
/// The package is gone, or the tool cannot be run.
pub(super) fn by_another_engine(corpus: &Corpus, row: &Row, name: &str, finding: &Finding) -> Result<String, Failure> {
    let Some((function, seed)) = &finding.run else { return Ok(String::new()) };
    let suite = corpus.suites.get(&row.arch).map_or("", String::as_str);
    let engine = if row.arch == "amd64" { "bochs" } else { "qemu" };
    let Some((_, file)) = fetched(&[row.package.clone()].into(), &row.arch, suite)?.pop() else {
        return Err(Failure::new(&row.package, "it is gone", "fetch it again"));
    };
    let engines = cache()?.join("engines/bin");
    let mut tool = tramptool();
    tool.env("TRAMPTOOL_QEMU", &engines).env("TRAMPTOOL_BOCHS", &engines).arg("audit");
    let given = corpus.files(&row.package, &file)?;
    tool.args(&given.files).args(["--format", "json", "--engine", engine, "--function", function]);
    let said = tool.args(["--seed", &seed.to_string()]).output();
    let said = said.map_err(|e| Failure::new(&row.package, e.to_string(), "build the tool"))?;
    let Ok(report) = serde_json::from_slice::<Value>(&said.stdout) else {
        return Err(Failure::new(
            &row.package,
            String::from_utf8_lossy(&said.stderr).trim(),
            "run `cargo xtask engines`",
        ));
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let is_there = list(&report["findings"]).iter().any(|finding| finding["finding"] == name);
    let engine = list(&report["units"]).first().and_then(|unit| Some(unit["engine"].as_str()?.to_owned()));
    Ok(if is_there { engine.unwrap_or_default() } else { format!("not {}", engine.unwrap_or_default()) })
}
