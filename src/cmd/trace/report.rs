//! `trace report`: how often each function was called, and how long it took.

use clap::{Args, ValueEnum};
use codegen::words::error::Result;
use tool::printed;
use trace::view::{Key, Report};

use super::recorded::RecordedArgs;
use crate::cmd::shared::exit::DONE;
use crate::cmd::shared::ui::{Format, Ui};

/// Arguments of `trace report`.
#[derive(Args)]
pub struct ReportArgs {
    #[command(flatten)]
    recorded: RecordedArgs,
    /// Tell the calls of different callers apart
    #[arg(long)]
    callers: bool,
    /// By what the functions are sorted
    #[arg(short, long, value_enum, default_value = "total")]
    sort: Sort,
    /// The output's format
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
}

/// By what functions are sorted.
#[derive(Clone, Copy, ValueEnum)]
enum Sort {
    /// The time with callees
    Total,
    /// The time without callees
    #[value(name = "self")]
    Own,
    /// The number of calls
    Calls,
    /// The name
    Function,
}

/// Report.
///
/// # Errors
/// The recording cannot be read, a filter is none, or stdout cannot be written to.
pub fn run(args: &ReportArgs, ui: &Ui) -> Result<u8> {
    let (recording, filter) = args.recorded.open()?;
    let key = match args.sort {
        Sort::Total => Key::Total,
        Sort::Own => Key::Own,
        Sort::Calls => Key::Calls,
        Sort::Function => Key::Function,
    };
    let report = Report::new(&recording, &filter, args.callers, key)?;
    match args.format {
        Format::Human => ui.stream(|out| report.text(out))?,
        Format::Json => ui.out(printed::json(&report)?)?,
    }
    Ok(DONE)
}
