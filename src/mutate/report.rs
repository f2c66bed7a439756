//! What a run of mutants found: each with its outcome, and the score of each operator.

use std::collections::BTreeMap;

use codegen::effect::faults::Operator;
use codegen::words::error::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::by::By;
use crate::partition::Partition;

/// What became of a mutant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// A clause failed.
    Killed,
    /// No clause failed.
    Survived,
    /// No clause failed, and none can: it does what the original does.
    Equivalent,
}

/// A mutant that was run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Judged {
    /// Its place in the whole run, from 0.
    pub number: usize,
    /// The architecture.
    pub arch: String,
    /// The trampoline.
    pub trampoline: String,
    /// The operator.
    pub operator: String,
    /// Operator, operand and offset.
    pub mutant: String,
    /// The changed lines.
    pub diff: Vec<String>,
    /// What became of it.
    pub outcome: Outcome,
    /// The clauses that failed in the first case that failed; for a bug of the corpus, in all cases.
    pub clauses: Vec<String>,
    /// The properties in which the symbolic checker finds it wrong, where that was asked; whom differences concern, where the
    /// observer was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<Vec<String>>,
    /// Why it survives, if that is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The bug of the corpus that it rebuilds, and the property that must notice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bug: Option<(String, String)>,
    /// The command that runs exactly this one.
    pub replay: String,
}

/// How the mutants of one operator on one architecture fared.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Score {
    /// The architecture.
    pub arch: String,
    /// The operator.
    pub operator: String,
    /// Mutants run.
    pub mutants: usize,
    /// Of these, equivalent to the original.
    pub equivalent: usize,
    /// Of these, noticed.
    pub killed: usize,
    /// How often each clause was among those that noticed; each property, where only the symbolic checker was asked.
    pub by: BTreeMap<String, usize>,
    /// Of these, noticed by the symbolic checker or the observer, where one was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<usize>,
}

/// Everything that a run found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "tramptool mutants")]
pub struct Report {
    /// The format's version.
    pub version: u32,
    /// The seed of all random values and of the sample.
    pub seed: u64,
    /// The engine and its version.
    pub engine: String,
    /// Who judged: emulator, verify, observe or both.
    #[serde(default = "emulator")]
    pub by: String,
    /// What was asked for, as arguments; shares of one run agree in it.
    pub request: String,
    /// Mutants that were asked for, also those that other partitions run.
    pub whole: usize,
    /// Which share this is, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<Partition>,
    /// Mutants run.
    pub mutants: usize,
    /// Of these, equivalent to the original.
    pub equivalent: usize,
    /// Of these, noticed.
    pub killed: usize,
    /// By architecture and operator.
    pub scores: Vec<Score>,
    /// One by one.
    pub results: Vec<Judged>,
    /// Instructions of others that no check executes. They have no mutants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missed: Vec<String>,
}

/// Who judged, in reports that do not say so.
fn emulator() -> String {
    By::Emulator.name().to_owned()
}

impl Report {
    /// The version of the format: it changes when a field goes or gets another meaning, not when one is added.
    pub const VERSION: u32 = 1;

    /// A report before anything was run.
    pub fn empty(by: By, seed: u64, request: String, whole: usize, partition: Option<Partition>) -> Report {
        Report {
            version: Report::VERSION,
            seed,
            engine: emu_tests::Report::empty(seed).engine,
            by: by.name().to_owned(),
            request,
            whole,
            partition,
            mutants: 0,
            equivalent: 0,
            killed: 0,
            scores: Vec::new(),
            results: Vec::new(),
            missed: Vec::new(),
        }
    }

    /// With these results, summed up.
    #[must_use]
    pub fn with(self, results: Vec<Judged>) -> Report {
        let mut scores: Vec<Score> = Vec::new();
        let order = |name: &str| Operator::ALL.iter().position(|o| o.name() == name);
        for judged in &results {
            let same = |s: &Score| (&s.arch, &s.operator) == (&judged.arch, &judged.operator);
            let i = scores.iter().position(same).unwrap_or_else(|| {
                let (arch, operator) = (judged.arch.clone(), judged.operator.clone());
                scores.push(Score { arch, operator, ..Score::default() });
                scores.len() - 1
            });
            scores[i].mutants += 1;
            scores[i].equivalent += usize::from(judged.outcome == Outcome::Equivalent);
            scores[i].killed += usize::from(judged.outcome == Outcome::Killed);
            if let Some(properties) = &judged.verified {
                let noticed = !properties.is_empty() && judged.outcome != Outcome::Equivalent;
                *scores[i].verified.get_or_insert(0) += usize::from(noticed);
            }
            // There are no clauses where the emulator was not asked.
            let alone = judged
                .verified
                .iter()
                .flatten()
                .filter(|_| [By::Verify, By::Observe].iter().any(|by| by.name() == self.by));
            let alone = alone.filter(|_| judged.outcome == Outcome::Killed);
            for name in judged.clauses.iter().chain(alone) {
                *scores[i].by.entry(name.clone()).or_default() += 1;
            }
        }
        scores.sort_by_key(|s| order(&s.operator));
        let sum = |of: fn(&Score) -> usize| scores.iter().map(of).sum();
        let (equivalent, killed) = (sum(|s| s.equivalent), sum(|s| s.killed));
        Report { mutants: results.len(), equivalent, killed, scores, results, ..self }
    }

    /// Put together what was run apart; the result is that of one run. Each report comes with its name, for messages.
    ///
    /// # Errors
    /// They are not parts of one whole: something else was asked for, or a mutant was run twice, or by nobody.
    pub fn merge(parts: &[(String, Report)]) -> Result<Report> {
        let Some((first, whole)) = parts.first() else {
            return Err(Error::new("nothing to merge; valid: one report or more"));
        };
        let mut all: BTreeMap<usize, (&Judged, &str)> = BTreeMap::new();
        for (name, part) in parts {
            let (ours, theirs) = (whole.asked(), part.asked());
            if ours != theirs {
                return Err(Error::new(format!("{name}: {theirs}, but {first}: {ours}; valid: reports of one run")));
            }
            for judged in &part.results {
                if let Some((_, other)) = all.insert(judged.number, (judged, name)) {
                    let what = format!("{} {} {}", judged.arch, judged.trampoline, judged.mutant);
                    return Err(Error::new(format!(
                        "{name}: {what} is in {other} too; valid: each mutant in one report"
                    )));
                }
            }
        }
        if let Some(n) = (0..whole.whole).find(|n| !all.contains_key(n)) {
            let of = whole.whole;
            return Err(Error::new(format!(
                "no report has mutant number {n} of {of}, from 0; valid: the reports of all partitions together"
            )));
        }
        let results = all.into_values().map(|(judged, _)| judged.clone()).collect();
        Ok(Report { partition: None, ..whole.clone() }.with(results))
    }

    fn asked(&self) -> String {
        format!("{} mutants of `{}`, seed {}, {}", self.whole, self.request, self.seed, self.engine)
    }

    /// Those that nothing noticed and something could.
    pub fn survivors(&self) -> impl Iterator<Item = &Judged> {
        self.results.iter().filter(|j| j.outcome == Outcome::Survived)
    }
}
