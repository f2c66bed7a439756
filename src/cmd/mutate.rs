//! `mutate`: inject faults into trampolines and see whether the checks notice.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::RangedU64ValueParser;
use codegen::backend::Backend;
use codegen::effect::faults::Operator;
use codegen::words::error::{Error, Result};
use codegen::words::shell::shell;
use emu_tests::{Emulator, Suite};
use tool::mutate::bugs::{self, BUG, named};
use tool::mutate::by::By;
use tool::mutate::report::{Judged, Outcome, Report};
use tool::mutate::run::{judge, sample};
use tool::mutate::subject::{Candidate, MutationSubject};
use tool::settings::{self, parse_u64};

use super::shared::args::ProfileArg;
use super::shared::engine::{EngineArgs, run_by};
use super::shared::foreign::{ForeignArgs, no_files};
use super::shared::output;
use super::shared::sandbox::SandboxArg;
use super::shared::ui::{self, Style, Ui, Written};
use super::shared::values::one_of;

/// Arguments of `mutate`.
#[derive(Args)]
#[command(after_help = after_help())]
pub struct MutateArgs {
    /// Trampolines to put faults into, `direct` for all direct-call trampolines, or bugs: bug:F1, bug:all [default: all
    /// trampolines]
    #[arg(value_name = "TRAMPOLINE")]
    trampolines: Vec<String>,
    /// Architecture, or `all`
    #[arg(long, value_name = "ARCH", default_value = "all")]
    arch: String,
    /// Set an option or a number; all others have their defaults
    #[arg(long, value_name = "OPTION=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    profile: ProfileArg,
    #[command(flatten)]
    foreign: ForeignArgs,
    #[command(flatten)]
    sandbox: SandboxArg,
    #[command(flatten)]
    engine: EngineArgs,
    /// Who judges: the emulator, the symbolic checker, or each of them
    #[arg(long, value_parser = one_of(By::ALL), default_value = "emulator")]
    by: By,
    /// Run only this operator, also with operand and offset: DROP_SAVE, DROP_SAVE(r11), DROP_SAVE(r11)@0x29
    #[arg(long, value_name = "MUTANT")]
    only: Option<String>,
    /// Run at most N mutants of each operator on each architecture
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    sample: Option<usize>,
    /// The seed of all random values, decimal or 0x...
    #[arg(long, value_name = "N", value_parser = parse_u64, default_value = "1")]
    seed: u64,
    /// The report's format
    #[arg(long, value_enum, default_value = "human")]
    format: Written,
    /// Write the report to a file instead of stdout
    #[arg(short, value_name = "FILE")]
    output: Option<PathBuf>,
}

fn after_help() -> String {
    let mut text = String::from(
        "Each mutant is a trampoline with one fault. The checks of `tramptool check` run it, and do not know the fault. A \
         mutant that no clause notices survives; the report prints its diff. Mutants that do not encode, or give identical \
         bytes, are skipped. src/mutants.toml lists the equivalent ones with reasons; others are those after which whoever the \
         trampoline calls or returns to finds the same registers, stack and memory in every run.\n\
         \nWith --object or --raw, the faults go into your files. Every instruction keeps its address; a missing one becomes \
         NOPs. Instructions that the checks never execute get no mutants; the report names them.\n\
         \nWith --by verify, the symbolic checker judges the listings of generated trampolines without running them. With \
         --by both, one more column counts what it notices. With --by observe, `tramptool diff` compares mutant and original \
         without a contract, and must find a difference in behaviour.\n\
         \nOperators:\n",
    );
    for operator in Operator::ALL {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {:22} {}", operator.name(), operator.about());
    }
    text + "\nExit code: 0 all are noticed, 1 some survive, 2 trouble.\n\n\
            Examples:\n  \
            tramptool mutate --sample 2\n  \
            tramptool mutate ftrace_regs_caller --arch x86_64\n  \
            tramptool mutate ftrace_caller --arch arm64 --only 'DROP_RESTORE(x8)'\n  \
            tramptool mutate bug:F1\n  \
            tramptool mutate --by verify\n  \
            tramptool mutate --by observe --sample 3\n  \
            tramptool mutate --object ftrace_64.o rethook.o --contract linux-6.12-x86_64-orc"
}

