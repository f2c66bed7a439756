//! `show`: one trampoline for reading.

use clap::Args;
use codegen::words::error::Result;
use tool::request::trampoline;

use super::shared::args::{DirectArgs, TargetArgs};
use super::shared::exit::{DONE, note};
use super::shared::ui::{Style, Ui, wrap};

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
    // What was wrapped for others is wrapped here.
    let (prose, rest) = text.split_once("\n\n").unwrap_or(("", &text));
    let text = format!("{}\n\n{rest}", prose.replace("\n  ", " "));
    let mut out = String::new();
    for (i, line) in text.lines().enumerate() {
        for line in fitted(line, &comment, ui.columns()) {
            out.push_str(&match line.find(&comment) {
                _ if i == 0 => ui.paint(Style::Heading, &line),
                Some(at) => format!("{}{}", &line[..at], ui.paint(Style::Quiet, &line[at..])),
                None => line.clone(),
            });
            out.push('\n');
        }
    }
    ui.out(out)?;
    Ok(DONE)
}

/// A line in lines of so many columns: a comment goes on below itself, or below its instruction where it has no room beside it.
fn fitted(line: &str, comment: &str, width: usize) -> Vec<String> {
    /// Columns that a comment has at least.
    const ROOM: usize = 30;
    if line.chars().count() <= width {
        return vec![line.to_owned()];
    }
    let Some((code, text)) = line.split_once(comment) else {
        if line.starts_with(char::is_whitespace) && !line.contains("| ") {
            return vec![closer(line, width)];
        }
        // Of a row of the frame, what it holds is in the last column.
        let start = line.len() - line.trim_start().len();
        let (from, more) = line.rfind("|  ").map_or((start, 2), |bar| (bar + "|  000  ".len(), 0));
        let (first, text) = line.split_at_checked(from).unwrap_or(("", line));
        return hung(first, text, &" ".repeat(from + more), width);
    };
    let at = code.chars().count();
    if at + ROOM <= width {
        return hung(&format!("{code}{comment}"), text, &format!("{:at$}{comment}", ""), width);
    }
    let below = format!("{:1$}{comment}", "", at.min(width / 2));
    let comments = hung(&below, text, &below, width);
    [closer(code.trim_end(), width)].into_iter().chain(comments).collect()
}

/// A line of code whose columns are as close as they must be.
fn closer(line: &str, width: usize) -> String {
    let gap = line.trim_start().split(|c| c != ' ').max_by_key(|gap| gap.len()).unwrap_or_default();
    let less = gap.len().saturating_sub((line.chars().count().saturating_sub(width)).min(gap.len().saturating_sub(1)));
    match line.rfind(gap).filter(|_| gap.len() > 1) {
        Some(at) => format!("{}{}{}", &line[..at], " ".repeat(less), &line[at + gap.len()..]),
        None => line.to_owned(),
    }
}

/// A text in lines of so many columns: what stands before the first, and before the others.
fn hung(first: &str, text: &str, rest: &str, width: usize) -> Vec<String> {
    let lines = wrap(text, width.saturating_sub(first.chars().count().max(rest.chars().count())));
    let before = std::iter::once(first).chain(std::iter::repeat(rest));
    before.zip(lines).map(|(before, line)| format!("{before}{line}")).collect()
}
