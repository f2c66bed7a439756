//! The smallest case that fails in the same way as the one that was found first.

use std::collections::BTreeMap;

use codegen::error::Result;
use emu_tests::{Clause, Failure, Filter, Report, Situation, Suite};

use crate::report::SuiteName;

/// How a trampoline fails. Outside of trampolines, where the check was made only tells which function was traced.
#[derive(Clone, PartialEq)]
struct Way {
    trampoline: String,
    clause: Clause,
    place: String,
    at: Option<String>,
}

impl Way {
    fn of(suite: &Suite, trampoline: &str, failure: &Failure) -> Way {
        let inside =
            |at: &&String| at.split_once('+').is_some_and(|(s, _)| suite.contracts.iter().any(|c| c.name == s));
        Way {
            trampoline: trampoline.to_owned(),
            clause: failure.clause,
            place: failure.place_id.clone(),
            at: Some(&failure.at).filter(inside).cloned(),
        }
    }
}

/// Put the smallest failure that is alike in place of each one in `report`, which came of `suites` or some of them.
///
/// Smallest is what changes the fewest options, then what traces the function with the fewest arguments, then what needs
/// the situation of the fewest parts; and of several such cases the first.
///
/// # Errors
/// As [`emu_tests::check`].
pub fn minimise(suites: &[&Suite], filter: &Filter, report: &mut Report) -> Result<()> {
    let mut functions = emu_tests::functions()?;
    functions.sort_by_key(|f| f.args);
    functions.retain(|f| filter.function.as_ref().is_none_or(|name| *name == f.name));
    let functions = functions.into_iter().map(|f| f.name).collect();
    let mut search = Search { suites, filter, seed: report.seed, functions, runs: BTreeMap::new() };
    for row in &mut report.results {
        let own = SuiteName::of_row(row);
        let Some(suite) = suites.iter().position(|s| SuiteName::of(s) == own) else { continue };
        let mut ways = Vec::new();
        for failure in std::mem::take(&mut row.failures) {
            let way = Way::of(suites[suite], &row.trampoline, &failure);
            if !ways.contains(&way) {
                row.failures.push(search.smallest(suite, &way)?.unwrap_or(failure));
                ways.push(way);
            }
        }
    }
    Ok(())
}

/// Options that do not have their default.
fn changed(suite: &Suite) -> usize {
    let default = |name: &str, value: &str| suite.options.split(' ').any(|o| o.split_once('=') == Some((name, value)));
    suite.backend.facts().options.iter().filter(|o| !default(o.name, o.values[0])).count()
}

/// A suite by number, with the function and the situation where only one is run.
type Cases = (usize, Option<String>, Option<Situation>);

struct Search<'s> {
    suites: &'s [&'s Suite],
    filter: &'s Filter,
    seed: u64,
    /// Simplest first.
    functions: Vec<String>,
    /// What came of what was run.
    runs: BTreeMap<Cases, Vec<(Way, Failure)>>,
}

impl Search<'_> {
    /// The smallest failure of this way, of those that fail in the suite number `own`.
    fn smallest(&mut self, own: usize, way: &Way) -> Result<Option<Failure>> {
        let suites = self.suites;
        // The objects of others have no options: of several, none is simpler.
        let of = |i: usize| (suites[i].backend.facts().name, changed(suites[i]));
        let mut simpler: Vec<usize> =
            (0..suites.len()).filter(|&i| of(i).0 == of(own).0 && of(i).1 < of(own).1).collect();
        simpler.sort_by_key(|&i| (of(i).1, &suites[i].options));
        let found = self.first(simpler.into_iter().map(|i| (i, None, None)), way)?;
        let suite = found.map_or(own, |((suite, ..), _)| suite);

        let functions = self.functions.clone();
        let found = self.first(functions.into_iter().map(|f| (suite, Some(f), None)), way)?;
        let Some(((_, function, _), _)) = found else { return Ok(None) };
        let mut situations = emu_tests::situations(std::slice::from_ref(suites[suite]));
        situations.retain(|situation| self.filter.situation.is_none_or(|wanted| wanted == *situation));
        situations.sort_by_key(|situation| situation.decisions());
        let found = self.first(situations.into_iter().map(|s| (suite, function.clone(), Some(s))), way)?;
        Ok(found.map(|(_, failure)| failure))
    }

    /// The first of `cases` among which one fails in this way, with the first failure.
    fn first(&mut self, cases: impl Iterator<Item = Cases>, way: &Way) -> Result<Option<(Cases, Failure)>> {
        for cases in cases {
            if let Some((_, failure)) = self.failures(&cases)?.iter().find(|(w, _)| w == way) {
                return Ok(Some((cases, failure.clone())));
            }
        }
        Ok(None)
    }

    fn failures(&mut self, cases: &Cases) -> Result<&[(Way, Failure)]> {
        if !self.runs.contains_key(cases) {
            let (suite, function, situation) = cases.clone();
            let suite = self.suites[suite];
            let filter = Filter {
                function: function.or(self.filter.function.clone()),
                situation: situation.or(self.filter.situation),
                all_failures: true,
                ..self.filter.clone()
            };
            let report = emu_tests::check(std::slice::from_ref(suite), &filter, self.seed, &|_, _| {})?;
            let rows = report.results.into_iter();
            let failures = rows.flat_map(|row| row.failures.into_iter().map(move |f| (row.trampoline.clone(), f)));
            let ways = failures.map(|(trampoline, f)| (Way::of(suite, &trampoline, &f), f)).collect();
            self.runs.insert(cases.clone(), ways);
        }
        Ok(self.runs.get(cases).map_or(&[], Vec::as_slice))
    }
}