/// Run the mutants.
///
/// # Errors
/// A name that is unknown, or a report that cannot be written; a mutant that survives is not an error.
pub fn run(args: &MutateArgs, ui: &Ui) -> Result<u8> {
    args.output.as_deref().map_or(Ok(()), output::probe)?;
    no_files(&args.trampolines)?;
    let (bugs, names): (Vec<&String>, Vec<&String>) = args.trampolines.iter().partition(|t| t.starts_with(BUG));
    let contract = args.foreign.contract(&args.profile)?;
    let mut suites = args.foreign.suites(contract.as_ref(), &args.arch, &args.profile)?;
    let engine = args.engine.one()?;
    run_by(engine, suites.as_deref_mut().unwrap_or_default());
    let ours = if bugs.is_empty() && suites.is_none() { generated(args)? } else { Vec::new() };
    let _threads = args.sandbox.enter_with(&[engine], args.output.as_deref())?;
    let report = match (bugs.is_empty(), names.is_empty(), suites) {
        (true, _, None) => faults(args, &ours)?,
        (true, _, Some(suites)) => faults(args, &foreign(args, suites)?)?,
        (false, true, None) => corpus(args, &bugs)?,
        _ => return Err(Error::new("bugs are given, and trampolines or files; valid: one or the other")),
    };
    deliver(&report, args.format, args.output.as_deref(), ui)
}

/// Write a report. Returns the exit code.
///
/// # Errors
/// It cannot be written.
pub fn deliver(report: &Report, format: Written, output: Option<&Path>, ui: &Ui) -> Result<u8> {
    let text = match format {
        Written::Json => tool::report::json(report)?,
        Written::Html => tool::report::page::of_mutants(report)?,
        Written::Human => {
            let plain = Ui::plain();
            let report = &tool::report::cleaned(report)?;
            render(report, if output.is_some() { &plain } else { ui })
        }
    };
    output::report(text, output, ui)?;
    Ok(u8::from(report.survivors().next().is_some()))
}

/// Everything generated.
fn generated(args: &MutateArgs) -> Result<Vec<MutationSubject>> {
    let backends = settings::backends(&args.arch, args.profile.find()?)?;
    backends.into_iter().map(|b| Ok(subject(args, b)?.run_by(args.engine.one()?))).collect()
}

/// What others wrote.
fn foreign(args: &MutateArgs, suites: Vec<Suite>) -> Result<Vec<MutationSubject>> {
    let subject = |suite| ui::with_progress(|progress| MutationSubject::objects(suite, args.seed, progress));
    suites.into_iter().map(subject).collect()
}

fn faults(args: &MutateArgs, subjects: &[MutationSubject]) -> Result<Report> {
    let known = subjects.iter().flat_map(MutationSubject::trampolines);
    let names = tool::request::known_trampolines(&args.trampolines, known)?;
    let mut candidates = Vec::new();
    for subject in subjects {
        candidates.extend(subject.mutants(|name| names.is_empty() || names.iter().any(|n| n == name))?);
    }
    let missed = subjects.iter().flat_map(MutationSubject::missed).collect();
    Ok(Report { missed, ..judged(args, candidates)? })
}

fn corpus(args: &MutateArgs, wanted: &[&String]) -> Result<Report> {
    let mut found = Vec::new();
    for name in wanted {
        found.extend(bugs::find(&name[BUG.len()..])?);
    }
    let subjects = found.iter().map(|bug| Ok(MutationSubject::of_bug(bug)?.run_by(args.engine.one()?)));
    let subjects = subjects.collect::<Result<Vec<_>>>()?;
    let mut candidates = Vec::new();
    for (bug, subject) in found.into_iter().zip(&subjects) {
        candidates.extend(subject.rebuilt(bug)?);
    }
    judged(args, candidates)
}

