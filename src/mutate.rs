//! The checker is checked: each fault that [`codegen::mutate`] puts into a trampoline must fail a clause.
//!
//! [`emu_tests::check`] sees the object and the contracts, as always; that one is faulty it must find out by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use codegen::contract::Contract;
use codegen::error::{Error, Result};
use codegen::inplace::Function;
use codegen::isa::Backend;
use codegen::link::Input;
use codegen::mutate::{Mutant, Operator};
use codegen::obj;
use codegen::spec::Kind;
use codegen::target::Target;
use emu_tests::{Clause, Filter, Progress, Row, Suite, Verdict, disassemble};
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::report::Partition;
use crate::{request, suite};

/// Trampolines into which faults are put.
pub struct Ground {
    /// Without a fault.
    suite: Suite,
    /// Where they come from.
    origin: Origin,
    /// The arguments that choose them.
    chosen: String,
}

enum Origin {
    /// They are generated for a target.
    Generated(Box<Target>, Vec<(String, Kind)>),
    /// Somebody else wrote them. Offsets of what the judge never executes, by trampoline.
    Objects(Vec<Vec<u64>>),
}

impl Ground {
    /// Everything that `backend` has with these options and numbers.
    ///
    /// # Errors
    /// What generation refuses.
    pub fn new(backend: &'static dyn Backend, settings: &[(&str, &str)]) -> Result<Ground> {
        let target = request::target(backend, settings)?;
        let suite = suite::suite(backend, &target)?;
        let set: String = settings.iter().map(|(name, value)| format!(" --set {name}={value}")).collect();
        let chosen = format!(" --arch {}{set}", backend.facts().name);
        let trampolines = suite::trampolines(&target)?;
        Ok(Ground { suite, origin: Origin::Generated(Box::new(target), trampolines), chosen })
    }

    /// The trampolines of objects. They are judged as they are first: what is wrong already would be noticed with any
    /// fault.
    ///
    /// # Errors
    /// A clause of their contract fails, or they cannot be judged.
    pub fn objects(suite: Suite, seed: u64, progress: Progress) -> Result<Ground> {
        let chosen = suite.replay.strip_prefix("tramptool check TRAMPOLINE").unwrap_or_default().to_owned();
        let suites = [suite];
        let report = emu_tests::check(&suites, &Filter::default(), seed, progress)?;
        let [suite] = suites;
        let covers = |row: &&Row| row.clause == Clause::Coverage;
        if let Some(row) = report.results.iter().find(|row| row.verdict == Verdict::Fail && !covers(row)) {
            let (trampoline, clause) = (&row.trampoline, row.clause);
            return Err(Error::new(format!(
                "{trampoline} fails {clause} without a fault; see `tramptool check {trampoline}{chosen}`, and mend it \
                 or add a deviation to the contract"
            )));
        }
        let missed = report.results.iter().filter(covers).map(|row| row.missed.clone()).collect();
        Ok(Ground { suite, origin: Origin::Objects(missed), chosen })
    }

