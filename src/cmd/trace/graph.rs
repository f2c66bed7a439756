//! `trace graph`: who called whom, how often, and how long it took.

use clap::Args;
use codegen::words::error::Result;
use trace::tree::Tree;
use trace::view::graph;

use super::recorded::RecordedArgs;
use crate::cmd::shared::exit::DONE;
use crate::cmd::shared::ui::Ui;

/// Arguments of `trace graph`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct GraphArgs {
    #[command(flatten)]
    recorded: RecordedArgs,
}

const EXAMPLES: &str = "\
Examples:
  tramptool trace graph
  tramptool trace graph -F parse_header -D 3";

/// Print the tree.
///
/// # Errors
/// The recording cannot be read, a filter is none, or stdout cannot be written to.
pub fn run(args: &GraphArgs, ui: &Ui) -> Result<u8> {
    let (recording, filter) = args.recorded.open()?;
    let tree = Tree::of(&recording, &filter)?;
    ui.stream(|out| graph(&recording, &tree, out))?;
    Ok(DONE)
}