/// Run what the arguments select of these.
fn judged(args: &MutateArgs, mut candidates: Vec<Candidate>) -> Result<Report> {
    if let Some(only) = &args.only {
        candidates.retain(|c| named(only, &c.mutant));
        if candidates.is_empty() {
            let valid = Operator::ALL.iter().map(|o| o.name());
            return Err(Error::unknown("mutant of these trampolines", only, valid));
        }
    }
    if let Some(n) = args.sample {
        sample(&mut candidates, n, args.seed);
    }
    let mut report = Report::empty(args.by, args.seed, request(args), candidates.len());
    if let Some(first) = candidates.first() {
        report.engine = args.engine.one()?.version(tool::backend(first.arch())?)?;
    }
    let candidates: Vec<(usize, Candidate)> = candidates.into_iter().enumerate().collect();
    let results = ui::with_progress(|progress| judge(&candidates, args.by, args.seed, progress))?;
    Ok(report.with(results))
}

/// The arguments that say what to run; not with which seed.
fn request(args: &MutateArgs) -> String {
    let mut words = vec!["tramptool".to_owned(), "mutate".to_owned()];
    words.extend(args.trampolines.iter().cloned());
    let mut push = |option: &str, value: String| words.extend([option.to_owned(), value]);
    args.profile.name().iter().for_each(|name| push("--profile", (*name).to_owned()));
    push("--arch", args.arch.clone());
    args.set.iter().for_each(|set| push("--set", set.clone()));
    words.extend(args.foreign.words());
    let mut push = |option: &str, value: String| words.extend([option.to_owned(), value]);
    if args.by != By::Emulator {
        push("--by", args.by.name().to_owned());
    }
    let engine = args.engine.all().into_iter().flat_map(Emulator::words);
    words.extend(engine.map(|word| (*word).to_owned()));
    let mut push = |option: &str, value: String| words.extend([option.to_owned(), value]);
    args.only.iter().for_each(|only| push("--only", only.clone()));
    args.sample.iter().for_each(|n| push("--sample", n.to_string()));
    shell(&words)
}

fn subject(args: &MutateArgs, backend: &'static dyn Backend) -> Result<MutationSubject> {
    let settings = args.set.iter().map(|s| settings::setting(s)).collect::<Result<Vec<_>>>()?;
    let profile = args.profile.find()?;
    let settings = settings::settings_of(profile, backend, &settings::backends(&args.arch, profile)?, &settings);
    MutationSubject::new(backend, profile.convention(backend.facts().name)?, &settings)
}

/// The report as text.
fn render(report: &Report, ui: &Ui) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(report, ui, &mut out);
    out
}

fn percent(killed: usize, of: usize) -> String {
    // Rounded down: 100 % are all.
    (killed * 1000).checked_div(of).map_or("-".to_owned(), |tenths| format!("{}.{} %", tenths / 10, tenths % 10))
}

fn write(report: &Report, ui: &Ui, out: &mut String) -> std::fmt::Result {
    let alone = By::ALL.iter().any(|(name, _, by)| *name == report.by && by.alone());
    // There are hundreds that the symbolic checker or the observer cannot see: they have a table of their own.
    for judged in report.survivors().filter(|_| !alone) {
        let what = match &judged.bug {
            Some((id, property)) => format!("bug:{id}, to be noticed by {property}, "),
            None => String::new(),
        };
        let title = format!("{what}{} {}: {}", judged.arch, judged.trampoline, judged.mutant);
        writeln!(out, "{}", ui.paint(Style::Heading, &title))?;
        for line in &judged.diff {
            let style = if line.starts_with('-') { Style::Left } else { Style::Right };
            writeln!(out, "  {}", ui.paint(style, line))?;
        }
        if !judged.clauses.is_empty() {
            writeln!(out, "  noticed by {} only", judged.clauses.join(" "))?;
        }
        if !judged.reason.is_empty() {
            writeln!(out, "  {}", judged.reason)?;
        }
        writeln!(out, "  {}\n", ui.paint(Style::Quiet, &judged.replay))?;
    }
    table_of_scores(report, ui, out)?;
    if alone {
        table_of_survivors(report, ui, out)?;
    }
    let bugs: BTreeMap<&str, bool> = report.results.iter().fold(BTreeMap::new(), |mut bugs, j| {
        if let Some((id, _)) = &j.bug {
            *bugs.entry(id).or_insert(true) &= j.outcome == Outcome::Killed;
        }
        bugs
    });
    if !bugs.is_empty() {
        let noticed: Vec<&str> = bugs.iter().filter(|(_, noticed)| **noticed).map(|(id, _)| *id).collect();
        writeln!(out, "bugs noticed by their property, {} of {}: {}", noticed.len(), bugs.len(), noticed.join(" "))?;
    }
    if !report.missed.is_empty() {
        writeln!(out, "never executed by the checks, and so without mutants: {}", report.missed.join(", "))?;
    }
    let of = report.mutants - report.equivalent;
    let verified: Option<usize> = report.scores.iter().map(|s| s.verified).sum();
    if let (false, Some(verified)) = (alone, verified) {
        writeln!(out, "{verified} of {of} noticed by the symbolic checker, {}", percent(verified, of))?;
    }
    writeln!(
        out,
        "{} of {of} mutants killed, {}; {} more are equivalent; seed {}",
        report.killed,
        percent(report.killed, of),
        report.equivalent,
        report.seed
    )
}

