//! `trace`: what traced programs have recorded.

mod export;
mod graph;
mod recorded;
mod replay;
mod report;

use clap::{Args, Subcommand};
use codegen::words::error::Result;

use super::shared::ui::Ui;

/// Arguments of `trace`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct TraceArgs {
    #[command(subcommand)]
    what: What,
}

const EXAMPLES: &str = "\
Examples:
  tramptool trace report --sort calls
  tramptool trace replay -F parse_header -t 10us
  tramptool trace export --format chrome -o trace.json";

#[derive(Subcommand)]
enum What {
    /// Count the calls of each function, and their times
    Report(report::ReportArgs),
    /// Print all calls in their order
    Replay(replay::ReplayArgs),
    /// Print who called whom, how often, and how long it took
    Graph(graph::GraphArgs),
    /// Write the recording in the format of another tool
    Export(export::ExportArgs),
}

/// Do what is asked for.
///
/// # Errors
/// The recording cannot be read or is damaged, a filter is none, or an output cannot be written.
pub fn run(args: &TraceArgs, ui: &Ui) -> Result<u8> {
    match &args.what {
        What::Report(args) => report::run(args, ui),
        What::Replay(args) => replay::run(args, ui),
        What::Graph(args) => graph::run(args, ui),
        What::Export(args) => export::run(args, ui),
    }
}
