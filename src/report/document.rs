//! A report with what it is about: what `--format json` writes, and what is read again for another format.

use std::collections::BTreeMap;
use std::fmt;

use codegen::words::error::{Error, Result};
use emu_tests::{Report, Row, Suite};
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::mutate::report::Report as Mutants;

/// A report, and what it is about.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(title = "tramptool report")]
pub struct Document {
    /// What was found.
    #[serde(flatten)]
    pub report: Report,
    /// What was asked for.
    #[serde(flatten)]
    pub scope: Scope,
}

/// What was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Scope {
    /// All suites in their order.
    pub suites: Vec<SuiteName>,
    /// Where the promises are written of what was not generated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<ContractFile>,
}

/// The file to look at when a trampoline of somebody else fails.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ContractFile {
    /// The `options` of the suite.
    pub options: String,
    /// The contract as it was given; the object, where the contract comes with the tool.
    pub file: String,
    /// The lines of the contract where its trampolines are named, from 1.
    pub lines: BTreeMap<String, usize>,
}

/// The lines of a contract where its trampolines are named, from 1.
pub fn lines_of(contract: &str) -> BTreeMap<String, usize> {
    #[derive(Deserialize)]
    struct File {
        #[serde(default)]
        trampoline: Vec<Named>,
    }
    #[derive(Deserialize)]
    struct Named {
        symbol: Spanned<String>,
    }
    let named = toml::from_str::<File>(contract).map_or_else(|_| Vec::new(), |file| file.trampoline);
    let line = |at: usize| 1 + contract.bytes().take(at).filter(|b| *b == b'\n').count();
    named.into_iter().map(|t| (line(t.symbol.span().start), t.symbol.into_inner())).map(|(n, s)| (s, n)).collect()
}

/// The name of a suite.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SuiteName {
    /// The architecture.
    pub arch: String,
    /// `name=value` for every option.
    pub options: String,
}

impl SuiteName {
    /// The name of `suite`.
    pub fn of(suite: &Suite) -> SuiteName {
        SuiteName { arch: suite.backend.facts().name.to_owned(), options: suite.options.clone() }
    }

    /// The name of the suite that `row` is of.
    pub fn of_row(row: &Row) -> SuiteName {
        SuiteName { arch: row.arch.clone(), options: row.options.clone() }
    }
}

impl fmt::Display for SuiteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.arch, self.options)
    }
}

/// A report of `command` counts what it does not hold.
fn uneven(command: &str) -> Error {
    Error::new(format!(
        "its counts are not those of its \"results\"; valid: what `tramptool {command}` wrote with --format json, unchanged"
    ))
}

/// A report of either kind, as it is read again.
pub enum Saved {
    /// Of `check`.
    Check(Document),
    /// Of `mutate`.
    Mutants(Mutants),
}

impl Saved {
    /// Read what `--format json` wrote.
    ///
    /// # Errors
    /// It is not that, with line and column; it is of another version; its counts are not those of its results.
    pub fn parse(text: &str) -> Result<Saved> {
        /// What there is in every version; only a report of `mutate` counts mutants.
        #[derive(Deserialize)]
        struct Header {
            version: u32,
            mutants: Option<IgnoredAny>,
        }
        let refused = |e: serde_json::Error| {
            Error::new(format!("{e}; valid: what `tramptool check` or `tramptool mutate` wrote with --format json"))
        };
        let Header { version, mutants } = serde_json::from_str(text).map_err(refused)?;
        let valid = if mutants.is_some() { Mutants::VERSION } else { Report::VERSION };
        if version != valid {
            return Err(Error::new(format!("a report of version {version}; valid: {valid}, of this tramptool")));
        }
        if mutants.is_some() {
            let report: Mutants = serde_json::from_str(text).map_err(refused)?;
            return if report.adds_up() { Ok(Saved::Mutants(report)) } else { Err(uneven("mutate")) };
        }
        // Twice and not flattened, which would lose line and column.
        let report: Report = serde_json::from_str(text).map_err(refused)?;
        if !report.adds_up() {
            return Err(uneven("check"));
        }
        let scope = serde_json::from_str(text).map_err(refused)?;
        Ok(Saved::Check(Document { report, scope }))
    }
}
