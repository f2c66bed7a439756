//! `completions` and `man`: what follows from the definition of the command line.

mod known;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use codegen::words::error::{Error, Result};

use crate::cmd::shared::exit::DONE;
use crate::cmd::shared::ui::Ui;
use known::with_known_values;

/// Arguments of `completions`.
#[derive(Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  tramptool completions bash > ~/.local/share/bash-completion/completions/tramptool
  tramptool completions fish > ~/.config/fish/completions/tramptool.fish";

/// Arguments of `man`.
#[derive(Args)]
#[command(after_help = MAN_EXAMPLES)]
pub struct ManArgs {
    /// The command whose page it is, such as `gen` or `contract init` [default: that of tramptool itself]
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

const MAN_EXAMPLES: &str = "\
Examples:
  tramptool man | man -l -
  tramptool man gen > tramptool-gen.1
  tramptool man contract init > tramptool-contract-init.1";

/// Print a completion script.
///
/// # Errors
/// Stdout cannot be written to.
pub fn completions(args: &CompletionsArgs, definition: Command, ui: &Ui) -> Result<u8> {
    let mut definition = with_known_values(definition)?;
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut definition, "tramptool", &mut script);
    ui.raw(script)?;
    Ok(DONE)
}

/// Print a man page.
///
/// # Errors
/// There is no such command, or stdout cannot be written to.
pub fn man(args: &ManArgs, mut definition: Command, ui: &Ui) -> Result<u8> {
    // Gives the subcommands the names by which man pages are looked up: tramptool-gen.
    definition.build();
    let mut page = &definition;
    for name in &args.command {
        let valid = page.get_subcommands().map(Command::get_name);
        page = page.find_subcommand(name).ok_or_else(|| Error::unknown("command", name, valid))?;
    }
    let mut text = Vec::new();
    Man::new(page.clone()).render(&mut text).map_err(|e| Error::new(format!("man page: {e}")))?;
    ui.raw(text)?;
    Ok(DONE)
}
