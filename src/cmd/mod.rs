//! The commands, and what they share: arguments, output, messages and exit codes.

#[cfg(not(feature = "judge"))]
mod absent;
#[cfg(feature = "judge")]
mod audit;
#[cfg(feature = "judge")]
mod check;
mod completions;
mod compose;
#[cfg(feature = "judge")]
mod contract;
#[cfg(feature = "judge")]
mod cost;
mod diff;
#[cfg(feature = "judge")]
mod explain;
mod generate;
mod link;
mod list;
#[cfg(feature = "judge")]
mod mutate;
#[cfg(feature = "judge")]
mod probe;
#[cfg(feature = "judge")]
mod report;
#[cfg(feature = "judge")]
mod review;
mod shared;
mod show;
mod sites;
mod trace;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use codegen::words::error::{Error, Result};

#[cfg(not(feature = "judge"))]
use absent::{audit, check, contract, cost, explain, mutate, probe, report, review};
use shared::exit::{DONE, complain};
use shared::refused;
use shared::ui::Ui;
#[cfg(feature = "judge")]
use shared::{sandbox, threads};
use tool::printed::unmarked;

/// Generate, link and prove the trampolines of function tracing for x86_64, arm64 and riscv64.
#[derive(Parser)]
#[command(name = "tramptool", version, propagate_version = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
An architecture has the names of the kernel, uname and LLVM: x86, amd64, aarch64, riscv ...
Bad input ends with exit code 2 and one message on stderr.

Examples:
  tramptool list --arch arm64
  tramptool gen --all --arch riscv64 --emit asm,obj,json -o out
  tramptool show ftrace_caller --arch x86_64
  tramptool diff riscv64:ftrace_caller arm64:ftrace_caller";

#[derive(Subcommand)]
enum Command {
    /// List architectures, trampolines, options and numbers
    List(list::ListArgs),
    /// Generate trampolines: assembly text, object, flat bytes, manifest
    Gen(generate::GenArgs),
    /// Link objects into an image at a fixed address, and patch call sites
    Link(link::LinkArgs),
    /// List the traceable sites of a kernel, module, object or program
    Sites(sites::SitesArgs),
    /// Run trampolines in an emulator against their contracts
    Check(check::CheckArgs),
    /// Judge assembly of which no contract says anything, by what C relies on
    Audit(audit::AuditArgs),
    /// Write a first contract for a trampoline of your own or of others
    Contract(contract::ContractCommand),
    /// Merge and convert reports of `check` and `mutate`; print the JSON schemas
    Report(report::ReportCommand),
    /// Explain a property or a bug: what it means, and how the checker decides it
    Explain(explain::ExplainArgs),
    /// Inject faults and count those that the checks notice
    Mutate(mutate::MutateArgs),
    /// Show one trampoline: annotated listing, frame picture, cost
    Show(show::ShowArgs),
    /// Count instructions, memory accesses and stack, beside the lower bound and the kernel's own code
    Cost(cost::CostArgs),
    /// Probe functions in the emulator, with definitions as in kprobe_events
    Probe(probe::ProbeArgs),
    /// Run the users of the runtime in all combinations, and compare with a model
    Compose(compose::ComposeArgs),
    /// Show what two trampolines do differently
    Diff(diff::DiffArgs),
    /// Tell what a patch of trampolines changes, for a mail or a pull request
    Review(review::ReviewArgs),
    /// Run a program and record its calls; show recordings, and write them for other tools
    Trace(trace::TraceArgs),
    /// Write the report of a command that runs code: it gave up doing so itself
    #[cfg(feature = "judge")]
    #[command(hide = true)]
    Receive(sandbox::ReceiveArgs),
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
    /// Print a man page
    Man(completions::ManArgs),
}

/// `-:SYMBOL` is a symbol of what comes on stdin, and no option.
fn stdins(word: OsString) -> OsString {
    match word.to_str().and_then(|word| word.strip_prefix("-:")) {
        Some(symbol) => format!("/dev/stdin:{symbol}").into(),
        None => word,
    }
}