    /// The architecture.
    pub fn arch(&self) -> &'static str {
        self.suite.backend.facts().name
    }

    /// The name of the objects' contract; empty for what is generated.
    fn contract(&self) -> &str {
        match self.origin {
            Origin::Generated(..) => "",
            Origin::Objects(_) => self.suite.options.split(' ').next().unwrap_or_default(),
        }
    }

    /// The names of its trampolines.
    pub fn trampolines(&self) -> impl Iterator<Item = &str> + Clone {
        self.suite.contracts.iter().map(|contract| contract.name.as_str())
    }

    /// Instructions that the judge never executes, as trampoline and offset. They have no mutants.
    pub fn missed(&self) -> Vec<String> {
        let Origin::Objects(missed) = &self.origin else { return Vec::new() };
        let each = |(name, offsets): (&str, &Vec<u64>)| -> Vec<String> {
            offsets.iter().map(|offset| format!("{} {name}+{offset:#x}", self.arch())).collect()
        };
        self.trampolines().zip(missed).flat_map(each).collect()
    }

    /// All mutants of the trampolines for which `wanted` holds.
    ///
    /// # Errors
    /// What generation refuses.
    pub fn mutants(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<Candidate<'_>>> {
        let mut all = Vec::new();
        for (which, name) in self.trampolines().enumerate().filter(|(_, name)| wanted(name)) {
            let found = match &self.origin {
                Origin::Generated(target, trampolines) => {
                    let spec = &suite::specs(trampolines)[which];
                    vec![(0, self.suite.backend.mutants(spec, target)?)]
                }
                Origin::Objects(missed) => self.in_place(which, name, &missed[which])?,
            };
            for (object, mutants) in found {
                all.extend(mutants.into_iter().map(|mutant| Candidate {
                    ground: self,
                    which,
                    object,
                    mutant,
                    bug: None,
                }));
            }
        }
        Ok(all)
    }

    /// The mutants of one trampoline of an object, with the number of the object.
    fn in_place(&self, which: usize, name: &str, missed: &[u64]) -> Result<Vec<(usize, Vec<Mutant>)>> {
        let Suite { backend, objects, contracts, slots, .. } = &self.suite;
        for (i, (object, bytes)) in objects.iter().enumerate() {
            let Some(function) = Function::find(&Input { name: object, bytes }, name)? else { continue };
            // What the kernel writes to a call slot hides what is there.
            let slot = |offset| function.labels.iter().any(|(label, at)| *at == offset && slots.contains(label));
            let skip = |offset: usize| slot(offset) || missed.contains(&(offset as u64));
            let decode = |code: &[u8], offset| disassemble(backend.machine(), code, offset);
            return Ok(vec![(i, function.mutants(*backend, &contracts[which], &decode, &skip)?)]);
        }
        Ok(Vec::new())
    }
}

/// A mutant that may be run.
pub struct Candidate<'g> {
    ground: &'g Ground,
    which: usize,
    /// The number of the object that has the fault.
    object: usize,
    /// The fault.
    pub mutant: Mutant,
    /// The bug of the corpus that it rebuilds. Then every case is run, and its property must be among those that fail.
    pub bug: Option<&'static Bug>,
}

impl Candidate<'_> {
    /// The architecture.
    pub fn arch(&self) -> &'static str {
        self.ground.arch()
    }

    /// The trampoline with the fault.
    pub fn trampoline(&self) -> &str {
        &self.contract().name
    }

    fn contract(&self) -> &Contract {
        &self.ground.suite.contracts[self.which]
    }

    /// The object with the fault.
    fn faulty(&self) -> Result<Vec<u8>> {
        let Ground { suite, origin, .. } = self.ground;
        if let Origin::Generated(target, trampolines) = origin {
            let specs = suite::specs(trampolines);
            return obj::write(&suite.backend.assemble_mutant(&specs, target, self.which, &self.mutant)?, target);
        }
        let mut bytes = suite.objects[self.object].1.clone();
        for (at, new) in &self.mutant.patch {
            bytes[*at..at + new.len()].copy_from_slice(new);
        }
        Ok(bytes)
    }

    /// The clauses that fail: those of the first failing case, or of all.
    fn clauses(&self, seed: u64) -> Result<Vec<&'static str>> {
        let mut faulty = [self.ground.suite.clone()];
        let object = &mut faulty[0].objects[self.object];
        object.1 = self.faulty()?;
        let object = object.0.clone();
        let first_failure = self.bug.is_none();
        let mut filter = Filter { first_failure, ..Filter::default() };
        // A deviation that is gone can be noticed anywhere.
        if !faulty[0].deviations.iter().any(|d| filter.judges(d.clause)) {
            filter.concerning = Some(self.trampoline().to_owned());
        }
        let failing = |filter: &Filter| -> Result<Vec<&'static str>> {
            let report = match emu_tests::check(&faulty, filter, seed, &|_, _| {}) {
                Ok(report) => report,
                // Half of an address without its other half: the linker names the object that has it.
                Err(e) if e.to_string().starts_with(&object) => return Ok(vec![LINKER]),
                Err(e) => return Err(e.at(format_args!("{} {} {}", self.arch(), self.trampoline(), self.mutant))),
            };
            let failed = report.results.iter().filter(|r| r.verdict == Verdict::Fail).map(|r| r.clause);
            let failed: BTreeSet<Clause> = failed.filter(|c| *c != Clause::Coverage).collect();
            Ok(failed.into_iter().map(Clause::name).collect())
        };
        // Most die on any function: one with a few arguments, before all of them.
        if first_failure && !matches!(self.contract().kind, Kind::Direct(_)) {
            filter.function = Some(QUICK.to_owned());
            let failed = failing(&filter)?;
            if !failed.is_empty() {
                return Ok(failed);
            }
            filter.function = None;
        }
        failing(&filter)
    }
}

