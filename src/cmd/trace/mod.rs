//! `trace`: programs run, and what they do is recorded; and what was recorded.

mod export;
mod graph;
mod list;
mod preload;
mod recorded;
mod replay;
mod report;
mod run;
mod sink;

use clap::{Args, Subcommand};
use codegen::words::error::{Error, Result};

use super::shared::ui::Ui;

/// Arguments of `trace`.
#[derive(Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct TraceArgs {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    run: Option<run::RunArgs>,
}

const EXAMPLES: &str = "\
Without a subcommand, PROGRAM runs and each call of its functions that have a site of a compiler is recorded, with --any of all \
that its symbol table has. The exit code is \
the program's; 125 if it cannot be traced, 126 if it cannot be run, 127 if it is not there.

Examples:
  gcc -O2 -fpatchable-function-entry=5 -o program program.c
  tramptool trace -- ./program
  tramptool trace --any -L 'libz*' -- python3 -c 'import zlib'
  tramptool trace report --sort calls
  tramptool trace replay -F parse_header -t 10us
  tramptool trace export --format chrome -o trace.json";

#[derive(Subcommand)]
enum What {
    /// List the functions of a program or library, and how each would be recorded
    List(list::ListArgs),
    /// Count the calls of each function, and their times
    Report(report::ReportArgs),
    /// Print all calls in their order
    Replay(replay::ReplayArgs),
    /// Print who called whom, how often, and how long it took
    Graph(graph::GraphArgs),
    /// Write the recording in the format of another tool
    Export(export::ExportArgs),
    /// Write the library that starts a recording in whatever program loads it
    Preload(preload::PreloadArgs),
}

/// Do what is asked for.
///
/// # Errors
/// The recording cannot be read or is damaged, a filter is none, or an output cannot be written.
pub fn run(args: &TraceArgs, ui: &Ui) -> Result<u8> {
    match (&args.what, &args.run) {
        (Some(What::List(args)), _) => list::run(args, ui),
        (Some(What::Report(args)), _) => report::run(args, ui),
        (Some(What::Replay(args)), _) => replay::run(args, ui),
        (Some(What::Graph(args)), _) => graph::run(args, ui),
        (Some(What::Export(args)), _) => export::run(args, ui),
        (Some(What::Preload(args)), _) => preload::run(args),
        (None, Some(args)) => Ok(run::run(args)),
        (None, None) => Err(Error::new("no program; valid: tramptool trace -- PROGRAM ARGS")),
    }
}
