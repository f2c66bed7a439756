//! The smallest case that fails in the same way as the one that was found first.

use std::collections::BTreeMap;

use codegen::words::error::Result;
use emu_tests::{Clause, Failure, Filter, Function, Report, Situation, Suite};

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
    let seed = report.seed;
    minimise_by(
        &|suite, filter| emu_tests::check(std::slice::from_ref(suite), filter, seed, &|_, _| {}),
        suites,
        filter,
        report,
    )
}

/// Runs the cases of a suite that a filter leaves.
type Run<'r> = &'r dyn Fn(&Suite, &Filter) -> Result<Report>;

fn minimise_by(run: Run, suites: &[&Suite], filter: &Filter, report: &mut Report) -> Result<()> {
    let mut search = Search { run, suites, filter, runs: BTreeMap::new() };
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
    run: Run<'s>,
    suites: &'s [&'s Suite],
    filter: &'s Filter,
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

        let wanted = |f: &&Function| self.filter.function.as_ref().is_none_or(|name| *name == f.name);
        let mut functions: Vec<&Function> = emu_tests::functions([suites[suite]])?.iter().filter(wanted).collect();
        functions.sort_by_key(|f| f.args);
        let found = self.first(functions.into_iter().map(|f| (suite, Some(f.name.clone()), None)), way)?;
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
            let report = (self.run)(suite, &filter)?;
            let rows = report.results.into_iter();
            let failures = rows.flat_map(|row| row.failures.into_iter().map(move |f| (row.trampoline.clone(), f)));
            let ways = failures.map(|(trampoline, f)| (Way::of(suite, &trampoline, &f), f)).collect();
            self.runs.insert(cases.clone(), ways);
        }
        Ok(self.runs.get(cases).map_or(&[], Vec::as_slice))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use emu_tests::{Row, Verdict};

    use super::*;

    fn failure(clause: Clause, place: &str, function: &str, situation: &str) -> Failure {
        let text = |s: &str| s.to_owned();
        Failure {
            clause,
            place: text(place),
            place_id: text(place),
            expected: String::new(),
            found: String::new(),
            at: String::new(),
            last_writer: String::new(),
            context: Vec::new(),
            replay: format!("{function} {situation}"),
        }
    }

    fn report(suite: &Suite, failures: Vec<Failure>) -> Report {
        let row = Row {
            arch: suite.backend.facts().name.to_owned(),
            trampoline: suite.contracts[0].name.clone(),
            options: suite.options.clone(),
            clause: Clause::P1,
            verdict: Verdict::Fail,
            reason: String::new(),
            reason_id: None,
            checks: 1,
            failures,
            missed: Vec::new(),
            elsewhere: Vec::new(),
            missed_elsewhere: Vec::new(),
            places: Vec::new(),
        };
        Report { results: vec![row], ..Report::empty(1) }
    }

    /// An entry trampoline under the default options, and with another value for the first of them.
    fn suites() -> [Suite; 2] {
        let backend = crate::BACKENDS[0];
        let convention = crate::convention(backend).unwrap();
        let suite = |choices| {
            let target = backend.target(convention, choices).unwrap();
            let entry = target.convention.specs().find(|s| s.kind.calls_back()).unwrap();
            crate::suite::suite_of_specs(backend, &target, &[entry]).unwrap()
        };
        let other = convention.offered().map(|(rule, _)| convention.defaults().with(rule.index, 1 - rule.default));
        [suite(convention.defaults()), suite(other.into_iter().next().unwrap())]
    }

    /// A machine on which a case fails if `fails` says so of suite, function and situation: once at `here`, and wherever
    /// there are five arguments elsewhere too. Returns what is left of the failure found first, and how many runs it took.
    fn smallest(fails: impl Fn(bool, usize, Situation) -> bool) -> (Vec<String>, usize) {
        let all = suites();
        let [default, other] = &all;
        let runs = Cell::new(0);
        let functions = emu_tests::functions(&all).unwrap();
        let run = |suite: &Suite, filter: &Filter| {
            runs.set(runs.get() + 1);
            let mut found = Vec::new();
            for f in functions.iter().filter(|f| filter.function.as_ref().is_none_or(|name| *name == f.name)) {
                for situation in emu_tests::situations(std::slice::from_ref(suite)) {
                    if filter.situation.is_some_and(|wanted| wanted != situation) {
                        continue;
                    }
                    if f.args == 5 {
                        found.push(failure(Clause::P1, "elsewhere", &f.name, &situation.to_string()));
                    }
                    if fails(suite.options == default.options, f.args, situation) {
                        found.push(failure(Clause::P1, "here", &f.name, &situation.to_string()));
                    }
                }
            }
            Ok(report(suite, found))
        };
        let args = |name: &str| functions.iter().find(|f| f.name == name).unwrap().args;
        let first = run(other, &Filter::default()).unwrap().results.remove(0).failures;
        let first = first.into_iter().find(|f| f.place == "here").unwrap();
        // The same again, from another function: told once.
        let mut report = report(other, vec![first.clone(), first]);
        runs.set(0);
        minimise_by(&run, &[default, other], &Filter::default(), &mut report).unwrap();
        let left = report.results.remove(0).failures.into_iter().map(|f| {
            let (function, situation) = f.replay.split_once(' ').unwrap();
            format!("{} {situation} at {}", args(function), f.place)
        });
        (left.collect(), runs.get())
    }

    #[test]
    fn the_fewest_arguments_come_before_the_fewest_decisions() {
        // Of those with two decisions and more, the first with two; whatever the function.
        let (left, _) = smallest(|_, args, situation| args >= 2 && situation.decisions() >= 2);
        assert_eq!(left, ["2 args+ip at here"]);
        let (left, _) = smallest(|_, args, situation| args >= 4 && situation != Situation::PLAIN);
        assert_eq!(left, ["4 args at here"]);
        let (left, runs) = smallest(|_, _, _| true);
        assert_eq!(left, ["0 plain at here"]);
        assert!(runs <= 3, "{runs} runs for what fails at once");
    }

    #[test]
    fn fewer_changed_options_come_first_if_it_fails_there_too() {
        // Under the default options only with more arguments: that is the simpler suite all the same.
        let (left, _) =
            smallest(|default, args, situation| args >= if default { 3 } else { 1 } && situation.decisions() == 0);
        assert_eq!(left, ["3 plain at here"]);
        // There it never fails: what is found first is made small where it was found.
        let (left, _) = smallest(|default, args, situation| !default && args >= 1 && situation.decisions() == 0);
        assert_eq!(left, ["1 plain at here"]);
    }
}
