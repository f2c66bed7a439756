//! `trace replay`: all calls in their order.

use clap::Args;
use codegen::words::error::Result;
use trace::view::replay;

use super::recorded::RecordedArgs;
use crate::cmd::shared::exit::DONE;
use crate::cmd::shared::ui::Ui;

/// Arguments of `trace replay`.
#[derive(Args)]
pub struct ReplayArgs {
    #[command(flatten)]
    recorded: RecordedArgs,
}

/// Print all calls.
///
/// # Errors
/// The recording cannot be read, a filter is none, or stdout cannot be written to.
pub fn run(args: &ReplayArgs, ui: &Ui) -> Result<u8> {
    let (recording, filter) = args.recorded.open()?;
    ui.stream(|out| replay(&recording, &filter, out))?;
    Ok(DONE)
}
