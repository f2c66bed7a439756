//! `audit`: assembly of others, without a contract.

mod baseline;
mod finding;
mod human;
mod letter;
mod lines;
mod sarif;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use codegen::words::error::{Error, Result};
use emu_tests::{Asked, Audited, Judged, Only, Tier, audit, siblings};
use link::{Input, backend_of};
use schemars::JsonSchema;
use serde::Serialize;
use wildmatch::WildMatch;

use super::shared::engine::EngineArgs;
use super::shared::exit::{DIFFERS, DONE, TROUBLE, note};
use super::shared::files::{Files, Origin, Unit, is_object_or_library};
use super::shared::input;
use super::shared::output;
use super::shared::sandbox::SandboxArg;
use super::shared::ui::Ui;
use baseline::Baseline;
use finding::{Done, Finding, Spot};
use lines::{Line, line_of};

/// Arguments of `audit`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct AuditArgs {
    /// Objects, archives, shared libraries, Debian packages, headers, or folders of them
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Judge only functions that the pattern matches, whoever calls them: `sha1_*`
    #[arg(long, value_name = "PATTERN")]
    function: Vec<String>,
    /// Judge compilers' functions too
    #[arg(long)]
    all: bool,
    /// Runs of each function, before those that go through its arguments
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    runs: u64,
    /// This run alone
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// A file of findings that are accepted; what it accepts and is gone is a finding too
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// The output's format
    #[arg(
        long,
        value_enum,
        default_value = "human",
        hide_possible_values = true,
        value_name = "human|json|sarif|baseline"
    )]
    format: Form,
    /// Write this finding, by the name that a baseline gives it, as a text for those who wrote the assembly
    #[arg(long, value_name = "FINDING", conflicts_with = "format")]
    report: Option<String>,
    /// Write it to a file instead of stdout
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    sandbox: SandboxArg,
    #[command(flatten)]
    engine: EngineArgs,
}

const EXAMPLES: &str = "\
Finds the objects that no compiler made, and runs those of their functions that C calls, or that headers declare. Each is run from \
many states, with callees that change all that they may; docs/audit.md has the claims, C1 to C13, and what is not looked at.

Exit code: 0 nothing is claimed but notes and what the baseline accepts, 1 something is, or what the baseline accepts is gone, \
2 trouble, or there was nothing that could be judged.

Examples:
  tramptool audit libcrypto.a
  tramptool audit libgmp-dev_6.2.1_amd64.deb --format json -o audit.json
  tramptool audit my.o my.h --baseline accepted.toml --format sarif -o audit.sarif
  tramptool audit my.o --report 'C1 x86_64 my.o sum rbx'";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For reading.
    Human,
    /// For programs.
    Json,
    /// For code review.
    Sarif,
    /// A file for --baseline.
    Baseline,
}

/// What `audit --format json` writes.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "tramptool audit")]
pub struct Report<'a> {
    schema: &'static str,
    version: &'static str,
    findings: Vec<Finding<'a>>,
    gone: Vec<&'a str>,
    inputs: Vec<Origin>,
    units: Vec<Judgement<'a>>,
    foreign: &'a [String],
}

#[derive(Serialize, JsonSchema)]
pub struct Judgement<'a> {
    file: &'a str,
    #[serde(flatten)]
    audited: &'a Audited,
}

