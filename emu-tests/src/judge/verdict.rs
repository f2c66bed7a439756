//! The verdicts that follow from what was counted.

use std::collections::{BTreeMap, BTreeSet};

use codegen::ask::kind::{Body, Calls, Entered};
use codegen::contract::Contract;
use codegen::words::abi::RegSet;
use codegen::words::step::ExitPath;

use crate::engine::emulator::Emulator;
use crate::engine::unwind::Said;
use crate::judge::suite::{Deviation, Missing, Suite};
use crate::judge::tally::Tally;
use crate::judge::trace::Fate;
use crate::report::place::Place;
use crate::report::reason::Reason;
use crate::report::{Clause, Promise, RegisterFate, Report, Row, Survival, Verdict};
use crate::run::case::Distance;
use crate::run::filter::Filter;

pub(crate) fn report(suites: &[Suite], parts: &[Tally], filter: &Filter, seed: u64) -> Report {
    let mut results = Vec::new();
    // Suites need not have the same trampolines.
    let mut registers: Vec<Survival> = Vec::new();
    for (suite, tally) in suites.iter().zip(parts) {
        for (i, contract) in suite.contracts.iter().enumerate() {
            let shown = filter.trampolines.is_empty() || filter.trampolines.contains(&contract.name);
            if !shown {
                continue;
            }
            let kind = contract.kind;
            let concerned = |clause: &Clause| match clause {
                Clause::P23 | Clause::P24 => kind.recorder().is_some(),
                Clause::P25 => kind.attaches(),
                _ => true,
            };
            for clause in Clause::ALL.into_iter().filter(concerned) {
                results.push(row(suite, tally, i, clause, filter));
            }
            survive(&mut registers, suite, tally, i);
        }
        let asked = |m: &&Missing| filter.trampolines.is_empty() || filter.trampolines.contains(&m.symbol);
        results.extend(suite.missing.iter().filter(asked).map(|missing| not_defined(suite, missing)));
    }
    let mut scenarios_by_arch = BTreeMap::new();
    for (suite, tally) in suites.iter().zip(parts) {
        *scenarios_by_arch.entry(suite.backend.facts().name.to_owned()).or_default() += tally.scenarios;
    }
    let mut report = Report {
        scenarios: parts.iter().map(|p| p.scenarios).sum(),
        scenarios_by_arch,
        stubs: parts.iter().flat_map(|p| p.stubs.iter().cloned()).collect::<BTreeSet<_>>().into_iter().collect(),
        in_place_of_engine: {
            let all = suites.iter().zip(parts).flat_map(|(suite, tally)| {
                let arch = suite.backend.facts().name;
                tally.lent.iter().map(move |mnemonic| format!("{arch} {mnemonic}"))
            });
            all.collect::<BTreeSet<_>>().into_iter().collect()
        },
        warnings: {
            let all = suites.iter().zip(parts).flat_map(|(suite, tally)| warnings(suite, tally));
            all.collect::<BTreeSet<_>>().into_iter().collect()
        },
        alternatives: alternatives(suites, false),
        alternatives_in_place: alternatives(suites, true),
        results,
        registers,
        ..Report::empty(seed)
    };
    report.recount();
    report
}

/// The places of alternatives that were in place, or of those that were not.
fn alternatives(suites: &[Suite], in_place: bool) -> Vec<String> {
    suites.iter().filter(|s| s.chosen.alternatives() == in_place).flat_map(|s| s.alternatives.iter().cloned()).collect()
}

/// Add what became of a trampoline's registers under the options of a suite.
fn survive(registers: &mut Vec<Survival>, suite: &Suite, tally: &Tally, i: usize) {
    let (facts, trampoline) = (suite.backend.facts(), &suite.contracts[i].name);
    let known = registers.iter().position(|s| s.arch == facts.name && s.trampoline == *trampoline);
    let at = known.unwrap_or_else(|| {
        let (arch, trampoline) = (facts.name.to_owned(), trampoline.clone());
        registers.push(Survival { arch, trampoline, registers: BTreeMap::new(), promises: Vec::new() });
        registers.len() - 1
    });
    let survival = &mut registers[at];
    let abi = &facts.abi;
    for reg in abi.callee_saved.union(abi.caller_saved).union(abi.platform).iter() {
        let Fate { kept, changed, lost } = tally.fates[i][usize::from(reg.0)];
        let fate: &mut RegisterFate = survival.registers.entry(abi.name(reg).to_owned()).or_default();
        fate.kept += kept;
        fate.changed += changed;
        fate.lost += lost;
        fate.promised |= tally.promised[i].iter().any(|way| way.contains(reg));
    }
    for (way, promised) in ExitPath::ALL.into_iter().zip(tally.promised[i]).filter(|(_, set)| *set != RegSet::EMPTY) {
        let registers = promised.iter().map(|reg| abi.name(reg)).collect::<Vec<_>>().join(" ");
        survival.promise(Promise { way: leads(way).to_owned(), registers, options: vec![suite.options.clone()] });
    }
}

