//! What a run of mutants found: each with its outcome, and the score of each operator.

use std::collections::BTreeMap;

use codegen::effect::faults::Operator;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::by::By;
use super::selftests::Failed;

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
    /// Its place in the run, from 0.
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
    /// The outcome.
    pub outcome: Outcome,
    /// The clauses that failed in the first case that failed; for a bug of the corpus, in all cases.
    pub clauses: Vec<String>,
    /// Where they failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<Failed>,
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
    /// What was asked for, as arguments.
    pub request: String,
    /// Mutants that were asked for.
    pub whole: usize,
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
    pub fn empty(by: By, seed: u64, request: String, whole: usize) -> Report {
        Report {
            version: Report::VERSION,
            seed,
            engine: emu_tests::Report::empty(seed).engine,
            by: by.name().to_owned(),
            request,
            whole,
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

    /// Do the counts and scores sum up the results?
    pub fn adds_up(&self) -> bool {
        self.clone().with(self.results.clone()) == *self
    }

    /// Those that nothing noticed and something could.
    pub fn survivors(&self) -> impl Iterator<Item = &Judged> {
        self.results.iter().filter(|j| j.outcome == Outcome::Survived)
    }
}