/// Survivors of the symbolic checker or the observer by operator: why it cannot see them, or how to see the first.
fn table_of_survivors(report: &Report, ui: &Ui, out: &mut String) -> std::fmt::Result {
    let mut groups: Vec<(&Judged, usize)> = Vec::new();
    for judged in report.survivors() {
        let same = |g: &&mut (&Judged, usize)| (&g.0.operator, &g.0.reason) == (&judged.operator, &judged.reason);
        match groups.iter_mut().find(same) {
            Some(group) => group.1 += 1,
            None => groups.push((judged, 1)),
        }
    }
    for (first, count) in &groups {
        let why = if first.reason.is_empty() { format!("see {}", first.replay) } else { first.reason.clone() };
        writeln!(out, "{}: {why}", ui.paint(Style::Heading, &format!("{count} of {} survive", first.operator)))?;
    }
    if groups.is_empty() { Ok(()) } else { writeln!(out) }
}

/// Killed of those that can be, by operator and architecture; of both judges, the symbolic checker's in a column of its own.
fn table_of_scores(report: &Report, ui: &Ui, out: &mut String) -> std::fmt::Result {
    let all = tool::BACKENDS.iter().map(|b| b.facts().name);
    let arches: Vec<&str> = all.filter(|arch| report.scores.iter().any(|s| s.arch == *arch)).collect();
    let mut operators: Vec<&str> = report.scores.iter().map(|s| s.operator.as_str()).collect();
    operators.dedup();
    let mut title = format!("{:23}", "killed of mutants");
    arches.iter().for_each(|arch| title += &format!("{arch:>11}"));
    let both = report.by == By::Both.name();
    if both {
        title += &format!("{:>13}", "by verify");
    }
    writeln!(out, "{}", ui.paint(Style::Heading, &format!("{title}   noticed by")))?;
    for operator in operators.iter().map(Some).chain([None]) {
        write!(out, "{:23}", operator.unwrap_or(&"all"))?;
        let mut by: BTreeMap<&str, usize> = BTreeMap::new();
        let mut verified = (0, 0);
        for arch in &arches {
            let scores = report.scores.iter().filter(|s| s.arch == *arch && operator.is_none_or(|o| s.operator == *o));
            let (mut killed, mut of) = (0, 0);
            for score in scores {
                killed += score.killed;
                of += score.mutants - score.equivalent;
                verified.0 += score.verified.unwrap_or(0);
                score.by.iter().for_each(|(clause, n)| *by.entry(clause).or_default() += n);
            }
            verified.1 += of;
            let cell = if of == 0 { "-".to_owned() } else { format!("{killed}/{of}") };
            let cell = format!("{cell:>11}");
            write!(out, "{}", if killed < of { ui.paint(Style::Left, &cell) } else { cell })?;
        }
        if both {
            write!(out, "{:>13}", format!("{}/{}", verified.0, verified.1))?;
        }
        let mut by: Vec<_> = by.into_iter().collect();
        by.sort_by_key(|&(_, n)| std::cmp::Reverse(n));
        let by: Vec<String> = by.into_iter().take(4).map(|(clause, n)| format!("{clause} {n}")).collect();
        match operator {
            Some(_) => writeln!(out, "   {}", by.join(", "))?,
            None => writeln!(out)?,
        }
    }
    writeln!(out)
}
