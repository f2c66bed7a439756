// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask audit-enforced`: runs functions of Debian's packages that change stacks or return addresses, as `audit-corpus.toml`
//! lists them, where landing pads and shadow stacks are enforced. `results/enforced.md` has what was stopped.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::corpus::{Corpus, fetched};
use crate::failure::Failure;
use crate::tools::{root, tramptool, write};
use crate::tree::cache;
use crate::verb::Outcome;

/// What came of the functions of a package.
struct Row {
    package: String,
    arch: String,
    /// Those of which some run came to an end that says something, those that were stopped, and the others.
    ended: usize,
    stopped: BTreeSet<String>,
    unknown: usize,
    /// Function and instruction, the protection, and whether the object's note promises it.
    stops: Vec<[String; 4]>,
}

/// Do it.
pub fn run(args: &[String]) -> Result<Outcome, Failure> {
    let corpus = Corpus::read()?;
    let wanted: BTreeSet<String> = corpus.enforced.iter().map(|of| of.package.clone()).collect();
    let mut rows = Vec::new();
    for (arch, suite) in corpus.suites.iter().filter(|(arch, _)| args.is_empty() || args.contains(arch)) {
        for (package, file) in fetched(&wanted, arch, suite)? {
            let Some(of) = corpus.enforced.iter().find(|of| of.package == package) else { continue };
            rows.extend(row(&package, arch, &file, &of.functions)?);
        }
    }
    write(&root().join("results/enforced.md"), page(&rows, args).as_bytes())?;
    Ok(Outcome::Good)
}

/// What the tool says; none where the package has no such function.
fn row(package: &str, arch: &str, file: &Path, functions: &[String]) -> Result<Option<Row>, Failure> {
    eprintln!("{arch} {package}");
    let engines = cache()?.join("engines/bin");
    let mut tool = tramptool();
    tool.env("TRAMPTOOL_QEMU", &engines).env("TRAMPTOOL_BOCHS", &engines);
    tool.arg("audit").arg(file).args(["--enforce", "--runs", "20", "--format", "json"]);
    tool.args(functions.iter().flat_map(|function| ["--function", function]));
    let said = tool.output().map_err(|e| Failure::at(file, e, "build the tool"))?;
    let Ok(report) = serde_json::from_slice::<Value>(&said.stdout) else {
        return Err(Failure::at(file, String::from_utf8_lossy(&said.stderr).trim(), "run `cargo xtask engines`"));
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut row = Row {
        package: package.to_owned(),
        arch: arch.to_owned(),
        ended: 0,
        stopped: BTreeSet::new(),
        unknown: 0,
        stops: Vec::new(),
    };
    for finding in list(&report["findings"]).iter().filter(|finding| finding["kind"] == "C11") {
        let at = format!("{}+{:#x}", text(&finding["function"]), finding["offset"].as_u64().unwrap_or(0));
        let promised = if finding["tier"] == "error" { "promises it" } else { "does not" };
        row.stopped.insert(text(&finding["function"]));
        row.stops.push([at, text(&finding["instruction"]), text(&finding["place"]), promised.to_owned()]);
    }
    let mut seen = BTreeSet::new();
    for function in list(&report["units"]).iter().flat_map(|unit| list(&unit["functions"])) {
        // An archive's variants with and without position independence have the same.
        if !seen.insert(text(&function["symbol"])) || row.stopped.contains(&text(&function["symbol"])) {
            continue;
        }
        let why = function["not_judged"].as_str().unwrap_or_default();
        let known = why.is_empty() || why == "it goes to another stack";
        *if known { &mut row.ended } else { &mut row.unknown } += 1;
    }
    Ok(Some(row).filter(|row| row.ended + row.unknown + row.stopped.len() > 0))
}

fn page(rows: &[Row], args: &[String]) -> String {
    let asked: String = args.iter().map(|arch| format!(" {arch}")).collect();
    let packages: BTreeSet<&str> = rows.iter().map(|row| row.package.as_str()).collect();
    let mut out = String::from("# Debian's packages under enforcement\n\n");
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "`cargo xtask audit-enforced{asked}` wrote this page. {} packages have functions that change stacks or return addresses. Each function\n\
         was run from some twenty states where landing pads and shadow stacks are enforced: it came through, was stopped, or\n\
         came to no end that says anything.\n\n\
         | package | architecture | came through | stopped | unknown |\n|---|---|--:|--:|--:|",
        packages.len()
    );
    for Row { package, arch, ended, stopped, unknown, .. } in rows {
        let _ = writeln!(out, "| {package} | {arch} | {ended} | {} | {unknown} |", stopped.len());
    }
    let _ = writeln!(
        out,
        "\n## What was stopped\n\n| package | architecture | where | instruction | protection | the object's note |\n|---|---|---|---|---|---|"
    );
    for row in rows {
        let stops: BTreeSet<&[String; 4]> = row.stops.iter().collect();
        for [at, instruction, protection, promised] in stops {
            let (package, arch) = (&row.package, &row.arch);
            let _ = writeln!(out, "| {package} | {arch} | {at} | `{instruction}` | {protection} | {promised} |");
        }
    }
    out
}
