//! `compose`: the runtime's users in all combinations, against the model.

#[cfg(feature = "judge")]
mod on;

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use codegen::words::error::{Error, Result};
use compose::{OURS, Outcome, Plan, SUBJECTS, Subject, USERS};

#[cfg(not(feature = "judge"))]
use crate::cmd::absent::on;
use crate::cmd::shared::exit::DONE;
use crate::cmd::shared::ui::Ui;

/// Exit code: an event differs from the model's.
const FAILED: u8 = 1;

/// Arguments of `compose`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ComposeArgs {
    /// Run the runtime on these architectures, in the emulator: linked with generated trampolines and functions of gcc
    #[arg(long, value_name = "ARCH", value_delimiter = ',')]
    arch: Vec<String>,
    /// With --arch: the objects that `cargo xtask core-objects` makes [default: where it leaves them]
    #[arg(long, value_name = "DIR", requires = "arch")]
    objects: Option<PathBuf>,
    /// With --arch: the kernel whose trampolines are linked [default: the latest]
    #[arg(long, value_name = "NAME", requires = "arch")]
    profile: Option<String>,
    /// With --arch: what the functions are like: word, stack, pair or big; where they run within paired trampolines, word-paired,
    /// pair-paired or big-paired [default: each in turn]
    #[arg(long, value_name = "SIGNATURE", requires = "arch")]
    signature: Option<String>,
    /// Which implementation: `runtime`, or a version of Linux as its fact sheet describes it
    #[arg(long, value_name = "CORE", default_value = "runtime")]
    core: String,
    /// The users to combine [default: all]
    #[arg(long, value_name = "USER", value_delimiter = ',')]
    users: Vec<String>,
    /// Run all subsets of the users with every shape of calls, registering and unregistering at every moment
    #[arg(long)]
    all: bool,
    /// How many random cases [default: 40000, with --arch 1000; none with --all]
    #[arg(long, value_name = "N")]
    random: Option<u64>,
    /// The first seed of random cases
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Of all cases that are asked for, run so many that the seed chooses
    #[arg(long, value_name = "N")]
    sample: Option<u64>,
    /// Run the case with this number alone
    #[arg(long, value_name = "N")]
    case: Option<u64>,
    /// Reduce failing cases
    #[arg(long)]
    minimise: bool,
}

const EXAMPLES: &str = "\
A thread, its interrupts and a second thread call functions while users register and unregister. A third thread stays in \
functions while the others run, and ends in them. A model without a \
shadow stack predicts each event.
Exit code: 0 all events agree, 1 one differs, 2 trouble. The report has one case for each kind of difference, with the \
command that runs it again.

Examples:
  tramptool compose --all
  tramptool compose --users graph,graph2,fprobe --random 100000 --seed 7
  tramptool compose --core kernel-7.3 --all --minimise
  tramptool compose --arch arm64 --all --sample 1000
  tramptool compose --arch riscv64 --profile linux-6.12 --signature word-paired
  tramptool compose --arch x86_64,arm64,riscv64 --random 12000";

/// Run the cases.
///
/// # Errors
/// There is no such core, user or case, or nothing to run.
pub fn run(args: &ComposeArgs, ui: &Ui) -> Result<u8> {
    let subject = SUBJECTS.into_iter().find(|s| s.name == args.core);
    let subject = subject.ok_or_else(|| Error::unknown("core", &args.core, SUBJECTS.map(|s| s.name)))?;
    let bit = |name: &String| {
        let place = USERS.iter().position(|user| user == name).map(|place| 1 << place);
        place.ok_or_else(|| Error::unknown("user", name, USERS))
    };
    let chosen = args.users.iter().try_fold(0, |all, name| Ok::<u64, Error>(all | bit(name)?))?;
    let users = if args.users.is_empty() { u64::MAX } else { chosen };
    let usual = if args.arch.is_empty() { 40_000 } else { 1000 };
    let random = args.random.unwrap_or(if args.all { 0 } else { usual });
    let plan = Plan { users, all: args.all, random, seed: args.seed, only: args.case, sample: args.sample };
    if let Some(case) = args.case.filter(|case| *case >= plan.len()) {
        return Err(Error::new(format!("no case {case}; valid: below {}", plan.len())));
    }
    if args.arch.is_empty() {
        return Ok(if judged(args, ui, &plan, &subject, "")?.failed == 0 { DONE } else { FAILED });
    }
    let (begin, mut all) = (Instant::now(), Outcome::default());
    let kernel = args.profile.as_ref().map_or(String::new(), |name| format!(" --profile {name}"));
    for arch in &args.arch {
        if subject.name != OURS.name {
            return Err(Error::new(format!("{} does not run on {arch}; valid: --core {}", subject.name, OURS.name)));
        }
        on::machine(
            arch,
            args.objects.as_deref(),
            args.profile.as_deref(),
            args.signature.as_deref(),
            &mut |subject, signature| {
                all.add(judged(args, ui, &plan, subject, &format!(" --arch {arch}{kernel} --signature {signature}"))?);
                Ok(())
            },
        )?;
    }
    if args.arch.len() > 1 {
        let (Outcome { cases, failed, .. }, took) = (&all, begin.elapsed().as_secs_f64());
        let machines = args.arch.len();
        ui.out(format!("{cases} cases on {machines} architectures, {failed} differ from the model, {took:.1} s\n"))?;
    }
    Ok(if all.failed == 0 { DONE } else { FAILED })
}

/// Run the cases on a core; `more` are arguments that choose where.
fn judged(args: &ComposeArgs, ui: &Ui, plan: &Plan, subject: &Subject, more: &str) -> Result<Outcome> {
    let outcome = plan.run(subject);
    if outcome.cases == 0 {
        let why = match outcome.skipped {
            0 => "valid: --all, --random 1 or more, a case of these users".to_owned(),
            _ => format!("{} has not what the {} cases use; valid: other --users", subject.name, outcome.skipped),
        };
        return Err(Error::new(format!("no case to run; {why}")));
    }
    ui.out(shown(args, subject, &outcome, more))?;
    Ok(outcome)
}

fn shown(args: &ComposeArgs, subject: &Subject, outcome: &Outcome, more: &str) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    for (index, failure) in &outcome.failures {
        let least = if args.minimise { subject.minimise(failure.clone()) } else { failure.clone() };
        let again = again(args, *index, more);
        let _ = writeln!(out, "case {index}:\n{least}  again: tramptool compose {again}\n");
    }
    let Outcome { cases, skipped, failed, .. } = outcome;
    let _ = writeln!(out, "{}: {cases} cases, {failed} differ from the model", subject.name);
    if *skipped > 0 {
        let _ = writeln!(out, "{skipped} cases have users or acts that {} has not", subject.name);
    }
    out
}

/// The arguments with which a case fails again.
fn again(args: &ComposeArgs, case: u64, more: &str) -> String {
    let users = if args.users.is_empty() { String::new() } else { format!(" --users {}", args.users.join(",")) };
    let all = if args.all { " --all" } else { "" };
    let random = args.random.map_or(String::new(), |n| format!(" --random {n}"));
    let objects = args.objects.as_ref().map_or(String::new(), |dir| format!(" --objects {}", dir.display()));
    format!("--core {}{more}{objects}{users}{all}{random} --seed {} --case {case} --minimise", args.core, args.seed)
}