/// Deviations that name a place by its sentence, which the next release does not understand.
fn warnings(suite: &Suite, tally: &Tally) -> Vec<String> {
    let renamed = suite.deviations.iter().zip(&tally.renamed).filter(|(_, ids)| !ids.is_empty());
    let told = renamed.map(|(deviation, ids)| {
        let ids = ids.iter().map(|id| format!("\"{id}\"")).collect::<Vec<_>>().join(", ");
        let (of, clause, place) = (&suite.options, deviation.clause, &deviation.place);
        format!("{of}: {clause}: place = \"{place}\" is a sentence, which the next release will not know; write {ids}")
    });
    told.collect()
}

/// A verdict, and why.
struct Judged {
    verdict: Verdict,
    reason: String,
    reason_id: Option<Reason>,
}

impl Judged {
    fn pass(reason: String) -> Judged {
        Judged { verdict: Verdict::Pass, reason, reason_id: None }
    }

    fn fail(reason: String) -> Judged {
        Judged { verdict: Verdict::Fail, reason, reason_id: None }
    }

    fn deviates(reason: Reason) -> Judged {
        Judged { verdict: Verdict::Deviates, reason: reason.about().to_owned(), reason_id: Some(reason) }
    }

    /// As the contract says, at these places.
    fn stated(deviations: &[&Deviation]) -> Judged {
        Judged { reason: reasons(deviations), ..Judged::deviates(Reason::Stated) }
    }

    fn skip(reason: Reason) -> Judged {
        Judged { verdict: Verdict::Skip, reason: reason.about().to_owned(), reason_id: Some(reason) }
    }
}

/// One clause of one trampoline, and all that its verdict depends on.
struct Question<'q> {
    suite: &'q Suite,
    tally: &'q Tally,
    filter: &'q Filter,
    /// The number of the trampoline.
    trampoline: usize,
    clause: Clause,
    checks: u64,
}

/// What is told of a trampoline that none of the objects defines.
fn not_defined(suite: &Suite, missing: &Missing) -> Row {
    Row {
        arch: suite.backend.facts().name.to_owned(),
        trampoline: missing.symbol.clone(),
        options: suite.options.clone(),
        clause: Clause::Coverage,
        verdict: if missing.elsewhere { Verdict::Skip } else { Verdict::Open },
        reason: format!("{}{}", missing.reason.about(), missing.hint),
        reason_id: Some(missing.reason),
        checks: 0,
        failures: Vec::new(),
        places: Vec::new(),
        missed_elsewhere: Vec::new(),
        missed: Vec::new(),
        elsewhere: Vec::new(),
    }
}

fn row(suite: &Suite, tally: &Tally, trampoline: usize, clause: Clause, filter: &Filter) -> Row {
    let checks = match clause {
        // They look at each instruction, unless the engine executes what the former is about.
        Clause::Wide if tally.checks[trampoline][clause as usize] == 0 => tally.instructions[trampoline] as u64,
        Clause::Coverage => tally.instructions[trampoline] as u64,
        _ => tally.checks[trampoline][clause as usize],
    };
    let question = Question { suite, tally, filter, trampoline, clause, checks };
    let judged = match clause {
        Clause::Wide => question.wide(),
        Clause::Coverage => question.coverage(),
        _ => question.checked(),
    };
    let Judged { verdict, reason, reason_id } = question.left_open(&judged).unwrap_or(judged);
    let failures = tally.failures[trampoline].iter().filter(|f| f.clause == clause);
    let missed = tally.missed[trampoline].iter().flatten().filter(|_| clause == Clause::Coverage);
    let tails = &tally.elsewhere[trampoline];
    Row {
        arch: suite.backend.facts().name.to_owned(),
        trampoline: suite.contracts[trampoline].name.clone(),
        options: suite.options.clone(),
        clause,
        verdict,
        reason,
        reason_id,
        checks,
        failures: failures.take(filter.kept_failures()).cloned().collect(),
        places: tally.places[trampoline].iter().filter(|(c, _)| *c == clause).map(|(_, at)| at.clone()).collect(),
        missed_elsewhere: missed.clone().filter_map(|at| tails.get(at).cloned()).collect(),
        missed: missed.filter(|at| !tails.contains_key(at)).copied().collect(),
        elsewhere: tails.values().filter(|_| clause == Clause::Coverage).cloned().collect(),
    }
}

