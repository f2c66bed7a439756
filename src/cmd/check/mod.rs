//! `check`: run trampolines in an emulator against their contracts.

mod agreement;
mod marks;
mod protocol;
mod running;

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::BoolishValueParser;
use codegen::words::error::{Error, Result};
use emu_tests::{Emulator, Failure, Filter, Report, Suite, Verdict};
use rayon::prelude::*;
use tool::explain;
use tool::minimise::minimise;
use tool::report::{Document, Expectations, Scope, SuiteName};
use tool::settings::{self, parse_u64};

use crate::cmd::check::agreement::agree;
use crate::cmd::check::running::RunningArgs;
use crate::cmd::report::ReportArgs;
use crate::cmd::shared::args::ProfileArg;
use crate::cmd::shared::engine::{EngineArgs, run_by};
use crate::cmd::shared::exit::DONE;
use crate::cmd::shared::foreign::{ForeignArgs, no_files};
use crate::cmd::shared::output;
use crate::cmd::shared::sandbox::SandboxArg;
use crate::cmd::shared::ui::{self, Ui};

/// Arguments of `check`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct CheckArgs {
    /// The trampolines to check: names, globs, `direct` for all direct-call trampolines [default: all]
    #[arg(value_name = "TRAMPOLINE")]
    pub trampolines: Vec<String>,
    /// Architecture, or `all`
    #[arg(long, value_name = "ARCH", default_value = "all")]
    pub arch: String,
    /// Fix an option or a number; all other options run with every value
    #[arg(long, value_name = "OPTION=VALUE")]
    pub set: Vec<String>,
    #[command(flatten)]
    pub profile: ProfileArg,
    /// The seed of all random values, decimal or 0x...
    #[arg(long, value_name = "N", value_parser = parse_u64, default_value = "1")]
    pub seed: u64,
    /// Run only this traced function
    #[arg(long, value_name = "NAME")]
    pub function: Option<String>,
    /// Run only this situation: plain, args, ip, direct, direct-jump, parent ..., joined by +
    #[arg(long, value_name = "NAME")]
    pub situation: Option<String>,
    /// Run only the functions of this fixture: plain, ibt, rvc ...
    #[arg(long, value_name = "NAME")]
    pub fixture: Option<String>,
    /// Run only cases with this trampoline at the site
    #[arg(long, value_name = "TRAMPOLINE")]
    pub attached: Option<String>,
    /// Run only handlers that overwrite `general` registers, or `any` register
    #[arg(long, value_name = "CLASS")]
    pub handler: Option<String>,
    /// Run only with SP at the function's entry N bytes above a multiple of 16
    #[arg(long, value_name = "N")]
    pub entry_sp: Option<u64>,
    /// Run only with the trampolines at this distance from the sites: 0, -4096, or copy-4096 for copies of them
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub distance: Option<String>,
    /// Check unwinding, interrupts and patching at every instruction, in every case (yes) or in none (no)
    /// [default: on the first function]
    #[arg(long, value_name = "yes|no", value_parser = BoolishValueParser::new())]
    pub closely: Option<bool>,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    foreign: ForeignArgs,
    #[command(flatten)]
    running: RunningArgs,
    #[command(flatten)]
    sandbox: SandboxArg,
    /// Reduce each failure to the smallest case that fails the same way
    #[arg(long)]
    pub minimise: bool,
    /// Known failures with their reasons, as TOML: see docs/report.md
    #[arg(long, value_name = "FILE")]
    pub expect: Option<PathBuf>,
    /// Look into each trampoline too: its listing, frame and registers along each path; `--format html` always does
    #[arg(long)]
    pub views: bool,
    /// List the clauses and stop
    #[arg(long)]
    pub list_clauses: bool,
    /// List the places that contracts and expectations can name, and stop
    #[arg(long)]
    pub list_places: bool,
    /// Judge the profile's protocol of patching sites: at many distances, does every sequence of instructions that a CPU can
    /// meet lead where it should?
    #[arg(long, conflicts_with_all = ["trampolines", "set", "seed", "function", "situation", "fixture", "attached", "handler",
        "entry_sp", "distance", "closely", "minimise", "expect", "object", "raw", "contract", "list_clauses",
        "list_places", "views", "verbose", "strict", "kselftest", "alternatives", "sandbox", "kernel_build", "running", "kcore", "kallsyms", "btf", "engine", "enforce", "marks"])]
    pub sites: bool,
    /// Hold what objects promise of their protection (.note.gnu.property) against their code, without a run: objects, archives,
    /// Debian packages, or folders of them
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["trampolines", "arch", "set", "profile", "seed", "function",
        "situation", "fixture", "attached", "handler", "entry_sp", "distance", "closely", "minimise", "expect", "object", "raw",
        "contract", "list_clauses", "list_places", "views", "sites", "alternatives", "kernel_build", "running", "kcore", "kallsyms",
        "btf", "engine", "enforce"])]
    pub marks: Vec<PathBuf>,
    #[command(flatten)]
    pub report: ReportArgs,
}