/// Stands among the clauses for a mutant that no linker lets through.
const LINKER: &str = "link";

/// The function on which a mutant is run first.
const QUICK: &str = "args3";

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
    /// How often each clause was among those that noticed.
    pub by: BTreeMap<String, usize>,
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

impl Report {
    /// The version of the format: it changes when a field goes or gets another meaning, not when one is added.
    pub const VERSION: u32 = 1;

    /// A report before anything was run.
    pub fn empty(seed: u64, request: String, whole: usize, partition: Option<Partition>) -> Report {
        Report {
            version: Report::VERSION,
            seed,
            engine: emu_tests::Report::empty(seed).engine,
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
            for clause in &judged.clauses {
                *scores[i].by.entry(clause.clone()).or_default() += 1;
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

/// A description of mutants.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// The architecture; `*` at the end stands for anything.
    pub arch: String,
    /// The contract of the objects, `*` as above; empty for what is generated.
    #[serde(default)]
    pub contract: String,
    /// The trampoline; `*` at the end stands for anything.
    pub trampoline: String,
    /// The operator, with or without operand; `*` for any.
    pub operator: String,
    /// A piece of the diff.
    #[serde(default)]
    pub line: String,
    /// Why they survive.
    pub reason: String,
}

/// A bug that shipped, rebuilt.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bug {
    /// The corpus' name for it.
    pub id: String,
    /// The architecture.
    pub arch: String,
    /// The trampoline.
    pub trampoline: String,
    /// Options, `name=value`, under which the trampoline can have it.
    #[serde(default)]
    pub set: Vec<String>,
    /// The operator, with its operand where it has one.
    pub operator: String,
    /// A piece of the diff, where there would be several.
    #[serde(default)]
    pub line: String,
    /// The property that must notice.
    pub property: String,
    /// What happened.
    pub about: String,
}

/// What is known of mutants.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// They do what the original does.
    #[serde(default)]
    pub equivalent: Vec<Known>,
    /// The checker ought to notice, and does not yet.
    #[serde(default)]
    pub gap: Vec<Known>,
    /// Bugs of the corpus.
    #[serde(default)]
    pub bug: Vec<Bug>,
}

/// The table that is part of the tool.
///
/// # Errors
/// It does not parse.
pub fn table() -> Result<&'static Table> {
    static TABLE: std::sync::OnceLock<std::result::Result<Table, String>> = std::sync::OnceLock::new();
    let parsed = TABLE.get_or_init(|| toml::from_str(include_str!("mutants.toml")).map_err(|e| e.to_string()));
    parsed.as_ref().map_err(|e| Error::new(format!("src/mutants.toml: {e}")))
}

fn fits(pattern: &str, text: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => text.starts_with(start),
        None => text == pattern,
    }
}

/// Is `pattern` the name of this mutant, with or without the offset, with or without the operand?
pub fn named(pattern: &str, mutant: &Mutant) -> bool {
    let full = mutant.to_string();
    let without_offset = full.split('@').next().unwrap_or_default();
    [full.as_str(), without_offset, mutant.operator.name()].contains(&pattern)
}

impl Known {
    /// Does it describe this mutant?
    pub fn describes(&self, candidate: &Candidate) -> bool {
        let mutant = &candidate.mutant;
        fits(&self.arch, candidate.arch())
            && fits(&self.contract, candidate.ground.contract())
            && fits(&self.trampoline, candidate.trampoline())
            && (named(&self.operator, mutant) || self.operator == "*")
            && mutant.diff.iter().any(|line| line.contains(&self.line))
    }
}

/// What the names of bugs begin with.
pub const BUG: &str = "bug:";

/// The bugs called `id`, which may be `all`.
///
/// # Errors
/// There is none of that name.
pub fn bugs(id: &str) -> Result<Vec<&'static Bug>> {
    let known = &table()?.bug;
    let found: Vec<&Bug> = known.iter().filter(|b| id == "all" || b.id.eq_ignore_ascii_case(id)).collect();
    if found.is_empty() {
        let ids: BTreeSet<&str> = known.iter().map(|b| b.id.as_str()).collect();
        return Err(Error::unknown("bug", id, ids.into_iter().chain(["all"])));
    }
    Ok(found)
}