impl Question<'_> {
    /// A clause that is open: the trampoline is reached through another one, whose other runs were left out because it fails.
    fn left_open(&self, judged: &Judged) -> Option<Judged> {
        let Question { suite, tally, filter, trampoline, clause, .. } = *self;
        let contract = &suite.contracts[trampoline];
        let fails = |i: usize| tally.failed[i].iter().any(|n| *n > 0);
        let own = contract.kind.attaches() || contract.kind.is_called() || fails(trampoline);
        let cause = (0..suite.contracts.len()).find(|i| tally.cut_off[*i] && fails(*i));
        let cause = cause.filter(|_| filter.judges(clause) && !filter.first_failure && !own)?;
        let decided = tally.decided[trampoline][clause as usize];
        let open = match (judged.verdict, judged.reason_id) {
            (Verdict::Skip, Some(Reason::NotInCases | Reason::WayNotTaken | Reason::CutOff | Reason::NoCase)) => true,
            (Verdict::Pass, _) => undecided(contract, clause, decided).is_some(),
            _ => false,
        };
        let first = tally.failures[cause].iter().min_by_key(|f| f.clause);
        let first = first.map_or(String::new(), |f| format!(": {} {}, at {}", f.clause, f.place, f.at));
        let name = &suite.contracts[cause].name;
        let reason = format!("{name} leads here and fails{first}; its other runs were left out");
        open.then_some(Judged { verdict: Verdict::Open, reason, reason_id: Some(Reason::LeftOut) })
    }

    /// Of what runs check: the first line that fits decides.
    fn checked(&self) -> Judged {
        let Question { suite, tally, filter, trampoline, clause, checks } = *self;
        let contract = &suite.contracts[trampoline];
        let of_this = |d: &Deviation| (d.trampoline, d.clause) == (trampoline, clause);
        let expected = suite.deviations.iter().zip(&tally.deviated).filter(|(d, _)| of_this(d));
        let (found, lost): (Vec<_>, Vec<_>) = expected.partition(|(_, n)| **n > 0);
        let found: Vec<&Deviation> = found.into_iter().map(|(d, _)| d).collect();
        // What was not run may be where it deviates.
        let ended = (filter.first_failure && tally.fails()) || tally.cut_off.contains(&true);
        let whole = !filter.leaves_out() && filter.fixture.is_none() && filter.judges(clause) && !ended;
        // Where objtool runs on the whole kernel only, its objects have no table.
        let tables = tally.unwinding.iter().any(|said| *said != Said::Nothing);
        let (untold, lost): (Vec<_>, Vec<_>) = lost.into_iter().partition(|(d, _)| !tables && d.is_of_table());
        // Who enforces nothing does not decide what is stopped.
        let asked = clause != Clause::P26 || suite.engine == Emulator::Enforced;
        let lost = lost.iter().find(|(d, _)| whole && asked && !d.perhaps).map(|(d, _)| d);
        let failed = tally.failed[trampoline][clause as usize];
        let vectors_lost = tally.vectors_lost[trampoline] > 0;
        match (lost, &found[..], clause) {
            _ if failed > 0 => Judged::fail(format!("{failed} failures")),
            (Some(d), ..) => Judged::fail(not_there(d)),
            (_, [_, ..], _) => Judged::stated(&found),
            _ if !untold.is_empty() => Judged::skip(Reason::NoTable),
            (.., Clause::P2) if vectors_lost && checks > 0 => Judged::deviates(Reason::VectorsLost),
            (.., Clause::P3) if vectors_lost && contract.kind.returned_to() => {
                Judged::deviates(Reason::VectorResultsLost)
            }
            _ if checks == 0 => Judged::skip(not_applicable(contract, clause, tally.unwinding[trampoline])),
            _ if whole => match undecided(contract, clause, tally.decided[trampoline][clause as usize]) {
                Some(way) => {
                    Judged { reason: format!("not decided on the way {way}"), ..Judged::skip(Reason::WayNotTaken) }
                }
                None => Judged::pass(String::new()),
            },
            _ => Judged::pass(String::new()),
        }
    }

    /// What was executed is told before what was read.
    fn wide(&self) -> Judged {
        let Question { suite, tally, trampoline, clause, .. } = *self;
        let lacks = suite.backend.machine().wide.name;
        let (failed, executed) = (tally.failed[trampoline][clause as usize], tally.checks[trampoline][clause as usize]);
        match (&tally.wide[trampoline], self.checks) {
            // Of a run that ends with its first failure, nobody counts what was executed.
            (None, _) if failed > 0 => self.checked(),
            _ if executed > 0 => match self.checked() {
                Judged { verdict: Verdict::Pass, .. } => Judged::pass("executed at full width".to_owned()),
                judged => judged,
            },
            (Some(at), _) if failed > 0 => {
                Judged::fail(format!("{at} may change {lacks}, and nothing stores them before"))
            }
            (_, 0) => Judged::skip(Reason::NotLookedAt),
            (Some(_), _) if suite.engine.has_wide(suite.backend) => Judged::skip(Reason::WideUsed),
            (None, n) if suite.engine.has_wide(suite.backend) => {
                Judged::pass(format!("none of {n} instructions changes {lacks}"))
            }
            (Some(at), _) => {
                let reason = format!("engine lacks {lacks}, and {at} may change them");
                Judged { reason, ..Judged::skip(Reason::EngineLacks) }
            }
            (None, n) => Judged::pass(format!("engine lacks {lacks}, but none of {n} instructions changes them")),
        }
    }

    fn coverage(&self) -> Judged {
        let (total, filter) = (self.tally.instructions[self.trampoline], self.filter);
        match &self.tally.missed[self.trampoline] {
            _ if self.tally.cut_off.contains(&true) => Judged::skip(Reason::CutOff),
            _ if !filter.judges(self.clause) => Judged::skip(Reason::FirstFailure),
            None if matches!(filter.distance, Some(Distance::Far { .. })) => Judged::skip(Reason::OtherImage),
            None if filter.chosen() => Judged::skip(Reason::NoCase),
            None => Judged::fail(format!("never executed{}", self.unreached())),
            Some(missed) if filter.leaves_out() && !missed.is_empty() => Judged::skip(Reason::NotAllCases),
            Some(missed) => self.missed(missed, total),
        }
    }

    /// The way that leads to the rest of a trampoline, if nothing went it.
    fn unreached(&self) -> String {
        let Question { suite, tally, trampoline, .. } = *self;
        let contract = &suite.contracts[trampoline];
        let open = undecided(contract, Clause::P9, tally.decided[trampoline][Clause::P9 as usize]);
        open.map_or(String::new(), |way| format!("; nothing went the way {way}"))
    }

    /// Of all cases: instructions at these offsets were never executed.
    fn missed(&self, missed: &[u64], total: usize) -> Judged {
        let Question { suite, trampoline, clause, .. } = *self;
        let name = &suite.contracts[trampoline].name;
        let tails = &self.tally.elsewhere[trampoline];
        let at = |offset: u64| tails.get(&offset).cloned().unwrap_or_else(|| format!("{name}+{offset:#x}"));
        let covers = |d: &Deviation, offset: u64| d.names_place(&Place::NeverExecuted, &at(offset)).is_some();
        let expected = suite.deviations.iter().filter(|d| (d.trampoline, d.clause) == (trampoline, clause));
        let (found, lost): (Vec<_>, Vec<_>) = expected.partition(|d| missed.iter().any(|o| covers(d, *o)));
        let unknown = missed.iter().filter(|o| !found.iter().any(|d| covers(d, **o)));
        let unknown: Vec<String> =
            unknown.map(|o| tails.get(o).cloned().unwrap_or_else(|| format!("{o:#x}"))).collect();
        match (lost.iter().find(|d| !d.perhaps), &found[..]) {
            _ if !unknown.is_empty() => {
                let (n, why) = (total - missed.len(), self.unreached());
                Judged::fail(format!("{n} of {total} instructions; not executed: {}{why}", unknown.join(" ")))
            }
            (Some(d), _) if !self.filter.leaves_out() && self.filter.fixture.is_none() => Judged::fail(not_there(d)),
            (_, [_, ..]) => Judged::stated(&found),
            _ => Judged::pass(format!("{total} of {total} instructions")),
        }
    }
}

