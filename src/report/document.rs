//! A report with what it is a part of: what `--format json` writes, and what `report merge` puts together again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use codegen::words::error::{Error, Result};
use emu_tests::{Report, Row, Suite, Survival, View};
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::mutate::report::Report as Mutants;
use crate::partition::Partition;

/// A report, and the whole that it belongs to.
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

/// What was asked for, of which a partition ran a share.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Scope {
    /// All suites in their order, also those that other partitions run.
    pub suites: Vec<SuiteName>,
    /// Which share this is, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<Partition>,
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

/// The name of a suite: the smallest part that a partition does not split.
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

/// A report of either kind, as `report merge` reads it.
pub enum Part {
    /// Of `check`.
    Check(Document),
    /// Of `mutate`.
    Mutants(Mutants),
}

impl Part {
    /// Read what `--format json` wrote.
    ///
    /// # Errors
    /// It is not that, with line and column, or it is of another version.
    pub fn parse(text: &str) -> Result<Part> {
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
            return serde_json::from_str(text).map(Part::Mutants).map_err(refused);
        }
        // Twice and not flattened, which would lose line and column.
        let report = serde_json::from_str(text).map_err(refused)?;
        let scope = serde_json::from_str(text).map_err(refused)?;
        Ok(Part::Check(Document { report, scope }))
    }
}

impl Document {
    /// Put together what was run apart; the result is that of one run. Each document comes with its name, for messages.
    ///
    /// # Errors
    /// They are not parts of one whole: another seed or engine, a trampoline of a suite run twice, or a suite by nobody.
    pub fn merge(parts: Vec<(String, Document)>) -> Result<Document> {
        let mut parts = parts.into_iter();
        let Some((first, mut whole)) = parts.next() else {
            return Err(Error::new("nothing to merge; valid: one report or more"));
        };
        let mut claims = Claims::default();
        claims.add(&first, &whole)?;
        for (name, part) in parts {
            let (ours, theirs) = (&whole.report, &part.report);
            if (ours.seed, &ours.engine) != (theirs.seed, &theirs.engine) {
                return Err(Error::new(format!(
                    "{name}: seed {}, {}, but {first}: seed {}, {}; valid: reports of one seed and engine",
                    theirs.seed, theirs.engine, ours.seed, ours.engine
                )));
            }
            claims.add(&name, &part)?;
            for suite in part.scope.suites {
                if !whole.scope.suites.contains(&suite) {
                    whole.scope.suites.push(suite);
                }
            }
            for source in part.scope.sources {
                if !whole.scope.sources.contains(&source) {
                    whole.scope.sources.push(source);
                }
            }
            whole.report.scenarios = whole.report.scenarios.saturating_add(theirs.scenarios);
            for (arch, scenarios) in part.report.scenarios_by_arch {
                let sum = whole.report.scenarios_by_arch.entry(arch).or_default();
                *sum = sum.saturating_add(scenarios);
            }
            whole.report.alternatives.extend(part.report.alternatives);
            whole.report.alternatives_in_place.extend(part.report.alternatives_in_place);
            whole.report.warnings.extend(part.report.warnings);
            for stub in part.report.stubs {
                if !whole.report.stubs.contains(&stub) {
                    whole.report.stubs.push(stub);
                }
            }
            whole.report.in_place_of_engine.extend(part.report.in_place_of_engine);
            whole.report.results.extend(part.report.results);
            whole.report.registers.extend(part.report.registers);
            whole.report.views.extend(part.report.views);
        }
        if let Some(suite) = whole.scope.suites.iter().find(|s| !claims.ran.contains(s)) {
            return Err(Error::new(format!("no report has {suite}; valid: the reports of all partitions together")));
        }
        whole.scope.partition = None;
        whole.report.in_place_of_engine.sort();
        whole.report.in_place_of_engine.dedup();
        whole.report.warnings.sort();
        whole.report.warnings.dedup();
        whole.order();
        whole.report.recount();
        Ok(whole)
    }

    /// Bring rows and registers into the order of one run, and count registers together.
    fn order(&mut self) {
        let suites = &self.scope.suites;
        let position = |row: &Row| suites.iter().position(|s| s.arch == row.arch && s.options == row.options);
        // Stable: the rows of one suite come from one report, in their order.
        self.report.results.sort_by_cached_key(position);

        let position = |view: &View| suites.iter().position(|s| s.arch == view.arch && s.options == view.options);
        self.report.views.sort_by_cached_key(position);

        let mut known: Vec<Survival> = Vec::new();
        for survival in std::mem::take(&mut self.report.registers) {
            let same = |s: &&mut Survival| s.arch == survival.arch && s.trampoline == survival.trampoline;
            match known.iter_mut().find(same) {
                None => known.push(survival),
                Some(together) => {
                    for (name, fate) in survival.registers {
                        let sum = together.registers.entry(name).or_default();
                        sum.kept = sum.kept.saturating_add(fate.kept);
                        sum.changed = sum.changed.saturating_add(fate.changed);
                        sum.promised |= fate.promised;
                        sum.lost = sum.lost.saturating_add(fate.lost);
                    }
                    survival.promises.into_iter().for_each(|promise| together.promise(promise));
                }
            }
        }
        let rows = &self.report.results;
        known.sort_by_cached_key(|s| rows.iter().position(|r| r.arch == s.arch && r.trampoline == s.trampoline));
        for Survival { arch, promises, .. } in &mut known {
            let position = |options: &String| suites.iter().position(|s| s.arch == *arch && s.options == *options);
            promises.iter_mut().for_each(|promise| promise.options.sort_by_cached_key(position));
        }
        self.report.registers = known;
    }
}

/// Who ran what.
#[derive(Default)]
struct Claims {
    /// The suites whose turn it was, also those in which nothing was asked for.
    ran: BTreeSet<SuiteName>,
    /// The reports that judged a trampoline of a suite.
    by: BTreeMap<(SuiteName, String), String>,
}

impl Claims {
    /// Note what the report called `name` ran; no trampoline of a suite may be judged twice.
    fn add(&mut self, name: &str, document: &Document) -> Result<()> {
        let judged = |row: &Row| (SuiteName::of_row(row), row.trampoline.clone());
        let rows: BTreeSet<_> = document.report.results.iter().map(judged).collect();
        for (suite, trampoline) in rows {
            let judged = (suite, trampoline);
            if let Some(other) = self.by.get(&judged) {
                let (suite, trampoline) = judged;
                return Err(Error::new(format!(
                    "{name}: {suite}: {trampoline} is in {other} too; valid: each trampoline of a suite in one report"
                )));
            }
            self.by.insert(judged, name.to_owned());
        }
        let Scope { suites, partition, .. } = &document.scope;
        self.ran.extend(suites.iter().filter(|s| partition.is_none_or(|p| p.has(s))).cloned());
        Ok(())
    }
}
