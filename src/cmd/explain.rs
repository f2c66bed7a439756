//! `explain`: a page on one property, or on one bug.

use clap::Args;
use codegen::words::error::Result;
use tool::explain;

use super::shared::exit::DONE;
use super::shared::ui::Ui;

/// Arguments of `explain`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ExplainArgs {
    /// P1 to P28, P2-wide, coverage, or a bug: bug:F1, bug:all for a list
    #[arg(value_name = "CLAUSE")]
    clause: String,
}

const EXAMPLES: &str = "\
`tramptool check --list-clauses` has one line for each clause, `tramptool explain bug:all` for each bug.

Examples:
  tramptool explain P7
  tramptool explain coverage
  tramptool explain bug:F1";

/// Print the page.
///
/// # Errors
/// There is no such property or bug, or stdout cannot be written to.
pub fn run(args: &ExplainArgs, ui: &Ui) -> Result<u8> {
    ui.out(explain::page(&args.clause, ui.columns())?)?;
    Ok(DONE)
}