/// The ways out of a trampoline, and that to the function which it calls.
fn ways(contract: &Contract) -> impl Iterator<Item = ExitPath> {
    let kind = contract.kind;
    let called = move |way| way == ExitPath::Function && kind.calls_body();
    let there = move |way: &ExitPath| contract.leaves_by(*way) || *way == kind.traits().leaves || called(*way);
    ExitPath::ALL.into_iter().filter(there)
}

/// The first way out on which a clause must be decided and was not, `decided` being those on which it was, as bits.
fn undecided(contract: &Contract, clause: Clause, decided: u8) -> Option<&'static str> {
    use ExitPath::{Direct, DirectJump, EarlyDirect, Function, Parent, Skipped};
    let below = contract.kind.traits().body == Body::BelowFrame;
    let concerned: &[ExitPath] = match clause {
        Clause::P1 | Clause::P2 | Clause::P4 => &[Function, Direct, DirectJump, EarlyDirect],
        Clause::P3 => &[Parent, Skipped],
        // Where the function is called below a frame, its SP is nobody's else.
        Clause::P7 if below => &[Parent, Skipped],
        Clause::P5 | Clause::P6 | Clause::P7 | Clause::P9 | Clause::P14 | Clause::Wide => {
            &[Function, Direct, DirectJump, EarlyDirect, Parent, Skipped]
        }
        _ => &[],
    };
    let open = |way: &ExitPath| concerned.contains(way) && decided & 1 << *way as u8 == 0;
    ways(contract).find(open).map(leads)
}

