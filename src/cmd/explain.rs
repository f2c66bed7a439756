//! `explain`: a page on one property.

use clap::Args;
use codegen::error::Result;
use tramptool::explain;

use super::DONE;
use super::ui::Ui;

/// Arguments of `explain`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ExplainArgs {
    /// P1 to P23, or `coverage`
    #[arg(value_name = "CLAUSE")]
    clause: String,
}

const EXAMPLES: &str = "\
`tramptool check --list-clauses` has one line for each.

Examples:
  tramptool explain P7
  tramptool explain coverage";

/// Print the page.
///
/// # Errors
/// There is no such property, or stdout cannot be written to.
pub fn run(args: &ExplainArgs, ui: &Ui) -> Result<u8> {
    ui.out(explain::page(&args.clause)?)?;
    Ok(DONE)
}
