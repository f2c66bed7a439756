//! `compose`: the runtime's users in all combinations, against the model.

use std::fmt::Write;

use clap::Args;
use codegen::error::{Error, Result};
use compose::{Outcome, Plan, SUBJECTS, Subject, USERS};

use super::exit::DONE;
use super::ui::Ui;

/// Exit code: an event differs from the model's.
const FAILED: u8 = 1;

/// Arguments of `compose`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ComposeArgs {
    /// Which implementation: `runtime`, or a version of Linux as its fact sheet describes it
    #[arg(long, value_name = "CORE", default_value = "runtime")]
    core: String,
    /// The users to combine [default: all]
    #[arg(long, value_name = "USER", value_delimiter = ',')]
    users: Vec<String>,
    /// Run all subsets of the users with every shape of calls, registering and unregistering at every moment
    #[arg(long)]
    all: bool,
    /// How many random cases [default: 40000, none with --all]
    #[arg(long, value_name = "N")]
    random: Option<u64>,
    /// The first seed of random cases
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Run the case with this number alone
    #[arg(long, value_name = "N")]
    case: Option<u64>,
    /// Reduce failing cases
    #[arg(long)]
    minimise: bool,
}

const EXAMPLES: &str = "\
A thread, its interrupts and a second thread call functions while users register and unregister. A model without a \
shadow stack predicts each event.
Exit code: 0 all events agree, 1 one differs, 2 trouble. The report has one case for each kind of difference, with the \
command that runs it again.

Examples:
  tramptool compose --all
  tramptool compose --users graph,graph2,fprobe --random 100000 --seed 7
  tramptool compose --core kernel-7.3 --all --minimise";

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
    let random = args.random.unwrap_or(if args.all { 0 } else { 40_000 });
    let plan = Plan { users, all: args.all, random, seed: args.seed, only: args.case };
    if let Some(case) = args.case.filter(|case| *case >= plan.len()) {
        return Err(Error::new(format!("no case {case}; valid: below {}", plan.len())));
    }
    let outcome = plan.run(&subject);
    if outcome.cases == 0 {
        let why = match outcome.skipped {
            0 => "valid: --all, --random 1 or more, a case of these users".to_owned(),
            _ => format!("{} has not what the {} cases use; valid: other --users", subject.name, outcome.skipped),
        };
        return Err(Error::new(format!("no case to run; {why}")));
    }
    ui.out(shown(args, &subject, &outcome))?;
    Ok(if outcome.failed == 0 { DONE } else { FAILED })
}

fn shown(args: &ComposeArgs, subject: &Subject, outcome: &Outcome) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    for (index, failure) in &outcome.failures {
        let least = if args.minimise { subject.minimise(failure.clone()) } else { failure.clone() };
        let _ = writeln!(out, "case {index}:\n{least}  again: tramptool compose {}\n", again(args, subject, *index));
    }
    let Outcome { cases, skipped, failed, .. } = outcome;
    let _ = writeln!(out, "{}: {cases} cases, {failed} differ from the model", subject.name);
    if *skipped > 0 {
        let _ = writeln!(out, "{skipped} cases have users or acts that {} has not", subject.name);
    }
    out
}

/// The arguments with which a case fails again.
fn again(args: &ComposeArgs, subject: &Subject, case: u64) -> String {
    let users = if args.users.is_empty() { String::new() } else { format!(" --users {}", args.users.join(",")) };
    let all = if args.all { " --all" } else { "" };
    let random = args.random.map_or(String::new(), |n| format!(" --random {n}"));
    format!("--core {}{users}{all}{random} --seed {} --case {case} --minimise", subject.name, args.seed)
}