const EXAMPLES: &str = "\
The checker runs each function unpatched, with its site enabled, and with it disabled again. Results and machine state \
must agree, except for what the contract lists as clobbered.

Exit code: 0 all clauses hold, 1 one fails or is not decided, 2 trouble. With --kselftest: 0, 1 for failure and trouble, 4 if no \
clause was checked.
Examples:
  tramptool check
  tramptool check ftrace_caller --arch arm64 --set call-ops=off
  tramptool check ftrace_regs_caller --arch x86_64 --function args6 --situation args+direct --seed 7
  tramptool check 'ftrace_*' --arch x86_64 -v
  tramptool check --object my.o --contract my.toml --minimise
  tramptool check --sites --arch riscv64 --profile linux-7.3 --format json
  tramptool check --expect known.toml --kselftest --format ktap
  tramptool check --arch riscv64 --format junit -o riscv64.xml
  tramptool check --object ftrace_64.o rethook.o --contract linux-6.12-x86_64-orc
  tramptool check --enforce --arch arm64
  tramptool check --marks libfoo.a my.o
  tramptool check --running
  tramptool check --kcore kcore.elf --kallsyms kallsyms.txt --btf vmlinux.btf
  tramptool check --raw dump.bin --base 0xa000000 --entry 0xa000040 --arch x86_64 --contract my.toml";

/// Run the checks.
///
/// # Errors
/// A name that is unknown, or a report that cannot be written; a clause that fails is not an error.
pub fn run(args: &CheckArgs, ui: &Ui) -> Result<u8> {
    if args.list_clauses {
        return ui.out(explain::list()?).map(|()| DONE);
    }
    if args.list_places {
        let lines = emu_tests::places().into_iter().map(|(id, text)| format!("{id:<32} {text}\n"));
        return ui.out(lines.collect::<String>()).map(|()| DONE);
    }
    if args.sites {
        return protocol::run(&args.arch, &args.profile, &args.report, ui);
    }
    if !args.marks.is_empty() {
        return marks::run(&args.marks, &args.sandbox, &args.report, ui);
    }
    args.report.finish(|| {
        // Read first: a mistake in it need not wait for the run.
        let expectations = args.expect.as_deref().map(expectations).transpose()?;
        let all_failures = expectations.as_ref().is_some_and(Expectations::name_places);
        let mut document = examine(args, all_failures)?;
        if let Some(expectations) = expectations {
            expectations.apply(&mut document.report);
        }
        args.report.deliver(document, ui)
    })
}

fn expectations(path: &Path) -> Result<Expectations> {
    Expectations::parse(&path.display().to_string(), &output::read(path)?)
}