/// Run `audit`.
///
/// # Errors
/// A file cannot be read, or is damaged.
pub fn run(args: &AuditArgs, ui: &Ui) -> Result<u8> {
    let mut accepted = args.baseline.as_deref().map(Baseline::of_file).transpose()?.unwrap_or_default();
    args.baseline.iter().for_each(|path| input::note(path));
    let mut files = Files::of(&args.files, is_object_or_library)?;
    let asked = asked(args, std::mem::take(&mut files.declared))?;
    let (foreign, inputs) = (std::mem::take(&mut files.foreign), std::mem::take(&mut files.origins));
    let here = std::env::current_dir().unwrap_or_default();
    let all: Vec<String> = args.files.iter().map(|file| file.display().to_string()).collect();
    let all = all.join(" ");
    let _threads = args.sandbox.enter_with(&[asked.engine], args.output.as_deref())?;
    let mut done = files.units().map(|unit| judged(unit, &all, &asked, &here)).collect::<Result<Vec<Done>>>()?;
    let mut of_architectures: Vec<(&str, &mut [Judged])> =
        done.iter_mut().map(|done| (done.audited.arch, done.audited.functions.as_mut_slice())).collect();
    siblings(&mut of_architectures);
    let mut findings: Vec<Finding> = done.iter().flat_map(Done::findings).collect();
    findings.iter_mut().for_each(|finding| finding.accepted = accepted.accepts(&finding.finding));
    findings.sort_by(|a, b| (a.claim.tier, a.claim.kind, &a.finding).cmp(&(b.claim.tier, b.claim.kind, &b.finding)));
    let gone: Vec<&str> = accepted.gone().collect();
    let open = findings.iter().any(|finding| !finding.accepted && finding.claim.tier < Tier::Note);
    let judged = done.iter().flat_map(|done| &done.audited.functions).any(|f| f.not_judged.is_none());
    let marked = done.iter().any(|done| !done.audited.marks.is_empty());
    let code = match (judged || marked, open || !gone.is_empty()) {
        (_, true) => DIFFERS,
        (true, false) => DONE,
        (false, false) => TROUBLE,
    };
    let text = match (args.format, &args.report) {
        (_, Some(name)) => letter::text(name, &inputs, &findings)?,
        (Form::Human, None) => human::text(&done, &findings, &gone, &foreign, ui),
        (Form::Baseline, None) => baseline::written(findings.iter().map(|finding| finding.finding.as_str()))?,
        (Form::Sarif, None) => tool::printed::json(&sarif::document(&findings, &accepted.reasons()))?,
        (Form::Json, None) => {
            let units = done.iter().map(|done| Judgement { file: &done.name, audited: &done.audited }).collect();
            let version = env!("CARGO_PKG_VERSION");
            let foreign = &foreign;
            tool::printed::json(&Report { schema: "audit-1", version, findings, gone, inputs, units, foreign })?
        }
    };
    output::report(text, args.output.as_deref(), ui)?;
    if code == TROUBLE {
        note("no function was judged; valid: an object with assembly that C calls, --function PATTERN, or --all");
    }
    Ok(code)
}

fn asked(args: &AuditArgs, declared: HashSet<String>) -> Result<Asked> {
    let patterns: Vec<WildMatch> = args.function.iter().map(|pattern| WildMatch::new(pattern)).collect();
    let only: Only = Box::new(move |name| patterns.iter().any(|p| p.matches(name)));
    let only = (!args.function.is_empty()).then_some(only);
    let engine = args.engine.one()?;
    Ok(Asked { all: args.all || only.is_some(), only, declared, runs: args.runs, seed: args.seed, engine })
}

fn judged(unit: Unit, all: &str, asked: &Asked, here: &Path) -> Result<Done> {
    let inputs: Vec<Input> = unit.objects.iter().map(|(name, bytes)| Input { name, bytes }).collect();
    let first = inputs.first().ok_or_else(|| Error::new(format!("{}: it has no object", unit.name)))?;
    let audited = audit(&inputs, backend_of(first, tool::BACKENDS)?, asked)?;
    let lines = lines(&unit, &audited, here);
    Ok(Done { name: unit.name, given: unit.given, all: all.to_owned(), audited, lines })
}

/// The lines of the sources that claims are about, where objects have line tables; files below the current directory from there.
fn lines(unit: &Unit, audited: &Audited, here: &Path) -> HashMap<Spot, Line> {
    let claims =
        audited.functions.iter().flat_map(|f| f.claims.iter().map(move |claim| (f, claim.offset.unwrap_or(0))));
    let line = |(function, offset): (&Judged, u64)| {
        let mut objects = unit.objects.iter().filter(|(name, _)| *name == function.member);
        let mut line = objects.find_map(|(_, bytes)| line_of(bytes, &function.symbol, offset))?;
        line.file = line.file.strip_prefix(here).map(Path::to_owned).unwrap_or(line.file);
        Some(((function.member.clone(), function.symbol.clone(), offset), line))
    };
    claims.filter_map(line).collect()
}