impl Bug {
    /// Where it is rebuilt.
    ///
    /// # Errors
    /// The table is out of date.
    pub fn ground(&self) -> Result<Ground> {
        let settings = self.set.iter().map(|s| request::setting(s)).collect::<Result<Vec<_>>>()?;
        Ground::new(crate::backend(&self.arch)?, &settings)
    }

    /// The mutants on `ground` that are this bug.
    ///
    /// # Errors
    /// There is none: the table is out of date.
    pub fn rebuilt<'g>(&'static self, ground: &'g Ground) -> Result<Vec<Candidate<'g>>> {
        let mut candidates = ground.mutants(|name| name == self.trampoline)?;
        candidates.retain(|c| named(&self.operator, &c.mutant) && c.mutant.diff.iter().any(|l| l.contains(&self.line)));
        if candidates.is_empty() {
            return Err(Error::new(format!(
                "src/mutants.toml: bug {}: {} has no mutant {}; see `tramptool mutate {} --arch {}`",
                self.id, self.trampoline, self.operator, self.trampoline, self.arch
            )));
        }
        candidates.iter_mut().for_each(|c| c.bug = Some(self));
        Ok(candidates)
    }
}

/// Keep `n` of each operator on each architecture, the same ones for the same seed.
pub fn sample(candidates: &mut Vec<Candidate>, n: usize, seed: u64) {
    let rank = |c: &Candidate| {
        let mut hasher = DefaultHasher::new();
        (seed, c.trampoline(), c.mutant.to_string()).hash(&mut hasher);
        hasher.finish()
    };
    let mut classes: BTreeMap<(&str, Operator), Vec<u64>> = BTreeMap::new();
    for c in candidates.iter() {
        classes.entry((c.arch(), c.mutant.operator)).or_default().push(rank(c));
    }
    for ranks in classes.values_mut() {
        ranks.sort_unstable();
        ranks.truncate(n);
    }
    candidates.retain(|c| classes[&(c.arch(), c.mutant.operator)].contains(&rank(c)));
}

/// Run mutants, of which each comes with its number in the whole run.
///
/// # Errors
/// A mutant that cannot be put before the judge.
pub fn judge(candidates: &[(usize, Candidate)], seed: u64, progress: Progress) -> Result<Vec<Judged>> {
    let table = table()?;
    let (done, all) = (AtomicU64::new(0), candidates.len() as u64);
    let judge = |(number, c): &(usize, Candidate)| -> Result<Judged> {
        let clauses = c.clauses(seed)?;
        let known = |list: &'static [Known]| list.iter().find(|k| k.describes(c)).map(|k| k.reason.as_str());
        let noticed = c.bug.map_or(!clauses.is_empty(), |b| clauses.contains(&b.property.as_str()));
        let (outcome, reason) = match (noticed, known(&table.gap), known(&table.equivalent)) {
            (true, ..) => (Outcome::Killed, ""),
            (false, None, Some(reason)) => (Outcome::Equivalent, reason),
            (false, gap, _) => (Outcome::Survived, gap.unwrap_or("")),
        };
        let replay = match c.bug {
            Some(bug) => format!("tramptool mutate bug:{} --seed {seed}", bug.id),
            None => {
                format!("tramptool mutate {}{} --only '{}' --seed {seed}", c.trampoline(), c.ground.chosen, c.mutant)
            }
        };
        progress(done.fetch_add(1, Ordering::Relaxed) + 1, all);
        Ok(Judged {
            number: *number,
            arch: c.arch().to_owned(),
            trampoline: c.trampoline().to_owned(),
            operator: c.mutant.operator.name().to_owned(),
            mutant: c.mutant.to_string(),
            diff: c.mutant.diff.clone(),
            outcome,
            clauses: clauses.into_iter().map(str::to_owned).collect(),
            reason: reason.to_owned(),
            bug: c.bug.map(|b| (b.id.clone(), b.property.clone())),
            replay,
        })
    };
    candidates.par_iter().map(judge).collect()
}
