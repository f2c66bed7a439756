//! `show`: one trampoline for reading.

use clap::Args;
use codegen::words::error::Result;
use tool::request::trampoline;

use super::shared::args::{DirectArgs, TargetArgs};
use super::shared::exit::{DONE, note};
use super::shared::ui::{Style, Ui};

/// Arguments of `show`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ShowArgs {
    /// Trampoline, or `direct`, `around`, `programs`, `record` or `sled`
    #[arg(value_name = "TRAMPOLINE")]
    trampoline: String,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    direct: DirectArgs,
}

const EXAMPLES: &str = "\
Examples:
  tramptool show ftrace_caller --arch arm64
  tramptool show ftrace_regs_caller --arch x86_64 --set unwinder=fp
  tramptool show direct --args 3 --call my_func --arch riscv64";

/// Show a trampoline.
///
/// # Errors
/// It cannot be generated.
pub fn run(args: &ShowArgs, ui: &Ui) -> Result<u8> {
    let (backend, target, _) = args.target.resolve()?;
    let asked = args.direct.asked();
    asked.refuse_without(std::slice::from_ref(&args.trampoline))?;
    let request = trampoline(&args.trampoline, &asked, &target)?;
    request.unproven().iter().for_each(|line| note(line));
    let spec = request.spec();
    let text = templates::show(&backend.text(&spec, &target)?, &target)?;
    let comment = format!(" {} ", target.facts.comment);
    let mut out = String::new();
    for (i, line) in text.lines().enumerate() {
        out.push_str(&match line.find(&comment) {
            _ if i == 0 => ui.paint(Style::Heading, line),
            Some(at) => format!("{}{}", &line[..at], ui.paint(Style::Quiet, &line[at..])),
            None => line.to_owned(),
        });
        out.push('\n');
    }
    ui.out(out)?;
    Ok(DONE)
}