fn examine(args: &CheckArgs, all_failures: bool) -> Result<Document> {
    no_files(&args.trampolines)?;
    let contract = args.foreign.contract(&args.profile)?;
    let mut suites = match (args.running.suites()?, args.foreign.suites(contract.as_ref(), &args.arch, &args.profile)?)
    {
        (Some(suites), _) | (None, Some(suites)) => suites,
        (None, None) => generated(args)?,
    };
    let engines = args.engine.all();
    let sources = contract.iter().flat_map(|contract| suites.iter().map(|suite| contract.of(&suite.options))).collect();
    let filter = Filter {
        trampolines: tool::request::known_trampolines(
            &args.trampolines,
            suites.iter().flat_map(|s| &s.contracts).map(|c| c.name.as_str()),
        )?,
        function: args.function.clone(),
        situation: args.situation.as_deref().map(str::parse).transpose()?,
        fixture: args.fixture.clone(),
        attached: args.attached.clone(),
        handler: args.handler.as_deref().map(str::parse).transpose()?,
        entry_sp: args.entry_sp,
        distance: args.distance.as_deref().map(str::parse).transpose()?,
        closely: args.closely,
        all_failures,
        ..Filter::default()
    };
    let scope = Scope { suites: suites.iter().map(SuiteName::of).collect(), sources };
    let _threads = args.sandbox.enter_with(&engines, args.report.output())?;
    let mut by = |engine: Emulator| {
        run_by(engine, &mut suites);
        ui::with_progress(|progress| emu_tests::check(&suites, &filter, args.seed, progress))
    };
    let mut reports = engines.iter().map(|engine| by(*engine)).collect::<Result<Vec<_>>>()?.into_iter();
    let mut report = reports.next().unwrap_or_else(|| Report::empty(args.seed));
    reports.for_each(|other| agree(&mut report, &other));
    if report.scenarios == 0 && filter.chosen() {
        return Err(Error::new(
            "nothing is left to run; valid: fewer of --function, --situation, --fixture and the like",
        ));
    }
    if args.minimise {
        minimise(&suites.iter().collect::<Vec<_>>(), &filter, &mut report)?;
    }
    if args.views || args.report.is_page() {
        report.views = views(&suites, &filter, &report)?;
    }
    Ok(Document { report, scope })
}

/// Look into each trampoline under the first set of options that it is judged under, and under those under which it fails.
fn views(suites: &[Suite], filter: &Filter, report: &Report) -> Result<Vec<emu_tests::View>> {
    let first = |arch: &str, trampoline: &str| {
        let has = |s: &&Suite| s.backend.facts().name == arch && s.contracts.iter().any(|c| c.name == trampoline);
        suites.iter().find(has).map(SuiteName::of)
    };
    let of = |suite: &Suite| {
        let name = SuiteName::of(suite);
        let mut wanted = Vec::new();
        for (i, contract) in suite.contracts.iter().enumerate() {
            let mut rows =
                report.results.iter().filter(|r| SuiteName::of_row(r) == name && r.trampoline == contract.name);
            let failures: Vec<&Failure> = rows.clone().flat_map(|r| &r.failures).collect();
            let is_first = first(&name.arch, &contract.name).as_ref() == Some(&name);
            if rows.clone().next().is_some() && (is_first || rows.any(|r| r.verdict == Verdict::Fail)) {
                wanted.push((i, failures));
            }
        }
        emu_tests::views(suite, &wanted, filter, report.seed)
    };
    let each: Vec<_> = suites.par_iter().map(of).collect::<Result<_>>()?;
    Ok(each.into_iter().flatten().collect())
}

/// The generated trampolines that the arguments select, under all options that are not fixed.
fn generated(args: &CheckArgs) -> Result<Vec<Suite>> {
    let profile = args.profile.find()?;
    let backends = settings::backends(&args.arch, profile)?;
    let settings = args.set.iter().map(|s| settings::setting(s)).collect::<Result<Vec<_>>>()?;
    let mut suites = Vec::new();
    for &backend in &backends {
        let settings = settings::settings_of(profile, backend, &backends, &settings);
        let convention = profile.convention(backend.facts().name)?;
        let named: Vec<&str> = settings.iter().map(|(name, _)| *name).collect();
        let fixed = |name: &str| named.contains(&name);
        let chosen = settings::choices(backend, convention, &settings)?;
        let kept: Vec<usize> =
            convention.offered().filter(|(_, o)| fixed(o.name)).map(|(rule, _)| rule.index).collect();
        for varied in convention.combinations(|o| !fixed(o.name)) {
            let choices = kept.iter().fold(varied, |choices, &i| choices.with(i, chosen.get(i)));
            let target = settings::with_numbers(backend, convention, choices, &settings)?;
            let trampolines = tool::suite::trampolines_affected_by(&target, fixed)?;
            // Options for different trampolines leave nothing that all of them change.
            if !trampolines.is_empty() {
                suites.push(tool::suite::suite_of(backend, &target, &trampolines)?);
            }
        }
    }
    Ok(suites)
}