/// Where a way out leads.
fn leads(way: ExitPath) -> &'static str {
    match way {
        ExitPath::Function => "back into the traced function",
        ExitPath::Direct => "to a direct trampoline",
        ExitPath::DirectJump => "to a direct trampoline that the site jumps to",
        ExitPath::EarlyDirect => "to the direct trampoline of the ftrace_ops",
        ExitPath::Parent => "to the parent",
        ExitPath::Skipped => "past the traced function",
        ExitPath::Caller => "to the caller",
    }
}

/// What is expected to deviate, in words.
fn told(deviation: &Deviation) -> String {
    let way = deviation.way.map_or(String::new(), |way| format!(" on the way {}", leads(way)));
    let by = deviation.by.map_or(String::new(), |by| format!(" by {by:+}"));
    format!("{}{way}{by}", deviation.place)
}

fn not_there(deviation: &Deviation) -> String {
    format!("{} was expected to deviate and does not: {}", told(deviation), deviation.reason)
}

/// Why these are expected; places with the same reason are told together.
fn reasons(deviations: &[&Deviation]) -> String {
    let mut reasons: Vec<(String, &str)> = Vec::new();
    for d in deviations {
        match reasons.last_mut().filter(|(_, reason)| *reason == d.reason) {
            Some((places, _)) => *places = format!("{places}, {}", told(d)),
            None => reasons.push((told(d), &d.reason)),
        }
    }
    let told = reasons.iter().map(|(places, reason)| format!("{places}: {reason}"));
    told.collect::<Vec<_>>().join("; ")
}

fn not_applicable(contract: &Contract, clause: Clause, unwinding: Said) -> Reason {
    let row = contract.kind.traits();
    match (row.entered, row.leaves, row.calls, clause) {
        (Entered::AsCallback, ..) => Reason::AsCallback,
        (Entered::ByReturn | Entered::AsFunction, .., Clause::P16 | Clause::P17 | Clause::P18) => Reason::NoSite,
        (Entered::ByReturn, .., Clause::P1 | Clause::P2) => Reason::AfterFunction,
        (_, ExitPath::Function, _, Clause::P3) => Reason::BeforeFunction,
        (.., Calls::Nothing, Clause::P8 | Clause::P10 | Clause::P11) => Reason::CallsNothing,
        (.., Clause::P12) if unwinding == Said::Rows => Reason::NotInCases,
        (.., Clause::P12) if unwinding == Said::Untold => Reason::Incomparable,
        (.., Calls::Named, Clause::P11) => Reason::DecidesNothing,
        _ => clause.unchecked(),
    }
}