/// Run what the command line asks for.
pub fn main() -> ExitCode {
    let ui = Ui::new();
    let code = match Cli::try_parse_from(std::env::args_os().map(stdins)) {
        Ok(cli) => run(&cli.command, &ui).unwrap_or_else(|e| tell(&e)),
        Err(e) => refuse(&e, &ui),
    };
    ExitCode::from(code)
}

impl Command {
    /// Does it share work among threads, from the beginning? Where code of others runs, threads come when the inputs are read.
    #[cfg(feature = "judge")]
    fn shares_work(&self) -> bool {
        match self {
            Command::List(_) | Command::Gen(_) | Command::Link(_) | Command::Sites(_) | Command::Receive(_) => false,
            Command::Explain(_) | Command::Show(_) | Command::Trace(_) | Command::Completions(_) | Command::Man(_) => {
                false
            }
            Command::Check(_) | Command::Contract(_) | Command::Mutate(_) | Command::Cost(_) | Command::Probe(_) => {
                false
            }
            Command::Diff(_) | Command::Review(_) | Command::Audit(_) => false,
            Command::Report(_) | Command::Compose(_) => true,
        }
    }
}

fn run(command: &Command, ui: &Ui) -> Result<u8> {
    #[cfg(feature = "judge")]
    emu_tests::end_where_it_aborts(i32::from(shared::exit::TROUBLE))?;
    #[cfg(feature = "judge")]
    let _threads = if command.shares_work() { threads::made(threads::wanted())? } else { None };
    match command {
        Command::List(args) => list::run(args, ui),
        Command::Gen(args) => generate::run(args, ui),
        Command::Link(args) => link::run(args, ui),
        Command::Sites(args) => sites::run(args, ui),
        Command::Check(args) => check::run(args, ui),
        Command::Audit(args) => audit::run(args, ui),
        Command::Contract(args) => contract::run(args, ui),
        Command::Report(args) => report::run(args, ui),
        Command::Explain(args) => explain::run(args, ui),
        Command::Mutate(args) => mutate::run(args, ui),
        Command::Show(args) => show::run(args, ui),
        Command::Cost(args) => cost::run(args, ui),
        Command::Probe(args) => probe::run(args, ui),
        Command::Compose(args) => compose::run(args, ui),
        Command::Diff(args) => diff::run(args, ui),
        Command::Review(args) => review::run(args, ui),
        Command::Trace(args) => trace::run(args, ui),
        #[cfg(feature = "judge")]
        Command::Receive(args) => sandbox::receive(args),
        Command::Completions(args) => completions::completions(args, Cli::command(), ui),
        Command::Man(args) => completions::man(args, Cli::command(), ui),
    }
}

/// One line, and where there is one the place in what was given.
fn tell(error: &Error) -> u8 {
    let code = complain(&error.to_string());
    if let Some(mark) = error.mark() {
        let _ = writeln!(std::io::stderr(), "{}", unmarked(&mark));
    }
    code
}

/// What clap has to say: help and version as they are, errors as one line.
fn refuse(error: &clap::Error, ui: &Ui) -> u8 {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let text = error.render();
            let text = if ui.colour() { text.ansi().to_string() } else { text.to_string() };
            ui.out(text).map_or_else(|e| tell(&e), |()| DONE)
        }
        _ => {
            let words: Vec<String> = std::env::args_os().skip(1).map(|w| w.to_string_lossy().into_owned()).collect();
            complain(&refused::message(error, &Cli::command(), &words))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    /// In help and man pages each value has a name that says what it is, or a list of what it can be.
    #[test]
    fn every_value_has_a_name() {
        fn check(command: &clap::Command) {
            for arg in command.get_arguments().filter(|arg| arg.get_action().takes_values()) {
                let named = arg.get_value_names().is_some() || !arg.get_possible_values().is_empty();
                assert!(named, "{}: {}", command.get_name(), arg.get_id());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }
}
