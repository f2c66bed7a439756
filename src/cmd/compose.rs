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
    /// Reduce failing cases
    #[arg(long)]
    minimise: bool,
}

const EXAMPLES: &str = "\
A thread, its interrupts and a second thread call functions while users register and unregister. A model without a \
shadow stack predicts each event.
Exit code: 0 all events agree, 1 one differs, 2 trouble. The report has one case for each kind of difference.

Examples:
  tramptool compose --all
  tramptool compose --users graph,graph2,fprobe --random 100000 --seed 7
  tramptool compose --core kernel-7.3 --all --minimise";

/// Run the cases.
///
/// # Errors
/// There is no such core or user.
pub fn run(args: &ComposeArgs, ui: &Ui) -> Result<u8> {
    let names = || SUBJECTS.map(|s| s.name).join(", ");
    let subject = SUBJECTS.into_iter().find(|s| s.name == args.core);
    let subject = subject.ok_or_else(|| Error::new(format!("no core '{}'; valid: {}", args.core, names())))?;
    let bit = |name: &String| {
        let place = USERS.iter().position(|user| user == name).map(|place| 1 << place);
        place.ok_or_else(|| Error::new(format!("no user '{name}'; valid: {}", USERS.join(", "))))
    };
    let chosen = args.users.iter().try_fold(0, |all, name| Ok::<u64, Error>(all | bit(name)?))?;
    let users = if args.users.is_empty() { u64::MAX } else { chosen };
    let random = args.random.unwrap_or(if args.all { 0 } else { 40_000 });
    let plan = Plan { users, all: args.all, random, seed: args.seed };
    let outcome = plan.run(&subject);
    ui.out(shown(args, &subject, &outcome))?;
    Ok(if outcome.failed == 0 { DONE } else { FAILED })
}

fn shown(args: &ComposeArgs, subject: &Subject, outcome: &Outcome) -> String {
    let mut out = String::new();
    let users = if args.users.is_empty() { String::new() } else { format!(" --users {}", args.users.join(",")) };
    let all = if args.all { " --all" } else { "" };
    // Writing to a String cannot fail.
    for (index, failure) in &outcome.failures {
        let least = if args.minimise { subject.minimise(failure.clone()) } else { failure.clone() };
        let _ = writeln!(out, "case {index}:\n{least}");
    }
    let Outcome { cases, skipped, failed, .. } = outcome;
    let _ = writeln!(out, "{}: {cases} cases, {failed} differ from the model", subject.name);
    if *skipped > 0 {
        let _ = writeln!(out, "{skipped} cases have users or acts that {} has not", subject.name);
    }
    if *failed > 0 {
        let random = args.random.map_or(String::new(), |n| format!(" --random {n}"));
        let again = format!("--core {}{users}{all}{random} --seed {} --minimise", subject.name, args.seed);
        let _ = writeln!(out, "again: tramptool compose {again}");
    }
    out
}
